// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bulk data over a simulated Ethernet: many senders to one receiver, and their order of
//! completion.

use portolan_proto::{Limits, Schedule};
use portolan_sim::{Arrival, Flow, OPENING_LEN, Options, Report, Scenario, simulate_plan};
use std::time::Duration;

const MB: usize = 1_000_000;

/// Start of the flows, when the sessions are open and their paths measured. The concurrent probes
/// of 64 peers suffice to fill a socket, and lost probes are repeated after 20 ms.
const START_NS: u64 = 100_000_000;

fn run(scenario: &Scenario) -> Report {
    let mut report = simulate_plan(scenario.plan(), &Options::default())
        .unwrap_or_else(|failure| panic!("{failure}"));
    report
        .deliveries
        .retain(|arrival| arrival.len > OPENING_LEN);
    report
}

/// Returns the numbers of frames lost since the start of the flows, at full sockets and at full
/// switch ports.
fn losses(report: &Report) -> (usize, usize) {
    let count = |losses: &[Duration]| {
        let late = losses.iter().filter(|at| since_start(**at) > 0.0);
        late.count()
    };
    (count(&report.socket_losses), count(&report.switch_losses))
}

fn flow(from: u32, to: u32, len: usize) -> Flow {
    Flow {
        from,
        to,
        count: 1,
        len,
        gap_ns: 0,
        start_ns: START_NS,
    }
}

fn since_start(at: Duration) -> f64 {
    at.as_secs_f64() - START_NS as f64 / 1e9
}

/// Returns the seconds from the start of the flows to the last delivery.
fn seconds(report: &Report) -> f64 {
    since_start(report.deliveries.last().expect("delivered").at)
}

fn incast(senders: u32, schedule: Schedule, lens: impl Fn(u32) -> usize) -> Scenario {
    let flows = (1..=senders).map(|from| flow(from, 0, lens(from)));
    let mut scenario = Scenario::ethernet(senders + 1, flows.collect());
    scenario.limits = Limits {
        schedule,
        ..Limits::default()
    };
    scenario
}

/// Returns the rate of one flow in bytes per second, for comparison.
fn single_rate() -> f64 {
    let len = 16 * MB;
    let alone = run(&incast(1, Schedule::ShortestFirst, |_| len));
    len as f64 / seconds(&alone)
}

fn check_incast(senders: u32, schedule: Schedule) -> Vec<Arrival> {
    // The last sender has the fewest bytes, so that no order arises by accident. 4 MB on average.
    let len = |from: u32| 2 * MB + 4 * MB * (senders - from) as usize / senders as usize;
    let report = run(&incast(senders, schedule, len));
    let total: usize = (1..=senders).map(len).sum();
    let rate = total as f64 / seconds(&report);
    let share = rate / single_rate();
    let (lost_at_socket, lost_at_switch) = losses(&report);
    println!(
        "{senders} senders, {schedule:?}: {share:.3} of one stream, {} lost at the socket, {} at the \
         switch, {} sent again",
        lost_at_socket, lost_at_switch, report.retransmit_count
    );
    assert_eq!(lost_at_socket, 0, "lost to a full receive buffer");
    assert_eq!(lost_at_switch, 0, "lost to a full switch");
    assert!(share >= 0.8, "{share:.3} of the rate of one stream");
    assert_eq!(report.deliveries.len(), senders as usize);
    report.deliveries
}

// P5.3
#[test]
fn many_senders_lose_nothing_and_finish_shortest_first() {
    for senders in [8, 64] {
        let deliveries = check_incast(senders, Schedule::ShortestFirst);
        let lens: Vec<usize> = deliveries.iter().map(|arrival| arrival.len).collect();
        // Two have grants at a time, so neighbours may be swapped.
        let late = lens.windows(3).filter(|lens| lens[0] > lens[2]).count();
        assert!(late <= lens.len() / 8, "{late} of {}: {lens:?}", lens.len());
        let first = since_start(deliveries[0].at);
        let last = since_start(deliveries[lens.len() - 1].at);
        assert!(
            first < last * 4.0 / f64::from(senders),
            "{first} of {last} s"
        );
    }
}

