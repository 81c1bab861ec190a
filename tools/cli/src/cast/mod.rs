// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan cast`: copies from this host to many, with the processes of [`portolan_cast`].
//!
//! If a host cannot be reached or its process fails, that is reported and the cast continues.

mod args;
mod choice;
mod progress;
mod watch;

use crate::error::{UserError, user_error};
use crate::lab::Lab;
use crate::output::outln;
use crate::run::hosts::{self, Host, MapBy, Place};
use crate::run::{self, FailedHosts, Failure, OWN_PROGRAM, Options, Workload};
use anyhow::{Context, Result};
pub(crate) use args::Args;
use args::CompressArg;
use choice::Choice;
use portolan::binding::settings;
use portolan_cast::{Compression, Form, Source, Spec, Target};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use watch::Watch;

/// Default silence after which a host is given up. A process that ends is reported at once, so this
/// applies to hosts that are disconnected or stopped. They may also just be busy.
const PEER_TIMEOUT: &str = "5s";

/// Time after a signal for processes to remove their unfinished files.
const GRACE: Duration = Duration::from_secs(10);

/// Arguments of [`work`].
#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    /// A [`Spec`] as JSON.
    spec: String,
    /// Measure the disks, links and processors that the cast would use, and copy nothing.
    #[arg(long)]
    survey: bool,
}

/// Runs one process of a cast.
pub(crate) fn work(args: &WorkerArgs) -> Result<ExitCode> {
    let spec = serde_json::from_str(&args.spec).context("parsing the specification of a cast")?;
    Ok(match args.survey {
        true => portolan_cast::survey(&spec),
        false => portolan_cast::work(&spec),
    })
}

/// Runs `portolan cast`. Returns exit status 1 if a host has no copy, 2 if nothing could be
/// started.
pub(crate) fn main(args: &Args) -> Result<ExitCode> {
    if args.shape == Some(Form::Multicast) && (args.resume || args.verify) {
        user_error!(
            "--shape multicast sends all blocks to all hosts, but --resume and --verify send different data to each host: leave the shape out, or use chain or tree:K"
        );
    }
    let mut places = places(args)?;
    let mut lost = Vec::new();
    loop {
        let mut spec = spec(args, &places)?;
        let choice = match choose(args, &places, &spec) {
            Ok(Ok(choice)) => choice,
            Ok(Err(failure)) => return Watch::new(&spec, &lost, args.json).finish(Some(failure)),
            Err(error) => {
                drop_unstarted(error, &mut places, &mut lost, args)?;
                continue;
            }
        };
        spec.form = choice.form;
        if let Some((text, _)) = &choice.explained {
            print_text(text, &spec, args.json)?;
        }
        if args.dry_run {
            return explain(&spec);
        }
        let options = options(args, &places, &spec, &[])?;
        let mut watch = Watch::new(&spec, &lost, args.json);
        watch.predicted = choice.explained.map(|(_, predicted)| predicted);
        let outcome = match run::execute_observed(&options, Some(&mut watch)) {
            Ok(outcome) => outcome,
            // An unreachable host does not prevent copies on the other hosts.
            Err(error) => {
                drop_unstarted(error, &mut places, &mut lost, args)?;
                continue;
            }
        };
        match outcome.failure {
            Some(Failure::Rank { gone, .. }) if !outcome.has_begun && gone.rank > 0 => {
                let why = watch.failure_of(gone.rank).unwrap_or(gone.cause);
                drop_host(&mut places, &mut lost, gone.host, (why, args.verify))?;
            }
            failure => return watch.finish(failure),
        }
    }
}

/// Chooses the shape; a failure ends the cast before it begins.
fn choose(args: &Args, places: &[Host], spec: &Spec) -> Result<Result<Choice, Failure>> {
    if !args.explain {
        return Ok(Ok(choice::assume(args.shape, spec)));
    }
    choice::measure(
        args.shape,
        spec,
        &options(args, places, spec, &["--survey"])?,
    )
}

