// SPDX-License-Identifier: MIT OR Apache-2.0
//! Launcher for `bench`, `tune` and `report`: temporary labs, and jobs in them.

mod brokers;
mod child;
mod mpis;

pub(crate) use child::wait;
pub(crate) use mpis::own_transport;

use crate::lab::cores::{CoreList, Cores};
use crate::lab::{Kind, TemporaryLab};
use crate::run::Failure;
use crate::run::hosts::{self, Host, MapBy};
use crate::run::{self, AgentOptions, Options, RemoteProgram, Workload};
use anyhow::{Context, Result, bail};
use portolan::binding::launch::PathChoice;
use portolan_bench::{GRACE, Job, LabOrder, Launcher, MpiJob, Path, Place, Site};
use signal_hook::consts::SIGINT;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// First of the documented addresses of a lab.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// Exit status that shells report for a program ended by SIGINT.
const INTERRUPTED_STATUS: i32 = 130;

/// Time for the second rank to report its own error, which may be the cause, after the first
/// failed.
const ERROR_GRACE: Duration = Duration::from_millis(500);

/// Labs and jobs of this command.
#[derive(Debug, Default)]
pub(crate) struct LocalLauncher {
    /// Set when the user has sent SIGINT.
    interrupted: Arc<AtomicBool>,
    mpi_programs: RefCell<mpis::Programs>,
}

impl LocalLauncher {
    /// Makes SIGINT set [`Launcher::interrupted`] from now on instead of ending this process. A
    /// second SIGINT ends it.
    pub(crate) fn catch_interrupts(&self) -> Result<()> {
        let flag = || Arc::clone(&self.interrupted);
        signal_hook::flag::register_conditional_shutdown(SIGINT, INTERRUPTED_STATUS, flag())
            .and_then(|_| signal_hook::flag::register(SIGINT, flag()))
            .context("handling SIGINT")?;
        Ok(())
    }
}

impl Launcher for LocalLauncher {
    fn open_lab(&self, order: &LabOrder<'_>) -> Result<Site> {
        let LabOrder { mtu, count, link } = *order;
        let mut kind = Kind::plain(count, mtu).with(None, link)?;
        if count as usize > portolan_bench::usable_cores().len() {
            // With more ends than cores, leave the cores to the scheduler.
            kind.cores = CoreList::all();
        }
        let lab = TemporaryLab::up(&kind)?;
        let place = |index: u32| Place {
            netns: Some(lab.lab().namespace(index)),
            addr: IpAddr::V4(Ipv4Addr::from_bits(FIRST_ADDRESS.to_bits() + index)),
            interface: "eth0".into(),
            cores: lab.lab().cores(index).numbers().to_vec(),
        };
        let hosts = (0..count).map(place).collect();
        let link = lab.lab().link;
        let link = link.is_shaped().then(|| link.to_string());
        Ok(Site::lab(mtu as usize, link, hosts, Box::new(lab)))
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    fn run_job(&self, job: &Job<'_>) -> Result<()> {
        // Brokers run until the job has ended.
        let _brokers = match job.by_broker {
            true => brokers::start(job.places)?,
            false => Vec::new(),
        };
        match run::execute(&options_of(job)?)?.failure {
            Some(failure) => {
                // The job's launcher took the signal, which was also meant for this command.
                if matches!(failure, Failure::Signal(libc::SIGINT)) {
                    self.interrupted.store(true, Relaxed);
                }
                bail!("{failure}")
            }
            None => Ok(()),
        }
    }

    fn run_mpi(&self, job: &MpiJob<'_>) -> Result<()> {
        self.mpi_programs.borrow_mut().run(job)
    }
}

fn options_of(job: &Job<'_>) -> Result<Options> {
    let [program, args @ ..] = job.command else {
        bail!("the command is empty")
    };
    let directory = std::env::current_dir().context("the working directory does not exist")?;
    Ok(Options {
        rank_count: u32::try_from(job.places.len())?,
        hosts: hosts_of(job),
        map_by: MapBy::Slot,
        tag_output: false,
        // The ranks print nothing; standard output may carry the benchmark's JSON.
        capture: true,
        grace: ERROR_GRACE,
        on_failure: run::OnFailure::End,
        limit: Some(job.lasts + GRACE),
        workload: Workload {
            path: path_choice(job.path),
            options: job.options.clone(),
            environment: BTreeMap::new(),
            directory: directory.to_string_lossy().into_owned(),
            program: program.clone(),
            args: args.to_vec(),
        },
        agent: AgentOptions {
            remote_program: RemoteProgram::new(None)?,
            connection: job.server.clone(),
        },
    })
}

fn hosts_of(job: &Job<'_>) -> Vec<Host> {
    let places = job.places;
    if let (Some(_), [_, there]) = (&job.server, places) {
        let mut hosts = hosts::here(Some(1));
        hosts.push(Host {
            name: there.addr.to_string(),
            slots: 1,
            place: hosts::Place::Connected,
        });
        return hosts;
    }
    if places.iter().all(|place| place.netns.is_none()) {
        return hosts::here(u32::try_from(places.len()).ok());
    }
    places.iter().map(host_of).collect()
}

fn host_of(place: &Place) -> Host {
    let (name, place) = match &place.netns {
        Some(name) => (
            name.clone(),
            hosts::Place::Namespace(name.clone(), Cores::new(place.cores.clone())),
        ),
        None => (place.addr.to_string(), hosts::Place::Here),
    };
    Host {
        name,
        slots: 1,
        place,
    }
}

pub(crate) fn path_choice(path: Path) -> PathChoice {
    match path {
        Path::Shm => PathChoice::Shm,
        Path::Packet => PathChoice::Packet,
        Path::Xdp | Path::XdpNative => PathChoice::Xdp,
        Path::Udp | Path::Stream => PathChoice::Udp,
        Path::Auto => PathChoice::Auto,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn job(places: &[Place], server: Option<Arc<TcpStream>>) -> Job<'_> {
        Job {
            command: &[],
            places,
            server,
            path: Path::Udp,
            options: BTreeMap::new(),
            by_broker: false,
            lasts: Duration::ZERO,
        }
    }

    #[test]
    fn server_end_is_a_connected_host() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let places = [Place::loopback(), Place::loopback()];
        let hosts = hosts_of(&job(&places, Some(Arc::new(stream))));
        let places: Vec<_> = hosts.into_iter().map(|host| host.place).collect();
        assert_eq!(places, [hosts::Place::Here, hosts::Place::Connected]);
    }

    #[test]
    fn loopback_ends_share_one_host() {
        let places = [Place::loopback(), Place::loopback()];
        let [host] = &hosts_of(&job(&places, None))[..] else {
            panic!("one host");
        };
        assert_eq!((host.slots, &host.place), (2, &hosts::Place::Here));
    }

    #[test]
    fn lab_places_are_hosts_with_one_slot() {
        let place = |name: &str| Place {
            netns: Some(name.into()),
            ..Place::loopback()
        };
        let hosts = hosts_of(&job(&[place("a-h0"), place("a-h1")], None));
        assert_eq!(
            hosts.iter().map(|host| host.slots).collect::<Vec<_>>(),
            [1, 1]
        );
        assert_eq!(
            hosts[1].place,
            hosts::Place::Namespace("a-h1".into(), Cores::default())
        );
    }
}
