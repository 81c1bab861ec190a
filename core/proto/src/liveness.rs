// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides whether a peer's process is lost: by evidence if there is any, otherwise by silence
//! (`P9`).
//!
//! The caller checks each watched peer periodically and passes the signs of life that it has. The
//! result states whether to query the peer, whether to query the agent of its host, and whether the
//! peer is lost. Exits reported by the kernel or the launcher are certain and not handled here.
//!
//! Invariant: silence counts against a peer only while this process polled, and never against a
//! process on the same host.

use crate::Instant;
use core::time::Duration;

/// Silence after which a peer is lost without other evidence. Each process has a thread that only
/// answers queries, so one minute covers every scheduling delay. `P9.3`
pub const PLAIN_PERIOD: Duration = Duration::from_secs(60);

/// Minimum period if the agent of a peer's host does not answer either, because the host is off or
/// its network is cut. A loaded host may stall a process for 5 s, and an answer needs three running
/// processes: the agent, the launcher and this one. `P9.3`
pub const LONELY_PERIOD_MIN: Duration = Duration::from_secs(15);

/// Mean delays in a period. If delays are distributed exponentially, one in 10^8 is longer than
/// 18.4 means: the level φ = 8 of Hayashibara et al., "The φ accrual failure detector", SRDS 2004.
const PERIOD_MEANS: u32 = 20;

/// Longest delays in a period. An answer of an agent passes four processes (the agent, the launcher
/// twice, this one), and each can stall for the longest observed delay.
const PERIOD_PEAKS: u32 = 4;

/// Silence after which the agent of a peer's host is queried. An unloaded host answers within
/// milliseconds. `P9.3`
pub const SUSPECT_AFTER: Duration = Duration::from_millis(900);

/// Pause between two queries to an agent about one peer. Each passes through the launcher, which
/// serves all processes of the job.
const INQUIRE_AGAIN: Duration = Duration::from_secs(2);

/// Maximum pause between two queries to a silent peer.
const ASK_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Validity period of an agent's answer; the next one may be late.
const WORD_LASTS: Duration = LONELY_PERIOD_MIN;

/// Time without polling after which a program counts as computing. It opens no session meanwhile.
const COMPUTES_AFTER: Duration = Duration::from_millis(500);

/// State of a process that has not exited, as reported by the agent of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    /// The process has not opened its links yet.
    Starting,
    /// The process runs or waits for a core.
    Running,
    /// A signal or a debugger has stopped the process.
    Stopped,
}

/// Time limits for silent peers.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Period set by the user. It replaces the other periods, and no agent is queried.
    pub fixed: Option<Duration>,
    /// Set if the agents of the peers' hosts answer queries.
    pub has_agents: bool,
    /// Time within which a session must open.
    pub opening: Duration,
}

/// Statistics of delays: of answers, of this process's own wake-ups, and of silences that ended.
/// They measure the load of both sides and the loss between them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delays {
    mean: Duration,
    /// Longest delay; decays slowly.
    peak: Duration,
}

impl Delays {
    /// Records the delay of an answer, of a wake-up, or of a silence that ended.
    pub fn note(&mut self, delay: Duration) {
        // Load is detected at once; its end may be detected slowly.
        self.mean = if delay > self.mean {
            (self.mean + delay) / 2
        } else {
            self.mean - (self.mean - delay) / 16
        };
        self.peak = delay.max(self.peak - self.peak / 256);
    }

    /// Returns the silence after which a peer is lost if no agent can be queried.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.bound().clamp(LONELY_PERIOD_MIN, PLAIN_PERIOD)
    }

    /// Returns the longest delay to expect under this load.
    fn bound(&self) -> Duration {
        let by_mean = self.mean * PERIOD_MEANS;
        by_mean.max(self.peak * PERIOD_PEAKS)
    }
}

/// Timing of the caller's checks.
#[derive(Clone, Copy, Debug)]
pub struct Rhythm {
    /// Maximum time between two checks that counts as silence, slightly more than the usual pause.
    /// A process that slept longer did not poll.
    pub step: Duration,
    /// Silence after which a peer is queried.
    pub ask_after: Duration,
}

