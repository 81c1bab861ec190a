// SPDX-License-Identifier: MIT OR Apache-2.0
//! Socket filter that selects the frames of a process.

use super::{ENDPOINT_ALL, ETHER_TYPE};
use libc::{
    BPF_ABS, BPF_B, BPF_H, BPF_JEQ, BPF_JGT, BPF_JMP, BPF_K, BPF_LD, BPF_MISC, BPF_RET, BPF_TAX,
    BPF_TXA, BPF_W,
};
use portolan_sys::net::{FilterOp, MacAddr};

/// Instruction numbers of the verdicts.
const ACCEPT: u8 = 15;
const REFUSE: u8 = 16;

/// Accepts frames of our EtherType for this host that are addressed to this process or to all.
/// Refuses the process's own broadcasts, which a loopback interface returns.
///
/// A load beyond the end of a frame refuses it, so the load of the source endpoint excludes frames
/// shorter than their headers.
pub(super) fn accepting(endpoint: u16, mac: MacAddr) -> [FilterOp; 17] {
    let [a, b, c, d, e, f] = mac.0;
    let mac_high = u32::from(u16::from_be_bytes([a, b]));
    let mac_low = u32::from_be_bytes([c, d, e, f]);
    let own = u32::from(endpoint);
    [
        // Frames for other hosts arrive if the interface is in promiscuous mode.
        op(BPF_LD | BPF_B | BPF_ABS, PACKET_TYPE),
        jump(1, BPF_JGT, PACKET_MULTICAST, REFUSE, 2),
        op(BPF_LD | BPF_H | BPF_ABS, 12),
        jump(3, BPF_JEQ, u32::from(ETHER_TYPE), 4, REFUSE),
        op(BPF_LD | BPF_H | BPF_ABS, 16),
        op(BPF_MISC | BPF_TAX, 0),
        op(BPF_LD | BPF_H | BPF_ABS, 14),
        jump(7, BPF_JEQ, own, ACCEPT, 8),
        jump(8, BPF_JEQ, u32::from(ENDPOINT_ALL), 9, REFUSE),
        // Broadcast: refused only if the complete source is this process.
        op(BPF_MISC | BPF_TXA, 0),
        jump(10, BPF_JEQ, own, 11, ACCEPT),
        op(BPF_LD | BPF_H | BPF_ABS, 6),
        jump(12, BPF_JEQ, mac_high, 13, ACCEPT),
        op(BPF_LD | BPF_W | BPF_ABS, 8),
        jump(14, BPF_JEQ, mac_low, REFUSE, ACCEPT),
        op(BPF_RET | BPF_K, u32::MAX),
        op(BPF_RET | BPF_K, 0),
    ]
}

/// Accepts frames of our EtherType for exactly this address and endpoint. Unlike [`accepting`], it
/// does not trust the owner of the socket, which may change the interface or bind the socket to all
/// EtherTypes, which would receive what the host sends.
pub(super) fn only_own(endpoint: u16, mac: MacAddr) -> [FilterOp; 13] {
    const ACCEPT: u8 = 11;
    const REFUSE: u8 = 12;
    let [a, b, c, d, e, f] = mac.0;
    let mac_high = u32::from(u16::from_be_bytes([a, b]));
    let mac_low = u32::from_be_bytes([c, d, e, f]);
    [
        op(BPF_LD | BPF_B | BPF_ABS, PACKET_TYPE),
        jump(1, BPF_JEQ, PACKET_HOST, 2, REFUSE),
        op(BPF_LD | BPF_H | BPF_ABS, 12),
        jump(3, BPF_JEQ, u32::from(ETHER_TYPE), 4, REFUSE),
        op(BPF_LD | BPF_H | BPF_ABS, 0),
        jump(5, BPF_JEQ, mac_high, 6, REFUSE),
        op(BPF_LD | BPF_W | BPF_ABS, 2),
        jump(7, BPF_JEQ, mac_low, 8, REFUSE),
        // A load beyond the end refuses, so the frame has a complete header.
        op(BPF_LD | BPF_H | BPF_ABS, 16),
        op(BPF_LD | BPF_H | BPF_ABS, 14),
        jump(10, BPF_JEQ, u32::from(endpoint), ACCEPT, REFUSE),
        op(BPF_RET | BPF_K, u32::MAX),
        op(BPF_RET | BPF_K, 0),
    ]
}

