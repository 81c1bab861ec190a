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
pub const NO_AGENT_PERIOD_MIN: Duration = Duration::from_secs(15);

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
const QUERY_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Validity period of an agent's answer; the next one may be late.
const REPORT_VALIDITY: Duration = NO_AGENT_PERIOD_MIN;

/// Time without polling after which a program counts as computing. It opens no session meanwhile.
const COMPUTES_AFTER: Duration = Duration::from_millis(500);

/// State of a process that has not exited, as reported by the agent of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentReport {
    /// The process has not opened its links yet.
    Starting,
    /// The process runs or waits for a core.
    Running,
    /// A signal or a debugger has stopped the process.
    Stopped,
}

/// Time limits for silent peers.
#[derive(Clone, Copy, Debug)]
pub struct SilenceLimits {
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
        self.bound().clamp(NO_AGENT_PERIOD_MIN, PLAIN_PERIOD)
    }

    /// Returns the longest delay to expect under this load.
    fn bound(&self) -> Duration {
        let by_mean = self.mean * PERIOD_MEANS;
        by_mean.max(self.peak * PERIOD_PEAKS)
    }
}

/// Timing of the caller's checks.
#[derive(Clone, Copy, Debug)]
pub struct CheckTiming {
    /// Maximum time between two checks that counts as silence, slightly more than the usual pause.
    /// A process that slept longer did not poll.
    pub step: Duration,
    /// Silence after which a peer is queried.
    pub query_after: Duration,
}

/// Signs of life of one peer, collected by the caller.
#[derive(Clone, Copy, Debug)]
pub struct Signs {
    /// Time of the newest frame or answered query, or of the beginning of the watch.
    pub last_seen: Instant,
    /// Set if the peer runs on this host, where the kernel reports its exit.
    pub is_near: bool,
    /// Set while a session with it is being opened.
    pub is_opening: bool,
    /// Time of the newest answered query, and the time since the peer's program had last polled its
    /// links.
    pub last_reply: Option<(Instant, Duration)>,
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
pub struct Verdict {
    /// Query the peer.
    pub query: bool,
    /// Query the agent of its host.
    pub inquire: bool,
    /// Declare the peer lost.
    pub loss: Option<Loss>,
}

/// State of one watched peer, from which an operation awaits something.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    last_seen: Instant,
    checked_at: Instant,
    silent_for: Duration,
    queried_at: Instant,
    /// Number of queries since the last sign of life.
    unanswered: u32,
    inquired_at: Instant,
    /// Newest answer of the agent, and the time of its query.
    report: Option<(Instant, AgentReport)>,
    /// Time in which the peer could have opened its session and did not.
    opening_for: Duration,
}

impl Watch {
    /// Checks the peer at `now`.
    pub fn check(
        &mut self,
        now: Instant,
        signs: &Signs,
        limits: &SilenceLimits,
        delays: &mut Delays,
        timing: CheckTiming,
    ) -> Verdict {
        let silent_for = self.silent_for;
        let passed = self.count(now, signs, timing.step);
        if self.silent_for < silent_for {
            delays.note(silent_for);
        }
        let limit = self.limit(now, signs, limits, delays);
        let query = self.is_query_due(now, limit, timing.query_after);
        if query {
            self.queried_at = now;
            self.unanswered = self.unanswered.saturating_add(1);
        }
        let inquire = self.is_inquiry_due(now, signs, limits);
        if inquire {
            self.inquired_at = now;
        }
        self.count_opening(now, signs, passed);
        let opening = match self.is_replying(now, signs) {
            true => limits.opening,
            // The host may be as loaded as the delays indicate.
            false => limits.opening.max(delays.bound().min(PLAIN_PERIOD)),
        };
        // A peer that never answers is silent too, but only a peer with a session is lost by silence.
        let loss = if self.opening_for >= opening {
            Some(Loss::Unopened)
        } else if limit.is_some_and(|limit| self.silent_for >= limit) {
            Some(Loss::Silent)
        } else {
            None
        };
        Verdict {
            query,
            inquire,
            loss,
        }
    }

    /// Records an agent's answer to the query sent at `queried_at`.
    pub fn on_report(&mut self, queried_at: Instant, report: AgentReport) {
        if self.report.is_none_or(|(at, _)| queried_at >= at) {
            self.report = Some((queried_at, report));
        }
    }

    /// Returns the agent's newest answer, while it is valid.
    #[must_use]
    pub fn report(&self, now: Instant) -> Option<AgentReport> {
        let (queried_at, report) = self.report?;
        (now.since(queried_at) < REPORT_VALIDITY).then_some(report)
    }

