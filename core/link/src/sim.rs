// SPDX-License-Identifier: MIT OR Apache-2.0
//! A switch in memory, for tests within one process.
//!
//! Without a delay (the default) a frame has arrived when `transmit` returns. With a delay it
//! arrives when [`SimNet::advance`] has moved the switch's own clock forward. No real time passes,
//! and no clock is read. Delay and loss are drawn from the seed, so a run can be repeated exactly.
//!
//! Each port buffers a bounded number of frames. When the receiver's buffer is full, the sender
//! gets back-pressure. Nothing is lost unless the parameters request it. For duplicates, corruption
//! and other faults, wrap a port in [`crate::fault::Fault`].

mod switch;

use crate::cut::Run;
use crate::peers::PeerTable;
use crate::{
    Link, LinkAddr, LinkCaps, LinkError, LinkKind, PeerId, RxFrame, TxError, TxFrame, WakeSet,
};
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
}

impl Default for SimParams {
    fn default() -> Self {
        SimParams {
            frame_len_max: 1472,
            segments_max: 44,
            queue_frames_max: 4096,
            delay: (Duration::ZERO, Duration::ZERO),
            loss: 0.0,
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
    /// Panics if `loss` is not a probability, or the shortest delay is longer than the longest.
    #[must_use]
    pub fn new(seed: u64, params: SimParams) -> Self {
        assert!((0.0..=1.0).contains(&params.loss), "loss is a probability");
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
            lossless: params.loss == 0.0 && params.delay.0 == params.delay.1,
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
    /// [`LinkError::System`] if the process has no descriptors left for the port's bell.
    pub fn port(&self) -> Result<SimLink, LinkError> {
        let index = self.lock().add_port().map_err(|errno| LinkError::System {
            kind: LinkKind::Sim,
            what: "open a socket pair as the port's bell".into(),
            errno,
            remedy: "raise the limit on open files (`ulimit -n`)",
        })?;
        Ok(SimLink {
            net: self.clone(),
            index,
            peers: PeerTable::new(),
            scratch: Vec::new(),
        })
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

    /// Returns the arrival time of the next frame in flight, the earliest useful target of
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
        if !switch.has_space(to, run.count) {
            return Err(TxError::Full);
        }
        run.for_each_copy(&mut self.scratch, |datagram| switch.forward(to, datagram));
        switch.ring_if_due(to);
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

    fn poll_notice(&mut self) -> Option<crate::Notice> {
        None
    }

    fn arm(&mut self, wake: &mut WakeSet) -> bool {
        let mut switch = self.net.lock();
        wake.fds.push(switch.arm(self.index));
        !switch.has_arrived(self.index)
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
