// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of pages that are exposed to a plain stream of bytes, and changed as early as the rules of
//! `portolan_sys::net::ZeroCopyWriter` allow, while frames are lost and retransmitted. The receiver
//! must get the original bytes.

use crate::common::can_make_labs;
use crate::common::labs::Lab;
use crate::common::payload::{check, payload};
use portolan_sys::net::{DirectReader, ZeroCopyWriter};
use std::io::{Read, Write};
use std::sync::mpsc;
use std::thread::{spawn, yield_now};

/// Bytes of a write: several times the amount exposed at once.
const LEN: usize = 400_000;

const AT_ONCE: usize = 128 << 10;

/// Bytes that a receiving socket accepts before its program reads.
const SHORT_LEN: usize = 40_000;

const ROUNDS: u32 = 60;

/// L2 on one machine, where the receiver's kernel holds the same pages until its program reads.
#[test]
fn pages_may_change_when_the_peer_s_program_has_said_that_it_has_them() {
    if !can_make_labs() {
        return;
    }
    for link in ["loss=1%", "delay=200us,loss=1%"] {
        let lab = Lab::up_with("word", &["--link", link]);
        let (mut near, mut far) = lab.connect();
        let reader = spawn(move || {
            let mut reader = DirectReader::<0>::default();
            let mut got = vec![0xa5; LEN];
            for round in 0..ROUNDS {
                reader.read_exact(&far, &mut got).unwrap();
                check(&got, 0, 1, round, LEN);
                far.write_all(b"y").unwrap();
            }
        });
        let mut writer = ZeroCopyWriter::new(AT_ONCE);
        let mut pages = vec![0; LEN];
        let mut word = [0];
        for round in 0..ROUNDS {
            pages.copy_from_slice(&payload(0, 1, round, LEN));
            writer.write_all(&near, &pages).unwrap();
            near.read_exact(&mut word).unwrap();
            pages.fill(0xee);
        }
        reader.join().unwrap();
    }
}

/// L3 over a wire that copies, as between machines: the line.
#[test]
fn over_a_wire_pages_may_change_when_the_peer_s_tcp_has_acknowledged_them() {
    if !can_make_labs() {
        return;
    }
    for link in ["delay=200us,by=line", "delay=200us,by=line,loss=1%"] {
        let lab = Lab::up_with("acknowledged", &["--link", link]);
        let (near, far) = lab.connect();
        let (changed, may_read) = mpsc::channel();
        let (read, may_go_on) = mpsc::channel();
        let reader = spawn(move || {
            let mut reader = DirectReader::<0>::default();
            let mut got = vec![0xa5; SHORT_LEN];
            for round in may_read {
                reader.read_exact(&far, &mut got).unwrap();
                check(&got, 0, 2, round, SHORT_LEN);
                read.send(()).unwrap();
            }
        });
        let mut writer = ZeroCopyWriter::new(AT_ONCE);
        let mut pages = vec![0; SHORT_LEN];
        for round in 0..ROUNDS {
            pages.copy_from_slice(&payload(0, 2, round, SHORT_LEN));
            writer.write_all(&near, &pages).unwrap();
            while writer.acknowledged(&near).unwrap() < writer.accepted_len() {
                yield_now();
            }
            pages.fill(0xee);
            changed.send(round).unwrap();
            may_go_on.recv().unwrap();
        }
        drop(changed);
        reader.join().unwrap();
    }
}
