// SPDX-License-Identifier: MIT OR Apache-2.0
//! The provider in the installed libfabric, used by libfabric's own programs.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest run of a libfabric program, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns a directory with the provider under the name that libfabric searches for.
fn library() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(built(), dir.path().join("libportolan-fi.so")).unwrap();
    dir
}

/// Returns the path of the library that cargo built for this test, beside the test program.
fn built() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let found = test
        .ancestors()
        .skip(1)
        .map(|dir| dir.join("libportolan_fi.so"));
    found
        .into_iter()
        .find(|path| path.exists())
        .expect("cargo builds the library first")
}

fn is_installed(program: &str) -> bool {
    let found = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok();
    if !found {
        println!("SKIPPED: {program} is not installed (Debian: libfabric-bin)");
    }
    found
}

fn command(program: &str, library: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .env("FI_PROVIDER_PATH", library)
        .env_remove("FI_PROVIDER")
        .args(args);
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .stdin(Stdio::null());
    command
}

fn text(output: &Output) -> String {
    let both = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

#[test]
fn libfabric_lists_the_provider_by_name_only() {
    if !is_installed("fi_info") {
        return;
    }
    let dir = library();
    let named = command("fi_info", dir.path(), &["-p", "portolan"])
        .output()
        .unwrap();
    let output = text(&named);
    assert!(named.status.success(), "{output}");
    assert_eq!(
        output.matches("provider: portolan\n").count(),
        2,
        "{output}"
    );
    let kinds = ["FI_EP_RDM", "FI_EP_MSG"].map(|kind| output.find(kind));
    assert!(kinds.is_sorted() && kinds[0].is_some(), "{output}");
    let chosen = command("fi_info", dir.path(), &[])
        .env("FI_PROVIDER", "portolan")
        .output()
        .unwrap();
    assert!(
        text(&chosen).contains("provider: portolan\n"),
        "{}",
        text(&chosen)
    );
    let unnamed = command("fi_info", dir.path(), &[]).output().unwrap();
    assert!(!text(&unnamed).contains("portolan"), "{}", text(&unnamed));
}

#[test]
fn libfabric_pingpong_data_is_intact() {
    if !is_installed("fi_pingpong") {
        return;
    }
    let dir = library();
    // "all" stands for sizes from 64 bytes to 1 MiB.
    for (size, messages, kind) in [
        ("all", "msg", "rdm"),
        ("all", "tagged", "rdm"),
        ("300000", "msg", "rdm"),
        ("all", "msg", "msg"),
    ] {
        // The programs connect on a TCP port of their own before they use the provider.
        let free = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let port = free.to_string();
        let mut args = vec!["-p", "portolan", "-e", kind, "-c", "-I", "10"];
        args.extend(["-S", size, "-m", messages]);
        let server = command(
            "fi_pingpong",
            dir.path(),
            &[&args[..], &["-B", &port]].concat(),
        )
        .spawn()
        .unwrap();
        let client_args = [&args[..], &["-P", &port, "127.0.0.1"]].concat();
        let begun = Instant::now();
        let client = loop {
            let run = command("fi_pingpong", dir.path(), &client_args)
                .output()
                .unwrap();
            // The client fails until the server listens.
            if run.status.success() || begun.elapsed() > PATIENCE {
                break run;
            }
        };
        let mut server = server;
        if !client.status.success() {
            let _ = server.kill();
        }
        let server = server.wait_with_output().unwrap();
        assert!(client.status.success(), "{}", text(&client));
        assert!(server.status.success(), "{}", text(&server));
        assert!(text(&client).contains("usec/xfer"), "{}", text(&client));
    }
}
