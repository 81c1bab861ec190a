// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan cast` with sealed frames, and with foreign frames.

use crate::common::disguise::disguise;
use crate::common::payload::{mix, payload};
use crate::common::{Ended, wait_until};
use crate::hosts::{Hosts, fill};
use portolan_wire::{FRAME_HEADER_LEN, HELLO_LEN};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::process::Stdio;

const LEN: usize = (6 << 20) + 123;

/// Settings that send everything by UDP, even on one host.
const BY_UDP: [&str; 4] = ["--path", "udp", "--option", "stream=off"];

fn assert_whole(hosts: &Hosts, ended: &Ended, bytes: &[u8], count: usize) {
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    for number in 1..=count {
        let copy = fs::read(hosts.path(&format!("n{number}.img"))).unwrap();
        assert!(copy == bytes, "n{number}");
    }
}

#[test]
fn sealed_frames_bring_the_same() {
    let hosts = Hosts::new(3);
    let (source, bytes) = (hosts.path("source.img"), fill(1, LEN));
    fs::write(&source, &bytes).unwrap();
    let names = [source.as_path(), &hosts.path("%h.img")];
    let sealed = ["--option", "auth=aead"];
    let ended = hosts.cast(&names, &[&BY_UDP[..], &sealed].concat());
    assert_whole(&hosts, &ended, &bytes, 3);
    fs::write(hosts.path("n2.img"), fill(2, LEN)).unwrap();
    let ended = hosts.cast(&names, &[&BY_UDP[..], &sealed, &["--resume"]].concat());
    assert_whole(&hosts, &ended, &bytes, 3);
}

/// Returns the addresses of the UDP sockets of a process.
fn udp_sockets(pid: i32) -> Vec<SocketAddr> {
    let links = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .flatten();
    let links: Vec<String> = links
        .filter_map(|entry| {
            fs::read_link(entry.path())
                .ok()?
                .to_str()
                .map(str::to_owned)
        })
        .collect();
    let table = fs::read_to_string("/proc/net/udp").unwrap();
    let address = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !links.contains(&format!("socket:[{}]", words[9])) {
            return None;
        }
        let (ip, port) = words[1].split_once(':')?;
        let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).ok()?.to_ne_bytes());
        let ip = if ip.is_unspecified() {
            Ipv4Addr::LOCALHOST
        } else {
            ip
        };
        Some(SocketAddr::from((ip, u16::from_str_radix(port, 16).ok()?)))
    };
    table.lines().skip(1).filter_map(address).collect()
}

#[test]
fn forged_frames_have_no_effect() {
    among_frames_of_others("chain");
}

#[test]
fn forged_group_frames_have_no_effect() {
    among_frames_of_others("multicast");
}

/// An attacker in the group receives all datagrams of the source, flips bits in them, and sends
/// them again.
#[test]
fn group_eavesdropper_cannot_alter_data() {
    let hosts = Hosts::new(3);
    let (source, bytes) = (hosts.path("source.img"), fill(4, LEN));
    fs::write(&source, &bytes).unwrap();
    let target = hosts.path("%h.img");
    let mut command = hosts.command(&[source.to_str().unwrap(), target.to_str().unwrap()]);
    command.args(["--shape", "multicast", "--limit", "6M"]);
    let mut cast = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut group = None;
    wait_until("a host has joined", || {
        let sockets = hosts.worker("n1").map_or(Vec::new(), udp_sockets);
        group = sockets.into_iter().find(|at| at.ip().is_multicast());
        group.is_some()
    });
    let group = group.unwrap();
    let listener = join_group(group);
    let speaker = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (mut heard, mut said) = (0_u64, 0_u64);
    let mut datagram = vec![0; 1 << 16];
    while cast.try_wait().unwrap().is_none() {
        let Ok((len, from)) = listener.recv_from(&mut datagram) else {
            continue;
        };
        // The attacker also receives its own datagrams.
        if from == speaker.local_addr().unwrap() {
            continue;
        }
        heard += 1;
        let said_again = speaker.send_to(&datagram[..len], group);
        let bit = usize::try_from(mix(heard)).unwrap_or(0) % (len * 8);
        datagram[bit / 8] ^= 1 << (bit % 8);
        let said_otherwise = speaker.send_to(&datagram[..len], group);
        said += u64::from(said_again.is_ok()) + u64::from(said_otherwise.is_ok());
    }
    println!("{heard} datagrams heard, {said} said");
    let ended: Ended = cast.wait_with_output().unwrap().into();
    assert!(heard > 10 && said > 20, "{heard} heard, {said} said");
    assert_whole(&hosts, &ended, &bytes, 3);
}

/// Opens a socket in the group, on the loopback like those of the hosts.
fn join_group(group: SocketAddr) -> UdpSocket {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, setsockopt};
    let (kind, flags) = (SockType::Datagram, SockFlag::SOCK_CLOEXEC);
    let socket = nix::sys::socket::socket(AddressFamily::Inet, kind, flags, None).unwrap();
    setsockopt(&socket, nix::sys::socket::sockopt::ReuseAddr, &true).unwrap();
    bind(socket.as_raw_fd(), &SockaddrStorage::from(group)).unwrap();
    let socket = UdpSocket::from(socket);
    let IpAddr::V4(ip) = group.ip() else {
        panic!("{group}");
    };
    socket.join_multicast_v4(&ip, &Ipv4Addr::LOCALHOST).unwrap();
    let while_nothing_comes = Some(std::time::Duration::from_millis(50));
    socket.set_read_timeout(while_nothing_comes).unwrap();
    socket
}

fn among_frames_of_others(shape: &str) {
    let hosts = Hosts::new(3);
    let (source, bytes) = (hosts.path("source.img"), fill(3, LEN));
    fs::write(&source, &bytes).unwrap();
    let target = hosts.path("%h.img");
    let mut command = hosts.command(&[source.to_str().unwrap(), target.to_str().unwrap()]);
    command
        .args(BY_UDP)
        .args(["--limit", "6M", "--shape", shape]);
    let mut cast = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut aims = Vec::new();
    wait_until("each host has a socket", || {
        let workers = ["n1", "n2", "n3"].map(|name| hosts.worker(name));
        let sockets = workers.map(|pid| pid.map_or(Vec::new(), udp_sockets));
        aims = sockets.concat();
        let are_there = |sockets: &Vec<SocketAddr>| match shape {
            "multicast" => sockets.iter().any(|at| at.ip().is_multicast()),
            _ => !sockets.is_empty(),
        };
        sockets.iter().all(are_there)
    });
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut sent = 0_u64;
    while cast.try_wait().unwrap().is_none() {
        let word = mix(sent + 1);
        let len = match word % 3 {
            0 => FRAME_HEADER_LEN + HELLO_LEN,
            1 => usize::try_from(word >> 8).unwrap() % 1400 + 1,
            _ => 1472,
        };
        let mut frame = payload(0, 1, u32::try_from(word >> 32).unwrap(), len);
        disguise(&mut frame, word);
        for aim in &aims {
            // The send is refused if the process has just ended.
            sent += u64::from(socket.send_to(&frame, aim).is_ok());
        }
        if sent % 64 < aims.len() as u64 {
            std::thread::yield_now();
        }
    }
    println!("{sent} frames to {} sockets", aims.len());
    let ended: Ended = cast.wait_with_output().unwrap().into();
    assert!(sent > 10, "{sent} frames");
    assert_whole(&hosts, &ended, &bytes, 3);
}
