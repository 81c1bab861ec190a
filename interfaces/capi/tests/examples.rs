// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the examples in C do what they document.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{SANITIZERS, STRICT, Workshop, here, run_job};
use std::path::PathBuf;

fn example(shop: &Workshop, name: &str) -> PathBuf {
    let source = here().join("../../examples/c").join(name);
    let flags = [
        "-std=c11",
        "-O1",
        "-g",
        "-D_GNU_SOURCE",
        "-ffp-contract=off",
    ];
    shop.build("cc", &source, &[&flags[..], SANITIZERS, STRICT].concat())
}

#[test]
fn ping_pong_prints_half_a_round_trip() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let program = example(&shop, "pingpong.c");
    for len in ["0", "64"] {
        let out = run_job(2, &[], &program, &[len, "1000"]);
        let printed = out.trim().strip_prefix(&format!("{len} bytes: ")).unwrap();
        let us: f64 = printed.strip_suffix(" µs").unwrap().parse().unwrap();
        assert!(us > 0.0, "{out}");
    }
}

#[test]
fn heat_equals_the_sequential_solution() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let program = example(&shop, "heat.c");
    let image = shop.path().join("field.pgm");
    let mut bytes = b"P5\n# 40 by 31\n40 31\n255\n".to_vec();
    bytes.extend((0..40 * 31_u32).map(|i| (i * i % 251) as u8));
    std::fs::write(&image, bytes).unwrap();
    for count in [1, 3] {
        let out = run_job(count, &[], &program, &[image.to_str().unwrap(), "50"]);
        let expected = format!("50 steps by {count} processes equal the sequential solution\n");
        assert_eq!(out, expected);
    }
}

#[test]
fn operations_on_blocks_are_right() {
    let shop = Workshop::new("portolan", "libportolan_c.so");
    let program = example(&shop, "collectives.c");
    for (count, path) in [(1, "shm"), (3, "shm"), (4, "udp")] {
        let out = run_job(count, &["--path", path], &program, &[]);
        assert_eq!(out, "all operations on blocks are right\n");
    }
}
