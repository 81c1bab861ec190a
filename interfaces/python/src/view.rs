// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of Python objects, by the buffer protocol.
#![allow(unsafe_code, reason = "the buffer protocol gives memory by address")]

use portolan::Buffer;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use std::ptr::NonNull;
use std::slice;

/// Memory of an object, which cannot be freed or resized while this exists.
pub(crate) struct View(PyUntypedBuffer);

/// Type of numbers that reductions support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    I32,
    I64,
    U32,
    U64,
    F32,
    F64,
}

/// Calls a generic function with the Rust type of an [`Element`].
macro_rules! with_element {
    ($element:expr, $name:ident => $call:expr) => {
        match $element {
            $crate::view::Element::I32 => {
                type $name = i32;
                $call
            }
            $crate::view::Element::I64 => {
                type $name = i64;
                $call
            }
            $crate::view::Element::U32 => {
                type $name = u32;
                $call
            }
            $crate::view::Element::U64 => {
                type $name = u64;
                $call
            }
            $crate::view::Element::F32 => {
                type $name = f32;
                $call
            }
            $crate::view::Element::F64 => {
                type $name = f64;
                $call
            }
        }
    };
}
pub(crate) use with_element;

impl View {
    /// Returns the memory of `object` for reading.
    pub(crate) fn read(object: &Bound<'_, PyAny>) -> PyResult<View> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(
                "the memory of the object is not contiguous; pass a copy, such as \
                 numpy.ascontiguousarray(a)",
            ));
        }
        Ok(View(buffer))
    }

    /// Returns the memory of `object` for writing.
    pub(crate) fn write(object: &Bound<'_, PyAny>) -> PyResult<View> {
        let view = View::read(object)?;
        if view.0.readonly() {
            return Err(PyBufferError::new_err(
                "the memory of the object is read-only; pass a bytearray or an array",
            ));
        }
        Ok(view)
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len_bytes()
    }

    /// Returns the length of an element in bytes.
    pub(crate) fn element_len(&self) -> usize {
        self.0.item_size().max(1)
    }

    /// Returns the format of the elements, as `struct` and `memoryview` write it.
    pub(crate) fn format(&self) -> String {
        self.0.format().to_string_lossy().into_owned()
    }

    /// Returns the type of the elements.
    pub(crate) fn element(&self) -> PyResult<Element> {
        let format = self.0.format().to_bytes();
        let is_native = |byte: &&u8| !matches!(byte, b'@' | b'=' | b'<');
        let code: Vec<u8> = format.iter().filter(is_native).copied().collect();
        let found = match (code.as_slice(), self.0.item_size()) {
            (b"i" | b"l" | b"q", 4) => Some(Element::I32),
            (b"i" | b"l" | b"q", 8) => Some(Element::I64),
            (b"I" | b"L" | b"Q", 4) => Some(Element::U32),
            (b"I" | b"L" | b"Q", 8) => Some(Element::U64),
            (b"f", 4) => Some(Element::F32),
            (b"d", 8) => Some(Element::F64),
            _ => None,
        };
        found.ok_or_else(|| {
            PyTypeError::new_err(format!(
                "elements of format '{}' have no reductions; use integers or floats of 32 or 64 bits",
                String::from_utf8_lossy(format)
            ))
        })
    }

    fn at(&self) -> *mut u8 {
        match self.len() {
            0 => NonNull::dangling().as_ptr(),
            _ => self.0.buf_ptr().cast(),
        }
    }

    /// Returns the bytes. Python programs must not write to them during the call, as for any
    /// function that releases Python's lock.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the object exports `len` bytes at this address until `self` is dropped.
        unsafe { slice::from_raw_parts(self.at(), self.len()) }
    }

    /// Returns the bytes of a view from [`View::write`], for writing.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; the memory is writable, and the library is its only user during
        // the call.
        unsafe { slice::from_raw_parts_mut(self.at(), self.len()) }
    }

    /// Converts the view to a buffer to send from. The object stays exported until the library has
    /// dropped the buffer.
    pub(crate) fn into_source(self) -> Buffer {
        let (at, len) = (self.at(), self.len());
        // SAFETY: the closure owns the view, which keeps the memory valid until it runs. Programs
        // must not change it, which Python cannot enforce; a change alters sent bytes only.
        unsafe { Buffer::from_raw_released(at, len, move || drop(self)) }
    }

    /// Converts a view from [`View::write`] to a buffer to receive into, like
    /// [`View::into_source`].
    pub(crate) fn into_place(self) -> Buffer {
        let (at, len) = (self.at(), self.len());
        // SAFETY: as in `into_source`; the memory is writable.
        unsafe { Buffer::from_raw_mut_released(at, len, move || drop(self)) }
    }
}
