// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use crate::Segments;
use std::io::IoSlice;
use std::net::Ipv4Addr;

fn open(change: impl Fn(&mut UdpConfig)) -> Udp {
    let mut config = UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    change(&mut config);
    Udp::open(&config).unwrap()
}

fn pair(change: impl Fn(&mut UdpConfig)) -> (Udp, Udp) {
    let (mut a, b) = (open(&change), open(&change));
    a.connect(1, &b.local_addr()).unwrap();
    (a, b)
}

fn received(link: &mut Udp) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while link.receive(16, &mut |frame| all.push(frame.head.to_vec())) > 0 {}
    all
}

#[test]
fn run_without_offload_arrives_as_with_it() {
    let body: Vec<u8> = (0..=255).cycle().take(4000).collect();
    for offload in [true, false] {
        let (mut a, mut b) = pair(|config| {
            config.offload = offload;
            config.frame_len_max = Some(1472);
        });
        let payload = [IoSlice::new(&body[..100]), IoSlice::new(&body[100..])];
        let cut = Segments {
            header_len: 2,
            payload_len: 1000,
        };
        let frame = TxFrame {
            head: b"00112233",
            payload: &payload,
            segments: Some(cut),
        };
        a.transmit(1, &frame).unwrap();
        let got = received(&mut b);
        assert_eq!(got.len(), 4);
        for (index, datagram) in got.iter().enumerate() {
            assert_eq!(datagram[..2], frame.head[2 * index..2 * index + 2]);
            assert_eq!(datagram[2..], body[1000 * index..1000 * index + 1000]);
        }
    }
}

#[test]
fn refused_peer_is_named_and_costs_no_frame() {
    let (mut a, b) = pair(|_| {});
    a.connect(2, &open(|_| {}).local_addr()).unwrap();
    drop(b);
    let mut own = open(|_| {});
    a.connect(3, &own.local_addr()).unwrap();
    a.transmit(1, &TxFrame::whole(b"to nobody")).unwrap();
    // The refusal is pending on the socket now, and must not eat this one.
    a.transmit(3, &TxFrame::whole(b"to somebody")).unwrap();
    assert_eq!(received(&mut own), [b"to somebody"]);
    assert!(matches!(a.poll_notice(), Some(Notice::Refused(1))));
    assert!(a.poll_notice().is_none());
}

#[test]
fn pending_refusal_does_not_hide_what_arrived() {
    let (mut a, b) = pair(|_| {});
    let mut c = open(|_| {});
    c.connect(0, &a.local_addr()).unwrap();
    drop(b);
    c.transmit(0, &TxFrame::whole(b"good")).unwrap();
    a.transmit(1, &TxFrame::whole(b"to nobody")).unwrap();
    assert_eq!(received(&mut a), [b"good"]);
    assert!(matches!(a.poll_notice(), Some(Notice::Refused(1))));
}

#[test]
fn refusal_forbids_sleeping_until_it_is_taken() {
    let (mut a, b) = pair(|_| {});
    drop(b);
    assert!(a.arm(&mut WakeSet::default()));
    a.transmit(1, &TxFrame::whole(b"to nobody")).unwrap();
    assert!(!a.arm(&mut WakeSet::default()));
    assert!(a.poll_notice().is_some());
    assert!(a.arm(&mut WakeSet::default()));
}

#[test]
fn overflow_is_reported_frame_by_frame() {
    let (mut a, mut b) = pair(|config| config.receive_buffer_len = 4096);
    for _ in 0..100 {
        a.transmit(1, &TxFrame::whole(&[0xa5; 1000])).unwrap();
    }
    let arrived = received(&mut b).len();
    let mut dropped = 0;
    while let Some(notice) = b.poll_notice() {
        assert!(matches!(notice, Notice::Dropped("udp_receive_buffer_full")));
        dropped += 1;
    }
    assert_eq!(arrived + dropped, 100);
    assert!(dropped > 0);
}

