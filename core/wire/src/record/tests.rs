// SPDX-License-Identifier: MIT OR Apache-2.0
use super::*;
use crate::match_bits::Space;

fn message() -> Message {
    Message {
        lane: LaneId::High,
        best_effort: false,
        system: true,
        port: 515,
        len: 3,
        seq: 9,
        match_bits: None,
    }
}

fn tagged(imm: Option<u64>) -> Message {
    let match_bits = MatchBits {
        space: Space::Plain,
        tag: 0x1122_3344_5566_7788,
        imm,
    };
    Message {
        system: false,
        port: 0,
        match_bits: Some(match_bits),
        ..message()
    }
}

/// Emits into memory with two fill patterns and checks that exactly `len` bytes were written.
fn emitted<const N: usize>(emit: impl Fn(&mut [u8])) -> [u8; N] {
    let mut bytes = [0xa5; N];
    let mut other = [0x5a; N];
    emit(&mut bytes);
    emit(&mut other);
    assert_eq!(bytes, other, "a byte was left unwritten");
    bytes
}

fn only(bytes: &[u8]) -> (Record, Range<usize>) {
    let mut records = Records::new(bytes, 0, bytes.len());
    let first = records.next().unwrap().unwrap();
    assert_eq!(records.next(), None);
    first
}

// P1.1, P1.6
#[test]
fn every_record_round_trips() {
    let rts = Rts {
        message: message(),
        message_len: 1 << 40,
        transfer: 5,
        remote_addr: 0xfeed,
        late_done: true,
    };
    let bytes = emitted::<RTS_LEN>(|b| rts.emit(b));
    assert_eq!(only(&bytes), (Record::Rts(rts), RTS_LEN..RTS_LEN));

    let grant = Grant {
        transfer: 5,
        receiver_transfer: 6,
        limit: 1 << 33,
        behind: 1 << 20,
    };
    let bytes = emitted::<GRANT_LEN>(|b| grant.emit(b));
    assert_eq!(only(&bytes).0, Record::Grant(grant));

    for status in [
        DoneStatus::Complete,
        DoneStatus::Refused,
        DoneStatus::Unwritable,
        DoneStatus::Unreadable,
        DoneStatus::Other(77),
    ] {
        let done = Done {
            status,
            transfer: 7,
        };
        let bytes = emitted::<DONE_LEN>(|b| done.emit(b));
        assert_eq!(only(&bytes).0, Record::Done(done));
    }

    let credit = Credit {
        lane: LaneId::High,
        limit: 0xffff_fff0,
    };
    let bytes = emitted::<CREDIT_LEN>(|b| credit.emit(b));
    assert_eq!(only(&bytes).0, Record::Credit(credit));

    let probe = Probe {
        reply: true,
        path: 1,
        nonce: 99,
    };
    let bytes = emitted::<PROBE_LEN>(|b| probe.emit(b));
    assert_eq!(only(&bytes).0, Record::Probe(probe));

    let marks = Marks {
        path: 1,
        count: 0xffff_fff0,
    };
    let bytes = emitted::<MARKS_LEN>(|b| marks.emit(b));
    assert_eq!(only(&bytes).0, Record::Marks(marks));

    let mark = StreamMark {
        num: 0x0102_0304,
        received: 0xa0b0_c0d0,
    };
    let bytes = emitted::<STREAM_MARK_LEN>(|b| mark.emit(b));
    assert_eq!(only(&bytes).0, Record::StreamMark(mark));
    let short = Records::new(&bytes[..8], 0, 8).next();
    assert_eq!(short, Some(Err(Malformed::Truncated)));
}

#[test]
fn payloads_are_found_between_headers() {
    let mut frame = [0u8; 64];
    message().emit(&mut frame);
    frame[8..11].copy_from_slice(b"abc");
    let fragment = Fragment {
        message: Message {
            len: 2,
            ..message()
        },
        message_len: 100,
        offset: 98,
    };
    fragment.emit(&mut frame[11..]);
    let ack = Ack {
        path: 0,
        word_count: 1,
        echo_attempt: 3,
        delay_us: 9,
        base: 4,
        echo_num: 8,
    };
    ack.emit(&mut frame[29..]);
    let records: [_; 3] = {
        let mut walk = Records::new(&frame, 0, 64);
        core::array::from_fn(|_| walk.next().unwrap().unwrap())
    };
    assert_eq!(records[0], (Record::Message(message()), 8..11));
    assert_eq!(records[1], (Record::Fragment(fragment), 27..29));
    assert_eq!(records[2], (Record::Ack(ack), 45..53));
}

