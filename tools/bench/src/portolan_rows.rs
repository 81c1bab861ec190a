// SPDX-License-Identifier: MIT OR Apache-2.0
//! Portolan's own rows: a job of two ranks, of which rank 0 measures.
//!
//! Payloads, windows and checks are the same as in the bare rows. Rank 0 writes its sample to a
//! file, because a job's standard output belongs to the launcher.

use crate::args::{Metric, Path};
use crate::costs::Costs;
use crate::cpu::Meter;
use crate::interfere::Pacer;
use crate::launcher::{Job, Launcher};
use crate::measure::{Pass, SHM_BATCH, Sample, drive};
use crate::pattern::{Flags, stamp, verify};
use crate::place::{Place, pin};
use crate::portolan_account;
use crate::remote::Remote;
use crate::rows::pass_flags;
use crate::spec::{Program, Role, Spec, window};
use crate::worker;
use crate::{bidir, incast, interfere, loaded, logp};
use anyhow::{Context, Result, anyhow, bail, ensure};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use portolan::binding::Usage;
use portolan::{Buffer, Completion, Node, PortConfig, Region, Target};
use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::os::unix::fs::chown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// Ports of messages to the answerer, and of replies.
const DATA: u16 = 1;
const REPLIES: u16 = 2;

/// Port of LogP's loops at both ranks.
const LOOPS: u16 = 7;

/// Reply of the receiver after a complete window; four bytes, as in the OSU benchmarks.
const ACK: [u8; 4] = *b"done";

/// Receives posted at a time in a stream. With two, the network never waits for a posted receive.
/// More would use extra memory: each is a buffer as long as a message, and the bare rows use one.
const POSTED: usize = 2;

/// User and group without privileges: the kernel's `overflowuid`, which owns files of unmapped
/// users.
const NOBODY: u32 = 65534;

/// Flag in the number of the last small message.
const LAST: u64 = 1 << 63;

/// Runs the row's job and returns rank 0's sample.
///
/// # Errors
/// The job fails, or rank 0 writes no sample.
pub(crate) fn run(
    spec: &mut Spec,
    path: Path,
    places: &[Place],
    (launcher, remote): (&dyn Launcher, Option<&Remote>),
) -> Result<Sample> {
    let result = tempfile::NamedTempFile::new().context("cannot create a file for the result")?;
    if spec.conditions.broker {
        chown(result.path(), Some(NOBODY), Some(NOBODY))
            .context("cannot change the owner of the result")?;
    }
    spec.result = Some(result.path().to_path_buf());
    let program = std::env::current_exe().context("cannot find this program's executable file")?;
    let program = program
        .to_str()
        .context("the path of this program's file is not UTF-8")?;
    let mut command = vec![program.to_owned()];
    command.extend(worker::arguments(spec)?);
    let mut options = options(spec, path);
    if remote.is_some() {
        options.extend(places[0].interface_option());
    }
    launcher.run_job(&Job {
        command: &command,
        places,
        server: remote.map(|remote| remote.rank(spec)).transpose()?,
        path,
        options,
        by_broker: spec.conditions.broker,
        lasts: worker::lasts(spec.pace),
    })?;
    let text = fs::read_to_string(result.path()).context("cannot read the result")?;
    serde_json::from_str(&text).context("rank 0 wrote no valid result")
}

/// Returns the options of a job. A row of one path uses only that path.
pub(crate) fn options(spec: &Spec, path: Path) -> BTreeMap<String, String> {
    let mut options = spec.conditions.options();
    let stream = match path {
        Path::Stream => Some("on"),
        Path::Udp | Path::Packet | Path::Xdp | Path::XdpNative => Some("off"),
        Path::Shm | Path::Auto => None,
    };
    options.extend(stream.map(|usage| ("stream".into(), usage.into())));
    let mode = match path {
        Path::Xdp => Some("generic"),
        Path::XdpNative => Some("native"),
        _ => None,
    };
    options.extend(mode.map(|mode| ("xdp".into(), mode.into())));
    options
}

