// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares the dissector for Wireshark with this crate: on random frames and records it finds the
//! same fields with the same values, and refuses the same ones.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_types, reason = "tshark reads a file")]

#[path = "dissector/debug.rs"]
mod debug;
#[path = "dissector/tshark.rs"]
mod tshark;

use pcap_file::pcap::{PcapPacket, PcapWriter};
use portolan_wire::{
    BULK_HEADER_LEN, BulkHeader, CHECK_LEN, CheckedFrame, ENDPOINT_ID_LEN, ETHERTYPE,
    FRAME_HEADER_LEN, FrameHeader, FrameKind, HELLO_LEN, Hello, Malformed, OPEN_JOB_ID, Record,
    Records, SEAL_LEN, SealedFrame, Sum, VERSION, endpoint_id_of,
};
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::time::Duration;
use tshark::{Field, Packet};

/// Bytes before the frame: an Ethernet header and two endpoints.
const FRAME_AT: usize = 18;

/// Number of random records of each kind.
const RECORDS_PER_KIND: usize = 48;

/// Number of random frames.
const FRAME_COUNT: usize = 4000;

/// Fields of the dissector that are no fields of the crate: they are encoded in other ones.
const EXTRA: [&str; 5] = ["kind", "has_imm", "form", "bitmap", "version"];

/// Writes frames as captures of the library have them. Those without endpoints have no frame
/// header.
fn write_capture(path: &Path, frames: &[Vec<u8>], endpoint: u16) {
    let mut writer = PcapWriter::new(File::create(path).unwrap()).unwrap();
    for frame in frames {
        let mut packet = vec![2, 1, 0, 0, 0, 1, 2, 1, 0, 0, 0, 0];
        packet.extend_from_slice(&ETHERTYPE.to_be_bytes());
        packet.extend_from_slice(&endpoint.to_be_bytes());
        packet.extend_from_slice(&endpoint.to_be_bytes());
        packet.extend_from_slice(frame);
        let len = u32::try_from(packet.len()).unwrap();
        let packet = PcapPacket::new(Duration::ZERO, len, &packet);
        writer.write_packet(&packet).unwrap();
    }
}

/// Returns what the dissector finds in the frames.
fn dissected(frames: &[Vec<u8>], endpoint: u16) -> Vec<Packet> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("frames.pcap");
    write_capture(&path, frames, endpoint);
    let packets = tshark::packets(&path);
    assert_eq!(packets.len(), frames.len());
    packets
}

/// Returns random bytes. Most are zero or low, so that lengths often fit.
fn random_bytes(rng: &mut StdRng, len: usize) -> Vec<u8> {
    let byte = |rng: &mut StdRng| match rng.random_range(0..10) {
        0..=6 => 0,
        7..=8 => rng.random_range(0..24),
        _ => rng.random(),
    };
    (0..len).map(|_| byte(rng)).collect()
}

/// Panics unless the dissector found the `expected` fields, and only those, with their values.
fn check_fields(expected: &[(String, String)], found: &[&Field], packet: &Packet) {
    let leaf = |field: &&Field| field.name.rsplit('.').next().unwrap().to_owned();
    for (name, value) in expected {
        let fields: Vec<&&Field> = found.iter().filter(|field| leaf(field) == *name).collect();
        let equal = match value
            .strip_prefix('[')
            .and_then(|text| text.strip_suffix(']'))
        {
            Some(list) => is_list(list, &fields),
            None => fields.len() == 1 && is_equal(value, fields[0]),
        };
        // A tagged record has no place for these, which have one value.
        let is_tagged = expected.iter().any(|(name, _)| name == "space");
        let implied = is_tagged && ["best_effort", "system", "port"].contains(&name.as_str());
        let implied = implied && ["false", "0"].contains(&value.as_str());
        assert!(equal || implied, "{name} is {value} in\n{packet}");
    }
    let names: BTreeSet<String> = expected.iter().map(|(name, _)| name.clone()).collect();
    for field in found {
        let name = leaf(field);
        let known = names.contains(&name) || EXTRA.contains(&name.as_str());
        assert!(known, "the crate has no field {name} in\n{packet}");
    }
}