/// Signs of life of one peer, collected by the caller.
#[derive(Clone, Copy, Debug)]
pub struct Signs {
    /// Time of the newest frame or answered query, or of the beginning of the watch.
    pub heard: Instant,
    /// Set if the peer runs on this host, whose kernel reports its exit.
    pub is_near: bool,
    /// Set while a session with it is being opened.
    pub is_opening: bool,
    /// Time of the newest query that was answered, and how long the peer's program had then not
    /// polled its links.
    pub answered: Option<(Instant, Duration)>,
}

/// Reason why a peer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The peer has been silent for too long.
    Silent,
    /// The session does not open.
    Unopened,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Query the peer.
    pub ask: bool,
    /// Query the agent of its host.
    pub inquire: bool,
    /// Declare the peer lost.
    pub loss: Option<Loss>,
}

/// State of one watched peer, from which an operation awaits something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    heard: Instant,
    looked: Instant,
    silent_for: Duration,
    asked_at: Instant,
    /// Number of queries since the peer was last heard from.
    unanswered: u32,
    inquired_at: Instant,
    /// Newest answer of the agent, and the time of its query.
    word: Option<(Instant, Word)>,
    /// Time in which the peer could have opened its session and did not.
    opening_for: Duration,
}

impl Watch {
    /// Checks the peer at `now`.
    pub fn look(
        &mut self,
        now: Instant,
        signs: &Signs,
        patience: &Patience,
        delays: &mut Delays,
        rhythm: Rhythm,
    ) -> Look {
        let silent_for = self.silent_for;
        let passed = self.count(now, signs, rhythm.step);
        if self.silent_for < silent_for {
            delays.note(silent_for);
        }
        let limit = self.limit(now, signs, patience, delays);
        let ask = self.wants_to_ask(now, limit, rhythm.ask_after);
        if ask {
            self.asked_at = now;
            self.unanswered = self.unanswered.saturating_add(1);
        }
        let inquire = self.wants_to_inquire(now, signs, patience);
        if inquire {
            self.inquired_at = now;
        }
        self.count_opening(now, signs, passed);
        let opening = match self.is_answering(now, signs) {
            true => patience.opening,
            // The host may be as loaded as the delays indicate.
            false => patience.opening.max(delays.bound().min(PLAIN_PERIOD)),
        };
        let loss = if limit.is_some_and(|limit| self.silent_for >= limit) {
            Some(Loss::Silent)
        } else if self.opening_for >= opening {
            Some(Loss::Unopened)
        } else {
            None
        };
        Look { ask, inquire, loss }
    }

    /// Records an agent's answer to the query sent at `asked`.
    pub fn on_word(&mut self, asked: Instant, word: Word) {
        if self.word.is_none_or(|(at, _)| asked >= at) {
            self.word = Some((asked, word));
        }
    }

    /// Returns the agent's newest answer, while it is valid.
    #[must_use]
    pub fn word(&self, now: Instant) -> Option<Word> {
        let (asked, word) = self.word?;
        (now.since(asked) < WORD_LASTS).then_some(word)
    }

    /// Returns the time of the newest sign of life.
    #[must_use]
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// Returns how long the peer has been silent while this process polled.
    #[must_use]
    pub fn silent_for(&self) -> Duration {
        self.silent_for
    }

    /// Returns how long the peer could have opened its session and did not.
    #[must_use]
    pub fn opening_for(&self) -> Duration {
        self.opening_for
    }

    /// Returns the time of the last query to the peer.
    #[must_use]
    pub fn asked_at(&self) -> Instant {
        self.asked_at
    }

    /// Records a query that was sent for another reason.
    pub fn note_asked(&mut self, now: Instant) {
        self.asked_at = now;
    }

