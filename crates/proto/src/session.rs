// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions: opened on first use, by a handshake on every path that may work (`P2`).
//!
//! Each side gives the other a token: 44 unpredictable bits above the 20-bit number of the peer, so
//! that a frame finds its peer without hashing and a frame of a dead session is refused (`P2.3`).

pub(crate) mod dormant;
pub(crate) mod open;

use crate::base::narrow::narrow;
use crate::base::time::Span;
use crate::path::outgoing::{Bytes, Outgoing, OutgoingKind};
use crate::peer::Peer;
use crate::shared::Shared;
use crate::{Cause, Core, DropReason, Event, Instant, LinkId, PeerId};
use portolan_wire::{
    FRAME_HEADER_LEN, FrameHeader, FrameKind, HELLO_LEN, Hello, MAC_LEN, OPEN_JOB_ID,
};

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

/// The peer's half of [`Core`]'s session state.
#[derive(Debug)]
pub(crate) struct SessionState {
    /// Handed to the peer; its frames carry it.
    pub(crate) token_mine: u64,
    /// Handed out by the peer; 0 while unknown.
    pub(crate) token_theirs: u64,
    epoch_mine: u64,
    epoch_theirs: u64,
    pub(crate) up: bool,
    /// This side has asked for the session; one that only the peer asked for is not insisted on.
    wanted: bool,
    pub(crate) failed: Option<Cause>,
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

    /// Up, and no handshake is due.
    pub(crate) fn is_settled(&self) -> bool {
        let handshakes = self.hello_mask | self.answer_mask;
        self.up && self.failed.is_none() && handshakes == 0 && self.hello_at == Instant::NEVER
    }

    /// When the next hello is due.
    pub(crate) fn timer(&self) -> Instant {
        self.hello_at
    }
}

/// Index of the peer that a token was handed to.
#[inline]
pub(crate) fn token_index(token: u64) -> usize {
    usize::try_from(token & ((1 << INDEX_BITS) - 1)).unwrap_or(usize::MAX)
}

impl Peer {
    /// Starts the handshake; a lossless link needs none, since it has authenticated the peer.
    pub(crate) fn open_session(&mut self, now: Instant, sh: &mut Shared) {
        for path in self.paths.iter_mut() {
            if path.is_lossless() {
                path.establish_lossless();
                self.session.up = true;
            }
        }
        if self.session.up {
            for lane in &mut self.lanes_tx {
                lane.begin(sh.ctx.credit_len());
            }
            self.paths.choose(sh.ctx.preferred());
            sh.ctx.emit(Event::PeerUp(self.id));
        } else {
            self.session.hello_at = now;
            self.on_hello_timer(now);
        }
    }

    /// Sends a hello on each path that has not answered yet. `P2.1`
    pub(crate) fn on_hello_timer(&mut self, now: Instant) {
        let session = &mut self.session;
        if now < session.hello_at || session.failed.is_some() {
            return;
        }
        let silent = self.paths.iter().filter(|path| !path.is_up());
        let mask = silent.fold(0, |mask, path| mask | 1 << path.link().as_u8());
        let insists = session.wanted && !session.up;
        if mask == 0 || !insists && session.hello_count >= HELLO_PATH_MAX {
            session.hello_at = Instant::NEVER;
            return;
        }
        session.hello_mask |= mask;
        let retry = HELLO_RETRY.doubled(session.hello_count.min(8));
        session.hello_at = now + retry.min(HELLO_RETRY_MAX);
        session.hello_count += 1;
        session.hello_sent_at = now;
    }

