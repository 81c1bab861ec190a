// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of charts and pages of small reports: well-formed, reproducible and complete.

mod browser;

use super::*;
use serde_json::json;

pub(crate) fn row(system: &str, path: &str, metric: &str, size: u64, extra: &Value) -> Value {
    let us = if system == "portolan" { 3.0 } else { 6.0 } + size as f64 / 1000.0;
    let mut row = json!({
        "system": system, "path": path, "metric": metric, "size": size, "iterations": 9,
        "p50_us": us, "p99_us": 90.0, "mean_us": 12.0, "mbytes_per_s": 1234.5,
        "msgs_per_s": 1000.0, "per_round": [us, us * 1.01, us * 1.02]
    });
    if let (Some(row), Some(extra)) = (row.as_object_mut(), extra.as_object()) {
        row.extend(extra.clone());
    }
    row
}

pub(crate) fn report(results: Vec<Value>) -> Value {
    json!({"schema": 1, "results": results, "machine": {
        "kernel": "6.18", "cpu": "one", "cores": 2, "pinned": [0, 1], "hypervisor": "none",
        "date": "2026-01-02T03:04:05Z", "portolan": "0.1.0", "mtu": 9000, "site": "lab",
        "rounds": 3, "clock": "a clock", "environment": {"command": ["portolan", "bench"]}
    }})
}

fn full() -> Value {
    let cpu = json!({"cpu": {"sender_s_per_gb": 0.3, "receiver_s_per_gb": 0.4}});
    let none = json!({});
    let mut rows = Vec::new();
    for size in [0, 1, 64, 65536] {
        for (system, path) in [
            ("portolan", "packet"),
            ("limit", "packet"),
            ("tcp", "packet"),
            ("portolan", "udp"),
            ("tcp", "udp"),
            ("portolan", "shm"),
            ("tcp", "shm"),
        ] {
            rows.push(row(system, path, "half_rtt", size, &none));
        }
    }
    for ppm in [0, 10_000, 50_000] {
        let lost = json!({"loss_ppm": ppm, "cpu": cpu["cpu"]});
        rows.push(row("portolan", "udp", "stream", 1 << 20, &lost));
        rows.push(row("tcp", "udp", "stream", 1 << 20, &lost));
    }
    rows.push(row(
        "portolan",
        "udp",
        "stream",
        1 << 20,
        &json!({"placement": "speculative"}),
    ));
    rows.push(row("portolan", "udp", "bidir", 1 << 20, &none));
    rows.push(row("portolan", "udp", "rate", 8, &none));
    rows.push(row("tcp", "udp", "rate", 8, &none));
    let idle = json!({"idle": {"p50_us": 3.0, "p99_us": 9.0}});
    rows.push(row("portolan", "udp", "loaded", 64, &idle));
    rows.push(row(
        "portolan",
        "udp",
        "incast",
        4 << 20,
        &json!({"single_mbytes_per_s": 1500.0}),
    ));
    let logp = json!({"logp": {"l_us": -0.1, "os_us": 2.0, "or_us": 1.0, "g_us": 0.2}});
    for (system, path) in [
        ("portolan", "packet"),
        ("tcp", "packet"),
        ("tcp", "udp"),
        ("limit", "packet"),
        ("gm", "shm"),
        ("gm+", "shm"),
        ("bip", "packet"),
    ] {
        rows.push(row(system, path, "logp", 8, &logp));
    }
    report(rows)
}

fn of(reports: Vec<Report>) -> Material {
    Material {
        reports,
        ..Material::default()
    }
}

fn draw(json: &Value) -> Vec<(&'static str, String)> {
    let figures = figures(json).expect("a report");
    let svg = |figure: &Figure| figure.chart.svg(Place::File).expect("drawn");
    figures
        .iter()
        .map(|figure| (figure.name, svg(figure)))
        .collect()
}

/// Checks that elements are closed in order and that text is escaped.
fn assert_well_formed(text: &str) {
    const VOID: [&str; 2] = ["meta", "!DOCTYPE"];
    let mut open = Vec::new();
    for tag in text.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').expect("a tag ends");
        assert!(
            !text.contains('>') || open.contains(&"style") || tag == "style",
            "{text}"
        );
        let name = tag
            .trim_start_matches('/')
            .split([' ', '\n', '/'])
            .next()
            .expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed in order");
        } else if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
    }
    assert!(open.is_empty(), "not closed: {open:?}");
}

#[test]
fn full_report_has_all_charts_well_formed() {
    let charts = draw(&full());
    let names: Vec<_> = charts.iter().map(|(name, _)| *name).collect();
    let all = [
        "latency",
        "advantage",
        "end-to-end",
        "loss",
        "stream",
        "cpu",
        "rate",
        "loaded",
        "incast",
    ];
    assert_eq!(names, all);
    for (name, svg) in &charts {
        assert!(
            svg.starts_with("<svg") && svg.contains("MTU 9000"),
            "{name}"
        );
        assert_well_formed(svg);
    }
}

