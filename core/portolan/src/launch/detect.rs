// SPDX-License-Identifier: MIT OR Apache-2.0
//! Detection of the launcher that started this process, by the environment.
//!
//! Launchers nest, and variables are inherited. An open descriptor therefore counts more than a
//! variable: it comes from the parent itself. This module does not connect to a launcher.

use super::LaunchError;
use crate::settings::{BadVariable, LAUNCH_FD, LAUNCHER};
use portolan_sys::inherit::is_inherited_socket;

/// Launcher that started this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Starter {
    /// `portolan run`.
    Portolan,
    /// A launcher that uses PMI-1 over an inherited socket: MPICH's and Intel's hydra,
    /// `srun --mpi=pmi2`.
    Pmi {
        /// Inherited socket.
        fd: i32,
    },
    /// A launcher with a PMIx server: Open MPI's `mpirun`, `prterun`, `srun --mpi=pmix`.
    Pmix,
    /// Slurm's `srun` without PMI or PMIx. Slurm's own library joins the processes.
    Slurm,
    /// No known launcher: a job of one.
    None,
}

/// A decision and its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) starter: Starter,
    /// Reason, for the user.
    pub(super) why: String,
}

impl Found {
    fn new(starter: Starter, why: impl Into<String>) -> Found {
        let why = why.into();
        Found { starter, why }
    }
}

/// Detects the launcher of this process.
///
/// # Errors
/// [`LaunchError::BadVariable`] for an invalid setting.
pub(super) fn here() -> Result<Found, LaunchError> {
    let variable = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty())?;
        Some(value.to_string_lossy().into_owned())
    };
    detect(variable, is_inherited_socket)
}

fn detect(
    variable: impl Fn(&str) -> Option<String>,
    is_socket: impl Fn(i32) -> bool,
) -> Result<Found, LaunchError> {
    let setting = variable(LAUNCHER.variable);
    match setting.as_deref() {
        None | Some("auto") => {}
        Some("none") => {
            let why = format!("{}=none", LAUNCHER.variable);
            return Ok(Found::new(Starter::None, why));
        }
        Some(other) => {
            return Err(LaunchError::from(BadVariable {
                variable: LAUNCHER.variable,
                value: other.to_owned(),
                expected: "auto or none",
            }));
        }
    }
    if variable(LAUNCH_FD.variable).is_some() {
        return Ok(Found::new(Starter::Portolan, "started by portolan run"));
    }
    let pmi = variable("PMI_FD").and_then(|text| text.parse().ok());
    if let Some(fd) = pmi.filter(|fd| is_socket(*fd)) {
        let why = "started by a launcher that speaks PMI-1 (PMI_FD)";
        return Ok(Found::new(Starter::Pmi { fd }, why));
    }
    if let (Some(name), Some(_)) = (variable("PMIX_NAMESPACE"), variable("PMIX_RANK")) {
        let why = format!("started by a launcher with PMIx (job {name})");
        return Ok(Found::new(Starter::Pmix, why));
    }
    Ok(slurm(&variable).unwrap_or_else(|| Found::new(Starter::None, "no launcher found")))
}

/// Detects a step of `srun` with several tasks. A step has all of these variables; a batch script,
/// or a shell of `salloc`, lacks some. A step of one task is a job of one in any case.
fn slurm(variable: impl Fn(&str) -> Option<String>) -> Option<Found> {
    let job = variable("SLURM_JOB_ID")?;
    let step = variable("SLURM_STEP_ID")?;
    variable("SLURM_PROCID")?;
    let count: u32 = variable("SLURM_STEP_NUM_TASKS")?.parse().ok()?;
    let why = format!("started by srun without PMI (step {job}.{step})");
    (count > 1).then(|| Found::new(Starter::Slurm, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn found(variables: &[(&str, &str)], sockets: &[i32]) -> Starter {
        let map: HashMap<&str, &str> = variables.iter().copied().collect();
        let variable = |name: &str| map.get(name).map(|value| (*value).to_owned());
        let is_socket = |fd: i32| sockets.contains(&fd);
        detect(variable, is_socket).unwrap().starter
    }

    #[test]
    fn the_innermost_launcher_wins() {
        let all = [
            ("PMI_FD", "7"),
            ("PMIX_NAMESPACE", "a"),
            ("PMIX_RANK", "0"),
            ("SLURM_JOB_ID", "1"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_NUM_TASKS", "2"),
        ];
        assert_eq!(found(&all, &[7]), Starter::Pmi { fd: 7 });
        // The variable comes from an outer launcher, and its socket has been closed.
        assert_eq!(found(&all, &[]), Starter::Pmix);
        assert_eq!(found(&all[3..], &[]), Starter::Slurm);
        let own = [&all[..], &[("PORTOLAN_LAUNCH_FD", "3")]].concat();
        assert_eq!(found(&own, &[7]), Starter::Portolan);
        let none = [&own[..], &[("PORTOLAN_LAUNCHER", "none")]].concat();
        assert_eq!(found(&none, &[7]), Starter::None);
        assert_eq!(found(&[], &[]), Starter::None);
    }

    #[test]
    fn batch_script_is_not_a_step() {
        let batch = [("SLURM_JOB_ID", "1"), ("SLURM_PROCID", "0")];
        assert_eq!(found(&batch, &[]), Starter::None);
        let one = [
            &batch[..],
            &[("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "1")],
        ];
        assert_eq!(found(&one.concat(), &[]), Starter::None);
    }

    #[test]
    fn invalid_launcher_is_refused() {
        let variable = |name: &str| (name == "PORTOLAN_LAUNCHER").then(|| "mpirun".to_owned());
        let error = detect(variable, |_| false).unwrap_err().to_string();
        assert!(
            error.contains("PORTOLAN_LAUNCHER") && error.contains("auto or none"),
            "{error}"
        );
    }
}
