// SPDX-License-Identifier: MIT OR Apache-2.0
//! Simulates [`portolan_proto::liveness`] among processes and agents that stall, on networks that
//! lose queries.
//!
//! Each run checks that no process declares a live and reachable process lost. It also checks that
//! every live process detects a death, a host that is off and a cut cable within the documented
//! time. There are no frames of the protocol here: only queries and answers show that a peer is
//! alive.

mod plan;

use plan::{Disturbance, Plan};
use portolan_proto::Instant;
use portolan_proto::liveness::{AgentReport, CheckTiming, Delays, Signs, SilenceLimits, Watch};
use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Interval of a waiting process's checks, as in the engine.
const CHECK_INTERVAL_NS: u64 = 200_000_000;

/// Maximum time between two checks that counts as silence, as in the engine.
const STEP: Duration = Duration::from_millis(250);

/// Silence after which a peer is queried, as in the engine.
const QUERY_AFTER: Duration = Duration::from_millis(150);

/// Time limit for the detection of a loss: the plain period of the observer's own running time, and
/// some checks and queries.
const NOTICE_NS: u64 = 65_000_000_000;

/// Deliberate bug that the checks must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Time in which the observer did not run counts as silence.
    CountOwnStalls,
    /// A peer is lost after one second of silence, whatever an agent reports.
    ShortPeriod,
    /// A process that its agent reports as running is never lost.
    TrustAgents,
    /// The exit reported by a launcher is ignored.
    ForgetEnds,
    /// An agent's report that a process is stopped is ignored.
    IgnoreStopped,
}

impl Bug {
    /// All bugs.
    pub const ALL: [Bug; 5] = [
        Bug::CountOwnStalls,
        Bug::ShortPeriod,
        Bug::TrustAgents,
        Bug::ForgetEnds,
        Bug::IgnoreStopped,
    ];
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Check {
        at: usize,
    },
    Query {
        from: usize,
        to: usize,
        queried_at: u64,
    },
    Reply {
        from: usize,
        to: usize,
        queried_at: u64,
    },
    /// Query to an agent: at the launcher, then at the agent, then its answer at the launcher.
    Inquiry {
        from: usize,
        about: usize,
        queried_at: u64,
        leg: u8,
    },
    AgentReply {
        to: usize,
        about: usize,
        queried_at: u64,
        is_stopped: bool,
    },
    /// The launcher, or the peer's kernel, reports an exit.
    Ended {
        to: usize,
        about: usize,
    },
}

/// State that one process keeps about another.
#[derive(Clone, Debug, Default)]
struct View {
    watch: Watch,
    /// Newest query that was answered.
    seen: u64,
    lost_at: Option<u64>,
}

struct World {
    plan: Plan,
    bug: Option<Bug>,
    rng: ChaCha8Rng,
    now: u64,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    made: u64,
    views: Vec<Vec<View>>,
    delays: Vec<Delays>,
    broken: Option<String>,
}

/// Runs one seed.
///
/// # Errors
/// Description of the violation.
pub fn run(seed: u64, bug: Option<Bug>) -> Result<(), String> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let plan = Plan::draw(&mut rng);
    let count = plan.hosts_of.len();
    let mut world = World {
        views: vec![vec![View::default(); count]; count],
        delays: vec![Delays::default(); count],
        plan,
        bug,
        rng,
        now: 0,
        queue: BinaryHeap::new(),
        made: 0,
        broken: None,
    };
    world.begin();
    world.run();
    world.check_noticed();
    let (disturbance, broken) = (world.plan.disturbance, world.broken);
    broken.map_or(Ok(()), |what| {
        Err(format!("seed {seed}: {disturbance:?}: {what}"))
    })
}

impl World {
    fn begin(&mut self) {
        for at in 0..self.views.len() {
            let first = self.rng.random_range(0..CHECK_INTERVAL_NS);
            self.push(first, Event::Check { at });
        }
        if let Disturbance::Killed { process, at } = self.plan.disturbance {
            for to in (0..self.views.len()).filter(|to| *to != process) {
                let delay = self.plan.delay(&mut self.rng);
                self.push(at + delay, Event::Ended { to, about: process });
            }
        }
    }

