// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs the commands `ip` and `tc` of iproute2.

use crate::error::{UserError, user_error};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};

/// Directory of the named network namespaces of `ip netns` (ip-netns(8)).
pub(super) const NETNS_DIR: &str = "/run/netns";

/// Network devices that a new namespace may contain and that cannot be deleted.
const PERMANENT_LINKS: [&str; 1] = ["lo"];

#[derive(Deserialize)]
struct LinkRecord {
    #[serde(default)]
    ifname: String,
    ifalias: Option<String>,
}

/// Returns an error with the remedy if namespaces cannot be created.
pub(super) fn check_privilege() -> Result<()> {
    if nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    user_error!(
        "labs need root (network namespaces need CAP_SYS_ADMIN and CAP_NET_ADMIN): \
         run the same command with sudo"
    )
}

/// Returns the names of all network namespaces of this machine.
pub(super) fn namespaces() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(NETNS_DIR) else {
        // The directory is created with the first namespace.
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// Returns the alias of the namespace's `lo`; `None` if it has no alias or does not exist.
pub(super) fn mark(namespace: &str) -> Result<Option<String>> {
    let output = execute(&["-n", namespace, "-json", "link", "show", "dev", "lo"], "")?;
    let records: Vec<LinkRecord> = serde_json::from_slice(&output.stdout).unwrap_or_default();
    Ok(records.into_iter().find_map(|record| record.ifalias))
}

/// Number of `ip` processes run concurrently: a load that a small idle machine can handle.
const AT_ONCE: usize = 16;

/// Returns the [`mark`] of each namespace, several concurrently. Starting `ip` takes milliseconds,
/// and every command that names a lab reads the marks of all its hosts.
pub(super) fn marks(namespaces: &[&str]) -> Result<Vec<Option<String>>> {
    let mut marks = Vec::new();
    for some in namespaces.chunks(AT_ONCE) {
        let results: Vec<Result<Option<String>>> = std::thread::scope(|scope| {
            let read = |namespace| scope.spawn(move || mark(namespace));
            let threads: Vec<_> = some.iter().copied().map(read).collect();
            let end = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread
                    .join()
                    .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().map(end).collect()
        });
        for mark in results {
            marks.push(mark?);
        }
    }
    Ok(marks)
}

/// Returns the ids of the processes in a namespace.
pub(super) fn pids(namespace: &str) -> Result<Vec<u32>> {
    let output = execute(&["netns", "pids", namespace], "")?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect())
}

/// Deletes the interfaces of one of our own namespaces.
pub(super) fn delete_links(namespace: &str) -> Result<()> {
    let output = execute(&["-n", namespace, "-json", "link", "show"], "")?;
    let records: Vec<LinkRecord> = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let mut commands = String::new();
    for record in records
        .iter()
        .filter(|record| !PERMANENT_LINKS.contains(&record.ifname.as_str()))
    {
        commands.push_str(&format!("link delete dev {}\n", record.ifname));
    }
    // The kernel refuses to delete the tunnel devices that it adds to every namespace; continue
    // after them.
    execute(&["-n", namespace, "-force", "-batch", "-"], &commands).map(drop)
}

/// Runs `ip` with arguments.
pub(super) fn run(args: &[&str]) -> Result<()> {
    let output = execute(args, "")?;
    succeed(&output, &format!("ip {}", args.join(" ")))
}

/// Runs `commands`, one per line, inside `namespace`.
pub(super) fn batch(namespace: &str, commands: &str) -> Result<()> {
    let output = execute(&["-n", namespace, "-batch", "-"], commands)?;
    succeed(
        &output,
        &format!("setting up the network namespace {namespace}"),
    )
}

/// Runs `commands` of `tc`, one per line, inside `namespace`.
pub(super) fn shape(namespace: &str, commands: &str) -> Result<()> {
    let output = tc(namespace, commands)?;
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors = errors.trim().replace('\n', "; ");
    user_error!(
        "--link: the wires of {namespace} cannot be shaped: tc: {errors}; rate= needs a kernel with \
         NET_SCH_TBF, loss= one with NET_SCH_INGRESS and NET_CLS_BPF"
    )
}

/// Returns true if `commands` of `tc` succeed in `namespace`.
pub(super) fn can_shape(namespace: &str, commands: &str) -> Result<bool> {
    Ok(tc(namespace, commands)?.status.success())
}

fn tc(namespace: &str, commands: &str) -> Result<Output> {
    execute_by("tc", &["-n", namespace, "-batch", "-"], commands)
}

fn succeed(output: &Output, what: &str) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    let errors = errors.trim().replace('\n', "; ");
    user_error!(
        "{what} failed: {errors}; a lab needs a kernel with network namespaces and veth, and in a \
         container CAP_SYS_ADMIN and CAP_NET_ADMIN"
    )
}

fn execute(args: &[&str], input: &str) -> Result<Output> {
    execute_by("ip", args, input)
}

/// Runs `program` of iproute2.
fn execute_by(program: &str, args: &[&str], input: &str) -> Result<Output> {
    let spawned = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // The terminal's Ctrl-C does not end it half-way: this process removes what was made.
        .process_group(0)
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing(program).into()),
        Err(error) => return Err(error).with_context(|| format!("starting {program}")),
    };
    let mut stdin = child.stdin.take().context("stdin of ip")?;
    // `ip` may stop at a bad line without reading the rest. Report its own message instead of
    // EPIPE.
    let written = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().context("waiting for ip")?;
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("writing to ip"),
        _ => Ok(output),
    }
}

fn missing(program: &str) -> UserError {
    UserError::new(format!(
        "the command `{program}` is missing: install it with `apt install iproute2`"
    ))
}
