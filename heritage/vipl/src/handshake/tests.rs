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

    fn request(&mut self) {
        let name = |rank: u32| Address {
            host: vec![],
            discriminator: vec![u8::try_from(rank).unwrap()],
        };
        let other = 1 - self.rank;
        let ends = (name(self.rank), name(other));
        let deadline = Deadline::of(VIP_INFINITE.into());
        self.world.request(0, other, true, ends, deadline);
    }

    /// Returns the messages sent since the last call.
    fn take_messages(&mut self) -> Vec<Vec<u8>> {
        let out = std::mem::take(&mut self.world.out);
        out.into_iter().map(|(_, message)| message).collect()
    }

    fn deliver(&mut self, messages: Vec<Vec<u8>>) {
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
        two.deliver(one.take_messages());
        one.deliver(two.take_messages());
    }
    assert!(one.take_messages().is_empty() && two.take_messages().is_empty());
}

#[test]
fn peers_connect_in_either_order() {
    let (mut one, mut two) = pair();
    one.request();
    two.deliver(one.take_messages());
    two.request();
    settle(&mut one, &mut two);
    assert_eq!([one.state(), two.state()], [VIP_STATE_CONNECTED; 2]);
    // Both peers request the connection at the same time.
    let (mut one, mut two) = pair();
    one.request();
    two.request();
    settle(&mut one, &mut two);
    assert_eq!([one.state(), two.state()], [VIP_STATE_CONNECTED; 2]);
}

/// The second peer matched a withdrawn request, and has ended that connection before it received
/// the withdrawal.
#[test]
fn request_matched_with_withdrawn_one_matches_no_other() {
    let (mut one, mut two) = pair();
    one.request();
    two.deliver(one.take_messages());
    one.world.withdraw(0);
    two.request();
    assert_eq!(two.state(), VIP_STATE_CONNECTED);
    one.deliver(two.take_messages());
    // The second peer has not received any message yet.
    one.request();
    assert_eq!(one.state(), VIP_STATE_CONNECT_PENDING);
    two.world.disconnect(0);
    settle(&mut one, &mut two);
    assert_eq!(one.state(), VIP_STATE_CONNECT_PENDING);
    two.request();
    settle(&mut one, &mut two);
    assert_eq!([one.state(), two.state()], [VIP_STATE_CONNECTED; 2]);
}

/// As above, but the second peer has sent its request before the first peer's arrived.
#[test]
fn request_crossing_a_withdrawn_one_is_withdrawn() {
    let (mut one, mut two) = pair();
    two.request();
    let request = two.take_messages();
    one.request();
    let (first, _) = (one.take_messages(), one.world.withdraw(0));
    one.deliver(request);
    two.deliver(first);
    assert_eq!(two.state(), VIP_STATE_CONNECTED);
    two.world.disconnect(0);
    settle(&mut one, &mut two);
    one.request();
    assert_eq!(one.state(), VIP_STATE_CONNECT_PENDING);
}
