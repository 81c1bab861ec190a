// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of arriving messages without a node: the messages are entered by hand.

use super::*;
use crate::wire::LEN;
use std::time::Duration;

const OWN: u8 = 2;
const KEY: Key = Key {
    rank: 1,
    own: OWN,
    other: 4,
    high: false,
};

fn opened() -> World {
    let mut world = World::new();
    world.size = 2;
    *world.port(OWN) = Port::opened(0);
    world.port(OWN).allows_remote = true;
    world
}

fn header(kind: Kind, len: usize) -> Header {
    Header {
        kind,
        size: 6,
        high: KEY.high,
        from_port: KEY.other,
        to_port: KEY.own,
        ack: 0,
        len: u32::try_from(len).unwrap(),
        aux: 0,
        addr: 0,
    }
}

fn receive(world: &mut World, header: &Header, bytes: &[u8]) {
    let mut head = [0; LEN];
    let len = header.write(&mut head);
    world.on_message(KEY.rank, &[&head[..len], bytes].concat());
}

/// Ends the first entry of the queue, as the node would.
fn end_first(world: &mut World) -> Queued {
    world.conn(KEY).queue.pop_front().unwrap()
}

#[test]
fn puts_and_gets_wait_for_long_puts_before_them() {
    let mut world = opened();
    let mut memory = [0xa5_u8; 100];
    let at = memory.as_mut_ptr().expose_provenance();
    world.registered.add(at, memory.len());
    let to = |kind, len| Header {
        addr: at as u64,
        ..header(kind, len)
    };
    receive(&mut world, &to(Kind::LongPut, 100), &[]);
    receive(&mut world, &to(Kind::Put, 4), b"flag");
    receive(&mut world, &to(Kind::Get, 100), &[]);
    assert_eq!(memory, [0xa5; 100], "the data are not there yet");
    assert!(world.todo.is_empty(), "the reply would have old bytes");
    assert_eq!(world.conn(KEY).accepted, 0);
    let first = end_first(&mut world);
    world.settle(KEY, first);
    let second = end_first(&mut world);
    world.settle(KEY, second);
    assert_eq!(&memory[..5], b"flag\xa5");
    let third = end_first(&mut world);
    world.settle(KEY, third);
    assert!(matches!(world.todo[..], [Todo::Reply { len: 100, .. }]));
    assert_eq!(world.conn(KEY).accepted, 3);
}

#[test]
fn drop_notice_keeps_its_place_among_accepted_messages() {
    let mut world = opened();
    let mut buffers = [[0_u8; 64]; 2];
    for buffer in &mut buffers {
        let at = buffer.as_mut_ptr();
        let provided = world.port(OWN).buffers(false, 6).unwrap();
        provided.push_back(Provided { at, tag: 0 });
    }
    receive(&mut world, &header(Kind::LongData, 50), &[]);
    receive(&mut world, &header(Kind::Drop, 0), &[]);
    receive(&mut world, &header(Kind::Data, 5), b"later");
    assert!(world.todo.is_empty(), "nothing was sent yet");
    assert_eq!(world.conn(KEY).accepted, 0);
    let first = end_first(&mut world);
    world.settle(KEY, first);
    assert_eq!(world.conn(KEY).accepted, 1, "the notice counts that one");
    assert!(matches!(end_first(&mut world), Queued::Dropped));
    let third = end_first(&mut world);
    world.settle(KEY, third);
    assert_eq!(world.conn(KEY).accepted, 2);
}

#[test]
fn message_after_drop_is_not_accepted_before_drop_notice() {
    let mut world = opened();
    receive(&mut world, &header(Kind::Data, 5), b"waits");
    receive(&mut world, &header(Kind::Drop, 0), &[]);
    let mut buffer = [0_u8; 64];
    let at = buffer.as_mut_ptr();
    let provided = world.port(OWN).buffers(false, 6).unwrap();
    provided.push_back(Provided { at, tag: 0 });
    receive(&mut world, &header(Kind::Data, 5), b"later");
    assert_eq!(world.conn(KEY).accepted, 0);
    assert_eq!(world.conn(KEY).queue.len(), 2);
    assert!(world.has_work());
}

#[test]
fn registered_memory_is_borrowed_until_put_is_done() {
    let mut world = opened();
    let mut memory = [0_u8; 100];
    let mut buffer = [0_u8; 64];
    let at = memory.as_mut_ptr().expose_provenance();
    world.registered.add(at, memory.len());
    let provided = Provided {
        at: buffer.as_mut_ptr(),
        tag: 0,
    };
    world
        .port(OWN)
        .buffers(false, 6)
        .unwrap()
        .push_back(provided);
    receive(&mut world, &header(Kind::LongData, 50), &[]);
    assert!(!world.borrows_registered(at, 100), "a message is no put");
    let put = Header {
        addr: at as u64 + 10,
        ..header(Kind::Put, 4)
    };
    receive(&mut world, &put, b"flag");
    assert!(world.borrows_registered(at, 100) && world.borrows_registered(at + 13, 1));
    assert!(!world.borrows_registered(at, 10) && !world.borrows_registered(at + 14, 86));
    for _ in 0..2 {
        let first = end_first(&mut world);
        world.settle(KEY, first);
    }
    assert!(!world.borrows_registered(at, 100));
}

#[test]
fn retired_world_writes_no_user_memory() {
    let mut world = opened();
    let mut memory = [0xa5_u8; 64];
    let at = memory.as_mut_ptr();
    let provided = world.port(OWN).buffers(false, 6).unwrap();
    provided.push_back(Provided { at, tag: 0 });
    world.registered.add(at.expose_provenance(), memory.len());
    assert!(world.retire().is_empty());
    let put = Header {
        addr: at.expose_provenance() as u64,
        ..header(Kind::Put, 4)
    };
    receive(&mut world, &put, b"flag");
    receive(&mut world, &header(Kind::Datagram, 5), b"hello");
    receive(&mut world, &header(Kind::LongData, 50), &[]);
    let queue = &world.conn(KEY).queue;
    assert!(queue.iter().all(|entry| matches!(entry, Queued::Failed(_))));
    assert_eq!(memory, [0xa5; 64]);
}

#[test]
fn message_behind_expired_one_takes_free_buffer() {
    let mut world = opened();
    world.patience = Duration::from_secs(1);
    let large = Header {
        size: 7,
        ..header(Kind::Loose, 5)
    };
    for _ in 0..2 {
        receive(&mut world, &large, b"large");
    }
    receive(&mut world, &header(Kind::Loose, 5), b"small");
    let mut buffer = [0_u8; 64];
    let at = buffer.as_mut_ptr();
    let provided = world.port(OWN).buffers(false, 6).unwrap();
    provided.push_back(Provided { at, tag: 0 });
    world.expire(Instant::now());
    assert_eq!(world.held_count, 3, "none has waited for a second");
    world.expire(Instant::now() + world.patience);
    assert_eq!((world.held_count, world.dropped_count), (0, 2));
    assert!(world.has_events(OWN));
}

#[test]
fn held_unacknowledged_messages_are_bounded() {
    let mut world = opened();
    for _ in 0..HELD_LOOSE_MAX + 7 {
        receive(&mut world, &header(Kind::Loose, 5), b"loose");
    }
    assert_eq!((world.held_count, world.dropped_count), (HELD_LOOSE_MAX, 7));
    receive(&mut world, &header(Kind::Data, 5), b"dense");
    assert_eq!(world.held_count, HELD_LOOSE_MAX + 1);
}
