// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan lab capture`: records the frames of a lab's hosts.
//!
//! A frame is recorded where it arrives, once, because the kernel passes frames that bypass traffic
//! control, like those of the link `packet`, to no capture at their sender. Frames that a wire loses
//! are therefore missing. Frames that the kernel segments later appear as one.

use super::{Lab, ip};
use crate::error::{UserError, user_error};
use crate::output::outln;
use crate::signals::{ENDING, Signals};
use anyhow::{Context, Result};
use pcap_file::TsResolution;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use portolan_sys::net::{self, MacAddr, WIRE_FRAME_LEN_MAX, WireEnd};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The interface of every host.
const INTERFACE: &str = "eth0";

/// Bytes of unread frames that the kernel keeps for each host.
const KERNEL_LEN: usize = 64 << 20;

/// Maximum number of frames that are read from one host per turn.
const BATCH_MAX: usize = 256;

/// Longest sleep; the end of the time is noticed after it.
const SLEEP_MAX: Duration = Duration::from_millis(200);

/// Bytes of the longest packet in a file.
const SNAP_LEN: u32 = 262_144;

#[derive(clap::Args)]
pub(super) struct Args {
    /// The host to record: h1, 1 or NAME-h1 [default: all hosts].
    host: Option<String>,
    /// Name of the lab.
    #[arg(long, default_value = "lab")]
    name: String,
    /// File to write, for Wireshark and tcpdump.
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// End after this number of frames [default: at Ctrl-C].
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// End after this many seconds [default: at Ctrl-C].
    #[arg(long, value_name = "S", value_parser = crate::run::command::seconds)]
    time: Option<Duration>,
}

/// Records frames until a signal arrives, or the number or time of `args` is reached.
pub(super) fn main(args: &Args) -> Result<()> {
    ip::check_privilege()?;
    let lab = Lab::find(&args.name)?;
    let host = args.host.as_deref().map(|host| lab.host_index(host));
    let host = host.transpose()?;
    let mut file = CaptureFile::create(&args.output)?;
    // Blocked before the notice below, so that a signal after it always ends the capture in order.
    let signals = Signals::block(&ENDING)?;
    let mut taps = open_taps(&lab)?;
    if let Some(host) = host {
        select(&mut taps, host);
    }
    eprintln!(
        "portolan: recording {} of lab {} in {}",
        args.host.as_deref().unwrap_or("all hosts"),
        lab.name,
        args.output.display()
    );
    record(&mut taps, &mut file, &signals, (args.count, args.time))?;
    let lost: u64 = taps.iter().map(|tap| u64::from(tap.end.drops())).sum();
    let count = file.finish()?;
    outln!("{count} frames recorded, {lost} lost by this recorder")
}

/// Receives the frames that arrive at one host.
struct Tap {
    end: WireEnd,
    mac: MacAddr,
    /// If set, only frames from this address are of interest.
    from: Option<MacAddr>,
}

/// A frame with the time of its arrival.
type Stamped = (Duration, Vec<u8>);

/// Opens a tap at each host. This process is in the network namespace of the last one afterwards.
fn open_taps(lab: &Lab) -> Result<Vec<Tap>> {
    let open = |index| {
        let namespace = lab.namespace(index);
        let what = || format!("recording at host {namespace}");
        net::enter_netns(&Path::new(ip::NETNS_DIR).join(&namespace)).with_context(what)?;
        let interfaces = net::interfaces().with_context(what)?;
        let found = interfaces.iter().find(|one| one.name == INTERFACE);
        let Some((index, mac)) = found.and_then(|one| Some((one.index, one.mac?))) else {
            user_error!("host {namespace} has no interface {INTERFACE}: create the lab again");
        };
        Ok(Tap {
            end: WireEnd::open(index, KERNEL_LEN).with_context(what)?,
            mac,
            from: None,
        })
    };
    (0..lab.host_count).map(open).collect()
}

/// Restricts the taps to the frames from and to a host.
fn select(taps: &mut [Tap], host: u32) {
    let host = host as usize;
    let mac = taps[host].mac;
    for (index, tap) in taps.iter_mut().enumerate() {
        tap.from = (index != host).then_some(mac);
    }
}

