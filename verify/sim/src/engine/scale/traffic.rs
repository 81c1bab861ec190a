// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traffic patterns for the comparison of congestion controls, and the slowdown of their messages.

use super::MESSAGE_OVERHEAD_LEN;
use super::crowd::{LATENCY_NS, RATE_BYTES_PER_SEC};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Bytes of a message in one frame: what Ethernet carries less headers, rounded down.
pub(super) const PAYLOAD_MAX: u64 = 1400;

/// Sizes of messages of a web search cluster: a length in units of [`UNIT_LEN`], and the share of
/// messages, in percent, that are not longer. It is the distribution of the DCTCP paper (Alizadeh
/// et al., SIGCOMM 2010) in the form of the pFabric simulations, which Homa (Montazeri et al.,
/// SIGCOMM 2018) uses as its workload W5. Between the points the distribution is linear.
const WEB_SEARCH: [(u64, u64); 12] = [
    (1, 0),
    (6, 15),
    (13, 20),
    (19, 30),
    (33, 40),
    (53, 53),
    (133, 60),
    (667, 70),
    (1333, 80),
    (3333, 90),
    (6667, 97),
    (20000, 100),
];

/// A tenth of the original unit, which is a frame of 1460 bytes: runs are shorter, and the mean of
/// 166 KB is ten times the product of bandwidth and round trip.
const UNIT_LEN: u64 = 146;

/// Step of the times at which messages are drawn.
const SLOT_NS: u64 = 100;

/// Upper bounds of the lengths of the first classes of messages; about a half, a fifth and the rest.
pub(super) const CLASS_LENS: [usize; 2] = [8_000, 100_000];

/// A message: time, sender, receiver, length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) at_ns: u64,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) len: usize,
}

impl Message {
    /// Returns the number of frames.
    pub(super) fn frame_count(&self) -> u64 {
        (self.len as u64).div_ceil(PAYLOAD_MAX).max(1)
    }

    /// Returns the bytes on a cable.
    pub(super) fn wire_len(&self) -> u64 {
        self.len as u64 + self.frame_count() * MESSAGE_OVERHEAD_LEN
    }

    /// Returns the time in an empty network: the last frame is on two cables, one after the other.
    fn ideal_ns(&self) -> u64 {
        let last =
            (self.len as u64 - (self.frame_count() - 1) * PAYLOAD_MAX) + MESSAGE_OVERHEAD_LEN;
        wire_ns(self.wire_len()) + wire_ns(last) + LATENCY_NS
    }
}

/// Messages in the order of their times.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    pub(super) name: String,
    pub(super) hosts: u32,
    pub(super) messages: Vec<Message>,
}

impl Traffic {
    /// Returns `count` messages from each of `senders` hosts to one.
    pub(super) fn incast(senders: u32, count: u32, len: usize) -> Traffic {
        let from = (1..=senders).flat_map(|from| (0..count).map(move |_| from));
        let message = |from| Message {
            at_ns: 0,
            from,
            to: 0,
            len,
        };
        Traffic {
            name: format!("incast of {senders}, {count} × {len} B"),
            hosts: senders + 1,
            messages: from.map(message).collect(),
        }
    }

    /// Returns a message from each host to another, so that each host receives one.
    pub(super) fn permutation(hosts: u32, len: usize) -> Traffic {
        let message = |from| Message {
            at_ns: 0,
            from,
            to: (from + hosts / 2) % hosts,
            len,
        };
        Traffic {
            name: format!("permutation of {hosts}, {len} B"),
            hosts,
            messages: (0..hosts).map(message).collect(),
        }
    }

    /// Returns messages at random times from each host to random ones, which use `percent` of each
    /// cable on average during `time_ns`.
    pub(super) fn web_search(hosts: u32, percent: u64, time_ns: u64, seed: u64) -> Traffic {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // Percent of a cable times time, over the bytes of a message.
        let per_message_ns =
            wire_ns(mean_len() * (PAYLOAD_MAX + MESSAGE_OVERHEAD_LEN) / PAYLOAD_MAX);
        let gap_ns = per_message_ns * 100 / percent;
        let mut messages = Vec::new();
        for at_ns in (0..time_ns).step_by(usize::try_from(SLOT_NS).unwrap_or(1)) {
            for from in 0..hosts {
                if rng.random_range(0..gap_ns) < SLOT_NS {
                    let to = (from + rng.random_range(1..hosts)) % hosts;
                    let len = draw_len(&mut rng);
                    messages.push(Message {
                        at_ns,
                        from,
                        to,
                        len,
                    });
                }
            }
        }
        Traffic {
            name: format!("{hosts} hosts, web search, {percent} % load"),
            hosts,
            messages,
        }
    }

