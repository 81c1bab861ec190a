// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process that simulates the cables of a lab. Each frame that a host sends waits for the
//! delay, and is then sent to its destination host.
//!
//! The delay of a frame counts from its arrival in the kernel. A late wake-up of this process adds
//! nothing to the delay, unless the delay has already passed. The process sleeps while no frame is
//! in flight, and otherwise until shortly before the next frame is due.
//!
//! Invariant: frames that arrive at one port leave in order, and each frame leaves or is counted as
//! lost.

use super::frame_ring::FrameRing;
use super::switch::Switch;
use anyhow::{Context, Result};
use portolan_sys::epoll::{Epoll, Ready};
use portolan_sys::net::{self, WIRE_FRAME_LEN_MAX, WireEnd};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Time before a frame is due at which the process stops sleeping: the typical lateness of a
/// virtual machine's timer.
const SPIN: Duration = Duration::from_micros(50);

/// Frames taken from one port, and sent in all, before the other ports are polled again.
const BATCH_FRAMES: usize = 32;

/// Lateness from which a frame counts as late: about the time that a port of a switch adds itself.
const LATE: Duration = Duration::from_micros(50);

/// Interval between updates of the counts while frames pass.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(100);

/// Counts of frames; a burst of segments counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    /// Of these, frames that left more than [`LATE`] after their due time.
    pub(super) late: u64,
    /// Frames dropped because this or a later queue was full, or because their host was removed.
    pub(super) lost: u64,
}

/// Capacity of each cable in bytes.
pub(super) struct Capacity {
    /// Bytes in flight.
    pub(super) ring_len: usize,
    /// Bytes in the kernel, before and after this process.
    pub(super) kernel_len: usize,
}

struct Port {
    /// `None` after the host was removed.
    end: Option<WireEnd>,
    ring: FrameRing,
    drops: u64,
}

/// See the module documentation.
pub(super) struct Carrier {
    ports: Vec<Port>,
    epoll: Epoll,
    ready: Vec<Ready>,
    switch: Switch,
    delay: Duration,
    counts: Counts,
    published: Published,
    /// Buffer for frames that are discarded because the ring is full.
    discarded: Vec<u8>,
}

/// Published counts.
struct Published {
    file: File,
    counts: Counts,
    at: Instant,
}

impl Carrier {
    /// Joins the interfaces with these numbers, one for each host, and writes counts of frames to
    /// `counts`.
    pub(super) fn new(
        interfaces: &[u32],
        delay: Duration,
        capacity: &Capacity,
        counts: File,
    ) -> Result<Carrier> {
        let epoll = Epoll::new().context("creating an epoll instance")?;
        let mut ports = Vec::new();
        for (index, interface) in interfaces.iter().enumerate() {
            let end = WireEnd::open(*interface, capacity.kernel_len);
            let end = end.with_context(|| format!("opening a packet socket for host {index}"))?;
            epoll
                .add(&end, index as u64)
                .context("adding a port to epoll")?;
            ports.push(Port {
                end: Some(end),
                ring: FrameRing::new(capacity.ring_len, WIRE_FRAME_LEN_MAX),
                drops: 0,
            });
        }
        let published = Published {
            file: counts,
            counts: Counts::default(),
            at: Instant::now(),
        };
        published.write();
        Ok(Carrier {
            switch: Switch::new(ports.len()),
            ports,
            epoll,
            ready: Vec::new(),
            delay,
            counts: Counts::default(),
            published,
            discarded: vec![0; WIRE_FRAME_LEN_MAX],
        })
    }

    /// Carries frames until no host is left.
    pub(super) fn run(&mut self) -> io::Result<()> {
        while self.ports.iter().any(|port| port.end.is_some()) {
            self.sleep()?;
            let mut ready = std::mem::take(&mut self.ready);
            self.epoll.poll(&mut ready)?;
            for port in ready.drain(..) {
                self.fetch(usize::try_from(port.token).unwrap_or(usize::MAX));
            }
            self.ready = ready;
            self.send_due();
        }
        Ok(())
    }

