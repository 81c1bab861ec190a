// SPDX-License-Identifier: MIT OR Apache-2.0
//! BPF program that runs on each frame received by an interface. Frames for an endpoint in the map
//! go to its socket; the kernel processes all others as usual.

use super::QUEUE;
use crate::ethernet::{ETHER_TYPE, HEADER_LEN};
use portolan_sys::bpf::Instruction;
use portolan_sys::net::MacAddr;

/// Operation codes (RFC 9669, section 3 onwards; include/uapi/linux/bpf.h).
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

/// Marks a constant as a map's descriptor (`BPF_PSEUDO_MAP_FD`).
const IS_MAP: u8 = 1;

/// Offsets in `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const RX_QUEUE: i16 = 16;

/// Offset of the end of our frames' header.
const BEHIND_HEADER: i32 = 18;
const _: () = assert!(HEADER_LEN == 18);

/// Verdict that leaves a frame to the kernel (`XDP_PASS`).
const PASS: i32 = 2;

/// Number of the function `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;

/// Number of instructions, and the first of the two that leave a frame to the kernel.
const LEN: usize = 24;
const LEAVE: i16 = 22;

/// Returns the program that redirects frames of our EtherType for `mac` by the endpoint in their
/// header. Frames of other queues are left to the kernel, because the sockets would refuse them.
pub(super) fn redirecting(mac: MacAddr, map: u32) -> [Instruction; LEN] {
    let [a, b, c, d, e, f] = mac.0;
    // Frames are at even addresses on all machines, and not better aligned on some.
    let [first, second, third] = [[a, b], [c, d], [e, f]].map(in_memory);
    let queue = i32::from(QUEUE);
    [
        op(LOAD_WORD, 2, 1, DATA, 0),
        op(LOAD_WORD, 3, 1, DATA_END, 0),
        op(LOAD_WORD, 4, 1, RX_QUEUE, 0),
        leave_unless(3, 4, queue),
        // Check that the whole header is present.
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

/// Returns the result of loading these two bytes on this machine.
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

/// Bit fields of C start at the low end on little-endian machines, at the high end otherwise.
fn registers(to: u8, from: u8) -> u8 {
    if cfg!(target_endian = "little") {
        from << 4 | to
    } else {
        to << 4 | from
    }
}

/// Returns an instruction at index `at` that jumps to the end unless a register has that value.
/// Offsets count from the next instruction.
fn leave_unless(at: i16, register: u8, value: i32) -> Instruction {
    op(JUMP_IF_NOT_CONSTANT, register, 0, LEAVE - at - 1, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_to_the_pass_verdict() {
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
