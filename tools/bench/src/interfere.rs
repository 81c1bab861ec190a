// SPDX-License-Identifier: MIT OR Apache-2.0
//! Foreign traffic into the receiver of a stream. A third rank beside the sender sends one small
//! message per given number of datagrams of the stream.
//!
//! After each pass the sender reports the stream's rate to this rank, which spreads its messages
//! evenly over that time. The receiver counts how many arrived.

use crate::socket::datagram_len;
use crate::spec::{Spec, window};
use anyhow::Result;
use nix::sys::prctl::set_timerslack;
use portolan::{Lane, Node, PortConfig, Target};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Rank that interferes.
pub(crate) const RANK: u32 = 2;

/// Ports of its messages at the receiver, and of the sender's control messages to it.
const FOREIGN: u16 = 6;
const INTERVALS: u16 = 7;

/// Bytes of an interfering message, as in the other rows with small messages.
const MESSAGE_LEN: usize = 64;

/// Longest sleep, so that a new interval takes effect soon.
const SLEEP_MAX: Duration = Duration::from_micros(200);

/// Control message that stops the rank.
const STOP: u64 = 0;

/// The sender's side, which updates the interval.
pub(crate) struct Pacer {
    /// Foreign messages per pass.
    per_pass: f64,
    began: Instant,
}

impl Pacer {
    /// Creates the sender's side for the stream of `spec`; `None` without interference.
    #[allow(clippy::cast_precision_loss, reason = "an interval need not be exact")]
    pub(crate) fn new(spec: &Spec) -> Option<Self> {
        let datagrams = (window(spec.size) * datagrams(spec)) as f64;
        (spec.conditions.interfere > 0).then(|| Pacer {
            per_pass: datagrams / f64::from(spec.conditions.interfere),
            began: Instant::now(),
        })
    }

    /// Updates the interval after a pass.
    pub(crate) fn pass(&mut self, node: &mut Node) -> Result<()> {
        let pass = self.began.elapsed().as_secs_f64();
        self.began = Instant::now();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "below hours"
        )]
        let interval_ns = (pass / self.per_pass * 1e9) as u64;
        send_interval(node, interval_ns.max(1))
    }
}

/// Stops the interfering rank.
///
/// # Errors
/// The interfering rank has failed.
pub(crate) fn stop(node: &mut Node) -> Result<()> {
    send_interval(node, STOP)
}

fn send_interval(node: &mut Node, interval_ns: u64) -> Result<()> {
    let to = Target::new(RANK, INTERVALS).lane(Lane::High);
    Ok(node.isend_copy(to, &interval_ns.to_le_bytes())?)
}

/// Returns the datagrams per message of the stream.
pub(crate) fn datagrams(spec: &Spec) -> u64 {
    /// Maximum header bytes in a bulk datagram.
    const HEADER: usize = 24;
    spec.size.div_ceil(datagram_len(spec.mtu) - HEADER) as u64
}

/// Opens the receiver's port and returns the counter of foreign messages.
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

/// Runs the rank that interferes.
///
/// # Errors
/// Another rank has failed.
pub(crate) fn work(node: &mut Node) -> Result<()> {
    // The default timer slack of 50 µs is half of a typical interval.
    set_timerslack(1)?;
    node.open(INTERVALS, PortConfig::default())?;
    let mut request = node.post_recv(INTERVALS, vec![0; 8])?;
    node.barrier()?;
    let mut interval = None;
    let mut due = Instant::now();
    loop {
        if let Some(completion) = node.test(request)? {
            let bytes = completion
                .buffer
                .map(portolan::Buffer::into_vec)
                .unwrap_or_default();
            let interval_ns = bytes.try_into().map_or(STOP, u64::from_le_bytes);
            if interval_ns == STOP {
                return Ok(());
            }
            interval = Some(Duration::from_nanos(interval_ns));
            request = node.post_recv(INTERVALS, vec![0; 8])?;
        }
        let now = Instant::now();
        match interval {
            Some(interval) if now >= due => {
                node.isend_copy(Target::new(1, FOREIGN), &[0; MESSAGE_LEN])?;
                node.flush();
                // Messages missed while another process had the core are not sent in a burst.
                due = (due + interval).max(now);
            }
            Some(_) => std::thread::sleep((due - now).min(SLEEP_MAX)),
            None => std::thread::sleep(SLEEP_MAX),
        }
    }
}
