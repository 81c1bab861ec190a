// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fuzz harnesses: each accepts arbitrary bytes and must return.
//!
//! `fuzz/` runs them under libFuzzer with the address sanitizer (`make fuzz`). The tests of this
//! crate replay its corpus, and mutations of it, with the ordinary compiler. A harness asserts only
//! what must hold for any input.

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

/// Harness with its name, which is also the name of its corpus.
pub type Target = (&'static str, fn(&[u8]));

/// All harnesses.
pub const TARGETS: [Target; 7] = [
    ("parser", parser),
    ("core", core_ops),
    ("ring", ring),
    ("launcher", launcher),
    ("endpoint", endpoint),
    ("c", c_calls),
    ("broker", broker),
];
