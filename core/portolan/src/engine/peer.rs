// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the engine knows of a peer beside the core.

use portolan_proto::Instant;
use portolan_proto::liveness::Watch;

/// What the engine knows of a peer beside the core.
#[derive(Debug, Default)]
pub(crate) struct PeerInfo {
    /// What the launcher said of its end, or it has said itself; what this process lacks for it.
    pub(super) report: Option<Box<str>>,
    /// What it has said that it lacks.
    pub(super) lacks: Option<&'static str>,
    /// The launcher has told that its process has ended.
    pub(super) has_ended: bool,
    /// It had left the job before it ended.
    pub(super) has_left: bool,
    /// The event of its loss was queued.
    pub(super) is_event_noted: bool,
    /// A session was asked for and has not opened yet.
    pub(super) is_opening: bool,
    /// Turn in which something was last sent without waiting for company.
    pub(super) sent_turn: u32,
    /// Messages in that turn of which waiting might be asked, and whether those of the turn before
    /// came in a burst.
    sent_count: u32,
    sends_bursts: bool,
    /// Since when it is waited for, or suspected by the core.
    pub(super) watched_since: Option<Instant>,
    /// It is watched only because a program looks for something of it, the last time then.
    pub(super) looked_for_at: Option<Instant>,
    /// Operations of an endpoint's caller that it alone can end.
    pub(super) awaited_count: u32,
    /// How long it has been silent, and what its agent says about that. Only peers that are watched
    /// have it, since a job can have many thousand others.
    pub(super) watch: Option<Box<Watch>>,
    /// It runs on this host, once that was looked up.
    pub(super) is_near: Option<bool>,
    /// The network has said that it is gone, and it has not answered since.
    pub(super) is_doubted: bool,
    /// Stands in the list of those that are watched or doubted.
    pub(super) is_listed: bool,
    /// Of an endpoint: its program has removed it.
    pub(super) is_removed: bool,
}

/// Messages of an endpoint, or of several frames, to one peer that leave one by one, although no
/// progress is made between them: a program that sends a few and then computes does not come back to
/// send what would wait.
/// Those behind them travel together, and so do all but the first of a turn that follows a burst.
pub(crate) const ALONE_MAX: u32 = 8;

impl PeerInfo {
    /// What is known of its end, for an error.
    pub(super) fn report_text(&self) -> Option<String> {
        self.report.as_deref().map(str::to_owned)
    }

    /// A session with it is open.
    pub(super) fn on_up(&mut self) {
        (self.is_opening, self.is_event_noted) = (false, false);
        if !self.has_ended && self.lacks.is_none() {
            // The report was about an earlier session.
            self.report = None;
        }
    }

    /// Notes that a message is sent; `true` if it may wait for others to share a frame or a call with.
    #[inline]
    pub(crate) fn note_send(&mut self, turn: u32) -> bool {
        if self.sent_turn == turn {
            self.sent_count = self.sent_count.wrapping_add(1);
        } else {
            self.sends_bursts = self.sent_count > ALONE_MAX;
            (self.sent_turn, self.sent_count) = (turn, 1);
        }
        self.sent_count > if self.sends_bursts { 1 } else { ALONE_MAX }
    }

    /// Whether nothing was sent in this turn.
    #[inline]
    pub(crate) fn is_first(&self, turn: u32) -> bool {
        self.sent_turn != turn
    }

    /// Whether the message that was noted last is the first of its turn.
    #[inline]
    pub(crate) fn is_alone(&self) -> bool {
        self.sent_count == 1
    }
}
