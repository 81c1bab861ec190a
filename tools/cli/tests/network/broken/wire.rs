// SPDX-License-Identifier: MIT OR Apache-2.0
//! A wire between two hosts of a lab that flips bits of frames. It replaces the lab's bridge by a
//! process with a raw socket on each side.
//!
//! It receives single frames of Ethernet length. Like a NIC, it fills in the checksums that the
//! system has left to it; then it flips bits. The frames that it sends are not marked as verified,
//! so the receiver verifies them.

use portolan_sys::net;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::common::payload::mix;

/// Every EtherType (ETH_P_ALL of include/uapi/linux/if_ether.h).
const ALL: u16 = 3;

const ETHERNET_LEN: usize = 14;
const IPV4: [u8; 2] = [0x08, 0x00];
const PORTOLAN: [u8; 2] = [0x88, 0xb5];
const UDP: u8 = 17;
const UDP_HEADER_LEN: usize = 8;

/// Reciprocal of the share of corrupted frames.
const ONE_IN: u64 = 100;

/// Kind of corruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Breakage {
    /// One bit after the Ethernet header; checksums are not updated.
    AsItWas,
    /// One to eight bits of the payload of IP and UDP, with updated checksums, as if the corruption
    /// had happened before they were computed.
    Repaired,
}

/// Joins two interfaces of a namespace; ends on drop.
pub(crate) struct Wire {
    stop: Arc<AtomicBool>,
    broken: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Wire {
    /// Joins hosts 0 and 1 of `lab`, which has three hosts.
    pub(crate) fn new(lab: &str, breakage: Breakage, seed: u64) -> Wire {
        let namespace = format!("{lab}-sw");
        for port in ["p0", "p1"] {
            ip(&["-n", &namespace, "link", "set", port, "nomaster"]);
        }
        for host in ["h0", "h1"] {
            let host = format!("{lab}-{host}");
            // Segments must be cut before they leave.
            let args = ["-n", &host, "link", "set", "eth0", "gso_max_segs", "1"];
            ip(&args);
        }
        let stop = Arc::<AtomicBool>::default();
        let broken = Arc::<AtomicU64>::default();
        let (stopped, count) = (Arc::clone(&stop), Arc::clone(&broken));
        let thread = std::thread::spawn(move || {
            let path = PathBuf::from("/run/netns").join(namespace);
            net::enter_netns(&path).unwrap();
            let ports = [port("p0"), port("p1")];
            let mut dice = Dice { seed, breakage };
            while !stopped.load(Ordering::Relaxed) {
                pass(&ports, &mut dice, &count);
            }
        });
        Wire {
            stop,
            broken,
            thread: Some(thread),
        }
    }

    /// Returns the number of frames corrupted so far.
    pub(crate) fn broken(&self) -> u64 {
        self.broken.load(Ordering::Relaxed)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let result = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            result.unwrap();
        }
    }
}

fn ip(args: &[&str]) {
    let status = Command::new("ip").args(args).status().unwrap();
    assert!(status.success(), "ip {args:?}");
}

fn port(name: &str) -> OwnedFd {
    let all = net::interfaces().unwrap();
    let interface = all.iter().find(|found| found.name == name).unwrap();
    let socket = net::packet_socket().unwrap();
    net::ignore_outgoing(socket.as_fd()).unwrap();
    net::request_receive_buffer(socket.as_fd(), 8 << 20).unwrap();
    net::bind_packet(socket.as_fd(), interface.index, ALL).unwrap();
    socket
}

/// Forwards pending frames in both directions.
fn pass(ports: &[OwnedFd; 2], dice: &mut Dice, broken: &AtomicU64) {
    let raw = [ports[0].as_raw_fd(), ports[1].as_raw_fd()];
    // A short wait, because the end of the test waits for this.
    net::wait_readable(&raw, Duration::from_millis(50)).unwrap();
    let mut frame = [0; 2048];
    for (from, to) in [(0, 1), (1, 0)] {
        // A limit, so that one direction does not starve the other.
        for _ in 0..64 {
            let Ok(Some(len)) = net::recv(ports[from].as_fd(), &mut frame) else {
                break;
            };
            let frame = &mut frame[..len];
            if dice.treat(frame) {
                broken.fetch_add(1, Ordering::Relaxed);
            }
            // A full queue drops the frame, as a switch would.
            let _ = net::send(ports[to].as_fd(), frame);
        }
    }
}

struct Dice {
    seed: u64,
    breakage: Breakage,
}

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.seed = self.seed.wrapping_add(1);
        mix(self.seed) % sides
    }

    /// Corrupts `frame` if it is selected.
    fn treat(&mut self, frame: &mut [u8]) -> bool {
        let ether_type = &frame[12..ETHERNET_LEN];
        if ether_type == PORTOLAN {
            return self.roll(ONE_IN) == 0 && self.turn_bits(&mut frame[ETHERNET_LEN..]);
        }
        if ether_type != IPV4 || frame[ETHERNET_LEN + 9] != UDP {
            return false;
        }
        let header_len = usize::from(frame[ETHERNET_LEN] & 0x0f) * 4;
        let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let packet = &mut frame[ETHERNET_LEN..ETHERNET_LEN + total];
        sum_udp(packet, header_len);
        if self.roll(ONE_IN) != 0 {
            return false;
        }
        match self.breakage {
            Breakage::AsItWas => self.turn_bits(packet),
            Breakage::Repaired => {
                let done = self.turn_bits(&mut packet[header_len + UDP_HEADER_LEN..]);
                sum_udp(packet, header_len);
                done
            }
        }
    }

    /// Flips bits. Without updated checksums only one bit: checksums detect any single bit, but not
    /// every set of several.
    fn turn_bits(&mut self, bytes: &mut [u8]) -> bool {
        let count = match self.breakage {
            Breakage::AsItWas => 1,
            Breakage::Repaired => 1 + self.roll(8),
        };
        for _ in 0..count {
            let bit = usize::try_from(self.roll(bytes.len() as u64 * 8)).unwrap();
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        true
    }
}

/// Stores the checksum of a UDP datagram (RFC 768).
fn sum_udp(packet: &mut [u8], header_len: usize) {
    let at = header_len + 6;
    packet[at..at + 2].fill(0);
    let len = u32::try_from(packet.len() - header_len).unwrap();
    let addresses = &packet[12..20];
    let mut sum = u32::from(UDP) + len + add(addresses) + add(&packet[header_len..]);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let word = match !u16::try_from(sum).unwrap() {
        0 => 0xffff,
        word => word,
    };
    packet[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

fn add(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words
        .map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0)))
        .sum()
}