/// Compares an integer, a flag or the name of a variant.
fn is_equal(value: &str, field: &Field) -> bool {
    let show = field.show.as_str();
    if let Ok(number) = value.parse::<u64>() {
        let shown = match show.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => show.parse().ok(),
        };
        return shown == Some(number);
    }
    match value {
        "true" => ["1", "True"].contains(&show),
        "false" => ["0", "False"].contains(&show),
        variant => field.shown.contains(&format!(": {variant} (")),
    }
}

/// Compares a list with a field of bytes, or with several fields.
fn is_list(list: &str, fields: &[&&Field]) -> bool {
    let numbers: Vec<&str> = list.split(", ").collect();
    if fields.len() > 1 {
        let pairs = numbers.iter().zip(fields);
        return numbers.len() == fields.len()
            && pairs
                .into_iter()
                .all(|(value, field)| is_equal(value, field));
    }
    let hex: Vec<String> = numbers
        .iter()
        .map(|byte| format!("{:02x}", byte.parse::<u8>().unwrap()))
        .collect();
    fields.len() == 1 && fields[0].show == hex.join(":")
}

/// Returns the fields of each record that the dissector found.
fn record_fields(packet: &Packet) -> Vec<Vec<&Field>> {
    let mut records: Vec<Vec<&Field>> = Vec::new();
    for field in &packet.fields {
        if field.shown.starts_with("Record: ") {
            records.push(Vec::new());
        }
        if field.name.contains('.')
            && let Some(record) = records.last_mut()
        {
            record.push(field);
        }
    }
    records
}

/// Compares the records in a packet. Returns true if none is malformed.
fn check_records(bytes: &[u8], at: usize, packet: &Packet) -> bool {
    let records: Vec<_> = Records::new(bytes, at, bytes.len()).collect();
    let found = record_fields(packet);
    let valid: Vec<&Record> = records.iter().flatten().map(|(record, _)| record).collect();
    assert!(found.len() >= valid.len(), "{valid:?} in\n{packet}");
    for (record, found) in valid.iter().zip(&found) {
        let name = format!("{record:?}");
        let name = name.split('(').next().unwrap();
        assert!(
            found[0].shown.contains(&format!("({name}")),
            "{name} in\n{packet}"
        );
        check_fields(&debug::fields(record), found, packet);
    }
    let is_valid = records.iter().all(Result::is_ok);
    for payload in records.into_iter().flatten().map(|(_, payload)| payload) {
        let is_ack = packet.fields.iter().any(|field| field.name == "ack.bitmap");
        let (pos, size) = (FRAME_AT + payload.start, payload.len());
        let has_it = |field: &Field| (field.pos, field.size) == (pos, size);
        let has_it = is_ack || size == 0 || packet.fields.iter().any(has_it);
        assert!(has_it, "payload {payload:?} in\n{packet}");
    }
    is_valid
}

fn check_verdict(is_valid: bool, packet: &Packet) {
    assert_eq!(packet.is_malformed(), !is_valid, "malformed?\n{packet}");
    if is_valid {
        assert_eq!(packet.uncovered(FRAME_AT), [], "\n{packet}");
    }
}

