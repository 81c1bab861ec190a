// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use crate::Segments;
use std::io::IoSlice;
use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

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
fn peers_of_both_families_are_reached_on_one_port() {
    if UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return eprintln!("SKIPPED: this host has no IPv6");
    }
    let both = |config: &mut UdpConfig| {
        config.bind = Ipv4Addr::UNSPECIFIED.into();
        config.also = Some(Ipv6Addr::UNSPECIFIED.into());
    };
    let (mut a, mut b) = (open(both), open(both));
    let LinkAddr::Udp { socket } = b.local_addr() else {
        unreachable!()
    };
    for (ip, bytes) in [
        (IpAddr::from(Ipv4Addr::LOCALHOST), b"by IPv4"),
        (Ipv6Addr::LOCALHOST.into(), b"by IPv6"),
        (Ipv4Addr::LOCALHOST.into(), b"and by4"),
    ] {
        let socket = SocketAddr::new(ip, socket.port());
        a.connect(1, &LinkAddr::Udp { socket }).unwrap();
        // Enough frames to give the peer a connected socket.
        for _ in 0..300 {
            a.transmit(1, &TxFrame::contiguous(bytes)).unwrap();
            let mut got = Vec::new();
            while got.is_empty() {
                got = received(&mut b);
            }
            assert_eq!(got, [bytes.to_vec()]);
        }
    }
    a.disconnect(1);
    let refused = a.transmit(1, &TxFrame::contiguous(b"nobody"));
    assert!(matches!(refused, Err(TxError::NotConnected(1))));
}

