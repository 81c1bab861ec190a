// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parameters of each connection, which both ends derive from the seed.

/// Random numbers of one place in the run (splitmix64).
pub(crate) struct Random(u64);

fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Random {
    pub(crate) fn new(seed: u64, place: u64) -> Random {
        Random(mix(seed.wrapping_mul(31).wrapping_add(place)))
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0) % limit
    }

    pub(crate) fn len_below(&mut self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap()
    }

    /// Returns a length: often short, sometimes long.
    pub(crate) fn len(&mut self) -> usize {
        let limit = [16, 200, 3000, 40_000, 150_000][self.len_below(5)];
        1 + self.len_below(limit)
    }
}

/// Returns the byte at `offset` of stream `key`.
fn byte(key: u64, offset: u64) -> u8 {
    let word = mix(key
        .wrapping_add(offset / 8)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15));
    word.to_le_bytes()[usize::try_from(offset % 8).unwrap()]
}

/// Fills `bytes` with those of stream `key` from `offset`.
pub(crate) fn fill(key: u64, offset: u64, bytes: &mut [u8]) {
    for (place, offset) in bytes.iter_mut().zip(offset..) {
        *place = byte(key, offset);
    }
}

/// Checks that `bytes` are those of stream `key` from `offset`.
pub(crate) fn check(key: u64, offset: u64, bytes: &[u8]) {
    for (found, at) in bytes.iter().zip(offset..) {
        let wanted = byte(key, at);
        assert_eq!(
            *found,
            wanted,
            "byte {at} of stream {key:#x} is wrong; read of {} bytes at {offset}",
            bytes.len()
        );
    }
}

/// How a side waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Threads,
    Poll,
    Select,
    Level,
    Edge,
    OneShot,
    Nested,
}

/// Disturbance in the middle of a side's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    None,
    /// Continue on a duplicate, and close the original.
    Dup,
    /// Continue on a duplicate at the same number, by `dup2`.
    Replace,
    /// Set an option that only the kernel has.
    Option,
    /// Continue in a child, while the parent closes its descriptor.
    ForkAway,
    /// Continue in the parent, while a child keeps its descriptor for a while.
    ForkShared,
    /// Continue in a child, while the parent keeps its descriptor.
    ForkChild,
    /// Start another program, which inherits the descriptor.
    Spawn,
}

/// Parameters of one side of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) mode: Mode,
    pub(crate) out_key: u64,
    pub(crate) in_key: u64,
    pub(crate) out_len: u64,
    pub(crate) in_len: u64,
    pub(crate) event: Event,
    /// Received bytes after which the event happens.
    pub(crate) event_at: u64,
    /// Set if the side only shuts its direction when it has received everything.
    pub(crate) shuts_late: bool,
}

const MODES: [Mode; 7] = [
    Mode::Threads,
    Mode::Poll,
    Mode::Select,
    Mode::Level,
    Mode::Edge,
    Mode::OneShot,
    Mode::Nested,
];

const EVENTS: [Event; 10] = [
    Event::None,
    Event::None,
    Event::None,
    Event::Dup,
    Event::Replace,
    Event::Option,
    Event::ForkAway,
    Event::ForkShared,
    Event::ForkChild,
    Event::Spawn,
];

impl Plan {
    /// Returns the plan of side `side` (0 accepts, 1 connects) of connection `id`.
    pub(crate) fn new(seed: u64, id: u64, side: u64, long: bool) -> Plan {
        let mut shared = Random::new(seed, id * 4);
        let mut len = || {
            if long {
                return 20_000_000;
            }
            let limit = [1, 100, 10_000, 500_000, 3_000_000][shared.len_below(5)];
            shared.below(limit)
        };
        let lens = [len(), len()];
        let mut own = Random::new(seed, id * 4 + 1 + side);
        let key = |side: u64| mix(seed ^ mix(id * 2 + side));
        let event = EVENTS[own.len_below(EVENTS.len())];
        let other = usize::try_from(1 - side).unwrap();
        let in_len = lens[other];
        Plan {
            mode: MODES[own.len_below(MODES.len())],
            out_key: key(side),
            in_key: key(1 - side),
            out_len: lens[1 - other],
            in_len,
            event: if long { Event::None } else { event },
            event_at: own.below(in_len + 1),
            // If both sides waited for the other, neither would end.
            shuts_late: side == 0 && own.below(2) == 0,
        }
    }
}