/// Prints requested text to the output that carries neither data nor JSON.
fn print_text(text: &str, spec: &Spec, json: bool) -> Result<()> {
    if json || spec.target == Target::StandardOutput {
        watch::print_stderr(text.trim_end());
        return Ok(());
    }
    outln!("{}", text.trim_end())
}

/// Removes the hosts on which nothing could be started; returns any other error.
fn drop_unstarted(
    error: anyhow::Error,
    places: &mut Vec<Host>,
    lost: &mut Vec<(String, String)>,
    args: &Args,
) -> Result<()> {
    for (name, why) in unstarted_receivers(error, places)? {
        drop_host(places, lost, name, (why, args.verify))?;
    }
    Ok(())
}

/// Prints the plan of the cast, and copies nothing.
fn explain(spec: &Spec) -> Result<ExitCode> {
    let size = portolan_cast::measure(&spec.source);
    let size = match size.map_err(|fault| UserError::new(fault.to_string()))? {
        Some(size) => format!(
            "{} entries, {:.1} MB",
            size.entries,
            size.bytes as f64 / 1e6
        ),
        None => "of unknown length".to_owned(),
    };
    outln!("{}, read on {}", size, spec.host(0))?;
    if spec.form == Form::Multicast {
        outln!("by multicast if it reaches all hosts, otherwise by a chain")?;
    }
    let shape = spec.shape();
    for rank in 1..shape.size {
        let from = shape.parent(rank).map_or("", |parent| spec.host(parent));
        let host = spec.host(rank);
        match spec.target_path(rank) {
            Some(path) => outln!("{from} -> {host}: {}", path.display())?,
            None => outln!("{from} -> {host}")?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the receivers that could not be started, with an error message each; any other error
/// ends the cast.
fn unstarted_receivers(error: anyhow::Error, places: &[Host]) -> Result<Vec<(String, String)>> {
    let failed = error.downcast::<FailedHosts>()?;
    let is_receiver = |host| places[1..].iter().any(|place| place.name == host);
    if !failed.hosts().all(|(host, _)| is_receiver(host)) {
        return Err(UserError::new(failed.to_string()).into());
    }
    let hosts = failed.hosts();
    Ok(hosts.map(|(host, why)| (host.to_owned(), why)).collect())
}

/// Removes a host from the cast.
fn drop_host(
    places: &mut Vec<Host>,
    lost: &mut Vec<(String, String)>,
    name: String,
    (why, verify): (String, bool),
) -> Result<()> {
    let line = watch::no_copy_line(&name, &why, verify);
    // If standard error cannot be written, the exit status still reports the failure.
    let _ = writeln!(std::io::stderr(), "{line}");
    // The source may have the same name as a listed host.
    let source = places.remove(0);
    places.retain(|host| host.name != name);
    places.insert(0, source);
    lost.push((name, why));
    if places.len() < 2 {
        user_error!("no host is left to copy to");
    }
    Ok(())
}

/// Returns the source's host, then the receivers.
fn places(args: &Args) -> Result<Vec<Host>> {
    let mut places = match (&args.hosts, &args.lab) {
        (Some(file), _) => {
            let mut places = hosts::here(Some(1));
            places.extend(hosts::of_file(file, Some(1))?);
            places
        }
        (None, Some(name)) => {
            let lab = Lab::find(name)?;
            hosts::of_lab(&lab, lab.host_count, Some(1))
        }
        (None, None) => match hosts::of_slurm()? {
            Some(nodes) => [hosts::here(Some(1)), nodes].concat(),
            None => user_error!(
                "no hosts to copy to: give --hosts FILE or --lab NAME, or run in a Slurm allocation"
            ),
        },
    };
    if places.len() < 2 {
        user_error!("no hosts to copy to: the only host is the source");
    }
    if let Some(count) = args.first {
        places.truncate(count as usize + 1);
    }
    Ok(places)
}

fn spec(args: &Args, places: &[Host]) -> Result<Spec> {
    let source = match args.source.as_os_str().as_bytes() {
        b"-" => Source::StandardInput {
            pid: std::process::id(),
        },
        _ => Source::Path(absolute(&args.source)?),
    };
    let target = target(args, places)?;
    Ok(Spec {
        source,
        target,
        hosts: places.iter().map(|host| host.name.clone()).collect(),
        // Used until another shape is chosen.
        form: Form::CHAIN,
        resume: args.resume,
        verify: args.verify,
        compress: args.compress.map(|CompressArg::Zstd| Compression::Zstd),
        replace: args.replace,
        sync: args.sync,
        keep_partial: args.keep_partial,
        rate_limit: args.limit,
        stall_s: args.stall.as_secs_f64(),
    })
}

fn target(args: &Args, places: &[Host]) -> Result<Target> {
    let target = match (&args.target, &args.pipe) {
        (None, Some(command)) => return Ok(Target::Command(command.clone())),
        (Some(_), Some(_)) => user_error!("TARGET and --pipe exclude each other: give one of them"),
        (None, None) => {
            user_error!("no target: give the TARGET of the copy, or --pipe COMMAND")
        }
        (Some(target), None) => target,
    };
    if target.as_os_str().as_bytes() == b"-" {
        if args.verify {
            user_error!("--verify compares existing copies: give their name as TARGET");
        }
        if places.len() != 2 {
            user_error!(
                "standard output takes the copy of one host, not of {} hosts: copy to one host (--first 1), or \
                 give --pipe COMMAND, which runs on each host",
                places.len() - 1
            );
        }
        return Ok(Target::StandardOutput);
    }
    let name = absolute(target)?;
    let are_namespaces = places
        .iter()
        .all(|host| matches!(host.place, Place::Namespace(..)));
    let is_shared = portolan_cast::expand(&name, "a") == portolan_cast::expand(&name, "b");
    let is_device =
        std::fs::metadata(target).is_ok_and(|there| !there.is_file() && !there.is_dir());
    if are_namespaces && is_shared && !is_device && places.len() > 2 && !args.verify {
        user_error!(
            "the hosts of a lab share their files: include %h, the name of the host, in the \
             target, as in {}/%h",
            target.display()
        );
    }
    Ok(Target::Path(name))
}

/// Returns the absolute path, because the processes start in another directory.
fn absolute(path: &Path) -> Result<Vec<u8>> {
    match std::path::absolute(path) {
        Ok(path) => Ok(path.as_os_str().as_bytes().to_vec()),
        Err(error) => user_error!("{} is not a valid path: {error}", path.display()),
    }
}

fn options(args: &Args, places: &[Host], spec: &Spec, words: &[&str]) -> Result<Options> {
    let mut settings: BTreeMap<String, String> = BTreeMap::new();
    settings.insert("peer_timeout".into(), PEER_TIMEOUT.into());
    for text in &args.option {
        settings.extend([run::command::setting(text)?]);
    }
    let environment = run::command::environment(&[])?;
    if environment.contains_key(settings::PEER_TIMEOUT.variable) {
        settings.remove("peer_timeout");
    }
    let words = words.iter().map(|&word| word.into()).collect();
    let rank_count = u32::try_from(places.len())?;
    portolan::binding::check_settings(&settings, &environment, rank_count)
        .map_err(|error| UserError::new(error.to_string()))?;
    Ok(Options {
        rank_count,
        hosts: places.to_vec(),
        map_by: MapBy::Slot,
        tag_output: false,
        capture: false,
        grace: GRACE,
        on_failure: run::OnFailure::End,
        limit: None,
        workload: Workload {
            path: args.path.into(),
            options: settings,
            environment,
            // This directory exists on every host.
            directory: "/".into(),
            program: OWN_PROGRAM.into(),
            args: [
                vec!["cast-worker".into(), serde_json::to_string(spec)?],
                words,
            ]
            .concat(),
        },
        agent: run::AgentOptions {
            remote_program: run::RemoteProgram::new(args.remote_program.as_ref())?,
            connection: None,
        },
    })
}
