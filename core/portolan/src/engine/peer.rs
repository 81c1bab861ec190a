// SPDX-License-Identifier: MIT OR Apache-2.0
//! State of a peer outside the core.

use super::Inner;
use portolan_proto::liveness::Watch;
use portolan_proto::{Cause, Instant, PeerId};

/// State of a peer outside the core.
#[derive(Debug, Default)]
pub(crate) struct PeerInfo {
    /// Reason for the peer's failure: reported by the launcher or the peer, or a shortage of this
    /// process.
    pub(super) report: Option<Box<str>>,
    /// Resource that the peer has reported as exhausted.
    pub(super) exhausted: Option<&'static str>,
    /// Set when the launcher has reported that the peer's process has ended.
    pub(super) has_ended: bool,
    /// Set when the process had left the job before it ended.
    pub(super) has_left: bool,
    /// Set when the peer of a standalone process has joined.
    pub(super) has_joined: bool,
    /// Cause of the end of such a peer, if it was noticed before it had joined.
    pub(super) early_end: Option<Cause>,
    /// Set when the event of the peer's loss was queued.
    pub(super) is_event_noted: bool,
    /// Set while a session has been requested and is not open.
    pub(super) is_opening: bool,
    /// Turn in which a message was last sent to this peer.
    pub(super) sent_turn: u32,
    /// Messages sent in that turn, and the number of turns with sends in which a burst is expected.
    sent_count: u32,
    bursts_left: u8,
    /// Time from which the peer is awaited, or suspected by the core.
    pub(super) watched_since: Option<Instant>,
    /// Time of the program's last poll for this peer, if polling is the only reason to watch it.
    pub(super) last_polled_at: Option<Instant>,
    /// Number of an endpoint's operations that this peer alone can complete.
    pub(super) awaited_count: u32,
    /// Record of the peer's silence and of its agent's reports. Boxed and only for watched peers,
    /// since a job can have many thousand peers.
    pub(super) watch: Option<Box<Watch>>,
    /// Set when the peer runs on this host; `None` until it is determined.
    pub(super) is_near: Option<bool>,
    /// Set when the network has reported the peer unreachable and it has not answered since.
    pub(super) is_doubted: bool,
    /// Set when the peer is in the list of watched peers.
    pub(super) is_listed: bool,
    /// Time of the program's first call to disconnect from this peer.
    leaving_since: Option<Instant>,
    /// Set when the program has removed this peer (endpoints only).
    pub(super) is_removed: bool,
}

/// Maximum number of messages to one peer over a network that leave one by one in a turn: blocking
/// sends, messages of an endpoint, and messages of several frames. A program that sends a few
/// messages and then computes makes no further call that would send them, and the helper's wake-up
/// would delay them. Later messages of the turn travel together. After a burst, so do all but the
/// first message of the next [`BURSTS_EXPECTED`] turns.
pub(crate) const ALONE_MAX: u32 = 8;

/// Number of turns with sends after a burst in which another is expected. Programs that send bursts
/// send a few other messages between them, such as those of a barrier.
const BURSTS_EXPECTED: u8 = 4;

impl PeerInfo {
    /// Returns the reason for the peer's failure, for an error.
    pub(super) fn report_text(&self) -> Option<String> {
        self.report.as_deref().map(str::to_owned)
    }

    /// Resets the state for another peer with the same number.
    pub(super) fn renew(&mut self) {
        *self = PeerInfo {
            // The list of watched peers still contains it.
            is_listed: self.is_listed,
            ..PeerInfo::default()
        };
    }

    /// Records that a session with the peer is open.
    pub(super) fn on_up(&mut self) {
        self.is_opening = false;
        self.is_event_noted &= self.has_ended;
        if !self.has_ended && self.exhausted.is_none() {
            // The report was about an earlier session.
            self.report = None;
        }
    }

    /// Records a message. Returns `true` if it may wait to share a frame or a system call with
    /// later ones.
    #[inline]
    pub(crate) fn note_send(&mut self, turn: u32) -> bool {
        if self.sent_turn == turn {
            self.sent_count = self.sent_count.wrapping_add(1);
        } else {
            self.bursts_left = match self.sent_count > ALONE_MAX {
                true => BURSTS_EXPECTED,
                false => self.bursts_left.saturating_sub(1),
            };
            (self.sent_turn, self.sent_count) = (turn, 1);
        }
        self.sent_count > if self.bursts_left > 0 { 1 } else { ALONE_MAX }
    }

    /// Tests whether no message was sent to this peer in this turn.
    #[inline]
    pub(crate) fn is_first(&self, turn: u32) -> bool {
        self.sent_turn != turn
    }

    /// Tests whether the last recorded message is the first of its turn.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.sent_count == 1
    }
}

impl Inner {
    /// Returns the time of the first call to disconnect from `peer`: now, if there was none.
    pub(crate) fn leaving_since(&mut self, peer: PeerId) -> Instant {
        let now = self.read_clock();
        let info = &mut self.peers[peer.0 as usize];
        *info.leaving_since.get_or_insert(now)
    }
}
