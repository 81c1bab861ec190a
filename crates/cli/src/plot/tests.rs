// SPDX-License-Identifier: MIT OR Apache-2.0
//! Charts of small reports: that they are well-formed, the same every time, and hold what was given.

use super::*;
use serde_json::json;

fn row(system: &str, metric: &str, size: u64, extra: &Value) -> Value {
    let mut row = json!({
        "system": system, "path": "udp", "metric": metric, "size": size, "iterations": 9,
        "p50_us": 10.0 + size as f64 / 1000.0, "p99_us": 90.0, "mean_us": 12.0,
        "mbytes_per_s": 1234.5, "msgs_per_s": 1000.0
    });
    if let (Some(row), Some(extra)) = (row.as_object_mut(), extra.as_object()) {
        row.extend(extra.clone());
    }
    row
}

fn report(results: Vec<Value>) -> Value {
    json!({"schema": 1, "results": results, "machine": {
        "kernel": "6.18", "cpu": "one", "cores": 2, "pinned": [0, 1], "hypervisor": "none",
        "date": "2026-01-02T03:04:05Z", "portolan": "0.1.0", "mtu": 9000, "site": "lab",
        "rounds": 3, "clock": "a clock"
    }})
}

fn full() -> Value {
    let cpu = json!({"sender_s_per_gb": 0.3, "receiver_s_per_gb": 0.4});
    report(vec![
        row("portolan", "half_rtt", 64, &json!({})),
        row("portolan", "half_rtt", 65536, &json!({})),
        row(
            "portolan",
            "stream",
            1 << 20,
            &json!({"placement": "speculative", "cpu": cpu}),
        ),
        row("tcp", "stream", 1 << 20, &json!({"cpu": cpu})),
        row(
            "portolan",
            "loaded",
            64,
            &json!({"idle": {"p50_us": 3.0, "p99_us": 9.0}}),
        ),
        row(
            "portolan",
            "incast",
            4 << 20,
            &json!({"single_mbytes_per_s": 1500.0}),
        ),
    ])
}

fn draw(json: &Value) -> Result<Vec<(&'static str, String)>> {
    let file = tempfile::NamedTempFile::new()?;
    fs::write(file.path(), serde_json::to_vec(json)?)?;
    charts(file.path())
}

/// Every element that is opened is closed, in order, and no text breaks out of its place.
fn assert_well_formed(svg: &str) {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').expect("a tag ends");
        assert!(!text.contains('>'), "{text}");
        let name = tag
            .trim_start_matches('/')
            .split([' ', '\n', '/'])
            .next()
            .expect("a name");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed in order");
        } else if !tag.ends_with('/') && !tag.starts_with(['?', '!']) {
            open.push(name);
        }
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
    }
    assert!(open.is_empty(), "left open: {open:?}");
}

#[test]
fn a_full_report_gives_all_charts_and_each_is_well_formed() {
    let charts = draw(&full()).expect("drawn");
    let names: Vec<_> = charts.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names,
        ["end-to-end", "latency", "stream", "cpu", "loaded", "incast"]
    );
    for (name, svg) in &charts {
        assert!(
            svg.starts_with("<svg") && svg.contains("MTU 9000"),
            "{name}"
        );
        assert_well_formed(svg);
    }
    assert!(charts[2].1.contains("placement speculative"));
}

#[test]
fn the_same_figures_give_the_same_bytes() {
    assert_eq!(draw(&full()).expect("drawn"), draw(&full()).expect("drawn"));
}

#[test]
fn the_model_stands_beside_the_measurement() {
    let row = |len: u64| {
        json!({"path": "udp", "len": len, "variant": "usual", "kind": "lone", "predicted_us": 5.0,
            "measured_us": 6.0, "error": 0.1, "fitted": true})
    };
    let pair = json!({"predicted_us": 1.0, "measured_us": 2.0});
    let pieces = |len: u64| json!({"len": len, "lone_whole": pair, "lone_pieces": pair});
    let json = json!({"rows": [row(64), row(4096)], "pieces": [pieces(64), pieces(128)]});
    let charts = draw(&json).expect("drawn");
    let names: Vec<_> = charts.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["model", "pieces-lone"]);
    for (_, svg) in &charts {
        assert_well_formed(svg);
    }
    assert!(charts[0].1.contains("udp, predicted") && charts[0].1.contains("udp, measured"));
}

#[test]
fn names_from_the_file_cannot_break_the_chart() {
    let evil = row("<script>\"&", "stream", 64, &json!({}));
    for (_, svg) in draw(&report(vec![evil])).expect("drawn") {
        assert_well_formed(&svg);
        assert!(!svg.contains("<script"));
    }
}

#[test]
fn what_is_no_result_is_refused_with_a_remedy() {
    assert!(
        draw(&json!({"a": 1}))
            .expect_err("other JSON")
            .to_string()
            .contains("portolan bench")
    );
    let missing = charts(Path::new("/nonexistent/x.json"))
        .expect_err("missing")
        .to_string();
    assert!(
        missing.contains("cannot be read") && missing.contains("--json"),
        "{missing}"
    );
    assert!(
        draw(&report(vec![]))
            .expect("nothing to draw is seen by the caller")
            .is_empty()
    );
}
