// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan broker`: lends raw Ethernet sockets to users without privilege.

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

/// Lend raw Ethernet sockets to users without privilege, each held to an endpoint of its own.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Make the listening socket; without it systemd has made it (portolan-broker.socket).
    #[arg(long)]
    foreground: bool,
    /// The configuration.
    #[arg(long, value_name = "FILE", default_value = CONFIG_DEFAULT)]
    config: PathBuf,
    /// End with the standard input, for programs that start it; signals then kill it.
    #[arg(long, hide = true, requires = "foreground")]
    until_input_ends: bool,
    /// Only check the configuration, and print what it says.
    #[arg(long, conflicts_with = "foreground")]
    check: bool,
}

pub(crate) fn main(args: &Args) -> anyhow::Result<ExitCode> {
    let config = read(&args.config)?;
    if args.check {
        print(&config)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Before there are other threads, and while signals can be caught.
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

/// Readable when somebody wants this process to end.
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
        let remedy = "write one (docs/broker.md has an example), or name it with --config";
        named(&format!("{error}; {remedy}"))
    })?;
    Ok(Config::parse(&text).map_err(|error| named(&error))?)
}

fn print(config: &Config) -> anyhow::Result<()> {
    outln!("listens at {}, as user {}", config.socket, config.user.uid)?;
    let quota = config.quota;
    outln!(
        "each user: {} sockets, {} bytes of rings",
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
