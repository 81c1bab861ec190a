// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collective operations, which all members perform together.

use super::*;

impl Machine<'_> {
    pub(super) fn group_fault(&self, rank: u32, group: &Members) -> Option<Fault> {
        let setting = |name: &str| Some(Fault::Setting(name.to_owned()));
        if group.id == 0 {
            return None;
        }
        if group.id >= 32_767 {
            return setting("group id");
        }
        if let Some(&rank) = group.ranks.iter().find(|&&rank| rank >= self.size) {
            let size = self.size;
            return Some(Fault::NoSuchRank { rank, size });
        }
        let unique: BTreeSet<_> = group.ranks.iter().collect();
        if unique.len() < group.ranks.len() || !group.ranks.contains(&rank) {
            return setting("group ranks");
        }
        None
    }

    pub(super) fn ranks_of(&self, group: &Members) -> Vec<u32> {
        match group.id {
            0 => (0..self.size).collect(),
            _ => group.ranks.clone(),
        }
    }

    /// Performs a collective operation of all members.
    pub(super) fn together(&mut self, rank: u32, step: &Step) -> Verdict<Option<Expected>> {
        let (group, root) = match step {
            Step::Barrier(group) | Step::Group(group) => (group, None),
            Step::Broadcast { group, root, .. } => (group, Some(*root)),
            Step::Reduce { group, root, .. } => (group, *root),
            _ => return unsound("no collective operation"),
        };
        if let Some(fault) = self.group_fault(rank, group) {
            return Ok(Some(Expected::Is(Outcome::Fault(fault))));
        }
        if matches!(step, Step::Group(_)) {
            return Ok(Some(Expected::Is(Outcome::Done)));
        }
        let ranks = self.ranks_of(group);
        let size = u32::try_from(ranks.len()).unwrap();
        if let Some(root) = root.filter(|&root| root >= size) {
            let fault = match group.id {
                0 => Fault::NoSuchRank { rank: root, size },
                _ => Fault::NoSuchMember { member: root, size },
            };
            return Ok(Some(Expected::Is(Outcome::Fault(fault))));
        }
        if let Some(gone) = self.bereaved(rank, step, &ranks)? {
            return Ok(gone);
        }
        for &member in &ranks {
            let Some(other) = self.program.processes[member as usize].get(self.pc(member)) else {
                return unsound("a collective operation with a rank that has ended");
            };
            if group_of(other) != Some(group) {
                return Ok(None);
            }
            if other != step {
                return unsound("members disagree about a collective operation");
            }
        }
        self.check_high_lanes(step, &ranks)?;
        self.perform_together(rank, step, &ranks).map(Some)
    }

    /// Returns the error of a barrier after its only other member has ended.
    pub(super) fn bereaved(
        &self,
        rank: u32,
        step: &Step,
        ranks: &[u32],
    ) -> Verdict<Option<Option<Expected>>> {
        let other = ranks.iter().copied().find(|&other| other != rank);
        let (Some(other), 2, Step::Barrier(_)) = (other, ranks.len(), step) else {
            return Ok(None);
        };
        let rest = &self.program.processes[other as usize][self.pc(other)..];
        if rest.contains(step) {
            return Ok(None);
        }
        Ok(Some(self.has_ended(other).then(|| gone(other))))
    }

    /// Checks the high lanes, which collective operations use: unread messages there would block
    /// them.
    pub(super) fn check_high_lanes(&self, step: &Step, ranks: &[u32]) -> Verdict<()> {
        let len = match step {
            Step::Broadcast { message, .. } => message.len,
            Step::Reduce { len, .. } => len * 8,
            _ => 0,
        };
        let own = len.min(BUFFERED_MAX) + 4 * CHARGE;
        for (&(from, to, high), &unread) in &self.unread {
            let between = ranks.contains(&from) && ranks.contains(&to);
            if high && between && unread + own > CREDIT {
                return unsound("the high lane is full");
            }
        }
        Ok(())
    }

    pub(super) fn perform_together(
        &mut self,
        rank: u32,
        step: &Step,
        ranks: &[u32],
    ) -> Verdict<Expected> {
        let stamps: Vec<Vec<usize>> = ranks.iter().map(|&member| self.stamp(member)).collect();
        let root = match *step {
            Step::Broadcast { root, .. }
            | Step::Reduce {
                root: Some(root), ..
            } => Some(root as usize),
            _ => None,
        };
        for (member, &to) in ranks.iter().enumerate() {
            for (other, stamp) in stamps.iter().enumerate() {
                let tells = match (step, root) {
                    (Step::Broadcast { .. }, Some(root)) => other == root,
                    (Step::Reduce { .. }, Some(root)) => member == root,
                    _ => true,
                };
                if tells {
                    self.learn(to, stamp);
                }
            }
        }
        for &member in ranks {
            for &other in ranks.iter().filter(|&&other| other != member) {
                self.needs.push((member, self.pc(member), other));
            }
        }
        let mut own = None;
        for (member, &other) in ranks.iter().enumerate() {
            let expected = Expected::Is(result_together(step, ranks, root, member));
            if other == rank {
                own = Some(expected);
            } else {
                self.done(other, expected);
            }
        }
        own.ok_or(Unsound("not a member".into()))
    }
}

fn group_of(step: &Step) -> Option<&Members> {
    match step {
        Step::Barrier(group) | Step::Broadcast { group, .. } | Step::Reduce { group, .. } => {
            Some(group)
        }
        _ => None,
    }
}

/// Returns the result of a collective operation at a member.
fn result_together(step: &Step, ranks: &[u32], root: Option<usize>, member: usize) -> Outcome {
    match *step {
        Step::Broadcast { message, .. } => Outcome::Bytes(sum(&message.bytes())),
        Step::Reduce { op, len, .. } if root.is_none_or(|root| root == member) => {
            let mut all = ranks.iter().map(|&rank| values(rank, len));
            let first = all.next().unwrap_or_default();
            let result = all.fold(first, |one, other| {
                let pairs = one.iter().zip(&other);
                pairs
                    .map(|(&one, &other)| combine(op, one, other))
                    .collect()
            });
            Outcome::Bytes(sum_values(&result))
        }
        _ => Outcome::Done,
    }
}

fn combine(op: Reducer, one: u64, other: u64) -> u64 {
    match op {
        Reducer::Sum => one.wrapping_add(other),
        Reducer::Product => one.wrapping_mul(other),
        Reducer::Min => one.min(other),
        Reducer::Max => one.max(other),
    }
}
