// SPDX-License-Identifier: MIT OR Apache-2.0
//! A switch in memory, for tests within one process.
//!
//! With no delay (the default) a frame has arrived when `transmit` returns. With a delay it arrives
//! when somebody has moved the switch's own clock on by [`SimNet::advance`]; no real time passes,
//! and nothing reads a clock. Delay and loss are drawn from the seed, so that a run can be
//! repeated exactly.
//!
//! Each port buffers a bounded number of frames; when the far end's buffer is full the sender is
//! told so, and nothing is lost unless the parameters ask for it. For duplicates, corruption and
//! the like wrap a port in [`crate::fault::Fault`].

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
    /// Bytes of the largest frame. Default 1472, that of UDP on Ethernet.
    pub frame_len_max: usize,
    /// Segments of one transmit call. Default 44, what UDP sends in one call on Ethernet.
    pub segments_max: usize,
    /// Frames that one port buffers. Default 4096.
    pub queue_frames_max: usize,
    /// Shortest and longest way from port to port. Frames that draw different delays overtake one
    /// another. Default zero: immediate.
    pub delay: (Duration, Duration),
    /// Probability that a frame is lost on the way. Default 0.
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

/// The network; clones are handles to the same one.
#[derive(Clone)]
pub struct SimNet {
    switch: Arc<Mutex<Switch>>,
    caps: LinkCaps,
}

impl SimNet {
    /// Makes a network without ports.
    ///
    /// # Panics
    /// When `loss` is no probability, or the shortest delay is longer than the longest.
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
            // Everything is copied: any number would do.
            gather_max: 256,
            lossless: params.loss == 0.0 && params.delay.0 == params.delay.1,
            pull: false,
            placement: false,
            looks_at_memory: true,
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
    /// [`LinkError::System`] when the process has no descriptors left for the port's bell.
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

    /// Lets `by` pass: frames that are due arrive, and sleeping receivers are woken.
    pub fn advance(&self, by: Duration) {
        self.lock().advance(by);
    }

    /// The switch's clock, from zero.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.lock().now()
    }

    /// When the next frame under way arrives: how far it makes sense to [`SimNet::advance`].
    #[must_use]
    pub fn next_arrival(&self) -> Option<Duration> {
        self.lock().next_arrival()
    }

    fn lock(&self) -> MutexGuard<'_, Switch> {
        // A test that panics while it holds the switch must not hide its reason behind others.
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
        if !switch.has_room(to, run.count) {
            return Err(TxError::Full);
        }
        run.for_each_copy(&mut self.scratch, |datagram| switch.forward(to, datagram));
        switch.ring_if_due(to);
        Ok(())
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        for handed in 0..budget {
            // Not locked while the sink runs: it may well answer through a port of its own.
            let Some(frame) = self.net.lock().take(self.index) else {
                return handed;
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
