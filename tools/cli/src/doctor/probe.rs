// SPDX-License-Identifier: MIT OR Apache-2.0
//! Features of the kernel, determined by tests.
//!
//! Some tests need a second process: this program again, with `--probe`.

use super::Finding;
use anyhow::{Context, Result, bail, ensure};
use portolan_link::{Shm, ShmConfig};
use portolan_sys::{barrier, bpf, memfd, net, vm_read};
use serde::Serialize;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, ExitCode, Stdio};
use std::str::FromStr;

/// Features of the kernel.
#[derive(Debug, Serialize)]
pub(crate) struct Features {
    /// UDP segmentation offload for sends.
    pub(super) udp_segment: Finding,
    /// UDP receive offload, which merges datagrams.
    pub(super) udp_gro: Finding,
    /// Zero-copy sends over TCP (`vmsplice`, `splice`); without it streams copy.
    #[serde(rename = "lend")]
    pub(super) zero_copy_tcp: Finding,
    /// Memory files with seals.
    pub(super) memfd: Finding,
    /// Memory barriers through `membarrier`, which cost the sender nothing.
    pub(super) membarrier: Finding,
    /// Reads from the memory of another process of this user (`process_vm_readv`). As in a job,
    /// neither process is the child of the other.
    pub(super) pull: Finding,
    /// Creation of network namespaces, which labs need.
    pub(super) netns: Finding,
    /// Raw Ethernet sockets.
    pub(super) packet_socket: Finding,
    /// AF_XDP sockets, and the map that a program needs to find them.
    pub(super) xdp_socket: Finding,
    /// Shared memory link.
    pub(super) shm: Finding,
}

/// Tests all features.
pub(super) fn features() -> Features {
    Features {
        udp_segment: udp_segment().into(),
        udp_gro: udp_gro().into(),
        zero_copy_tcp: zero_copy_tcp().into(),
        memfd: memfd::create_sealed("portolan-doctor", 1).into(),
        membarrier: membarrier().into(),
        pull: pull().into(),
        netns: second_process(&Probe::NewNetns).map(drop).into(),
        packet_socket: net::packet_socket().into(),
        xdp_socket: xdp_socket().into(),
        shm: Shm::open(ShmConfig::new(rand::random(), 0, rand::random())).into(),
    }
}

/// Test that a second process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    /// Create a network namespace.
    NewNetns,
    /// Read [`PULL_LEN`] bytes of another process, and print them.
    Pull {
        /// Process to read from.
        pid: u32,
        /// Address in that process.
        remote_addr: u64,
    },
}

/// Bytes that the zero-copy test sends: one page.
const ZERO_COPY_LEN: usize = 4096;

/// Bytes that are read; random, so that they cannot match by chance.
const PULL_LEN: usize = 16;

impl Probe {
    /// Runs the test. A failure is printed to standard output, where the first process reads it.
    pub(super) fn run(self) -> ExitCode {
        match self.attempt() {
            Ok(text) => {
                println!("{text}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                println!("{error:#}");
                ExitCode::FAILURE
            }
        }
    }

    fn attempt(self) -> Result<String> {
        match self {
            Probe::NewNetns => {
                let refused = nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET);
                refused.map_err(std::io::Error::from)?;
                Ok(String::new())
            }
            Probe::Pull { pid, remote_addr } => {
                let mut bytes = [0; PULL_LEN];
                vm_read::read_process(pid, remote_addr, &mut bytes)?;
                Ok(hex::encode(bytes))
            }
        }
    }

    fn argument(self) -> String {
        match self {
            Probe::NewNetns => "netns".to_owned(),
            Probe::Pull { pid, remote_addr } => format!("pull:{pid}:{remote_addr}"),
        }
    }
}

impl FromStr for Probe {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Probe, &'static str> {
        let words: Vec<&str> = text.split(':').collect();
        match words[..] {
            ["netns"] => Ok(Probe::NewNetns),
            ["pull", pid, remote_addr] => match (pid.parse(), remote_addr.parse()) {
                (Ok(pid), Ok(remote_addr)) => Ok(Probe::Pull { pid, remote_addr }),
                _ => Err("not numbers"),
            },
            _ => Err("no such probe"),
        }
    }
}

/// Runs the probe in a second process, and returns its output.
fn second_process(probe: &Probe) -> Result<String> {
    let own = std::env::current_exe().context("finding the file of this program")?;
    let output = Command::new(own)
        .args(["doctor", "--probe", &probe.argument()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .context("starting a second process")?;
    let stdout = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() {
        bail!("{stdout}");
    }
    Ok(stdout)
}

/// Lets a child read from its parent; Yama treats it like an unrelated process.
fn pull() -> Result<()> {
    // The shared memory link gives its peers the same permission.
    vm_read::permit_readers();
    let bytes: [u8; PULL_LEN] = rand::random();
    let remote_addr = std::ptr::from_ref(&bytes).addr() as u64;
    let stdout = second_process(&Probe::Pull {
        pid: std::process::id(),
        remote_addr,
    })?;
    ensure!(
        stdout == hex::encode(bytes),
        "the bytes differ from those in memory"
    );
    Ok(())
}

fn udp_socket() -> std::io::Result<UdpSocket> {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))
}

fn udp_segment() -> Result<()> {
    let socket = udp_socket()?;
    ensure!(
        net::segmentation_supported(socket.as_fd()),
        "the kernel is older than Linux 4.18"
    );
    Ok(())
}

fn udp_gro() -> std::io::Result<()> {
    net::enable_receive_offload(udp_socket()?.as_fd())
}

/// Sends a page without a copy over a connection with this process.
fn zero_copy_tcp() -> Result<()> {
    let listener = net::listen_stream((Ipv4Addr::LOCALHOST, 0).into())?;
    let stream = net::begin_connect(
        Ipv4Addr::LOCALHOST.into(),
        listener.local_addr()?,
        net::PortRange::default(),
    )?;
    let pipe = net::Pipe::new(ZERO_COPY_LEN)?;
    let bytes = vec![1; ZERO_COPY_LEN];
    let page = pipe.splice_in(&bytes).context("vmsplice")?;
    pipe.splice_to(stream.as_fd(), page, false)
        .context("splice")?;
    Ok(())
}

/// Opens an AF_XDP socket. Attaches no program, because that would affect traffic of other
/// processes.
fn xdp_socket() -> std::io::Result<()> {
    net::XdpSocket::open()?;
    bpf::create_socket_map(1).map(drop)
}

fn membarrier() -> Result<(), &'static str> {
    if barrier::register() {
        Ok(())
    } else {
        Err("the kernel has no MEMBARRIER_CMD_GLOBAL_EXPEDITED, or a seccomp filter forbids it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_argument_round_trips() {
        for probe in [
            Probe::NewNetns,
            Probe::Pull {
                pid: 7,
                remote_addr: u64::MAX,
            },
        ] {
            assert_eq!(probe.argument().parse(), Ok(probe));
        }
        assert!("pull:x:1".parse::<Probe>().is_err());
        assert!("other".parse::<Probe>().is_err());
    }

    #[test]
    fn pull_reads_only_valid_addresses() {
        let bytes = [0x5a_u8; PULL_LEN];
        let remote_addr = std::ptr::from_ref(&bytes).addr() as u64;
        let pid = std::process::id();
        // Reading from the own process is always allowed.
        assert_eq!(
            Probe::Pull { pid, remote_addr }.attempt().unwrap(),
            "5a".repeat(PULL_LEN)
        );
        assert!(
            Probe::Pull {
                pid,
                remote_addr: 8
            }
            .attempt()
            .is_err()
        );
    }
}
