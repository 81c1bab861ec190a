// SPDX-License-Identifier: MIT OR Apache-2.0
//! Documents why the broker offers no AF_XDP sockets: their frames bypass its rules. If a kernel
//! changes that, this test fails, and the decision should be reviewed.

use super::{Broker, Lab, holds, watched, watched_at};
use crate::common::Ended;
use libc::xdp_desc;
use portolan_link::LinkError;
use portolan_link::packet::InterfaceRef;
use portolan_link::xdp::{Xdp, XdpConfig, XdpMode};
use portolan_sys::memfd;
use portolan_sys::net::{self, Area, Interface, MacAddr, XdpSocket, XdpSocketUse};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Mark of the socket with endpoint 1, as used in the rules.
const MARK: u32 = 0x506F_0001;

/// Chunks of the area, and entries of each ring.
const CHUNKS: usize = 4;
const RING_LEN: u32 = 4;
const CHUNK_LEN: usize = 2048;

/// Returns the namespace that a broker has created: that of its thread for the NIC.
fn namespace_of(broker: &mut Broker) -> PathBuf {
    let threads = Path::new("/proc")
        .join(broker.child().id().to_string())
        .join("task");
    // Another thread may end meanwhile, so a failed read means no match.
    let is_nic = |thread: &PathBuf| {
        fs::read_to_string(thread.join("comm")).is_ok_and(|name| name == "eth0\n")
    };
    let mut threads = fs::read_dir(threads)
        .unwrap()
        .map(|thread| thread.unwrap().path());
    threads.find(is_nic).unwrap().join("ns/net")
}

/// Runs `work` with the macvlan in the broker's namespace.
fn inside<T: Send>(netns: &Path, work: impl FnOnce(&Interface) -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            net::enter_netns(netns).unwrap();
            let all = net::interfaces().unwrap();
            let macvlan = all.into_iter().find(|found| found.name == "portolan0");
            work(&macvlan.unwrap())
        });
        thread.join().unwrap()
    })
}

/// Returns an ARP frame from an unused address, which the broker must not let out.
fn forged(to: MacAddr, word: &str) -> Vec<u8> {
    let mut frame = [&to.0[..], &[2, 0, 0, 0, 0xBA, 0xD0], &[8, 6]].concat();
    frame.extend(word.as_bytes());
    frame.resize(60, 0);
    frame
}

/// Sends by a packet socket like the broker's, but without its filter.
fn send_by_packet(macvlan: &Interface, frame: &[u8]) -> io::Result<usize> {
    let socket = net::packet_socket().unwrap();
    net::set_mark(socket.as_fd(), MARK).unwrap();
    net::bind_packet(socket.as_fd(), macvlan.index, 0).unwrap();
    net::send(socket.as_fd(), frame)
}

/// Sends by an AF_XDP socket with the same mark.
fn send_by_xdp(macvlan: &Interface, frame: &[u8]) -> io::Result<usize> {
    let len = Area::file_len(0, CHUNK_LEN, CHUNKS);
    let file = memfd::create_sealed("area", len as u64).unwrap();
    let area = Area::map(file.as_fd(), 0, CHUNK_LEN, CHUNKS).unwrap();
    area.write(0, frame);
    let socket = XdpSocket::open().unwrap();
    net::set_mark(socket.as_fd(), MARK).unwrap();
    socket.own_area(&area, RING_LEN, RING_LEN).unwrap();
    socket.make_tx_ring(RING_LEN).unwrap();
    let way = XdpSocketUse::Copy;
    // The kernel frees the queue of a closed socket a few milliseconds later.
    crate::common::wait_until("the macvlan's queue to be free", || {
        socket.bind_owner(macvlan.index, 0, way).is_ok()
    });
    let mut ring = socket.tx_ring(RING_LEN).unwrap();
    let len = u32::try_from(frame.len()).unwrap();
    let (addr, options) = (0, 0);
    assert!(ring.push(xdp_desc { addr, len, options }));
    net::send(socket.as_fd(), &[])
}

/// Returns rules that drop frames with that mark at the NIC.
fn rules_at_eth0() -> String {
    let chain = "type filter hook egress device \"eth0\" priority 0; policy accept;";
    format!("table netdev low {{\n chain out {{\n {chain}\n meta mark {MARK} drop\n }}\n}}\n")
}