/// Runs one rank of the job.
///
/// # Errors
/// A message was wrong, the other rank has failed, or the result cannot be written.
pub(crate) fn work(spec: &Spec, metric: Metric) -> Result<()> {
    if spec.conditions.broker {
        become_nobody().context("cannot drop privileges")?;
    }
    let mut node = Node::join()?;
    let expected = ranks(spec, metric);
    ensure!(
        node.size() == expected,
        "a row has {expected} ranks, not {}",
        node.size()
    );
    let role = match node.rank() {
        0 => Some(Role::Driver),
        1 => Some(Role::Answerer),
        _ => None,
    };
    // More than two spinning processes are left to the scheduler.
    if let (Some(cores), Some(role), 2) = (spec.cores, role, expected) {
        pin(cores[role.index()]).context("cannot pin to a core")?;
    }
    match (metric, node.rank()) {
        (_, 0) => measure(&mut node, spec, metric),
        (Metric::Incast, _) => incast::send(&mut node, spec),
        (_, interfere::RANK) => interfere::work(&mut node),
        _ => account(&mut node, spec, metric),
    }?;
    // A rank that exits first must not look like a failure to the other.
    Ok(node.barrier()?)
}

/// Gives up all privileges.
fn become_nobody() -> nix::Result<()> {
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

fn ranks(spec: &Spec, metric: Metric) -> u32 {
    match metric {
        Metric::Incast => spec.senders + 1,
        _ if spec.conditions.interfere > 0 => interfere::RANK + 1,
        _ => 2,
    }
}

/// Runs rank 0 and writes its sample, including the other rank's account.
fn measure(node: &mut Node, spec: &Spec, metric: Metric) -> Result<()> {
    let mut sample = match metric {
        Metric::Pingpong => serve(node, spec),
        Metric::Stream => send_stream(node, spec),
        Metric::Rate => send_rate(node, spec),
        Metric::Bidir => {
            node.open(REPLIES, PortConfig::default())?;
            bidir::measure(node, spec)
        }
        Metric::Logp => logp::measure(&mut Loops::open(node)?, spec),
        Metric::Loaded => {
            node.open(REPLIES, PortConfig::default())?;
            loaded::measure(node, spec)
        }
        Metric::Incast => incast::receive(node, spec),
    }?;
    let own = portolan_account::of(node, &Meter::default()).counters;
    if !spec.calls {
        sample.extra.costs = Costs::default();
    }
    if metric == Metric::Incast {
        sample.add("receiver", own);
    } else {
        sample.take(portolan_account::receive(node, 1, REPLIES)?);
        sample.add("sender", own);
    }
    write_result(spec, &sample)
}

/// Writes rank 0's sample to the file of the request.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write_result(spec: &Spec, sample: &Sample) -> Result<()> {
    let path = spec
        .result
        .as_ref()
        .context("the specification names no file for the result")?;
    fs::write(path, serde_json::to_vec(sample)?)
        .with_context(|| format!("cannot write the result to {}", path.display()))
}

/// Runs rank 1, then sends its account to rank 0.
fn account(node: &mut Node, spec: &Spec, metric: Metric) -> Result<()> {
    let mut meter = Meter::default();
    let foreign = (spec.conditions.interfere > 0)
        .then(|| interfere::count(node))
        .transpose()?;
    let before = Usage::of_this_thread();
    let messages = match metric {
        Metric::Pingpong => answer(node, spec),
        Metric::Stream => receive_stream(node, spec, &mut meter),
        Metric::Rate => receive_rate(node, spec),
        Metric::Bidir => {
            let bytes = 2 * window(spec.size) * spec.size as u64;
            bidir::answer(node, spec, || meter.pass(bytes)).map(|()| 0)
        }
        Metric::Logp => logp::answer(&mut Loops::open(node)?, spec).map(|()| 0),
        Metric::Loaded => loaded::answer(node).map(|()| 0),
        Metric::Incast => bail!("rank 1 of an incast is a sender like the others"),
    }?;
    let effort = Usage::of_this_thread().since(&before);
    let mut account = portolan_account::of(node, &meter);
    if spec.calls && messages > 0 {
        account.costs = Costs::of("receiver", &effort, messages);
    }
    if let Some(foreign) = foreign {
        let (foreign, stream) = (foreign.load(Relaxed), meter.bytes() / spec.size as u64);
        account.counters.insert("foreign messages".into(), foreign);
        account
            .counters
            .insert("datagrams".into(), stream * interfere::datagrams(spec));
    }
    portolan_account::send(node, Target::new(0, REPLIES), &account)
}

/// One rank's end of LogP's loops.
struct Loops<'a> {
    node: &'a mut Node,
    peer: Target,
}

impl<'a> Loops<'a> {
    fn open(node: &'a mut Node) -> Result<Self> {
        node.open(LOOPS, PortConfig::default())?;
        node.barrier()?;
        let peer = Target::new(1 - node.rank(), LOOPS);
        Ok(Loops { node, peer })
    }
}

