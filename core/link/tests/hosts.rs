// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links between two hosts, with IP traffic and while the network changes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{ADDRS, Lab, METHODS, open_packet};
use portolan_link::packet::{BROADCAST, InterfaceRef, Packet, PacketConfig, ReceiveBy};
use portolan_link::udp::{Udp, UdpConfig};
use portolan_link::{Link, LinkError, Notice, Segments, TxError, TxFrame, interfaces};
use std::io::IoSlice;
use std::net::{IpAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Longer than any delay by a scheduler.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

#[test]
fn packet_and_ip_share_an_interface() {
    let Some(lab) = Lab::try_new("packet_and_ip_share_an_interface") else {
        return;
    };
    for method in METHODS {
        let mut a = lab.on(0, || open_packet("eth0", method));
        let mut b = lab.on(1, || open_packet("eth0", method));
        a.connect(1, &b.local_addr()).unwrap();
        let socket = |host: usize| lab.on(host, move || UdpSocket::bind((ADDRS[host], 0)).unwrap());
        let (left, right) = (socket(0), socket(1));
        left.connect(right.local_addr().unwrap()).unwrap();
        right.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        for number in 0..200_u32 {
            let bytes = number.to_be_bytes();
            a.transmit(1, &TxFrame::contiguous(&bytes)).unwrap();
            left.send(&bytes).unwrap();
            let mut buf = [0xa5; 16];
            assert_eq!(right.recv(&mut buf).unwrap(), 4);
            assert_eq!(buf[..4], bytes);
        }
        let mut got = Vec::new();
        let start = Instant::now();
        while got.len() < 200 && start.elapsed() < TEST_TIMEOUT {
            b.receive(64, &mut |frame| {
                got.push(u32::from_be_bytes(frame.head[..4].try_into().unwrap()))
            });
        }
        assert_eq!(got, (0..200).collect::<Vec<_>>());
        assert_eq!(
            b.receive(64, &mut |_| {}),
            0,
            "only its own frames, nothing of IP's"
        );
    }
}

#[test]
fn missing_host_is_not_a_link_error() {
    let Some(lab) = Lab::try_new("missing_host_is_not_a_link_error") else {
        return;
    };
    for method in METHODS {
        let mut a = lab.on(0, || open_packet("eth0", method));
        let b = lab.on(1, || open_packet("eth0", method));
        a.connect(1, &b.local_addr()).unwrap();
        drop(b);
        a.transmit(1, &TxFrame::contiguous(b"to nobody")).unwrap();
        assert_eq!(a.receive(64, &mut |_| {}), 0);
    }
}

#[test]
fn broadcast_reaches_every_process_of_the_other_host() {
    let Some(lab) = Lab::try_new("broadcast_reaches_every_process_of_the_other_host") else {
        return;
    };
    for method in METHODS {
        let mut a = lab.on(0, || open_packet("eth0", method));
        let mut others = [
            lab.on(1, || open_packet("eth0", method)),
            lab.on(1, || open_packet("eth0", method)),
        ];
        a.transmit(BROADCAST, &TxFrame::contiguous(&[7; 64]))
            .unwrap();
        for other in &mut others {
            assert_eq!(receive_one(other), [7; 64]);
        }
        assert_eq!(a.receive(64, &mut |_| {}), 0);
    }
}

#[test]
fn shrunken_mtu_is_reported_with_its_peer() {
    let Some(lab) = Lab::try_new("shrunken_mtu_is_reported_with_its_peer") else {
        return;
    };
    let open = |host: usize| {
        let config = UdpConfig::new(ADDRS[host].parse().unwrap());
        lab.on(host, || Udp::open(&config).unwrap())
    };
    let (mut a, mut b) = (open(0), open(1));
    a.connect(5, &b.local_addr()).unwrap();
    let most = a.caps().frame_len_max;
    assert_eq!(most, 1472);
    lab.ip(0, &["link", "set", "eth0", "mtu", "1000"]);
    let long = vec![0xa5; most];
    let refused = a.transmit(5, &TxFrame::contiguous(&long));
    assert!(
        matches!(refused, Err(TxError::TooLong { frame_len_max: 972 })),
        "{refused:?}"
    );
    let noticed = a.poll_notice();
    assert!(
        matches!(
            noticed,
            Some(Notice::MtuShrunk {
                peer: 5,
                frame_len_max: 972
            })
        ),
        "{noticed:?}"
    );
    let segments = Some(Segments {
        header_len: 8,
        payload_len: most - 8,
    });
    let payload = [IoSlice::new(&long[..most - 8]), IoSlice::new(&long[..100])];
    let run = TxFrame {
        head: &[1; 16],
        payload: &payload,
        segments,
    };
    assert!(matches!(a.transmit(5, &run), Err(TxError::TooLong { .. })));
    a.transmit(5, &TxFrame::contiguous(&long[..972])).unwrap();
    assert_eq!(receive_one(&mut b).len(), 972);
}

#[test]
fn packet_reports_the_current_mtu() {
    let Some(lab) = Lab::try_new("packet_reports_the_current_mtu") else {
        return;
    };
    for method in METHODS {
        let mut a = lab.on(0, || open_packet("eth0", method));
        let mut b = lab.on(1, || open_packet("eth0", method));
        a.connect(1, &b.local_addr()).unwrap();
        assert_eq!(a.caps().frame_len_max, 1496);
        lab.ip(0, &["link", "set", "eth0", "mtu", "1000"]);
        let long = vec![0xa5; a.caps().frame_len_max];
        let refused = lab.on(0, || a.transmit(1, &TxFrame::contiguous(&long)));
        assert!(
            matches!(refused, Err(TxError::TooLong { frame_len_max: 996 })),
            "{refused:?}"
        );
        a.transmit(1, &TxFrame::contiguous(&long[..996])).unwrap();
        assert_eq!(receive_one(&mut b).len(), 996);
        lab.ip(0, &["link", "set", "eth0", "mtu", "1500"]);
    }
}

/// The kernel truncates frames longer than a ring slot or a call's buffer.
#[test]
fn frame_longer_than_the_receive_slot_is_refused_and_counted() {
    let Some(lab) = Lab::try_new("frame_longer_than_the_receive_slot_is_refused_and_counted")
    else {
        return;
    };
    for method in METHODS {
        let mut b = lab.on(1, || open_packet("eth0", method));
        for host in 0..2 {
            lab.ip(host, &["link", "set", "eth0", "mtu", "9000"]);
        }
        let mut a = lab.on(0, || open_packet("eth0", method));
        a.connect(1, &b.local_addr()).unwrap();
        a.transmit(1, &TxFrame::contiguous(&[1; 8000])).unwrap();
        a.transmit(1, &TxFrame::contiguous(&[2; 1496])).unwrap();
        assert_eq!(receive_one(&mut b), [2; 1496]);
        let refused = b.poll_notice();
        assert!(
            matches!(refused, Some(Notice::Dropped("packet_bad_length"))),
            "{refused:?}"
        );
        assert!(b.poll_notice().is_none());
        for host in 0..2 {
            lab.ip(host, &["link", "set", "eth0", "mtu", "1500"]);
        }
    }
}

#[test]
fn interface_down_is_reported_and_recovers() {
    let Some(lab) = Lab::try_new("interface_down_is_reported_and_recovers") else {
        return;
    };
    for method in METHODS {
        let mut a = lab.on(0, || open_packet("eth0", method));
        let mut b = lab.on(1, || open_packet("eth0", method));
        a.connect(1, &b.local_addr()).unwrap();
        lab.ip(0, &["link", "set", "eth0", "down"]);
        assert_eq!(a.receive(64, &mut |_| {}), 0);
        // A call has already reported it; with a ring the socket is checked rarely.
        let polls = if method == ReceiveBy::Ring { 64 } else { 1 };
        let notice = (0..polls).find_map(|_| a.poll_notice());
        assert!(matches!(notice, Some(Notice::Down(_))), "{notice:?}");
        let sent = a.transmit(1, &TxFrame::contiguous(b"into the void"));
        assert!(matches!(sent, Err(TxError::System(_))), "{sent:?}");
        let config = PacketConfig::new(InterfaceRef::Name("eth0".into()), 1);
        let Err(LinkError::System { errno, .. }) = lab.on(0, || Packet::open(&config)) else {
            panic!("opened on an interface that is down");
        };
        assert_eq!(errno.raw_os_error(), Some(libc::ENETDOWN));
        lab.ip(0, &["link", "set", "eth0", "up"]);
        let start = Instant::now();
        while a.transmit(1, &TxFrame::contiguous(&[9; 64])).is_err() {
            assert!(
                start.elapsed() < TEST_TIMEOUT,
                "the interface does not come back"
            );
        }
        assert_eq!(receive_one(&mut b), [9; 64]);
    }
}

#[test]
fn interfaces_are_those_of_the_namespace() {
    let Some(lab) = Lab::try_new("interfaces_are_those_of_the_namespace") else {
        return;
    };
    let all = lab.on(1, || interfaces().unwrap());
    let names: Vec<_> = all
        .iter()
        .map(|interface| interface.name.as_str())
        .collect();
    assert!(
        names.contains(&"lo") && names.contains(&"eth0"),
        "{names:?}"
    );
    let eth0 = all
        .iter()
        .find(|interface| interface.name == "eth0")
        .unwrap();
    assert!(eth0.up && eth0.running && !eth0.loopback && eth0.mac.is_some());
    assert_eq!(
        (eth0.mtu, eth0.kind),
        (1500, portolan_link::InterfaceKind::Veth)
    );
    let addr: IpAddr = ADDRS[1].parse().unwrap();
    assert!(
        eth0.networks
            .iter()
            .any(|network| network.addr == addr && network.prefix_len == 24)
    );
}

fn receive_one(link: &mut impl Link) -> Vec<u8> {
    let start = Instant::now();
    let mut got = None;
    while got.is_none() {
        assert!(start.elapsed() < TEST_TIMEOUT, "nothing arrived");
        link.receive(1, &mut |frame| got = Some(frame.head.to_vec()));
    }
    got.unwrap()
}