    /// Counts the time since the last check. Returns the part of it in which this process polled.
    fn count(&mut self, now: Instant, signs: &Signs, step: Duration) -> Duration {
        // A stopped process cannot answer, so the agent's report counts as a sign of life. A
        // running process can answer, so the agent's report does not excuse its silence.
        let excused = match self.word {
            Some((asked, Word::Starting | Word::Stopped)) => asked,
            _ => Instant::default(),
        };
        let heard = signs.heard.max(excused);
        if heard > self.heard {
            (self.heard, self.silent_for) = (heard, Duration::ZERO);
        }
        if self.asked_at <= signs.heard {
            self.unanswered = 0;
        }
        let since_look = now.since(self.looked).min(step);
        self.silent_for += now.since(self.looked.max(heard)).min(step);
        self.looked = now;
        since_look
    }

    /// Returns the silence after which the peer is lost, or `None` if it never is.
    fn limit(
        &self,
        now: Instant,
        signs: &Signs,
        patience: &Patience,
        delays: &Delays,
    ) -> Option<Duration> {
        if signs.is_near {
            return None;
        }
        let alone = patience.has_agents && self.word(now).is_none();
        Some(match patience.fixed {
            Some(fixed) => fixed,
            None if alone => delays.period(),
            None => PLAIN_PERIOD,
        })
    }

    fn wants_to_ask(&self, now: Instant, limit: Option<Duration>, ask_after: Duration) -> bool {
        let pause = match self.unanswered {
            0 => Duration::ZERO,
            n => ask_after * (1 << (n - 1).min(8)),
        };
        // Ten queries fit into the period.
        let pause_max = ASK_PAUSE_MAX.min(limit.unwrap_or(PLAIN_PERIOD) / 10);
        self.silent_for >= ask_after && now.since(self.asked_at) >= pause.min(pause_max)
    }

    fn wants_to_inquire(&self, now: Instant, signs: &Signs, patience: &Patience) -> bool {
        patience.has_agents
            && patience.fixed.is_none()
            && (!signs.is_near || signs.is_opening)
            && self.silent_for >= SUSPECT_AFTER
            && (self.inquired_at == Instant::default()
                || now.since(self.inquired_at) >= INQUIRE_AGAIN)
    }

    /// Returns true if the peer has answered a query recently.
    fn is_answering(&self, now: Instant, signs: &Signs) -> bool {
        let lately = SUSPECT_AFTER + ASK_PAUSE_MAX;
        let answered = signs.answered;
        answered.is_some_and(|(asked, _)| now.since(asked) < lately)
    }

