// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions, opened on first use by a handshake on every path that may work (`P2`).
//!
//! Each side gives the other a token: 44 unpredictable bits above the 20-bit index of the peer. A
//! frame finds its peer without hashing, and a frame of an old session is rejected (`P2.3`).

pub(crate) mod directory;

use crate::base::narrow::narrow;
use crate::base::time::Span;
use crate::{Cause, DropReason, Instant, LinkId, PeerId};
use portolan_wire::{FrameKind, Hello, MAC_LEN};

/// Number of token bits with the index of the peer that received the token.
const INDEX_BITS: u32 = 20;

/// Delay before the first repetition of a hello. The delay doubles up to the maximum. With a longer
/// maximum, refusals by a firewall, which the kernel rates, are too rare to be recognized.
const HELLO_RETRY: Span = Span::from_millis(1);
const HELLO_RETRY_MAX: Span = Span::from_millis(50);

/// Maximum number of hellos on a path that stays silent while the session is up, or on one that
/// this side did not request.
const HELLO_PATH_MAX: u32 = 12;

/// Identity of a session with one peer: epochs and tokens of both sides. Keys of sealed frames are
/// derived from it (`P10.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionIds {
    /// Epoch and token of this side.
    pub mine: (u64, u64),
    /// Epoch and token of the peer.
    pub theirs: (u64, u64),
}

/// Source of tokens and epochs: keyed hashes of a counter with the entropy given at the start.
#[derive(Debug)]
pub(crate) struct Entropy {
    seed: [u8; 32],
    counter: u64,
    epoch: u64,
}

impl Entropy {
    pub(crate) fn new(seed: [u8; 32], epoch: u64) -> Self {
        Entropy {
            seed,
            counter: 0,
            epoch,
        }
    }

    pub(crate) fn next_u64(&mut self) -> u64 {
        self.counter += 1;
        let hash = blake3::keyed_hash(&self.seed, &self.counter.to_le_bytes());
        let mut word = [0; 8];
        word.copy_from_slice(&hash.as_bytes()[..8]);
        u64::from_le_bytes(word)
    }

    fn next_epoch(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch
    }
}

/// Session with one peer.
#[derive(Debug)]
pub(crate) struct SessionState {
    /// Token given to the peer, which puts it into its frames.
    token_mine: u64,
    /// Token received from the peer; 0 while unknown.
    token_theirs: u64,
    epoch_mine: u64,
    epoch_theirs: u64,
    up: bool,
    /// Set if this side requested the session. A session that only the peer requested is not
    /// retried.
    requested: bool,
    failed: Option<Cause>,
    hello_at: Instant,
    hello_count: u32,
    hello_sent_at: Instant,
    /// Links on which a hello must be sent now, and links on which a hello must be answered; one
    /// bit each.
    hello_mask: u8,
    reply_mask: u8,
    /// Link for a reset to a peer that still sends in a session that this side has closed.
    reset_by: Option<LinkId>,
}

impl SessionState {
    pub(crate) fn new(entropy: &mut Entropy, peer: PeerId) -> Self {
        let random = entropy.next_u64() << INDEX_BITS;
        SessionState {
            token_mine: random | u64::from(peer.0),
            token_theirs: 0,
            epoch_mine: entropy.next_epoch(),
            epoch_theirs: 0,
            up: false,
            requested: false,
            failed: None,
            hello_at: Instant::NEVER,
            hello_count: 0,
            hello_sent_at: Instant::default(),
            hello_mask: 0,
            reply_mask: 0,
            reset_by: None,
        }
    }

    /// Handles a frame on `link` of a session that this side has closed or not opened.
    pub(crate) fn on_frame_out_of_session(&mut self, link: LinkId) {
        if self.token_theirs == 0 {
            return;
        }
        if self.failed.is_some() {
            self.reset_by = Some(link);
        } else {
            // P2.1: the session is up at the peer, which repeats no hello; only the proof was lost.
            self.hello_mask |= 1 << link.as_u8();
        }
    }

    /// Requests the session: repeats hellos until it is up or has failed.
    pub(crate) fn request(&mut self) {
        self.requested = true;
        if !self.up && self.failed.is_none() && self.hello_at == Instant::NEVER {
            self.hello_count = 0;
            self.hello_at = Instant::default();
        }
    }

    /// Returns true if a hello or a reply must be sent on `link`.
    #[inline]
    pub(crate) fn has_handshake(&self, link: LinkId) -> bool {
        (self.hello_mask | self.reply_mask) >> link.as_u8() & 1 == 1
    }

    /// Returns true if a hello or a reply waits to be sent on any path.
    #[inline]
    pub(crate) fn has_handshakes(&self) -> bool {
        self.hello_mask | self.reply_mask != 0
    }

    /// Returns true if the session is up and no handshake is due.
    pub(crate) fn is_settled(&self) -> bool {
        let is_due = self.has_handshakes() || self.hello_at != Instant::NEVER;
        self.up && self.failed.is_none() && !is_due
    }

    /// Returns true if messages may be sent.
    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    /// Returns the reason why the session failed, if it did.
    #[inline]
    pub(crate) fn failure(&self) -> Option<Cause> {
        self.failed
    }

    /// Marks the session as failed.
    pub(crate) fn fail(&mut self, cause: Cause) {
        self.failed = Some(cause);
        self.up = false;
    }

    /// Returns the token in frames to this side.
    #[inline]
    pub(crate) fn token_mine(&self) -> u64 {
        self.token_mine
    }

    /// Returns the token in frames to the peer.
    #[inline]
    pub(crate) fn token_theirs(&self) -> u64 {
        self.token_theirs
    }

