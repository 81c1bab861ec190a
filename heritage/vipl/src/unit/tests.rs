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
    fn unit(&mut self, leaves: bool) -> Option<Origin> {
        let mut scratch = [0; LEN_MAX + PIECE_LEN];
        let unit = self.world.next_unit(0, &mut scratch)?;
        match leaves {
            true => self.world.on_unit_sent(0, &unit),
            false => self.world.undo_unit(0, &unit),
        }
        Some(unit.origin)
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
fn unsent_unit_fails_its_descriptor_and_is_not_counted() {
    for level in [
        VIP_SERVICE_RELIABLE_DELIVERY,
        VIP_SERVICE_RELIABLE_RECEPTION,
    ] {
        let mut bench = stuck(level);
        assert_eq!(bench.status(0), STUCK);
        assert_eq!(bench.world.peer(RANK).in_flight, 0);
        assert_eq!(bench.vi().state, VIP_STATE_ERROR);
        // The other side is notified.
        assert_eq!(bench.world.out[0].1[0], Kind::Broken as u8);
    }
}

#[test]
fn failed_unreliable_send_does_not_stop_the_next() {
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
fn partly_sent_message_breaks_unreliable_connection() {
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
        Some(Origin::Descriptor { is_last: false, .. })
    ));
    assert!(bench.unit(false).is_some());
    assert_eq!(bench.status(0), STUCK);
    assert_eq!(bench.vi().state, VIP_STATE_ERROR);
    assert_eq!(bench.world.peer(RANK).in_flight, 0);
}

#[test]
fn unsent_read_is_not_pending() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    bench.post_send(0, Op::Read(1));
    assert!(bench.unit(false).is_some());
    assert_eq!(bench.status(0), STUCK | VIP_STATUS_OP_RDMA_READ);
    assert_eq!(bench.vi().reads_in_flight, 0);
}

/// The other process failed during the call that was to send the unit.
#[test]
fn unit_of_ended_connection_has_no_effect() {
    let mut bench = Bench::new(VIP_SERVICE_RELIABLE_DELIVERY);
    bench.own.descriptors[0].CS.Length = 4;
    bench.post_send(0, Op::Send);
    let mut scratch = [0; LEN_MAX + PIECE_LEN];
    let unit = bench.world.next_unit(0, &mut scratch).unwrap();
    bench.world.fail_peer(RANK);
    let sent = bench.world.out.len();
    bench.world.undo_unit(0, &unit);
    assert_eq!(bench.status(0), STUCK);
    assert_eq!(
        (bench.world.out.len(), bench.world.peer(RANK).in_flight),
        (sent, 0)
    );
}