    /// Receives the frames that have arrived at a port.
    fn fetch(&mut self, index: usize) {
        for _ in 0..BATCH_FRAMES {
            let Port { end, ring, .. } = &mut self.ports[index];
            let Some(end) = end else { return };
            let received = match ring.free_slot() {
                Some(slot) => end.receive(slot),
                None => end.receive(&mut self.discarded).map(|lost| {
                    self.counts.lost += u64::from(lost.is_some());
                    None
                }),
            };
            match received {
                Ok(Some(arrived)) => {
                    let left = self.delay.saturating_sub(arrived.age());
                    ring.push(arrived.bytes, Instant::now() + left);
                    if let Some((_, from)) = ring.last().and_then(net::wire_addresses) {
                        self.switch.learn(from, index);
                    }
                }
                Ok(None) => return,
                Err(error) if is_removed(&error) => return self.retire(index),
                Err(_) => self.counts.lost += 1,
            }
        }
    }

    /// Sends the frames that are due, the earliest first.
    fn send_due(&mut self) {
        for _ in 0..BATCH_FRAMES {
            let Some((due, index)) = self.next_due() else {
                return;
            };
            let now = Instant::now();
            if due > now {
                return;
            }
            self.counts.late += u64::from(now - due > LATE);
            self.send_first(index);
        }
    }

    fn next_due(&self) -> Option<(Instant, usize)> {
        let ports = self.ports.iter().enumerate();
        ports
            .filter_map(|(index, port)| Some((port.ring.due()?, index)))
            .min()
    }

    /// Sends the oldest frame from a port to its destination.
    fn send_first(&mut self, from: usize) {
        let mut gone = Vec::new();
        if let Some(frame) = self.ports[from].ring.first()
            && let Some((to, _)) = net::wire_addresses(frame)
        {
            let mut is_lost = false;
            for index in self.switch.output_ports(to, from) {
                match self.ports[index].end.as_ref().map(|end| end.send(frame)) {
                    Some(Ok(())) => {}
                    Some(Err(error)) if is_removed(&error) => gone.push(index),
                    Some(Err(_)) | None => is_lost = true,
                }
            }
            is_lost |= !gone.is_empty();
            self.counts.lost += u64::from(is_lost);
            self.counts.passed += u64::from(!is_lost);
        }
        self.ports[from].ring.pop();
        for index in gone {
            self.retire(index);
        }
    }

    /// Removes a host after its interface was removed.
    fn retire(&mut self, index: usize) {
        if let Some(end) = self.ports[index].end.take() {
            self.epoll.remove(&end);
        }
    }

    /// Sleeps until a frame arrives, or until shortly before the next frame is due.
    fn sleep(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let left = self
            .next_due()
            .map(|(due, _)| due.saturating_duration_since(now));
        if left.is_none() || now - self.published.at > PUBLISH_INTERVAL {
            self.publish(now);
        }
        match left {
            Some(left) if left <= SPIN => Ok(()),
            left => {
                let timeout = left.map(|left| left - SPIN);
                net::sleep_until_readable(std::os::fd::AsFd::as_fd(&self.epoll), timeout)
            }
        }
    }

    fn publish(&mut self, now: Instant) {
        for port in &mut self.ports {
            port.drops += port.end.as_ref().map_or(0, |end| u64::from(end.drops()));
        }
        let drops: u64 = self.ports.iter().map(|port| port.drops).sum();
        let counts = Counts {
            lost: self.counts.lost + drops,
            ..self.counts
        };
        self.published.at = now;
        if self.published.counts != counts {
            self.published.counts = counts;
            self.published.write();
        }
    }
}

impl Published {
    fn write(&self) {
        // If the counts cannot be written, the lab is being removed; frames have priority.
        let _ = self.file.write_all_at(self.counts.line().as_bytes(), 0);
    }
}

impl Counts {
    /// Returns a line of constant length, so that each line overwrites the previous one.
    fn line(self) -> String {
        let Counts { passed, late, lost } = self;
        format!("{passed:>20} {late:>20} {lost:>20}\n")
    }

    pub(super) fn parse(line: &str) -> Option<Counts> {
        let numbers = line.split_whitespace().map(|word| word.parse().ok());
        let numbers: Option<Vec<u64>> = numbers.collect();
        let [passed, late, lost] = numbers?[..] else {
            return None;
        };
        Some(Counts { passed, late, lost })
    }
}

/// Returns true if the interface of a socket was removed for good.
fn is_removed(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_round_trip() {
        let counts = Counts {
            passed: u64::MAX,
            late: 1,
            lost: 0,
        };
        assert_eq!(Counts::parse(&counts.line()), Some(counts));
        assert_eq!(counts.line().len(), Counts::default().line().len());
        assert_eq!(Counts::parse("1 2"), None);
        assert_eq!(Counts::parse("1 2 x"), None);
    }
}
