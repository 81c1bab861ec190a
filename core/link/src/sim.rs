// SPDX-License-Identifier: MIT OR Apache-2.0
//! A switch in memory, for tests within one process.
//!
//! Without a delay (the default) a frame has arrived when `transmit` returns. With a delay it
//! arrives when [`SimNet::advance`] has moved the switch's own clock forward. No real time passes,
//! and no clock is read. Delay and loss are drawn from the seed, so a run can be repeated exactly.
//!
//! Each port buffers a bounded number of frames. When the receiver's buffer is full, the sender
//! gets back-pressure. Nothing is lost unless the parameters request it. For corruption and other
//! faults, wrap a port in [`crate::fault::Fault`].
//!
//! With a rate, cables and the switch's buffers have limits too: a sender gets back-pressure from
//! its own send buffer only, and frames are lost where a buffer is full.

mod switch;

use crate::cut::Run;
use crate::peers::PeerTable;
use crate::{
    Link, LinkAddr, LinkCaps, LinkError, LinkKind, Notice, PeerId, RxFrame, TxError, TxFrame,
    WakeSet,
};
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use switch::Switch;

/// Properties of a simulated network.
#[derive(Clone, Debug, PartialEq)]
pub struct SimParams {
    /// Bytes of the largest frame. Default 1472, the value of UDP on Ethernet.
    pub frame_len_max: usize,
    /// Segments of one transmit call. Default 44, the number that UDP sends in one call on
    /// Ethernet.
    pub segments_max: usize,
    /// Frames that one port buffers. Default 4096.
    pub queue_frames_max: usize,
    /// Shortest and longest delay from port to port. Frames with different delays overtake each
    /// other. Default zero: immediate.
    pub delay: (Duration, Duration),
    /// Probability that a frame is lost in transit. Default 0.
    pub loss: f64,
    /// Probability that a frame arrives twice. Default 0.
    pub duplicate: f64,
    /// Bytes per second that the cable of a port carries in each direction. `None` (the default)
    /// for no limit.
    pub rate_bytes_per_sec: Option<NonZeroU64>,
    /// Further stages between a sender and its cable, such as buses and network interfaces. Each
    /// forwards a frame once all of it has arrived, at the rate of the cables. Needs a rate. Default 0.
    pub stage_count: usize,
    /// Bytes that each frame occupies on a cable beside its own. Default 66: the headers of
    /// Ethernet, IPv4 and UDP, with preamble and gap.
    pub frame_overhead_len: usize,
    /// Bytes that the switch buffers for one port. Needs a rate. Default 64 KiB.
    pub port_buffer_len: usize,
    /// Bytes that wait at a sender for its cable before it gets back-pressure. Needs a rate.
    /// Default 208 KiB, the default of `net.core.wmem_default`.
    pub send_buffer_len: usize,
}

/// Numbers of frames since the network was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimStats {
    /// Frames that ports have sent.
    pub sent: u64,
    /// Frames that have arrived, duplicates included.
    pub arrived: u64,
    /// Frames lost by the drawn probability, or at a cut cable.
    pub lost: u64,
    /// Frames lost because the switch's buffer of a port was full.
    pub overflowed: u64,
    /// Frames lost because their receiver's buffer was full.
    pub unreceived: u64,
}

impl Default for SimParams {
    fn default() -> Self {
        SimParams {
            frame_len_max: 1472,
            segments_max: 44,
            queue_frames_max: 4096,
            delay: (Duration::ZERO, Duration::ZERO),
            loss: 0.0,
            duplicate: 0.0,
            rate_bytes_per_sec: None,
            stage_count: 0,
            frame_overhead_len: 66,
            port_buffer_len: 64 * 1024,
            send_buffer_len: 208 * 1024,
        }
    }
}

/// A simulated network; clones are handles to the same one.
#[derive(Clone)]
pub struct SimNet {
    switch: Arc<Mutex<Switch>>,
    caps: LinkCaps,
}

impl SimNet {
    /// Creates a network without ports.
    ///
    /// # Panics
    /// Panics if `loss` or `duplicate` is not a probability, or the shortest delay is longer than the
    /// longest.
    #[must_use]
    pub fn new(seed: u64, params: SimParams) -> Self {
        for probability in [params.loss, params.duplicate] {
            assert!((0.0..=1.0).contains(&probability), "a probability");
        }
        assert!(
            params.delay.0 <= params.delay.1,
            "the shortest delay comes first"
        );
        let caps = LinkCaps {
            kind: LinkKind::Sim,
            frame_len_max: params.frame_len_max,
            segments_max: params.segments_max,
            // All pieces are copied, so any number is possible.
            gather_max: 256,
            lossless: params.loss == 0.0
                && params.duplicate == 0.0
                && params.rate_bytes_per_sec.is_none()
                && params.delay.0 == params.delay.1,
            pull: false,
            placement: false,
            polls_memory: true,
            rx_buffer_len: params.queue_frames_max * params.frame_len_max,
        };
        SimNet {
            switch: Arc::new(Mutex::new(Switch::new(seed, params))),
            caps,
        }
    }