impl logp::Endpoint for Loops<'_> {
    #[inline]
    fn send(&mut self, message: &[u8]) -> Result<()> {
        Ok(self.node.send(self.peer, message)?)
    }

    #[inline]
    fn receive(&mut self, message: &mut [u8]) -> Result<()> {
        let received = self.node.recv(LOOPS, message)?;
        ensure!(
            received.len == message.len(),
            "a message of {} bytes",
            received.len
        );
        Ok(())
    }

    fn send_windows(&mut self, spec: &Spec) -> Result<Sample> {
        if spec.size < logp::LONG_MIN {
            send_rate(self.node, spec)
        } else {
            send_stream(self.node, spec)
        }
    }

    fn receive_windows(&mut self, spec: &Spec) -> Result<()> {
        if spec.size < logp::LONG_MIN {
            receive_rate(self.node, spec).map(|_| ())
        } else {
            receive_stream(self.node, spec, &mut Meter::default()).map(|_| ())
        }
    }
}

fn serve(node: &mut Node, spec: &Spec) -> Result<Sample> {
    node.open(REPLIES, PortConfig::default())?;
    node.barrier()?;
    let mut tx = Region::new(spec.size.max(1))?;
    let mut rx = Region::new(spec.size.max(1))?;
    let mut seq = 0;
    let messages = if uses_memory(spec) { SHM_BATCH } else { 1 };
    drive(spec.pace, Pass::round_trips(messages), |last| {
        for index in 1..=messages {
            let flags = pass_flags(seq, last && index == messages);
            let message = stamped(&mut tx, spec.size, seq, flags);
            node.send(Target::new(1, DATA), message)?;
            let received = node.recv(REPLIES, &mut rx)?;
            ensure!(
                received.len == message.len(),
                "a reply of {} bytes",
                received.len
            );
            ensure!(
                received.len == 0 || verify(&rx, seq)? == flags,
                "the reply's flags differ from the request's"
            );
            seq += 1;
        }
        Ok(())
    })
}

/// Runs the answerer of the ping-pong and returns the number of messages.
fn answer(node: &mut Node, spec: &Spec) -> Result<u64> {
    node.open(DATA, PortConfig::default())?;
    node.barrier()?;
    let mut tx = Region::new(spec.size.max(1))?;
    let mut rx = Region::new(spec.size.max(1))?;
    let mut flags = Flags::NONE;
    let mut seq = 0;
    while !flags.last {
        let received = node.recv(DATA, &mut rx)?;
        if received.len > 0 {
            flags = verify(&rx, seq)?;
        }
        let message = stamped(&mut tx, spec.size, seq, flags);
        ensure!(
            received.len == message.len(),
            "a message of {} bytes",
            received.len
        );
        node.send(Target::new(0, REPLIES), message)?;
        seq += 1;
    }
    Ok(seq)
}

/// Returns message `seq` of a ping-pong in `buffer`. A message of 0 bytes cannot have a stamp,
/// so the last one has a byte with the flag.
#[inline]
fn stamped(buffer: &mut [u8], size: usize, seq: u64, flags: Flags) -> &[u8] {
    if size == 0 && !flags.last {
        return &[];
    }
    stamp(buffer, seq, flags);
    buffer
}

/// Runs the sender of a stream. As in the bare rows, all sends of a window share one buffer. It is
/// written only between windows, when no send is pending.
fn send_stream(node: &mut Node, spec: &Spec) -> Result<Sample> {
    node.open(REPLIES, PortConfig::default())?;
    node.barrier()?;
    let messages = window(spec.size);
    let mut message = Arc::new(Region::new(spec.size)?);
    let mut seq = 0;
    let mut requests = Vec::with_capacity(usize::try_from(messages)?);
    let mut pacer = Pacer::new(spec);
    let sample = drive(spec.pace, Pass::one_way(messages), |last| {
        let bytes =
            Arc::get_mut(&mut message).context("a completed send still holds its buffer")?;
        stamp(bytes, seq, pass_flags(seq, last));
        seq += 1;
        for _ in 0..messages {
            requests.push(node.isend(
                Target::new(1, DATA),
                Buffer::shared_region(Arc::clone(&message)),
            )?);
        }
        for request in requests.drain(..) {
            node.wait(request)?;
        }
        await_ack(node)?;
        pacer.as_mut().map_or(Ok(()), |pacer| pacer.pass(node))
    })?;
    if pacer.is_some() {
        interfere::stop(node)?;
    }
    Ok(sample)
}

