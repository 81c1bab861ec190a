// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cost of 10,000 peers for one process: memory by its allocator's count, and descriptors.
//!
//! The process is this program started again, as rank 0 of a job. This test plays the other ranks:
//! each is a protocol core behind one shared socket, with its own address.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use cap::Cap;
use portolan::binding::launch::wire::{ToAgent, ToProcess, VERSION, Welcome};
use portolan::binding::launch::{FD_VARIABLE, Job, PathChoice};
use portolan::{Node, PortConfig, Target};
use portolan_proto::{
    Config, Core, Data, Event, Instant, LaneId, Limits, LinkId, LinkParams, PeerId, PortId,
    PortMode, SendSpec, Transmit,
};
use portolan_wire::{FrameHeader, FrameKind, Hello};
use serde_json::{Value, json};
use std::alloc::System;
use std::collections::{HashMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const PEERS: u32 = 10_000;

/// Maximum cost of an idle peer, in bytes, including its address.
const IDLE_LEN_MAX: usize = 1024;

/// Memory that the process reserves against a lack of memory, once any message has arrived out of
/// order. The first time is random, and not a cost of a peer.
const RESERVE_LEN: usize = 1024 * 1024;

/// Time after which the test fails. The machine may be busy.
const PATIENCE: Duration = Duration::from_secs(100);

const PORT: u16 = 1;
const SECRET: [u8; 32] = [7; 32];
const JOB_ID: [u8; 16] = [9; 16];

/// Environment variable that makes this program the process with the peers.
const ROLE: &str = "MANY_PEERS_ROLE";

/// Runs the process with the peers; does nothing as a test of its own.
#[test]
fn as_rank_0() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let before = ALLOCATOR.allocated();
    let mut node = Node::join().unwrap();
    node.open(PORT, PortConfig::default()).unwrap();
    let descriptors = descriptor_count();
    let fixed = before + RESERVE_LEN;
    let per_peer = || ALLOCATOR.allocated().saturating_sub(fixed) / PEERS as usize;
    println!("\nknown {} bytes a peer", per_peer());
    for peer in 1..=PEERS {
        greet(&mut node, peer);
    }
    println!("\nmet {} bytes a peer", per_peer());
    let end = std::time::Instant::now() + PATIENCE;
    node.wait_until(|| per_peer() <= IDLE_LEN_MAX || std::time::Instant::now() > end)
        .unwrap();
    // Memory at its peak decreases further while more peers become dormant.
    let settled = std::time::Instant::now() + Duration::from_secs(2);
    node.wait_until(|| std::time::Instant::now() > settled)
        .unwrap();
    println!("\nidle {} bytes a peer", per_peer());
    assert!(per_peer() <= IDLE_LEN_MAX);
    assert_eq!(descriptor_count(), descriptors, "descriptors");
    // The peers are still connected.
    for peer in (1..=PEERS).step_by(100) {
        greet(&mut node, peer);
    }
    println!("\nall is well");
}

/// Sends a message to the peer and receives its answer.
fn greet(node: &mut Node, peer: u32) {
    node.send(Target::new(peer, PORT), &peer.to_le_bytes())
        .unwrap();
    let mut bytes = [0; 8];
    let got = node.recv_from(peer, PORT, &mut bytes).unwrap();
    assert_eq!(bytes[..got.len], peer.to_le_bytes());
}

fn descriptor_count() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn ten_thousand_idle_peers_cost_a_kilobyte_each_and_no_descriptor() {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(1)))
        .unwrap();
    let lives = Lives::start();
    let (mut child, address) = start(socket.local_addr().unwrap().port(), lives.port);
    let mut simulated = SimulatedPeers {
        socket,
        to: address,
        peers: HashMap::new(),
        by_token: HashMap::new(),
        recent: VecDeque::new(),
        started: std::time::Instant::now(),
    };
    let end = std::time::Instant::now() + 2 * PATIENCE;
    let mut frame = vec![0; 65_536];
    let status = loop {
        assert!(std::time::Instant::now() < end, "it goes on for ever");
        if let Ok(len) = simulated.socket.recv(&mut frame) {
            simulated.on_frame(&frame[..len]);
            continue;
        }
        simulated.on_silence();
        if let Some(status) = child.0.try_wait().unwrap() {
            break status;
        }
    };
    assert!(status.success(), "{status}");
    assert_eq!(simulated.peers.len(), PEERS as usize);
}

/// Starts rank 0, and plays its launcher until rank 0 has all addresses.
fn start(port: u16, lives_port: u16) -> (KillOnDrop, SocketAddr) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let theirs = OwnedFd::from(theirs);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["as_rank_0", "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, "rank 0")
        .env(FD_VARIABLE, theirs.as_raw_fd().to_string());
    portolan_sys::inherit::give_fd(&mut command, theirs);
    let child = KillOnDrop(command.spawn().unwrap());
    drop(command);
    let mut job = Job::alone(JOB_ID, SECRET);
    (job.size, job.path) = (PEERS + 1, PathChoice::Udp);
    job.options.insert("interface".into(), "lo".into());
    job.options.insert("model".into(), "off".into());
    let version = VERSION;
    send_message(&ours, &ToProcess::Welcome(Welcome { version, job }));
    let mut line = String::new();
    BufReader::new(&ours).read_line(&mut line).unwrap();
    let ToAgent::Address { address: own } = serde_json::from_str(&line).unwrap() else {
        panic!("{line}");
    };
    let of_peer = |peer: u32| {
        let [_, high, middle, low] = peer.to_be_bytes();
        // All addresses of 127/8 are this host.
        let ip = Ipv4Addr::new(127, 1 + high, middle, low);
        let mut address = own.clone();
        address["links"][0]["socket"] = json!(SocketAddr::from((ip, port)));
        address["liveness"] = json!(SocketAddr::from((ip, lives_port)));
        address
    };
    let addresses: Vec<Value> = std::iter::once(own.clone())
        .chain((1..=PEERS).map(of_peer))
        .collect();
    send_message(&ours, &ToProcess::Table { addresses });
    // Must stay open as long as this program runs.
    std::mem::forget(ours);
    let socket = own["links"][0]["socket"].as_str().unwrap();
    (child, socket.parse().unwrap())
}

