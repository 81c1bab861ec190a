// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the life of a job, in virtual time.

use super::*;
use serde_json::json;

const GRACE: Duration = Duration::from_secs(2);

struct Job {
    control: Control,
    now: Instant,
}

impl Job {
    fn new(size: usize, limit: Option<Duration>) -> Job {
        let now = Instant::now();
        let hosts = (0..size).map(|rank| format!("h{rank}")).collect();
        Job {
            control: Control::new(now, hosts, GRACE, limit),
            now,
        }
    }

    fn joined(size: usize) -> Job {
        let mut job = Job::new(size, None);
        for rank in 0..size {
            job.join(u32::try_from(rank).unwrap());
        }
        assert_eq!(job.orders(), ["table"]);
        job
    }

    fn join(&mut self, rank: u32) {
        self.control.on_address(self.now, rank, json!(rank));
    }

    fn end(&mut self, rank: u32, end: End, left: bool) {
        self.control.on_ended(self.now, rank, end, left);
    }

    /// Advances the time to the next deadline.
    fn wait(&mut self) {
        self.now = self.control.deadline().unwrap();
        self.control.handle_timeout(self.now);
    }

    fn orders(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.control.poll_order())
            .map(|order| match order {
                Order::Start(_) => "start".into(),
                Order::Table { .. } => "table".into(),
                Order::Gone(gone) if gone.is_success => format!("left {}", gone.rank),
                Order::Gone(gone) => format!("gone {}: {}", gone.rank, gone.cause),
                Order::Signal { signal } => format!("signal {signal}"),
                Order::Explain => "explain".into(),
                Order::Inquire { rank, .. } => format!("inquire {rank}"),
                Order::Word { asker, .. } => format!("word {asker}"),
            })
            .collect()
    }

    fn status(&self) -> i32 {
        self.control.failure().map_or(0, Failure::status)
    }
}

#[test]
fn job_succeeds_when_all_ranks_leave() {
    let mut job = Job::joined(2);
    job.end(0, End::Exit(0), true);
    job.end(1, End::Exit(0), true);
    assert_eq!(job.orders(), ["left 0", "left 1"]);
    assert_eq!((job.status(), job.control.deadline()), (0, None));
}

#[test]
fn job_succeeds_when_no_rank_joins() {
    let mut job = Job::new(2, None);
    job.end(0, End::Exit(0), false);
    job.end(1, End::Exit(0), false);
    assert_eq!((job.status(), job.orders().len()), (0, 0));
}

#[test]
fn killed_rank_is_reported_then_others_get_sigterm_and_sigkill() {
    let mut job = Job::joined(3);
    let start = job.now;
    job.end(1, End::Signal(9), false);
    assert_eq!(job.orders(), ["gone 1: killed by signal 9 (SIGKILL)"]);
    job.wait();
    assert_eq!(
        (job.now - start, job.orders()),
        (GRACE, vec!["signal 15".to_owned()])
    );
    job.wait();
    assert_eq!(
        (job.now - start, job.orders()),
        (GRACE + KILL_DELAY, vec!["signal 9".to_owned()])
    );
    job.wait();
    assert!(job.control.is_abandoned() && job.control.deadline().is_none());
    assert_eq!(job.status(), 137);
    let sentence = job.control.failure().unwrap().to_string();
    assert_eq!(
        sentence,
        "rank 1 on h1 failed: killed by signal 9 (SIGKILL)"
    );
}

#[test]
fn first_failure_sets_status_and_later_ones_are_reported() {
    let mut job = Job::joined(3);
    job.end(2, End::Exit(3), false);
    job.end(0, End::Exit(1), false);
    assert_eq!(
        job.orders(),
        ["gone 2: exit status 3", "gone 0: exit status 1"]
    );
    assert_eq!(job.status(), 3);
}

/// A panicking program ends after the ranks that end because their links to it fail.
#[test]
fn failure_without_lost_peer_replaces_that_of_a_victim() {
    let mut job = Job::joined(3);
    job.control.on_lost(0, 1, "it closed the session".into());
    job.end(0, End::Exit(1), false);
    assert_eq!(job.status(), 1);
    job.end(1, End::Exit(101), false);
    job.control.on_lost(2, 0, "its process has ended".into());
    job.end(2, End::Signal(6), false);
    assert_eq!(job.status(), 101);
    let sentence = job.control.failure().unwrap().to_string();
    assert_eq!(sentence, "rank 1 on h1 failed: exit status 101");
}

