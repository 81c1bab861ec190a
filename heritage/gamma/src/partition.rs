// SPDX-License-Identifier: MIT OR Apache-2.0
//! Division of a job into groups of consecutive ranks, from the numbers of nodes that the processes
//! request.

use crate::code::GAMMA_ERR_LAUNCH;
use crate::error::Failure;
use std::ops::Range;

/// Number of parallel PIDs, which are 1 to 255.
const PID_COUNT: u8 = u8::MAX;

/// The groups of a job, in the order of their ranks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    /// Parallel PID of the first group. The following groups have the following PIDs; 1 follows 255.
    first_pid: u8,
    /// First rank of each group, and the number of ranks.
    bounds: Vec<u32>,
}

impl Partition {
    /// Returns no group, with which no PID is valid.
    pub(crate) const fn empty() -> Partition {
        Partition {
            first_pid: 1,
            bounds: Vec::new(),
        }
    }

    /// Divides a job into groups. Each rank has requested a number of nodes; 0 stands for all
    /// remaining ranks. Any byte `seed` selects the PIDs.
    ///
    /// # Errors
    /// GAMMA_ERR_LAUNCH if the ranks do not agree, or are too few for their group.
    pub(crate) fn new(requests: &[u8], seed: u8) -> Result<Partition, Failure> {
        let mut bounds = vec![0];
        let mut first = 0;
        while first < requests.len() {
            let end = end_of_group(requests, first)?;
            bounds.push(u32::try_from(end).unwrap_or(u32::MAX));
            first = end;
        }
        if bounds.len() - 1 > usize::from(PID_COUNT) {
            let text = format!(
                "the job has {} groups; start at most {PID_COUNT}",
                bounds.len() - 1
            );
            return Err(Failure::new(GAMMA_ERR_LAUNCH, text));
        }
        Ok(Partition {
            first_pid: seed % PID_COUNT + 1,
            bounds,
        })
    }

    /// Returns the number of groups.
    pub(crate) fn count(&self) -> usize {
        self.bounds.len().saturating_sub(1)
    }

    /// Returns the ranks of group `index`.
    pub(crate) fn ranks(&self, index: usize) -> Option<Range<u32>> {
        Some(*self.bounds.get(index)?..*self.bounds.get(index + 1)?)
    }

    /// Returns the parallel PID of group `index`.
    pub(crate) fn pid(&self, index: usize) -> Option<u8> {
        let index = u8::try_from(index).ok()?;
        let is_group = usize::from(index) < self.count();
        let from_one = (u16::from(self.first_pid) - 1 + u16::from(index)) % u16::from(PID_COUNT);
        is_group.then(|| u8::try_from(from_one + 1).unwrap_or(1))
    }

    /// Returns the ranks of the group with a parallel PID.
    pub(crate) fn ranks_of(&self, pid: u8) -> Option<Range<u32>> {
        let count = u16::from(PID_COUNT);
        let index = (u16::from(pid) + count).checked_sub(u16::from(self.first_pid))? % count;
        (pid != 0).then(|| self.ranks(usize::from(index)))?
    }

    /// Returns the index of the group of `rank`.
    pub(crate) fn group_of(&self, rank: u32) -> usize {
        self.bounds
            .partition_point(|&first| first <= rank)
            .saturating_sub(1)
    }
}

/// Returns the end of the group that starts at rank `first`.
fn end_of_group(requests: &[u8], first: usize) -> Result<usize, Failure> {
    let (size, wanted) = (requests.len(), requests[first]);
    let end = match wanted {
        0 => size,
        count => first + usize::from(count),
    };
    if end > size {
        let left = size - first;
        let text = format!(
            "gamma_init() requests {wanted} nodes from rank {first} on, but the job has {left} \
             processes there; start as many as all groups need"
        );
        return Err(Failure::new(GAMMA_ERR_LAUNCH, text));
    }
    let other = (first..end).find(|&rank| requests[rank] != wanted);
    if let Some(rank) = other {
        let text = format!(
            "rank {first} requests {wanted} nodes from gamma_init(), and rank {rank} of the same \
             group {}; all nodes of a group must request the same number",
            requests[rank]
        );
        return Err(Failure::new(GAMMA_ERR_LAUNCH, text));
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    /// Returns the first rank of each group, and the number of ranks.
    fn bounds(requests: &[u8]) -> Vec<u32> {
        Partition::new(requests, 7).unwrap().bounds
    }

    #[test]
    fn consecutive_ranks_with_one_request_form_groups() {
        assert_eq!(bounds(&[0, 0, 0]), [0, 3]);
        assert_eq!(bounds(&[3, 3, 3]), [0, 3]);
        assert_eq!(bounds(&[2, 2, 2, 2]), [0, 2, 4]);
        assert_eq!(bounds(&[1, 2, 2, 0, 0]), [0, 1, 3, 5]);
    }

    #[test]
    fn ranks_that_disagree_or_are_too_few_are_refused() {
        for requests in [&[3, 3][..], &[2, 3, 3], &[2, 2, 2], &[0, 2]] {
            let refused = Partition::new(requests, 0);
            assert!(refused.is_err(), "{requests:?}: {refused:?}");
        }
    }

    #[test]
    fn pids_are_never_zero_and_lead_to_their_groups() {
        for seed in 0..=u8::MAX {
            for requests in [vec![1; 255], vec![2; 6], vec![0]] {
                let partition = Partition::new(&requests, seed).unwrap();
                for index in 0..partition.count() {
                    let pid = partition.pid(index).unwrap();
                    assert_ne!(pid, 0);
                    assert_eq!(partition.ranks_of(pid), partition.ranks(index));
                    let ranks = partition.ranks(index).unwrap();
                    assert!(ranks.clone().all(|rank| partition.group_of(rank) == index));
                }
                let known = (0..=u8::MAX).filter(|&pid| partition.ranks_of(pid).is_some());
                assert_eq!(known.count(), partition.count());
                assert_eq!(partition.pid(partition.count()), None);
            }
        }
    }

    #[test]
    fn more_groups_than_pids_are_refused() {
        assert!(Partition::new(&[1; 256], 0).is_err());
    }
}