#[test]
fn empty_datagram_is_counted_not_handed_over() {
    let (mut a, mut b) = pair(|_| {});
    a.transmit(1, &TxFrame::whole(b"")).unwrap();
    assert!(received(&mut b).is_empty());
    assert!(matches!(
        b.poll_notice(),
        Some(Notice::Dropped("udp_empty"))
    ));
}

#[test]
fn taken_port_is_named_with_a_remedy() {
    let LinkAddr::Udp { socket } = open(|_| {}).local_addr() else {
        unreachable!()
    };
    let holder = UdpSocket::bind(socket).unwrap();
    let mut config = UdpConfig::new(socket.ip());
    config.port = socket.port();
    let message = Udp::open(&config).err().unwrap().to_string();
    assert!(message.contains(&socket.to_string()), "{message}");
    assert!(message.contains("choose another port"), "{message}");
    drop(holder);
}

#[test]
fn interface_of_the_address_decides_the_frame_length() {
    let link = open(|_| {});
    assert_eq!(link.caps().frame_len_max, DATAGRAM_LEN_MAX);
    assert_eq!(link.caps().segments_max, 1);
    let small = open(|config| config.frame_len_max = Some(1472));
    assert_eq!(
        (small.caps().frame_len_max, small.caps().segments_max),
        (1472, 44)
    );
}

#[test]
fn capacity_follows_what_the_kernel_books() {
    let (mut a, mut b) = pair(|config| config.frame_len_max = Some(1472));
    let assumed = b.caps().rx_buffer_len;
    let body = vec![7; 40 * 1400];
    let headers = vec![8; 40 * 24];
    let payload = [IoSlice::new(&body)];
    let cut = Segments {
        header_len: 24,
        payload_len: 1400,
    };
    let frame = TxFrame {
        head: &headers,
        payload: &payload,
        segments: Some(cut),
    };
    for _ in 0..20 {
        a.transmit(1, &frame).unwrap();
        assert_eq!(received(&mut b).len(), 40);
    }
    // The loopback interface hands runs over whole: they cost little more than their payload.
    let told = b.poll_notice();
    let Some(Notice::Capacity(len)) = told else {
        panic!("{told:?} instead of a capacity");
    };
    assert!(
        (assumed * 2..assumed * 3).contains(&len),
        "{len}, first {assumed}"
    );
    assert!(b.poll_notice().is_none(), "said once");
}

/// The frames that a receiver is told of, by a letter each, a capital one if it is marked.
#[derive(Default)]
struct Told(String);

impl Receiver for Told {
    fn plan(&mut self) -> Option<crate::Plan<'_>> {
        None
    }

    fn frame(&mut self, frame: RxFrame<'_>) {
        let letter = char::from(frame.head[0]);
        self.0.push(match frame.marked {
            true => letter.to_ascii_uppercase(),
            false => letter,
        });
    }

    fn placed(&mut self, _: &[u8], _: usize, _: bool) {}

    fn missed(&mut self, _: usize, _: usize) {}
}

// P3.14
#[test]
fn every_frame_of_a_marked_run_is_marked() {
    let (mut a, mut b) = pair(|config| config.frame_len_max = Some(1472));
    let mut told = |ecn, heads: &[u8]| {
        net::set_ecn(a.socket.as_fd(), false, ecn).unwrap();
        let payload = [0xa5; 4000];
        let payload = [IoSlice::new(&payload[..1000 * heads.len()])];
        let segments = Some(Segments {
            header_len: 1,
            payload_len: 1000,
        });
        let frame = TxFrame {
            head: heads,
            payload: &payload,
            segments,
        };
        a.transmit(1, &frame).unwrap();
        let mut told = Told::default();
        while b.receive_placed(16, &mut told) > 0 {}
        told.0
    };
    // Nobody looks for marks before the first run.
    assert_eq!(told(net::ECN_MET, b"x"), "x");
    assert_eq!(told(net::ECN_CAPABLE, b"abcd"), "abcd");
    assert_eq!(told(net::ECN_MET, b"efgh"), "EFGH");
    assert_eq!(told(net::ECN_MET, b"y"), "Y");
    assert_eq!(told(net::ECN_CAPABLE, b"ijkl"), "ijkl");
}
