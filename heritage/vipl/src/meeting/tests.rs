// SPDX-License-Identifier: MIT OR Apache-2.0
//! Two processes without a node. The tests carry their messages, so that some cross others, as on a
//! network.

use super::*;
use crate::queue::Queue;
use crate::testing::attributes;
use crate::vi::Level;

/// A process with one VI.
struct Process {
    rank: u32,
    world: World,
}

impl Process {
    fn new(rank: u32) -> Process {
        let mut world = World::new();
        let traits = (Level::Delivery, 0);
        let queues = (Queue::default(), Queue::default());
        let attributes = attributes(VIP_SERVICE_RELIABLE_DELIVERY);
        assert_eq!(
            world.vis.insert(Vi::new(0, attributes, traits, queues)),
            Some(0)
        );
        Process { rank, world }
    }

    fn ask(&mut self) {
        let name = |rank: u32| Address {
            host: vec![],
            discriminator: vec![u8::try_from(rank).unwrap()],
        };
        let other = 1 - self.rank;
        let ends = (name(self.rank), name(other));
        let patience = Patience::of(VIP_INFINITE.into());
        self.world.ask(0, other, true, ends, patience);
    }

    /// Returns the messages sent since the last call.
    fn said(&mut self) -> Vec<Vec<u8>> {
        let out = std::mem::take(&mut self.world.out);
        out.into_iter().map(|(_, message)| message).collect()
    }

    fn hear(&mut self, messages: Vec<Vec<u8>>) {
        let other = 1 - self.rank;
        for message in messages {
            self.world.on_message(other, &message);
        }
    }

    fn state(&self) -> VIP_VI_STATE {
        self.world.vis.get(0).unwrap().state
    }
}

fn pair() -> (Process, Process) {
    (Process::new(0), Process::new(1))
}

/// Delivers all messages in flight.
fn settle(one: &mut Process, two: &mut Process) {
    for _ in 0..4 {
        two.hear(one.said());
        one.hear(two.said());
    }
    assert!(one.said().is_empty() && two.said().is_empty());
}

#[test]
fn peers_meet_whoever_asks_first() {
    let (mut one, mut two) = pair();
    one.ask();
    two.hear(one.said());
    two.ask();
    settle(&mut one, &mut two);
    assert_eq!([one.state(), two.state()], [VIP_STATE_CONNECTED; 2]);
    // Both peers request the connection at the same time.
    let (mut one, mut two) = pair();
    one.ask();
    two.ask();
    settle(&mut one, &mut two);
    assert_eq!([one.state(), two.state()], [VIP_STATE_CONNECTED; 2]);
}

/// The second peer matched a withdrawn request, and has ended that connection before it received
/// the withdrawal.
#[test]
fn the_request_that_has_met_one_that_was_given_up_meets_no_other() {
    let (mut one, mut two) = pair();
    one.ask();
    two.hear(one.said());
    one.world.withdraw(0);
    two.ask();
    assert_eq!(two.state(), VIP_STATE_CONNECTED);
    one.hear(two.said());
    // The second peer has not received any message yet.
    one.ask();
    assert_eq!(one.state(), VIP_STATE_CONNECT_PENDING);
    two.world.disconnect(0);
    settle(&mut one, &mut two);
    assert_eq!(one.state(), VIP_STATE_CONNECT_PENDING);
    two.ask();
    settle(&mut one, &mut two);
    assert_eq!([one.state(), two.state()], [VIP_STATE_CONNECTED; 2]);
}

/// As above, but the second peer has sent its request before the first peer's arrived.
#[test]
fn a_request_that_has_crossed_one_that_was_given_up_is_withdrawn() {
    let (mut one, mut two) = pair();
    two.ask();
    let asked = two.said();
    one.ask();
    let (first, _) = (one.said(), one.world.withdraw(0));
    one.hear(asked);
    two.hear(first);
    assert_eq!(two.state(), VIP_STATE_CONNECTED);
    two.world.disconnect(0);
    settle(&mut one, &mut two);
    one.ask();
    assert_eq!(one.state(), VIP_STATE_CONNECT_PENDING);
}