    fn run(&mut self) {
        while let Some(Reverse((at, _, event))) = self.queue.pop() {
            if at > self.plan.end || self.broken.is_some() {
                return;
            }
            self.now = at;
            self.happen(event);
        }
    }

    fn push(&mut self, at: u64, event: Event) {
        self.made += 1;
        self.queue.push(Reverse((at, self.made, event)));
    }

    /// Returns `true` if the actor runs. Otherwise postpones the event until it does.
    fn runs(&mut self, actor: usize, event: Event) -> bool {
        let at = self.plan.runs_at(actor, self.now);
        match at {
            Some(at) if at > self.now => self.push(at, event),
            Some(_) => return true,
            None => {}
        }
        false
    }

    fn happen(&mut self, event: Event) {
        let (actor, again) = match event {
            Event::Check { at } => (at, Event::Check { at }),
            Event::Query {
                from,
                to,
                queried_at,
            } => (
                to,
                Event::Query {
                    from,
                    to,
                    queried_at,
                },
            ),
            Event::Reply {
                from,
                to,
                queried_at,
            } => (
                to,
                Event::Reply {
                    from,
                    to,
                    queried_at,
                },
            ),
            Event::Inquiry {
                from,
                about,
                queried_at,
                leg,
            } => {
                let actor = match leg {
                    1 => self.plan.agent_of(about),
                    _ => self.plan.launcher(),
                };
                let again = Event::Inquiry {
                    from,
                    about,
                    queried_at,
                    leg,
                };
                (actor, again)
            }
            Event::AgentReply {
                to,
                about,
                queried_at,
                is_stopped,
            } => {
                let again = Event::AgentReply {
                    to,
                    about,
                    queried_at,
                    is_stopped,
                };
                (to, again)
            }
            Event::Ended { to, about } => (to, Event::Ended { to, about }),
        };
        if self.runs(actor, again) {
            self.act(event);
        }
    }

    fn act(&mut self, event: Event) {
        match event {
            Event::Check { at } => {
                self.check(at);
                self.push(self.now + CHECK_INTERVAL_NS, Event::Check { at });
            }
            Event::Query {
                from,
                to,
                queried_at,
            } => {
                let reply = Event::Reply {
                    from: to,
                    to: from,
                    queried_at,
                };
                self.send(to, from, reply);
            }
            Event::Reply {
                from,
                to,
                queried_at,
            } => {
                let view = &mut self.views[to][from];
                if queried_at > view.seen {
                    view.seen = queried_at;
                    self.delays[to].note(Duration::from_nanos(self.now - queried_at));
                }
            }
            Event::Inquiry {
                from,
                about,
                queried_at,
                leg,
            } => self.pass_on(from, about, queried_at, leg),
            Event::AgentReply {
                to,
                about,
                queried_at,
                is_stopped,
            } => self.on_agent_reply(to, about, queried_at, is_stopped),
            Event::Ended { to, about } => {
                if self.bug != Some(Bug::ForgetEnds) {
                    self.views[to][about].lost_at.get_or_insert(self.now);
                }
            }
        }
    }

    fn send(&mut self, from: usize, to: usize, event: Event) {
        let is_lost = self.rng.random_range(0..1000) < self.plan.loss_per_mille;
        if is_lost || self.plan.is_cut(from, to, self.now) {
            return;
        }
        let delay = self.plan.delay(&mut self.rng);
        self.push(self.now + delay, event);
    }

    fn pass_on(&mut self, from: usize, about: usize, queried_at: u64, leg: u8) {
        let delay = self.plan.delay(&mut self.rng);
        let is_stopped = self.plan.is_stopped(about, self.now);
        let next = match leg {
            0 | 1 if leg == 1 && self.plan.is_dead(about, self.now) => return,
            0 | 1 => Event::Inquiry {
                from,
                about,
                queried_at,
                leg: leg + 1,
            },
            _ => Event::AgentReply {
                to: from,
                about,
                queried_at,
                is_stopped,
            },
        };
        self.push(self.now + delay, next);
    }

