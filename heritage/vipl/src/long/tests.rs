// SPDX-License-Identifier: MIT OR Apache-2.0
//! Long transfers without a node: what is expected, discarded and refused.

use super::*;
use crate::testing::{Bench, RANK, TOKEN};
use crate::wire::OF_READ;

/// A token of a connection that has ended.
const ENDED: u32 = TOKEN - (1 << 16);

/// Creates the header of a request for the data of read 5.
fn request_for(bench: &Bench, token: u32) -> Header {
    let at = bench.own.data.as_ptr().expose_provenance();
    Header {
        flags: COUNTED | TAGGED,
        imm: 5,
        total: 16,
        addr: u64::try_from(at).unwrap(),
        handle: bench.handle,
        ..Header::new(Kind::Read, token, 0)
    }
}

#[test]
fn bytes_for_an_ended_connection_are_discarded() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    let announcement = Header {
        flags: COUNTED,
        tag: 9,
        total: LONG_MIN,
        ..Header::new(Kind::LongData, ENDED, 0)
    };
    bench.come(&announcement, b"");
    assert_eq!(bench.world.longs.discards, [(RANK, LONG_TAG | 9)]);
}

/// A discard would take the data of this process's own read with the same number.
#[test]
fn read_request_for_an_ended_connection_discards_nothing() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    let request = request_for(&bench, ENDED);
    bench.come(&request, b"");
    assert_eq!(bench.world.longs.discards, []);
    assert_eq!(bench.world.longs.refused, [(RANK, READ_TAG | 5)]);
    assert_eq!(bench.world.dropped_count, 1);
}

#[test]
fn deregistered_memory_is_not_read_and_the_requester_is_told() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    let request = request_for(&bench, TOKEN);
    bench.come(&request, b"");
    assert_eq!(bench.world.longs.requested.len(), 1);
    assert!(bench.world.may_read(0, &request));
    bench.world.regions.close(0);
    assert!(!bench.world.may_read(0, &request));
    let (rank, message) = &bench.world.out[0];
    let (told, _) = Header::parse(message).unwrap();
    assert_eq!((*rank, told.kind, told.imm), (RANK, Kind::Broken, 5));
    assert_eq!(told.total, VIP_STATUS_RDMA_PROT_ERROR);
    assert!(!bench.vi().is_connected());
}

#[test]
fn queued_read_of_an_ended_connection_leaves_the_next_one_alone() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    let request = request_for(&bench, TOKEN);
    bench.come(&request, b"");
    bench.vi().token = TOKEN + (1 << 16);
    assert!(!bench.world.may_read(0, &request));
    assert!(bench.world.out.is_empty() && bench.vi().is_connected());
}

#[test]
fn forbidden_long_read_gets_an_empty_message() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    bench.vi().attributes.EnableRdmaRead = VIP_FALSE;
    let request = request_for(&bench, TOKEN);
    bench.come(&request, b"");
    assert_eq!(bench.world.longs.refused, [(RANK, READ_TAG | 5)]);
    assert!(bench.world.longs.requested.is_empty() && !bench.vi().is_connected());
}

/// An empty message may arrive before the end of the connection is reported.
#[test]
fn refused_read_completes_when_its_connection_ends() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    let mut entry = bench.entry(0, Op::Read(5));
    entry.control = VIP_CONTROL_OP_RDMAREAD;
    let number = bench.vi().send.push(entry);
    bench.vi().send.next = number + 1;
    let request = request_for(&bench, TOKEN);
    let at = bench.own.data.as_mut_ptr();
    bench.world.expect_read(0, number, (at, request));
    bench.world.end_incoming(0, 0, &[]);
    assert!(bench.world.longs.is_empty());
    assert_eq!(bench.status(0), 0);
    let broken = Header {
        flags: OF_READ,
        imm: 5,
        total: VIP_STATUS_RDMA_PROT_ERROR,
        ..Header::new(Kind::Broken, TOKEN, 0)
    };
    bench.come(&broken, b"");
    let expected = VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_READ | VIP_STATUS_RDMA_PROT_ERROR;
    assert_eq!(bench.status(0), expected);
}
