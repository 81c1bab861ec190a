// SPDX-License-Identifier: MIT OR Apache-2.0
//! Labs that end with the process that created them, however it ends.
//!
//! A guard process creates the lab, reports it, and removes it when its standard input closes. That
//! happens on drop, on panic, and when this process is killed.

use super::{Kind, Lab, Options};
use crate::error::UserError;
use crate::output::outln;
use anyhow::{Context, Result};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A lab that is removed on drop, and also when this process is killed.
#[derive(Debug)]
pub(crate) struct TemporaryLab {
    lab: Lab,
    guard: Child,
}

impl TemporaryLab {
    /// Creates a lab with a unique name.
    pub(crate) fn up(like: &Kind) -> Result<TemporaryLab> {
        let name = format!("tmp{}-{:08x}", std::process::id(), rand::random::<u32>());
        let options = like.clone().named(name);
        let mut guard = start_guard(&options).context("starting the guard of a lab")?;
        let mut line = String::new();
        let stdout = guard.stdout.take().context("stdout of the guard")?;
        BufReader::new(stdout)
            .read_line(&mut line)
            .context("reading from the guard of a lab")?;
        let Some(link) = line.strip_prefix(READY).map(str::trim) else {
            guard.wait().context("waiting for the guard of a lab")?;
            let sentence = line.trim().to_owned();
            return Err(UserError::new(sentence).into());
        };
        let mut lab = Lab::of(&options);
        if !link.is_empty() {
            // Includes the mechanism that the guard selected for the delay.
            lab.link = link.parse().map_err(UserError::new)?;
        }
        Ok(TemporaryLab { lab, guard })
    }

    pub(crate) fn lab(&self) -> &Lab {
        &self.lab
    }
}

impl Drop for TemporaryLab {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        if let Err(error) = self.guard.wait() {
            eprintln!(
                "portolan: waiting for the guard of lab {} failed: {error}",
                self.lab.name
            );
        }
    }
}

/// Word that the guard writes when the lab is up, in front of the properties of its wires.
const READY: &str = "ready ";

fn start_guard(options: &Options) -> Result<Child> {
    let mut guard = Command::new(std::env::current_exe()?);
    guard.args(["lab", "guard", "--name", &options.name]);
    if options.link.is_shaped() {
        guard.args(["--link", &options.link.to_string()]);
    }
    let guard = guard
        .args(["--hosts", &options.host_count.to_string()])
        .args(["--mtu", &options.mtu.to_string()])
        .args(["--cores", &options.cores.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Detach the guard from the terminal's Ctrl-C, which would leave the lab behind.
        .process_group(0)
        .spawn()?;
    Ok(guard)
}

/// Runs the guard process.
pub(super) fn guard(options: &Options) -> Result<()> {
    // A guard must still remove its lab, so signals do not end it: only the end of its input does.
    ignore_signals()?;
    let lab = match Lab::up(options) {
        Ok(lab) => lab,
        Err(error) => {
            return outln!("{error:#}");
        }
    };
    // The parent may have been killed meanwhile; the lab is removed even if this write fails.
    let written = outln!("{READY}{}", lab.link);
    let mut rest = Vec::new();
    let end = std::io::stdin().read_to_end(&mut rest);
    lab.down()?;
    end.context("reading standard input of the guard")?;
    written
}

fn ignore_signals() -> Result<()> {
    use nix::sys::signal::{SigSet, Signal};
    let mut set = SigSet::empty();
    for signal in [
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ] {
        set.add(signal);
    }
    set.thread_block().context("blocking signals")
}
