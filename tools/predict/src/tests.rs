// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with programs small enough to replay by hand.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

/// Returns a network with o_s 1 µs, L 5 µs, o_r 2 µs, g 3 µs, 10 ns per byte, and an eager limit of
/// 1000 bytes.
fn network() -> Network {
    Network {
        name: "a network".into(),
        source: "this test".into(),
        points: vec![Point {
            bytes: 1,
            l_us: 5.0,
            os_us: 1.0,
            or_us: 2.0,
            g_us: 3.0,
        }],
        ns_per_byte: 10.0,
        eager_max: 1000,
        progress: Progress::Calls,
    }
}

/// Returns a network without any cost.
fn ideal() -> Network {
    Network {
        points: vec![Point {
            bytes: 1,
            ..Point::default()
        }],
        ns_per_byte: 0.0,
        ..network()
    }
}

const WORLD: Matching = Matching { group: 1, tag: 7 };

/// Builder of a process, call by call.
#[derive(Default)]
struct Script {
    events: Vec<Event>,
    now_ns: u64,
}

impl Script {
    fn compute(mut self, us: u64) -> Script {
        self.now_ns += us * 1000;
        self
    }

    /// Adds a call. Its recorded duration of 1 µs does not matter.
    fn call(mut self, actions: &[Action]) -> Script {
        let (start_ns, end_ns) = (self.now_ns, self.now_ns + 1000);
        let event = |action: &Action| Event {
            start_ns,
            end_ns,
            action: *action,
        };
        self.events.extend(actions.iter().map(event));
        self.now_ns = end_ns;
        self
    }

    fn send(self, to: usize, bytes: u64) -> Script {
        self.call(&[Action::Send {
            to,
            matching: WORLD,
            bytes,
            request: None,
        }])
    }

    fn isend(self, to: usize, bytes: u64, request: u32) -> Script {
        self.call(&[Action::Send {
            to,
            matching: WORLD,
            bytes,
            request: Some(request),
        }])
    }

    fn receive(self, from: usize) -> Script {
        self.call(&[Action::Receive(Received {
            from,
            matching: WORLD,
        })])
    }

    fn post(self, request: u32) -> Script {
        self.call(&[Action::Post { request }])
    }

    fn complete(self, request: u32, from: Option<usize>) -> Script {
        let received = from.map(|from| Received {
            from,
            matching: WORLD,
        });
        self.call(&[Action::Complete { request, received }])
    }

    fn collective(self, shape: Shape, members: usize, bytes: u64) -> Script {
        let root = Some(0);
        self.call(&[Action::Collective {
            shape,
            group: 1,
            members,
            root,
            bytes,
            request: None,
        }])
    }
}

fn script() -> Script {
    Script::default()
}

fn trace(scripts: impl IntoIterator<Item = Script>) -> Trace {
    let process = |script: Script| Process {
        events: script.events,
        end_ns: script.now_ns,
    };
    Trace {
        processes: scripts.into_iter().map(process).collect(),
    }
}

fn predict(trace: &Trace, network: &Network) -> Prediction {
    let replayer = Replayer::new(trace).unwrap();
    let hosts = replayer.process_count();
    replayer.predict(network, &ideal(), hosts).unwrap()
}

/// Returns the predicted microseconds with one process per host.
fn takes_us(scripts: impl IntoIterator<Item = Script>, network: &Network) -> f64 {
    predict(&trace(scripts), network).seconds * 1e6
}

fn assert_close(value: f64, expected: f64) {
    assert!(
        (value - expected).abs() < 1e-6,
        "{value}, expected {expected}"
    );
}

#[test]
fn message_takes_overheads_and_latency() {
    let scripts = [script().compute(10).send(1, 1), script().receive(0)];
    assert_close(takes_us(scripts, &network()), 10.0 + 1.0 + 5.0 + 2.0);
}

#[test]
fn ping_pong_takes_one_delay_per_message() {
    let (mut one, mut other) = (script(), script());
    for _ in 0..10 {
        one = one.send(1, 1).receive(1);
        other = other.receive(0).send(0, 1);
    }
    assert_close(takes_us([one, other], &network()), 20.0 * 8.0);
}