#[test]
fn lost_peer_identifies_the_cause_among_victims() {
    let mut job = Job::joined(3);
    job.control.on_lost(0, 1, "gone".into());
    job.control.on_lost(1, 2, "it closed the session".into());
    job.end(0, End::Exit(7), false);
    // The rank that it waited for had left successfully.
    job.end(2, End::Exit(0), true);
    job.end(1, End::Exit(8), false);
    let sentence = job.control.failure().unwrap().to_string();
    assert_eq!(
        sentence,
        "rank 1 on h1 failed: exit status 8, after it had lost rank 2 (it closed the session)"
    );
    // The loss is reported after the other rank's end, although it is the cause.
    let mut job = Job::joined(2);
    job.end(1, End::Exit(9), false);
    job.control.on_lost(0, 1, "gone".into());
    job.end(0, End::Exit(1), false);
    assert_eq!(job.status(), 9);
}

#[test]
fn rank_ended_by_launcher_is_not_the_cause() {
    let mut job = Job::joined(2);
    job.control.on_lost(0, 1, "it no longer answers".into());
    job.end(0, End::Exit(4), false);
    job.wait();
    job.end(1, End::Signal(15), false);
    assert_eq!(job.status(), 4);
    job.control.on_lost(9, 0, "no rank".into());
}

#[test]
fn exit_without_leaving_is_a_failure() {
    let mut job = Job::joined(2);
    job.end(0, End::Exit(0), false);
    assert_eq!(job.orders(), ["gone 0: ended without leaving the job"]);
    assert_eq!(job.status(), 1);
}

#[test]
fn rank_that_never_joins_fails_the_job_in_either_order() {
    let mut job = Job::new(2, None);
    job.join(0);
    job.end(1, End::Exit(0), false);
    assert_eq!(
        job.orders(),
        ["gone 1: ended without joining the job that others joined"]
    );

    let mut job = Job::new(2, None);
    job.end(1, End::Exit(0), false);
    job.join(0);
    assert_eq!(
        job.orders(),
        ["gone 1: ended without joining the job that others joined"]
    );
    assert_eq!(job.status(), 1);
}

#[test]
fn abort_sets_a_nonzero_status() {
    let mut job = Job::joined(2);
    job.control.on_abort(job.now, 1, 7, "no input");
    assert_eq!(job.orders(), ["gone 1: aborted the job: no input"]);
    job.end(1, End::Exit(1), false);
    assert_eq!((job.status(), job.orders().len()), (7, 0));

    let mut job = Job::joined(1);
    job.control.on_abort(job.now, 0, 256, "odd status");
    assert_eq!(job.status(), 1);
}

#[test]
fn lost_agent_fails_its_running_ranks() {
    let mut job = Job::joined(3);
    job.end(0, End::Exit(0), true);
    job.control
        .on_agent_lost(job.now, &[0, 2], "host h2 is lost");
    assert_eq!(job.orders(), ["left 0", "gone 2: host h2 is lost"]);
    assert_eq!(job.status(), 1);
}

#[test]
fn signal_is_forwarded_and_second_one_kills() {
    let mut job = Job::joined(2);
    job.control.on_signal(job.now, 2);
    assert_eq!(job.orders(), ["signal 2"]);
    job.end(0, End::Signal(2), false);
    assert_eq!(job.orders().len(), 1, "peers are notified");
    job.control.on_signal(job.now, 2);
    assert_eq!(job.orders(), ["signal 9"]);
    assert_eq!(job.status(), 130);
}

#[test]
fn time_limit_ends_the_job() {
    let mut job = Job::new(1, Some(Duration::from_secs(5)));
    let start = job.now;
    job.wait();
    assert_eq!(
        (job.now - start, job.orders()),
        (Duration::from_secs(5), vec!["explain".into()])
    );
    job.wait();
    assert_eq!(job.orders(), ["signal 15"]);
    let (host, line) = job.control.poll_note().unwrap();
    assert_eq!(host, "h0");
    assert!(line.starts_with("rank 0 does not answer"), "{line}");
    job.end(0, End::Signal(15), false);
    assert_eq!(job.status(), TIMEOUT_STATUS);
}

fn waits(text: &str) -> Waits {
    let (text, on) = (text.to_owned(), Vec::new());
    Waits { text, on }
}

#[test]
fn complete_explanation_ends_the_job_at_the_time_limit() {
    let mut job = Job::joined(2);
    job.control.limit = Some(Duration::from_secs(5));
    job.control.deadline = Some(job.now);
    job.control.handle_timeout(job.now);
    for rank in 0..2 {
        job.control.on_waits(job.now, rank, waits("waits"));
    }
    job.control.handle_timeout(job.now);
    assert_eq!(job.orders(), ["explain", "signal 15"]);
    assert_eq!(job.status(), TIMEOUT_STATUS);
}

