// SPDX-License-Identifier: MIT OR Apache-2.0
//! Settings for an MPI's launcher, and its command line.

use super::exports::{LIST, Way};
use super::find::{Kind, Mpi};
use super::provider;
use crate::error::user_error;
use anyhow::Result;
use nix::sys::memfd::{MFdFlags, memfd_create};
use portolan::binding::settings::{AUTH, is_encrypting};
use portolan_profile::VARIABLE;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the libfabric provider.
pub(crate) const PROVIDER: &str = "portolan";

/// Variable with the directory of the provider.
const PROVIDER_PATH: &str = "FI_PROVIDER_PATH";

/// A word of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Text(String),
    /// The name of a file with this text.
    File(String),
}

/// A launcher's environment and arguments.
#[derive(Debug)]
pub(crate) struct Plan {
    launcher: PathBuf,
    /// Variables for the launcher and the processes.
    environment: Vec<(&'static str, String)>,
    /// Options before those of the user.
    options: Vec<Word>,
    args: Vec<Word>,
    /// Open MPI only: how variables reach processes on other hosts.
    way: Way,
    /// Library that every host needs.
    library: Option<PathBuf>,
}

/// The hosts of a lab, and the command by which the launcher reaches them.
pub(super) struct Hosts<'a> {
    /// Names of the hosts; each resolves to an address.
    pub(super) names: &'a [String],
    pub(super) rank_count: u32,
    /// Set if there are fewer cores than ranks.
    pub(super) is_crowded: bool,
    /// Path of this program.
    pub(super) agent: &'a str,
    /// Arguments of the agent before the host and the command.
    pub(super) agent_args: &'a str,
}

impl Word {
    /// Returns the word; `None` for a file.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Word::Text(text) => Some(text),
            Word::File(_) => None,
        }
    }

    /// Returns the word as an argument. A file is created in memory; the launcher inherits its
    /// descriptor, and it disappears with the launcher.
    fn argument(&self) -> io::Result<String> {
        let text = match self {
            Word::Text(text) => return Ok(text.clone()),
            Word::File(text) => text,
        };
        let fd = memfd_create("portolan", MFdFlags::empty())?;
        let mut file = File::from(fd);
        file.write_all(text.as_bytes())?;
        let name = format!("/proc/self/fd/{}", file.as_raw_fd());
        // It stays open for the launcher.
        let _ = file.into_raw_fd();
        Ok(name)
    }
}

impl Plan {
    /// Creates a plan that runs the launcher of `mpi` with `args`.
    pub(crate) fn new(mpi: &Mpi, args: Vec<String>) -> Plan {
        Plan::with(mpi, args, |name| std::env::var(name).ok())
    }