#[test]
fn every_record_is_dissected_as_the_crate_parses_it() {
    if !tshark::can_run() {
        return;
    }
    let mut rng = StdRng::seed_from_u64(1);
    let mut frames = Vec::new();
    for kind in 0..=u8::MAX {
        for _ in 0..RECORDS_PER_KIND {
            let len = rng.random_range(1..120);
            let mut frame = random_bytes(&mut rng, len);
            frame[0] = kind;
            frames.push(frame);
        }
    }
    let mut parsed = BTreeSet::new();
    for (frame, packet) in frames.iter().zip(dissected(&frames, 0)) {
        let is_valid = check_records(frame, 0, &packet);
        check_verdict(is_valid, &packet);
        if is_valid {
            parsed.insert(frame[0]);
        }
    }
    // The random bytes reached each record: all kinds that the crate does not call unknown.
    for kind in 1..=u8::MAX {
        let mut longest = [0; 64];
        longest[0] = kind;
        let first = Records::new(&longest, 0, 64).next().unwrap();
        let is_known = !matches!(first, Err(Malformed::RecordKind(_)));
        assert_eq!(parsed.contains(&kind), is_known, "kind {kind}");
    }
}

/// Returns a random frame, which is often valid.
fn random_frame(rng: &mut StdRng) -> Vec<u8> {
    let kinds = [
        FrameKind::Data,
        FrameKind::Unnumbered,
        FrameKind::Bulk,
        FrameKind::Hello,
        FrameKind::HelloAck,
        FrameKind::Reset,
    ];
    let kind = kinds[rng.random_range(0..kinds.len())];
    let body_len = match kind {
        FrameKind::Hello | FrameKind::HelloAck => rng.random_range(HELLO_LEN - 2..HELLO_LEN + 80),
        FrameKind::Reset => 0,
        _ => rng.random_range(0..90),
    };
    let mut frame = vec![0; FRAME_HEADER_LEN];
    frame.extend(random_bytes(rng, body_len));
    let is_sealed = rng.random_bool(0.2) && kind.has_contents();
    let checked = !is_sealed && kind != FrameKind::Hello && rng.random_bool(0.3);
    let header = FrameHeader {
        kind,
        attempt: rng.random_range(0..0x80),
        checked,
        frame_len: u16::try_from(frame.len()).unwrap(),
        packet_num: rng.random(),
        session: rng.random(),
    };
    header.emit(&mut frame);
    if body_len >= HELLO_LEN && rng.random() {
        frame[FRAME_HEADER_LEN..][..16].copy_from_slice(&OPEN_JOB_ID);
    }
    if is_sealed {
        frame[0] |= 8;
    }
    if checked {
        let sum = Sum {
            head_len: rng.random(),
            value: rng.next_u64() & Sum::MASK,
        };
        frame = [&CheckedFrame::front(sum)[..], &frame].concat();
    }
    // Break some: version, kind, length.
    if rng.random_bool(0.1) {
        let at = rng.random_range(0..4);
        frame[at] = rng.random();
    }
    if rng.random_bool(0.1) {
        frame.extend(random_bytes(rng, 20));
    }
    frame
}

/// Compares the checksum and the header of a frame. Returns the frame; `None` if it is malformed.
fn check_front<'a>(bytes: &'a [u8], packet: &Packet) -> Option<&'a [u8]> {
    let of = |prefix: &str| {
        let dotted = format!("{prefix}.");
        let fields = packet.fields.iter();
        fields
            .filter(move |field| field.name.starts_with(&dotted))
            .collect::<Vec<_>>()
    };
    if !CheckedFrame::has_sum(bytes) {
        return Some(bytes);
    }
    let checked = CheckedFrame::parse(bytes).ok()?;
    let sum = of("checksum");
    assert_eq!(sum[1].show, checked.sum.head_len.to_string(), "\n{packet}");
    let value = checked
        .sum
        .value
        .to_le_bytes()
        .map(|byte| format!("{byte:02x}"));
    assert_eq!(sum[2].show, value[..6].join(":"), "\n{packet}");
    Some(checked.frame)
}

