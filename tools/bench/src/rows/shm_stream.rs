// SPDX-License-Identifier: MIT OR Apache-2.0
//! Large messages from one process's memory to another's on the same host.

use crate::control::Offer;
use crate::end::End;
use crate::measure::{Pass, Sample};
use crate::pattern::{Flags, stamp, verify};
use crate::spec::{Copying, window};
use crate::spin_wait::SpinWait;
use crate::sys::{SharedMap, allow_any_tracer};
use anyhow::{Context, Result};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use portolan::Region;
use std::io::IoSliceMut;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes copied between two announcements: half a first-level cache, so that a fragment is read
/// while it is cached.
const PIECE: usize = 16 << 10;

/// Fragments in the ring. 256 KB fit the second-level cache of the last decade's processors.
const PIECES: usize = 16;

/// Offsets of the counters (each in its own pair of cache lines) and of the fragments.
const WRITTEN: usize = 0;
const CONSUMED: usize = 128;
const DATA: usize = 4096;

/// Bytes of shared memory.
pub(crate) const SHARED_LEN: usize = DATA + PIECE * PIECES;

/// Runs this end.
///
/// # Errors
/// A payload was wrong, nothing arrived, or this process may not read another process's memory.
pub(crate) fn run(end: &mut End, copying: Copying) -> Result<Option<Sample>> {
    let map = end.shared()?;
    let message = Region::new(end.spec.size)?;
    allow_any_tracer();
    let offer = Offer {
        pid: Some(Pid::this().as_raw()),
        buffer: Some(message.as_ptr() as usize),
        ..Offer::default()
    };
    let peer = end.exchange(&offer)?;
    let channel = Channel {
        map: &map,
        spin_wait: end.spin_wait(),
        count: 0,
    };
    if end.drives() {
        send(end, channel, message, copying)
    } else {
        receive(end, channel, message, copying, &peer)
    }
}

fn send(
    end: &End,
    mut channel: Channel<'_>,
    mut message: Region,
    copying: Copying,
) -> Result<Option<Sample>> {
    let messages = window(message.len());
    let mut pass_seq = 0;
    end.measure(Pass::one_way(messages), |last| {
        stamp(&mut message, pass_seq, super::pass_flags(pass_seq, last));
        pass_seq += 1;
        for _ in 0..messages {
            match copying {
                Copying::Pipelined => channel.copy_in(&message)?,
                // One announcement covers the window; the buffer represents all its messages.
                Copying::VmRead => channel.announce(),
            }
        }
        channel.drain()
    })
}

fn receive(
    end: &mut End,
    mut channel: Channel<'_>,
    mut message: Region,
    copying: Copying,
    peer: &Offer,
) -> Result<Option<Sample>> {
    let messages = window(message.len());
    for pass_seq in 0.. {
        let mut flags = Flags::NONE;
        for _ in 0..messages {
            match copying {
                Copying::Pipelined => channel.copy_out(&mut message)?,
                Copying::VmRead => channel.pull(&mut message, peer)?,
            }
            flags = verify(&message, pass_seq)?;
        }
        if flags.last {
            break;
        }
        end.meter.pass(messages * message.len() as u64);
    }
    Ok(None)
}

struct Channel<'a> {
    map: &'a SharedMap,
    spin_wait: SpinWait,
    /// Fragments (or announcements) that this end has written or consumed so far.
    count: u64,
}

impl Channel<'_> {
    fn copy_in(&mut self, message: &[u8]) -> Result<()> {
        for piece in message.chunks(PIECE) {
            let free_at = (self.count + 1).saturating_sub(PIECES as u64);
            self.await_counter(CONSUMED, free_at)?;
            self.map.write(self.slot(), piece);
            self.announce();
        }
        Ok(())
    }

    fn copy_out(&mut self, message: &mut [u8]) -> Result<()> {
        for piece in message.chunks_mut(PIECE) {
            self.await_counter(WRITTEN, self.count + 1)?;
            self.map.read(self.slot(), piece);
            self.consume();
        }
        Ok(())
    }

    fn pull(&mut self, message: &mut [u8], peer: &Offer) -> Result<()> {
        self.await_counter(WRITTEN, self.count + 1)?;
        let pid = Pid::from_raw(peer.pid.context("the other end sent no process id")?);
        let base = peer
            .buffer
            .context("the other end sent no buffer address")?;
        let mut off = 0;
        while off < message.len() {
            let rest = &mut message[off..];
            let remote = RemoteIoVec {
                base: base + off,
                len: rest.len(),
            };
            let copied = process_vm_readv(pid, &mut [IoSliceMut::new(rest)], &[remote]);
            off += copied
                .context("process_vm_readv is not permitted (see kernel.yama.ptrace_scope)")?;
        }
        self.consume();
        Ok(())
    }

    fn announce(&mut self) {
        self.count += 1;
        // SYNC: stream-written; publishes the fragment.
        self.map.word(WRITTEN).store(self.count, Ordering::Release);
    }

    fn consume(&mut self) {
        self.count += 1;
        // SYNC: stream-consumed; returns the fragment's slot to the sender.
        self.map.word(CONSUMED).store(self.count, Ordering::Release);
    }

    /// Waits until the receiver has consumed everything.
    fn drain(&mut self) -> Result<()> {
        self.await_counter(CONSUMED, self.count)
    }

    fn await_counter(&mut self, off: usize, at_least: u64) -> Result<()> {
        let counter: &AtomicU64 = self.map.word(off);
        // SYNC: stream-written, stream-consumed; pairs with the stores above.
        while counter.load(Ordering::Acquire) < at_least {
            self.spin_wait.wait()?;
        }
        self.spin_wait.reset();
        Ok(())
    }

    fn slot(&self) -> usize {
        #[allow(clippy::cast_possible_truncation, reason = "below PIECES")]
        let index = (self.count % PIECES as u64) as usize;
        DATA + index * PIECE
    }
}
