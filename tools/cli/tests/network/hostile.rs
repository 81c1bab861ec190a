// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a job that receives many foreign frames: it does not crash or grow, counts each frame
//! by its reason, and receives all of its own messages.

use crate::common::disguise::disguise;
use crate::common::payload::{check, mix, mixed_len, payload};
use crate::common::ranks::role;
use crate::common::{KillOnDrop, can_make_labs};
use portolan::{Node, PortConfig, Target};
use portolan_link::packet::{InterfaceRef, Packet, PacketConfig};
use portolan_link::udp::{Udp, UdpConfig};
use portolan_link::{Link, LinkAddr, Segments, TxError, TxFrame};
use portolan_wire::{FRAME_HEADER_LEN, HELLO_LEN};
use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

ranks_of_this_module!(run_ranks, alone);

/// Minimum number of hostile frames that the target must have checked.
const FRAMES: u64 = 1_000_000;

/// Largest growth of memory in bytes: enough for a page table or an arena, but not for one frame in
/// a thousand.
const GROWTH_MAX: u64 = 1 << 20;

const PORT: u16 = 1;
const ADDRESS_PORT: u16 = 2;

/// Environment variable of the sprayer with its target: an address, and optionally a hardware
/// address.
const AIM: &str = "PORTOLAN_TEST_AIM";

/// Runs one rank of a job, or the sprayer; not a test of its own.
#[test]
fn as_rank() {
    let Some(role) = role() else { return };
    if role == "spray" {
        spray(&std::env::var(AIM).unwrap());
    }
    let mut node = Node::join().unwrap();
    node.open(PORT, PortConfig::default()).unwrap();
    node.open(ADDRESS_PORT, PortConfig::default()).unwrap();
    node.barrier().unwrap();
    match node.rank() {
        0 => target(&mut node, &role),
        _ => bystander(&mut node),
    }
    node.barrier().unwrap();
}

/// Receives hostile frames while it exchanges messages with the other rank.
fn target(node: &mut Node, role: &str) {
    let aim = own_aim(role == "packet");
    node.send(Target::new(1, ADDRESS_PORT), aim.as_bytes())
        .unwrap();
    let (mut index, mut resident_before) = (0, 0);
    while hostile(node) < FRAMES {
        talk(node, index, true);
        // After a tenth of the frames, every table and buffer has been used.
        if resident_before == 0 && hostile(node) > FRAMES / 10 {
            resident_before = resident();
        }
        index += 1;
    }
    let grown = resident().saturating_sub(resident_before);
    talk(node, index, false);
    println!("\nexchanged {index} drops {:?} grown {grown}", node.drops());
    assert!(grown < GROWTH_MAX, "grew by {grown} bytes");
    let drops = node.drops();
    // A loaded machine drops most frames before they are checked.
    let lost = drops.get("packet_receive_buffer_full").unwrap_or(&0);
    let judged = hostile(node) - lost;
    for reason in [
        "truncated",
        "wrong version",
        "malformed",
        "other job",
        "stale session",
    ] {
        let count = drops.get(reason).copied().unwrap_or(0);
        assert!(count > judged / 100, "{reason}: {count} of {drops:?}");
    }
    assert!(index > 20, "the job hardly went on: {index} messages");
}

/// Starts the sprayer on its own host, and answers messages.
fn bystander(node: &mut Node) {
    let mut aim = [0; 100];
    let got = node.recv_from(0, ADDRESS_PORT, &mut aim).unwrap();
    let aim = std::str::from_utf8(&aim[..got.len]).unwrap();
    let sprayer = KillOnDrop(alone("spray").env(AIM, aim).spawn().unwrap());
    let mut index = 0;
    while answer(node, index) {
        index += 1;
    }
    drop(sprayer);
}

/// Sends one message to the other rank and receives one; the first byte is set if more will follow.
fn talk(node: &mut Node, index: u32, more: bool) {
    let len = mixed_len(index);
    let body = payload(0, 0, index, len);
    let request = node.post_recv_from(1, PORT, vec![0; len]).unwrap();
    node.send_gather(Target::new(1, PORT), &[&[u8::from(more)], &body])
        .unwrap();
    check(
        &node.wait(request).unwrap().buffer.unwrap(),
        1,
        0,
        index,
        len,
    );
}

fn answer(node: &mut Node, index: u32) -> bool {
    let len = mixed_len(index);
    let mut buffer = vec![0; len + 1];
    node.recv_from(0, PORT, &mut buffer).unwrap();
    check(&buffer[1..], 0, 0, index, len);
    node.send(Target::new(0, PORT), &payload(1, 0, index, len))
        .unwrap();
    buffer[0] == 1
}

