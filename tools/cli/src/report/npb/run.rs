// SPDX-License-Identifier: MIT OR Apache-2.0
//! One run of one program: `portolan profile` of `portolan mpirun` or `portolan lab mpirun`, as a
//! user would run it.

use crate::launcher::{own_transport, wait};
use crate::mpi::find::Mpi;
use anyhow::{Context, Result, bail, ensure};
use portolan_profile::{Profile, World};
use portolan_report::Network;
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Time limit: longer than class B takes alone on a slow core. It ends a deadlocked program.
const LIMIT: Duration = Duration::from_secs(1800);

/// A program to run, and its environment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job<'a> {
    pub(super) mpi: &'a Mpi,
    pub(super) file: &'a Path,
    pub(super) class: &'a str,
    pub(super) processes: u32,
    /// Network to use; `None` for a single process.
    pub(super) network: Option<Network>,
    /// Name of the lab with the networks; `None` to run on this host.
    pub(super) lab: Option<&'a str>,
    /// Directory of Portolan's provider.
    pub(super) provider_dir: &'a Path,
    /// Set if the processes must share this machine's cores.
    pub(super) is_oversubscribed: bool,
}

/// Result of a run.
#[derive(Debug)]
pub(super) struct Ran {
    /// Seconds of the program's timed part.
    pub(super) seconds: f64,
    pub(super) world: World,
}

/// Output of a program with `--json`; other fields are ignored.
#[derive(Deserialize)]
struct Printed {
    seconds: f64,
    verification: String,
}

impl Job<'_> {
    /// Runs the program to its end.
    ///
    /// # Errors
    /// It fails, does not end, does not verify, or was not counted.
    pub(super) fn run(&self) -> Result<Ran> {
        let profile = tempfile::NamedTempFile::new().context("creating a file for a profile")?;
        let mut out =
            tempfile::tempfile().context("creating a file for the output of a program")?;
        let mut stderr =
            tempfile::tempfile().context("creating a file for the output of a program")?;
        let mut command = self.command(profile.path())?;
        command.stdin(Stdio::null());
        command.stdout(out.try_clone()?).stderr(stderr.try_clone()?);
        let child = command
            .spawn()
            .context("starting this program a second time")?;
        let status = wait(child, LIMIT)?;
        let (out, stderr) = (text(&mut out)?, text(&mut stderr)?);
        if !status.success() {
            bail!("{}", cause(&stderr).unwrap_or_else(|| status.to_string()));
        }
        let printed = out.lines().rfind(|line| line.starts_with("{\"name\":"));
        let printed = printed.context("the program printed no result")?;
        let printed: Printed =
            serde_json::from_str(printed).context("the program's result cannot be read")?;
        ensure!(
            printed.verification == "passed",
            "the result is wrong: its verification failed"
        );
        let profile: Profile = serde_json::from_slice(&fs::read(profile.path())?)
            .context("the program was not counted")?;
        let world = profile.worlds.into_iter().next();
        Ok(Ran {
            seconds: printed.seconds,
            world: world.context("the program was not counted")?,
        })
    }

    fn command(&self, profile: &Path) -> Result<Command> {
        let own = std::env::current_exe()?;
        let mut command = Command::new(&own);
        command
            .args(["profile", "--json"])
            .arg(profile)
            .arg("--")
            .arg(&own);
        let lab = self
            .lab
            .filter(|_| self.network.is_some_and(|network| !network.is_within()));
        let count = self.processes.to_string();
        match lab {
            Some(lab) => command.args(["lab", "mpirun", "--name", lab, "-n", &count]),
            None => command.arg("mpirun"),
        };
        command.arg("--mpi").arg(&self.mpi.launcher);
        match self.network {
            Some(network) if network.is_portolan() => {
                command.arg("--provider-dir").arg(self.provider_dir);
                command.env("PORTOLAN_PATH", network.path().to_string());
            }
            // A single process has no peer: its own memory is the simplest network.
            network => {
                let path = network.unwrap_or(Network::OwnShm).path();
                command
                    .arg("--plain")
                    .envs(own_transport(path).iter().copied());
            }
        }
        if lab.is_none() {
            command.args(["-n", &count]);
        }
        command.arg(self.file).args([self.class, "--json"]);
        command.envs([
            ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
            ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
            ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe"),
        ]);
        if self.is_oversubscribed {
            command.env("OMPI_MCA_mpi_yield_when_idle", "1");
        }
        Ok(command)
    }
}

fn text(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the most likely error line: the last line of this program, else the last line with a
/// word.
fn cause(stderr: &str) -> Option<String> {
    // The command line and the missing profile are not causes.
    let is_no_cause = |line: &&str| line.contains("MPI_Init") || line.contains("PORTOLAN_PROFILE");
    let ours = stderr
        .lines()
        .filter_map(|line| line.strip_prefix("portolan: "));
    let ours = ours.rev().find(|line| !is_no_cause(line));
    let has_text = |line: &&str| line.contains(char::is_alphanumeric);
    let line = ours.or_else(|| stderr.lines().rfind(has_text))?;
    Some(line.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_is_the_last_error_before_the_missing_profile() {
        let stderr = "portolan: Open MPI: -x PORTOLAN_PROFILE=0:/tmp mpirun\n------\nportolan: no provider here\n\
                    portolan: no process reached MPI_Init, so there is no profile\n";
        assert_eq!(cause(stderr).as_deref(), Some("no provider here"));
        let stderr =
            "portolan: Open MPI: -x PORTOLAN_PROFILE=0:/tmp mpirun\nNot enough slots\n------\n";
        assert_eq!(cause(stderr).as_deref(), Some("Not enough slots"));
        assert_eq!(cause("\n---\n"), None);
    }
}
