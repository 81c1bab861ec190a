// SPDX-License-Identifier: MIT OR Apache-2.0
//! Number of turns between two operations that cost time: clock reads, and polls of cold links. A
//! link is cold if no frame is expected from it and its poll is a system call.
//!
//! A turn takes 15 ns if all polls are memory reads, and microseconds if frames arrive. So the
//! length of turns is measured when the clock is read anyway, and turns are counted.

use super::turn::CLOCK_TURNS;
use portolan_proto::Instant;

/// Longest wait of a frame on a cold link while turns are as short as measured, in nanoseconds. It
/// is about half a round trip on raw Ethernet, so these polls take less than a tenth of the time.
const COLD_WAIT_NS: u64 = 2_000;

/// Longest wait while frames arrive, in nanoseconds. It is more than a round trip on raw Ethernet,
/// so a process that awaits an answer there makes no useless system call.
const COLD_WAIT_BUSY_NS: u64 = 8_000;

/// Minimum number of turns between polls of cold links while frames arrive: each frame postpones
/// the poll by two turns, however long the turns are.
const COLD_TURNS_MIN_BUSY: u32 = 2;

/// Maximum postponement of a cold poll, in multiples of the interval, while frames arrive
/// continuously on other links.
const COLD_WAITS_MAX: u32 = 16;

/// Maximum number of turns between polls, for programs that make a turn per call and call less and
/// less often. Equals 2 µs of turns that wait for raw Ethernet, at 12 to 20 ns each.
const TURNS_MAX: u32 = 160;

/// Maximum number of turns between polls while frames arrive. For as many turns after a frame, more
/// frames are expected: 8 µs of such turns.
const TURNS_MAX_BUSY: u32 = 4 * TURNS_MAX;

/// Schedule of clock reads and cold polls; see the module documentation.
#[derive(Debug)]
pub(super) struct Pace {
    /// Turn of the next clock read; then turn of the next poll of cold links.
    clock_at: u32,
    cold_at: u32,
    /// Latest turn to which the next poll of cold links can be postponed.
    cold_by: u32,
    /// Turns between polls of cold links.
    cold_turns: u32,
    /// Turn of the next poll of streams from which nothing is expected.
    stream_at: u32,
    /// Turn and time of the last clock read.
    clock_turn: u32,
    clock_read_at: Instant,
    /// Last turn in which frames moved.
    moved_turn: u32,
}

impl Pace {
    /// Creates the schedule for an engine with `turn` as its last turn.
    pub(super) fn new(turn: u32) -> Pace {
        Pace {
            clock_at: turn.wrapping_add(CLOCK_TURNS),
            cold_at: turn,
            cold_by: turn,
            cold_turns: 1,
            stream_at: turn,
            clock_turn: turn,
            clock_read_at: Instant::default(),
            moved_turn: turn.wrapping_sub(TURNS_MAX_BUSY),
        }
    }

    /// Tests whether the clock must be read in this turn.
    #[inline]
    pub(super) fn clock_is_due(&self, turn: u32) -> bool {
        is_reached(turn, self.clock_at)
    }

    /// Postpones the poll of cold links because a frame has arrived. A process that answers it
    /// promptly pays for no useless poll until it waits again and has received nothing for a while.
    #[inline]
    pub(super) fn on_moved(&mut self, turn: u32) {
        self.moved_turn = turn;
        self.cold_at = first(turn.wrapping_add(self.cold_turns), self.cold_by);
    }

    /// Tests whether cold links must be polled in this turn.
    #[inline]
    pub(super) fn cold_is_due(&mut self, turn: u32) -> bool {
        let is_due = is_reached(turn, self.cold_at);
        if is_due {
            self.cold_at = turn.wrapping_add(self.cold_turns);
            self.cold_by = turn.wrapping_add(self.cold_turns * COLD_WAITS_MAX);
        }
        is_due
    }

    /// Tests whether streams must be polled in this turn although nothing is expected there.
    #[inline]
    pub(super) fn stream_is_due(&mut self, turn: u32) -> bool {
        let is_due = is_reached(turn, self.stream_at);
        if is_due {
            self.stream_at = turn.wrapping_add(self.cold_turns);
        }
        is_due
    }

