// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions: opened on first use, by a handshake on every path that may work (`P2`).
//!
//! Each side gives the other a token: 44 unpredictable bits above the 20-bit number of the peer, so
//! that a frame finds its peer without hashing and a frame of a dead session is refused (`P2.3`).

pub(crate) mod directory;

use crate::base::narrow::narrow;
use crate::base::time::Span;
use crate::{Cause, DropReason, Instant, LinkId, PeerId};
use portolan_wire::{FrameKind, Hello, MAC_LEN};

/// Bits of a token that are the index of the peer it was handed to.
const INDEX_BITS: u32 = 20;

/// First repetition of a hello. Later ones double up to the maximum.
const HELLO_RETRY: Span = Span::from_millis(1);
const HELLO_RETRY_MAX: Span = Span::from_millis(50);

/// Hellos on a path that stays silent while the session is up, or that nobody here has asked for,
/// before the path is left alone.
const HELLO_PATH_MAX: u32 = 12;

/// What sets a session with one peer apart from every other: this side's epoch and token, then the
/// peer's. Keys of sealed frames are derived from it (`P10.2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionIds {
    /// Epoch and token of this side.
    pub mine: (u64, u64),
    /// Epoch and token of the peer.
    pub theirs: (u64, u64),
}

/// Source of tokens and epochs: keyed hashing of a counter with the entropy of the start.
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