#[test]
fn af_xdp_frames_bypass_the_rules() {
    let Some(lab) = Lab::up("xdp") else { return };
    if let Err(why) = XdpSocket::open() {
        return eprintln!("SKIPPED: no AF_XDP here: {why}");
    }
    let Some(mut broker) = lab.broker(0, "") else {
        return;
    };
    let netns = namespace_of(&mut broker);
    let (frames, refused) = watched(&lab, 1, |mac| {
        inside(&netns, |macvlan| {
            send_by_xdp(macvlan, &forged(mac, "BY AF_XDP")).expect("it is sent");
            send_by_packet(macvlan, &forged(mac, "BY PACKET"))
        })
    });
    let refused = refused.expect_err("it is refused");
    assert_eq!(refused.raw_os_error(), Some(libc::ENOBUFS), "{refused}");
    let came = |word: &[u8]| frames.iter().any(|frame| holds(frame, word));
    assert!(!came(b"BY PACKET"), "the rules hold packet sockets");
    assert!(came(b"BY AF_XDP"), "and do not hold these");
}

/// Rules at the NIC would not be better. The NIC's egress hook sees such a frame with its mark, but
/// also all of the host's traffic. Frames to another macvlan of the NIC do not reach it.
#[test]
fn nic_rules_do_not_see_traffic_between_macvlans() {
    let Some(lab) = Lab::up("xdplow") else { return };
    if let Err(why) = XdpSocket::open() {
        return eprintln!("SKIPPED: no AF_XDP here: {why}");
    }
    if Command::new("nft").arg("--version").output().is_err() {
        return eprintln!("SKIPPED: `nft` is not installed");
    }
    let Some(mut broker) = lab.broker(0, "") else {
        return;
    };
    let second = "socket = '@second'\n[[nic]]\ninterface = 'eth0'\ngroups = ['*']\n";
    let mut second = lab.start(0, second).unwrap();
    let rules = lab.directory.path().join("rules");
    fs::write(&rules, rules_at_eth0()).unwrap();
    let nft = lab.inside(0, Command::new("nft").arg("-f").arg(&rules));
    Ended::from({ nft }.output().unwrap()).succeeded("nft");
    let (netns, beside) = (namespace_of(&mut broker), namespace_of(&mut second));
    let (out, (beside, refused)) = watched(&lab, 1, |far| {
        watched_at(&beside, "portolan0", |near| {
            inside(&netns, |macvlan| {
                send_by_xdp(macvlan, &forged(near, "NEAR")).expect("it is sent");
                send_by_xdp(macvlan, &forged(far, "FAR"))
            })
        })
    });
    let refused = refused.expect_err("it is refused");
    assert_eq!(refused.raw_os_error(), Some(libc::EBUSY), "{refused}");
    assert!(!out.iter().any(|frame| holds(frame, b"FAR")), "held there");
    assert!(
        beside.iter().any(|frame| holds(frame, b"NEAR")),
        "not there"
    );
}

/// A macvlan has no native mode, the only one in which AF_XDP is worth its cost on hardware.
#[test]
fn a_macvlan_has_no_native_mode() {
    let Some(lab) = Lab::up("xdpmode") else {
        return;
    };
    if let Err(why) = XdpSocket::open() {
        return eprintln!("SKIPPED: no AF_XDP here: {why}");
    }
    let Some(mut broker) = lab.broker(0, "") else {
        return;
    };
    let mut config = XdpConfig::new(InterfaceRef::Name("portolan0".into()), 1);
    let netns = namespace_of(&mut broker);
    // Tested before the other mode, as the kernel frees the queue of that mode a few milliseconds
    // after its socket closes.
    config.mode = XdpMode::Native;
    let refused = inside(&netns, |_| Xdp::open(&config).err());
    let refused = refused.expect("native mode is refused");
    let LinkError::System { errno, .. } = &refused else {
        panic!("refused by something else than the kernel: {refused}");
    };
    assert_eq!(errno.raw_os_error(), Some(libc::EOPNOTSUPP), "{refused}");
    config.mode = XdpMode::Generic;
    inside(&netns, |_| drop(Xdp::open(&config).expect("generic mode")));
}