fn send_message(mut to: &UnixStream, message: &ToProcess) {
    let mut line = serde_json::to_vec(message).unwrap();
    line.push(b'\n');
    to.write_all(&line).unwrap();
}

struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// All ranks but rank 0.
struct SimulatedPeers {
    socket: UdpSocket,
    to: SocketAddr,
    peers: HashMap<u32, Core>,
    by_token: HashMap<u64, u32>,
    /// Most recently active ranks. The timers of all other ranks do not matter.
    recent: VecDeque<u32>,
    started: std::time::Instant,
}

impl SimulatedPeers {
    fn now(&self) -> Instant {
        Instant::default() + self.started.elapsed()
    }

    fn on_frame(&mut self, frame: &[u8]) {
        let Ok((header, _)) = FrameHeader::parse(frame) else {
            return;
        };
        let rank = match header.kind {
            FrameKind::Hello | FrameKind::HelloAck => Hello::parse(frame).unwrap().0.to,
            _ => match self.by_token.get(&header.session) {
                Some(&rank) => rank,
                None => return,
            },
        };
        let now = self.now();
        let peer = self.peers.entry(rank).or_insert_with(|| new_peer(rank));
        peer.handle_frame(now, LinkId::UDP, frame);
        answer(peer, frame);
        self.transmit(rank);
        if let Some(ids) = self.peers[&rank].session_ids(PeerId(0)) {
            self.by_token.insert(ids.mine.1, rank);
        }
        if !self.recent.contains(&rank) {
            self.recent.push_back(rank);
            if self.recent.len() > 256 {
                self.recent.pop_front();
            }
        }
    }

    fn on_silence(&mut self) {
        let now = self.now();
        for index in 0..self.recent.len() {
            let rank = self.recent[index];
            let peer = self.peers.get_mut(&rank).unwrap();
            if now >= peer.poll_timeout() {
                peer.handle_timeout(now);
                answer(peer, &[]);
                self.transmit(rank);
            }
        }
    }

    fn transmit(&mut self, rank: u32) {
        let now = self.now();
        let peer = self.peers.get_mut(&rank).unwrap();
        while let Some(transmit) = peer.poll_transmit(now) {
            let Transmit::Frame { bytes, .. } = transmit else {
                panic!("answers are short");
            };
            // A lost frame is retransmitted.
            let _ = self.socket.send_to(bytes, self.to);
        }
    }
}

fn new_peer(rank: u32) -> Core {
    let mut core = Core::new(Config {
        job_id: JOB_ID,
        secret: SECRET,
        rank,
        // The peer has contact only with rank 0.
        size: 1,
        epoch: 1,
        seed: *blake3::hash(&rank.to_le_bytes()).as_bytes(),
        limits: Limits::default(),
    });
    let params = LinkParams {
        frame_len_max: 1472,
        segments_max: 1,
        lossless: false,
        pull: false,
        checksum: false,
        sum: None,
        rx_buffer_len: 200_000,
    };
    core.add_link(LinkId::UDP, params);
    core.allow(PeerId(0), &[LinkId::UDP]);
    core.open_port(PortId::user(PORT), PortMode::InPlace);
    core
}

/// Sends each received message back.
fn answer(peer: &mut Core, frame: &[u8]) {
    while let Some(event) = peer.poll_event() {
        let Event::Deliver { data, .. } = event else {
            continue;
        };
        let bytes = match data {
            Data::Frame(range) => frame[range].to_vec(),
            Data::Held(id) => {
                let bytes = peer.held(id).to_vec();
                peer.release(id);
                bytes
            }
            Data::Placed => panic!("nothing was posted"),
        };
        let spec = SendSpec {
            to: PortId::user(PORT).into(),
            lane: LaneId::Low,
            best_effort: false,
        };
        let mut staging = peer.eager(PeerId(0), &spec, bytes.len()).unwrap();
        staging.push(&bytes);
    }
}

/// Answers liveness probes of all ranks but rank 0 (`P9.2`), so that they are not declared dead on
/// a busy machine.
struct Lives {
    port: u16,
    stop: Arc<AtomicBool>,
}

impl Lives {
    fn start() -> Lives {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_millis(50)))
            .unwrap();
        let port = socket.local_addr().unwrap().port();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let key = blake3::derive_key("portolan 2026 liveness", &SECRET);
        std::thread::spawn(move || {
            let mut bytes = [0; 40];
            while !stopped.load(Ordering::Relaxed) {
                let Ok((40, from)) = socket.recv_from(&mut bytes) else {
                    continue;
                };
                bytes[4] = 2;
                let (left, right) = bytes[8..16].split_at_mut(4);
                left.swap_with_slice(right);
                let hash = blake3::keyed_hash(&key, &bytes[..24]);
                bytes[24..].copy_from_slice(&hash.as_bytes()[..16]);
                let _ = socket.send_to(&bytes, from);
            }
        });
        Lives { port, stop }
    }
}

impl Drop for Lives {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