    /// Adapts the schedule after a clock read that was due.
    #[inline]
    pub(super) fn adapt(&mut self, turn: u32, now: Instant) {
        let passed_ns = now.as_nanos().wrapping_sub(self.clock_read_at.as_nanos());
        let passed_turns = u64::from(turn.wrapping_sub(self.clock_turn));
        (self.clock_turn, self.clock_read_at) = (turn, now);
        let is_busy = turn.wrapping_sub(self.moved_turn) < TURNS_MAX_BUSY;
        let (wait_ns, turns_min, turns_max) = match is_busy {
            true => (COLD_WAIT_BUSY_NS, COLD_TURNS_MIN_BUSY, TURNS_MAX_BUSY),
            false => (COLD_WAIT_NS, 1, TURNS_MAX),
        };
        let turns = wait_ns.saturating_mul(passed_turns) / passed_ns.max(1);
        let turns = u32::try_from(turns)
            .unwrap_or(turns_max)
            .clamp(turns_min, turns_max);
        self.cold_turns = turns;
        self.cold_at = first(self.cold_at, turn.wrapping_add(turns));
        self.stream_at = first(self.stream_at, turn.wrapping_add(turns));
        self.clock_at = turn.wrapping_add(turns.clamp(CLOCK_TURNS, TURNS_MAX));
    }
}

/// Tests whether `turn` is `at` or later.
#[inline]
pub(super) fn is_reached(turn: u32, at: u32) -> bool {
    turn.wrapping_sub(at) < 1 << 31
}

/// Returns the earlier of two turns.
#[inline]
fn first(turn: u32, other: u32) -> u32 {
    match is_reached(turn, other) {
        true => other,
        false => turn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts clock reads and cold polls in 1024 turns of `turn_ns` each, after adaptation, with a
    /// frame in each turn or in none. The turn counter wraps meanwhile.
    fn count_checks(turn_ns: u64, moved: usize) -> (usize, usize) {
        let begin = u32::MAX - 2048;
        let mut pace = Pace::new(begin);
        let (mut clocks, mut colds) = (0, 0);
        for count in 0..4096_u32 {
            let turn = begin.wrapping_add(count);
            let is_counted = count >= 3072;
            colds += usize::from(pace.cold_is_due(turn) && is_counted);
            if moved > 0 {
                pace.on_moved(turn);
            }
            if pace.clock_is_due(turn) {
                clocks += usize::from(is_counted);
                pace.adapt(turn, Instant::from_nanos(u64::from(count) * turn_ns));
            }
        }
        (clocks, colds)
    }

    #[test]
    fn cold_links_are_polled_every_two_microseconds() {
        assert_eq!(count_checks(1, 0), (7, 7));
        assert_eq!(count_checks(20, 0), (10, 10));
        assert_eq!(count_checks(50, 0), (26, 26));
        assert_eq!(count_checks(125, 0), (32, 64));
        assert_eq!(count_checks(250, 0), (32, 128));
        assert_eq!(count_checks(2_000, 0), (32, 1024));
        assert_eq!(count_checks(100_000, 0), (32, 1024));
    }

    #[test]
    fn busy_turns_do_not_count_as_empty_turns() {
        let (clocks, colds) = count_checks(80, 1);
        assert_eq!((clocks, colds), (10, 1));
        let (clocks, colds) = count_checks(1000, 1);
        assert_eq!((clocks, colds), (32, 1024 / 8 / COLD_WAITS_MAX as usize));
    }

    /// While frames arrive within the wait, as in a sequence of round trips, cold links are polled
    /// rarely. A frame that comes later finds them polled already.
    #[test]
    fn cold_links_are_polled_after_eight_idle_microseconds() {
        let count = |frame_every: u32| {
            let mut pace = Pace::new(0);
            let mut colds = 0;
            for turn in 0..64_000_u32 {
                let is_adapted = turn >= 1_000;
                colds += u32::from(pace.cold_is_due(turn) && is_adapted);
                if turn.is_multiple_of(frame_every) {
                    pace.on_moved(turn);
                }
                if pace.clock_is_due(turn) {
                    pace.adapt(turn, Instant::from_nanos(u64::from(turn) * 20));
                }
            }
            colds
        };
        // 400 turns take 8 µs; polls are 16 times as far apart if frames come sooner.
        for frame_every in [40, 200, 350] {
            let colds = count(frame_every);
            assert!((9..=11).contains(&colds), "{colds}");
        }
        let colds = count(2_000);
        assert!((31 * 13..=31 * 18).contains(&colds), "{colds}");
    }
}
