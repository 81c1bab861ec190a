// SPDX-License-Identifier: MIT OR Apache-2.0
//! Three connected links with the frames that each has received.

use super::Make;
use crate::{Link, LinkCaps, LinkKind, Notice, PeerId, RxFrame, TxError, TxFrame};
use std::time::{Duration, Instant};

/// Longer than any delay by a scheduler.
pub(super) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Message for an unexpected congestion mark.
pub(super) const UNMARKED: &str = "no network here marks frames";

/// Payload of the shortest frame: Ethernet pads frames to 60 bytes, of which 18 are the header of
/// raw Ethernet links.
const PADDED_LEN: usize = 42;

pub(super) struct Bench {
    name: String,
    pub(super) links: Vec<Box<dyn Link>>,
    inboxes: Vec<Vec<Vec<u8>>>,
}

impl Bench {
    /// Opens three links, connects 0 with 1 and with 2, and sends a frame in each direction,
    /// because a link may do more for a first frame.
    pub(super) fn new(name: String, make: &mut Make<'_>) -> Self {
        let mut links = make(3);
        assert_eq!(links.len(), 3, "{name}: three links were requested");
        let addrs: Vec<_> = links.iter().map(|link| link.local_addr()).collect();
        for (link, peer) in [(0, 1), (0, 2), (1, 0), (2, 0)] {
            links[link]
                .connect(rank(peer), &addrs[peer])
                .expect("peers connect");
        }
        let mut bench = Bench {
            name,
            links,
            inboxes: vec![Vec::new(); 3],
        };
        for (from, to) in [(0, 1), (0, 2), (1, 0), (2, 0)] {
            bench.send(from, to, &TxFrame::contiguous(b"hello"));
            bench.expect(to, &[b"hello".to_vec()]);
        }
        bench
    }

    pub(super) fn caps(&self) -> LinkCaps {
        self.links[0].caps().clone()
    }

    /// Sends a frame, and retries for as long as the link reports back-pressure.
    pub(super) fn send(&mut self, from: usize, to: usize, frame: &TxFrame<'_>) {
        let start = Instant::now();
        loop {
            match self.links[from].transmit(rank(to), frame) {
                Ok(()) => break,
                Err(TxError::Full) => {
                    assert!(start.elapsed() < TEST_TIMEOUT, "{}: stayed full", self.name);
                    self.receive_all();
                }
                Err(error) => panic!("{}: {error}", self.name),
            }
        }
    }

    /// Tries to send once. Returns `false` on back-pressure.
    pub(super) fn try_send(&mut self, from: usize, to: usize, frame: &TxFrame<'_>) -> bool {
        match self.links[from].transmit(rank(to), frame) {
            Ok(()) => true,
            Err(TxError::Full) => false,
            Err(error) => panic!("{}: {error}", self.name),
        }
    }

    /// Waits until exactly `frames` have arrived at link `at`, in order.
    pub(super) fn expect(&mut self, at: usize, frames: &[Vec<u8>]) {
        let start = Instant::now();
        while self.inboxes[at].len() < frames.len() && start.elapsed() < TEST_TIMEOUT {
            self.receive_all();
        }
        let got = std::mem::take(&mut self.inboxes[at]);
        let name = &self.name;
        assert_eq!(
            got.len(),
            frames.len(),
            "{name}: number of frames at link {at}"
        );
        for (index, (got, sent)) in got.iter().zip(frames).enumerate() {
            let lens = (got.len(), sent.len());
            assert!(
                self.same(got, sent),
                "{name}: frame {index} at {at} differs; lengths {lens:?}"
            );
        }
    }

    /// Checks for 30 ms that nothing arrives at link `at`.
    pub(super) fn expect_silence(&mut self, at: usize) {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(30) {
            self.receive_all();
        }
        let got = &self.inboxes[at];
        assert!(
            got.is_empty(),
            "{}: {} unexpected frames at link {at}",
            self.name,
            got.len()
        );
    }

    /// Calls `receive` once; returns its result after checking it.
    pub(super) fn receive(&mut self, at: usize, budget: usize) -> usize {
        let inbox = &mut self.inboxes[at];
        let before = inbox.len();
        let returned = self.links[at].receive(budget, &mut |frame| inbox.push(copy_of(&frame, at)));
        assert_eq!(
            returned,
            inbox.len() - before,
            "{}: frames counted and delivered",
            self.name
        );
        returned
    }

    /// Polls the notices of each link, during which links also do control work such as accepting
    /// connections, and receives.
    pub(super) fn receive_all(&mut self) {
        for at in 0..self.links.len() {
            while let Some(notice) = self.links[at].poll_notice() {
                if let Notice::PeerDied(peer) | Notice::PeerClosed(peer) = notice {
                    self.links[at].disconnect(peer);
                }
            }
            while self.receive(at, 64) > 0 {}
        }
    }

    /// Returns how many frames have arrived at link `at` since the last check, and removes them.
    pub(super) fn take_count(&mut self, at: usize) -> usize {
        std::mem::take(&mut self.inboxes[at]).len()
    }

    pub(super) fn same(&self, got: &[u8], sent: &[u8]) -> bool {
        match got.strip_prefix(sent) {
            Some([]) => true,
            Some(_) => {
                let pads = matches!(self.caps().kind, LinkKind::Packet | LinkKind::Xdp);
                pads && got.len() <= PADDED_LEN
            }
            None => false,
        }
    }
}

fn copy_of(frame: &RxFrame<'_>, at: usize) -> Vec<u8> {
    if let Some(from) = frame.from {
        // Link 0 receives from the other links, and they receive from link 0.
        assert_eq!(from == 0, at != 0, "the sender's number is wrong");
    }
    assert!(!frame.marked, "{UNMARKED}");
    let mut bytes = frame.head.to_vec();
    if let Some(body) = frame.body {
        let head_len = bytes.len();
        bytes.resize(head_len + body.len(), 0xa5);
        // Copied in two parts, to test the offset.
        let middle = body.len() / 2;
        body.copy_to(middle, &mut bytes[head_len + middle..]);
        body.copy_to(0, &mut bytes[head_len..head_len + middle]);
    }
    bytes
}

/// Returns the peer number of link `index`.
pub(super) fn rank(index: usize) -> PeerId {
    PeerId::try_from(index).expect("a handful of links")
}