#[test]
fn explanation_does_not_change_the_job() {
    let mut job = Job::joined(2);
    job.end(1, End::Exit(0), true);
    assert_eq!(job.orders().len(), 1);
    job.control.on_explain(job.now);
    job.control.on_explain(job.now);
    assert_eq!(job.orders(), ["explain"]);
    // Rank 1 has ended, and rank 2 received no request.
    job.control.on_waits(job.now, 1, waits("waits"));
    job.control.on_waits(job.now, 2, waits("waits"));
    assert_eq!(job.control.poll_note(), None);
    job.control.on_waits(job.now, 0, waits("computes"));
    let line = ("h0".to_owned(), "rank 0 computes".to_owned());
    assert_eq!(job.control.poll_note(), Some(line));
    assert_eq!((job.control.deadline(), job.status()), (None, 0));
}

#[test]
fn reports_for_unknown_ranks_are_ignored() {
    let mut job = Job::joined(1);
    job.join(5);
    job.end(5, End::Exit(1), false);
    job.control.on_abort(job.now, 5, 1, "");
    job.join(0);
    assert_eq!((job.status(), job.orders().len()), (0, 0));
}

#[test]
fn reported_problem_is_appended_to_the_cause() {
    let mut job = Job::joined(3);
    job.control.on_problem(7, "no such rank".into());
    job.control.on_problem(1, "no descriptor is left".into());
    job.control.on_problem(1, "and then this".into());
    job.end(1, End::Exit(3), false);
    let cause = "exit status 3; it had reported: no descriptor is left";
    assert_eq!(job.orders(), [format!("gone 1: {cause}")]);
    // The report of another rank is included for a rank that had reported nothing.
    job.end(2, End::Exit(4), false);
    let order = "gone 2: exit status 4; rank 1 on h1 had reported: no descriptor is left";
    assert_eq!(job.orders(), [order]);
}

#[test]
fn problem_alone_is_no_failure_and_extends_an_earlier_one() {
    let mut job = Job::joined(2);
    job.control.on_problem(0, "short of memory".into());
    job.end(0, End::Exit(0), true);
    assert_eq!((job.orders(), job.status()), (vec!["left 0".into()], 0));
    let mut job = Job::joined(2);
    job.end(0, End::Exit(3), false);
    job.control.on_problem(1, "short of memory".into());
    let failure = job.control.failure().unwrap().to_string();
    let words = "exit status 3; rank 1 on h1 had reported: short of memory";
    assert!(failure.ends_with(words), "{failure}");
}

impl Job {
    fn continuing(size: usize) -> Job {
        let mut job = Job::joined(size);
        job.control.on_failure = OnFailure::Continue;
        job
    }
}

#[test]
fn continuing_job_reports_failed_ranks() {
    let mut job = Job::continuing(3);
    job.end(2, End::Signal(9), false);
    assert_eq!(job.orders(), ["gone 2: killed by signal 9 (SIGKILL)"]);
    let (host, line) = job.control.poll_note().unwrap();
    assert_eq!(host, "h2");
    assert!(
        line.contains("rank 2 on h2 failed: killed by signal 9"),
        "{line}"
    );
    assert_eq!(job.control.deadline(), None, "no rank is ended");
    job.end(1, End::Exit(0), true);
    job.end(0, End::Exit(0), true);
    assert_eq!((job.status(), job.orders().len()), (0, 2));
}

#[test]
fn continuing_job_has_status_of_rank_0() {
    let mut job = Job::continuing(3);
    job.end(1, End::Exit(5), false);
    job.end(0, End::Exit(3), false);
    assert_eq!(job.control.deadline(), None, "rank 2 continues");
    job.end(2, End::Exit(4), false);
    assert_eq!(job.status(), 3);
}

#[test]
fn continuing_job_ends_on_abort_or_before_all_joined() {
    let mut job = Job::continuing(2);
    job.control.on_abort(job.now, 1, 7, "no use");
    assert_eq!(job.status(), 7);
    assert!(job.control.deadline().is_some());

    let mut job = Job::new(2, None);
    job.control.on_failure = OnFailure::Continue;
    job.join(0);
    job.end(1, End::Exit(1), false);
    assert!(job.control.deadline().is_some(), "rank 0 waits for it");
    assert_eq!(job.status(), 1);
}

#[test]
fn loss_of_itself_is_ignored() {
    let mut job = Job::joined(2);
    job.control.on_lost(1, 1, "no answer".into());
    job.end(1, End::Exit(1), false);
    let sentence = job.control.failure().unwrap().to_string();
    assert_eq!(sentence, "rank 1 on h1 failed: exit status 1");
}