// P1.5
#[test]
fn padding_ends_the_records() {
    let mut frame = [0u8; 40];
    Probe {
        reply: false,
        path: 0,
        nonce: 1,
    }
    .emit(&mut frame);
    assert_eq!(Records::new(&frame, 0, 40).count(), 1);
}

#[test]
fn chunk_payload_reaches_past_the_head() {
    let mut head = [0u8; 64];
    Chunk {
        transfer: 3,
        offset: 4096,
    }
    .emit(&mut head);
    let mut walk = Records::new(&head, 0, 10_000);
    let (record, payload) = walk.next().unwrap().unwrap();
    assert_eq!(
        record,
        Record::Chunk(Chunk {
            transfer: 3,
            offset: 4096
        })
    );
    assert_eq!(payload, 16..10_000);
    assert_eq!(walk.next(), None);
}

// P1.5, P1.6
#[test]
fn malformed_record_is_an_error_and_ends_the_records() {
    let walk = |bytes: &[u8]| {
        let mut records = Records::new(bytes, 0, bytes.len());
        let first = records.next().unwrap();
        assert_eq!(records.next(), None);
        first.unwrap_err()
    };
    assert_eq!(walk(&[1, 0, 0]), Malformed::Truncated);
    assert_eq!(
        walk(&[200, 0, 0, 0, 0, 0, 0, 0]),
        Malformed::RecordKind(200)
    );
    assert_eq!(walk(&[1, 0xf0, 0, 0, 0, 0, 0, 0]), Malformed::Field);
    assert_eq!(walk(&[1, 0, 0, 0, 1, 0, 0, 0]), Malformed::Length);
    assert_eq!(walk(&[3, 0, 0, 0, 0, 0, 0, 0]), Malformed::Truncated);
    let mut beyond = [0u8; 18];
    Fragment {
        message: Message {
            len: 2,
            ..message()
        },
        message_len: 100,
        offset: 99,
    }
    .emit(&mut beyond);
    assert_eq!(walk(&beyond), Malformed::Field);
}

// P1.7
#[test]
fn random_bytes_never_read_outside() {
    // A linear congruential generator (Knuth, MMIX constants) is random enough for bytes.
    let mut state = 1u64;
    let mut bytes = [0u8; 96];
    for _ in 0..200_000 {
        for byte in &mut bytes {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            *byte = u8::try_from(state >> 56).unwrap();
        }
        bytes[0] &= 0x0f;
        for (_, payload) in Records::new(&bytes, 0, 96).flatten() {
            assert!(payload.end <= 96);
        }
    }
}

// P11.1
#[test]
fn tagged_records_round_trip() {
    for imm in [None, Some(u64::MAX - 1)] {
        let match_bits_len = if imm.is_some() { 16 } else { 8 };
        let message = tagged(imm);
        let mut frame = emitted::<64>(|b| {
            b.fill(0);
            message.emit(b);
        });
        let at = MESSAGE_LEN + match_bits_len;
        assert_eq!(message.header_len(), at);
        let first = Records::new(&frame, 0, 64).next().unwrap().unwrap();
        assert_eq!(first, (Record::Message(message), at..at + 3));
        assert_eq!(Message::peek_tagged(&frame), Some(message));
        assert_eq!(Message::peek(&frame), None);

        let fragment = Fragment {
            message,
            message_len: 10,
            offset: 7,
        };
        fragment.emit(&mut frame);
        let at = FRAGMENT_LEN + match_bits_len;
        let first = Records::new(&frame, 0, 64).next().unwrap().unwrap();
        assert_eq!(first, (Record::Fragment(fragment), at..at + 3));

        let rts = Rts {
            message,
            message_len: 1 << 33,
            transfer: 8,
            remote_addr: 9,
            late_done: false,
        };
        rts.emit(&mut frame);
        let at = RTS_LEN + match_bits_len;
        assert_eq!(rts.wire_len(), at);
        let first = Records::new(&frame, 0, 64).next().unwrap().unwrap();
        assert_eq!(first, (Record::Rts(rts), at..at));
    }
}

// P1.6, P1.7, P11.1
#[test]
fn invalid_match_bits_are_refused() {
    let mut frame = [0; 24];
    tagged(Some(1)).emit(&mut frame);
    let parse = |frame: &[u8]| Records::new(frame, 0, frame.len()).next().unwrap();
    for (at, value) in [(1, 2), (1, 4), (1, 8), (2, 2), (3, 2), (3, 3)] {
        let mut bad = frame;
        bad[at] = value;
        assert_eq!(parse(&bad), Err(Malformed::Field), "{value} at {at}");
    }
    for len in 8..24 {
        assert_eq!(parse(&frame[..len]), Err(Malformed::Truncated), "{len}");
    }
    assert_eq!(parse(&frame), Err(Malformed::Length), "no payload");
}
