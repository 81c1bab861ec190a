// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program that looks at each frame that an interface receives: those for an endpoint that is in
//! the map go to its socket, all others to the kernel as ever.

use super::QUEUE;
use crate::ethernet::{ETHER_TYPE, HEADER_LEN};
use portolan_sys::bpf::Instruction;
use portolan_sys::net::MacAddr;

/// Operation codes (RFC 9669, section 3 and on; include/uapi/linux/bpf.h).
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const LOAD_CONSTANT: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_CONSTANT: u8 = 0xb7;
const ADD_CONSTANT: u8 = 0x07;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP_IF_NOT_CONSTANT: u8 = 0x55;
const JUMP_IF_GREATER: u8 = 0x2d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// Marks a constant as the number of a map's descriptor (`BPF_PSEUDO_MAP_FD`).
const IS_MAP: u8 = 1;

/// Places in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE: i16 = 16;

/// Where the header of our frames ends.
const BEHIND_HEADER: i32 = 18;
const _: () = assert!(HEADER_LEN == 18);

/// The verdict that leaves a frame to the kernel (`XDP_PASS`).
const PASS: i32 = 2;

/// The function `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;

/// Instructions in all, and the first of the two that leave a frame alone.
const LEN: usize = 24;
const LEAVE: i16 = 22;

/// Redirects frames of our EtherType for `mac` by the endpoint in their header. A frame that came by
/// another queue than the sockets are of would be refused by them; it is left to the kernel.
pub(super) fn redirecting(mac: MacAddr, map: u32) -> [Instruction; LEN] {
    let [a, b, c, d, e, f] = mac.0;
    // Frames are at even addresses everywhere, and at no better ones on some machines.
    let [first, second, third] = [[a, b], [c, d], [e, f]].map(in_memory);
    let queue = i32::from(QUEUE);
    [
        op(LOAD_WORD, 2, 1, DATA, 0),
        op(LOAD_WORD, 3, 1, DATA_END, 0),
        op(LOAD_WORD, 4, 1, RX_QUEUE, 0),
        leave_unless(3, 4, queue),
        // The whole header is there.
        op(MOVE, 4, 2, 0, 0),
        op(ADD_CONSTANT, 4, 0, 0, BEHIND_HEADER),
        op(JUMP_IF_GREATER, 4, 3, LEAVE - 7, 0),
        op(LOAD_HALF, 4, 2, 12, 0),
        leave_unless(8, 4, in_memory(ETHER_TYPE.to_be_bytes())),
        op(LOAD_HALF, 4, 2, 0, 0),
        leave_unless(10, 4, first),
        op(LOAD_HALF, 4, 2, 2, 0),
        leave_unless(12, 4, second),
        op(LOAD_HALF, 4, 2, 4, 0),
        leave_unless(14, 4, third),
        // To the socket of the endpoint; to the kernel if there is none.
        op(LOAD_HALF, 2, 2, 14, 0),
        op(TO_BIG_ENDIAN, 2, 0, 0, 16),
        op(LOAD_CONSTANT, 1, IS_MAP, 0, map.cast_signed()),
        op(0, 0, 0, 0, 0),
        op(MOVE_CONSTANT, 3, 0, 0, PASS),
        op(CALL, 0, 0, 0, REDIRECT_MAP),
        op(EXIT, 0, 0, 0, 0),
        op(MOVE_CONSTANT, 0, 0, 0, PASS),
        op(EXIT, 0, 0, 0, 0),
    ]
}

/// What a load of these two bytes gives on this machine.
fn in_memory(bytes: [u8; 2]) -> i32 {
    i32::from(u16::from_ne_bytes(bytes))
}

fn op(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction {
        code,
        registers: registers(to, from),
        offset,
        immediate,
    }
}

/// Bit fields of C begin at the lower end on little-endian machines, at the upper end on others.
fn registers(to: u8, from: u8) -> u8 {
    if cfg!(target_endian = "little") {
        from << 4 | to
    } else {
        to << 4 | from
    }
}

/// The instruction numbered `at` goes on to the end unless a register has that value; jumps count from
/// the next one.
fn leave_unless(at: i16, register: u8, value: i32) -> Instruction {
    op(JUMP_IF_NOT_CONSTANT, register, 0, LEAVE - at - 1, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_to_the_verdict_that_leaves_a_frame_alone() {
        let program = redirecting(MacAddr([2, 0, 0, 0, 0, 1]), 7);
        assert_eq!(program[LEAVE as usize], op(MOVE_CONSTANT, 0, 0, 0, PASS));
        let jumps = [JUMP_IF_NOT_CONSTANT, JUMP_IF_GREATER];
        let mut count = 0;
        for (at, one) in (0_i16..).zip(&program) {
            if jumps.contains(&one.code) {
                assert_eq!(at + 1 + one.offset, LEAVE, "instruction {at}");
                count += 1;
            }
        }
        assert_eq!(count, 6);
    }
}
