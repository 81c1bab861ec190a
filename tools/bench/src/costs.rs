// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cost of a message at each end in system calls, copies and wake-ups (`--calls`). These are
//! counts, so a machine's noise does not affect them.

use crate::rounds::median;
use portolan::binding::Usage;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Cost of a message, by end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Costs {
    /// System calls, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) calls: BTreeMap<String, BTreeMap<String, f64>>,
    /// Copies of the payload by the library.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) copies: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) wake_ups: BTreeMap<String, f64>,
}

impl Costs {
    /// Returns the cost at `end`, which moved `messages` messages with `effort`. It is empty for a
    /// bare row, which does not use the library.
    #[allow(clippy::cast_precision_loss, reason = "three digits are reported")]
    pub(crate) fn of(end: &str, effort: &Usage, messages: u64) -> Costs {
        if *effort == Usage::default() {
            return Costs::default();
        }
        let each = |count: u64| count as f64 / messages.max(1) as f64;
        let named = |(name, count): (&'static str, u64)| (name.to_owned(), each(count));
        Costs {
            calls: [(end.to_owned(), effort.calls().map(named).collect())].into(),
            copies: [(end.to_owned(), each(effort.copies))].into(),
            wake_ups: [(end.to_owned(), each(effort.wake_ups()))].into(),
        }
    }

    /// Adds the cost at the other end.
    pub(crate) fn add(&mut self, other: Costs) {
        self.calls.extend(other.calls);
        self.copies.extend(other.copies);
        self.wake_ups.extend(other.wake_ups);
    }

    /// Returns the medians of all rounds. A call that a round did not make counts as zero there.
    pub(crate) fn of_rounds<'a>(rounds: impl Iterator<Item = &'a Costs> + Clone) -> Costs {
        let mut all = Costs::default();
        for end in rounds.clone().flat_map(|costs| costs.copies.keys()) {
            let middle = |figure: &dyn Fn(&Costs) -> Option<f64>| {
                median(
                    rounds
                        .clone()
                        .map(|one| figure(one).unwrap_or(0.0))
                        .collect(),
                )
            };
            let of = |field: &BTreeMap<String, f64>| field.get(end).copied();
            let calls = rounds.clone().filter_map(|one| one.calls.get(end));
            let names = calls.flat_map(BTreeMap::keys);
            let named = names.map(|name| {
                let count = middle(&|one| one.calls.get(end)?.get(name).copied());
                (name.clone(), count)
            });
            all.calls.insert(end.clone(), named.collect());
            let copies = middle(&|one| of(&one.copies));
            all.copies.insert(end.clone(), copies);
            let wake_ups = middle(&|one| of(&one.wake_ups));
            all.wake_ups.insert(end.clone(), wake_ups);
        }
        all
    }

    /// Returns one readable line per end.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.calls.iter().map(|(end, calls)| {
            let mut words: Vec<String> = calls
                .iter()
                .map(|(name, count)| format!("{name} {count:.2}"))
                .collect();
            let of = |field: &BTreeMap<String, f64>| field.get(end).copied().unwrap_or(0.0);
            words.push(format!("copies {:.2}", of(&self.copies)));
            words.push(format!("wake-ups {:.2}", of(&self.wake_ups)));
            format!("{end}, per message: {}", words.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(end: &str, calls: &[(&str, f64)]) -> Costs {
        let calls = calls
            .iter()
            .map(|(name, count)| ((*name).to_owned(), *count));
        Costs {
            calls: [(end.to_owned(), calls.collect())].into(),
            copies: [(end.to_owned(), 2.0)].into(),
            wake_ups: [(end.to_owned(), 0.0)].into(),
        }
    }

    #[test]
    fn rounds_give_the_median_of_each_call() {
        let mut first = costs("sender", &[("sendto", 1.0), ("poll", 0.5)]);
        first.add(costs("receiver", &[("recvfrom", 3.0)]));
        let others = [1.0, 4.0].map(|count| costs("sender", &[("sendto", count)]));
        let all = [first, others[0].clone(), others[1].clone()];
        let medians = Costs::of_rounds(all.iter());
        assert_eq!(medians.calls["sender"]["sendto"], 1.0);
        assert_eq!(medians.calls["sender"]["poll"], 0.0);
        let lines: Vec<String> = medians.lines().collect();
        assert_eq!(
            lines[1],
            "sender, per message: poll 0.00, sendto 1.00, copies 2.00, wake-ups 0.00"
        );
    }
}
