// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lab for one test. Some of its hosts may lose frames.

use super::{Ended, PATIENCE, portolan, processes_with, run};
use portolan_sys::net::enter_netns;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{JoinHandle, spawn};

/// Returns the address of a port on a host of a lab.
pub(crate) fn address(host: u32, port: u16) -> SocketAddr {
    let [low, ..] = (host + 1).to_le_bytes();
    (Ipv4Addr::new(10, 77, 0, low), port).into()
}

/// Returns a name for a lab that no other test uses.
pub(crate) fn unique_name(test: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("t{}-{next}-{test}", std::process::id())
}

/// A lab that is removed when a test ends, however it ends.
pub(crate) struct Lab(pub(crate) String);

impl Lab {
    pub(crate) fn up(test: &str, hosts: &str) -> Lab {
        Lab::up_with(test, &["--hosts", hosts])
    }

    /// Creates a lab with these arguments of `lab up`.
    pub(crate) fn up_with(test: &str, args: &[&str]) -> Lab {
        let lab = Lab(unique_name(test));
        let ended = run(&[&["lab", "up", "--name", &lab.0], args].concat());
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        lab
    }

    /// Runs `work` on a host, in a thread.
    pub(crate) fn on_host<T: Send + 'static>(
        &self,
        host: u32,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let namespace = format!("/run/netns/{}-h{host}", self.0);
        spawn(move || {
            enter_netns(Path::new(&namespace)).unwrap();
            work()
        })
    }

    /// Opens a connection from host 0 to host 1, and returns its two ends.
    pub(crate) fn connect(&self) -> (TcpStream, TcpStream) {
        let listening = self.on_host(1, || TcpListener::bind(address(1, 7)).unwrap());
        let listener = listening.join().unwrap();
        let connecting = self.on_host(0, || TcpStream::connect(address(1, 7)).unwrap());
        let (there, _) = listener.accept().unwrap();
        let here = connecting.join().unwrap();
        for end in [&here, &there] {
            end.set_read_timeout(Some(PATIENCE)).unwrap();
        }
        (here, there)
    }

    /// Returns a process of host `host` with `needle` in its command line.
    pub(crate) fn process(&self, host: &str, needle: &str) -> Option<i32> {
        let namespace = std::fs::metadata(format!("/run/netns/{}-{host}", self.0));
        let namespace = namespace.unwrap().ino();
        processes_with(needle).into_iter().find(|pid| {
            let its = std::fs::metadata(format!("/proc/{pid}/ns/net"));
            its.is_ok_and(|its| its.ino() == namespace)
        })
    }

    /// Runs a command on a host.
    pub(crate) fn exec(&self, host: &str, command: &[&str]) -> Ended {
        let words = ["lab", "exec", "--name", &self.0, host, "--"];
        run(&[&words[..], command].concat())
    }

    /// Drops incoming UDP and TCP packets except to these ports, regardless of connections. A
    /// connection from another port therefore gets no answer. Prints SKIPPED and returns `false`
    /// without nftables.
    pub(crate) fn pass_only(&self, host: &str, ports: &str) -> bool {
        let rules = format!(
            "table inet wall {{ chain into {{ type filter hook input priority 0; \
             meta l4proto {{ tcp, udp }} th dport {ports} accept; \
             meta l4proto {{ tcp, udp }} counter drop; }}; }}"
        );
        let ended = self.exec(host, &["nft", &rules]);
        if ended.status != 0 {
            eprintln!("SKIPPED: a firewall needs nftables: {}", ended.err);
        }
        ended.status == 0
    }

    /// Returns the number of packets that [`Lab::pass_only`] has dropped on a host.
    pub(crate) fn dropped(&self, host: &str) -> u64 {
        let listed = self.exec(host, &["nft", "list", "table", "inet", "wall"]);
        let (_, count) = listed.out.split_once("counter packets ").unwrap();
        count.split(' ').next().unwrap().parse().unwrap()
    }

    /// Drops incoming packets of a host that match `rule` of nftables. Prints SKIPPED and returns
    /// `false` without nftables.
    pub(crate) fn filter(&self, host: &str, rule: &str) -> bool {
        let rules = format!(
            "table inet loss {{ chain into {{ type filter hook input priority 0; {rule} drop; }}; }}"
        );
        let words = ["lab", "exec", "--name", &self.0, host, "--", "nft", &rules];
        let ended = run(&words);
        if ended.status != 0 {
            eprintln!("SKIPPED: losing frames needs nftables: {}", ended.err);
        }
        ended.status == 0
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = portolan(&["lab", "down", "--name", &self.0]).output();
    }
}
