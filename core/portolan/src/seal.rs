// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sealing: encryption and authentication of network traffic (`P10`), for jobs with `auth=aead`.
//!
//! This module is between the core and the network links. The core processes plain frames. Each
//! frame is sealed when it leaves, and only handshakes are accepted without a valid seal. Shared
//! memory is not sealed: the kernel protects it from other users (docs/reference/security.md).
//!
//! The one invariant: no key ever seals two frames with the same number. Keys are derived from data
//! that identify a session, which never repeat; and the count of a key only grows.

mod auth;
mod key;
mod replay;

pub(crate) use auth::Auth;

use auth::Cipher;
use key::{Base, Key};
use portolan_link::{Segments, TxFrame};
use portolan_proto::{Core, DropReason, LinkId, PeerId, SessionIds, Transmit};
use portolan_wire::{
    FRAME_HEADER_LEN, FrameHeader, FrameKind, OPEN_JOB_ID, SEAL_LEN, SEAL_TAG_LEN, SealNumber,
    SealedFrame, seal_header,
};
use replay::Replay;
use std::collections::HashMap;
use std::io::IoSlice;

/// Number of frames that one key seals: the limit of RFC 9001, section 6.6, for AES-GCM. A fast
/// stream reaches it in a few seconds, so the key is renewed often; that costs about 1 µs.
const FRAMES_PER_KEY: u32 = 1 << 23;

/// Maximum number of bytes handed to a link in one call. The limit of a UDP datagram before
/// segmentation is 65,507.
const CALL_LEN_MAX: usize = 65_000;

/// Seals of all sessions of this process.
pub(crate) struct Seals {
    cipher: Cipher,
    /// Derived from the job's secret and number.
    root: Base,
    /// Base key for each peer of a standalone process, derived from the secret of the pair.
    pairs: HashMap<PeerId, Base>,
    rank: u32,
    frames_per_key: u32,
    peers: Vec<Option<Box<PeerSeals>>>,
    /// Frames that were sealed last.
    sealed: Vec<u8>,
    /// Payload in several pieces, copied together.
    gathered: Vec<u8>,
    /// Frame that was opened last; empty while the core processes it.
    opened: Vec<u8>,
}

/// Keys of one session.
struct PeerSeals {
    ids: SessionIds,
    tx: Base,
    rx: Base,
    paths: [Option<Box<PathSeals>>; LinkId::COUNT],
}

/// Keys of one path of a session.
#[derive(Default)]
struct PathSeals {
    tx: Option<TxKey>,
    /// The newest key and the preceding one: frames may be reordered.
    rx: [Option<RxKey>; 2],
}

struct TxKey {
    key: Key,
    number: SealNumber,
}

struct RxKey {
    key: Key,
    generation: u32,
    seen: Replay,
}

/// Result of opening a frame.
pub(crate) enum Opened {
    /// A handshake, which has its own authentication.
    Handshake,
    /// A plain frame, to be returned with [`Seals::put_back`].
    Frame(Vec<u8>),
}

impl Seals {
    pub(crate) fn new(cipher: Cipher, secret: &[u8; 32], job_id: [u8; 16], rank: u32) -> Seals {
        Seals {
            cipher,
            root: Base::root(secret, job_id, cipher),
            pairs: HashMap::new(),
            rank,
            frames_per_key: FRAMES_PER_KEY,
            peers: Vec::new(),
            sealed: Vec::new(),
            gathered: Vec::new(),
            opened: Vec::new(),
        }
    }

    /// Sets the secret that this process has in common with `peer`. Both sides number their peers
    /// in ways of their own, so no numbers enter the keys of this pair.
    pub(crate) fn set_pair(&mut self, peer: PeerId, secret: &[u8; 32]) {
        let root = Base::root(secret, OPEN_JOB_ID, self.cipher);
        self.pairs.insert(peer, root);
    }

    /// Records an open session with `peer`. Its frames can be sealed from then on.
    pub(crate) fn on_session(&mut self, peer: PeerId, ids: SessionIds) {
        let index = peer.0 as usize;
        if index >= self.peers.len() {
            self.peers.resize_with(index + 1, || None);
        }
        if self.peers[index].as_ref().is_some_and(|old| old.ids == ids) {
            // A new state would repeat the counts.
            return;
        }
        let (root, numbers) = match self.pairs.get(&peer) {
            Some(root) => (root, (0, 0)),
            None => (&self.root, (self.rank, peer.0)),
        };
        let mine = (numbers.0, ids.mine);
        let theirs = (numbers.1, ids.theirs);
        self.peers[index] = Some(Box::new(PeerSeals {
            ids,
            tx: root.direction(mine, theirs),
            rx: root.direction(theirs, mine),
            paths: Default::default(),
        }));
    }