#[test]
fn arrived_message_costs_only_overhead() {
    let scripts = [script().send(1, 1), script().compute(100).receive(0)];
    assert_close(takes_us(scripts, &network()), 102.0);
}

#[test]
fn consecutive_messages_are_one_gap_apart() {
    let scripts = [
        script().send(1, 1).send(1, 1),
        script().receive(0).receive(0),
    ];
    // They arrive at 6, and at 3 + 1 + 5.
    assert_close(takes_us(scripts, &network()), 9.0 + 2.0);
}

#[test]
fn messages_of_two_senders_are_one_gap_apart_at_the_receiver() {
    let scripts = [
        script().receive(1).receive(2),
        script().send(0, 1),
        script().send(0, 1),
    ];
    // They arrive at 6, and 3 after that.
    assert_close(takes_us(scripts, &network()), 9.0 + 2.0);
}

#[test]
fn rendezvous_waits_for_the_receive() {
    let long = 2001;
    // 20 µs for the 2000 bytes beyond the first.
    let delay_us = 8.0 + 20.0;
    let scripts = [script().send(1, long), script().receive(0)];
    assert_close(takes_us(scripts, &network()), delay_us);
    // Requested late: granted at 100, which takes 8; then 1 + (25 - 6 - 8) + 2.
    let scripts = [script().send(1, long), script().compute(100).receive(0)];
    assert_close(takes_us(scripts, &network()), 108.0 + 14.0);
}

#[test]
fn rendezvous_without_progress_waits_for_calls_at_both_ends() {
    let scripts = || {
        [
            script().isend(1, 2001, 1).compute(300).complete(1, None),
            script().post(1).compute(100).complete(1, Some(0)),
        ]
    };
    // Announced at 6, noticed at 100, granted at 108, noticed by the sender at 301.
    assert_close(takes_us(scripts(), &network()), 301.0 + 14.0);
    let by_itself = Network {
        progress: Progress::Always,
        ..network()
    };
    // The whole transfer happens while both compute. The sender's 1 + 300 is the longest.
    assert_close(takes_us(scripts(), &by_itself), 301.0);
}

#[test]
fn receives_match_sends_in_posted_order() {
    // The receiver completes its second receive first; the first message is the late one.
    let scripts = [
        script().compute(50).send(1, 1).send(1, 1),
        script()
            .post(1)
            .post(2)
            .complete(2, Some(0))
            .complete(1, Some(0)),
    ];
    // The second message arrives at 50 + 3 + 6; then the work of the first follows.
    assert_close(takes_us(scripts, &network()), 59.0 + 2.0 + 2.0);
}

#[test]
fn sendrecv_transfers_both_directions_at_once() {
    let exchange = |other| {
        let matching = WORLD;
        script().call(&[
            Action::Send {
                to: other,
                matching,
                bytes: 1,
                request: None,
            },
            Action::Receive(Received {
                from: other,
                matching,
            }),
        ])
    };
    assert_close(takes_us([exchange(1), exchange(0)], &network()), 8.0);
}

#[test]
fn barrier_waits_for_the_last_process() {
    let scripts = [
        script().compute(100).collective(Shape::Barrier, 2, 0),
        script().collective(Shape::Barrier, 2, 0),
    ];
    let prediction = predict(&trace(scripts), &network());
    assert_close(prediction.seconds * 1e6, 108.0);
    assert_close(prediction.imbalance_s * 1e6, 50.0);
    assert_eq!(prediction.bound, Bound::Imbalance);
}

#[test]
fn collective_operations_of_other_groups_do_not_match() {
    let collective = |group| Action::Collective {
        shape: Shape::Barrier,
        group,
        members: 2,
        root: None,
        bytes: 0,
        request: None,
    };
    let scripts = [
        script().call(&[collective(1)]),
        script().call(&[collective(1)]).call(&[collective(2)]),
        script().compute(40).call(&[collective(2)]),
    ];
    assert_close(takes_us(scripts, &network()), 48.0);
}

#[test]
fn broadcast_has_the_root_length_and_ibcast_completes_its_request() {
    let long = 200;
    let broadcast = |bytes, request| Action::Collective {
        shape: Shape::Broadcast,
        group: 1,
        members: 2,
        root: Some(1),
        bytes,
        request,
    };
    let scripts = [
        script().call(&[broadcast(0, Some(3))]).complete(3, None),
        script().call(&[broadcast(long, None)]),
    ];
    assert_close(takes_us(scripts, &network()), 8.0 + 1.99);
}

