// SPDX-License-Identifier: MIT OR Apache-2.0
//! Recognising launchers by what they say, and what is set for each.

use super::find::{Kind, recognise};
use super::plan::{Hosts, Plan};
use super::*;
use std::path::Path;

const MPICH: &str = "HYDRA build details:\n    Version:                                 5.0.2\n    \
    Configure options:                       --with-device=ch4:ucx,ofi --with-pm=hydra:gforker\n";

fn mpi(said: &str) -> Mpi {
    recognise(said, Path::new("/opt/bin/mpirun")).unwrap()
}

#[test]
fn launchers_are_known_by_what_they_say() {
    for (said, kind, version, ofi) in [
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
        let mpi = mpi(said);
        let found = (mpi.kind, mpi.version.as_str(), mpi.has_ofi());
        assert_eq!(found, (kind, version, ofi));
        assert_eq!(mpi.check_ofi().is_err(), ofi == Some(false));
    }
    assert_eq!(recognise("slurm-wlm 22.05.8\n", Path::new("mpirun")), None);
    assert_eq!(recognise("", Path::new("mpirun")), None);
}

#[test]
fn what_is_set_is_said_in_one_line() {
    for (said, expected) in [
        (
            "mpirun (Open MPI) 5.0.11\n",
            "FI_PROVIDER=portolan FI_PROVIDER_PATH=/lib OMPI_MCA_pml=cm OMPI_MCA_mtl=ofi \
             /opt/bin/mpirun -x FI_PROVIDER -x FI_PROVIDER_PATH",
        ),
        (
            MPICH,
            "FI_PROVIDER=portolan FI_PROVIDER_PATH=/lib MPIR_CVAR_CH4_NETMOD=ofi \
             /opt/bin/mpirun",
        ),
    ] {
        let mpi = mpi(said);
        let mut plan = Plan::new(&mpi, vec!["-n".into(), "2".into(), "./a.out".into()]);
        plan.take_provider(mpi.kind, Path::new("/lib"));
        let line = plan.to_string();
        assert!(line.starts_with(expected), "{line}");
        assert!(line.ends_with(" -n 2 ./a.out"), "{line}");
        assert_eq!(line.lines().count(), 1);
    }
}

#[test]
fn ranks_are_spread_over_the_hosts_of_a_lab() {
    let names = ["lab-h0", "lab-h1", "lab-h2"].map(str::to_owned);
    for (said, rank_count, expected) in [
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
        let mpi = mpi(said);
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
fn what_an_mpi_takes_follows_from_its_settings_and_the_offer() {
    let tcp = ["tcp;ofi_rxm", "sockets"].map(str::to_owned);
    let both = ["tcp;ofi_rxm", "portolan"].map(str::to_owned);
    let ours = ["portolan".to_owned()];
    let open = mpi("mpirun (Open MPI) 5.0.11\n");
    let mpich = mpi(MPICH);
    let ucx = mpi(&MPICH.replace(",ofi", ""));
    let cm = ("OMPI_MCA_pml", "cm");
    let ofi = ("MPIR_CVAR_CH4_NETMOD", "ofi");
    let intel = mpi("Intel(R) MPI Library for Linux* OS, Version 2021.13\n");
    let wish = ("I_MPI_OFI_PROVIDER", "portolan");
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
        (&intel, &both, &[wish], "portolan"),
        (&intel, &tcp, &[wish], "nothing"),
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

#[test]
fn every_program_of_a_job_is_counted() {
    let args = ["-n", "1", "./a", ":", "-n", "2", "./b"].map(str::to_owned);
    let counted = |said: &str| {
        let mpi = mpi(said);
        let mut plan = Plan::new(&mpi, args.to_vec());
        plan.take_counting(mpi.kind, Path::new("/lib/a.so"), "0:/tmp");
        plan.to_string()
    };
    // A library of whoever runs this may follow it.
    let line = counted("mpirun (Open MPI) 4.1.4\n");
    let words: Vec<&str> = line.split(' ').collect();
    assert_eq!(
        words
            .iter()
            .filter(|word| word.starts_with("LD_PRELOAD=/lib/a.so"))
            .count(),
        2
    );
    let told = words
        .iter()
        .filter(|word| **word == "PORTOLAN_PROFILE=0:/tmp");
    assert_eq!(told.count(), 2, "{line}");
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
    let room = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let path = room.path().join(name);
        std::fs::write(&path, "").unwrap();
        path
    };
    let found = |said: &str, launcher: &str| {
        let mpi = recognise(said, &room.path().join(launcher)).unwrap();
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
