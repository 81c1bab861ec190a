// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints on two hosts, which are network namespaces on one Ethernet.

use crate::common::{ANY, PLAIN, Side, bytes, hex, pump, unhex};
use portolan::{Endpoint, EndpointAddress, EndpointConfig};
use std::io::{BufRead, BufReader, Write};
use std::process::{self, Child, ChildStdout, Command, Stdio};

/// Tells the test `host` which of the two it is.
const ROLE: &str = "ENDPOINT_TEST_ROLE";

const LENS: [usize; 4] = [8, 1000, 100_000, 2_000_000];

/// Two namespaces, joined; gone when dropped.
struct Lab([String; 2]);

impl Lab {
    fn try_new() -> Result<Lab, String> {
        let name = |host| format!("portolan-endpoint-{}-h{host}", process::id());
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

    /// Starts this program on one of the hosts, with nothing but the test `host`.
    fn start(&self, role: usize) -> Child {
        Command::new("ip")
            .args(["netns", "exec", &self.0[role]])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "lab::host", "--nocapture"])
            .env(ROLE, role.to_string())
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
    let output = Command::new("ip").args(args.split(' ')).output();
    let output = output.map_err(|error| format!("ip: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// Not a test by itself: one end of a conversation.
#[test]
fn host() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let mut side = Side::new(Endpoint::open(&EndpointConfig::default()).unwrap());
    say(&format!("address {}", hex(side.end.address().as_bytes())));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let other = EndpointAddress::from_bytes(&unhex(line.trim())).unwrap();
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
    say(&format!(
        "links {}",
        side.end.links_to(peer.unwrap()).join(" ")
    ));
}

fn say(line: &str) {
    println!("\n{line}");
    std::io::stdout().flush().unwrap();
}

/// The rest of the first line that begins so.
fn hear(lines: &mut BufReader<ChildStdout>, beginning: &str) -> String {
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
fn between_hosts_small_messages_and_bulk_have_a_path_each() {
    let lab = match Lab::try_new() {
        Ok(lab) => lab,
        Err(why) => {
            println!("SKIPPED: no network namespaces here: {why}");
            return;
        }
    };
    let mut children = [lab.start(0), lab.start(1)];
    let mut lines: Vec<_> = children
        .iter_mut()
        .map(|child| BufReader::new(child.stdout.take().unwrap()))
        .collect();
    let addresses: Vec<_> = lines.iter_mut().map(|out| hear(out, "address ")).collect();
    for (child, other) in children.iter_mut().zip(addresses.iter().rev()) {
        writeln!(child.stdin.take().unwrap(), "{other}").unwrap();
    }
    for out in &mut lines {
        assert_eq!(hear(out, "links "), "udp packet stream");
    }
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
}