#[test]
fn one_sided_operations_complete_at_the_fence() {
    let fence = |script: Script| script.call(&[Action::Fence]);
    let remote = Action::Remote {
        to: 1,
        bytes: 1,
        returns: false,
    };
    let scripts = [fence(script().call(&[remote])), fence(script())];
    // Arrived and processed after 8, acknowledged after 16, and the barrier's 8.
    assert_close(takes_us(scripts, &network()), 24.0);
    let remote = Action::Remote {
        to: 1,
        bytes: 1,
        returns: true,
    };
    let scripts = [script().call(&[remote]).call(&[Action::Flush]), script()];
    // Requested at 6, returned at 12, and the work.
    assert_close(takes_us(scripts, &network()), 14.0);
}

#[test]
fn local_processes_use_shared_memory() {
    let scripts = [
        script().send(1, 1),
        script().receive(0).send(2, 1),
        script().receive(1),
        script(),
    ];
    let replayer = Replayer::new(&trace(scripts)).unwrap();
    let on = |hosts| {
        replayer
            .predict(&network(), &ideal(), hosts)
            .unwrap()
            .seconds
            * 1e6
    };
    assert_close(on(4), 16.0);
    assert_close(on(2), 8.0);
    assert_close(on(1), 0.0);
}

#[test]
fn bottleneck_is_the_largest_saving() {
    let exchange = |bytes, times| {
        let (mut one, mut other) = (script().compute(1), script().compute(1));
        for _ in 0..times {
            one = one.send(1, bytes).receive(1);
            other = other.receive(0).send(0, bytes);
        }
        predict(&trace([one, other]), &network()).bound
    };
    assert_eq!(exchange(1, 10), Bound::Latency);
    assert_eq!(exchange(900, 10), Bound::Bandwidth);
    let (mut one, mut other) = (script(), script());
    for _ in 0..100 {
        one = one.send(1, 1);
        other = other.receive(0);
    }
    assert_eq!(predict(&trace([one, other]), &network()).bound, Bound::Rate);
    let scripts = [
        script().compute(1000).send(1, 1),
        script().compute(1000).receive(0),
    ];
    let prediction = predict(&trace(scripts), &network());
    assert_eq!(prediction.bound, Bound::Computing);
    assert!((1.9..2.0).contains(&prediction.speedup), "{prediction:?}");
}

#[test]
fn smallest_sufficient_network_is_within_five_percent_of_the_best() {
    let scripts = [
        script().compute(1000).send(1, 1),
        script().compute(1000).receive(0),
    ];
    let trace = trace(scripts);
    let slow = Network {
        name: "slow".into(),
        ..with_latency(500.0)
    };
    let middle = Network {
        name: "middle".into(),
        ..with_latency(40.0)
    };
    let fast = Network {
        name: "fast".into(),
        ..with_latency(1.0)
    };
    let predictions = [slow, middle, fast].map(|network| predict(&trace, &network));
    assert_eq!(smallest_sufficient(&predictions).unwrap().network, "middle");
    assert_eq!(smallest_sufficient(&[]), None);
}

fn with_latency(l_us: f64) -> Network {
    let mut network = network();
    network.points[0].l_us = l_us;
    network
}

#[test]
fn unmatched_messages_are_counted_and_do_not_block() {
    let scripts = [script().send(1, 5000), script().receive(2), script()];
    let replayer = Replayer::new(&trace(scripts)).unwrap();
    assert_eq!(replayer.unmatched_count(), 2);
    assert!(replayer.predict(&network(), &ideal(), 3).is_ok());
}

#[test]
fn sends_that_rely_on_buffering_are_reported() {
    let scripts = [
        script().send(1, 900).receive(1),
        script().send(0, 900).receive(0),
    ];
    let replayer = Replayer::new(&trace(scripts)).unwrap();
    assert!(replayer.predict(&network(), &ideal(), 2).is_ok());
    let rendezvous = Network {
        eager_max: 100,
        ..network()
    };
    let stuck = replayer.predict(&rendezvous, &ideal(), 2);
    assert_eq!(
        stuck,
        Err(TraceError::Stuck {
            process: 0,
            other: 1
        })
    );
}

