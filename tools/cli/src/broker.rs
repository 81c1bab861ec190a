// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan broker`: opens raw Ethernet sockets for users without privileges.

use crate::error::UserError;
use crate::output::outln;
use anyhow::Context;
use portolan_broker::{Broker, CONFIG_DEFAULT, Config};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Open raw Ethernet sockets for users without privileges, each restricted to its own endpoint.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Create the listening socket; by default systemd provides it (portolan-broker.socket).
    #[arg(long)]
    foreground: bool,
    /// The configuration file.
    #[arg(long, value_name = "FILE", default_value = CONFIG_DEFAULT)]
    config: PathBuf,
    /// End when standard input ends; for programs that start the broker. Signals kill it then.
    #[arg(long, hide = true, requires = "foreground")]
    until_input_ends: bool,
    /// Check the configuration, print its meaning, and exit.
    #[arg(long, conflicts_with = "foreground")]
    check: bool,
}

pub(crate) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let config = read(&args.config)?;
    if args.check {
        print(&config)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Done before other threads exist, and while signals can still be caught.
    let stop = if args.until_input_ends {
        std::io::stdin().as_fd().try_clone_to_owned()?
    } else {
        signals()?.into()
    };
    let name = config.socket.clone();
    let broker = Broker::prepare(config, !args.foreground)
        .map_err(|error| UserError::new(error.to_string()))?;
    if args.foreground {
        eprintln!("portolan broker: serving at {name}");
    }
    broker.serve(stop.as_fd()).context("waiting for requests")?;
    Ok(ExitCode::SUCCESS)
}

/// Returns a socket that becomes readable when a signal requests the end of this process.
fn signals() -> std::io::Result<UnixStream> {
    let (stop, stopped) = UnixStream::pair()?;
    pipe::register(SIGTERM, stopped.try_clone()?)?;
    pipe::register(SIGINT, stopped)?;
    Ok(stop)
}

fn read(path: &Path) -> anyhow::Result<Config> {
    let named =
        |error: &dyn std::fmt::Display| UserError::new(format!("{}: {error}", path.display()));
    let text = fs::read_to_string(path).map_err(|error| {
        let remedy =
            "write the file (docs/guide/broker.md has an example), or name another with --config";
        named(&format!("{error}; {remedy}"))
    })?;
    Ok(Config::parse(&text).map_err(|error| named(&error))?)
}

fn print(config: &Config) -> anyhow::Result<()> {
    outln!("listens at {}, as user {}", config.socket, config.user.uid)?;
    let quota = config.quota;
    outln!(
        "each user: at most {} sockets and {} bytes of rings",
        quota.sockets,
        quota.ring_memory
    )?;
    for nic in &config.nic {
        let who = match &nic.groups.0 {
            None => "everyone".to_owned(),
            Some(groups) => {
                let mut groups: Vec<_> = groups.iter().collect();
                groups.sort_unstable();
                format!("groups {groups:?}")
            }
        };
        outln!("{}: {} endpoints, for {who}", nic.interface, nic.endpoints)?;
    }
    Ok(())
}
