// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of answers, charts and tables with synthetic measurements.

use super::answers::{answers, beside};
use super::tables::tables;
use super::*;
use crate::{Chart, Material, figures, page};
use serde_json::{Value, json};

/// Returns size classes with these counts, of 7 bytes per message.
fn classes(counts: [u64; 6]) -> Value {
    let class = |count: u64| json!({"from": 0, "to": null, "count": count, "bytes": 7 * count});
    json!(counts.map(class))
}

/// Returns a run of `program` on `network`. Each process computes for 0.6 s of 0.8 s.
fn run(program: &str, network: Option<&str>, processes: u32, per_round: [f64; 3]) -> Value {
    let kind = |kind: &str, seconds: f64| json!({"kind": kind, "calls": 1, "seconds": seconds, "bytes": 0});
    let process = |rank: u32| {
        json!({
            "rank": rank, "host": "h", "pid": 1, "end": "finalized", "ended_in": null,
            "has_threads": false, "seconds": 0.8, "computing_s": 0.6,
            "kinds": [kind("Recv", 0.12), kind("Probe", 0.08)], "calls": [], "peers": []
        })
    };
    let all: Vec<Value> = (0..processes).map(process).collect();
    json!({
        "program": program, "network": network, "processes": processes,
        "seconds": per_round[1], "per_round": per_round,
        "world": {
            "program": "/bin/x", "library": "MPI", "process_count": processes, "hosts": ["h"],
            "seconds": 0.8, "missing": [], "processes": all,
            "sizes": {"messages": classes([1000, 0, 0, 0, 0, 2]), "one_sided": classes([0; 6]),
                      "of_collectives": classes([234, 0, 0, 5, 0, 0])}
        }
    })
}

pub(crate) fn measured() -> Npb {
    let runs = [
        run("IS", None, 1, [0.9, 1.0, 1.1]),
        run("IS", Some("portolan-packet"), 2, [0.59, 0.6, 0.61]),
        run("IS", Some("own-tcp"), 2, [0.89, 0.9, 0.91]),
        run("IS", Some("own-tcp"), 4, [0.39, 0.4, 0.41]),
        run("IS", Some("portolan-packet"), 4, [0.2, 0.25, 0.3]),
        run("EP", None, 1, [0.9, 1.0, 1.1]),
        run("EP", Some("own-tcp"), 4, [0.2, 0.25, 0.3]),
        run("EP", Some("portolan-packet"), 4, [0.21, 0.251, 0.31]),
    ];
    serde_json::from_value(json!({
        "format": NPB_FORMAT, "mpi": "Open MPI 4", "class": "W", "rounds": 3, "site": "lab",
        "runs": runs, "networks": null, "notes": ["one is missing"]
    }))
    .unwrap()
}

#[test]
fn answers_use_the_largest_process_count() {
    assert_eq!(
        answers(&measured()),
        [
            "On 4 processes the network between hosts hardly matters to EP.",
            "It matters on 4 processes: IS takes 1.60 times as long over the MPI's TCP as over Portolan, raw \
             Ethernet."
        ]
    );
    let rows = beside(&measured(), false);
    let found: Vec<_> = rows
        .iter()
        .map(|row| [row.program, &row.ours, &row.own, &row.verdict, &row.over])
        .collect();
    assert_eq!(
        found,
        [
            ["IS", "250 ms", "400 ms", "1.60", "Portolan, raw Ethernet"],
            ["EP", "251 ms", "250 ms", "alike", "Portolan, raw Ethernet"]
        ]
    );
    assert_eq!(beside(&measured(), true), []);
    let nothing = Npb {
        runs: Vec::new(),
        ..measured()
    };
    assert!(answers(&nothing).is_empty());
}

