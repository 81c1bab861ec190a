// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of recognising launchers, and of the settings for each.

use super::find::{Kind, recognise};
use super::plan::{Hosts, Plan};
use super::*;
use std::path::Path;

const MPICH: &str = "HYDRA build details:\n    Version:                                 5.0.2\n    \
    Configure options:                       --with-device=ch4:ucx,ofi --with-pm=hydra:gforker\n";

fn mpi(output: &str) -> Mpi {
    recognise(output, Path::new("/opt/bin/mpirun")).unwrap()
}

#[test]
fn launcher_is_recognised_by_version_output() {
    for (output, kind, version, ofi) in [
        (
            "mpirun (Open MPI) 5.0.11\n\nReport bugs to …",
            Kind::OpenMpi,
            "5.0.11",
            None,
        ),
        (
            "mpirun.openmpi (OpenRTE) 4.1.4\n",
            Kind::OpenMpi,
            "4.1.4",
            None,
        ),
        (MPICH, Kind::Mpich, "5.0.2", Some(true)),
        (
            &MPICH.replace(",ofi", ""),
            Kind::Mpich,
            "5.0.2",
            Some(false),
        ),
        (
            "Intel(R) MPI Library for Linux* OS, Version 2021.13 Build 20240701 (id: 179630a)\n",
            Kind::Intel,
            "2021.13 Build 20240701 (id: 179630a)",
            None,
        ),
    ] {
        let mpi = mpi(output);
        let found = (mpi.kind, mpi.version.as_str(), mpi.has_ofi());
        assert_eq!(found, (kind, version, ofi));
        assert_eq!(mpi.check_ofi().is_err(), ofi == Some(false));
    }
    assert_eq!(recognise("slurm-wlm 22.05.8\n", Path::new("mpirun")), None);
    assert_eq!(recognise("", Path::new("mpirun")), None);
}

