// SPDX-License-Identifier: MIT OR Apache-2.0

use super::super::stream::tests::pair;
use super::*;

/// Returns bytes with a period that is not that of pages or segments.
fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| ((at + seed) % 251).to_le_bytes()[0])
        .collect()
}

fn blocking_pair() -> (TcpStream, TcpStream) {
    let (near, far) = pair();
    near.set_nonblocking(false).unwrap();
    (near, far)
}

#[test]
fn writes_of_all_lengths_arrive_intact() {
    for (near, far) in [pair(), blocking_pair()] {
        let mut writer = ZeroCopyWriter::new(64 << 10);
        let lens = [1, 100, 16 << 10, (16 << 10) + 1, 300_001, 3, 2 << 20];
        let sent: Vec<Vec<u8>> = lens.iter().map(|len| bytes(*len, *len)).collect();
        let total: usize = lens.iter().sum();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut reader = DirectReader::<64>::default();
                for sent in &sent {
                    let mut got = vec![0xa5; sent.len()];
                    reader.read_exact(&far, &mut got).unwrap();
                    assert!(got == *sent, "{} bytes", sent.len());
                }
            });
            for sent in &sent {
                writer.write_all(&near, sent).unwrap();
                assert!(!writer.has_unsent());
            }
        });
        assert_eq!(writer.accepted_len(), total as u64);
    }
}

/// L2: the bytes are changed as soon as the peer's program reports that it has them.
#[test]
fn pages_may_change_once_the_peer_reports_receipt() {
    const LEN: usize = 200_000;
    let (near, far) = blocking_pair();
    let mut page = bytes(LEN, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut reader = DirectReader::<0>::default();
            let mut got = vec![0xa5; LEN];
            for round in 0..200 {
                reader.read_exact(&far, &mut got).unwrap();
                assert!(got == bytes(LEN, round), "round {round}");
                std::io::Write::write_all(&mut &far, b"y").unwrap();
            }
        });
        let mut writer = ZeroCopyWriter::new(256 << 10);
        let mut word = [0];
        for round in 1..=200 {
            writer.write_all(&near, &page).unwrap();
            std::io::Read::read_exact(&mut &near, &mut word).unwrap();
            page.copy_from_slice(&bytes(LEN, round));
        }
    });
}

/// L1: the memory may be unmapped at once; the pages stay until they are read.
#[test]
fn unmapped_memory_still_arrives() {
    let (near, far) = blocking_pair();
    let mut writer = ZeroCopyWriter::new(1 << 20);
    let sent = crate::pages::Pages::new(100_000).unwrap();
    let mut sent = sent;
    sent.copy_from_slice(&bytes(100_000, 7));
    writer.write_all(&near, &sent).unwrap();
    drop(sent);
    let mut got = vec![0xa5; 100_000];
    DirectReader::<0>::default()
        .read_exact(&far, &mut got)
        .unwrap();
    assert!(got == bytes(100_000, 7));
}

#[test]
fn tcp_acknowledges_before_the_program_reads() {
    let (near, far) = blocking_pair();
    let mut writer = ZeroCopyWriter::new(1 << 20);
    assert_eq!(writer.acknowledged(&near).unwrap(), 0);
    let sent = bytes(20_000, 1);
    writer.write_all(&near, &sent).unwrap();
    while writer.acknowledged(&near).unwrap() < writer.accepted_len() {
        std::thread::yield_now();
    }
    assert_eq!(writer.acknowledged(&near).unwrap(), 20_000);
    let mut got = vec![0xa5; 20_000];
    DirectReader::<0>::default()
        .read_exact(&far, &mut got)
        .unwrap();
    assert!(got == sent);
}

#[test]
fn full_writer_refuses_and_continues_when_writable() {
    let (near, far) = pair();
    let mut writer = ZeroCopyWriter::new(64 << 10);
    let sent = bytes(64 << 20, 3);
    let mut taken = 0;
    let refused = loop {
        match writer.write(&near, &sent[taken..]) {
            Ok(len) => taken += len,
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::WouldBlock);
    assert!(taken > 0 && taken < sent.len(), "{taken}");
    assert_eq!(writer.accepted_len(), taken as u64);
    assert!(writer.has_unsent() && writer.acknowledged(&near).unwrap() <= writer.accepted_len());
    let mut got = vec![0xa5; sent.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            DirectReader::<0>::default()
                .read_exact(&far, &mut got)
                .unwrap()
        });
        writer.write_all(&near, &sent[taken..]).unwrap();
    });
    assert!(got == sent);
}

