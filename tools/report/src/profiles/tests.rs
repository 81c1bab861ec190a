// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the charts of a synthetic profile.

use super::of_profile;
use crate::{Chart, Place};
use serde_json::{Value, json};

/// Returns a process that computes for half of 2 s and sends `bytes` to the next of `count`.
fn process(rank: u32, count: u32, bytes: u64) -> Value {
    let tally = |bytes: u64| json!({"count": u64::from(bytes > 0), "bytes": bytes});
    let kind = |kind: &str, seconds: f64| json!({"kind": kind, "calls": 1, "seconds": seconds, "bytes": 0});
    json!({
        "rank": rank, "host": "h", "pid": 1, "end": "finalized", "ended_in": null,
        "has_threads": false, "seconds": 2.0, "computing_s": 1.0,
        "kinds": [kind("Send", 0.25), kind("Recv", 0.75)], "calls": [],
        "peers": [{"rank": (rank + 1) % count, "sent": tally(bytes), "received": tally(0),
                   "one_sided": tally(0), "waited_s": 0.0}]
    })
}

pub(crate) fn profile(count: u32, bytes: u64) -> Value {
    let processes: Vec<Value> = (0..count).map(|rank| process(rank, count, bytes)).collect();
    json!({"format": "portolan-profile-1", "command": [], "notes": [], "worlds": [{
        "program": "/bin/ring", "library": "MPI", "process_count": count, "hosts": ["h"],
        "seconds": 2.0, "missing": [], "processes": processes,
        "sizes": {"messages": [], "one_sided": [], "of_collectives": []}
    }]})
}

#[test]
fn time_is_stacked_by_rank_and_bytes_are_a_heat_map() {
    let figures = of_profile(&profile(3, 1000)).unwrap();
    let [time, bytes] = figures.as_slice() else {
        panic!("{figures:?}")
    };
    let Chart::Stacks(stacks) = &time.chart else {
        panic!("{time:?}")
    };
    let kinds: Vec<&str> = stacks.kinds.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["computation", "Recv", "Send"]);
    assert_eq!(stacks.rows[2], ("2".to_owned(), vec![0.5, 0.375, 0.125]));
    assert_eq!(
        time.caption,
        "The processes compute 50 % of their time on average; Recv takes most of the rest, 38 %."
    );
    let Chart::Heat(heat) = &bytes.chart else {
        panic!("{bytes:?}")
    };
    let ring = [[0.0, 1000.0, 0.0], [0.0, 0.0, 1000.0], [1000.0, 0.0, 0.0]];
    assert_eq!(heat.cells, ring.map(Vec::from));
    for figure in &figures {
        for place in [Place::File, Place::Page, Place::Phone] {
            let svg = figure.chart.svg(place).unwrap();
            assert!(
                svg.contains(&format!("aria-label=\"{}\"", figure.chart.title())),
                "{svg}"
            );
        }
    }
}

#[test]
fn many_ranks_share_rows() {
    let figures = of_profile(&profile(200, 10)).unwrap();
    let Chart::Stacks(stacks) = &figures[0].chart else {
        panic!("{figures:?}")
    };
    assert_eq!(stacks.rows.len(), 29);
    assert_eq!(stacks.rows[0].0, "0–6");
    assert_eq!(stacks.rows[28].0, "196–199");
    let Chart::Heat(heat) = &figures[1].chart else {
        panic!("{figures:?}")
    };
    assert_eq!((heat.cells.len(), heat.names[49].as_str()), (50, "196–199"));
    let sum: f64 = heat.cells.iter().flatten().sum();
    assert!((sum - 2000.0).abs() < 1e-9, "{sum}");
}

#[test]
fn empty_profile_has_no_heat_map() {
    let figures = of_profile(&profile(2, 0)).unwrap();
    assert_eq!(figures.len(), 1);
    assert_eq!(of_profile(&profile(0, 0)).unwrap(), []);
    assert_eq!(of_profile(&json!({"format": "other"})), None);
    assert_eq!(of_profile(&json!({})), None);
}
