// SPDX-License-Identifier: MIT OR Apache-2.0
//! Windows: arrays of all members of a group that each of them can put into and get from.

use crate::collective::Group;
use crate::error::{Closed, Failure};
use crate::node::Node;
use crate::request::Request;
use crate::shared::Shared;
use crate::view::{Element, View, with_number};
use parking_lot::Mutex;
use portolan::{Access, Error, ReduceOp, Registration, RemoteKey, RemoteTarget};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::Arc;

/// An array of each member of a group, exposed to all of them until `free`.
#[pyclass(frozen, module = "portolan")]
pub(crate) struct Window {
    shared: Arc<Shared>,
    group: portolan::Group,
    /// The exposed array, and its registration until `free`.
    array: Py<PyAny>,
    registration: Mutex<Option<Registration>>,
    keys: Vec<RemoteKey>,
    /// Bytes of the members' arrays.
    lens: Vec<u64>,
    element_len: usize,
    element: Option<Element>,
}

/// Registers memory and exchanges its key. Returns the keys and lengths of all members.
fn expose(
    node: &mut portolan::Node,
    group: &portolan::Group,
    memory: portolan::Buffer,
) -> Result<(Registration, Vec<u64>), Failure> {
    let len = memory.len() as u64;
    let access = Access {
        read: true,
        write: true,
    };
    let registration = node.register(memory, access)?;
    let size = group.size() as usize;
    let mut words = vec![0_u64; 2 * size];
    let own = group.rank() as usize;
    words[own] = u64::from_le_bytes(registration.key().to_bytes());
    words[size + own] = len;
    if let Err(error) = group.allreduce(node, ReduceOp::Max, &mut words) {
        node.deregister(registration);
        return Err(error.into());
    }
    Ok((registration, words))
}

impl Window {
    fn new(
        py: Python<'_>,
        node: &Node,
        group: &portolan::Group,
        array: Py<PyAny>,
    ) -> PyResult<Window> {
        let view = View::write(array.bind(py))?;
        let (element_len, element) = (view.element_len(), view.element().ok());
        let shared = Arc::clone(node.shared());
        let (registration, words) =
            shared.enter_detached(py, |node| expose(node, group, view.into_place()))?;
        let (keys, lens) = words.split_at(group.size() as usize);
        let key = |word: &u64| RemoteKey::from_bytes(word.to_le_bytes());
        Ok(Window {
            group: group.clone(),
            array,
            registration: Mutex::new(Some(registration)),
            keys: keys.iter().map(key).collect(),
            lens: lens.to_vec(),
            element_len,
            element,
            shared,
        })
    }

    fn target(&self, member: u32, index: u64) -> PyResult<RemoteTarget> {
        if self.registration.lock().is_none() {
            return Err(Closed::new_err("the window was freed"));
        }
        let Some(key) = self.keys.get(member as usize) else {
            let size = self.group.size();
            return Err(Failure::from(Error::NoSuchMember { member, size }).into());
        };
        let offset = index.saturating_mul(self.element_len as u64);
        let rank = self.group.ranks()[member as usize];
        Ok(RemoteTarget::new(rank, *key, offset))
    }
}

fn not_a_number() -> PyErr {
    PyTypeError::new_err(
        "atomic operations do not support the elements of this window; expose integers or floats of \
         32 or 64 bits",
    )
}

#[pymethods]
impl Window {
    /// The exposed array of this process.
    #[getter]
    fn array(&self, py: Python<'_>) -> Py<PyAny> {
        self.array.clone_ref(py)
    }

    /// Returns the number of elements of `member`.
    fn len_of(&self, member: u32) -> u64 {
        let len = self.lens.get(member as usize).copied().unwrap_or(0);
        len / self.element_len as u64
    }

    /// Puts `data` at element `index` of `member`. They are in place when this returns.
    #[pyo3(signature = (member, index, data))]
    fn put(
        &self,
        py: Python<'_>,
        member: u32,
        index: u64,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let request = self.iput(py, member, index, data)?;
        request.finish(py, None).map(drop)
    }

    /// Starts a put without waiting.
    fn iput(
        &self,
        py: Python<'_>,
        member: u32,
        index: u64,
        data: &Bound<'_, PyAny>,
    ) -> PyResult<Request> {
        let (to, view) = (self.target(member, index)?, View::read(data)?);
        Request::begin(&self.shared, py, |node| node.iput(to, view.into_source()))
    }

    /// Gets elements from `index` of `member` on into `buffer`.
    fn get(
        &self,
        py: Python<'_>,
        member: u32,
        index: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let request = self.iget(py, member, index, buffer)?;
        request.finish(py, None).map(drop)
    }

    /// Starts a get without waiting.
    fn iget(
        &self,
        py: Python<'_>,
        member: u32,
        index: u64,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<Request> {
        let (from, view) = (self.target(member, index)?, View::write(buffer)?);
        Request::begin(&self.shared, py, |node| node.iget(from, view.into_place()))
    }

    /// Adds `value` to element `index` of `member`, and returns the previous number.
    fn fetch_add(
        &self,
        py: Python<'_>,
        member: u32,
        index: u64,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let at = self.target(member, index)?;
        with_number!(self.element, T => {
            let value = value.extract::<T>()?;
            let before = self.shared.enter_detached(py, |node| Ok(node.fetch_add(at, value)?))?;
            Ok(before.into_pyobject(py)?.into_any().unbind())
        }, else Err(not_a_number()))
    }

    /// Replaces element `index` of `member` by `new` if it equals `expected`. Returns the previous
    /// number.
    fn compare_swap(
        &self,
        py: Python<'_>,
        member: u32,
        index: u64,
        expected: &Bound<'_, PyAny>,
        new: &Bound<'_, PyAny>,
    ) -> PyResult<Py<PyAny>> {
        let at = self.target(member, index)?;
        with_number!(self.element, T => {
            let (expected, new) = (expected.extract::<T>()?, new.extract::<T>()?);
            let swap = |node: &mut portolan::Node| Ok(node.compare_swap(at, expected, new)?);
            let before = self.shared.enter_detached(py, swap)?;
            Ok(before.into_pyobject(py)?.into_any().unbind())
        }, else Err(not_a_number()))
    }

    /// Waits until all members have called this. The array then belongs to the program alone.
    fn free(&self, py: Python<'_>) -> PyResult<()> {
        if self.registration.lock().is_none() {
            return Ok(());
        }
        self.shared.enter_detached(py, |node| {
            // A call that is refused does not get here, and can be repeated.
            let Some(registration) = self.registration.lock().take() else {
                return Ok(());
            };
            let all_done = self.group.barrier(node);
            drop(node.deregister(registration));
            Ok(all_done?)
        })
    }
}

#[pymethods]
impl Group {
    /// Exposes `array` to all members, which call this with arrays of the same type.
    fn window(&self, py: Python<'_>, array: Py<PyAny>) -> PyResult<Window> {
        Window::new(py, self.node().get(), self.library(), array)
    }
}

#[pymethods]
impl Node {
    /// Exposes `array` to all processes of the job, which call this with arrays of the same type.
    fn window(&self, py: Python<'_>, array: Py<PyAny>) -> PyResult<Window> {
        Window::new(py, self, self.everybody(), array)
    }
}
