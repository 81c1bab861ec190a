// SPDX-License-Identifier: MIT OR Apache-2.0
//! The raw Ethernet link on the loopback of a namespace of its own, where frames come back from the
//! kernel as from a wire.
#![allow(clippy::unwrap_used, reason = "a test fails where it stands")]

mod common;

use common::{Lab, open_packet};
use portolan_link::packet::{BROADCAST, ENDPOINT_ALL, InterfaceRef, Packet, PacketConfig};
use portolan_link::{Link, LinkAddr, Notice, TxFrame};

fn received(link: &mut Packet) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while link.receive(16, &mut |frame| all.push(frame.head.to_vec())) > 0 {}
    all
}

#[test]
fn frames_reach_the_endpoint_they_are_for() {
    let Some(lab) = Lab::try_new("frames_reach_the_endpoint_they_are_for") else {
        return;
    };
    let [mut a, mut b, mut c] = [(); 3].map(|()| lab.on(0, || open_packet("lo")));
    a.connect(2, &b.local_addr()).unwrap();
    a.transmit(2, &TxFrame::whole(b"for b")).unwrap();
    assert_eq!(received(&mut b), [b"for b"]);
    assert!(received(&mut a).is_empty() && received(&mut c).is_empty());
}

#[test]
fn broadcast_reaches_all_but_its_sender() {
    let Some(lab) = Lab::try_new("broadcast_reaches_all_but_its_sender") else {
        return;
    };
    let [mut a, mut b, mut c] = [(); 3].map(|()| lab.on(0, || open_packet("lo")));
    a.transmit(BROADCAST, &TxFrame::whole(b"to all")).unwrap();
    assert_eq!(received(&mut b), [b"to all"]);
    assert_eq!(received(&mut c), [b"to all"]);
    assert!(received(&mut a).is_empty());
}

#[test]
fn overflow_is_reported_frame_by_frame() {
    let Some(lab) = Lab::try_new("overflow_is_reported_frame_by_frame") else {
        return;
    };
    let mut a = lab.on(0, || open_packet("lo"));
    let mut config = PacketConfig::new(InterfaceRef::Name("lo".into()), 5);
    config.receive_buffer_len = 4096;
    let mut b = lab.on(0, || Packet::open(&config).unwrap());
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
fn group_addresses_are_no_peers() {
    let Some(lab) = Lab::try_new("group_addresses_are_no_peers") else {
        return;
    };
    let mut a = lab.on(0, || open_packet("lo"));
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