    fn count_opening(&mut self, now: Instant, signs: &Signs, passed: Duration) {
        if !signs.is_opening {
            self.opening_for = Duration::ZERO;
            return;
        }
        let computes = signs
            .answered
            .is_some_and(|(_, idle)| idle >= COMPUTES_AFTER);
        let is_kept = match self.is_answering(now, signs) {
            true => computes,
            false => matches!(self.word(now), Some(Word::Starting | Word::Stopped)),
        };
        if !is_kept {
            self.opening_for += passed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(200);

    const RHYTHM: Rhythm = Rhythm {
        step: Duration::from_millis(250),
        ask_after: Duration::from_millis(150),
    };

    /// Watched peer that never answers by itself.
    struct Scene {
        watch: Watch,
        signs: Signs,
        patience: Patience,
        delays: Delays,
        now: Instant,
        asked_count: u32,
        inquired_count: u32,
    }

    fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    impl Scene {
        fn new() -> Scene {
            let begin = Instant::from_nanos(1_000_000_000);
            Scene {
                watch: Watch::default(),
                signs: Signs {
                    heard: begin,
                    is_near: false,
                    is_opening: false,
                    answered: None,
                },
                patience: Patience {
                    fixed: None,
                    has_agents: true,
                    opening: secs(10),
                },
                delays: Delays::default(),
                now: begin,
                asked_count: 0,
                inquired_count: 0,
            }
        }

        fn look(&mut self) -> Option<Loss> {
            let Scene {
                signs,
                patience,
                delays,
                now,
                ..
            } = self;
            let look = self.watch.look(*now, signs, patience, delays, RHYTHM);
            self.asked_count += u32::from(look.ask);
            self.inquired_count += u32::from(look.inquire);
            look.loss
        }

        /// Checks every 200 ms. The agent reports `word` each second. Returns when the peer is
        /// lost.
        fn run(&mut self, time: Duration, word: Option<Word>) -> Option<(Loss, Duration)> {
            let begin = self.now;
            while self.now.since(begin) < time {
                self.now = self.now + PAUSE;
                if let Some(word) = word {
                    self.watch.on_word(self.now, word);
                }
                if let Some(loss) = self.look() {
                    return Some((loss, self.now.since(begin)));
                }
            }
            None
        }
    }

    #[test]
    fn silence_within_a_host_is_never_death() {
        let mut scene = Scene::new();
        scene.signs.is_near = true;
        scene.patience.fixed = Some(Duration::from_millis(100));
        assert_eq!(scene.run(secs(1000), None), None);
    }

    #[test]
    fn the_period_depends_on_who_can_be_asked() {
        for (has_agents, word, period) in [
            (true, None, LONELY_PERIOD_MIN),
            (true, Some(Word::Running), PLAIN_PERIOD),
            (false, None, PLAIN_PERIOD),
        ] {
            let mut scene = Scene::new();
            scene.patience.has_agents = has_agents;
            let lost = scene.run(secs(1000), word);
            assert_eq!(lost, Some((Loss::Silent, period)), "{has_agents} {word:?}");
        }
    }

    #[test]
    fn a_stopped_or_starting_process_is_not_lost() {
        for word in [Word::Stopped, Word::Starting] {
            let mut scene = Scene::new();
            scene.signs.is_opening = true;
            assert_eq!(scene.run(secs(1000), Some(word)), None, "{word:?}");
        }
    }

    #[test]
    fn the_users_period_replaces_all_others() {
        let mut scene = Scene::new();
        scene.patience.fixed = Some(Duration::from_millis(900));
        let (loss, after) = scene.run(secs(10), None).unwrap();
        assert_eq!((loss, after), (Loss::Silent, Duration::from_millis(1000)));
        assert_eq!(scene.inquired_count, 0);
    }

    #[test]
    fn time_in_which_the_observer_did_not_run_is_no_silence() {
        let mut scene = Scene::new();
        for _ in 0..30 {
            scene.now = scene.now + secs(100);
            assert_eq!(scene.look(), None);
        }
        assert_eq!(scene.watch.silent_for(), RHYTHM.step * 30);
    }

    #[test]
    fn late_answers_lengthen_the_period_of_those_who_cannot_ask() {
        let mut scene = Scene::new();
        (0..8).for_each(|_| scene.delays.note(secs(1)));
        let (_, after) = scene.run(secs(1000), None).unwrap();
        assert!(after > secs(19) && after < secs(21), "{after:?}");
        (0..8).for_each(|_| scene.delays.note(secs(60)));
        assert_eq!(scene.delays.period(), PLAIN_PERIOD);
    }

    #[test]
    fn questions_become_rare_and_inquiries_begin_with_suspicion() {
        let mut scene = Scene::new();
        scene.run(SUSPECT_AFTER - PAUSE, None);
        assert_eq!(scene.inquired_count, 0);
        scene.run(secs(60), Some(Word::Running));
        assert!(
            (50..70).contains(&scene.asked_count),
            "{}",
            scene.asked_count
        );
        assert!(
            (25..35).contains(&scene.inquired_count),
            "{}",
            scene.inquired_count
        );
    }

    #[test]
    fn a_session_opens_late_while_the_peers_program_computes() {
        let mut scene = Scene::new();
        scene.signs.is_opening = true;
        for _ in 0..1000 {
            (scene.signs.heard, scene.signs.answered) = (scene.now, Some((scene.now, secs(1))));
            assert_eq!(scene.run(PAUSE, None), None);
        }
        let mut lost = None;
        for _ in 0..1000 {
            let idle = Duration::ZERO;
            (scene.signs.heard, scene.signs.answered) = (scene.now, Some((scene.now, idle)));
            lost = lost.or(scene.run(PAUSE, None));
        }
        assert_eq!(lost.map(|(loss, _)| loss), Some(Loss::Unopened));
    }
}
