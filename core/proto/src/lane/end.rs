// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handling of a lane when its peer fails (`P9.7`).

use super::{Entry, Env, Lanes, State, match_entry};
use crate::Data;
use crate::matching::remains::Remains;
use alloc::collections::VecDeque;
use portolan_wire::LaneId;

impl Lanes {
    /// Ends the matched messages of a failed peer. Complete ones are delivered if none is missing
    /// before them at their port. `P9.7`
    pub(crate) fn end_matched(&mut self, env: &mut Env<'_>, lane: LaneId, remains: &mut Remains) {
        let rx = &mut self.rx[lane.index()];
        let matched = core::mem::take(&mut rx.matched);
        rx.jobs_matched = 0;
        let rest = rx.entries.split_off(matched);
        let entries = core::mem::replace(&mut rx.entries, rest);
        self.end_entries(env, lane, remains, entries);
    }

    /// Ends the unmatched messages. Complete ones may match a buffer now or wait at their port.
    pub(crate) fn end_unmatched(&mut self, env: &mut Env<'_>, lane: LaneId, remains: &mut Remains) {
        let rx = &mut self.rx[lane.index()];
        // Waiting messages no longer hold credit.
        (rx.waiting, rx.returned_early) = (0, 0);
        let entries = core::mem::take(&mut rx.entries);
        self.end_entries(env, lane, remains, entries);
    }

    fn end_entries(
        &mut self,
        env: &mut Env<'_>,
        lane: LaneId,
        remains: &mut Remains,
        entries: VecDeque<Option<Entry>>,
    ) {
        // The port of a message that never arrived is unknown.
        let mut complete = true;
        for entry in entries {
            let Some(mut entry) = entry else {
                complete = false;
                continue;
            };
            let behind = complete && !remains.missing[lane.index()];
            let keeps = behind && remains.holds_at(lane, &entry.to);
            if let (true, &State::Held(held)) = (keeps, &entry.state) {
                // The failed peer needs no credit.
                entry.charge = 0;
                env.sh.held.mark_orphaned(held);
                match_entry(env, lane, &mut entry);
            }
            match entry.state {
                State::Unexpected | State::Detached => {}
                State::Remote(job) if keeps && job.is_complete() => {
                    job.finish(&mut env.host(), 0);
                }
                State::Remote(job) => {
                    // Messages sent after it must not become visible without it.
                    remains.missing[lane.index()] = true;
                    job.end(remains);
                }
                State::Ready { op, data, error } if keeps => {
                    self.deliver(env, lane, &entry.to, op, entry.len, data, error);
                    env.sh.matching.on_delivered(&entry.to);
                }
                state => {
                    remains.broken.push((lane, entry.to));
                    state.end(remains);
                }
            }
        }
    }
}

impl State {
    /// Adds the resources of a message that will not be delivered to `remains`.
    fn end(self, remains: &mut Remains) {
        match self {
            State::Gathering { held, .. } | State::Held(held) => remains.held.push(held),
            State::Ready { op, data, .. } => {
                if let Data::Held(held) = data {
                    remains.held.push(held);
                }
                remains.ops.extend(op);
            }
            State::Placing { posted, .. } => remains.ops.push(posted.op),
            State::Remote(job) => job.end(remains),
            State::Request(_)
            | State::Transferring { .. }
            | State::Unexpected
            | State::Detached => {}
        }
    }
}