    /// Returns the identity of the session, once the peer's token is known.
    pub(crate) fn ids(&self) -> Option<SessionIds> {
        (self.token_theirs != 0).then_some(SessionIds {
            mine: (self.epoch_mine, self.token_mine),
            theirs: (self.epoch_theirs, self.token_theirs),
        })
    }

    /// Marks the session as up without a handshake.
    pub(crate) fn open_at_once(&mut self) {
        self.up = true;
    }

    /// Starts the handshake.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.hello_at = now;
    }

    /// Sends a hello on each link of the bit mask `silent`, if one is due. `P2.1`
    pub(crate) fn on_hello_timer(&mut self, now: Instant, silent: u8) {
        if now < self.hello_at || self.failed.is_some() {
            return;
        }
        let insists = self.requested && !self.up;
        if silent == 0 || !insists && self.hello_count >= HELLO_PATH_MAX {
            self.hello_at = Instant::NEVER;
            return;
        }
        self.hello_mask |= silent;
        let retry = HELLO_RETRY.doubled(self.hello_count.min(8));
        self.hello_at = now + retry.min(HELLO_RETRY_MAX);
        self.hello_count += 1;
        self.hello_sent_at = now;
    }

    /// Returns the kind of the handshake frame to send on `link`, if any.
    pub(crate) fn take_handshake(&mut self, link: LinkId) -> Option<FrameKind> {
        let bit = 1 << link.as_u8();
        if self.reply_mask & bit != 0 {
            self.reply_mask &= !bit;
            Some(FrameKind::HelloAck)
        } else if self.hello_mask & bit != 0 {
            self.hello_mask &= !bit;
            Some(FrameKind::Hello)
        } else {
            None
        }
    }

    /// Returns the link on which a reset must be sent, if any.
    pub(crate) fn take_reset(&mut self) -> Option<LinkId> {
        self.reset_by.take()
    }

    /// Returns the session's numbers for a hello of this side.
    pub(crate) fn hello(&self) -> HelloIds {
        HelloIds {
            epoch: self.epoch_mine,
            token: self.token_mine,
            echo_token: self.token_theirs,
        }
    }

    /// Stores the session's numbers from the peer's hello. `proven` is set if its sender has this
    /// side's token. Returns true if the session came up by this call.
    pub(crate) fn adopt(&mut self, hello: &Hello, proven: bool) -> bool {
        let was_up = self.up;
        self.token_theirs = hello.token;
        self.epoch_theirs = hello.epoch;
        // A hello that does not echo this side's token may be a late one of an old incarnation. It
        // is answered; messages wait for the proof that its sender has this session's token.
        self.up |= proven;
        !was_up && self.up
    }

    /// Returns the round trip of the first hello, if no other was sent.
    pub(crate) fn first_round_trip(&self, now: Instant) -> Option<Span> {
        (self.hello_count == 1).then(|| now.span_since(self.hello_sent_at))
    }

    /// Schedules the reply to a hello that arrived on `link`.
    pub(crate) fn reply(&mut self, link: LinkId, proven: bool) {
        self.reply_mask |= 1 << link.as_u8();
        if !proven {
            // Send a hello at once, so that this side can also verify both directions of the path.
            self.hello_mask |= 1 << link.as_u8();
        }
    }

    /// Checks whether a hello, or its reply, belongs to this session. Returns `Ok(false)` if it
    /// begins a newer incarnation of the peer and this session has been used. `P2.4`, `P2.8`
    pub(crate) fn check_epoch(&self, hello: &Hello, is_reply: bool) -> Result<bool, DropReason> {
        if hello.epoch < self.epoch_theirs {
            return Err(DropReason::OldIncarnation);
        }
        if hello.epoch == self.epoch_theirs {
            // Same session. If it failed here, it stays failed.
            let alive = self.failed.is_none() && hello.token == self.token_theirs;
            return alive.then_some(true).ok_or(DropReason::StaleSession);
        }
        let is_used = self.up || self.failed.is_some();
        if is_used && is_reply {
            return Err(DropReason::StaleSession);
        }
        // Nothing was sent before the session was up. The newer incarnation replaces the older one,
        // because the hello of the older one arrived late.
        Ok(!is_used)
    }

    /// Returns the time of the next hello.
    pub(crate) fn timer(&self) -> Instant {
        self.hello_at
    }
}

/// Session numbers in a hello.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HelloIds {
    pub(crate) epoch: u64,
    pub(crate) token: u64,
    pub(crate) echo_token: u64,
}

/// Returns the index of the peer that received the token.
#[inline]
pub(crate) fn token_index(token: u64) -> usize {
    narrow(token & ((1 << INDEX_BITS) - 1))
}

/// Compares in constant time, as `blake3` compares hashes.
pub(crate) fn is_equal(a: [u8; MAC_LEN], b: [u8; MAC_LEN]) -> bool {
    let widened = |mac: [u8; MAC_LEN]| {
        let mut bytes = [0; blake3::OUT_LEN];
        bytes[..MAC_LEN].copy_from_slice(&mac);
        blake3::Hash::from_bytes(bytes)
    };
    widened(a) == widened(b)
}

/// Returns the first bytes of the keyed hash over the handshake, frame header included, and the
/// endpoint id after it.
pub(crate) fn authenticator(secret: &[u8; 32], body: &[u8], endpoint_id: &[u8]) -> [u8; MAC_LEN] {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    let hash = hasher.update(body).update(endpoint_id).finalize();
    let mut mac = [0; MAC_LEN];
    mac.copy_from_slice(&hash.as_bytes()[..MAC_LEN]);
    mac
}