#[test]
fn system_has_one_line_on_several_paths() {
    let latency = &draw(&full())[0].1;
    assert_eq!(latency.matches("\nTCP\n").count(), 1, "{latency}");
    let loss = &draw(&full())[3].1;
    assert_eq!(loss.matches("\nPortolan, UDP\n").count(), 1);
    assert!(loss.contains("packets lost"), "{loss}");
}

#[test]
fn output_is_deterministic() {
    assert_eq!(draw(&full()), draw(&full()));
}

#[test]
fn model_is_drawn_beside_the_measurement() {
    let row = |len: u64| {
        json!({"path": "udp", "len": len, "variant": "usual", "kind": "lone", "predicted_us": 5.0,
            "measured_us": 6.0, "error": 0.1, "fitted": true})
    };
    let pair = json!({"predicted_us": 1.0, "measured_us": 2.0});
    let pieces = |len: u64| json!({"len": len, "lone_whole": pair, "lone_pieces": pair});
    let json = json!({"rows": [row(64), row(4096)], "pieces": [pieces(64), pieces(128)]});
    let charts = draw(&json);
    let names: Vec<_> = charts.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["model", "pieces-lone"]);
    assert!(charts[0].1.contains("udp, predicted") && charts[0].1.contains("udp, measured"));
}

#[test]
fn names_from_the_file_are_escaped() {
    let evil = |size| row("<script>\"&", "udp", "half_rtt", size, &json!({}));
    let json = report(vec![evil(1), evil(64)]);
    for (_, svg) in draw(&json) {
        assert_well_formed(&svg);
        assert!(!svg.contains("<script"));
    }
    let report: Report = serde_json::from_value(json).expect("a report");
    assert!(!page(&of(vec![report])).contains("<script"));
}

#[test]
fn page_is_self_contained_and_starts_with_the_answer() {
    let report: Report = serde_json::from_value(full()).expect("a report");
    let page = page(&of(vec![report.clone(), report])).replace('\u{a0}', " ");
    assert_well_formed(&page);
    for foreign in ["http:", "https:", "<script", "@import", "url("] {
        let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!elsewhere.contains(foreign), "{foreign}");
    }
    let answer = page
        .find("A message of 1 B between two hosts takes")
        .expect("the answer");
    assert!(answer < page.find("Then and now").expect("the tables"));
    assert!(page.contains("2 times faster than TCP"), "{page}");
    for printed in ["9.5 µs", "18.23 µs", "108.44 MB/s"] {
        assert!(page.contains(printed), "{printed}");
    }
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("var(--system-0)"));
}

#[test]
fn each_mpi_has_its_own_charts() {
    let mut rows = Vec::new();
    for size in [8, 1024] {
        for path in ["packet", "udp", "shm"] {
            for system in ["portolan", "openmpi-portolan", "openmpi"] {
                rows.push(row(system, path, "half_rtt", size, &json!({})));
            }
        }
        rows.push(row("mpich", "udp", "stream", size, &json!({})));
    }
    let figures = figures(&report(rows)).expect("a report");
    let lines = |name: &str| {
        let figure = figures.iter().find(|figure| figure.name == name);
        match &figure.unwrap_or_else(|| panic!("{name}")).chart {
            Chart::Lines(chart) => chart
                .lines
                .iter()
                .map(|line| line.name.clone())
                .collect::<Vec<_>>(),
            Chart::Bars(_) | Chart::Stacks(_) | Chart::Heat(_) => panic!("lines are expected"),
        }
    };
    let over = ["Portolan, raw Ethernet", "its TCP", "Portolan, UDP"];
    let within = ["Portolan, shared memory", "its shared memory"];
    assert_eq!(lines("openmpi-latency"), [&over[..], &within].concat());
    assert_eq!(lines("mpich-stream"), ["its TCP"]);
    let native: Vec<String> = lines("latency");
    assert_eq!(native, [over[0], over[2], within[0]]);
}

#[test]
fn casts_have_a_line_per_system_with_medians() {
    let cast = |system: &str, hosts: u32, rate: f64| json!({"system": system, "hosts": hosts, "mbytes_per_s": rate});
    let casts = json!([
        cast("portolan chain", 8, 90.0),
        cast("portolan chain", 1, 118.0),
        cast("portolan chain", 8, 110.0),
        cast("portolan chain", 8, 112.0),
        cast("udpcast", 4, 52.0),
    ]);
    let json = json!({"work": "256 MB", "wire_mbytes_per_s": 125, "casts": casts});
    let figures = figures(&json).expect("casts");
    let Chart::Lines(chart) = &figures[0].chart else {
        panic!("{figures:?}");
    };
    assert_eq!(chart.lines[0].points, [(1.0, 118.0), (8.0, 110.0)]);
    assert_eq!(chart.lines[1].points, [(4.0, 52.0)]);
    let caption = &figures[0].caption;
    assert!(
        caption.starts_with("portolan chain: 110 MB/s to 8 hosts. udpcast"),
        "{caption}"
    );
    let svg = figures[0].chart.svg(Place::File).expect("drawn");
    assert_well_formed(&svg);
    for word in ["256 MB", "\n1\n", "\n2\n", "\n4\n", "\n8\n", "the wire"] {
        assert!(svg.contains(word), "{word}");
    }
}