    /// Writes the handshake frame that is to leave by `link`, if one is.
    pub(crate) fn emit_handshake(&mut self, sh: &mut Shared, link: LinkId) -> Option<Outgoing> {
        let bit = 1 << link.as_u8();
        let session = &mut self.session;
        let kind = if session.answer_mask & bit != 0 {
            session.answer_mask &= !bit;
            FrameKind::HelloAck
        } else if session.hello_mask & bit != 0 {
            session.hello_mask &= !bit;
            FrameKind::Hello
        } else {
            return None;
        };
        let params = sh.ctx.link(link)?;
        let limits = &sh.ctx.limits();
        let (job_id, from, to) = match sh.open {
            Some(_) => (OPEN_JOB_ID, 0, 0),
            None => (sh.ctx.config().job_id, sh.ctx.config().rank, self.id.0),
        };
        let hello = Hello {
            job_id,
            from,
            to,
            epoch: session.epoch_mine,
            token: session.token_mine,
            echo_token: session.token_theirs,
            credits: [limits.credit_len; 2],
            frame_len_max: u16::try_from(params.frame_len_max).unwrap_or(u16::MAX),
            window_frames: sh.ctx.window_frames(&params),
            path: link.as_u8(),
            checksum: params.checksum,
        };
        let card = sh.open.as_ref().map(|open| open.card());
        let card = card.map_or(&[][..], |card| card);
        let frame_len = FRAME_HEADER_LEN + HELLO_LEN + card.len();
        let out = sh.scratch.start(frame_len);
        let header = FrameHeader {
            kind,
            attempt: 0,
            checked: false,
            frame_len: narrow(frame_len),
            packet_num: 0,
            session: if kind == FrameKind::Hello {
                0
            } else {
                session.token_theirs
            },
        };
        header.emit(out);
        out[FRAME_HEADER_LEN + HELLO_LEN..].copy_from_slice(card);
        // P2.10: only who has the receiver's address has its key.
        let key = match &sh.open {
            Some(open) => open.key_of(self.id),
            None => &sh.ctx.config().secret,
        };
        hello.emit(out, |body| authenticator(key, body, card));
        Some(Outgoing {
            link,
            bytes: Bytes::Scratch,
            kind: OutgoingKind::Repeating,
        })
    }

    /// Writes the frame that tells the peer that the session is over, if one is due; says by which
    /// link it leaves.
    pub(crate) fn emit_reset(&mut self, sh: &mut Shared) -> Option<Outgoing> {
        let link = self.session.reset_by.take()?;
        let path = self.paths.get(link)?;
        if path.is_blocked() {
            return None;
        }
        let session = self.session.token_theirs;
        let header = path.header(FrameKind::Reset, (0, 0), FRAME_HEADER_LEN, session);
        header.emit(sh.scratch.start(FRAME_HEADER_LEN));
        Some(Outgoing {
            link,
            bytes: Bytes::Scratch,
            kind: OutgoingKind::Repeating,
        })
    }

    /// What a hello or its answer on `link` says of the path and the peer.
    fn learn(&mut self, now: Instant, sh: &mut Shared, link: LinkId, hello: &Hello, proven: bool) {
        let was_up = self.session.up;
        self.session.token_theirs = hello.token;
        self.session.epoch_theirs = hello.epoch;
        // A hello that does not echo this side's token may be of a life that is over, late on its
        // way. It is answered; messages wait for the proof that its sender knows this session.
        self.session.up |= proven;
        self.last_heard = now;
        // P2.7
        if !was_up && self.session.up {
            for (lane, credit) in self.lanes_tx.iter_mut().zip(hello.credits) {
                lane.begin(credit);
            }
        }
        let first_hello = self.session.hello_count == 1;
        let sent_at = self.session.hello_sent_at;
        let Some(path) = self.paths.get_mut(link) else {
            return;
        };
        path.on_hello(hello);
        if proven && !path.is_up() {
            path.establish(now, first_hello.then(|| now.span_since(sent_at)));
        }
        self.paths.choose_or(link, sh.ctx.preferred());
        if !was_up && self.session.up {
            sh.ctx.emit(Event::PeerUp(self.id));
        }
    }
}

impl Core {
    /// What sets the present session with `peer` apart, once the peer has named itself on a network;
    /// also of a session that was given up.
    #[must_use]
    pub fn session_ids(&self, peer: PeerId) -> Option<SessionIds> {
        let session = match self.peers.get(peer.index())? {
            Some(peer) => &peer.session,
            None => &self.resting.get(&peer)?.session,
        };
        (session.token_theirs != 0).then_some(SessionIds {
            mine: (session.epoch_mine, session.token_mine),
            theirs: (session.epoch_theirs, session.token_theirs),
        })
    }

    /// Whose session a frame's header names.
    ///
    /// # Errors
    /// [`DropReason::Reflected`] for one that this process hands out to nobody but sends to others,
    /// [`DropReason::StaleSession`] for any other that it does not honour.
    pub fn find_session(&self, token: u64) -> Result<(PeerId, SessionIds), DropReason> {
        let index = u32::try_from(token_index(token)).unwrap_or(u32::MAX);
        let ids = self.session_ids(PeerId(index));
        if let Some(ids) = ids.filter(|ids| ids.mine.1 == token) {
            return Ok((PeerId(index), ids));
        }
        // Tokens with this process's own number in them are what peers hand it for its frames. (It may
        // have a session with itself, too.)
        Err(if index == self.sh.ctx.config().rank {
            DropReason::Reflected
        } else {
            DropReason::StaleSession
        })
    }

