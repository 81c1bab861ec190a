// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brokers for a job: one on each host of a lab. They end on drop, or with this process.

use crate::error::user_error;
use crate::lab::cores::Cores;
use anyhow::{Context, Result};
use portolan_bench::{BROKER, Place};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStderr, Command, Stdio};

/// A running broker.
pub(super) struct Broker {
    child: Child,
    /// Kept open, so that the broker can report errors.
    _errors: BufReader<ChildStderr>,
}

/// Starts brokers at [`BROKER`] that serve all users.
///
/// # Errors
/// A place is not in a lab, or a broker reports that it cannot serve.
pub(super) fn start(places: &[Place]) -> Result<Vec<Broker>> {
    let mut hosts: Vec<&Place> = Vec::new();
    for place in places {
        if !hosts.contains(&place) {
            hosts.push(place);
        }
    }
    hosts.into_iter().map(Broker::start).collect()
}

impl Broker {
    fn start(place: &Place) -> Result<Broker> {
        let Some(namespace) = &place.netns else {
            user_error!("a broker needs hosts of a lab: run as root, without --loopback");
        };
        let mut config =
            tempfile::NamedTempFile::new().context("creating the configuration of a broker")?;
        writeln!(
            config,
            "socket = '{BROKER}'\n[[nic]]\ninterface = '{}'\ngroups = ['*']",
            place.interface
        )?;
        let mut command = Command::new("ip");
        Cores::new(place.cores.clone()).bind(&mut command);
        let mut child = command
            .args(["netns", "exec", namespace])
            .arg(std::env::current_exe()?)
            .args(["broker", "--foreground", "--until-input-ends", "--config"])
            .arg(config.path())
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting a broker")?;
        let errors = child.stderr.take().context("standard error of a broker")?;
        let mut errors = BufReader::new(errors);
        let mut line = String::new();
        // The broker reads its configuration before it prints anything.
        errors.read_line(&mut line)?;
        let broker = Broker {
            child,
            _errors: errors,
        };
        if !line.contains("serving at") {
            user_error!("{}", line.trim());
        }
        Ok(broker)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            eprintln!("portolan: waiting for a broker failed: {error}");
        }
    }
}