/// Offset at which a program loads the packet's type instead of a byte.
const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE).cast_unsigned();

/// Largest packet type for this host: 0 is its own address, 1 broadcast, 2 multicast
/// (include/uapi/linux/if_packet.h).
const PACKET_MULTICAST: u32 = 2;
const PACKET_HOST: u32 = 0;

#[allow(
    clippy::cast_possible_truncation,
    reason = "operation codes have eight bits"
)]
fn op(code: u32, k: u32) -> FilterOp {
    FilterOp {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

/// Returns a jump at instruction `at` to `yes` or `no`; offsets count from the next instruction.
fn jump(at: u8, test: u32, k: u32, yes: u8, no: u8) -> FilterOp {
    FilterOp {
        jt: yes - at - 1,
        jf: no - at - 1,
        ..op(BPF_JMP | test | BPF_K, k)
    }
}

#[cfg(test)]
mod tests {
    use super::super::header;
    use super::*;
    use portolan_sys::net::attach_filter;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixDatagram;

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const OTHER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
    const ALL: MacAddr = MacAddr([0xff; 6]);

    /// Returns `true` if the kernel passes `frame` to endpoint 7.
    fn accepted(frame: &[u8]) -> bool {
        passes(&accepting(7, OWN), frame)
    }

    /// Returns `true` if the kernel passes `frame`. Unix sockets run filters too, and need no
    /// privilege.
    fn passes(program: &[FilterOp], frame: &[u8]) -> bool {
        let (a, b) = UnixDatagram::pair().unwrap();
        attach_filter(b.as_fd(), program).unwrap();
        b.set_nonblocking(true).unwrap();
        // Some kernels report a refusal to the sender and some do not.
        let _ = a.send(frame);
        b.recv(&mut [0; 64]).is_ok_and(|len| len == frame.len())
    }

    #[test]
    fn own_frames_and_broadcasts_pass() {
        assert!(accepted(&header(OTHER, 9, OWN, 7)));
        assert!(accepted(&header(OTHER, 7, OWN, 7)));
        assert!(accepted(&header(OTHER, 9, ALL, ENDPOINT_ALL)));
    }

    #[test]
    fn own_broadcast_is_refused() {
        assert!(!accepted(&header(OWN, 7, ALL, ENDPOINT_ALL)));
        assert!(accepted(&header(OWN, 8, ALL, ENDPOINT_ALL)));
        assert!(accepted(&header(OTHER, 7, ALL, ENDPOINT_ALL)));
        let near = MacAddr([3, 0, 0, 0, 0, 1]);
        assert!(accepted(&header(near, 7, ALL, ENDPOINT_ALL)));
    }

    #[test]
    fn foreign_and_short_frames_are_refused() {
        assert!(!accepted(&header(OTHER, 9, OWN, 8)));
        let mut ip = header(OTHER, 9, OWN, 7);
        ip[12..14].copy_from_slice(&[0x08, 0x00]);
        assert!(!accepted(&ip));
        assert!(!accepted(&header(OTHER, 9, OWN, 7)[..17]));
        assert!(!accepted(&[0x88]));
    }

    #[test]
    fn leased_socket_receives_only_its_own_frames() {
        let passes = |frame: &[u8]| passes(&only_own(7, OWN), frame);
        let own = header(OTHER, 9, OWN, 7);
        assert!(passes(&own));
        assert!(!passes(&own[..17]));
        assert!(!passes(&header(OTHER, 7, OWN, 8)));
        assert!(!passes(&header(OTHER, 7, OTHER, 7)));
        assert!(!passes(&header(OTHER, 7, MacAddr([3, 0, 0, 0, 0, 1]), 7)));
        assert!(!passes(&header(OTHER, 9, ALL, ENDPOINT_ALL)));
        assert!(!passes(&header(OTHER, 9, ALL, 7)));
        let mut ip = own;
        ip[12..14].copy_from_slice(&[0x08, 0x00]);
        assert!(!passes(&ip));
    }
}
