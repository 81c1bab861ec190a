// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan top`: the processes that use Portolan on this host.
//!
//! Each process has a page for its state ([`portolan_sys::status_page`]), which it fills when this
//! command requests it. The processes need no option, and exchange nothing with this one otherwise.

mod find;
mod prometheus;
mod sample;
mod screen;
mod table;

use crate::output::{out, outln};
use anyhow::Result;
use sample::Sampler;
use std::process::ExitCode;
use std::time::Duration;

/// Show the processes that use Portolan on this host: their messages, paths and waits.
///
/// Processes of other users are visible to root only. A process answers in its calls of the library.
/// While it computes, its last answer is shown. Keys: up and down select a process, q ends.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print one sample as JSON.
    #[arg(long, conflicts_with = "once")]
    json: bool,
    /// Print one sample as a table.
    #[arg(long)]
    once: bool,
    /// Serve the figures for Prometheus at HOST:PORT, or at a Unix socket, a path with a slash.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["json", "once"])]
    prometheus: Option<String>,
    /// Seconds between two samples, from which rates are computed.
    #[arg(long, value_name = "S", default_value = "1", value_parser = crate::run::command::seconds)]
    interval: Duration,
}

/// Shows the processes in the form of `args`.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    let mut sampler = Sampler::default();
    if let Some(address) = &args.prometheus {
        prometheus::serve(&mut sampler, address)?;
    } else if args.json || args.once {
        sampler.take();
        std::thread::sleep(args.interval);
        let samples = sampler.take();
        if args.json {
            outln!("{}", serde_json::to_string_pretty(&samples)?)?;
        } else {
            out!("{}", table::text(&samples))?;
        }
    } else {
        screen::show(&mut sampler, args.interval)?;
    }
    Ok(ExitCode::SUCCESS)
}
