// SPDX-License-Identifier: MIT OR Apache-2.0
//! Labs that end with the process that made them, however it ends.
//!
//! A guard process holds the lab: it makes it, says so, and removes it when its standard input
//! closes. That happens on drop, on panic, and also when this process is killed.

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
    /// Makes a lab with a name of its own.
    ///
    /// # Errors
    /// As [`Lab::up`].
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
            let said = line.trim().to_owned();
            return Err(UserError::new(said).into());
        };
        let mut lab = Lab::of(&options);
        if !link.is_empty() {
            // With what it has found to make a delay by.
            lab.link = link.parse().map_err(UserError::new)?;
        }
        Ok(TemporaryLab { lab, guard })
    }

    /// The lab.
    pub(crate) fn lab(&self) -> &Lab {
        &self.lab
    }
}

impl Drop for TemporaryLab {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        if let Err(error) = self.guard.wait() {
            eprintln!(
                "portolan: the guard of lab {} is lost: {error}",
                self.lab.name
            );
        }
    }
}

/// What the guard writes when the lab is up, in front of what its wires are like.
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
        // Out of reach of the terminal's Ctrl-C, which would leave the lab behind.
        .process_group(0)
        .spawn()?;
    Ok(guard)
}

/// The guard process.
pub(super) fn guard(options: &Options) -> Result<()> {
    // One who is told to end still has a lab to remove: only the end of the input ends it.
    ignore_signals()?;
    let lab = match Lab::up(options) {
        Ok(lab) => lab,
        Err(error) => {
            return outln!("{error:#}");
        }
    };
    // Whoever is told may have been killed meanwhile. The lab goes even so.
    let told = outln!("{READY}{}", lab.link);
    let mut rest = Vec::new();
    let end = std::io::stdin().read_to_end(&mut rest);
    lab.down()?;
    end.context("reading")?;
    told
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
