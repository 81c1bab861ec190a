// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames and records: parsed from bytes, and emitted as the same bytes.

use portolan_wire::{
    BulkHeader, CONNECTION_LEN_MAX, ConnectionFrame, FRAME_HEADER_LEN, FrameHeader, Hello, Record,
    Records, SealedFrame, endpoint_id_of,
};

/// Parses `data` in every way in which a frame is parsed. A parsed record must be the same after it
/// is emitted and parsed again.
pub fn parser(data: &[u8]) {
    let _ = BulkHeader::parse(data);
    let _ = endpoint_id_of(data);
    let _ = FrameHeader::session_of_numbered(data);
    let _ = SealedFrame::is_sealed(data);
    let _ = SealedFrame::parse(data);
    if let Ok((hello, body, _)) = Hello::parse(data) {
        assert!(body.len() < data.len());
        let mut again = data.to_vec();
        hello.emit(&mut again, |_| [0; 16]);
        let parsed = Hello::parse(&again).map(|(hello, _, _)| hello);
        assert_eq!(parsed, Ok(hello));
    }
    if let Ok((header, frame)) = FrameHeader::parse(data) {
        assert!((FRAME_HEADER_LEN..=data.len()).contains(&frame.len()));
        let mut again = data.to_vec();
        header.emit(&mut again);
        assert_eq!(
            FrameHeader::parse(&again).map(|(header, _)| header),
            Ok(header)
        );
    }
    connection(data);
    for at in [0, FRAME_HEADER_LEN] {
        records(data, at.min(data.len()), data.len());
        // On a lossless link the payload need not be available.
        records(&data[..data.len() / 2], at.min(data.len() / 2), data.len());
    }
}

/// Checks connection messages: the longest is complete at the maximum length, and emitting one
/// gives the same bytes.
fn connection(data: &[u8]) {
    match ConnectionFrame::parse(data) {
        Ok(None) => assert!(data.len() < CONNECTION_LEN_MAX),
        Ok(Some((frame, len))) => {
            let mut again = [0; CONNECTION_LEN_MAX];
            assert_eq!(frame.emit(&mut again), len);
            assert_eq!(again[..len], data[..len]);
        }
        Err(_) => {}
    }
}

fn records(head: &[u8], at: usize, total_len: usize) {
    for item in Records::new(head, at, total_len) {
        let Ok((record, payload)) = item else { return };
        assert!(payload.start <= payload.end && payload.end <= total_len);
        if payload.end <= head.len() {
            written_again(&record, head.len());
        }
    }
}

/// Checks that a parsed record can be emitted and parsed again.
fn written_again(record: &Record, room: usize) {
    // A record's own header and match bits are shorter than this; `room` is for the payload it
    // announces.
    let mut bytes = vec![0; room + 256];
    match record {
        Record::Message(message) => message.emit(&mut bytes),
        Record::Fragment(fragment) => fragment.emit(&mut bytes),
        Record::Rts(rts) => rts.emit(&mut bytes),
        Record::Grant(grant) => grant.emit(&mut bytes),
        Record::Done(done) => done.emit(&mut bytes),
        Record::Credit(credit) => credit.emit(&mut bytes),
        Record::Probe(probe) => probe.emit(&mut bytes),
        Record::Marks(marks) => marks.emit(&mut bytes),
        Record::StreamMark(mark) => mark.emit(&mut bytes),
        Record::BestEffortPart(part) => part.emit(&mut bytes),
        _ => return,
    }
    let again = Records::new(&bytes, 0, bytes.len()).next();
    assert!(
        matches!(&again, Some(Ok((again, _))) if again == record),
        "{record:?} became {again:?}"
    );
}
