// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Python package `portolan`: the module `portolan._portolan`, which the package re-exports.
//!
//! Python's lock is released while a call waits. Memory of Python objects is sent and received in
//! place: an object stays exported, and so cannot be resized, until the library has dropped the
//! buffer that refers to it. The one invariant: no thread waits for a node while it holds Python's
//! lock.

mod call;
mod collective;
mod error;
mod event;
mod handler;
mod memory;
mod message;
mod node;
mod request;
mod shared;
mod standalone;
mod status;
mod store;
mod view;
mod watch;
mod window;

use pyo3::prelude::*;

/// The module `portolan._portolan`.
#[pymodule]
fn _portolan(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<node::Node>()?;
    module.add_class::<request::Request>()?;
    module.add_class::<status::Status>()?;
    module.add_class::<collective::Group>()?;
    module.add_class::<window::Window>()?;
    module.add_class::<memory::Memory>()?;
    module.add_class::<call::Call>()?;
    module.add_class::<standalone::Connecting>()?;
    error::add(module)
}
