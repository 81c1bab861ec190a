// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traffic from elsewhere into the receiver of a stream: a third rank beside the sender, which sends
//! one small message to so many datagrams of the stream.
//!
//! The sender tells it after each turn how fast the stream is; it spreads its messages evenly over
//! that time. How many arrived is counted at the receiver.

use crate::socket::datagram_len;
use crate::spec::{Spec, window};
use anyhow::Result;
use nix::sys::prctl::set_timerslack;
use portolan::{Lane, Node, PortConfig, Target};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Rank of the one that interferes.
pub(crate) const RANK: u32 = 2;

/// Ports of its messages at the receiver, and of the sender's word to it.
const FOREIGN: u16 = 6;
const RHYTHM: u16 = 7;

/// Bytes of an interfering message, as of the small messages elsewhere.
const MESSAGE_LEN: usize = 64;

/// Longest sleep, so that a new rhythm is heard soon.
const SLEEP_MAX: Duration = Duration::from_micros(200);

/// The word that ends it.
const STOP: u64 = 0;

/// The sender's side: keeps the rhythm up to date.
pub(crate) struct Conductor {
    /// Messages from elsewhere in a turn.
    per_turn: f64,
    began: Instant,
}

impl Conductor {
    /// For the stream of `spec`; `None` when nothing is to interfere.
    #[allow(clippy::cast_precision_loss, reason = "a rhythm need not be exact")]
    pub(crate) fn new(spec: &Spec) -> Option<Self> {
        let datagrams = (window(spec.size) * datagrams(spec)) as f64;
        (spec.conditions.interfere > 0).then(|| Conductor {
            per_turn: datagrams / f64::from(spec.conditions.interfere),
            began: Instant::now(),
        })
    }

    /// To be called after each turn.
    ///
    /// # Errors
    /// The rank is gone.
    pub(crate) fn turn(&mut self, node: &mut Node) -> Result<()> {
        let turn = self.began.elapsed().as_secs_f64();
        self.began = Instant::now();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "below hours"
        )]
        let interval_ns = (turn / self.per_turn * 1e9) as u64;
        tell(node, interval_ns.max(1))
    }
}

/// Ends the one that interferes.
///
/// # Errors
/// The rank is gone.
pub(crate) fn stop(node: &mut Node) -> Result<()> {
    tell(node, STOP)
}

fn tell(node: &mut Node, interval_ns: u64) -> Result<()> {
    let to = Target::new(RANK, RHYTHM).lane(Lane::High);
    Ok(node.isend_copy(to, &interval_ns.to_le_bytes())?)
}

/// Datagrams of a message of the stream.
pub(crate) fn datagrams(spec: &Spec) -> u64 {
    /// Bytes of header in a bulk datagram, at most.
    const HEADER: usize = 24;
    spec.size.div_ceil(datagram_len(spec.mtu) - HEADER) as u64
}

/// The receiver's side: opens the port, and returns the count of what comes.
///
/// # Errors
/// The port is in use.
pub(crate) fn count(node: &mut Node) -> Result<Arc<AtomicU64>> {
    let count = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&count);
    node.open_active(FOREIGN, PortConfig::in_place(), move |_, _| {
        seen.fetch_add(1, Relaxed);
    })?;
    Ok(count)
}

/// The rank that interferes.
///
/// # Errors
/// Another rank is gone.
pub(crate) fn work(node: &mut Node) -> Result<()> {
    // The default slack of 50 µs is half of what is to be waited for.
    set_timerslack(1)?;
    node.open(RHYTHM, PortConfig::default())?;
    let mut heard = node.post_recv(RHYTHM, vec![0; 8])?;
    node.barrier()?;
    let mut interval = None;
    let mut due = Instant::now();
    loop {
        if let Some(completion) = node.test(heard)? {
            let word = completion
                .buffer
                .map(portolan::Buffer::into_vec)
                .unwrap_or_default();
            let interval_ns = word.try_into().map_or(STOP, u64::from_le_bytes);
            if interval_ns == STOP {
                return Ok(());
            }
            interval = Some(Duration::from_nanos(interval_ns));
            heard = node.post_recv(RHYTHM, vec![0; 8])?;
        }
        let now = Instant::now();
        match interval {
            Some(interval) if now >= due => {
                node.isend_copy(Target::new(1, FOREIGN), &[0; MESSAGE_LEN])?;
                node.flush();
                // What was missed while others had the core is not made up for in a burst.
                due = (due + interval).max(now);
            }
            Some(_) => std::thread::sleep((due - now).min(SLEEP_MAX)),
            None => std::thread::sleep(SLEEP_MAX),
        }
    }
}