/// The session with one peer.
#[derive(Debug)]
pub(crate) struct SessionState {
    /// Handed to the peer; its frames carry it.
    token_mine: u64,
    /// Handed out by the peer; 0 while unknown.
    token_theirs: u64,
    epoch_mine: u64,
    epoch_theirs: u64,
    up: bool,
    /// This side has asked for the session; one that only the peer asked for is not insisted on.
    wanted: bool,
    failed: Option<Cause>,
    hello_at: Instant,
    hello_count: u32,
    hello_sent_at: Instant,
    /// Links whose hello must be sent now, and links whose hello must be answered; a bit each.
    hello_mask: u8,
    answer_mask: u8,
    /// The peer sends in a session that was given up here: to be told so by this link.
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
            wanted: false,
            failed: None,
            hello_at: Instant::NEVER,
            hello_count: 0,
            hello_sent_at: Instant::default(),
            hello_mask: 0,
            answer_mask: 0,
            reset_by: None,
        }
    }

    /// A frame of this session came by `link`, although it was given up, or is not up here.
    pub(crate) fn on_frame_out_of_session(&mut self, link: LinkId) {
        if self.token_theirs == 0 {
            return;
        }
        if self.failed.is_some() {
            self.reset_by = Some(link);
        } else {
            // P2.1: the peer has the session and repeats no hello; only the proof was lost.
            self.hello_mask |= 1 << link.as_u8();
        }
    }

    /// This side asks for the session: its hellos go on until it is up or given up.
    pub(crate) fn want(&mut self) {
        self.wanted = true;
        if !self.up && self.failed.is_none() && self.hello_at == Instant::NEVER {
            self.hello_count = 0;
            self.hello_at = Instant::default();
        }
    }

    /// A hello or an answer is to leave by `link`.
    #[inline]
    pub(crate) fn has_handshake(&self, link: LinkId) -> bool {
        (self.hello_mask | self.answer_mask) >> link.as_u8() & 1 == 1
    }

    /// A Hello or its answer waits to be sent by some path.
    #[inline]
    pub(crate) fn has_handshakes(&self) -> bool {
        self.hello_mask | self.answer_mask != 0
    }

    /// Up, and no handshake is due.
    pub(crate) fn is_settled(&self) -> bool {
        let is_due = self.has_handshakes() || self.hello_at != Instant::NEVER;
        self.up && self.failed.is_none() && !is_due
    }

    /// Messages flow.
    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        self.up
    }

    /// Why it was given up, if it was.
    #[inline]
    pub(crate) fn failure(&self) -> Option<Cause> {
        self.failed
    }

    /// It is given up.
    pub(crate) fn fail(&mut self, cause: Cause) {
        self.failed = Some(cause);
        self.up = false;
    }

    /// What its frames to this side carry.
    #[inline]
    pub(crate) fn token_mine(&self) -> u64 {
        self.token_mine
    }

    /// What its frames to the peer carry.
    #[inline]
    pub(crate) fn token_theirs(&self) -> u64 {
        self.token_theirs
    }

    /// What sets it apart, once the peer has named itself.
    pub(crate) fn ids(&self) -> Option<SessionIds> {
        (self.token_theirs != 0).then_some(SessionIds {
            mine: (self.epoch_mine, self.token_mine),
            theirs: (self.epoch_theirs, self.token_theirs),
        })
    }

    /// It is up without a handshake.
    pub(crate) fn open_at_once(&mut self) {
        self.up = true;
    }

    /// The handshake begins.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.hello_at = now;
    }

    /// Sends a hello on each link of `silent`, a bit each, if it is time. `P2.1`
    pub(crate) fn on_hello_timer(&mut self, now: Instant, silent: u8) {
        if now < self.hello_at || self.failed.is_some() {
            return;
        }
        let insists = self.wanted && !self.up;
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

    /// The handshake frame that is to leave by `link`, if one is.
    pub(crate) fn take_handshake(&mut self, link: LinkId) -> Option<FrameKind> {
        let bit = 1 << link.as_u8();
        if self.answer_mask & bit != 0 {
            self.answer_mask &= !bit;
            Some(FrameKind::HelloAck)
        } else if self.hello_mask & bit != 0 {
            self.hello_mask &= !bit;
            Some(FrameKind::Hello)
        } else {
            None
        }
    }

    /// By which link the peer is to be told that the session is over, if it is.
    pub(crate) fn take_reset(&mut self) -> Option<LinkId> {
        self.reset_by.take()
    }

    /// What this side's hello says of the session.
    pub(crate) fn hello(&self) -> HelloIds {
        HelloIds {
            epoch: self.epoch_mine,
            token: self.token_mine,
            echo_token: self.token_theirs,
        }
    }

    /// What the peer's hello says of the session, and whether it proves that its sender knows this
    /// side's token. Returns whether the session is up from now on, and was not.
    pub(crate) fn learn(&mut self, hello: &Hello, proven: bool) -> bool {
        let was_up = self.up;
        self.token_theirs = hello.token;
        self.epoch_theirs = hello.epoch;
        // A hello that does not echo this side's token may be of a life that is over, late on its
        // way. It is answered; messages wait for the proof that its sender knows this session.
        self.up |= proven;
        !was_up && self.up
    }

    /// How long the answer to the first hello has taken, if it was answered.
    pub(crate) fn first_round_trip(&self, now: Instant) -> Option<Span> {
        (self.hello_count == 1).then(|| now.span_since(self.hello_sent_at))
    }

    /// A hello came by `link`, and is answered.
    pub(crate) fn answer(&mut self, link: LinkId, proven: bool) {
        self.answer_mask |= 1 << link.as_u8();
        if !proven {
            // Ask back at once, so that this side, too, knows that the path works both ways.
            self.hello_mask |= 1 << link.as_u8();
        }
    }

    /// Whether a hello, or its answer, belongs to this session; `false` if it begins a newer life of
    /// the peer, and this one has been used. `P2.4`, `P2.8`
    pub(crate) fn check_epoch(&self, hello: &Hello, is_answer: bool) -> Result<bool, DropReason> {
        if hello.epoch < self.epoch_theirs {
            return Err(DropReason::OldIncarnation);
        }
        if hello.epoch == self.epoch_theirs {
            // The same session; one that was given up here stays given up.
            let alive = self.failed.is_none() && hello.token == self.token_theirs;
            return alive.then_some(true).ok_or(DropReason::StaleSession);
        }
        let is_used = self.up || self.failed.is_some();
        if is_used && is_answer {
            return Err(DropReason::StaleSession);
        }
        // Before the session is up nothing was sent in it: the newer life takes the place of the
        // older, whose hello was late.
        Ok(!is_used)
    }

    /// When the next hello is due.
    pub(crate) fn timer(&self) -> Instant {
        self.hello_at
    }
}

/// The numbers in a hello.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HelloIds {
    pub(crate) epoch: u64,
    pub(crate) token: u64,
    pub(crate) echo_token: u64,
}

/// Index of the peer that a token was handed to.
#[inline]
pub(crate) fn token_index(token: u64) -> usize {
    narrow(token & ((1 << INDEX_BITS) - 1))
}

/// Compares in the same time wherever they differ, as hashes of this library compare.
pub(crate) fn is_equal(a: [u8; MAC_LEN], b: [u8; MAC_LEN]) -> bool {
    let widened = |mac: [u8; MAC_LEN]| {
        let mut bytes = [0; blake3::OUT_LEN];
        bytes[..MAC_LEN].copy_from_slice(&mac);
        blake3::Hash::from_bytes(bytes)
    };
    widened(a) == widened(b)
}

/// First bytes of the keyed hash of the handshake, frame header included, and of the endpoint id behind
/// it.
pub(crate) fn authenticator(secret: &[u8; 32], body: &[u8], endpoint_id: &[u8]) -> [u8; MAC_LEN] {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    let hash = hasher.update(body).update(endpoint_id).finalize();
    let mut mac = [0; MAC_LEN];
    mac.copy_from_slice(&hash.as_bytes()[..MAC_LEN]);
    mac
}