    /// Adds a port.
    ///
    /// # Errors
    /// None at present: a descriptor is needed only to sleep on the port.
    pub fn port(&self) -> Result<SimLink, LinkError> {
        let index = self.lock().add_port();
        Ok(SimLink {
            net: self.clone(),
            index,
            peers: PeerTable::new(),
            scratch: Vec::new(),
        })
    }

    /// Makes the host of `port` return frames to it as undeliverable once the port is closed: the
    /// process has ended, but its host runs.
    pub fn refuse(&self, port: u32) {
        self.lock().refuse(port);
    }

    /// Cuts the cable of `port`, or repairs it. Frames on a cut cable are lost.
    pub fn set_cut(&self, port: u32, is_cut: bool) {
        self.lock().set_cut(port, is_cut);
    }

    /// Appends the ports at which something has arrived since the last call, each once.
    pub fn take_woken(&self, woken: &mut Vec<u32>) {
        self.lock().take_woken(woken);
    }

    /// Returns the numbers of frames so far.
    #[must_use]
    pub fn stats(&self) -> SimStats {
        self.lock().stats()
    }

    /// Advances the clock by `by`: due frames arrive, and sleeping receivers are woken.
    pub fn advance(&self, by: Duration) {
        self.lock().advance(by);
    }

    /// Returns the switch's clock, which starts at zero.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.lock().now()
    }

    /// Returns the time at which the next frame in flight moves, the earliest useful target of
    /// [`SimNet::advance`].
    #[must_use]
    pub fn next_arrival(&self) -> Option<Duration> {
        self.lock().next_arrival()
    }

    fn lock(&self) -> MutexGuard<'_, Switch> {
        // A test that panics with the lock held must not cause misleading panics elsewhere.
        self.switch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One port of a [`SimNet`].
pub struct SimLink {
    net: SimNet,
    index: u32,
    peers: PeerTable<u32>,
    scratch: Vec<u8>,
}

impl SimLink {
    /// Returns the number of the port, from 0 in the order of creation.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Tests whether a frame or a notice waits.
    #[must_use]
    pub fn has_arrived(&self) -> bool {
        self.net.lock().has_arrived(self.index)
    }
}

impl Link for SimLink {
    fn caps(&self) -> &LinkCaps {
        &self.net.caps
    }

    fn local_addr(&self) -> LinkAddr {
        LinkAddr::Sim { port: self.index }
    }

    fn connect(&mut self, peer: PeerId, addr: &LinkAddr) -> Result<(), LinkError> {
        match *addr {
            LinkAddr::Sim { port } if self.net.lock().has_port(port) => {
                self.peers.insert(LinkKind::Sim, peer, port)
            }
            LinkAddr::Sim { .. } => {
                let why = "its switch has no such port";
                Err(LinkError::Unreachable {
                    kind: LinkKind::Sim,
                    peer,
                    why,
                })
            }
            _ => {
                let why = "its address is not on a simulated switch";
                Err(LinkError::Unreachable {
                    kind: LinkKind::Sim,
                    peer,
                    why,
                })
            }
        }
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.peers.remove(peer);
    }

    fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        let to = *self.peers.find(peer)?;
        let run = Run::new(frame);
        let LinkCaps {
            frame_len_max,
            segments_max,
            ..
        } = self.net.caps;
        if run.datagram_len() > frame_len_max || run.count > segments_max {
            return Err(TxError::TooLong { frame_len_max });
        }
        let mut switch = self.net.lock();
        let from = self.index;
        if !switch.has_space(from, to, run.count) {
            return Err(TxError::Full);
        }
        run.for_each_copy(&mut self.scratch, |datagram| {
            switch.forward(from, to, datagram);
        });
        Ok(())
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        for delivered in 0..budget {
            // Unlocked while the sink runs, because it may send through a port of this switch.
            let Some(frame) = self.net.lock().take(self.index) else {
                return delivered;
            };
            sink(RxFrame {
                from: None,
                head: &frame,
                body: None,
                marked: false,
            });
        }
        budget
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        let port = self.net.lock().take_refusal(self.index)?;
        let peer = self.peers.matching(|to| *to == port).next();
        peer.map(Notice::Refused)
    }

    fn arm(&mut self, wake: &mut WakeSet) -> bool {
        let mut switch = self.net.lock();
        let bell = switch.arm(self.index);
        wake.fds.extend(bell);
        bell.is_some() && !switch.has_arrived(self.index)
    }

    fn disarm(&mut self) {
        self.net.lock().disarm(self.index);
    }
}

impl Drop for SimLink {
    fn drop(&mut self) {
        self.net.lock().close_port(self.index);
    }
}

#[cfg(test)]
mod tests;
