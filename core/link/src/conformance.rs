// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conformance suite for all links.
//!
//! To test a link, add to `tests/conformance.rs` a function that opens the requested number of
//! links, not yet connected:
//!
//! ```ignore
//! #[test]
//! fn my_link_conforms() {
//!     conformance::run("mine", &mut |count| (0..count).map(|_| boxed(Mine::open())).collect());
//! }
//! ```
//! The suite connects link 0 with each other link; these need not reach each other. If links can
//! share a host or an interface, those other links should share it.
//!
//! Failed checks panic with the name of the link. Links that may lose frames are expected to lose
//! none on the quiet media of tests.

mod bench;
mod checks;
mod plans;

use crate::Link;

/// Function that opens that many links on one medium, not yet connected.
pub type Make<'a> = dyn FnMut(usize) -> Vec<Box<dyn Link>> + 'a;

/// Runs all checks; each check gets new links.
///
/// # Panics
/// Panics if the link violates a requirement.
pub fn run(name: &str, make: &mut Make<'_>) {
    for (check, test) in checks::ALL {
        println!("{name}: {check}");
        test(&mut bench::Bench::new(format!("{name}: {check}"), make));
    }
}