    /// Returns the time of the newest sign of life.
    #[must_use]
    pub fn last_seen(&self) -> Instant {
        self.last_seen
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
    pub fn queried_at(&self) -> Instant {
        self.queried_at
    }

    /// Records a query that was sent for another reason.
    pub fn note_query(&mut self, now: Instant) {
        self.queried_at = now;
    }

    /// Counts the time since the last check. Returns the part of it in which this process polled.
    fn count(&mut self, now: Instant, signs: &Signs, step: Duration) -> Duration {
        // A stopped process cannot answer, so the agent's report counts as a sign of life. A
        // running process can answer, so the agent's report does not excuse its silence.
        let excused = match self.report {
            Some((queried_at, AgentReport::Starting | AgentReport::Stopped)) => queried_at,
            _ => Instant::default(),
        };
        let last_seen = signs.last_seen.max(excused);
        if last_seen > self.last_seen {
            (self.last_seen, self.silent_for) = (last_seen, Duration::ZERO);
        }
        if self.queried_at <= signs.last_seen {
            self.unanswered = 0;
        }
        let since_check = now.since(self.checked_at).min(step);
        self.silent_for += now.since(self.checked_at.max(last_seen)).min(step);
        self.checked_at = now;
        since_check
    }

    /// Returns the silence after which the peer is lost, or `None` if it never is.
    fn limit(
        &self,
        now: Instant,
        signs: &Signs,
        limits: &SilenceLimits,
        delays: &Delays,
    ) -> Option<Duration> {
        if signs.is_near {
            return None;
        }
        let alone = limits.has_agents && self.report(now).is_none();
        Some(match limits.fixed {
            Some(fixed) => fixed,
            None if alone => delays.period(),
            None => PLAIN_PERIOD,
        })
    }

    fn is_query_due(&self, now: Instant, limit: Option<Duration>, query_after: Duration) -> bool {
        let pause = match self.unanswered {
            0 => Duration::ZERO,
            n => query_after * (1 << (n - 1).min(8)),
        };
        // Ten queries fit into the period.
        let pause_max = QUERY_PAUSE_MAX.min(limit.unwrap_or(PLAIN_PERIOD) / 10);
        self.silent_for >= query_after && now.since(self.queried_at) >= pause.min(pause_max)
    }

    fn is_inquiry_due(&self, now: Instant, signs: &Signs, limits: &SilenceLimits) -> bool {
        limits.has_agents
            && limits.fixed.is_none()
            && (!signs.is_near || signs.is_opening)
            && self.silent_for >= SUSPECT_AFTER
            && (self.inquired_at == Instant::default()
                || now.since(self.inquired_at) >= INQUIRE_AGAIN)
    }

    /// Returns true if the peer has answered a query recently.
    fn is_replying(&self, now: Instant, signs: &Signs) -> bool {
        let lately = SUSPECT_AFTER + QUERY_PAUSE_MAX;
        let last_reply = signs.last_reply;
        last_reply.is_some_and(|(queried_at, _)| now.since(queried_at) < lately)
    }

    fn count_opening(&mut self, now: Instant, signs: &Signs, passed: Duration) {
        if !signs.is_opening {
            self.opening_for = Duration::ZERO;
            return;
        }
        let computes = signs
            .last_reply
            .is_some_and(|(_, idle)| idle >= COMPUTES_AFTER);
        let is_excused = match self.is_replying(now, signs) {
            true => computes,
            false => matches!(
                self.report(now),
                Some(AgentReport::Starting | AgentReport::Stopped)
            ),
        };
        if !is_excused {
            self.opening_for += passed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(200);

    const TIMING: CheckTiming = CheckTiming {
        step: Duration::from_millis(250),
        query_after: Duration::from_millis(150),
    };

    /// Watched peer that never answers by itself.
    struct Scene {
        watch: Watch,
        signs: Signs,
        limits: SilenceLimits,
        delays: Delays,
        now: Instant,
        query_count: u32,
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
                    last_seen: begin,
                    is_near: false,
                    is_opening: false,
                    last_reply: None,
                },
                limits: SilenceLimits {
                    fixed: None,
                    has_agents: true,
                    opening: secs(10),
                },
                delays: Delays::default(),
                now: begin,
                query_count: 0,
                inquired_count: 0,
            }
        }

        fn check(&mut self) -> Option<Loss> {
            let Scene {
                signs,
                limits,
                delays,
                now,
                ..
            } = self;
            let verdict = self.watch.check(*now, signs, limits, delays, TIMING);
            self.query_count += u32::from(verdict.query);
            self.inquired_count += u32::from(verdict.inquire);
            verdict.loss
        }

        /// Checks every 200 ms. The agent reports `report` each second. Returns when the peer is
        /// lost.
        fn run(&mut self, time: Duration, report: Option<AgentReport>) -> Option<(Loss, Duration)> {
            let begin = self.now;
            while self.now.since(begin) < time {
                self.now = self.now + PAUSE;
                if let Some(report) = report {
                    self.watch.on_report(self.now, report);
                }
                if let Some(loss) = self.check() {
                    return Some((loss, self.now.since(begin)));
                }
            }
            None
        }
    }

