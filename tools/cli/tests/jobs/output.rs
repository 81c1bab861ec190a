// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a closed standard output is no failure, a full one is an error, and neither causes a
//! panic.

use std::fs::File;
use std::process::{Command, Stdio};

const COMMANDS: [&[&str]; 3] = [&["info"], &["info", "--json"], &["doctor"]];

fn portolan(args: &[&str], stdout: Stdio) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
    let output = command
        .args(args)
        .stdout(stdout)
        .stderr(Stdio::piped())
        .output()
        .expect("the command starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn closed_pipe_ends_the_command_silently() {
    for args in COMMANDS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let (status, said) = portolan(args, writer.into());
        // The status that a shell reports for SIGPIPE.
        assert_eq!((status, said.as_str()), (Some(141), ""), "{args:?}");
    }
}

#[test]
fn a_full_device_is_named() {
    for args in COMMANDS {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let (status, said) = portolan(args, full.into());
        assert_eq!(status, Some(1), "{args:?}: {said}");
        assert!(
            said.starts_with("portolan: standard output cannot be written"),
            "{args:?}: {said}"
        );
    }
}