    fn on_agent_reply(&mut self, to: usize, about: usize, queried_at: u64, is_stopped: bool) {
        let report = match is_stopped && self.bug != Some(Bug::IgnoreStopped) {
            true => AgentReport::Stopped,
            false => AgentReport::Running,
        };
        self.delays[to].note(Duration::from_nanos(self.now - queried_at));
        let view = &mut self.views[to][about];
        view.watch
            .on_report(Instant::from_nanos(queried_at), report);
        if self.bug == Some(Bug::TrustAgents) {
            view.seen = view.seen.max(queried_at);
        }
    }

    fn check(&mut self, at: usize) {
        let silence_limits = SilenceLimits {
            fixed: (self.bug == Some(Bug::ShortPeriod)).then_some(Duration::from_millis(900)),
            has_agents: self.plan.has_agents,
            opening: Duration::from_secs(10),
        };
        let step = match self.bug {
            Some(Bug::CountOwnStalls) => Duration::MAX,
            _ => STEP,
        };
        let timing = CheckTiming {
            step,
            query_after: QUERY_AFTER,
        };
        for peer in (0..self.views.len()).filter(|peer| *peer != at) {
            let view = &mut self.views[at][peer];
            if view.lost_at.is_some() {
                continue;
            }
            let signs = Signs {
                last_seen: Instant::from_nanos(view.seen),
                is_near: self.plan.hosts_of[at] == self.plan.hosts_of[peer],
                is_opening: false,
                last_reply: None,
            };
            let delays = &mut self.delays[at];
            let now = Instant::from_nanos(self.now);
            let verdict = view
                .watch
                .check(now, &signs, &silence_limits, delays, timing);
            if verdict.loss.is_some() {
                view.lost_at = Some(self.now);
                self.check_lost(at, peer);
            }
            let queried_at = self.now;
            if verdict.query {
                let (from, to) = (at, peer);
                self.send(
                    from,
                    to,
                    Event::Query {
                        from,
                        to,
                        queried_at,
                    },
                );
            }
            if verdict.inquire {
                self.pass_on(at, peer, queried_at, 0);
            }
        }
    }

    /// Checks a loss that was declared now.
    fn check_lost(&mut self, observer: usize, peer: usize) {
        let (plan, now) = (&self.plan, self.now);
        if !plan.is_dead(peer, now) && !plan.is_cut(observer, peer, now) {
            let secs = now as f64 / 1e9;
            self.broken = Some(format!(
                "{observer} declares {peer} lost at {secs:.1} s, which lives"
            ));
        }
    }

    /// Checks that every living process has detected every loss in time.
    fn check_noticed(&mut self) {
        let count = self.views.len();
        for (observer, peer) in (0..count).flat_map(|a| (0..count).map(move |b| (a, b))) {
            let Some(since) = self.plan.lost_since(observer, peer) else {
                continue;
            };
            let own = self.plan.stalled_ns(observer, since);
            let due = since + NOTICE_NS + own;
            let noticed = self.views[observer][peer].lost_at;
            if due <= self.plan.end && noticed.is_none_or(|at| at > due) && self.broken.is_none() {
                let secs = since as f64 / 1e9;
                self.broken = Some(format!(
                    "{observer} has not noticed that {peer} is lost since {secs:.1} s"
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bug, run};

    /// Number of seeds among which each bug must be found.
    const BUG_SEEDS: u64 = 200;

    #[test]
    fn no_live_process_is_declared_lost_and_every_loss_is_detected() {
        for seed in 0..500 {
            run(seed, None).unwrap();
        }
    }

    #[test]
    fn every_bug_is_found() {
        for bug in Bug::ALL {
            let found = (0..BUG_SEEDS).any(|seed| run(seed, Some(bug)).is_err());
            assert!(found, "{bug:?}");
        }
    }
}