#[test]
fn plan_is_displayed_in_one_line() {
    for (output, expected) in [
        (
            "mpirun (Open MPI) 5.0.11\n",
            "FI_PROVIDER=portolan FI_PROVIDER_PATH=/lib OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi \
             OMPI_MCA_mca_base_env_list='FI_PROVIDER;FI_PROVIDER_PATH' /opt/bin/mpirun",
        ),
        (
            MPICH,
            "FI_PROVIDER=portolan FI_PROVIDER_PATH=/lib MPIR_CVAR_CH4_NETMOD=ofi \
             /opt/bin/mpirun",
        ),
    ] {
        let mpi = mpi(output);
        let line = line_of(&mpi, &["-n", "2", "./a.out"], &[]);
        assert!(line.starts_with(expected), "{line}");
        assert!(line.ends_with(" -n 2 ./a.out"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}

#[test]
fn ranks_are_spread_over_the_hosts_of_a_lab() {
    let names = ["lab-h0", "lab-h1", "lab-h2"].map(str::to_owned);
    for (output, rank_count, expected) in [
        (
            "mpirun (Open MPI) 5.0.11\n",
            4,
            "--host lab-h0:2,lab-h1:2,lab-h2:2 --map-by node",
        ),
        (
            "mpirun (Open MPI) 5.0.11\n",
            2,
            "--host lab-h0:1,lab-h1:1 --map-by node",
        ),
        (MPICH, 4, "-hosts lab-h0,lab-h1,lab-h2 -ppn 1 -n 4 ./a.out"),
    ] {
        let mpi = mpi(output);
        let mut plan = Plan::new(&mpi, vec!["./a.out".into()]);
        plan.take_hosts(
            mpi.kind,
            &Hosts {
                is_crowded: true,
                names: &names,
                rank_count,
                agent: "/opt/portolan",
                agent_args: "lab rsh --name lab",
            },
        );
        let line = plan.to_string();
        assert!(line.contains(expected), "{line}");
        let yields = line.contains("OMPI_MCA_mpi_yield_when_idle=1");
        assert_eq!(yields, mpi.kind == Kind::OpenMpi, "{line}");
    }
}

#[test]
fn choice_depends_on_settings_and_offered_providers() {
    let tcp = ["tcp;ofi_rxm", "sockets"].map(str::to_owned);
    let both = ["tcp;ofi_rxm", "portolan"].map(str::to_owned);
    let ours = ["portolan".to_owned()];
    let open = mpi("mpirun (Open MPI) 5.0.11\n");
    let mpich = mpi(MPICH);
    let ucx = mpi(&MPICH.replace(",ofi", ""));
    let cm = ("OMPI_MCA_pml", "cm");
    let ofi = ("MPIR_CVAR_CH4_NETMOD", "ofi");
    let intel = mpi("Intel(R) MPI Library for Linux* OS, Version 2021.13\n");
    let requested = ("I_MPI_OFI_PROVIDER", "portolan");
    for (mpi, offered, settings, by) in [
        (
            &open,
            &tcp[..],
            &[][..],
            "shared memory and TCP (ob1 with btls)",
        ),
        (&open, &both, &[], "portolan"),
        (&open, &both, &[cm], "portolan"),
        (&open, &tcp, &[cm], "nothing"),
        (&open, &both, &[("OMPI_MCA_pml", "ob1")], "ob1"),
        (&mpich, &both, &[], "UCX"),
        (&mpich, &both, &[ofi], "one of tcp;ofi_rxm, portolan"),
        (&intel, &both, &[requested], "portolan"),
        (&intel, &tcp, &[requested], "nothing"),
        (&mpich, &ours, &[ofi], "portolan"),
        (&mpich, &[], &[ofi], "nothing"),
        (&ucx, &both, &[ofi], "UCX"),
    ] {
        let variable = |name: &str| {
            let set = settings.iter().find(|(set, _)| *set == name);
            set.map(|(_, value)| (*value).to_owned())
        };
        let choice = report::choose(mpi, offered, variable);
        assert_eq!(
            choice.by, by,
            "{mpi} {offered:?} {settings:?}: {}",
            choice.why
        );
    }
}

/// Returns the command line with Portolan's provider, in an environment with `variables`.
fn line_of(mpi: &Mpi, args: &[&str], variables: &[(&str, &str)]) -> String {
    let args = args.iter().map(|&arg| arg.to_owned()).collect();
    let mut plan = Plan::with(mpi, args, |name| {
        let set = variables.iter().find(|(set, _)| *set == name);
        set.map(|(_, value)| (*value).to_owned())
    });
    plan.take_provider(mpi.kind, Path::new("/lib"));
    plan.to_string()
}

/// Returns the part of the line after the launcher.
fn launched(args: &[&str], variables: &[(&str, &str)]) -> String {
    let line = line_of(&mpi("mpirun (Open MPI) 4.1.4\n"), args, variables);
    line.split_once("/opt/bin/mpirun ").unwrap().1.to_owned()
}

const LIST: &str = "OMPI_MCA_mca_base_env_list";
const BOTH_X: &str = "-x FI_PROVIDER -x FI_PROVIDER_PATH";
const BOTH_X_REVERSED: &str = "-x FI_PROVIDER_PATH -x FI_PROVIDER";

#[test]
fn every_program_of_an_open_mpi_job_gets_the_variables() {
    let programs = "-n 1 ./a : -n 2 ./b";
    let args: Vec<&str> = programs.split(' ').collect();
    assert_eq!(launched(&args, &[]), programs);
    let args = [&["-x", "FOO"], &args[..]].concat();
    assert_eq!(
        launched(&args, &[]),
        format!("{BOTH_X} -x FOO -n 1 ./a : {BOTH_X_REVERSED} -n 2 ./b")
    );
}

#[test]
fn users_variable_list_is_extended() {
    let open = mpi("mpirun (Open MPI) 4.1.4\n");
    let line = line_of(&open, &["./a"], &[(LIST, "FOO;BAR=1")]);
    let list = format!("{LIST}='FOO;BAR=1;FI_PROVIDER;FI_PROVIDER_PATH'");
    assert!(line.contains(&list), "{line}");
    assert!(!line.contains("-x "), "{line}");
    let delimiter = (&*format!("{LIST}_delimiter"), ",");
    let line = line_of(&open, &["./a"], &[(LIST, "FOO"), delimiter]);
    assert!(
        line.contains(&format!("{LIST}=FOO,FI_PROVIDER,FI_PROVIDER_PATH")),
        "{line}"
    );
    let args = ["--mca", "mca_base_env_list", "FOO", "./a"];
    let line = line_of(&open, &args, &[]);
    let list = "--mca mca_base_env_list FOO;FI_PROVIDER;FI_PROVIDER_PATH ./a";
    assert!(line.ends_with(list), "{line}");
    assert!(!line.contains(LIST), "{line}");
}

#[test]
fn programs_of_a_file_get_the_variables() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("programs");
    let file = file.to_str().unwrap();
    std::fs::write(file, "# two\n-n 1 ./a\n\n-n 2 ./b\n").unwrap();
    assert_eq!(launched(&["--app", file], &[]), format!("--app {file}"));
    std::fs::write(file, "# two\n-n 1 ./a\n\n-n 2 -x FOO ./b\n").unwrap();
    let path = BOTH_X_REVERSED;
    assert_eq!(
        launched(&["--app", file], &[]),
        format!("{BOTH_X} --app <# two; {path} -n 1 ./a; ; {path} -n 2 -x FOO ./b>")
    );
}

#[test]
fn hosts_use_the_launchers_own_option() {
    for (output, option) in [
        (
            "mpirun (Open MPI) 4.1.4\n",
            "--default-hostfile <a slots=2> ./a",
        ),
        (MPICH, "-f <a slots=2> ./a"),
    ] {
        let mpi = mpi(output);
        let mut plan = Plan::with(&mpi, vec!["./a".into()], |_| None);
        plan.take_hosts_file(mpi.kind, "a slots=2\n".into());
        assert!(plan.to_string().ends_with(option), "{plan}");
        let command = plan.command().unwrap();
        let file = command.get_args().nth(1).unwrap();
        assert_eq!(std::fs::read_to_string(file).unwrap(), "a slots=2\n");
    }
}

#[test]
fn every_program_of_a_job_is_counted() {
    let args = ["-n", "1", "./a", ":", "-n", "2", "./b"].map(str::to_owned);
    let counted = |output: &str| {
        let mpi = mpi(output);
        let mut plan = Plan::with(&mpi, args.to_vec(), |_| None);
        plan.take_counting(mpi.kind, Path::new("/lib/a.so"), "0:/tmp");
        plan.to_string()
    };
    // A library of the user may follow the first.
    let line = counted("mpirun (Open MPI) 4.1.4\n");
    let list = format!("{LIST}='LD_PRELOAD=/lib/a.so");
    assert!(line.starts_with(&list), "{line}");
    assert!(line.contains(";PORTOLAN_PROFILE=0:/tmp' /"), "{line}");
    let line = counted(MPICH);
    assert_eq!(
        line.matches("-genv LD_PRELOAD /lib/a.so").count(),
        1,
        "{line}"
    );
    assert!(
        line.ends_with("-genv PORTOLAN_PROFILE 0:/tmp -n 1 ./a : -n 2 ./b"),
        "{line}"
    );
}

#[test]
fn compilers_are_found_beside_launchers() {
    let directory = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, "").unwrap();
        path
    };
    let found = |output: &str, launcher: &str| {
        let mpi = recognise(output, &directory.path().join(launcher)).unwrap();
        let compiler = mpi.compiler()?;
        Some(compiler.file_name().unwrap().to_str().unwrap().to_owned())
    };
    let open_mpi = "mpirun (Open MPI) 4.1.4\n";
    assert_eq!(found(open_mpi, "mpirun"), None);
    make("mpicc");
    assert_eq!(found(open_mpi, "mpirun").as_deref(), Some("mpicc"));
    make("mpicc.mpich");
    assert_eq!(found(MPICH, "mpirun").as_deref(), Some("mpicc.mpich"));
    assert_eq!(found(open_mpi, "orterun").as_deref(), Some("mpicc"));
    make("mpicc-6");
    assert_eq!(found(MPICH, "mpiexec-6").as_deref(), Some("mpicc-6"));
}
