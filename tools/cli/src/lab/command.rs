// SPDX-License-Identifier: MIT OR Apache-2.0
//! `portolan lab`.

use super::link::{DelayBy, Link};
use super::{Kind, Lab, Options, capture, line, plan, temporary};
use crate::error::UserError;
use crate::output::outln;
use crate::program;
use crate::signals::{ENDING, Signals};
use anyhow::Result;
use clap::Subcommand;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Simulate hosts on this machine with network namespaces.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Create a lab: namespaces NAME-h0, NAME-h1 … with an interface eth0 each, 10.77.0.1 upwards.
    Up(Up),
    /// Run a command on one host of a lab.
    Exec(Exec),
    /// Run an MPI program on the hosts of a lab, with ranks assigned to the hosts in turn.
    Mpirun(crate::mpi::lab::Args),
    /// Run a command line on one host, as rsh would; for launchers only.
    #[command(hide = true)]
    Rsh(Rsh),
    /// Record the frames of a lab's hosts in a file, until Ctrl-C.
    Capture(capture::Args),
    /// List the labs that are up.
    List,
    /// Remove a lab.
    Down {
        /// Name of the lab.
        #[arg(long, default_value = "lab")]
        name: String,
    },
    /// Run as the cables of a lab, and delay frames; for internal use.
    #[command(hide = true)]
    Line {
        #[arg(long)]
        name: String,
        #[arg(long)]
        hosts: u32,
        #[arg(long)]
        link: Link,
    },
    /// Hold a temporary lab; for internal use.
    #[command(hide = true)]
    Guard(Up),
}

#[derive(clap::Args)]
struct Up {
    /// Number of hosts.
    #[arg(long, default_value_t = 2)]
    hosts: u32,
    /// MTU of the interfaces in bytes.
    #[arg(long, default_value_t = 1500)]
    mtu: u32,
    /// Name of the lab.
    #[arg(long, default_value = "lab")]
    name: String,
    /// Cores of the hosts, one entry for each host: 0,1,2-3,4+6; `all` to assign none [default: one
    /// core for each host, in turn, of those that this process may use].
    #[arg(long, value_name = "LIST")]
    cores: Option<String>,
    /// Properties of the wires: a class (fast-ethernet, 1g, 10g, 25g), single values (rate=1g,
    /// delay=50us, loss=0.1%, queue=256k), or both, as in 1g,loss=0.1% [default: bare veth].
    #[arg(long, value_name = "SPEC")]
    link: Option<String>,
}

#[derive(clap::Args)]
struct Exec {
    /// The host: h1, 1 or NAME-h1.
    host: String,
    /// Name of the lab.
    #[arg(long, default_value = "lab")]
    name: String,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

#[derive(clap::Args)]
struct Rsh {
    /// Name of the lab.
    #[arg(long, default_value = "lab")]
    name: String,
    host: String,
    /// Words of a command line for a shell.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<String>,
}

/// Runs the selected `portolan lab` command.
pub(crate) fn main(args: Args) -> Result<ExitCode> {
    match args.action {
        Action::Up(up) => create(&up.options()?)?,
        Action::Exec(exec) => return Err(enter(&exec)),
        Action::Mpirun(args) => return crate::mpi::lab::main(args),
        Action::Rsh(rsh) => return Err(exec_rsh(&rsh)),
        Action::Capture(args) => capture::main(&args)?,
        Action::List => list()?,
        Action::Down { name } => remove(&name)?,
        Action::Line { name, hosts, link } => line::main(&name, hosts, &link)?,
        Action::Guard(up) => temporary::guard(&up.options()?)?,
    }
    Ok(ExitCode::SUCCESS)
}

impl Up {
    fn options(self) -> Result<Options> {
        let kind = Kind::plain(self.hosts, self.mtu);
        let kind = kind.with(self.cores.as_deref(), self.link.as_deref())?;
        Ok(kind.named(self.name))
    }
}

fn create(options: &Options) -> Result<()> {
    // Ctrl-C meanwhile would leave a part of the lab.
    let signals = Signals::block(&ENDING)?;
    let lab = Lab::up(options)?;
    if signals.next().is_some() {
        lab.down()?;
        return Err(UserError::new("a signal has arrived, and the lab was removed").into());
    }
    drop(signals);
    for index in 0..lab.host_count {
        outln!("{} {}", lab.namespace(index), plan::address(index))?;
    }
    Ok(())
}

/// Executes the command on the host and its cores in place of this process; returns only on
/// failure.
fn enter(exec: &Exec) -> anyhow::Error {
    let namespace = match find_host(exec) {
        Ok(namespace) => namespace,
        Err(error) => return error,
    };
    let error = Command::new("ip")
        .args(["netns", "exec", &namespace])
        .args(&exec.command)
        .exec();
    if error.kind() == ErrorKind::NotFound {
        return UserError::new(
            "the command `ip` is missing: install it with `apt install iproute2`",
        )
        .into();
    }
    error.into()
}

/// Executes a shell with the command line on the host in place of this process; returns only on
/// failure.
fn exec_rsh(rsh: &Rsh) -> anyhow::Error {
    let entry = Lab::find(&rsh.name).and_then(|lab| {
        let index = lab.host_index(&rsh.host)?;
        super::host::entry(&lab, index)
    });
    match entry {
        Ok(mut entry) => entry.args(["sh", "-c", &rsh.words.join(" ")]).exec().into(),
        Err(error) => error,
    }
}

fn find_host(exec: &Exec) -> Result<String> {
    super::ip::check_privilege()?;
    let lab = Lab::find(&exec.name)?;
    let index = lab.host_index(&exec.host)?;
    program::find(&exec.command[0]).map_err(UserError::new)?;
    super::host::bind_to_cores(&lab, index)?;
    Ok(lab.namespace(index))
}

fn list() -> Result<()> {
    for lab in Lab::list()? {
        let link = match lab.link.is_shaped() {
            true => lab.link.to_string(),
            false => "veth".to_owned(),
        };
        let cables = match lab.link.delay_by {
            Some(DelayBy::Line) => match line::find(&lab.name)? {
                Some(line) => format!(" {line}"),
                None => " line dead: its process has ended".to_owned(),
            },
            _ => String::new(),
        };
        outln!(
            "{} hosts {} mtu {} addresses {} to {} cores {} link {link}{cables}",
            lab.name,
            lab.host_count,
            lab.mtu,
            plan::address(0),
            plan::address(lab.host_count - 1),
            lab.core_list()
        )?;
    }
    Ok(())
}

fn remove(name: &str) -> Result<()> {
    let lingering = Lab::find_any(name)?.down()?;
    if !lingering.is_empty() {
        let pids: Vec<String> = lingering.iter().map(u32::to_string).collect();
        eprintln!(
            "portolan: warning: lab {name} was removed, but these of its processes still run, without a \
             network: {}",
            pids.join(" ")
        );
    }
    Ok(())
}
