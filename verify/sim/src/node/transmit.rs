// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transmission: takes transmits from the core and puts them on the simulated links.

use super::streams::part_of;
use super::{Node, Op};
use crate::Canary;
use crate::context::Context;
use portolan_proto::{Cause, LinkId, PeerId, Refused, SendSpec, Transmit};

impl Node {
    /// Sends everything that is due; returns the processor time it took.
    pub(super) fn transmit(&mut self, cx: &mut Context) -> u64 {
        self.unblock_links(cx);
        let mut cost_ns = 0;
        let mut failed = Vec::new();
        let local = self.clock.local(cx.now);
        while let Some(transmit) = self.core.poll_transmit(local) {
            let (PeerId(peer), link) = transmit.destination();
            let bulk_op = transmit.payload().first().map(|part| part.op.0);
            if link == LinkId::STREAM {
                let Some(part) = part_of(&transmit) else {
                    cx.violate_always(format!("node {}: no part: {transmit:?}", self.id));
                    break;
                };
                cost_ns += cx.plan.call_cost_ns;
                self.send_part(cx, peer, part);
                continue;
            }
            let has_ring = || cx.alive[peer as usize] || cx.shm.ended_readers(self.id, peer) > 0;
            if link == LinkId::SHM && !has_ring() {
                // The socket of a dead process refuses; its peer has then failed.
                failed.push(peer);
                continue;
            }
            if link != LinkId::SHM && cx.net.full_until(cx.now, self.id).is_some() {
                self.refuse(link);
                continue;
            }
            let memory = |op| self.memory.get(&op).and_then(Op::outbound);
            let Some(frames) = frames_of(&transmit, memory) else {
                let id = self.id;
                cx.violate_always(format!(
                    "node {id} sends from memory that the core does not own"
                ));
                break;
            };
            self.check_len(cx, link, &frames);
            if link == LinkId::SHM {
                if !self.send_shared(cx, peer, frames) {
                    self.refuse(link);
                    continue;
                }
                cost_ns += cx.plan.call_cost_ns / 8;
            } else {
                for frame in frames {
                    let tools = (&mut cx.queue, &mut cx.trace);
                    cx.net.send(tools, cx.now, (self.id, peer), link, frame);
                }
                cost_ns += cx.plan.call_cost_ns;
            }
            if let Some(op) = bulk_op
                && cx.strikes(Canary::EarlyReuse)
                && let Some(Op::Send { bytes, .. }) = self.memory.get_mut(&op)
            {
                bytes.fill(0x5a);
            }
        }
        for peer in failed {
            self.core.fail_peer(PeerId(peer), Cause::ProcessExited);
        }
        cost_ns
    }

    /// Sends by the shortcut between hosts: at once, in frames of its own. Returns `false` if it
    /// does not apply.
    pub(super) fn send_single(
        &mut self,
        cx: &mut Context,
        peer: u32,
        spec: &SendSpec,
        bytes: &[u8],
    ) -> bool {
        let to = PeerId(peer);
        let local = self.clock.local(cx.now);
        let (link, frames) = match self.core.submit(local, to, spec, bytes) {
            Ok(frame) => (frame.link, vec![frame.bytes.to_vec()]),
            Err(Refused::TooLong) => match self.core.submit_run(local, to, spec, bytes) {
                Ok(run) => {
                    if let Some(part) = part_of(&run) {
                        self.core.keep_message(bytes);
                        self.send_part(cx, peer, part);
                        return true;
                    }
                    (run.destination().1, run.frames(&[]))
                }
                Err(_) => return false,
            },
            Err(_) => return false,
        };
        if cx.net.full_until(cx.now, self.id).is_some() {
            self.refuse(link);
            return true;
        }
        self.check_len(cx, link, &frames);
        for frame in frames {
            let tools = (&mut cx.queue, &mut cx.trace);
            cx.net.send(tools, cx.now, (self.id, peer), link, frame);
        }
        true
    }

    fn unblock_links(&mut self, cx: &Context) {
        for link in LinkId::ALL {
            let has_room = match link {
                LinkId::SHM => true,
                LinkId::STREAM => std::mem::take(&mut self.has_stream_room),
                _ => cx.net.full_until(cx.now, self.id).is_none(),
            };
            if self.link_blocked[link.index()] && has_room {
                self.link_blocked[link.index()] = false;
                self.core.link_ready(link);
            }
        }
    }

    pub(super) fn refuse(&mut self, link: LinkId) {
        self.link_blocked[link.index()] = true;
        self.core.transmit_refused();
    }

    /// Writes frames to a ring, which takes only whole entries.
    pub(super) fn send_shared(
        &mut self,
        cx: &mut Context,
        peer: u32,
        frames: Vec<Vec<u8>>,
    ) -> bool {
        let frame = frames.concat();
        let len = frame.len();
        let tools = (&mut cx.queue, &mut cx.trace);
        let sent = cx.shm.send(tools, cx.now, (self.id, peer), frame);
        if sent {
            cx.net.frame_count += 1;
            cx.net.byte_count += len as u64;
        }
        sent
    }

    /// Checks that frames and calls do not exceed the limits of their link.
    fn check_len(&self, cx: &mut Context, link: LinkId, frames: &[Vec<u8>]) {
        let plan = &cx.plan;
        let params = match link {
            LinkId::SHM => plan.shm,
            _ => plan.network(link),
        };
        let Some(params) = params else { return };
        let longest = frames.iter().map(Vec::len).max().unwrap_or(0);
        if longest > params.frame_len_max || frames.len() > params.segments_max.max(1) {
            let id = self.id;
            cx.violate(format!(
                "node {id} sends {} frames of up to {longest} bytes by {link}, which takes {} of {}",
                frames.len(),
                params.segments_max,
                params.frame_len_max
            ));
        }
    }
}

/// Returns the frames of a transmit, gathered as a link would; `None` if its buffer does not exist.
fn frames_of<'a>(
    transmit: &Transmit<'_>,
    memory: impl Fn(u64) -> Option<&'a Vec<u8>>,
) -> Option<Vec<Vec<u8>>> {
    let mut payload = Vec::new();
    for part in transmit.payload() {
        let off = usize::try_from(part.off).ok()?;
        payload.extend_from_slice(memory(part.op.0)?.get(off..off + part.len)?);
    }
    Some(transmit.frames(&payload))
}
