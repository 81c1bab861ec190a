// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of intact and damaged records in the layout of the shim.

use super::*;
use std::fs;

/// Positions of the tables in a record of two processes.
const OPS_OFF: usize = 4096;
const PEERS_OFF: usize = OPS_OFF + 20_480;
const LEN: usize = PEERS_OFF + 4096;

/// Byte offsets in the header, as in `struct header` of `shim/record.h`.
mod at {
    pub(super) const RANK: usize = 8;
    pub(super) const RANK_COUNT: usize = 12;
    pub(super) const PID: usize = 16;
    pub(super) const FLAGS: usize = 20;
    pub(super) const WORLD: usize = 24;
    pub(super) const OP_COUNT: usize = 32;
    pub(super) const OPS_OFF: usize = 40;
    pub(super) const PEERS_OFF: usize = 48;
    pub(super) const EVENT_COUNT: usize = 56;
    pub(super) const EVENTS_OFF: usize = 72;
    pub(super) const INIT_TICKS: usize = 80;
    pub(super) const INIT_NS: usize = 88;
    pub(super) const END_TICKS: usize = 96;
    pub(super) const END_NS: usize = 104;
    pub(super) const TICKS_PER_S: usize = 112;
    pub(super) const RUNNING: usize = 136;
    pub(super) const RUNNING_SINCE: usize = 144;
    pub(super) const LAST_TICKS: usize = 152;
    pub(super) const VOLUMES: usize = 160;
    pub(super) const HOST: usize = 448;
    pub(super) const PROGRAM: usize = 512;
    pub(super) const LIBRARY: usize = 768;
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    put(bytes, at, &value.to_ne_bytes());
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    put(bytes, at, &value.to_ne_bytes());
}

/// Returns the record of rank `rank` of two. It sent 3 messages of 70 bytes to rank 1 and computed
/// for half of 2 s.
pub(crate) fn record_of(rank: u32) -> Vec<u8> {
    let mut bytes = vec![0; LEN];
    put(&mut bytes, 0, b"PTLNMPI1");
    put_u32(&mut bytes, at::RANK, rank);
    put_u32(&mut bytes, at::RANK_COUNT, 2);
    put_u32(&mut bytes, at::PID, 4711);
    put_u32(&mut bytes, at::FLAGS, FINALIZED);
    put_u64(&mut bytes, at::WORLD, 77);
    put_u64(&mut bytes, at::OP_COUNT, 2);
    put_u64(&mut bytes, at::OPS_OFF, OPS_OFF as u64);
    put_u64(&mut bytes, at::PEERS_OFF, PEERS_OFF as u64);
    // 2 s of a counter at 3 GHz.
    put_u64(&mut bytes, at::INIT_TICKS, 1_000);
    put_u64(&mut bytes, at::INIT_NS, 500);
    put_u64(&mut bytes, at::END_TICKS, 6_000_001_000);
    put_u64(&mut bytes, at::END_NS, 2_000_000_500);
    put_u64(&mut bytes, at::TICKS_PER_S, 2_900_000_000);
    put_u64(&mut bytes, at::VOLUMES + 16, 3);
    put_u64(&mut bytes, at::VOLUMES + 24, 210);
    put(&mut bytes, at::HOST, b"host");
    put(&mut bytes, at::PROGRAM, b"/bin/program");
    put(&mut bytes, at::LIBRARY, b"Some MPI 1.0");
    for (index, (name, group, ticks)) in [
        ("MPI_Send", "Send", 1_200_000_000),
        ("MPI_Recv", "Recv", 1_800_000_000),
    ]
    .into_iter()
    .enumerate()
    {
        let from = OPS_OFF + index * 72;
        put(&mut bytes, from, name.as_bytes());
        put(&mut bytes, from + 32, group.as_bytes());
        put_u64(&mut bytes, from + 48, 3);
        put_u64(&mut bytes, from + 56, ticks);
        put_u64(&mut bytes, from + 64, 210);
    }
    // The second peer: sent, then received, one-sided, ticks.
    put_u64(&mut bytes, PEERS_OFF + 56, 3);
    put_u64(&mut bytes, PEERS_OFF + 64, 210);
    put_u64(&mut bytes, PEERS_OFF + 56 + 48, 300_000_000);
    bytes
}

/// An event with times in ticks.
#[derive(Clone, Copy)]
pub(crate) struct RawCall {
    pub(crate) ticks: (u64, u64),
    pub(crate) kind: u64,
    pub(crate) operation: u64,
    pub(crate) bytes: u64,
    pub(crate) peer: i32,
    pub(crate) tag: i32,
    pub(crate) request: u32,
    pub(crate) group: u32,
}

/// Returns the record of [`record_of`] with events after the tables.
pub(crate) fn record_with(rank: u32, calls: &[RawCall]) -> Vec<u8> {
    let mut bytes = record_of(rank);
    put_u64(&mut bytes, at::EVENT_COUNT, calls.len() as u64);
    put_u64(&mut bytes, at::EVENTS_OFF, LEN as u64);
    for call in calls {
        let what = call.bytes | call.kind << 44 | call.operation << 48;
        for word in [call.ticks.0, call.ticks.1, what] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [call.peer, call.tag] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [call.request, call.group] {
            bytes.extend(word.to_ne_bytes());
        }
    }
    bytes
}

fn read(bytes: &[u8]) -> Result<Record, RecordError> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("1-0.record");
    fs::write(&path, bytes).unwrap();
    Record::read(&path)
}