/// Writes frames to the file until `count` of them, the end of `time`, or a signal.
fn record(
    taps: &mut [Tap],
    file: &mut CaptureFile<'_>,
    signals: &Signals,
    (count, time): (Option<u64>, Option<Duration>),
) -> Result<()> {
    let begin = Instant::now();
    // Time at which the recording ends. Frames that arrived before it are still written.
    let mut end = None;
    let mut fds: Vec<RawFd> = taps.iter().map(|tap| tap.end.as_fd().as_raw_fd()).collect();
    fds.push(signals.fd().as_raw_fd());
    let mut buf = vec![0; WIRE_FRAME_LEN_MAX];
    let is_full = |file: &CaptureFile<'_>| count.is_some_and(|count| file.count >= count);
    let mut frames = Vec::new();
    while !is_full(file) {
        let mut complete_to = now();
        for tap in &mut *taps {
            complete_to = complete_to.min(tap.take(&mut buf, &mut frames)?);
        }
        let left = time.map(|time| time.saturating_sub(begin.elapsed()));
        if end.is_none() && (signals.next().is_some() || left == Some(Duration::ZERO)) {
            end = Some(now());
        }
        if frames.is_empty() && end.is_none() {
            file.flush()?;
            net::wait_readable(&fds, left.unwrap_or(SLEEP_MAX).min(SLEEP_MAX))
                .context("waiting for frames")?;
        }
        for (at, frame) in take_ordered(&mut frames, complete_to) {
            if !is_full(file) {
                file.write(at, &frame)?;
            }
        }
        if end.is_some_and(|end| complete_to >= end) {
            break;
        }
    }
    Ok(())
}

/// Takes the frames that arrived up to `complete_to`, in the order of arrival. Later frames stay in
/// `frames`, because another tap may still hold earlier ones.
fn take_ordered(frames: &mut Vec<Stamped>, complete_to: Duration) -> Vec<Stamped> {
    frames.sort_by_key(|(at, _)| *at);
    let later = frames.partition_point(|(at, _)| *at <= complete_to);
    frames.drain(..later).collect()
}

impl Tap {
    /// Appends unread frames to `frames`, at most [`BATCH_MAX`]. Returns the time up to which all
    /// frames of this tap have been read.
    fn take(&self, buf: &mut [u8], frames: &mut Vec<Stamped>) -> Result<Duration> {
        let complete_to = now();
        let mut last = complete_to;
        for _ in 0..BATCH_MAX {
            let arrived = match self.end.receive(buf) {
                Ok(Some(arrived)) => arrived,
                Ok(None) => return Ok(complete_to),
                // The kernel cannot describe this frame, and has dropped it.
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => continue,
                Err(error) => user_error!(
                    "the recording ends: {error}; is the lab still up? See `portolan lab list`"
                ),
            };
            let at = arrived.at.unwrap_or_else(now);
            let frame = net::wire_frame(&buf[arrived.bytes]);
            let from = frame.get(6..12);
            if self.from.is_none_or(|mac| from == Some(&mac.0)) {
                frames.push((at, frame.to_vec()));
            }
            last = at;
        }
        Ok(last)
    }
}

#[allow(clippy::disallowed_methods, reason = "captures hold dates")]
fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

/// The file that is written.
struct CaptureFile<'a> {
    path: &'a Path,
    writer: PcapWriter<Flushable>,
    file: Flushable,
    count: u64,
}

/// A buffered file with two owners, because the writer offers no flush.
#[derive(Clone)]
struct Flushable(std::rc::Rc<std::cell::RefCell<BufWriter<File>>>);

impl Write for Flushable {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.borrow_mut().flush()
    }
}

impl CaptureFile<'_> {
    fn create(path: &Path) -> Result<CaptureFile<'_>> {
        let header = PcapHeader {
            snaplen: SNAP_LEN,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let file = File::create(path).map_err(|error| failed(path, &error))?;
        let file = Flushable(std::rc::Rc::new(BufWriter::new(file).into()));
        let writer = PcapWriter::with_header(file.clone(), header);
        Ok(CaptureFile {
            path,
            writer: writer.map_err(|error| failed(path, &error))?,
            file,
            count: 0,
        })
    }

    fn write(&mut self, at: Duration, frame: &[u8]) -> Result<()> {
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let packet = PcapPacket::new(at, len, frame);
        let written = self.writer.write_packet(&packet);
        written.map_err(|error| failed(self.path, &error))?;
        self.count += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let flushed = self.file.flush();
        flushed.map_err(|error| failed(self.path, &error).into())
    }

    /// Writes what is buffered. Returns the number of frames.
    fn finish(mut self) -> Result<u64> {
        self.flush()?;
        Ok(self.count)
    }
}

fn failed(path: &Path, error: &dyn std::error::Error) -> UserError {
    let path = path.display();
    UserError::new(format!(
        "{path} cannot be written ({error}): name another file with --output"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_several_taps_are_written_in_order_of_arrival() {
        let frame = |at| (Duration::from_nanos(at), vec![0; 60]);
        let times = |taken: Vec<Stamped>| -> Vec<u128> {
            taken.iter().map(|(at, _)| at.as_nanos()).collect()
        };
        // One tap holds frames later than 5 that it has not passed on.
        let mut frames = vec![frame(7), frame(2), frame(5), frame(1)];
        let taken = take_ordered(&mut frames, Duration::from_nanos(5));
        assert_eq!(times(taken), [1, 2, 5]);
        frames.push(frame(6));
        let taken = take_ordered(&mut frames, Duration::from_nanos(9));
        assert_eq!(times(taken), [6, 7]);
    }
}
