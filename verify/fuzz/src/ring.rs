// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ring of shared memory with another end that writes arbitrary values at arbitrary places.

use crate::input::Input;
use portolan_sys::ring::{self, PushError, RingReceiver, RingSender};
use std::fs::File;
use std::os::unix::fs::FileExt;

/// Length of a small ring in bytes, so that its end is reached soon.
const RING_LEN: usize = ring::RING_LEN_MIN;

/// Runs an honest sender and an honest receiver on a ring that a third party overwrites. Both may
/// find it broken; neither may access memory beyond it, or loop forever.
///
/// # Panics
/// Panics if the system has no memory file for a ring.
pub fn ring(data: &[u8]) {
    let (mut sender, fd) = ring::create(RING_LEN).expect("a ring");
    let mut receiver = ring::open(&fd, RING_LEN).expect("the same ring");
    let file = File::from(fd);
    let mut input = Input::new(data);
    while !input.is_empty() {
        match input.byte() % 6 {
            0 => {
                let len = input.below(2000);
                if matches!(sender.push(&vec![7; len], &[]), Err(PushError::Broken(_))) {
                    return;
                }
            }
            1 | 2 => {
                if !receive(&mut receiver) {
                    return;
                }
            }
            3 => {
                let at = input.below(ring::file_len(RING_LEN)) & !7;
                // Sealed parts cannot be written this way, and need not be tried.
                let _ = file.write_at(&input.u64().to_le_bytes(), at as u64);
            }
            4 => {
                let at = input.below(ring::file_len(RING_LEN));
                let len = usize::from(input.byte());
                let _ = file.write_at(input.take(len), at as u64);
            }
            _ => rest(&mut sender, &mut receiver),
        }
    }
}

/// Takes the first frame; returns `false` if the ring is broken.
fn receive(receiver: &mut RingReceiver) -> bool {
    let len = match receiver.peek() {
        Ok(None) => return true,
        Err(_) => return false,
        Ok(Some(entry)) => {
            let len = entry.len();
            assert!(len <= ring::frame_len_max(RING_LEN));
            let mut bytes = vec![0xa5; len];
            entry.copy_to(0, &mut bytes);
            entry.copy_to(len / 2, &mut bytes[..len - len / 2]);
            len
        }
    };
    let _ = receiver.consume(len);
    true
}

/// Lets both ends sleep and wake up.
fn rest(sender: &mut RingSender, receiver: &mut RingReceiver) {
    receiver.arm();
    sender.arm();
    let _ = receiver.has_entry();
    let _ = sender.has_space(100);
    let _ = receiver.publish();
    receiver.disarm();
    sender.disarm();
}