    #[test]
    fn silence_on_same_host_is_never_a_loss() {
        let mut scene = Scene::new();
        scene.signs.is_near = true;
        scene.limits.fixed = Some(Duration::from_millis(100));
        assert_eq!(scene.run(secs(1000), None), None);
    }

    #[test]
    fn period_depends_on_reachable_agents() {
        for (has_agents, report, period) in [
            (true, None, NO_AGENT_PERIOD_MIN),
            (true, Some(AgentReport::Running), PLAIN_PERIOD),
            (false, None, PLAIN_PERIOD),
        ] {
            let mut scene = Scene::new();
            scene.limits.has_agents = has_agents;
            let lost = scene.run(secs(1000), report);
            assert_eq!(
                lost,
                Some((Loss::Silent, period)),
                "{has_agents} {report:?}"
            );
        }
    }

    #[test]
    fn a_stopped_or_starting_process_is_not_lost() {
        for report in [AgentReport::Stopped, AgentReport::Starting] {
            let mut scene = Scene::new();
            scene.signs.is_opening = true;
            assert_eq!(scene.run(secs(1000), Some(report)), None, "{report:?}");
        }
    }

    #[test]
    fn user_period_replaces_all_others() {
        let mut scene = Scene::new();
        scene.limits.fixed = Some(Duration::from_millis(900));
        let (loss, after) = scene.run(secs(10), None).unwrap();
        assert_eq!((loss, after), (Loss::Silent, Duration::from_millis(1000)));
        assert_eq!(scene.inquired_count, 0);
    }

    #[test]
    fn time_without_polling_is_not_silence() {
        let mut scene = Scene::new();
        for _ in 0..30 {
            scene.now = scene.now + secs(100);
            assert_eq!(scene.check(), None);
        }
        assert_eq!(scene.watch.silent_for(), TIMING.step * 30);
    }

    #[test]
    fn late_replies_lengthen_the_period_without_agents() {
        let mut scene = Scene::new();
        (0..8).for_each(|_| scene.delays.note(secs(1)));
        let (_, after) = scene.run(secs(1000), None).unwrap();
        assert!(after > secs(19) && after < secs(21), "{after:?}");
        (0..8).for_each(|_| scene.delays.note(secs(60)));
        assert_eq!(scene.delays.period(), PLAIN_PERIOD);
    }

    #[test]
    fn queries_back_off_and_inquiries_start_on_suspicion() {
        let mut scene = Scene::new();
        scene.run(SUSPECT_AFTER - PAUSE, None);
        assert_eq!(scene.inquired_count, 0);
        scene.run(secs(60), Some(AgentReport::Running));
        assert!(
            (50..70).contains(&scene.query_count),
            "{}",
            scene.query_count
        );
        assert!(
            (25..35).contains(&scene.inquired_count),
            "{}",
            scene.inquired_count
        );
    }

    #[test]
    fn session_may_open_late_while_the_peer_computes() {
        let mut scene = Scene::new();
        scene.signs.is_opening = true;
        for _ in 0..1000 {
            (scene.signs.last_seen, scene.signs.last_reply) =
                (scene.now, Some((scene.now, secs(1))));
            assert_eq!(scene.run(PAUSE, None), None);
        }
        let mut lost = None;
        for _ in 0..1000 {
            let idle = Duration::ZERO;
            (scene.signs.last_seen, scene.signs.last_reply) = (scene.now, Some((scene.now, idle)));
            lost = lost.or(scene.run(PAUSE, None));
        }
        assert_eq!(lost.map(|(loss, _)| loss), Some(Loss::Unopened));
    }

    /// The caller declares a peer lost by silence only if it had a session. The period of one that
    /// never had any must end too, although it is silent for longer than allowed before.
    #[test]
    fn session_that_does_not_open_ends_behind_a_shorter_silence_limit() {
        let mut scene = Scene::new();
        scene.signs.is_opening = true;
        (scene.limits.fixed, scene.limits.has_agents) = (Some(secs(5)), false);
        let (mut first, mut last) = (None, None);
        for _ in 0..100 {
            scene.now = scene.now + PAUSE;
            last = scene.check();
            first = first.or(last);
        }
        assert_eq!((first, last), (Some(Loss::Silent), Some(Loss::Unopened)));
    }
}