    /// As [`Plan::new`], with the environment variables that `variable` returns.
    pub(super) fn with(
        mpi: &Mpi,
        args: Vec<String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Plan {
        let args: Vec<Word> = args.into_iter().map(Word::Text).collect();
        let way = Way::choose(&args, variable, |path| std::fs::read_to_string(path).ok());
        Plan {
            launcher: mpi.launcher.clone(),
            environment: Vec::new(),
            options: Vec::new(),
            args,
            way,
            library: None,
        }
    }

    /// Makes the MPI use Portolan's provider in `directory`.
    pub(super) fn take_provider(&mut self, kind: Kind, directory: &Path) {
        self.set("FI_PROVIDER", PROVIDER);
        self.set(PROVIDER_PATH, directory.display());
        self.need_library(directory.join(provider::FILE));
        match kind {
            Kind::OpenMpi => {
                // cm uses one transport for all messages; ob1, the default, divides them among
                // BTLs.
                self.set("OMPI_MCA_pml", "cm");
                self.set("OMPI_MCA_mtl", "ofi");
                self.forward_provider();
            }
            // MPICH 4 no longer has a variable for the provider; that of libfabric suffices.
            Kind::Mpich => self.set("MPIR_CVAR_CH4_NETMOD", "ofi"),
            Kind::Intel => {
                self.set("I_MPI_FABRICS", "shm:ofi");
                self.set("I_MPI_OFI_PROVIDER", PROVIDER);
            }
        }
    }

    /// Makes all processes encrypt their messages between hosts. `own` is the user's setting.
    ///
    /// # Errors
    /// The user's setting does not encrypt.
    pub(super) fn take_encryption(&mut self, own: Option<&str>) -> Result<()> {
        match own {
            None => self.set(AUTH.variable, "aead"),
            // Another cipher.
            Some(own) if is_encrypting(own) => {}
            Some(own) => user_error!("--encrypt contradicts {}={own}: unset it", AUTH.variable),
        }
        Ok(())
    }

    /// Assigns the ranks to the hosts of a lab in turn.
    pub(super) fn take_hosts(&mut self, kind: Kind, hosts: &Hosts<'_>) {
        let used = hosts.names.len().min(hosts.rank_count.max(1) as usize);
        let names = &hosts.names[..used];
        let agent = format!("{} {}", hosts.agent, hosts.agent_args);
        match kind {
            Kind::OpenMpi => {
                let slots = (hosts.rank_count as usize).div_ceil(used);
                let list: Vec<String> =
                    names.iter().map(|name| format!("{name}:{slots}")).collect();
                // The first name is for Open MPI 4, the second for Open MPI 5.
                self.set("OMPI_MCA_plm_rsh_agent", &agent);
                self.set("PRTE_MCA_plm_ssh_agent", &agent);
                // Labs need root, and Open MPI runs as root only with both variables.
                self.set("OMPI_ALLOW_RUN_AS_ROOT", 1);
                self.set("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", 1);
                if hosts.is_crowded {
                    // Open MPI detects that by itself only from the ranks and slots of one host.
                    self.set("OMPI_MCA_mpi_yield_when_idle", 1);
                }
                self.option(&["--host", &list.join(","), "--map-by", "node"]);
                // The ranks of a host are bound to its cores already. On hosts without own cores,
                // Open MPI would bind ranks of different hosts to the same core.
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

    /// Makes the MPI load `library` into the processes, before the program's own libraries, and
    /// passes it `request`.
    pub(crate) fn take_counting(&mut self, kind: Kind, library: &Path, request: &str) {
        let mut preload = library.display().to_string();
        // Keep the libraries that the user preloads.
        if let Some(own) = std::env::var("LD_PRELOAD")
            .ok()
            .filter(|own| !own.is_empty())
        {
            preload = format!("{preload}:{own}");
        }
        for (name, value) in [("LD_PRELOAD", preload.as_str()), (VARIABLE, request)] {
            match kind {
                Kind::OpenMpi => self.export(&format!("{name}={value}")),
                Kind::Mpich | Kind::Intel => self.option(&["-genv", name, value]),
            }
        }
    }

    /// Runs the processes on the hosts of a file with this text, which has the launcher's format.
    pub(super) fn take_hosts_file(&mut self, kind: Kind, text: String) {
        let option = match kind {
            // Open MPI 4 ignores `--hostfile` beside `--app`.
            Kind::OpenMpi => "--default-hostfile",
            Kind::Mpich | Kind::Intel => "-f",
        };
        self.option(&[option]);
        self.options.push(Word::File(text));
    }

    /// Returns the variables that are set.
    pub(super) fn environment(&self) -> &[(&'static str, String)] {
        &self.environment
    }

    /// Returns the value of the variable `name`.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        let set = self.environment.iter().find(|(set, _)| *set == name);
        set.map(|(_, value)| value.as_str())
    }

    /// Returns the library that every host needs, if any.
    pub(super) fn needed_library(&self) -> Option<&Path> {
        self.library.as_deref()
    }

    pub(super) fn need_library(&mut self, library: PathBuf) {
        self.library = Some(library);
    }

    /// Returns the command.
    ///
    /// # Errors
    /// A file for the launcher cannot be created.
    pub(crate) fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(&self.launcher);
        self.complete(&mut command)?;
        Ok(command)
    }

    /// Returns the command as arguments of `command`, which runs it elsewhere.
    pub(super) fn command_by(&self, mut command: Command) -> io::Result<Command> {
        command.arg(&self.launcher);
        self.complete(&mut command)?;
        Ok(command)
    }

    fn complete(&self, command: &mut Command) -> io::Result<()> {
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        for word in self.options.iter().chain(&self.args) {
            command.arg(word.argument()?);
        }
        Ok(())
    }

    pub(super) fn set(&mut self, name: &'static str, value: impl fmt::Display) {
        self.environment.push((name, value.to_string()));
    }

    fn option(&mut self, words: &[&str]) {
        let words = words.iter().map(|word| Word::Text((*word).to_owned()));
        self.options.extend(words);
    }

    /// Forwards the provider's variables. Open MPI forwards only its own variables and those that
    /// are named.
    fn forward_provider(&mut self) {
        for name in ["FI_PROVIDER", PROVIDER_PATH] {
            self.export(name);
        }
        self.forward_settings();
    }

    /// Forwards Portolan's settings to other hosts.
    pub(super) fn forward_settings(&mut self) {
        let own = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let is_own = |name: &String| name.starts_with("PORTOLAN_") && name != VARIABLE;
        let mut own: Vec<String> = own.filter(is_own).collect();
        let set = self.environment.iter().map(|(name, _)| (*name).to_owned());
        own.extend(set.filter(is_own));
        own.sort();
        own.dedup();
        for name in own {
            self.export(&name);
        }
    }

    fn export(&mut self, entry: &str) {
        let list = self.way.export(entry, &mut self.options, &mut self.args);
        if let Some(list) = list {
            self.environment.retain(|(name, _)| *name != LIST);
            self.set(LIST, list);
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            // No other value set here needs quotes in a shell.
            let quote = if value.contains([' ', ';']) { "'" } else { "" };
            write!(f, "{name}={quote}{value}{quote} ")?;
        }
        write!(f, "{}", self.launcher.display())?;
        for word in self.options.iter().chain(&self.args) {
            match word {
                Word::Text(text) => write!(f, " {text}")?,
                Word::File(text) => write!(f, " <{}>", text.trim_end().replace('\n', "; "))?,
            }
        }
        Ok(())
    }
}