// P5.3
#[test]
fn many_senders_lose_nothing_and_share_fairly() {
    for senders in [8, 64] {
        let deliveries = check_incast(senders, Schedule::Fair);
        // With equal shares, each completion time follows from the lengths alone.
        let lens: Vec<usize> = deliveries.iter().map(|arrival| arrival.len).collect();
        let total: usize = lens.iter().sum();
        let last = since_start(deliveries[lens.len() - 1].at);
        let mut before = 0;
        for (index, arrival) in deliveries.iter().enumerate() {
            let served = before + arrival.len * (lens.len() - index);
            before += arrival.len;
            let due = last * served as f64 / total as f64;
            let at = since_start(arrival.at);
            let error = (at / due - 1.0).abs();
            assert!(error < 0.1, "number {index} after {at}, due {due} s");
        }
    }
}

// P5.3
#[test]
fn many_senders_lose_nothing_and_finish_one_by_one() {
    let senders = 8;
    let mut scenario = incast(senders, Schedule::Exclusive, |_| 4 * MB);
    // Room for several steps, otherwise transfers alternate.
    (scenario.socket_len, scenario.port_len) = (1 << 20, 4 << 20);
    let report = run(&scenario);
    let ends: Vec<f64> = report
        .deliveries
        .iter()
        .map(|arrival| since_start(arrival.at))
        .collect();
    println!("{ends:.4?} s, {} sent again", report.retransmit_count);
    assert_eq!(losses(&report), (0, 0));
    assert_eq!(ends.len(), senders as usize);
    let last = ends[ends.len() - 1];
    // With equal shares, all would end together. In strict order the mean would be 9/16 of the last.
    let mean = ends.iter().sum::<f64>() / f64::from(senders);
    assert!(mean < last * 0.75, "on average after {mean} of {last} s");
    assert!(ends[0] < last * 0.3, "first after {} of {last} s", ends[0]);
}

// P5.9
#[test]
fn huge_transfer_is_not_starved_by_small_ones() {
    // More small transfers than the wire carries, for longer than the huge one lasts.
    let huge = 8 * MB;
    let small = |from| Flow {
        count: 860,
        len: 70_000,
        gap_ns: 98_000,
        ..flow(from, 0, 0)
    };
    let flows = (2..=3).map(small).chain([flow(1, 0, huge)]).collect();
    let report = run(&Scenario::ethernet(4, flows));
    let end = report.deliveries.iter().find(|arrival| arrival.from == 1);
    let end = since_start(end.expect("delivered").at);
    println!(
        "{:.1} ms, all after {:.1} ms",
        end * 1e3,
        seconds(&report) * 1e3
    );
    // At least one eighth of the wire, with a margin for headers and for the start.
    let wire = huge as f64 / 1.25e9;
    assert!(end < wire * 8.0 * 1.25, "{end} s");
    assert!(
        seconds(&report) > end * 1.2,
        "the small ones have to last longer"
    );
    assert_eq!(losses(&report), (0, 0));
}

/// Returns the goodput of one flow in bytes per second, with this random loss.
fn lossy_rate(loss: f64, socket_len: usize) -> f64 {
    let len = 32 * MB;
    let mut scenario = incast(1, Schedule::ShortestFirst, |_| len);
    (scenario.loss, scenario.socket_len) = (loss, socket_len);
    let report = run(&scenario);
    len as f64 / seconds(&report)
}

// P3.13
#[test]
fn random_loss_costs_little() {
    // With the default buffer, little more can be granted than is in flight. So the wire falls idle
    // briefly when the end of the granted bytes is lost.
    let (default, enlarged) = (212_992 / 2, 1 << 20);
    for (socket_len, least) in [(default, [0.85, 0.7]), (enlarged, [0.93, 0.85])] {
        let clean = lossy_rate(0.0, socket_len);
        for (loss, least) in [0.01, 0.05].into_iter().zip(least) {
            let share = lossy_rate(loss, socket_len) / clean;
            println!(
                "loss {loss}, {socket_len} B: {share:.3} of {:.2} GB/s",
                clean / 1e9
            );
            assert!(
                share >= least,
                "{share:.3} at a loss of {loss}, {socket_len} B"
            );
        }
    }
}