#[test]
fn runs_arrive_equally_without_offload() {
    let body: Vec<u8> = (0..=255).cycle().take(4000).collect();
    for (offload, is_busy) in [(true, false), (true, true), (false, false), (false, true)] {
        let (mut a, mut b) = pair(|config| {
            config.offload = offload;
            config.frame_len_max = Some(1472);
        });
        b.connect(0, &a.local_addr()).unwrap();
        if is_busy {
            make_busy(&mut a, 1, &mut b);
            make_busy(&mut b, 0, &mut a);
        }
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

/// Sends `bytes` as segments of `segment_len`.
fn send_run(link: &mut Udp, bytes: &[u8], segment_len: usize) {
    let payload = [IoSlice::new(bytes)];
    let frame = TxFrame {
        head: &[],
        payload: &payload,
        segments: Some(Segments {
            header_len: 0,
            payload_len: segment_len,
        }),
    };
    link.transmit(1, &frame).unwrap();
}

#[test]
fn run_is_divided_by_the_length_in_its_first_datagram() {
    // The first byte of a datagram is its length in hundreds.
    let (mut a, mut b) = pair(|config| {
        config.frame_len_max = Some(1472);
        config.datagram_len = Some(|bytes| Some(100 * usize::from(*bytes.first()?)));
    });
    let mut run = vec![0; 3700];
    run.iter_mut().step_by(1000).for_each(|first| *first = 10);
    send_run(&mut a, &run, 1000);
    let got = received(&mut b);
    assert_eq!(got.concat(), run);
    let lens: Vec<usize> = got.iter().map(Vec::len).collect();
    assert_eq!(lens, [1000, 1000, 1000, 700]);
    // A datagram with an impossible length is delivered whole: longer than received, zero, or too
    // short for the number of datagrams that the kernel merges.
    for (first_byte, len) in [(30, 1000), (0, 1000), (1, 1400), (255, 1)] {
        a.transmit(1, &TxFrame::contiguous(&vec![first_byte; len]))
            .unwrap();
        let expected = if first_byte == 1 { 14 } else { 1 };
        assert_eq!(received(&mut b).len(), expected, "{first_byte}");
    }
    let run = [[1; 1450]; 5].concat();
    send_run(&mut a, &run, 1450);
    assert_eq!(received(&mut b), [run]);
}

#[test]
fn only_runs_are_cut() {
    for is_busy in [false, true] {
        let (mut a, mut b) = pair(|config| config.frame_len_max = Some(1472));
        b.connect(0, &a.local_addr()).unwrap();
        if is_busy {
            make_busy(&mut a, 1, &mut b);
        }
        for len in [50, 100, 101, 1472] {
            for count in 1..8 {
                send_run(&mut a, &[7; 250], 100);
                (0..count).for_each(|_| {
                    a.transmit(1, &TxFrame::contiguous(&[8; 1472][..len]))
                        .unwrap()
                });
                let lens: Vec<usize> = received(&mut b).iter().map(Vec::len).collect();
                let expected = [vec![100, 100, 50], vec![len; count]].concat();
                assert_eq!(lens, expected);
            }
        }
    }
}

#[test]
fn refused_peer_is_reported_without_losing_a_frame() {
    let (mut a, b) = pair(|_| {});
    a.connect(2, &open(|_| {}).local_addr()).unwrap();
    drop(b);
    let mut own = open(|_| {});
    a.connect(3, &own.local_addr()).unwrap();
    a.transmit(1, &TxFrame::contiguous(b"to nobody")).unwrap();
    // The refusal is now pending on the socket, and must not cost this frame.
    a.transmit(3, &TxFrame::contiguous(b"to somebody")).unwrap();
    assert_eq!(received(&mut own), [b"to somebody"]);
    assert!(matches!(a.poll_notice(), Some(Notice::Refused(1))));
    assert!(a.poll_notice().is_none());
}

/// Returns two connected links; the first has the second, its peer 1, as its busy peer.
fn busy_pair(change: impl Fn(&mut UdpConfig)) -> (Udp, Udp) {
    let (mut a, mut b) = pair(change);
    b.connect(0, &a.local_addr()).unwrap();
    make_busy(&mut a, 1, &mut b);
    (a, b)
}

fn make_busy(link: &mut Udp, peer: PeerId, other: &mut Udp) {
    let mut count = 0_u32;
    while link.busy.peer() != Some(peer) {
        link.transmit(peer, &TxFrame::contiguous(&count.to_le_bytes()))
            .unwrap();
        assert_eq!(received(other), [count.to_le_bytes()]);
        count += 1;
    }
}

#[test]
fn frames_of_busy_and_other_peers_are_received() {
    let (mut a, mut b) = busy_pair(|_| {});
    let mut c = open(|_| {});
    a.connect(2, &c.local_addr()).unwrap();
    c.connect(0, &a.local_addr()).unwrap();
    let hear_both = |a: &mut Udp, b: &mut Udp, c: &mut Udp| {
        for round in 0..20_u8 {
            b.transmit(0, &TxFrame::contiguous(&[b'b', round])).unwrap();
            c.transmit(0, &TxFrame::contiguous(&[b'c', round])).unwrap();
            let mut frames = Vec::new();
            while frames.len() < 2 {
                a.receive(16, &mut |frame| frames.push(frame.head.to_vec()));
            }
            frames.sort_unstable();
            assert_eq!(frames, [[b'b', round], [b'c', round]]);
            a.transmit(1, &TxFrame::contiguous(&[round])).unwrap();
            a.transmit(2, &TxFrame::contiguous(&[round])).unwrap();
            assert_eq!(
                (received(b), received(c)),
                (vec![vec![round]], vec![vec![round]])
            );
        }
    };
    hear_both(&mut a, &mut b, &mut c);
    make_busy(&mut a, 2, &mut c);
    assert_eq!(a.sockets.len(), 2, "one connected socket at most");
    hear_both(&mut a, &mut b, &mut c);
    a.disconnect(2);
    assert_eq!(a.sockets.len(), 1);
    b.transmit(0, &TxFrame::contiguous(b"still")).unwrap();
    assert_eq!(received(&mut a), [b"still"]);
}

#[test]
fn each_socket_wakes_a_sleeper() {
    let (mut a, mut b) = busy_pair(|_| {});
    let mut c = open(|_| {});
    c.connect(0, &a.local_addr()).unwrap();
    for other in [&mut b, &mut c] {
        let mut wake = WakeSet::default();
        assert!(a.arm(&mut wake));
        other.transmit(0, &TxFrame::contiguous(b"wake up")).unwrap();
        assert!(net::wait_readable(&wake.fds, std::time::Duration::from_secs(10)).unwrap());
        assert!(!a.arm(&mut wake));
        let mut frames = 0;
        while frames == 0 {
            frames += a.receive(16, &mut |_| {});
        }
    }
}

#[test]
fn refusal_by_a_busy_peer_is_reported_without_losing_a_frame() {
    let (mut a, b) = busy_pair(|_| {});
    let mut c = open(|_| {});
    c.connect(0, &a.local_addr()).unwrap();
    let LinkAddr::Udp { socket } = b.local_addr() else {
        unreachable!()
    };
    drop(b);
    a.transmit(1, &TxFrame::contiguous(b"to nobody")).unwrap();
    let heir = UdpSocket::bind(socket).unwrap();
    // The refusal is now pending on the connected socket, and must not cost this frame.
    a.transmit(1, &TxFrame::contiguous(b"to somebody")).unwrap();
    let mut buf = [0; 64];
    assert_eq!(heir.recv(&mut buf).unwrap(), b"to somebody".len());
    assert!(matches!(a.poll_notice(), Some(Notice::Refused(1))));
    assert!(a.poll_notice().is_none());
}

#[test]
fn pending_refusal_does_not_hide_received_frames() {
    let (mut a, b) = pair(|_| {});
    let mut c = open(|_| {});
    c.connect(0, &a.local_addr()).unwrap();
    drop(b);
    c.transmit(0, &TxFrame::contiguous(b"good")).unwrap();
    a.transmit(1, &TxFrame::contiguous(b"to nobody")).unwrap();
    assert_eq!(received(&mut a), [b"good"]);
    assert!(matches!(a.poll_notice(), Some(Notice::Refused(1))));
}

#[test]
fn arm_refuses_while_a_refusal_is_pending() {
    let (mut a, b) = pair(|_| {});
    drop(b);
    assert!(a.arm(&mut WakeSet::default()));
    a.transmit(1, &TxFrame::contiguous(b"to nobody")).unwrap();
    assert!(!a.arm(&mut WakeSet::default()));
    assert!(a.poll_notice().is_some());
    assert!(a.arm(&mut WakeSet::default()));
}

#[test]
fn overflow_is_reported_frame_by_frame() {
    let (mut a, mut b) = pair(|config| config.receive_buffer_len = 4096);
    for _ in 0..100 {
        a.transmit(1, &TxFrame::contiguous(&[0xa5; 1000])).unwrap();
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
fn empty_datagram_is_counted_and_not_delivered() {
    let (mut a, mut b) = pair(|_| {});
    a.transmit(1, &TxFrame::contiguous(b"")).unwrap();
    assert!(received(&mut b).is_empty());
    assert!(matches!(
        b.poll_notice(),
        Some(Notice::Dropped("udp_empty"))
    ));
}

#[test]
fn error_names_the_taken_port_and_a_remedy() {
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
fn capacity_follows_the_charged_memory() {
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
    // The loopback interface delivers runs whole: they are charged little more than their payload.
    let notice = b.poll_notice();
    let Some(Notice::Capacity(len)) = notice else {
        panic!("{notice:?} instead of a capacity");
    };
    assert!(
        (assumed * 2..assumed * 3).contains(&len),
        "{len}, first {assumed}"
    );
    assert!(b.poll_notice().is_none(), "said once");
}

/// Records each received frame as a letter, in upper case if it is marked.
#[derive(Default)]
struct Marks(String);

impl Receiver for Marks {
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
    let mut send = |ecn, heads: &[u8]| {
        net::set_ecn(a.sockets[COMMON].as_fd(), false, ecn).unwrap();
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
        let mut received = Marks::default();
        while b.receive_placed(16, &mut received) > 0 {}
        received.0
    };
    // Marks are not requested before the first run.
    assert_eq!(send(net::ECN_CE, b"x"), "x");
    assert_eq!(send(net::ECN_CAPABLE, b"abcd"), "abcd");
    assert_eq!(send(net::ECN_CE, b"efgh"), "EFGH");
    assert_eq!(send(net::ECN_CE, b"y"), "Y");
    assert_eq!(send(net::ECN_CAPABLE, b"ijkl"), "ijkl");
}

/// A receiver that accepts `enough` frames.
struct Few {
    enough: usize,
    got: usize,
}

impl Receiver for Few {
    fn plan(&mut self) -> Option<crate::Plan<'_>> {
        None
    }

    fn frame(&mut self, _: RxFrame<'_>) {
        self.got += 1;
    }

    fn has_enough(&self) -> bool {
        self.got >= self.enough
    }

    fn placed(&mut self, _: &[u8], _: usize, _: bool) {}

    fn missed(&mut self, _: usize, _: usize) {}
}

#[test]
fn datagrams_beyond_enough_stay_in_the_socket() {
    let (mut a, mut b) = pair(|_| {});
    for byte in 0..6 {
        a.transmit(1, &TxFrame::contiguous(&[byte])).unwrap();
    }
    // The first datagram after an empty poll is delivered alone.
    for (enough, expected) in [(9, 1), (1, 1), (2, 2), (9, 2)] {
        let mut few = Few { enough, got: 0 };
        assert_eq!(b.receive_placed(16, &mut few), expected);
        assert_eq!(few.got, expected);
    }
}