    /// Counts a frame that the engine dropped before the core saw it.
    pub fn note_dropped(&mut self, reason: DropReason) {
        self.sh.ctx.drop_for(reason);
    }

    /// A hello or its answer. `false` if it came from a process that is not known yet.
    pub(crate) fn on_handshake(
        &mut self,
        now: Instant,
        link: LinkId,
        header: &FrameHeader,
        frame: &[u8],
    ) -> Result<bool, DropReason> {
        let (hello, from) = match &self.sh.open {
            None => self.check_handshake(link, frame)?,
            Some(open) => match open.check_handshake(link, frame)? {
                (hello, Ok(from)) => (hello, from),
                (_, Err(card)) => {
                    self.sh.ctx.emit(Event::Stranger { card });
                    return Ok(false);
                }
            },
        };
        if self.allowed[from.index()] >> link.as_u8() & 1 == 0 {
            return Err(DropReason::NoPath);
        }
        let is_answer = header.kind == FrameKind::HelloAck;
        self.meet(now, from, &hello, is_answer)?;
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            return Err(DropReason::WrongRank);
        };
        // P2.5
        let proven = hello.echo_token == peer.session.token_mine;
        if is_answer && !proven {
            return Err(DropReason::StaleSession);
        }
        peer.learn(now, &mut self.sh, link, &hello, proven);
        if !is_answer {
            peer.session.answer_mask |= 1 << link.as_u8();
            if !proven {
                // Ask back at once, so that this side, too, knows that the path works both ways.
                peer.session.hello_mask |= 1 << link.as_u8();
            }
        }
        self.touch(from);
        Ok(true)
    }

    /// Checks what all handshake frames have in common: job, authenticator, ranks and link.
    fn check_handshake(&self, link: LinkId, frame: &[u8]) -> Result<(Hello, PeerId), DropReason> {
        let (hello, body, mac) = Hello::parse(frame)?;
        let config = self.sh.ctx.config();
        // P2.2
        if hello.job_id != config.job_id {
            return Err(DropReason::OtherJob);
        }
        if !is_equal(authenticator(&config.secret, body, &[]), mac) {
            return Err(DropReason::BadMac);
        }
        if hello.from == config.rank && hello.to != config.rank {
            return Err(DropReason::Reflected);
        }
        let from = PeerId(hello.from);
        if hello.to != config.rank || hello.from >= config.size || hello.path != link.as_u8() {
            return Err(DropReason::WrongRank);
        }
        Ok((hello, from))
    }

    /// Makes the peer's state fit the epoch of its hello (`P2.4`).
    fn meet(
        &mut self,
        now: Instant,
        from: PeerId,
        hello: &Hello,
        is_answer: bool,
    ) -> Result<(), DropReason> {
        self.awaken(from);
        let Some(Some(peer)) = self.peers.get_mut(from.index()) else {
            if is_answer {
                return Err(DropReason::StaleSession);
            }
            self.renew(now, from);
            return Ok(());
        };
        let known = peer.session.epoch_theirs;
        if hello.epoch < known {
            return Err(DropReason::OldIncarnation);
        }
        if hello.epoch == known {
            // P2.8: the same session; one that was given up here stays given up.
            let alive = peer.session.failed.is_none() && hello.token == peer.session.token_theirs;
            return if alive {
                Ok(())
            } else {
                Err(DropReason::StaleSession)
            };
        }
        if peer.session.up || peer.session.failed.is_some() {
            if is_answer {
                return Err(DropReason::StaleSession);
            }
            self.fail_peer(from, Cause::Restarted);
            self.renew(now, from);
        }
        // Before the session is up nothing was sent in it: the newer life takes the place of the
        // older, whose hello was late.
        Ok(())
    }
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

/// First bytes of the keyed hash of the handshake, frame header included, and of the card behind
/// it.
pub(crate) fn authenticator(secret: &[u8; 32], body: &[u8], card: &[u8]) -> [u8; MAC_LEN] {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    let hash = hasher.update(body).update(card).finalize();
    let mut mac = [0; MAC_LEN];
    mac.copy_from_slice(&hash.as_bytes()[..MAC_LEN]);
    mac
}
