// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tests that broadcast, or count all that arrives, take turns: the loopback is one Ethernet.
fn alone_on_the_loopback() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A link on the loopback, where frames come back from the kernel like from a wire.
fn open(endpoint: u16) -> Option<Packet> {
    let config = PacketConfig::new(InterfaceRef::Name("lo".into()), endpoint);
    match Packet::open(&config) {
        Ok(link) => Some(link),
        Err(LinkError::System { source, .. }) if source.raw_os_error() == Some(libc::EPERM) => {
            println!("SKIPPED: raw sockets need CAP_NET_RAW");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn received(link: &mut Packet) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while link.receive(16, &mut |frame| all.push(frame.head.to_vec())) > 0 {}
    all
}

#[test]
fn frames_reach_the_endpoint_they_are_for() {
    let (Some(mut a), Some(mut b), Some(mut c)) = (open(60001), open(60002), open(60003)) else {
        return;
    };
    a.connect(2, &b.local_addr()).unwrap();
    a.transmit(2, &TxFrame::whole(b"for b")).unwrap();
    assert_eq!(received(&mut b), [b"for b"]);
    assert!(received(&mut a).is_empty() && received(&mut c).is_empty());
}

#[test]
fn broadcast_reaches_all_but_its_sender() {
    let _turn = alone_on_the_loopback();
    let (Some(mut a), Some(mut b), Some(mut c)) = (open(60011), open(60012), open(60013)) else {
        return;
    };
    a.transmit(BROADCAST, &TxFrame::whole(b"to all, from a"))
        .unwrap();
    assert_eq!(received(&mut b), [b"to all, from a"]);
    assert_eq!(received(&mut c), [b"to all, from a"]);
    assert!(received(&mut a).is_empty());
}

#[test]
fn overflow_is_reported_frame_by_frame() {
    let _turn = alone_on_the_loopback();
    let Some(mut a) = open(60021) else { return };
    let mut config = PacketConfig::new(InterfaceRef::Name("lo".into()), 60022);
    config.receive_buffer_len = 4096;
    let mut b = Packet::open(&config).unwrap();
    a.connect(0, &b.local_addr()).unwrap();
    for _ in 0..100 {
        a.transmit(0, &TxFrame::whole(&[0xa5; 1000])).unwrap();
    }
    let arrived = received(&mut b).len();
    let mut dropped = 0;
    while let Some(notice) = b.poll_notice() {
        assert!(matches!(
            notice,
            Notice::Dropped("packet_receive_buffer_full")
        ));
        dropped += 1;
    }
    assert_eq!(arrived + dropped, 100);
    assert!(dropped > 0);
}

#[test]
fn errors_name_the_interface_and_the_remedy() {
    let config = PacketConfig::new(InterfaceRef::Name("no-such-if0".into()), 1);
    let message = Packet::open(&config).err().unwrap().to_string();
    assert!(
        message.contains("no-such-if0") && message.contains("ip link"),
        "{message}"
    );
    let config = PacketConfig::new(InterfaceRef::Name("lo".into()), ENDPOINT_ALL);
    let message = Packet::open(&config).err().unwrap().to_string();
    assert!(message.contains("choose another endpoint"), "{message}");
}

#[test]
fn group_addresses_are_no_peers() {
    let Some(mut a) = open(60031) else { return };
    let group = LinkAddr::Packet {
        mac: [0xff; 6],
        endpoint: 5,
    };
    assert!(a.connect(0, &group).is_err());
    let everyone = LinkAddr::Packet {
        mac: [2; 6],
        endpoint: ENDPOINT_ALL,
    };
    assert!(a.connect(0, &everyone).is_err());
}
