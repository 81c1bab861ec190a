// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handshakes of one peer: hellos on all paths, their replies, and the end of a session (`P2`).

use super::{Direct, Peer};
use crate::base::narrow::narrow;
use crate::path::outgoing::{Bytes, Outgoing, OutgoingKind};
use crate::session::authenticator;
use crate::shared::Shared;
use crate::{DropReason, Event, Instant, LinkId};
use portolan_wire::{FRAME_HEADER_LEN, FrameHeader, FrameKind, HELLO_LEN, Hello, OPEN_JOB_ID};

impl Peer {
    /// Starts the handshake. A lossless link needs none, since it has authenticated the peer.
    pub(crate) fn open_session(&mut self, now: Instant, sh: &mut Shared) {
        for path in self.paths.iter_mut() {
            if path.is_lossless() {
                path.establish_lossless();
                self.session.open_at_once();
            }
        }
        if self.session.is_up() {
            self.lanes.begin([sh.ctx.credit_len(); 2]);
            self.paths.choose(sh.ctx.preferred());
            sh.ctx.emit(Event::PeerUp(self.id));
        } else {
            self.session.begin(now);
            self.on_hello_timer(now);
        }
    }

    /// Sends a hello on each path that has not answered yet. `P2.1`
    pub(super) fn on_hello_timer(&mut self, now: Instant) {
        let silent = self.paths.iter().filter(|path| !path.is_up());
        let mask = silent.fold(0, |mask, path| mask | 1 << path.link().as_u8());
        self.session.on_hello_timer(now, mask);
    }

    /// Writes the next handshake frame for `link`, if any is due.
    pub(super) fn emit_handshake(&mut self, sh: &mut Shared, link: LinkId) -> Option<Outgoing> {
        let kind = self.session.take_handshake(link)?;
        let ids = self.session.hello();
        let params = sh.ctx.link(link)?;
        let limits = &sh.ctx.limits();
        let (job_id, from, to) = match sh.directory {
            Some(_) => (OPEN_JOB_ID, 0, 0),
            None => (sh.ctx.config().job_id, sh.ctx.config().rank, self.id.0),
        };
        let hello = Hello {
            job_id,
            from,
            to,
            epoch: ids.epoch,
            token: ids.token,
            echo_token: ids.echo_token,
            credits: [limits.credit_len; 2],
            frame_len_max: u16::try_from(params.frame_len_max).unwrap_or(u16::MAX),
            window_frames: sh.ctx.window_frames(&params),
            path: link.as_u8(),
            checksum: params.checksum,
            hidden_id: (sh.directory.as_ref()).is_some_and(|open| open.hides_ids()),
        };
        // P2.10: only a process that has the receiver's address has its key.
        let (key, endpoint_id) = match &sh.directory {
            Some(open) => {
                let key = open.key_of(self.id);
                (key, Some(open.endpoint_id_for(key, &hello)))
            }
            None => (&sh.ctx.config().secret, None),
        };
        let endpoint_id = endpoint_id.as_ref().map_or(&[][..], |id| id);
        let frame_len = FRAME_HEADER_LEN + HELLO_LEN + endpoint_id.len();
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
                ids.echo_token
            },
        };
        header.emit(out);
        out[FRAME_HEADER_LEN + HELLO_LEN..].copy_from_slice(endpoint_id);
        hello.emit(out, |body| authenticator(key, body, endpoint_id));
        Some(Outgoing {
            link,
            bytes: Bytes::Scratch,
            kind: OutgoingKind::Repeating,
        })
    }

    /// Writes the frame that reports the end of the session to the peer, if one is due.
    pub(super) fn emit_reset(&mut self, sh: &mut Shared) -> Option<Outgoing> {
        let link = self.session.take_reset()?;
        let path = self.paths.get(link)?;
        if path.is_blocked() {
            return None;
        }
        let session = self.session.token_theirs();
        let header = path.header(FrameKind::Reset, (0, 0), FRAME_HEADER_LEN, session);
        header.emit(sh.scratch.start(FRAME_HEADER_LEN));
        Some(Outgoing {
            link,
            bytes: Bytes::Scratch,
            kind: OutgoingKind::Repeating,
        })
    }

    /// Applies the path and peer parameters of a hello, or its reply, on `link`.
    pub(crate) fn on_hello(
        &mut self,
        now: Instant,
        sh: &mut Shared,
        link: LinkId,
        hello: &Hello,
        is_reply: bool,
    ) -> Result<(), DropReason> {
        // P2.5
        let proven = hello.echo_token == self.session.token_mine();
        if is_reply && !proven {
            return Err(DropReason::StaleSession);
        }
        self.direct = Direct::Unknown;
        let comes_up = self.session.adopt(hello, proven);
        self.last_seen = now;
        // P2.7
        if comes_up {
            self.lanes.begin(hello.credits);
        }
        if let Some(path) = self.paths.get_mut(link) {
            path.on_hello(hello);
            if proven && !path.is_up() {
                path.establish(now, self.session.first_round_trip(now));
            }
            self.paths.choose_or(link, sh.ctx.preferred());
            if comes_up {
                sh.ctx.emit(Event::PeerUp(self.id));
            }
        }
        if !is_reply {
            self.session.reply(link, proven);
        }
        Ok(())
    }
}
