// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is set for an MPI's launcher, and its command line. No side effects.

use super::find::{Kind, Mpi};
use portolan_profile::VARIABLE;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the libfabric provider.
pub(crate) const PROVIDER: &str = "portolan";

/// A launcher's environment and arguments.
#[derive(Debug)]
pub(crate) struct Plan {
    launcher: PathBuf,
    /// Variables for the launcher and the processes.
    environment: Vec<(&'static str, String)>,
    /// Options before those of the person.
    options: Vec<String>,
    args: Vec<String>,
}

/// The hosts of a lab, and how their launchers' helpers get there.
pub(super) struct Hosts<'a> {
    /// Their names, each with an address.
    pub(super) names: &'a [String],
    pub(super) rank_count: u32,
    /// There are fewer cores than ranks.
    pub(super) is_crowded: bool,
    /// This program.
    pub(super) agent: &'a str,
    /// What it gets before the host and the command.
    pub(super) agent_args: &'a str,
}

impl Plan {
    /// Runs the launcher of `mpi` with `args`.
    pub(crate) fn new(mpi: &Mpi, args: Vec<String>) -> Plan {
        Plan {
            launcher: mpi.launcher.clone(),
            environment: Vec::new(),
            options: Vec::new(),
            args,
        }
    }

    /// Makes the MPI use Portolan's provider in `directory`.
    pub(super) fn take_provider(&mut self, kind: Kind, directory: &Path) {
        self.set("FI_PROVIDER", PROVIDER);
        self.set("FI_PROVIDER_PATH", directory.display());
        match kind {
            Kind::OpenMpi => {
                // cm takes all messages to one transport; ob1, the default, splits them over btls.
                self.set("OMPI_MCA_pml", "cm");
                self.set("OMPI_MCA_mtl", "ofi");
                self.forward_own();
            }
            // Its own variable for the provider is gone since MPICH 4; libfabric's is enough.
            Kind::Mpich => self.set("MPIR_CVAR_CH4_NETMOD", "ofi"),
            Kind::Intel => {
                self.set("I_MPI_FABRICS", "shm:ofi");
                self.set("I_MPI_OFI_PROVIDER", PROVIDER);
            }
        }
    }

    /// Spreads the ranks over the hosts of a lab, one rank a host in turn.
    pub(super) fn take_hosts(&mut self, kind: Kind, hosts: &Hosts<'_>) {
        let used = hosts.names.len().min(hosts.rank_count.max(1) as usize);
        let names = &hosts.names[..used];
        let agent = format!("{} {}", hosts.agent, hosts.agent_args);
        match kind {
            Kind::OpenMpi => {
                let slots = (hosts.rank_count as usize).div_ceil(used);
                let list: Vec<String> =
                    names.iter().map(|name| format!("{name}:{slots}")).collect();
                // One name before, one since Open MPI 5.
                self.set("OMPI_MCA_plm_rsh_agent", &agent);
                self.set("PRTE_MCA_plm_ssh_agent", &agent);
                // Labs need root, which Open MPI refuses unless told twice.
                self.set("OMPI_ALLOW_RUN_AS_ROOT", 1);
                self.set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", 1);
                if hosts.is_crowded {
                    // It knows so by itself only of one host's ranks and slots.
                    self.set("OMPI_MCA_mpi_yield_when_idle", 1);
                }
                self.option(&["--host", &list.join(","), "--map-by", "node"]);
                // A host's ranks have its cores already; where it has none of its own it would believe
                // that all are, and ranks that are bound would share one.
                self.option(&["--bind-to", "none"]);
            }
            Kind::Mpich => {
                self.set("HYDRA_LAUNCHER_EXTRA_ARGS", hosts.agent_args);
                self.option(&["-launcher", "rsh", "-launcher-exec", hosts.agent]);
                self.option(&["-hosts", &names.join(","), "-ppn", "1"]);
            }
            Kind::Intel => {
                self.set("I_MPI_HYDRA_BOOTSTRAP", "rsh");
                self.set("I_MPI_HYDRA_BOOTSTRAP_EXEC", hosts.agent);
                self.set("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", hosts.agent_args);
                self.set("I_MPI_PIN", 0);
                self.option(&["-hosts", &names.join(","), "-ppn", "1"]);
            }
        }
        self.option(&["-n", &hosts.rank_count.to_string()]);
    }

    /// Makes the MPI load `library` into the processes, before the program's own, and tells it
    /// `request`.
    pub(crate) fn take_counting(&mut self, kind: Kind, library: &Path, request: &str) {
        let mut preload = library.display().to_string();
        // What a person has loaded stays.
        if let Some(own) = std::env::var("LD_PRELOAD")
            .ok()
            .filter(|own| !own.is_empty())
        {
            preload = format!("{preload}:{own}");
        }
        let mut words = Vec::new();
        for (name, value) in [("LD_PRELOAD", preload.as_str()), (VARIABLE, request)] {
            match kind {
                Kind::OpenMpi => words.extend(["-x".to_owned(), format!("{name}={value}")]),
                Kind::Mpich | Kind::Intel => {
                    words.extend(["-genv", name, value].map(str::to_owned));
                }
            }
        }
        if kind == Kind::OpenMpi {
            self.args = behind_each_colon(&self.args, &words);
        }
        self.options.extend(words);
    }

    /// The variables that are set.
    pub(super) fn environment(&self) -> &[(&'static str, String)] {
        &self.environment
    }

    /// What the variable `name` is set to.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let set = self.environment.iter().find(|(set, _)| *set == name);
        set.map(|(_, value)| value.as_str())
    }

    /// The command that does it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.launcher);
        self.complete(&mut command);
        command
    }

    /// The same, as arguments of `command`, which runs it somewhere else.
    pub(super) fn command_by(&self, mut command: Command) -> Command {
        command.arg(&self.launcher);
        self.complete(&mut command);
        command
    }

    fn complete(&self, command: &mut Command) {
        command
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .args(&self.options)
            .args(&self.args);
    }

    fn set(&mut self, name: &'static str, value: impl fmt::Display) {
        self.environment.push((name, value.to_string()));
    }

    fn option(&mut self, words: &[&str]) {
        self.options
            .extend(words.iter().map(|word| (*word).to_owned()));
    }

    /// Open MPI takes variables to other hosts only if they are its own or are named.
    fn forward_own(&mut self) {
        for name in ["FI_PROVIDER", "FI_PROVIDER_PATH"] {
            self.option(&["-x", name]);
        }
        let own = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let is_own = |name: &String| name.starts_with("PORTOLAN_") && name != VARIABLE;
        let mut own: Vec<String> = own.filter(is_own).collect();
        own.sort();
        for name in own {
            self.option(&["-x", &name]);
        }
    }
}

/// `args` with `words` behind each `:`, which begins another program of the same job: Open MPI's
/// options for one hold for no other.
fn behind_each_colon(args: &[String], words: &[String]) -> Vec<String> {
    let mut all = Vec::new();
    for arg in args {
        all.push(arg.clone());
        if arg == ":" {
            all.extend_from_slice(words);
        }
    }
    all
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            // A shell needs no quotes for anything else that is set here.
            let quote = if value.contains(' ') { "'" } else { "" };
            write!(f, "{name}={quote}{value}{quote} ")?;
        }
        write!(f, "{}", self.launcher.display())?;
        for word in self.options.iter().chain(&self.args) {
            write!(f, " {word}")?;
        }
        Ok(())
    }
}