#[test]
fn invalid_traces_are_rejected() {
    assert_eq!(
        Replayer::new(&Trace::default()).unwrap_err(),
        TraceError::Empty
    );
    let scripts = [script().send(5, 1), script()];
    let named = TraceError::Process {
        process: 0,
        named: 5,
        count: 2,
    };
    assert_eq!(Replayer::new(&trace(scripts)).unwrap_err(), named);
    let mut backwards = trace([script().compute(5).send(0, 1).send(0, 1)]);
    backwards.processes[0].events[1].start_ns = 5500;
    let times = TraceError::Times {
        process: 0,
        event: 1,
    };
    assert_eq!(Replayer::new(&backwards).unwrap_err(), times);
    let mut endless = trace([script().send(0, 1)]);
    endless.processes[0].end_ns = 10;
    let times = TraceError::Times {
        process: 0,
        event: 0,
    };
    assert_eq!(Replayer::new(&endless).unwrap_err(), times);
}

#[test]
fn parameters_are_interpolated_between_measured_lengths() {
    let mut network = network();
    network.points.push(Point {
        bytes: 101,
        l_us: 15.0,
        os_us: 3.0,
        or_us: 4.0,
        g_us: 13.0,
    });
    let half = network.at(51);
    assert_eq!(
        (half.l_us, half.os_us, half.or_us, half.g_us),
        (10.0, 2.0, 3.0, 8.0)
    );
    assert_eq!(network.at(0).l_us, 5.0);
    let beyond = network.at(1101);
    assert_close(beyond.l_us, 25.0);
    assert_close(beyond.g_us, 23.0);
    assert_close(beyond.os_us, 3.0);
}

#[test]
fn invalid_networks_are_rejected() {
    let check = |change: fn(&mut Network)| {
        let mut network = network();
        change(&mut network);
        network.check()
    };
    assert_eq!(check(|_| {}), Ok(()));
    let none = check(|network| network.points.clear());
    assert_eq!(none, Err(NetworkError::NoPoints("a network".into())));
    let order = check(|network| network.points.push(Point::default()));
    assert_eq!(order, Err(NetworkError::Order("a network".into())));
    for change in [
        (|network| network.points[0].g_us = -1.0) as fn(&mut Network),
        |network| network.points[0].os_us = f64::NAN,
        |network| network.points[0].l_us = -3.5,
        |network| network.ns_per_byte = f64::INFINITY,
    ] {
        assert_eq!(check(change), Err(NetworkError::Time("a network".into())));
    }
    assert_eq!(check(|network| network.points[0].l_us = -2.5), Ok(()));
}

#[test]
fn networks_of_the_paper_have_its_times() {
    let networks = of_the_paper();
    for (network, (latency_us, mbytes_per_s)) in
        networks
            .iter()
            .zip([(57.0, 10.5), (40.0, 11.2), (7.92, 98.28), (9.33, 108.44)])
    {
        assert_eq!(network.check(), Ok(()));
        assert_close(network.at(1).delay_us(), latency_us);
        assert_close(31_487.0 / network.at(31_487).delay_us(), mbytes_per_s);
    }
}

#[test]
fn slower_wire_bounds_bandwidth_and_adds_latency() {
    let software = network();
    let gigabit = software.over_wire(1.0);
    assert_eq!(gigabit.check(), Ok(()));
    // A message of one byte is a frame of 91 bytes.
    assert_close(gigabit.at(1).delay_us(), 8.0 + 91.0 * 8.0 / 1e3);
    assert_close(gigabit.at(1).g_us, 3.0);
    // The software is slower: 10 ns per byte compared with 8.5.
    assert_close(gigabit.ns_per_byte, 10.0);
    let fast_ethernet = software.over_wire(0.1);
    assert_close(fast_ethernet.ns_per_byte, 1538.0 / 1448.0 * 80.0);
    let megabyte = fast_ethernet.at(1 << 20);
    assert!(
        (megabyte.g_us - 1.0486e6 * 1.0622 * 0.08).abs() < 100.0,
        "{megabyte:?}"
    );
}
