// SPDX-License-Identifier: MIT OR Apache-2.0
//! The arguments of `portolan cast`.

use crate::run::command::PathArg;
use portolan_bench::parse_seconds;
use portolan_cast::Form;
use std::path::PathBuf;
use std::time::Duration;

/// Copy a file, a directory, a disk or standard input from this host to many, at the speed of one
/// link.
///
/// Each host stores the data and forwards it at once, in a chain or a tree; or the source sends to
/// all hosts at once by multicast. A copy is written next to its target, and replaces the target
/// after its hashes have been verified. If a host fails, the failure is reported and the cast
/// continues without it. The exit status is 1 if a host has no copy, and 2 if nothing could be
/// started.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// File, directory or block device; - is standard input. In a lab, it is read on host h0.
    pub(super) source: PathBuf,
    /// Full name of the copy on each host, or a block device; %h is replaced by the host's name, %%
    /// by %. With one host, - is standard output.
    pub(super) target: Option<PathBuf>,
    /// Hosts to copy to through ssh: lines `host`, # starts a comment. Without this option, in a
    /// Slurm allocation: all other nodes of the allocation, through srun.
    #[arg(long, value_name = "FILE", conflicts_with = "lab")]
    pub(super) hosts: Option<PathBuf>,
    /// Lab to use: copy from its host h0 to all its other hosts.
    #[arg(long, value_name = "NAME")]
    pub(super) lab: Option<String>,
    /// Copy to the first N of these hosts only.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) first: Option<u32>,
    /// Pipe the data to a shell command on each host, instead of a target; %h and %% as for TARGET.
    #[arg(long, value_name = "COMMAND")]
    pub(super) pipe: Option<String>,
    /// Order in which hosts send: chain; tree:K, in which each host sends to K others; or
    /// multicast, in which the source sends once to all hosts of its Ethernet. By default a model
    /// chooses the fastest.
    #[arg(long, value_name = "SHAPE", value_parser = form)]
    pub(super) shape: Option<Form>,
    /// Measure disks, links and processors first, print the model's prediction, choose the shape by
    /// it, and compare the prediction with the result at the end.
    #[arg(long, conflicts_with_all = ["verify", "resume"])]
    pub(super) explain: bool,
    /// Send only the blocks that a host lacks, after an interrupted cast or to update an older
    /// copy.
    #[arg(long)]
    pub(super) resume: bool,
    /// Compress blocks for sending, where that makes the cast faster.
    #[arg(long, value_name = "HOW", value_enum, conflicts_with = "verify")]
    pub(super) compress: Option<CompressArg>,
    /// Compare the copies on the hosts with the source, and write nothing. The exit status is 1 if
    /// a copy differs.
    #[arg(long, conflicts_with_all = ["resume", "replace", "sync", "keep_partial", "limit", "pipe"])]
    pub(super) verify: bool,
    /// Allow the copy to replace an existing directory at the target.
    #[arg(long)]
    pub(super) replace: bool,
    /// Flush each copy to its disk before it counts as complete.
    #[arg(long)]
    pub(super) sync: bool,
    /// After a failure or Ctrl-C, keep the received data for --resume.
    #[arg(long)]
    pub(super) keep_partial: bool,
    /// Largest rate to send at, in bytes per second, such as 500k, 100M or 1.2G.
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub(super) limit: Option<f64>,
    /// Give up a host after it has stored nothing for this many seconds while data is available.
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    pub(super) stall: Duration,
    /// Show the size of the source and the order in which hosts would send, and copy nothing.
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Report progress as lines of JSON on standard output.
    #[arg(long)]
    pub(super) json: bool,
    /// Links that the processes may use.
    #[arg(long, value_enum, default_value_t = PathArg::Auto)]
    pub(super) path: PathArg,
    /// Set an option of the library in each process.
    #[arg(long = "option", short = 'o', value_name = "NAME=VALUE")]
    pub(super) option: Vec<String>,
    /// Path of portolan on the hosts of --hosts and on Slurm's nodes [default: this program's path,
    /// or else the first in PATH there].
    #[arg(long, value_name = "PATH")]
    pub(super) remote_program: Option<String>,
}

/// Compression of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum CompressArg {
    /// Compress with zstd, at its fastest level.
    Zstd,
}

fn form(text: &str) -> Result<Form, String> {
    let wrong = || {
        format!("{text:?} is not a shape: write chain, tree:K with K of 2 or more, or multicast")
    };
    match text.split_once(':') {
        None if text == "chain" => Ok(Form::CHAIN),
        None if text == "multicast" => Ok(Form::Multicast),
        Some(("tree", degree)) => match degree.parse() {
            Ok(degree) if degree >= 2 => Ok(Form::Tree(degree)),
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

/// Parses a number of bytes per second with a decimal unit.
fn rate(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.trim_end_matches("/s").char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1e3),
        Some((at, 'M')) => (&text[..at], 1e6),
        Some((at, 'G')) => (&text[..at], 1e9),
        _ => (text.trim_end_matches("/s"), 1.0),
    };
    match number.parse::<f64>() {
        // The upper bound is far above any network.
        Ok(number) if (1.0..=1e15).contains(&(number * unit)) => Ok(number * unit),
        _ => Err(format!(
            "{text:?} is not a rate in bytes per second: write 500k, 100M or 1.2G"
        )),
    }
}

/// Parses a stall time. Less than 0.1 s is only a busy disk; more than a day is a mistake.
fn seconds(text: &str) -> Result<Duration, String> {
    parse_seconds(text, 0.1..=86_400.0).map(Duration::from_secs_f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_parses_decimal_units() {
        assert_eq!(rate("500k"), Ok(500_000.0));
        assert_eq!(rate("1.2G/s"), Ok(1.2e9));
        assert_eq!(rate("77"), Ok(77.0));
        for wrong in ["", "k", "-1M", "0", "1T", "nan"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shape_parses_chain_tree_and_multicast() {
        for (text, meant) in [
            ("chain", Form::CHAIN),
            ("tree:3", Form::Tree(3)),
            ("multicast", Form::Multicast),
        ] {
            assert_eq!(form(text), Ok(meant));
            assert_eq!(meant.to_string(), text);
        }
        for wrong in ["tree", "tree:1", "tree:x", "ring", "chain:2", "multicast:2"] {
            assert!(form(wrong).is_err(), "{wrong}");
        }
    }
}
