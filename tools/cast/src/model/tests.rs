// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;

/// Returns the cost per byte at this many megabytes per second, with the processor's share of the
/// time.
fn at(megabytes: f64, share: f64) -> Cost {
    let seconds = 1e-6 / megabytes;
    Cost {
        seconds,
        cpu: share * seconds,
    }
}

/// Returns hosts on separate machines, with links of 1 Gb/s and disks of 500 MB/s.
fn cluster(count: u32) -> Vec<Rates> {
    let host = |rank: u32| Rates {
        machine: format!("m{rank}"),
        processors: 4.0,
        disk: Some(1),
        hash: at(2000.0, 1.0),
        read: Some(at(500.0, 0.2)),
        write: Some(at(500.0, 0.2)),
        send: Some(at(117.0, 0.1)),
        receive: Some(at(117.0, 0.1)),
    };
    (0..count).map(host).collect()
}

fn model(rates: &[Rates], size: u64) -> Model<'_> {
    Model {
        rates,
        size: Some(size),
        limit: None,
        multicast: false,
    }
}

fn close(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-9
}

#[test]
fn chain_has_the_rate_of_a_link_and_tree_shares_it() {
    let rates = cluster(9);
    let model = model(&rates, 1 << 30);
    for (degree, rate) in [(1, 117e6), (2, 117e6 / 2.0), (8, 117e6 / 8.0)] {
        let predicted = model.predict(Form::Tree(degree));
        assert!(close(predicted.bytes_per_sec, rate), "{predicted:?}");
        assert!(matches!(predicted.bound, Resource::Out(0)), "{predicted:?}");
    }
    assert_eq!(model.choose().form, Form::CHAIN);
}

#[test]
fn small_cast_to_many_hosts_uses_a_tree() {
    let rates = cluster(65);
    // A thousandth of the data that suits a chain: its path length dominates the time.
    let chosen = model(&rates, 1 << 20).choose();
    assert!(chosen.form != Form::CHAIN, "{chosen:?}");
    let chain = model(&rates, 1 << 20).predict(Form::CHAIN);
    assert!(chosen.seconds.unwrap() < chain.seconds.unwrap() / 2.0);
    assert_eq!(model(&rates, 1 << 34).choose().form, Form::CHAIN);
    // A source of unknown size.
    let endless = Model {
        size: None,
        ..model(&rates, 0)
    };
    assert_eq!(endless.choose().form, Form::CHAIN);
    assert_eq!(endless.predict(Form::CHAIN).seconds, None);
}

#[test]
fn slowest_resource_is_named() {
    let mut rates = cluster(4);
    rates[2].write = Some(at(40.0, 0.1));
    let hosts: Vec<String> = (0..4).map(|rank| format!("n{rank}")).collect();
    let predicted = model(&rates, 1 << 30).predict(Form::CHAIN);
    assert!(close(predicted.bytes_per_sec, 40e6), "{predicted:?}");
    assert_eq!(predicted.bound.describe(&hosts), "storing on n2");
    rates[2].write = Some(at(500.0, 0.1));
    rates[0].read = Some(at(60.0, 0.1));
    let predicted = model(&rates, 1 << 30).predict(Form::CHAIN);
    assert_eq!(predicted.bound, Resource::Reader);
    assert!(predicted.bytes_per_sec < 60e6);
    let limited = Model {
        limit: Some(1e6),
        ..model(&rates, 1 << 20)
    };
    assert_eq!(limited.predict(Form::CHAIN).bound, Resource::Limit);
}

#[test]
fn hosts_of_one_machine_share_its_processors_and_disk() {
    let mut rates = cluster(9);
    for host in &mut rates {
        host.machine = "lab".into();
        host.processors = 2.0;
        // Memory instead of a network; the whole cost is the processor's.
        host.send = Some(at(2000.0, 1.0));
        host.receive = Some(at(2000.0, 1.0));
        host.read = Some(at(4000.0, 1.0));
        host.write = Some(at(4000.0, 1.0));
    }
    let predicted = model(&rates, 1 << 30).predict(Form::CHAIN);
    assert_eq!(predicted.bound, Resource::Processors(0));
    // 8 sends, 8 receives, 9 files and 9 hashes in nanoseconds per byte, on two cores.
    let expected = 2.0 / ((16.0 * 0.5 + 9.0 * 0.25 + 9.0 * 0.5) * 1e-9);
    assert!(close(predicted.bytes_per_sec, expected), "{predicted:?}");
    for host in &mut rates {
        host.write = Some(at(400.0, 0.0));
        host.read = None;
    }
    let predicted = model(&rates, 1 << 30).predict(Form::CHAIN);
    assert_eq!(predicted.bound, Resource::Disk(0));
    assert!(close(predicted.bytes_per_sec, 400e6 / 8.0), "{predicted:?}");
}

/// Table 4 of the paper. The paper gives rates without costs. The processor's cost per byte without
/// copies, and the cost of the copies, follow from two of the three rates. The third confirms the
/// model: the link speed does not matter.
#[test]
fn faster_wire_does_not_help_if_the_processor_is_the_bottleneck() {
    let rate = |wire: f64, copies: f64| {
        let cost = |cpu: f64| Cost {
            seconds: 1e-6 / wire,
            cpu: cpu * 1e-9,
        };
        let host = |rank: u32| Rates {
            machine: rank.to_string(),
            processors: 1.0,
            disk: None,
            hash: at(1e9, 1.0),
            read: None,
            write: Some(at(1e3 / 45.9, 1.0)),
            send: Some(cost(7.4 * copies)),
            receive: Some(cost(14.7 * copies)),
        };
        let rates: Vec<Rates> = (0..5).map(host).collect();
        let predicted = model(&rates, 1 << 30).predict(Form::CHAIN);
        assert!(
            matches!(predicted.bound, Resource::Processors(_)),
            "{predicted:?}"
        );
        (predicted.bytes_per_sec / 1e5).round() / 10.0
    };
    // TCP payload rates of 100 Mb/s and 1 Gb/s links.
    assert_eq!(
        [rate(11.8, 2.0), rate(118.0, 2.0), rate(118.0, 1.0)],
        [11.1, 11.1, 14.7]
    );
}

#[test]
fn multicast_sends_once_in_one_hop() {
    let rates = cluster(65);
    let all = |size| Model {
        multicast: true,
        ..model(&rates, size)
    };
    let predicted = all(1 << 30).predict(Form::Multicast);
    assert!(close(predicted.bytes_per_sec, 117e6), "{predicted:?}");
    // Little data is sent by multicast, and much data by a chain, which is then hardly slower.
    assert_eq!(all(1 << 20).choose().form, Form::Multicast);
    assert_eq!(all(1 << 34).choose().form, Form::CHAIN);
    let compared = model(&rates, 1 << 20).compare();
    assert!(compared.iter().all(|it| it.form != Form::Multicast));
}