/// Returns the number of frames dropped here, except those of the job itself.
fn hostile(node: &Node) -> u64 {
    let own = ["duplicate", "stale transfer"];
    let drops = node.drops();
    drops
        .iter()
        .filter(|(reason, _)| !own.contains(*reason))
        .map(|(_, count)| count)
        .sum()
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

/// Returns this process's address: `IP:PORT`, and for raw Ethernet also the hardware address. The
/// first of its two sockets receives messages; the other answers liveness probes.
fn own_aim(with_mac: bool) -> String {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let links = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let own: Vec<String> = links
        .filter_map(|link| link.to_str().map(str::to_owned))
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/udp").unwrap();
    let sockets = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let at = own
            .iter()
            .position(|link| *link == format!("socket:[{}]", words[9]))?;
        Some((at, words[1].to_owned()))
    });
    let (_, local) = sockets.min().unwrap();
    let (ip, port) = local.split_once(':').unwrap();
    let ip = Ipv4Addr::from(u32::from_str_radix(ip, 16).unwrap().to_ne_bytes());
    let port = u16::from_str_radix(port, 16).unwrap();
    let interfaces = portolan_link::interfaces().unwrap();
    let mac = interfaces.iter().find(|interface| interface.name == "eth0");
    match mac.and_then(|interface| interface.mac).filter(|_| with_mac) {
        Some(mac) => format!("{ip}:{port} {}", hex::encode(mac.0)),
        None => format!("{ip}:{port}"),
    }
}

/// Sends until it is killed.
fn spray(aim: &str) -> ! {
    let mut words = aim.split(' ');
    let socket: SocketAddr = words.next().unwrap().parse().unwrap();
    let mut link: Box<dyn Link> = match words.next() {
        Some(mac) => {
            let interface = InterfaceRef::Name("eth0".into());
            let mut link = Packet::open(&PacketConfig::new(interface, 7)).unwrap();
            let mac = <[u8; 6]>::try_from(hex::decode(mac).unwrap()).unwrap();
            link.connect(
                0,
                &LinkAddr::Packet {
                    mac,
                    endpoint: socket.port(),
                },
            )
            .unwrap();
            Box::new(link)
        }
        None => {
            let from: IpAddr = Ipv4Addr::LOCALHOST.into();
            let mut config = UdpConfig::new(from);
            config.frame_len_max = Some(1472);
            let mut link = Udp::open(&config).unwrap();
            link.connect(0, &LinkAddr::Udp { socket }).unwrap();
            Box::new(link)
        }
    };
    let end = Instant::now() + Duration::from_secs(60);
    let mut word = 1;
    while Instant::now() < end {
        word = mix(word + 1);
        volley(&mut *link, word);
    }
    std::process::exit(3);
}

/// Sends as many frames of one length as the link takes at once, each of another kind.
fn volley(link: &mut dyn Link, word: u64) {
    let count = link.caps().segments_max.min(32);
    let len = usize::try_from(mix(word) % 200).unwrap() + 1;
    let len = if word.is_multiple_of(4) {
        FRAME_HEADER_LEN + HELLO_LEN
    } else {
        len
    };
    let mut frames = Vec::new();
    for index in 0..count as u64 {
        let mut bytes = payload(0, 1, u32::try_from((word ^ index) >> 32).unwrap(), len);
        disguise(&mut bytes, mix(word ^ index));
        frames.extend(bytes);
    }
    let slices = [IoSlice::new(&frames)];
    let cut = Segments {
        header_len: 0,
        payload_len: len,
    };
    let segments = (count > 1).then_some(cut);
    let frame = TxFrame {
        head: &[],
        payload: &slices,
        segments,
    };
    match link.transmit(0, &frame) {
        Ok(()) | Err(TxError::Full) => {}
        Err(error) => panic!("the sprayer cannot send: {error}"),
    }
    while link.poll_notice().is_some() {}
}

/// Asserts that the job ends by itself and has counted the frames.
fn assert_withstood(role: &str, args: &[&str]) {
    let out = run_ranks(2, role, args).succeeded(&format!("{role} {args:?}"));
    assert!(out.contains("exchanged "), "{out}");
}

#[test]
fn a_rain_of_hostile_datagrams_is_withstood() {
    assert_withstood("udp", &["--path", "udp", "--option", "frame_len_max=1472"]);
}

#[test]
fn a_rain_of_hostile_ethernet_frames_is_withstood() {
    if can_make_labs() {
        assert_withstood("packet", &["--new-lab", "2", "--path", "packet"]);
    }
}