    /// Checks and decrypts a frame that `link` received. `P10.3`
    ///
    /// # Errors
    /// The reason to drop the frame.
    pub(crate) fn open(
        &mut self,
        core: &Core,
        link: LinkId,
        frame: &[u8],
    ) -> Result<Opened, DropReason> {
        if !SealedFrame::is_sealed(frame) {
            let header = FrameHeader::parse_head(frame, frame.len())?;
            return match header.kind {
                FrameKind::Hello | FrameKind::HelloAck => Ok(Opened::Handshake),
                _ => Err(DropReason::Unsealed),
            };
        }
        let frame = SealedFrame::parse(frame)?;
        let (peer, ids) = core.find_session(frame.session)?;
        self.on_session(peer, ids);
        let seals = self.peers[peer.0 as usize].as_deref_mut();
        let seals = seals.ok_or(DropReason::StaleSession)?;
        let path = seals.paths[link.index()].get_or_insert_default();
        self.opened.clear();
        self.opened.extend_from_slice(&frame.plain_header());
        self.opened.extend_from_slice(frame.body);
        let body = &mut self.opened[FRAME_HEADER_LEN..];
        path.open(self.cipher, &seals.rx, link, &frame, body)?;
        self.opened.truncate(self.opened.len() - SEAL_TAG_LEN);
        Ok(Opened::Frame(std::mem::take(&mut self.opened)))
    }

    /// Returns the memory of an opened frame.
    pub(crate) fn put_back(&mut self, frame: Vec<u8>) {
        self.opened = frame;
    }