/// Returns the error for a record after `change`.
fn error_of(change: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = record_of(0);
    change(&mut bytes);
    read(&bytes).unwrap_err().to_string()
}

#[test]
fn record_is_parsed_in_the_layout_of_the_shim() {
    let record = read(&record_of(1)).unwrap();
    assert_eq!((record.rank, record.rank_count, record.pid), (1, 2, 4711));
    assert_eq!((record.end, record.world), (End::Finalized, 77));
    assert_eq!(record.host, "host");
    assert_eq!(record.program, "/bin/program");
    assert_eq!(record.library, "Some MPI 1.0");
    assert!((record.seconds - 2.0).abs() < 1e-9, "{}", record.seconds);
    let three = Tally {
        count: 3,
        bytes: 210,
    };
    assert_eq!(record.messages[1], three);
    assert_eq!(
        record.messages.iter().map(|tally| tally.count).sum::<u64>(),
        3
    );
    assert_eq!(record.operations.len(), 2);
    assert_eq!(record.operations[1].name, "MPI_Recv");
    assert_eq!(record.operations[1].kind, "Recv");
    assert!((record.operations[1].seconds - 0.6).abs() < 1e-9);
    assert_eq!(record.peers.len(), 3);
    assert_eq!(record.peers[1].sent, three);
    assert!((record.peers[1].waited_s - 0.1).abs() < 1e-9);
}

#[test]
fn killed_process_counts_until_its_last_event() {
    let mut bytes = record_of(0);
    put_u32(&mut bytes, at::FLAGS, 0);
    put_u64(&mut bytes, at::END_TICKS, 0);
    put_u64(&mut bytes, at::END_NS, 0);
    put_u64(&mut bytes, at::LAST_TICKS, 2_900_001_000);
    put_u64(&mut bytes, at::RUNNING, 2);
    put_u64(&mut bytes, at::RUNNING_SINCE, 5_800_001_000);
    let record = read(&bytes).unwrap();
    assert_eq!((record.end, record.running), (End::Lost, Some(1)));
    assert!((record.seconds - 2.0).abs() < 1e-9, "{}", record.seconds);
}

#[test]
fn file_that_is_no_record_is_rejected() {
    assert!(
        read(b"")
            .unwrap_err()
            .to_string()
            .contains("is not a record")
    );
    assert!(error_of(|bytes| put(bytes, 0, b"\x7fELF")).contains("is not a record"));
    assert!(error_of(|bytes| bytes[7] = b'2').contains("another version"));
    assert!(error_of(|bytes| put(bytes, 0, &[0; 8])).contains("ended in MPI_Init"));
    let directory = tempfile::tempdir().unwrap();
    let absent = Record::read(&directory.path().join("no.record")).unwrap_err();
    assert!(absent.to_string().contains("cannot be read"), "{absent}");
    let absent = read_directory(&directory.path().join("none")).unwrap_err();
    assert!(absent.to_string().contains("cannot be read"), "{absent}");
}

#[test]
fn truncated_record_is_rejected() {
    let whole = record_of(0);
    // Nothing after the peers is read.
    for len in (8..PEERS_OFF + 3 * 56).step_by(61) {
        let error = read(&whole[..len]).unwrap_err();
        assert!(
            matches!(error, RecordError::Damaged { .. }),
            "{len}: {error}"
        );
    }
    assert!(read(&whole[..PEERS_OFF + 3 * 56]).is_ok());
}

#[test]
fn inconsistent_header_is_rejected() {
    let cases: [(usize, u64); 6] = [
        (at::OP_COUNT, 257),
        (at::OPS_OFF, u64::MAX - 8),
        (at::OPS_OFF, LEN as u64),
        (at::PEERS_OFF, u64::MAX),
        (at::RUNNING, 3),
        (at::TICKS_PER_S, 0),
    ];
    for (place, value) in cases {
        let error = error_of(|bytes| put_u64(bytes, place, value));
        assert!(error.contains("is damaged"), "{place}: {error}");
    }
    for (place, value) in [
        (at::RANK, 2),
        (at::RANK_COUNT, 0),
        (at::RANK_COUNT, u32::MAX),
        (at::FLAGS, 64),
    ] {
        let error = error_of(|bytes| put_u32(bytes, place, value));
        assert!(error.contains("is damaged"), "{place}: {error}");
    }
}

/// Changes each byte of the header in turn. The record must then be read or refused without absurd
/// figures.
#[test]
fn corrupt_header_does_not_panic() {
    let whole = record_of(0);
    let mut read_count = 0;
    for place in 0..896 {
        for value in [0, 0x7f, 0xff] {
            let mut bytes = whole.clone();
            bytes[place] = value;
            if let Ok(record) = read(&bytes) {
                assert!(
                    record.seconds.is_finite() && record.seconds >= 0.0,
                    "{place}"
                );
                assert!(record.running.is_none_or(|at| at < record.operations.len()));
                read_count += 1;
            }
        }
    }
    assert!(
        read_count > 1000,
        "only {read_count} were read: the test is in vain"
    );
}

#[test]
fn directory_returns_records_and_names_other_files() {
    let directory = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    put("1-0.record", &record_of(0));
    put("1-1.record", &record_of(1));
    put("2-0.record", b"PTLNMPI1");
    put("notes.txt", b"of something else");
    let (records, refused) = read_directory(directory.path()).unwrap();
    assert_eq!(records.len(), 2);
    assert_eq!(refused.len(), 1);
    assert!(refused[0].to_string().contains("2-0.record"));
}
