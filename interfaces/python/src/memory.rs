// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory that an object names by its address, for objects without the buffer protocol, or with
//! types that it does not have, such as tensors.

use pyo3::prelude::*;

/// `len` bytes of elements at `address`, which stay valid as long as `owner` exists. `format` is a
/// code of `struct`, or "bf16".
#[pyclass(frozen, module = "portolan")]
pub(crate) struct Memory {
    owner: Py<PyAny>,
    pub(crate) address: usize,
    pub(crate) len: usize,
    pub(crate) format: String,
    pub(crate) element_len: usize,
}

#[pymethods]
impl Memory {
    #[new]
    fn new(
        owner: Py<PyAny>,
        address: usize,
        len: usize,
        format: String,
        element_len: usize,
    ) -> Memory {
        Memory {
            owner,
            address,
            len,
            format,
            element_len,
        }
    }

    /// Object that keeps the memory valid.
    #[getter]
    fn owner(&self, py: Python<'_>) -> Py<PyAny> {
        self.owner.clone_ref(py)
    }

    /// Number of bytes.
    #[getter]
    fn len(&self) -> usize {
        self.len
    }
}
