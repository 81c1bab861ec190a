// SPDX-License-Identifier: MIT OR Apache-2.0
//! Incoming messages without a node. Some are messages that no correct peer would send.

use super::*;
use crate::testing::{Bench, RANK, TOKEN, UserMemory};
use crate::wire::{LEN_MAX, OF_READ};
use std::ffi::c_int;

fn header(kind: Kind) -> Header {
    Header {
        flags: COUNTED,
        ..Header::new(kind, TOKEN, 0)
    }
}

#[test]
fn message_completes_a_descriptor_and_is_acknowledged() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_RECEPTION);
    bench.post_recv(0);
    bench.come(&header(Kind::Data), b"ahoy");
    assert_eq!(&bench.own.data[..5], b"ahoy\0");
    assert_eq!(bench.status(0), VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE);
    assert_eq!(bench.own.descriptors[0].CS.Length, 4);
    assert_eq!((bench.vi().accepted, bench.world.due.clone()), (1, vec![0]));
}

#[test]
fn message_for_another_connection_is_dropped() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    bench.post_recv(0);
    for token in [0, TOKEN + 1, TOKEN + (1 << 16), u32::MAX] {
        let other = Header::new(Kind::Data, token, 0);
        bench.come(&other, b"ahoy");
    }
    let mut head = [0; LEN_MAX];
    let len = header(Kind::Data).write(&mut head);
    bench.world.on_message(RANK + 1, &head[..len]);
    bench.world.on_message(RANK, b"");
    bench.world.on_message(RANK, &[Kind::Reply as u8; 20]);
    assert_eq!((bench.world.dropped_count, bench.status(0)), (7, 0));
    assert!(bench.vi().is_connected());
}

#[test]
fn acknowledgement_of_unsent_units_is_ignored() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    bench.note_sent(0, Op::Send, 1);
    bench.note_sent(1, Op::Send, 2);
    for ack in [3, u32::MAX] {
        bench.come(&Header::new(Kind::Ack, TOKEN, ack), b"");
        assert_eq!((bench.status(0), bench.status(1)), (0, 0));
    }
    bench.come(&Header::new(Kind::Ack, TOKEN, 1), b"");
    assert_eq!((bench.status(0), bench.status(1)), (VIP_STATUS_DONE, 0));
}

#[test]
fn out_of_order_parts_are_ignored() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    bench.post_recv(0);
    let part = |offset, total| Header {
        offset,
        total,
        ..header(Kind::Part)
    };
    bench.come(&part(4, 12), b"lost");
    bench.come(&part(0, 12), b"ahoy");
    bench.come(&part(8, 12), b"lost");
    bench.come(&part(4, 12), b"from");
    assert_eq!(bench.status(0), 0);
    bench.come(&part(8, 12), b"afar");
    assert_eq!(&bench.own.data[..13], b"ahoyfromafar\0");
    assert_eq!(bench.own.descriptors[0].CS.Length, 12);
    // Data beyond the announced length is not written beyond the descriptor's memory.
    bench.post_recv(1);
    bench.come(&part(0, 16), b"0123456789");
    bench.come(&part(10, 16), b"0123456789");
    let failed = VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE | VIP_STATUS_LENGTH_ERROR;
    assert_eq!((bench.status(1), bench.own.data[32]), (failed, 0));
    assert_eq!(bench.vi().state, VIP_STATE_ERROR);
}

#[test]
fn unregistered_memory_is_not_accessed() {
    for (enabled, offset, len) in [
        (VIP_FALSE, 0, 8),
        (VIP_TRUE, size_of::<UserMemory>() - 4, 8),
    ] {
        let mut bench = Bench::new(VIP_SERVICE_RELIABLE_RECEPTION);
        bench.vi().attributes.EnableRdmaWrite = c_int::from(enabled != 0);
        let at = ptr::from_ref(&*bench.own).addr() + offset;
        let write = Header {
            addr: at as u64,
            handle: bench.handle,
            total: len,
            ..header(Kind::Write)
        };
        bench.come(&write, &[0xff; 8][..len as usize]);
        assert_eq!(bench.vi().state, VIP_STATE_ERROR);
        assert!(bench.own.data.iter().all(|byte| *byte == 0));
        let (_, message) = &bench.world.out[0];
        assert_eq!(message[0], Kind::Broken as u8);
    }
}

#[test]
fn unrequested_read_data_is_ignored() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    bench.note_sent(0, Op::Read(5), 0);
    bench.vi().reads_in_flight = 1;
    let data = |id, offset| Header {
        flags: COUNTED | LAST,
        imm: id,
        total: 16,
        offset,
        ..header(Kind::ReadData)
    };
    bench.come(&data(6, 0), &[1; 16]);
    bench.come(&data(5, 8), &[1; 8]);
    bench.come(&data(5, 0), &[1; 4]);
    assert_eq!(bench.status(0), 0);
    bench.come(&data(5, 4), &[2; 12]);
    assert_eq!(bench.status(0), VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_READ);
    assert_eq!(bench.own.data[..5], [1, 1, 1, 1, 2]);
}

/// The read before the send waits for its data; it is not the refused operation.
#[test]
fn refusal_fails_the_refused_send() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_RECEPTION);
    bench.note_sent(0, Op::Read(1), 0);
    bench.note_sent(1, Op::Send, 2);
    bench.note_sent(2, Op::Send, 3);
    let mut broken = Header::new(Kind::Broken, TOKEN, 1);
    broken.total = VIP_STATUS_REMOTE_DESC_ERROR;
    bench.come(&broken, b"");
    let flushed = VIP_STATUS_DONE | VIP_STATUS_DESC_FLUSHED_ERROR;
    assert_eq!(bench.status(0), flushed | VIP_STATUS_OP_RDMA_READ);
    assert_eq!(
        bench.status(1),
        VIP_STATUS_DONE | VIP_STATUS_REMOTE_DESC_ERROR
    );
    assert_eq!(bench.status(2), flushed);
    // A refused read is identified by its number.
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    bench.note_sent(0, Op::Read(1), 0);
    bench.note_sent(1, Op::Read(2), 0);
    let mut broken = Header::new(Kind::Broken, TOKEN, 2);
    (broken.total, broken.flags, broken.imm) = (VIP_STATUS_RDMA_PROT_ERROR, OF_READ, 2);
    bench.come(&broken, b"");
    assert_eq!(bench.status(0), flushed | VIP_STATUS_OP_RDMA_READ);
    let refused = VIP_STATUS_DONE | VIP_STATUS_RDMA_PROT_ERROR | VIP_STATUS_OP_RDMA_READ;
    assert_eq!(bench.status(1), refused);
}