/// Runs the receiver of a stream. [`POSTED`] receives are always posted, so that the next message
/// can arrive while this one is checked.
fn receive_stream(node: &mut Node, spec: &Spec, meter: &mut Meter) -> Result<u64> {
    node.open(DATA, PortConfig::default())?;
    let mut posted = VecDeque::new();
    for _ in 0..POSTED {
        posted.push_back(node.post_recv(DATA, Region::new(spec.size)?)?);
    }
    node.barrier()?;
    let mut flags = Flags::NONE;
    let mut seq = 0;
    while !flags.last {
        for _ in 0..window(spec.size) {
            let request = posted.pop_front().context("a receive is always posted")?;
            let completion = node.wait(request)?;
            ensure!(
                completion.len == spec.size,
                "a message of {} bytes",
                completion.len
            );
            let message = region_of(completion)?;
            flags = verify(&message, seq)?;
            posted.push_back(node.post_recv(DATA, message)?);
        }
        seq += 1;
        node.send(Target::new(0, REPLIES), &ACK)?;
        if !flags.last {
            meter.pass(window(spec.size) * spec.size as u64);
        }
    }
    Ok(seq * window(spec.size))
}

/// Returns the region that a completed operation gives back.
///
/// # Errors
/// The operation had no region.
pub(crate) fn region_of(completion: Completion) -> Result<Region> {
    let buffer = completion
        .buffer
        .context("a completed operation returns its buffer")?;
    buffer
        .into_region()
        .map_err(|_| anyhow!("a completed operation returns its region"))
}

/// Runs the sender of the message rate: a window of non-blocking sends, then its acknowledgement,
/// as in `osu_mbw_mr`.
fn send_rate(node: &mut Node, spec: &Spec) -> Result<Sample> {
    node.open(REPLIES, PortConfig::default())?;
    node.barrier()?;
    let messages = window(spec.size);
    let mut message = vec![0; spec.size];
    let mut number = 0_u64;
    drive(spec.pace, Pass::one_way(messages), |last| {
        for _ in 0..messages {
            number += 1;
            let mark = number | if last { LAST } else { 0 };
            message[..8].copy_from_slice(&mark.to_le_bytes());
            node.isend_copy(Target::new(1, DATA), &message)?;
        }
        await_ack(node)
    })
}

/// Runs the receiver of the message rate. A handler checks the messages in place and answers each
/// full window.
fn receive_rate(node: &mut Node, spec: &Spec) -> Result<u64> {
    let seen = Arc::new(Tally::default());
    let (tally, size, messages) = (Arc::clone(&seen), spec.size, window(spec.size));
    // A countdown, because a division per message would cost as much as receiving it.
    let mut left = messages;
    node.open_active(DATA, PortConfig::in_place(), move |context, message| {
        left -= 1;
        let answer = left == 0;
        tally.count(message.bytes(), size, answer);
        if answer {
            left = messages;
        }
        if answer && context.send(Target::new(0, REPLIES), &ACK).is_err() {
            tally.wrong.store(true, Relaxed);
        }
    })?;
    node.barrier()?;
    while !seen.complete.load(Relaxed) {
        ensure!(
            !seen.wrong.load(Relaxed),
            "message {} was wrong",
            seen.number.load(Relaxed)
        );
        node.progress()?;
    }
    Ok(seen.number.load(Relaxed))
}

/// State of the handler of the rate row. Only one thread uses it; atomics are needed because
/// handlers must be `Send`.
#[derive(Default)]
struct Tally {
    number: AtomicU64,
    /// Set when the last window has arrived.
    complete: AtomicBool,
    wrong: AtomicBool,
}

impl Tally {
    /// Checks a message. `window_done` is set if it completes a window.
    fn count(&self, message: &[u8], size: usize, window_done: bool) {
        let number = self.number.load(Relaxed) + 1;
        self.number.store(number, Relaxed);
        let mut word = [0; 8];
        word.copy_from_slice(message.get(..8).unwrap_or(&[0; 8]));
        let mark = u64::from_le_bytes(word);
        if message.len() != size || mark & !LAST != number {
            self.wrong.store(true, Relaxed);
        }
        if window_done {
            self.complete.store(mark & LAST != 0, Relaxed);
        }
    }
}

fn await_ack(node: &mut Node) -> Result<()> {
    let mut ack = [0; ACK.len()];
    let received = node.recv(REPLIES, &mut ack)?;
    ensure!(
        received.len == ack.len() && ack == ACK,
        "the acknowledgement is {ack:?}"
    );
    Ok(())
}

/// Returns true if a round trip is so short that a clock read per round trip would be significant.
fn uses_memory(spec: &Spec) -> bool {
    matches!(spec.program, Program::Portolan(_, Path::Shm))
}
