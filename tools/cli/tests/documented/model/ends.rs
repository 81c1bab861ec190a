// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predictions that depend on the order in which processes end.

use super::*;

impl Machine<'_> {
    pub(super) fn bursts(&self, rank: u32, port: u16) -> Expected {
        let mut sums = BTreeSet::new();
        for step in self.program.processes.iter().flatten() {
            if let &Step::Burst {
                to,
                port: own,
                first,
                count,
            } = step
                && (to, own) == (rank, port)
            {
                let ids = (first.id..).take(count);
                sums.extend(ids.map(|id| sum(&Message { id, ..first }.bytes())));
            }
        }
        Expected::Bursts(sums)
    }

    /// Completes the predictions that depend on the order of ends, which is now known.
    pub(super) fn finish(mut self) -> Verdict<Prediction> {
        for &(rank, step, other) in &self.needs {
            if rank != other && !self.knows(other, rank, step) {
                return unsound(format!(
                    "rank {other} may end before step {step} of rank {rank}"
                ));
            }
        }
        for (rank, step, index) in std::mem::take(&mut self.gambles) {
            let to = self.messages[index].to.rank;
            if rank == to || self.knows(to, rank, step) {
                continue;
            }
            if self.is_received(index) && !(self.is_killed(to) && self.is_long(index)) {
                continue;
            }
            let expected = &mut self.expected[rank as usize][step];
            let Expected::Is(outcome) = expected else {
                continue;
            };
            let mut outcomes = vec![outcome.clone(), gone_outcome(to)];
            if matches!(outcome, Outcome::Sent { .. }) {
                // The call that started it may have failed.
                outcomes.push(Outcome::NoRequest);
            }
            *expected = Expected::OneOf(outcomes);
        }
        let chains = self.chains();
        let classes = self.classes()?;
        let killed = (0..self.size).find(|&rank| self.is_killed(rank));
        Ok(Prediction {
            steps: self.expected,
            classes,
            chains,
            killed,
        })
    }

    /// Returns true if a receive for the message is waited for.
    pub(super) fn is_received(&self, index: usize) -> bool {
        let sent = &self.messages[index];
        let Some(receive) = sent.receive else {
            return false;
        };
        self.receives[receive].result.is_some()
    }

    /// Collects receives from a killed rank, which fail from some message on, separately for each
    /// stream.
    pub(super) fn chains(&mut self) -> Vec<Chain> {
        let mut chains: BTreeMap<(u32, u32, Class), Vec<Link>> = BTreeMap::new();
        for index in 0..self.messages.len() {
            let sent = &self.messages[index];
            let Some(receive) = sent.receive.map(|receive| &self.receives[receive]) else {
                continue;
            };
            let (from, rank) = (sent.from, receive.rank);
            let Some(result) = receive.result else {
                continue;
            };
            if !self.is_killed(from) || self.knows(from, rank, result) {
                continue;
            }
            let class = class_of(sent.to.place);
            let link = Link {
                step: result,
                may_fail_alone: class == Class::Tags && sent.message.len > UNASKED_MAX,
            };
            chains.entry((rank, from, class)).or_default().push(link);
            let expected = &mut self.expected[rank as usize][result];
            if let Expected::Is(outcome) = expected {
                *expected = Expected::OneOf(vec![outcome.clone(), gone_outcome(from)]);
            }
        }
        chains
            .into_iter()
            .map(|((rank, ..), links)| Chain { rank, links })
            .collect()
    }
}
