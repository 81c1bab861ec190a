// SPDX-License-Identifier: MIT OR Apache-2.0
//! A Python object with `set` and `get`, such as a store of PyTorch, as the key-value space through
//! which processes join a job.

use portolan::binding::launch::{LaunchError, Space};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Longest value, in bytes. Stores have no limit that matters.
const VALUE_LEN_MAX: usize = 1 << 20;

/// A store that all processes of the job have in common. Its `get` waits for a value.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) store: Py<PyAny>,
    pub(crate) rank: u32,
    pub(crate) size: u32,
}

impl Store {
    fn call<R>(
        &self,
        call: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<R>,
    ) -> Result<R, LaunchError> {
        let called = Python::attach(|py| call(self.store.bind(py)));
        called.map_err(|error| LaunchError::Foreign {
            launcher: self.launcher(),
            what: format!(
                "{error}; check that all {} processes are running",
                self.size
            ),
        })
    }
}

impl Space for Store {
    fn launcher(&self) -> &'static str {
        "a shared store"
    }

    fn job_name(&self) -> String {
        String::new()
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn value_len_max(&self) -> usize {
        VALUE_LEN_MAX
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError> {
        self.call(|store| store.call_method1("set", (key, value)).map(drop))
    }

    /// Does nothing, because `get` waits.
    fn fence(&mut self) -> Result<(), LaunchError> {
        Ok(())
    }

    fn get(&mut self, _: u32, key: &str) -> Result<String, LaunchError> {
        self.call(|store| {
            let value = store.call_method1("get", (key,))?;
            match value.cast::<PyBytes>() {
                Ok(bytes) => Ok(String::from_utf8_lossy(bytes.as_bytes()).into_owned()),
                Err(_) => value.extract(),
            }
        })
    }

    fn bye(&mut self) {}

    /// Does nothing: the caller exits, which its launcher notices.
    fn abort(&mut self, _: i32, _: &str) {}
}