#[test]
fn frame_and_next_front_are_read_with_one_call() {
    let (near, far) = blocking_pair();
    let mut writer = ZeroCopyWriter::new(1 << 20);
    let payload = bytes(50_000, 9);
    assert!(
        !writer
            .write_frame(&near, b"front", &payload[..100])
            .unwrap()
    );
    assert_eq!(writer.accepted_len(), 0);
    assert!(writer.write_frame(&near, b"front", &payload).unwrap());
    let mut slices = [
        IoSlice::new(b""),
        IoSlice::new(b"next!"),
        IoSlice::new(b"rest"),
    ];
    writer.copy_frame(&near, &mut slices).unwrap();
    writer.flush(&near).unwrap();
    assert_eq!(writer.accepted_len(), 50_014);
    let mut reader = DirectReader::<5>::default();
    while reader.ahead().len() < 5 {
        assert!(reader.fill(&far, 5).unwrap());
    }
    assert_eq!(reader.ahead(), b"front");
    reader.consume(5);
    let mut got = vec![0xa5; payload.len()];
    let mut landed = 0;
    while landed < got.len() {
        landed += reader.read(&far, &mut got[landed..], 5).unwrap();
    }
    assert!(got == payload);
    while reader.ahead().len() < 5 {
        assert!(reader.fill(&far, 5).unwrap());
    }
    assert_eq!(reader.ahead(), b"next!");
    // Bytes read ahead are returned first.
    let mut rest = [0xa5; 9];
    reader.read_exact(&far, &mut rest).unwrap();
    assert_eq!(rest, *b"next!rest");
    drop(near);
    assert_eq!(reader.read(&far, &mut rest, 0).unwrap(), 0);
}

#[test]
fn end_of_a_frame_is_sent_when_the_socket_has_room() {
    let (near, far) = blocking_pair();
    near.set_nonblocking(true).unwrap();
    let mut writer = ZeroCopyWriter::new(1 << 20);
    let payload = bytes(40 << 20, 5);
    let mut sent = writer.begin_frame(&near, b"front", &payload).unwrap();
    assert!(sent > 0 && sent < payload.len(), "{sent}");
    assert!(!writer.has_unsent(), "nothing is kept");
    let mut got = vec![0xa5; 5 + payload.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            DirectReader::<0>::default()
                .read_exact(&far, &mut got)
                .unwrap()
        });
        while sent < payload.len() {
            wait_writable(near.as_fd(), Duration::from_secs(60)).unwrap();
            sent += writer.continue_frame(&near, &payload[sent..]).unwrap();
        }
    });
    assert!(got.starts_with(b"front") && got[5..] == payload);
    assert_eq!(writer.accepted_len(), got.len() as u64);
}

#[test]
fn front_without_room_is_kept() {
    let (near, far) = blocking_pair();
    near.set_nonblocking(true).unwrap();
    let mut writer = ZeroCopyWriter::new(1 << 20);
    let filler = bytes(40 << 20, 6);
    let filled = writer.begin_frame(&near, b"", &filler).unwrap();
    let sent = writer.begin_frame(&near, b"front", b"payload").unwrap();
    assert_eq!(sent, 0);
    assert!(writer.has_unsent());
    assert_eq!(writer.continue_frame(&near, b"payload").unwrap(), 0);
    let mut got = vec![0xa5; filled + 12];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            DirectReader::<0>::default()
                .read_exact(&far, &mut got)
                .unwrap()
        });
        let mut sent = 0;
        while sent < 7 {
            wait_writable(near.as_fd(), Duration::from_secs(60)).unwrap();
            sent += writer.continue_frame(&near, &b"payload"[sent..]).unwrap();
        }
    });
    assert!(got.ends_with(b"frontpayload"));
}
