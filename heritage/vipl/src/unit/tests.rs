// SPDX-License-Identifier: MIT OR Apache-2.0
//! Units without a node, and units that cannot be sent.

use super::*;
use crate::testing::{Bench, RANK};

const STUCK: u32 = VIP_STATUS_DONE | VIP_STATUS_TRANSPORT_ERROR;

impl Bench {
    fn post_send(&mut self, index: usize, op: Op) {
        let mut entry = self.entry(index, op);
        entry.total = self.own.descriptors[index].CS.Length;
        self.vi().send.push(entry);
    }

    /// Creates the next unit, which is sent if `leaves` is set and otherwise fails.
    fn unit(&mut self, leaves: bool) -> Option<Part> {
        let mut scratch = [0; LEN_MAX + PIECE_LEN];
        let unit = self.world.next_unit(0, &mut scratch)?;
        match leaves {
            true => self.world.note_left(0, &unit),
            false => self.world.note_stuck(0, &unit),
        }
        Some(unit.part)
    }
}

/// Creates a sender of one descriptor of a few bytes, whose unit cannot be sent.
fn stuck(level: u32) -> Bench {
    let mut bench = Bench::new(level);
    bench.own.descriptors[0].CS.Length = 4;
    bench.post_send(0, Op::Send);
    assert!(bench.unit(false).is_some());
    bench
}

#[test]
fn a_unit_that_does_not_leave_fails_its_descriptor_and_is_not_counted() {
    for level in [
        VIP_SERVICE_RELIABLE_DELIVERY,
        VIP_SERVICE_RELIABLE_RECEPTION,
    ] {
        let mut bench = stuck(level);
        assert_eq!(bench.status(0), STUCK);
        assert_eq!(bench.world.peer(RANK).under_way, 0);
        assert_eq!(bench.vi().state, VIP_STATE_ERROR);
        // The other side is notified.
        assert_eq!(bench.world.out[0].1[0], Kind::Broken as u8);
    }
}

#[test]
fn an_unreliable_send_that_does_not_leave_has_failed_and_the_next_one_goes_on() {
    let mut bench = stuck(VIP_SERVICE_UNRELIABLE);
    assert_eq!(bench.status(0), STUCK);
    assert!(bench.vi().is_connected() && bench.world.out.is_empty());
    bench.post_send(1, Op::Send);
    assert!(bench.unit(true).is_some());
    assert_eq!(bench.status(1), VIP_STATUS_DONE);
    assert_eq!(bench.vi().units_sent, 0);
}

/// The first part was sent, and the other side waits for the rest.
#[test]
fn a_message_whose_rest_does_not_leave_ends_even_an_unreliable_connection() {
    let mut bench = Bench::new(VIP_SERVICE_UNRELIABLE);
    let len = PIECE_LEN + 8;
    let memory = vec![0_u8; len];
    let at = memory.as_ptr().expose_provenance();
    let handle = bench.world.regions.open(at, len, 0);
    bench.own.descriptors[0].CS.Length = u32::try_from(len).unwrap();
    bench.post_send(0, Op::Send);
    // SAFETY: `post_send` has created a local segment.
    let segment = unsafe { &mut bench.own.descriptors[0].DS[0].Local };
    segment.Data.Address = std::ptr::with_exposed_provenance_mut(at);
    (segment.Handle, segment.Length) = (handle, u32::try_from(len).unwrap());
    assert!(matches!(
        bench.unit(true),
        Some(Part::Of { is_last: false, .. })
    ));
    assert!(bench.unit(false).is_some());
    assert_eq!(bench.status(0), STUCK);
    assert_eq!(bench.vi().state, VIP_STATE_ERROR);
    assert_eq!(bench.world.peer(RANK).under_way, 0);
}

#[test]
fn a_question_that_does_not_leave_waits_for_no_answer() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    bench.post_send(0, Op::Read(1));
    assert!(bench.unit(false).is_some());
    assert_eq!(bench.status(0), STUCK | VIP_STATUS_OP_RDMA_READ);
    assert_eq!(bench.vi().reads_under_way, 0);
}

/// The other process failed during the call that was to send the unit.
#[test]
fn a_unit_of_a_connection_that_has_ended_changes_nothing() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    bench.own.descriptors[0].CS.Length = 4;
    bench.post_send(0, Op::Send);
    let mut scratch = [0; LEN_MAX + PIECE_LEN];
    let unit = bench.world.next_unit(0, &mut scratch).unwrap();
    bench.world.lose(RANK);
    let said = bench.world.out.len();
    bench.world.note_stuck(0, &unit);
    assert_eq!(bench.status(0), STUCK);
    assert_eq!(
        (bench.world.out.len(), bench.world.peer(RANK).under_way),
        (said, 0)
    );
}
