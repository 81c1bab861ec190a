// SPDX-License-Identifier: MIT OR Apache-2.0
//! The raw Ethernet link on the loopback of a namespace of its own, where the kernel returns frames
//! like a wire.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Lab, METHODS, open_packet, packet_config};
use portolan_link::packet::{BROADCAST, ENDPOINT_ALL, Packet, ReceiveBy};
use portolan_link::{Link, LinkAddr, Notice, TxFrame};

fn received(link: &mut Packet) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while link.receive(16, &mut |frame| all.push(frame.head.to_vec())) > 0 {}
    all
}

#[test]
fn frames_reach_their_endpoint() {
    let Some(lab) = Lab::try_new("frames_reach_their_endpoint") else {
        return;
    };
    for method in METHODS {
        let [mut a, mut b, mut c] = [(); 3].map(|()| lab.on(0, || open_packet("lo", method)));
        a.connect(2, &b.local_addr()).unwrap();
        a.transmit(2, &TxFrame::contiguous(b"for b")).unwrap();
        assert_eq!(received(&mut b), [b"for b"]);
        assert!(received(&mut a).is_empty() && received(&mut c).is_empty());
    }
}

#[test]
fn broadcast_reaches_all_but_its_sender() {
    let Some(lab) = Lab::try_new("broadcast_reaches_all_but_its_sender") else {
        return;
    };
    for method in METHODS {
        let [mut a, mut b, mut c] = [(); 3].map(|()| lab.on(0, || open_packet("lo", method)));
        a.transmit(BROADCAST, &TxFrame::contiguous(b"to all"))
            .unwrap();
        assert_eq!(received(&mut b), [b"to all"]);
        assert_eq!(received(&mut c), [b"to all"]);
        assert!(received(&mut a).is_empty());
    }
}

#[test]
fn overflow_is_reported_frame_by_frame() {
    let Some(lab) = Lab::try_new("overflow_is_reported_frame_by_frame") else {
        return;
    };
    for method in METHODS {
        let mut a = lab.on(0, || open_packet("lo", method));
        let mut config = packet_config("lo", method);
        config.receive_buffer_len = 4096;
        let mut b = lab.on(0, || Packet::open(&config).unwrap());
        a.connect(0, &b.local_addr()).unwrap();
        for _ in 0..100 {
            a.transmit(0, &TxFrame::contiguous(&[0xa5; 1000])).unwrap();
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
}

#[test]
fn group_addresses_are_refused_as_peers() {
    let Some(lab) = Lab::try_new("group_addresses_are_refused_as_peers") else {
        return;
    };
    let mut a = lab.on(0, || open_packet("lo", ReceiveBy::Call));
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

/// Several laps with a full ring and frames of all lengths.
#[test]
fn ring_delivers_every_frame_in_every_lap() {
    let Some(lab) = Lab::try_new("ring_delivers_every_frame_in_every_lap") else {
        return;
    };
    let mut a = lab.on(0, || open_packet("eth0", ReceiveBy::Ring));
    let mut config = packet_config("eth0", ReceiveBy::Ring);
    config.receive_buffer_len = 128 << 10;
    let mut b = lab.on(1, || Packet::open(&config).unwrap());
    a.connect(0, &b.local_addr()).unwrap();
    let slot_count = b.caps().rx_buffer_len / b.caps().frame_len_max;
    assert_eq!(slot_count, 80);
    for lap in 0..5_usize {
        let frame =
            |index: usize| vec![(lap * slot_count + index).to_le_bytes()[0]; 100 + 17 * index];
        for index in 0..slot_count {
            a.transmit(0, &TxFrame::contiguous(&frame(index))).unwrap();
        }
        assert_eq!(
            received(&mut b),
            (0..slot_count).map(frame).collect::<Vec<_>>()
        );
        assert!(b.poll_notice().is_none(), "nothing was dropped");
    }
    // One frame too many, and its successor: the ring is full, and then no longer.
    for _ in 0..=slot_count {
        a.transmit(0, &TxFrame::contiguous(&[7; 64])).unwrap();
    }
    assert_eq!(received(&mut b).len(), slot_count);
    let dropped = b.poll_notice();
    assert!(matches!(dropped, Some(Notice::Dropped(_))), "{dropped:?}");
    assert!(b.poll_notice().is_none());
    a.transmit(0, &TxFrame::contiguous(&[8; 64])).unwrap();
    assert_eq!(received(&mut b), [[8; 64]]);
}

/// A ring longer than the kernel can count.
#[test]
fn without_a_ring_frames_arrive_by_calls() {
    let Some(lab) = Lab::try_new("without_a_ring_frames_arrive_by_calls") else {
        return;
    };
    let mut config = packet_config("eth0", ReceiveBy::Ring);
    config.receive_buffer_len = usize::MAX / 2;
    let mut a = lab.on(0, || Packet::open(&config).unwrap());
    assert!(!a.caps().polls_memory);
    let mut b = lab.on(1, || open_packet("eth0", ReceiveBy::Ring));
    b.connect(0, &a.local_addr()).unwrap();
    b.transmit(0, &TxFrame::contiguous(b"hello")).unwrap();
    assert_eq!(received(&mut a), [b"hello"]);
}
