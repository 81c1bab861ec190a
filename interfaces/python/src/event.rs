// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waiting in an event loop; `portolan.aio` does it for asyncio.

use crate::node::Node;
use pyo3::prelude::*;
use std::os::fd::AsRawFd;

#[pymethods]
impl Node {
    /// Returns the descriptor that becomes readable when there is work. Call `arm` before each wait
    /// and `disarm` after it.
    fn event_fd(&self, py: Python<'_>) -> PyResult<i32> {
        self.shared()
            .enter(py, |node| Ok(node.event_fd()?.as_raw_fd()))
    }

    /// Makes the descriptor readable as soon as there is work. Returns False if there is work
    /// already.
    fn arm(&self, py: Python<'_>) -> PyResult<bool> {
        self.shared().enter(py, |node| Ok(node.arm()?))
    }

    /// Reverts `arm`, and handles what is due.
    fn disarm(&self, py: Python<'_>) -> PyResult<()> {
        self.shared().enter(py, |node| {
            node.disarm();
            Ok(())
        })
    }

    /// Receives and sends what is ready, runs handlers, and returns the number of frames that moved.
    fn progress(&self, py: Python<'_>) -> PyResult<usize> {
        let moved = self.shared().enter(py, |node| Ok(node.progress()?))?;
        self.shared().raised().check()?;
        Ok(moved)
    }
}