    /// Seals the frames of `transmit` and passes them to `send`, in as many calls as the link
    /// needs. `payload` is the part in user memory. `P10.1`
    ///
    /// # Errors
    /// The first error of `send`, which ends the call. If the core then retransmits all frames, the
    /// peer drops duplicates by their packet numbers.
    pub(crate) fn transmit<E>(
        &mut self,
        transmit: &Transmit<'_>,
        payload: &[u8],
        mut send: impl FnMut(&TxFrame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Transmit::Frame { bytes, .. } = transmit
            && is_handshake(bytes)
        {
            return send(&TxFrame::contiguous(bytes));
        }
        let plain = PlainFrames::new(transmit, payload);
        if self.seal(transmit.destination(), &plain).is_none() {
            // No key means that the session has ended. The frame counts as lost.
            return Ok(());
        }
        let sealed_len = plain.frame_len() + SEAL_LEN;
        let per_call = (CALL_LEN_MAX / sealed_len).max(1);
        for call in self.sealed.chunks(per_call * sealed_len) {
            if call.len() <= sealed_len {
                // Links have a faster path for a frame in one piece.
                send(&TxFrame::contiguous(call))?;
                continue;
            }
            send(&TxFrame {
                head: &[],
                payload: &[IoSlice::new(call)],
                segments: Some(Segments {
                    header_len: 0,
                    payload_len: sealed_len,
                }),
            })?;
        }
        Ok(())
    }

    /// Like [`Seals::transmit`], for a payload in several pieces. They are copied together first,
    /// since sealing copies them in any case.
    #[cold]
    pub(crate) fn transmit_pieces<E>(
        &mut self,
        transmit: &Transmit<'_>,
        pieces: &[&[u8]],
        send: impl FnMut(&TxFrame<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut gathered = std::mem::take(&mut self.gathered);
        gathered.clear();
        pieces
            .iter()
            .for_each(|piece| gathered.extend_from_slice(piece));
        let result = self.transmit(transmit, &gathered, send);
        self.gathered = gathered;
        result
    }

    /// Writes the sealed frames one after another.
    fn seal(&mut self, (peer, link): (PeerId, LinkId), plain: &PlainFrames<'_>) -> Option<()> {
        let seals = self.peers.get_mut(peer.0 as usize)?.as_deref_mut()?;
        let path = seals.paths[link.index()].get_or_insert_default();
        self.sealed.clear();
        for (head, payload) in plain.frames() {
            // A token of another session has another key, which does not exist yet or no longer
            // exists.
            if FrameHeader::parse_head(head, usize::MAX).ok()?.session != seals.ids.theirs.1 {
                return None;
            }
            let start = self.sealed.len();
            self.sealed.extend_from_slice(head);
            self.sealed.extend_from_slice(payload);
            let tx = path.next_key(self.cipher, &seals.tx, link, self.frames_per_key)?;
            let header = seal_header(&mut self.sealed[start..]);
            let body = &mut self.sealed[start + FRAME_HEADER_LEN..];
            let tag = tx.key.seal(tx.number, header, body)?;
            self.sealed.extend_from_slice(&tag);
            self.sealed.extend_from_slice(&tx.number.to_bytes());
        }
        Some(())
    }
}

impl PathSeals {
    /// Returns the key for the next frame, with the frame's number. `P10.4`
    fn next_key(
        &mut self,
        cipher: Cipher,
        base: &Base,
        link: LinkId,
        frames_per_key: u32,
    ) -> Option<&TxKey> {
        let number = match &self.tx {
            None => SealNumber {
                generation: 0,
                count: 0,
            },
            Some(tx) if tx.number.count + 1 < frames_per_key => SealNumber {
                count: tx.number.count + 1,
                ..tx.number
            },
            // After 2^55 frames no further key exists, and the path stops sending.
            Some(tx) => SealNumber {
                generation: tx.number.generation.checked_add(1)?,
                count: 0,
            },
        };
        match &mut self.tx {
            Some(tx) if tx.number.generation == number.generation => tx.number = number,
            _ => {
                let key = base.key(cipher, link, number.generation)?;
                self.tx = Some(TxKey { key, number });
            }
        }
        self.tx.as_ref()
    }

    /// Checks `frame` and decrypts `body`, its copy. A new key is kept once it has authenticated a
    /// frame.
    fn open(
        &mut self,
        cipher: Cipher,
        base: &Base,
        link: LinkId,
        frame: &SealedFrame<'_>,
        body: &mut [u8],
    ) -> Result<(), DropReason> {
        let SealNumber { generation, count } = frame.number;
        let known = self.rx.iter_mut().flatten();
        let mut known = known.filter(|rx| rx.generation == generation);
        if let Some(rx) = known.next() {
            return rx.open(frame, body);
        }
        let newest = self.rx[0].as_ref().map(|rx| rx.generation);
        if newest.is_some_and(|newest| generation < newest) {
            return Err(DropReason::Replayed);
        }
        let key = base.key(cipher, link, generation);
        let mut rx = RxKey {
            key: key.ok_or(DropReason::BadSeal)?,
            generation,
            seen: Replay::starting_at(count),
        };
        rx.open(frame, body)?;
        self.rx[1] = self.rx[0].replace(rx);
        Ok(())
    }
}

impl RxKey {
    fn open(&mut self, frame: &SealedFrame<'_>, body: &mut [u8]) -> Result<(), DropReason> {
        let count = frame.number.count;
        if !self.seen.is_new(count) {
            return Err(DropReason::Replayed);
        }
        if !self.key.open(frame.number, frame.header, body) {
            return Err(DropReason::BadSeal);
        }
        self.seen.insert(count);
        Ok(())
    }
}

/// Plain frames in a row: headers of `head_len` bytes, each with `payload_len` bytes of payload.
/// The last may be shorter.
struct PlainFrames<'a> {
    heads: &'a [u8],
    more_heads: &'a [u8],
    head_len: usize,
    payload: &'a [u8],
    payload_len: usize,
}

impl<'a> PlainFrames<'a> {
    fn new(transmit: &Transmit<'a>, payload: &'a [u8]) -> Self {
        let mut more_heads = &[][..];
        let (heads, head_len, payload, payload_len) = match *transmit {
            Transmit::Frame { bytes, .. } => (bytes, bytes.len(), &[][..], 0),
            Transmit::Run {
                bytes,
                more,
                segment_len,
                ..
            } => {
                more_heads = more;
                (bytes, segment_len, &[][..], 0)
            }
            Transmit::Bulk {
                headers,
                header_len,
                fragment_len,
                ..
            } => (headers, header_len, payload, fragment_len),
            // There are no streams with seals.
            Transmit::Message { head, payload, .. } => (head, head.len(), payload, payload.len()),
        };
        PlainFrames {
            heads,
            more_heads,
            head_len,
            payload,
            payload_len,
        }
    }

    /// Returns the length of each frame but the last, in bytes.
    fn frame_len(&self) -> usize {
        self.head_len + self.payload_len.min(self.payload.len())
    }

    fn frames(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let payload = self.payload.chunks(self.payload_len.max(1));
        let payload = payload.chain(std::iter::repeat(&[][..]));
        let heads = self.heads.chunks(self.head_len);
        heads
            .chain(self.more_heads.chunks(self.head_len))
            .zip(payload)
    }
}

fn is_handshake(frame: &[u8]) -> bool {
    let header = FrameHeader::parse_head(frame, frame.len());
    header.is_ok_and(|header| matches!(header.kind, FrameKind::Hello | FrameKind::HelloAck))
}

#[cfg(test)]
mod tests;
