// SPDX-License-Identifier: MIT OR Apache-2.0
//! Harnesses: each takes any bytes at all and must come back, whatever they are.
//!
//! `fuzz/` runs them under libFuzzer with the address sanitizer (`make fuzz`); the tests of this
//! crate replay its corpus, and mutations of it, with the ordinary compiler. A harness asserts what
//! must hold for any input, and nothing about inputs that make sense.

mod broker;
mod c_calls;
mod core_ops;
mod endpoint;
mod input;
mod launcher;
mod parser;
mod ring;

pub use broker::broker;
pub use c_calls::c_calls;
pub use core_ops::core_ops;
pub use endpoint::endpoint;
pub use launcher::launcher;
pub use parser::parser;
pub use ring::ring;

/// A harness and its name, which is that of its corpus.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 7] = [
    ("parser", parser),
    ("core", core_ops),
    ("ring", ring),
    ("launcher", launcher),
    ("endpoint", endpoint),
    ("c", c_calls),
    ("broker", broker),
];