#[test]
fn tables_have_speed_ups_and_collective_counts() {
    let tables = tables(&measured());
    let now = |title: &str| {
        let found = tables.iter().find(|table| table.title.contains(title));
        found.unwrap_or_else(|| panic!("no {title}")).now.clone()
    };
    assert_eq!(now("Table 2")[0], ["IS, class\u{a0}W", "1 s"]);
    assert_eq!(
        now("Table 5"),
        [
            [
                "Portolan, raw Ethernet",
                "4.00",
                "–",
                "–",
                "–",
                "3.98",
                "–",
                "–",
                "–"
            ],
            [
                "the MPI's TCP",
                "2.50",
                "–",
                "–",
                "–",
                "4.00",
                "–",
                "–",
                "–"
            ]
        ]
    );
    assert_eq!(now("Table 4")[0][1..], ["1,234", "0", "0", "5", "0", "2"]);
    // 8687 bytes in 1241 messages, in 0.25 s with 4 processes.
    let volume = ["1,241", "0.009", "0.007", "0.009"];
    assert_eq!(now("Table 3")[0][1..], volume);
    assert_eq!(now("Figure 3")[0][1], "25 %");
}

#[test]
fn charts_show_speed_ups_and_time_by_kind() {
    let json = serde_json::to_value(measured()).unwrap();
    let figures = figures(&json).unwrap();
    let names: Vec<&str> = figures.iter().map(|figure| figure.name).collect();
    assert_eq!(
        names,
        [
            "npb-speed-up",
            "npb-speed-up-is",
            "npb-time-is",
            "npb-time-ep"
        ]
    );
    let Chart::Stacks(stacks) = &figures[2].chart else {
        panic!("{:?}", figures[2])
    };
    let kinds: Vec<&str> = stacks.kinds.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["computation", "Recv, Sendrecv", "others"]);
    let parts = stacks.rows[0].1.iter();
    let percent: Vec<String> = parts.map(|part| format!("{:.0}", part * 100.0)).collect();
    assert_eq!(percent, ["75", "15", "10"]);
}

/// Returns the measurements with the runs of IS on 4 processes again, over Fast Ethernet, in twice the
/// time.
fn shaped() -> Npb {
    let mut npb = measured();
    let on_four = |run: &&NpbRun| run.program == "IS" && run.processes == 4;
    let mut slow: Vec<NpbRun> = npb.runs.iter().filter(on_four).cloned().collect();
    for run in &mut slow {
        run.wire = Some(Wire::FastEthernet);
        run.seconds *= 2.0;
    }
    npb.runs.append(&mut slow);
    npb
}

#[test]
fn each_wire_has_its_own_answers_rows_and_charts() {
    let npb = shaped();
    let answers = answers(&npb);
    assert_eq!(answers.len(), 3, "{answers:?}");
    assert!(
        answers[2].starts_with("It matters on 4 processes with Fast Ethernet: IS takes 1.60 times")
    );
    let tables = tables(&npb);
    let speed_ups = tables.iter().find(|table| table.title.contains("Table 5"));
    let rows: Vec<[&str; 2]> = speed_ups
        .unwrap()
        .now
        .iter()
        .map(|row| [&row[0][..], &row[1]])
        .collect();
    assert_eq!(
        rows,
        [
            ["Portolan, raw Ethernet", "4.00"],
            ["the MPI's TCP", "2.50"],
            ["Portolan, raw Ethernet, Fast Ethernet", "2.00"],
            ["the MPI's TCP, Fast Ethernet", "1.25"]
        ]
    );
    let names: Vec<&str> = charts::figures(&npb)
        .iter()
        .map(|figure| figure.name)
        .collect();
    assert_eq!(
        names,
        [
            "npb-speed-up",
            "npb-speed-up-fast-ethernet",
            "npb-speed-up-is",
            "npb-time-is",
            "npb-time-ep"
        ]
    );
    // Unshaped wires are not written, so older results still are equal to new ones.
    let json = serde_json::to_value(&npb).unwrap();
    assert_eq!(json["runs"][0].get("wire"), None);
    let last = json["runs"].as_array().unwrap().last().unwrap();
    assert_eq!(last["wire"], "fast-ethernet");
}

#[test]
fn page_lists_missing_runs() {
    let page_of = |npb: Npb| {
        page(&Material {
            npbs: vec![npb],
            ..Material::default()
        })
    };
    let full = page_of(measured());
    assert!(full.contains("one is missing") && full.contains("Table 5"));
    let empty = page_of(Npb {
        runs: Vec::new(),
        ..measured()
    });
    assert!(empty.contains("No program of the benchmarks could be measured"));
    assert!(!empty.contains("Table 5"));
}
