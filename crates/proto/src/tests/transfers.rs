// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bulk data goes on until its end, however little the receiver can buffer.

use super::pair::*;
use crate::*;
use alloc::vec;
use core::time::Duration;

const PORT: PortId = PortId::user(5);
const LOW: SendSpec = SendSpec {
    port: PORT,
    lane: LaneId::Low,
    best_effort: false,
};

#[test]
fn a_grant_that_is_no_multiple_of_the_fragment_does_not_hold_the_budget() {
    let mut pair = Pair::new(&[LinkId::UDP], 1);
    pair.run(Duration::from_millis(50));
    // The least budget there is: one quantum.
    pair.ends[1].core.sh.scheduler.set_budget(LinkId::UDP, 0);
    for _ in 0..2 {
        pair.ends[1].post(PORT, 300_000, None);
        pair.ends[0].send(B, &LOW, &vec![7; 300_000]).unwrap();
    }
    pair.run(Duration::from_millis(50));
    assert_eq!(pair.ends[1].got.len(), 2);
    pair.assert_clean();
}