#[test]
fn logp_table_has_all_systems_once() {
    let report: Report = serde_json::from_value(full()).expect("a report");
    let tables = papers::tables(&data::Data { report: &report });
    let logp = tables.iter().find(|table| table.title == "LogP at 8 B");
    let names: Vec<&str> = logp
        .expect("a table")
        .now
        .iter()
        .map(|row| row[0].as_str())
        .collect();
    let all = [
        "Portolan over raw Ethernet",
        "TCP",
        "limit of raw Ethernet",
        "GM over shared memory",
        "GM+ over shared memory",
        "BIP over raw Ethernet",
    ];
    assert_eq!(names, all);
}

#[test]
fn casts_with_a_prediction_are_listed_below_table_4() {
    let cast = |system: &str, hosts: u32, predicted: &Value| {
        json!({
            "system": system,
            "hosts": hosts,
            "mbytes_per_s": 115.0,
            "predicted_mbytes_per_s": predicted,
        })
    };
    let casts = json!({"work": "256 MB", "casts": [
        cast("portolan copied", 4, &json!(116.0)),
        cast("portolan copied", 1, &json!(120.0)),
        cast("portolan placed", 4, &json!(117.0)),
        cast("udpcast", 4, &Value::Null),
    ]});
    let table = casts::chain(&casts).expect("predictions");
    let now = [
        ["portolan copied, 4 hosts", "116 MB/s", "115 MB/s"],
        ["portolan placed, 4 hosts", "117 MB/s", "115 MB/s"],
    ];
    assert_eq!(table.now, now);
    let material = Material {
        casts: vec![casts],
        ..Material::default()
    };
    let page = page(&material);
    assert_well_formed(&page);
    assert!(page.contains("11.1") && page.contains("portolan placed"));
    assert_eq!(casts::chain(&json!({"casts": []})), None);
}

#[test]
fn empty_report_is_stated_on_the_page() {
    let report: Report = serde_json::from_value(report(vec![])).expect("a report");
    let page = page(&of(vec![report]));
    assert_well_formed(&page);
    assert!(page.contains("portolan report --run"));
    assert_eq!(figures(&json!({"a": 1})), None);
}

/// Returns a report in which rows with loss or interference have shorter messages than the longest
/// stream.
fn disturbed() -> Report {
    let placed = |right: u64, wrong: u64| json!({"receiver: frames placed": right, "receiver: frames misplaced": wrong});
    let stream = |size: u64, extra: &Value| row("portolan", "udp", "stream", size, extra);
    let short = 1 << 20;
    let mut rows = vec![
        stream(4 << 20, &json!({})),
        row("limit", "udp", "stream", 4 << 20, &json!({})),
        stream(short, &json!({})),
        stream(short, &json!({"loss_ppm": 10_000})),
        stream(short, &json!({"placement": "bounce"})),
        stream(
            short,
            &json!({"placement": "speculative", "counters": placed(999, 1)}),
        ),
        stream(
            short,
            &json!({"placement": "speculative", "interfere": 10, "counters": placed(90, 10)}),
        ),
    ];
    let counters = json!({"counters": {"sender: transmits": 220, "sender: retransmits": 20,
                          "sender: messages sent": 100}});
    rows.push(row("portolan", "packet", "half_rtt", 2048, &counters));
    serde_json::from_value(report(rows)).expect("a report")
}

#[test]
fn loss_and_settings_charts_use_the_measured_sizes() {
    let figures = figures::of_bench(&disturbed());
    let names: Vec<&str> = figures.iter().map(|figure| figure.name).collect();
    for name in ["loss", "interference", "stream"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    let curves = papers::curves(&figures);
    assert!(curves.iter().all(|curve| names.contains(&curve.chart)));
    assert!(curves.iter().any(|curve| curve.chart == "interference"));
}

#[test]
fn counts_are_listed_below_those_of_papers() {
    let report = disturbed();
    let tables = papers::tables(&data::Data { report: &report });
    let now = |title: &str| {
        let found = tables.iter().find(|table| table.title.starts_with(title));
        found.unwrap_or_else(|| panic!("no {title}")).now.clone()
    };
    assert_eq!(
        now("Fragmentation of messages"),
        [["Portolan over raw Ethernet, 2 KB", "1 KB", "2.0"]]
    );
    assert_eq!(
        now("Share of right predictions"),
        [
            [
                "Portolan over UDP, placement speculative",
                "1000",
                "999",
                "99.9 %"
            ],
            [
                "Portolan over UDP, placement speculative, 10,000 foreign of 100,000",
                "100",
                "90",
                "90.0 %"
            ]
        ]
    );
    let interference = now("Foreign packets among those of a stream");
    let failed: Vec<&str> = interference.iter().map(|row| row[2].as_str()).collect();
    assert_eq!(failed, ["–", "–", "100", "10,000"]);
    assert_eq!(now("Without a prediction, or with a wrong one").len(), 3);
    assert_eq!(now("Stream throughput relative to the link")[0][3], "100 %");
}