/// Compares a sealed frame. Returns true if it is valid.
fn check_sealed(frame: &[u8], packet: &Packet) -> bool {
    let Ok(sealed) = SealedFrame::parse(frame) else {
        return false;
    };
    // A sealed frame has a kind that can be sealed.
    let mut plain = frame.to_vec();
    plain[..FRAME_HEADER_LEN].copy_from_slice(&sealed.plain_header());
    let is_sealable = FrameHeader::parse(&plain)
        .is_ok_and(|(header, _)| header.kind.has_contents() || header.kind == FrameKind::Reset);
    if is_sealable {
        let numbers = packet.fields.iter();
        let numbers: Vec<&Field> = numbers
            .filter(|field| ["seal.count", "seal.generation"].contains(&field.name.as_str()))
            .collect();
        check_fields(&debug::fields(&sealed.number), &numbers, packet);
    }
    is_sealable
}

/// Compares a frame in a packet. Returns true if it is valid.
fn check_frame(bytes: &[u8], packet: &Packet) -> bool {
    let Some(bytes) = check_front(bytes, packet) else {
        return false;
    };
    if bytes.first().is_some_and(|first| first >> 4 == VERSION) && SealedFrame::is_sealed(bytes) {
        return check_sealed(bytes, packet);
    }
    let Ok((header, frame)) = FrameHeader::parse(bytes) else {
        return false;
    };
    let fields = packet.fields.iter();
    let head = [
        "kind",
        "attempt",
        "checked",
        "frame_len",
        "packet_num",
        "session",
    ];
    let found: Vec<&Field> = fields
        .filter(|field| head.contains(&field.name.as_str()))
        .collect();
    check_fields(&debug::fields(&header), &found, packet);
    let of = |prefix: &str| {
        let fields = packet.fields.iter();
        let fields = fields.filter(|field| field.name.starts_with(prefix));
        fields.collect::<Vec<_>>()
    };
    match header.kind {
        FrameKind::Data | FrameKind::Unnumbered => {
            let shift = packet.len - FRAME_AT - bytes.len();
            check_records_behind(frame, shift, packet)
        }
        FrameKind::Bulk => BulkHeader::parse(frame).is_ok_and(|bulk| {
            check_fields(&debug::fields(&bulk), &of("bulk."), packet);
            true
        }),
        FrameKind::Hello | FrameKind::HelloAck => check_hello(frame, &of("hello."), packet),
        FrameKind::Reset => true,
    }
}

/// Compares the records of a frame that begins `shift` bytes behind the encapsulation.
fn check_records_behind(frame: &[u8], shift: usize, packet: &Packet) -> bool {
    let mut bytes = vec![0; shift];
    bytes.extend_from_slice(frame);
    check_records(&bytes, shift + FRAME_HEADER_LEN, packet)
}

fn check_hello(frame: &[u8], found: &[&Field], packet: &Packet) -> bool {
    let Ok((hello, _, mac)) = Hello::parse(frame) else {
        return false;
    };
    let mut expected = debug::fields(&hello);
    expected.push(("mac".to_owned(), format!("{mac:?}")));
    if hello.job_id == OPEN_JOB_ID {
        let Ok(endpoint_id) = endpoint_id_of(frame) else {
            return false;
        };
        expected.push(("endpoint_id".to_owned(), format!("{endpoint_id:?}")));
    }
    check_fields(&expected, found, packet);
    true
}

#[test]
fn every_frame_is_dissected_as_the_crate_parses_it() {
    if !tshark::can_run() {
        return;
    }
    let mut rng = StdRng::seed_from_u64(2);
    let frames: Vec<_> = (0..FRAME_COUNT).map(|_| random_frame(&mut rng)).collect();
    let mut valid_count = 0;
    for (frame, packet) in frames.iter().zip(dissected(&frames, 9)) {
        let is_valid = check_frame(frame, &packet);
        check_verdict(is_valid, &packet);
        valid_count += usize::from(is_valid);
    }
    assert!(valid_count > FRAME_COUNT / 4, "{valid_count} are valid");
    let headers = [CHECK_LEN, BULK_HEADER_LEN, SEAL_LEN, ENDPOINT_ID_LEN];
    assert_eq!(headers, [8, 24, 24, 64], "the dissector has these lengths");
}