/// Runs independent flows of 32 MB to processes of one host.
fn shared_port(port_len: u64, congestion_control: bool, mark_len: Option<u64>) -> Report {
    let senders = 8;
    let flows = (0..senders).map(|index| flow(senders + index, index, 32 * MB));
    let mut scenario = Scenario::ethernet(2 * senders, flows.collect());
    let hosts = (0..senders).map(|_| 0).chain(1..=senders);
    scenario.hosts = hosts.collect();
    (scenario.port_len, scenario.mark_len) = (port_len, mark_len);
    // Enlarged, so that the buffer does not hold the senders back.
    scenario.socket_len = 4 << 20;
    scenario.limits.congestion_control = congestion_control;
    run(&scenario)
}

/// Returns the goodput of those flows, headers included, relative to the capacity of their wire.
fn share_of_wire(report: &Report) -> f64 {
    8.0 * 32e6 * (1538.0 / 1448.0) / 1.25e9 / seconds(report)
}

/// Returns Jain's fairness index over the completion times of the flows.
fn fairness(report: &Report) -> f64 {
    let rates = report
        .deliveries
        .iter()
        .map(|arrival| 1.0 / since_start(arrival.at));
    let (count, sum, squares) = rates.fold((0.0, 0.0, 0.0), |(count, sum, squares), rate| {
        (count + 1.0, sum + rate, squares + rate * rate)
    });
    sum * sum / (count * squares)
}

/// Returns the share of frames lost at the full port.
fn share_lost(report: &Report) -> f64 {
    losses(report).1 as f64 / report.frame_count as f64
}

fn check_shared(what: &str, report: &Report) {
    let (share, fair) = (share_of_wire(report), fairness(report));
    println!(
        "{what}: {share:.3} of the wire, loss {:.4}, fairness {fair:.3}, queue {} B at most, {} B on \
         average, {} marked",
        share_lost(report),
        report.switch_queue_len_max,
        report.switch_queue_len_mean,
        report.marked_count
    );
    assert!(share >= 0.8, "{what}: {share:.3} of the wire");
    assert!(fair >= 0.8, "{what}: fairness {fair:.3}");
}

// P3.13, P3.14
#[test]
fn senders_to_one_port_share_it_without_collapse() {
    for (port_len, loss_max) in [(256 << 10, 0.1), (2 << 20, 0.01)] {
        println!("{} KiB a port", port_len >> 10);
        let fixed = shared_port(port_len, false, None);
        println!("receivers alone: {:.3} of the wire", share_of_wire(&fixed));
        let own = shared_port(port_len, true, None);
        check_shared("delay and loss", &own);
        let loss = share_lost(&own);
        assert!(
            loss <= loss_max && loss <= share_lost(&fixed),
            "{loss:.4} lost"
        );
        // Threshold of RFC 8257, section 3.1, for 10 Gb/s.
        let marked = shared_port(port_len, true, Some(100 << 10));
        check_shared("marks as well", &marked);
        assert!(marked.marked_count > 0 && own.marked_count == 0);
        assert!(
            share_lost(&marked) <= loss,
            "{:.4} lost",
            share_lost(&marked)
        );
        let queues = (marked.switch_queue_len_mean, own.switch_queue_len_mean);
        assert!(queues.0 * 4 < queues.1 * 3, "queues of {queues:?} B");
    }
}

// P3.14
#[test]
fn many_senders_lose_nothing_where_the_switch_marks() {
    let single_rate = single_rate();
    for senders in [8, 64] {
        let mut scenario = incast(senders, Schedule::Fair, |_| 4 * MB);
        // Below what a receiver grants, otherwise no queue would ever reach it.
        scenario.mark_len = Some(30 << 10);
        let report = run(&scenario);
        let share = (senders as usize * 4 * MB) as f64 / seconds(&report) / single_rate;
        println!(
            "{senders} senders: {share:.3} of one stream, {} marked, {:?} lost",
            report.marked_count,
            losses(&report)
        );
        assert!(report.marked_count > 0);
        assert_eq!(losses(&report), (0, 0));
        assert!(share >= 0.8, "{share:.3} of the rate of one stream");
    }
}
