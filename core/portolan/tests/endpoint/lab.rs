// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints on two hosts, which are network namespaces on one Ethernet.

use crate::common::{ANY, PLAIN, Side, bytes, hex, pump, unhex};
use portolan::binding::{Endpoint, EndpointAddress};
use portolan::{EndpointConfig, PathChoice};
use std::io::{BufRead, BufReader, Write};
use std::process::{self, Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Environment variable for a test that runs on a host: 0 or 1.
pub(crate) const ROLE: &str = "ENDPOINT_TEST_ROLE";

const LENS: [usize; 4] = [8, 1000, 100_000, 2_000_000];

/// Two connected namespaces, which are deleted on drop.
pub(crate) struct Lab([String; 2]);

impl Lab {
    pub(crate) fn try_new() -> Result<Lab, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Tests run concurrently in one process, each with its own lab.
        let number = COUNT.fetch_add(1, Relaxed);
        let name = |host| format!("portolan-endpoint-{}-{number}-h{host}", process::id());
        let lab = Lab([name(0), name(1)]);
        let [a, b] = &lab.0;
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        ip(&format!(
            "-n {a} link add eth0 type veth peer name eth0 netns {b}"
        ))?;
        for (name, last) in [(a, 1), (b, 2)] {
            ip(&format!("-n {name} address add 10.78.0.{last}/24 dev eth0"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set eth0 up"))?;
        }
        Ok(lab)
    }

    /// Drops this share of the packets that arrive at each host.
    pub(crate) fn lose(&self, percent: u32) -> Result<(), String> {
        for name in &self.0 {
            let rules = format!(
                "table inet loss {{ chain input {{ type filter hook input priority 0; \
                 numgen random mod 100 < {percent} drop; }}; }}"
            );
            let args = ["netns", "exec", name, "nft", &rules];
            run(Command::new("ip").args(args))?;
        }
        Ok(())
    }

    /// Starts this program on a host in a role, with the test `name` only.
    pub(crate) fn start(
        &self,
        (host, role): (usize, usize),
        name: &str,
        env: &[(&str, &str)],
    ) -> Child {
        Command::new("ip")
            .args(["netns", "exec", &self.0[host]])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(ROLE, role.to_string())
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(args: &str) -> Result<(), String> {
    run(Command::new("ip").args(args.split(' ')))
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output();
    let output = output.map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// Runs one end of an exchange; does nothing as a test of its own.
#[test]
fn host() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (mut side, other) = open(PathChoice::Auto);
    let mut peer = None;
    if role == "0" {
        peer = Some(side.end.insert(&other).unwrap());
    }
    for len in LENS {
        let (sent, mut buf) = (bytes(len, 1), vec![0; len]);
        side.recv(&ANY, &mut buf, 1);
        if role == "0" {
            side.send(peer.unwrap(), &PLAIN, &sent, 2);
        }
        let got = pump(&mut [&mut side], |sides| sides[0].take(1));
        assert_eq!((got.error, &buf), (None, &sent));
        if role == "1" {
            peer = got.peer;
            side.send(got.peer.unwrap(), &PLAIN, &sent, 2);
        }
        pump(&mut [&mut side], |sides| sides[0].take_sent(2));
    }
    print_line(&format!(
        "links {}",
        side.end.links_to(peer.unwrap()).join(" ")
    ));
}

/// Opens an endpoint on a host; returns it and the address of the peer.
pub(crate) fn open(path: PathChoice) -> (Side, EndpointAddress) {
    let mut config = EndpointConfig::default();
    config.path = path;
    let side = Side::new(Endpoint::open(&config).unwrap());
    print_line(&format!("address {}", hex(side.end.address().as_bytes())));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let other = EndpointAddress::from_bytes(&unhex(line.trim())).unwrap();
    (side, other)
}

/// Passes each process the address of the other; returns their outputs.
pub(crate) fn introduce(children: &mut [Child; 2]) -> [BufReader<ChildStdout>; 2] {
    let mut lines = children
        .each_mut()
        .map(|child| BufReader::new(child.stdout.take().unwrap()));
    let addresses = lines.each_mut().map(|out| read_line_after(out, "address "));
    for (child, other) in children.iter_mut().zip(addresses.iter().rev()) {
        writeln!(child.stdin.as_mut().unwrap(), "{other}").unwrap();
    }
    lines
}

pub(crate) fn print_line(line: &str) {
    println!("\n{line}");
    std::io::stdout().flush().unwrap();
}

/// Returns the rest of the first line that starts with `beginning`.
pub(crate) fn read_line_after(lines: &mut BufReader<ChildStdout>, beginning: &str) -> String {
    let mut line = String::new();
    while lines.read_line(&mut line).unwrap() > 0 {
        if let Some(rest) = line.strip_prefix(beginning) {
            return rest.trim().to_owned();
        }
        line.clear();
    }
    panic!("it ends without {beginning:?}");
}

#[test]
fn small_messages_and_bulk_use_separate_paths_between_hosts() {
    let lab = match Lab::try_new() {
        Ok(lab) => lab,
        Err(why) => {
            println!("SKIPPED: no network namespaces here: {why}");
            return;
        }
    };
    let mut children = [0, 1].map(|role| lab.start((role, role), "lab::host", &[]));
    let mut lines = introduce(&mut children);
    for out in &mut lines {
        assert_eq!(read_line_after(out, "links "), "udp packet stream");
    }
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
}
