// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the program without a launcher, as a job of one process.

use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

fn heat(dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heat"));
    command
        .current_dir(dir)
        .args(arguments)
        .output()
        .expect("heat starts")
}

fn sample() -> TempDir {
    let dir = tempfile::tempdir().expect("temporary directory");
    let made = heat(dir.path(), &["--make-input", "60", "40", "in.pgm"]);
    assert!(made.status.success(), "{made:?}");
    dir
}

#[test]
fn one_process_passes_the_check_and_writes_the_picture() {
    let dir = sample();
    let arguments = ["in.pgm", "--steps", "30", "--check", "--output", "out.png"];
    let solved = heat(dir.path(), &arguments);
    assert!(solved.status.success(), "{solved:?}");
    let report = String::from_utf8(solved.stdout).unwrap();
    assert!(
        report.contains("all 2400 cells equal the sequential solution"),
        "{report}"
    );
    assert_eq!(
        image::image_dimensions(dir.path().join("out.png")).unwrap(),
        (60, 40)
    );
}

#[test]
fn mistakes_end_with_status_2_and_one_sentence() {
    let dir = sample();
    let mistakes: [(&[&str], &str); 4] = [
        (&["none.pgm"], "none.pgm"),
        (&["in.pgm", "--alpha", "0.26"], "at most 0.25"),
        (&["in.pgm", "--output", "no/out.png"], "no/out.png"),
        (&["--make-input", "2", "2", "tiny.pgm"], "too small"),
    ];
    for (arguments, reason) in mistakes {
        let refused = heat(dir.path(), arguments);
        let message = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert_eq!(message.lines().count(), 1, "{message}");
        assert!(
            message.starts_with("heat: ") && message.contains(reason),
            "{message}"
        );
    }
}
