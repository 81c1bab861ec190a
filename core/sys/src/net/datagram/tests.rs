// SPDX-License-Identifier: MIT OR Apache-2.0
use super::super::{ECN_CAPABLE, enable_receive_offload, report_marks, set_ecn};
use super::*;
use std::net::UdpSocket;
use std::os::fd::AsFd;

fn pair() -> (UdpSocket, UdpSocket, SockAddr) {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = receiver.local_addr().unwrap().into();
    (UdpSocket::bind("127.0.0.1:0").unwrap(), receiver, to)
}

#[test]
fn gathered_pieces_arrive_as_one_datagram() {
    let (sender, receiver, to) = pair();
    let pieces: [&[u8]; 3] = [b"head", b"", b"body"];
    let sent = Sender::new().send_gathered(sender.as_fd(), Some(&to), None, pieces.into_iter());
    assert_eq!(sent.unwrap(), 8);
    let mut buf = [0xa5; 64];
    let got = recv_segments(receiver.as_fd(), &mut buf).unwrap().unwrap();
    assert_eq!(
        got,
        Received {
            len: 8,
            segment_len: 8,
            truncated: false,
            marked: false,
        }
    );
    assert_eq!(&buf[..9], b"headbody\xa5");
    assert_eq!(recv_segments(receiver.as_fd(), &mut buf).unwrap(), None);
}

#[test]
fn segmented_run_arrives_in_one_piece_with_receive_offload() {
    let (sender, receiver, to) = pair();
    enable_receive_offload(receiver.as_fd()).unwrap();
    let bytes: Vec<u8> = (0..250).collect();
    Sender::new()
        .send_gathered(sender.as_fd(), Some(&to), Some(100), bytes.chunks(30))
        .unwrap();
    let mut buf = [0xa5; 512];
    let got = recv_segments(receiver.as_fd(), &mut buf).unwrap().unwrap();
    assert_eq!(
        got,
        Received {
            len: 250,
            segment_len: 100,
            truncated: false,
            marked: false,
        }
    );
    assert_eq!(&buf[..250], &bytes[..]);
}

#[test]
fn send_each_cuts_at_the_segment_length() {
    let (sender, receiver, to) = pair();
    let bytes: Vec<u8> = (0..25).collect();
    let pieces = bytes.chunks(10).flat_map(|datagram| datagram.chunks(6));
    assert_eq!(
        Sender::new()
            .send_each(sender.as_fd(), Some(&to), 10, pieces)
            .unwrap(),
        3
    );
    for expected in bytes.chunks(10) {
        let mut buf = [0xa5; 64];
        assert_eq!(
            recv(receiver.as_fd(), &mut buf).unwrap(),
            Some(expected.len())
        );
        assert_eq!(&buf[..expected.len()], expected);
    }
}

#[test]
fn truncation_is_reported() {
    let (sender, receiver, to) = pair();
    send_to(sender.as_fd(), &to, &[7; 100]).unwrap();
    send_to(sender.as_fd(), &to, &[7; 100]).unwrap();
    let mut buf = [0xa5; 10];
    assert!(
        recv_segments(receiver.as_fd(), &mut buf)
            .unwrap()
            .unwrap()
            .truncated
    );
    assert_eq!(recv(receiver.as_fd(), &mut buf).unwrap(), Some(100));
}

#[test]
fn marks_are_reported_for_runs_and_single_datagrams() {
    for ip in ["127.0.0.1:0", "[::1]:0"] {
        let (Ok(receiver), Ok(sender)) = (UdpSocket::bind(ip), UdpSocket::bind(ip)) else {
            println!("SKIPPED: no address for {ip} here");
            continue;
        };
        let (rx, tx, ipv6) = (receiver.as_fd(), sender.as_fd(), ip.starts_with('['));
        let to = receiver.local_addr().unwrap().into();
        enable_receive_offload(rx).unwrap();
        let receive = |bits, segment_len| {
            set_ecn(tx, ipv6, bits).unwrap();
            let bytes = [&[7; 250][..]].into_iter();
            Sender::new()
                .send_gathered(tx, Some(&to), segment_len, bytes)
                .unwrap();
            let mut buf = [0xa5; 512];
            let got = recv_segments(rx, &mut buf).unwrap().unwrap();
            (got.len, got.segment_len, got.marked)
        };
        // Reports are not enabled yet.
        assert_eq!(receive(ECN_CE, None), (250, 250, false), "{ip}");
        report_marks(rx, ipv6).unwrap();
        for (bits, marked) in [(0, false), (1, false), (ECN_CAPABLE, false), (ECN_CE, true)] {
            assert_eq!(receive(bits, None), (250, 250, marked), "{ip}: {bits}");
            assert_eq!(receive(bits, Some(100)), (250, 100, marked), "{ip}: {bits}");
        }
    }
}
