// SPDX-License-Identifier: MIT OR Apache-2.0
//! What every link must do, as one suite.
//!
//! To put a link to the test, add to `tests/conformance.rs` a function that opens as many as it is
//! asked for, not yet connected:
//!
//! ```ignore
//! #[test]
//! fn my_link_conforms() {
//!     conformance::run("mine", &mut |count| (0..count).map(|_| boxed(Mine::open())).collect());
//! }
//! ```
//! The suite connects them: link 0 with each of the others, which need not reach one another. Where
//! links can share something (a host, an interface), the others should share it.
//!
//! Checks panic with the name of the link. Links that may lose frames are expected not to on the
//! quiet media of tests.

mod bench;
mod checks;
mod plans;

use crate::Link;

/// Opens that many links on one medium, not yet connected.
pub type Make<'a> = dyn FnMut(usize) -> Vec<Box<dyn Link>> + 'a;

/// Puts links to the test; each check gets new ones.
///
/// # Panics
/// When the link does not do what it must.
pub fn run(name: &str, make: &mut Make<'_>) {
    for (check, test) in checks::ALL {
        println!("{name}: {check}");
        test(&mut bench::Bench::new(format!("{name}: {check}"), make));
    }
}