    /// Returns the least time for all messages that are sent at the start.
    pub(super) fn ideal_ns(&self) -> u64 {
        let mut lens = vec![0; self.hosts as usize];
        for message in &self.messages {
            lens[message.to as usize] += message.wire_len();
        }
        wire_ns(lens.into_iter().max().unwrap_or(0)) + LATENCY_NS
    }

    /// Returns the median and the 99th percentile of the slowdown for each class of lengths, given
    /// the times at which the messages were complete.
    pub(super) fn slowdowns(&self, ends_ns: &[u64]) -> [(f64, f64); CLASS_LENS.len() + 1] {
        let mut classes: [Vec<f64>; CLASS_LENS.len() + 1] = Default::default();
        for (message, end_ns) in self.messages.iter().zip(ends_ns) {
            let class = CLASS_LENS.iter().filter(|len| message.len > **len).count();
            let passed = end_ns.saturating_sub(message.at_ns);
            classes[class].push(passed as f64 / message.ideal_ns() as f64);
        }
        classes.map(|mut all| {
            all.sort_unstable_by(f64::total_cmp);
            let at = |percent| all.get(all.len() * percent / 100).copied().unwrap_or(0.0);
            (at(50), at(99))
        })
    }
}

/// Returns the time of `len` bytes on a cable.
pub(super) fn wire_ns(len: u64) -> u64 {
    len * 1_000_000_000 / RATE_BYTES_PER_SEC
}

fn mean_len() -> u64 {
    let parts = WEB_SEARCH.windows(2);
    let sum: u64 = parts
        .map(|ends| (ends[1].1 - ends[0].1) * (ends[0].0 + ends[1].0))
        .sum();
    sum * UNIT_LEN / 200
}

fn draw_len(rng: &mut ChaCha8Rng) -> usize {
    let drawn = rng.random_range(0..100_000_u64);
    let part = WEB_SEARCH
        .windows(2)
        .find(|ends| drawn < ends[1].1 * 1000)
        .unwrap_or(&WEB_SEARCH[..2]);
    let ((low, from), (high, until)) = (part[0], part[1]);
    let within = (drawn - from * 1000) * (high - low) * UNIT_LEN / ((until - from) * 1000);
    usize::try_from(low * UNIT_LEN + within).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_follow_the_distribution() {
        // By hand: 1140.6 units.
        assert_eq!(mean_len(), 166_528);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let lens: Vec<usize> = (0..20_000).map(|_| draw_len(&mut rng)).collect();
        let short = lens.iter().filter(|len| **len < 53 * 146).count();
        assert!((10_300..10_900).contains(&short), "{short} of 20000");
        let mean = lens.iter().sum::<usize>() / lens.len();
        assert!((160_000..173_000).contains(&mean), "{mean}");
    }

    #[test]
    fn load_is_as_requested_and_seed_decides_it() {
        let run = |seed| Traffic::web_search(16, 80, 50_000_000, seed).messages;
        let messages = run(1);
        assert_eq!(messages, run(1));
        assert_ne!(messages, run(2));
        let bytes: u64 = messages.iter().map(Message::wire_len).sum();
        let percent = bytes * 100 / (16 * RATE_BYTES_PER_SEC / 20);
        assert!((70..90).contains(&percent), "{percent} %");
        assert!(messages.iter().all(|message| message.from != message.to));
    }

    #[test]
    fn slowdown_is_relative_to_an_empty_network() {
        let traffic = Traffic::incast(1, 1, 2800);
        // Two frames of 1498 bytes at 1.25 bytes/ns, the last one twice, and 5 µs.
        let alone = 2 * 1498 * 4 / 5 + 1198 + 5000;
        assert_eq!(traffic.messages[0].ideal_ns(), alone);
        let slowdowns = traffic.slowdowns(&[3 * alone]);
        assert_eq!(slowdowns[0], (3.0, 3.0));
    }
}
