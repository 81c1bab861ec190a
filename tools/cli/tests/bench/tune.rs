// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan tune` with a tiny budget: they assert that everything was measured and is
//! plausible, never a time.

use crate::common::{self, KillOnDrop, portolan, refused, wait_until};
use serde_json::Value;
use std::io::Read;
use std::process::Stdio;

/// Collects every number below `value` that has the name of a time.
fn times(value: &Value, found: &mut Vec<f64>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field.as_f64() {
                    Some(us) if name == "predicted_us" || name == "measured_us" => found.push(us),
                    _ => times(field, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| times(item, found)),
        _ => {}
    }
}

#[test]
fn a_model_is_measured_stored_and_used() {
    let config = tempfile::tempdir().unwrap();
    let json = config.path().join("tune.json");
    let tune = |arguments: &[&str]| {
        let output = portolan(&["tune", "--seconds", "0.01", "--json"])
            .arg(&json)
            .args(arguments)
            .env("XDG_CONFIG_HOME", config.path())
            .output()
            .unwrap();
        assert!(json.exists(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = tune(&[]);
    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    for path in ["shm", "udp"] {
        let paths = report["model"]["paths"].as_array().unwrap();
        assert!(paths.iter().any(|model| model["path"] == path), "{text}");
    }
    let mut found = Vec::new();
    times(&report, &mut found);
    assert!(found.len() > 200, "{} times", found.len());
    assert!(
        found.iter().all(|us| us.is_finite() && *us > 0.0),
        "{found:?}"
    );
    for len in [64, 4 << 20] {
        let plan = report["plan"].as_array().unwrap();
        assert!(plan.iter().any(|row| row["len"] == len), "{len} in {text}");
    }
    assert!(text.contains("error of the model"), "{text}");
    let file = config.path().join("portolan/model.json");
    assert_eq!(report["stored"], file.to_str().unwrap());
    let info = || {
        let output = portolan(&["info"])
            .env("XDG_CONFIG_HOME", config.path())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines()
            .find(|line| line.starts_with("model"))
            .unwrap()
            .to_owned()
    };
    assert!(info().contains("used"), "{}", info());
    let foreign = std::fs::read_to_string(&file)
        .unwrap()
        .replace("\"kernel\": \"", "\"kernel\": \"x");
    std::fs::write(&file, foreign).unwrap();
    assert!(
        info().contains("refused") && info().contains("kernel x"),
        "{}",
        info()
    );
}

#[test]
fn nonsense_is_refused() {
    let ended = common::run(&["tune", "--seconds", "0"]);
    assert_eq!(ended.status, 2);
    let nowhere = [
        "tune",
        "--path",
        "shm",
        "--seconds",
        "0.01",
        "--json",
        "/nowhere/x.json",
    ];
    assert!(refused(&nowhere).contains("--json"));
}

/// The refusal precedes all measurements: the budget is longer than any test could wait.
#[test]
fn unwritable_model_file_fails_before_any_measurement() {
    let tune = |args: &[&str], home: Option<&str>| {
        let mut command = portolan(&["tune", "--seconds", "600"]);
        command.args(args).env_remove("XDG_CONFIG_HOME");
        match home {
            Some(home) => command.env("HOME", home),
            None => command.env_remove("HOME"),
        };
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = KillOnDrop(child.spawn().unwrap());
        wait_until("it is refused", || child.0.try_wait().unwrap().is_some());
        assert_eq!(child.0.wait().unwrap().code(), Some(2));
        let mut err = String::new();
        let mut stderr = child.0.stderr.take().unwrap();
        stderr.read_to_string(&mut err).unwrap();
        err
    };
    // No directory can be created below a file, not even by root.
    let err = tune(&[], Some("/dev/null"));
    assert!(
        err.contains("/dev/null/.config/portolan/model.json"),
        "{err}"
    );
    assert!(
        err.contains("XDG_CONFIG_HOME") && err.contains("--no-store"),
        "{err}"
    );
    let err = tune(&[], None);
    assert!(err.contains("HOME") && err.contains("--no-store"), "{err}");
}
