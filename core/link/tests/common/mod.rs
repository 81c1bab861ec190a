// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two hosts on one Ethernet, made of network namespaces.
#![allow(dead_code, reason = "not every file of tests needs all of it")]

use portolan_link::Link;
use portolan_link::packet::{InterfaceRef, Packet, PacketConfig, ReceiveBy};
use portolan_sys::net::enter_netns;
use std::path::Path;
use std::process::{self, Command};
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// Two network namespaces with an interface `eth0` each, joined by a veth pair; removed when
/// dropped.
pub(crate) struct Lab {
    names: [String; 2],
}

/// Addresses of hosts 0 and 1.
pub(crate) const ADDRS: [&str; 2] = ["10.77.0.1", "10.77.0.2"];

impl Lab {
    /// Creates the namespaces, or prints why that is impossible.
    pub(crate) fn try_new(test: &str) -> Option<Lab> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |host| format!("portolan-{}-{count}-h{host}", process::id());
        // From here on dropping it removes whatever was created.
        let lab = Lab {
            names: [name(0), name(1)],
        };
        match lab.set_up() {
            Ok(()) => Some(lab),
            Err(why) => {
                println!("SKIPPED {test}: no network namespaces here: {why}");
                None
            }
        }
    }

    /// Runs `work` on a thread of its own on host 0 or 1.
    pub(crate) fn on<T: Send>(&self, host: usize, work: impl FnOnce() -> T + Send) -> T {
        let path = Path::new("/run/netns").join(&self.names[host]);
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                enter_netns(&path).unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }

    /// Runs `ip` with `args` on host 0 or 1.
    pub(crate) fn ip(&self, host: usize, args: &[&str]) {
        ip(&[&["-n", &self.names[host]], args].concat()).unwrap();
    }

    /// Returns a command to run on host 0 or 1.
    pub(crate) fn command(&self, host: usize, program: &Path) -> Command {
        let mut command = Command::new("ip");
        let args = ["netns", "exec", &self.names[host]];
        command.args(args).arg(program);
        command
    }

    /// Returns `true` if the interface of host 0 or 1 has an XDP program of the kind `how`, as `ip`
    /// prints it: `xdp` for one in the driver, or `xdpgeneric`.
    pub(crate) fn has_xdp(&self, host: usize, how: &str) -> bool {
        let args = ["-n", &self.names[host], "link", "show", "eth0"];
        let output = Command::new("ip").args(args).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        shown.split_whitespace().any(|word| word == how)
    }

    fn set_up(&self) -> Result<(), String> {
        let [a, b] = &self.names;
        ip(&["netns", "add", a])?;
        ip(&["netns", "add", b])?;
        ip(&[
            "-n", a, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", b,
        ])?;
        for (name, addr) in self.names.iter().zip(ADDRS) {
            ip(&[
                "-n",
                name,
                "address",
                "add",
                &format!("{addr}/24"),
                "dev",
                "eth0",
            ])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", "eth0", "up"])?;
        }
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in &self.names {
            if Path::new("/run/netns").join(name).exists() {
                let _ = ip(&["netns", "delete", name]);
            }
        }
    }
}

/// Both receive methods of raw Ethernet.
pub(crate) const METHODS: [ReceiveBy; 2] = [ReceiveBy::Ring, ReceiveBy::Call];

/// Returns the settings of a raw Ethernet link with an endpoint unique in this process.
pub(crate) fn packet_config(interface: &str, receive_by: ReceiveBy) -> PacketConfig {
    static ENDPOINT: AtomicU16 = AtomicU16::new(1000);
    let endpoint = ENDPOINT.fetch_add(1, Ordering::Relaxed);
    let mut config = PacketConfig::new(InterfaceRef::Name(interface.into()), endpoint);
    config.receive_by = receive_by;
    config
}

/// Opens a raw Ethernet link and checks that it receives by `receive_by`.
pub(crate) fn open_packet(interface: &str, receive_by: ReceiveBy) -> Packet {
    let link = Packet::open(&packet_config(interface, receive_by)).unwrap();
    assert_eq!(link.caps().polls_memory, receive_by == ReceiveBy::Ring);
    link
}

fn ip(args: &[&str]) -> Result<(), String> {
    let output = Command::new("ip")
        .args(args)
        .output()
        .map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "ip {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    ))
}
