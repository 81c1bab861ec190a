// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receipt of several messages at once: the messages of a frame, and the frames of a run.

use super::*;

impl End {
    /// Takes the messages at the beginning of a frame that have a destination, as the library does.
    pub(super) fn take_messages(&mut self, frame: &mut Admitted, head: &[u8]) {
        while !frame.is_done() {
            let (dest, off, len) = if let Some(whole) = self.core.take_message(frame, head, None) {
                (whole.dest, whole.off, whole.len)
            } else if let Some(tagged) = self.core.take_tagged(frame, head, None) {
                (tagged.dest, tagged.off, tagged.len)
            } else {
                return;
            };
            match dest {
                MessageDest::Posted(op) => {
                    self.memory.remove(&op.0);
                    let bytes = head[off..off + len].to_vec();
                    self.received.insert(op.0, (bytes, false));
                }
                MessageDest::Held => {}
                MessageDest::Handler | MessageDest::Waiting => panic!("{dest:?}"),
            }
        }
    }
}

impl Pair {
    /// Receives frames of one length like a link that gets them in one call.
    pub(super) fn deliver_run(&mut self, due: &mut VecDeque<Wire>) {
        let (to, link, len) = (due[0].to, due[0].link, due[0].frame.len());
        let run = due
            .iter()
            .take_while(|wire| wire.to == to && wire.link == link && wire.frame.len() == len);
        let datagrams = run.map(|wire| &wire.frame[..]);
        let end = &mut self.ends[to];
        let Some(run) = end.core.handle_run(self.now, link, datagrams) else {
            return;
        };
        let wires: Vec<_> = due.drain(..run.count).collect();
        let payload: Vec<u8> = run
            .pieces(wires.iter().map(|wire| &wire.frame[..]))
            .flatten()
            .copied()
            .collect();
        assert_eq!(payload.len(), run.len);
        let dst = match run.dest {
            Dest::Op(op, off) => {
                let off = usize::try_from(off).unwrap();
                &mut end.memory.get_mut(&op.0).unwrap()[off..]
            }
            Dest::Held(id, off) => &mut end.core.held_mut(id)[off..],
        };
        dst[..payload.len()].copy_from_slice(&payload);
        self.runs_taken += run.count;
        end.drain(&[]);
    }
}

/// Submits a message past the queues; returns the link and the first frames.
pub(in crate::tests) fn submit(
    core: &mut Core,
    now: Instant,
    to: PeerId,
    spec: &SendSpec,
    bytes: &[u8],
) -> Result<(LinkId, Vec<Vec<u8>>), Refused> {
    match core.submit(now, to, spec, bytes) {
        Ok(frame) => Ok((frame.link, vec![frame.bytes.to_vec()])),
        Err(Refused::TooLong) => {
            let run = core.submit_run(now, to, spec, bytes)?;
            let frames = (run.destination().1, run.frames(&[]));
            core.keep_message(bytes);
            Ok(frames)
        }
        Err(refused) => Err(refused),
    }
}
