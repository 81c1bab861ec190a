// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of Python objects, by the buffer protocol or as [`Memory`].
#![allow(unsafe_code, reason = "the buffer protocol gives memory by address")]

use crate::memory::Memory;
use portolan::Buffer;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use std::ptr::{self, NonNull};
use std::slice;

/// Memory of an object, which cannot be freed or resized while this exists.
pub(crate) enum View {
    Exported(PyUntypedBuffer),
    Named(Py<Memory>),
}

/// Type of numbers that reductions support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    Bf16,
    F32,
    F64,
}

/// Calls a generic function with the Rust type of an [`Element`].
macro_rules! with_element {
    ($element:expr, $name:ident => $call:expr) => {
        match $element {
            $crate::view::Element::I8 => {
                type $name = i8;
                $call
            }
            $crate::view::Element::I16 => {
                type $name = i16;
                $call
            }
            $crate::view::Element::I32 => {
                type $name = i32;
                $call
            }
            $crate::view::Element::I64 => {
                type $name = i64;
                $call
            }
            $crate::view::Element::U8 => {
                type $name = u8;
                $call
            }
            $crate::view::Element::U16 => {
                type $name = u16;
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
            $crate::view::Element::F16 => {
                type $name = portolan::F16;
                $call
            }
            $crate::view::Element::Bf16 => {
                type $name = portolan::Bf16;
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

/// Calls a generic function like `with_element`, for the types with atomic operations.
macro_rules! with_number {
    ($element:expr, $name:ident => $call:expr, else $otherwise:expr) => {
        match $element {
            Some($crate::view::Element::I32) => {
                type $name = i32;
                $call
            }
            Some($crate::view::Element::I64) => {
                type $name = i64;
                $call
            }
            Some($crate::view::Element::U32) => {
                type $name = u32;
                $call
            }
            Some($crate::view::Element::U64) => {
                type $name = u64;
                $call
            }
            Some($crate::view::Element::F32) => {
                type $name = f32;
                $call
            }
            Some($crate::view::Element::F64) => {
                type $name = f64;
                $call
            }
            _ => $otherwise,
        }
    };
}
pub(crate) use with_number;

impl View {
    /// Returns the memory of `object` for reading.
    pub(crate) fn read(object: &Bound<'_, PyAny>) -> PyResult<View> {
        if let Ok(memory) = object.cast::<Memory>() {
            return Ok(View::Named(memory.clone().unbind()));
        }
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(
                "the memory of the object is not contiguous; pass a copy, such as \
                 numpy.ascontiguousarray(a)",
            ));
        }
        Ok(View::Exported(buffer))
    }

    /// Returns the memory of `object` for writing.
    pub(crate) fn write(object: &Bound<'_, PyAny>) -> PyResult<View> {
        let view = View::read(object)?;
        if let View::Exported(buffer) = &view
            && buffer.readonly()
        {
            return Err(PyBufferError::new_err(
                "the memory of the object is read-only; pass a bytearray or an array",
            ));
        }
        Ok(view)
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            View::Exported(buffer) => buffer.len_bytes(),
            View::Named(memory) => memory.get().len,
        }
    }

    /// Returns the length of an element in bytes.
    pub(crate) fn element_len(&self) -> usize {
        match self {
            View::Exported(buffer) => buffer.item_size().max(1),
            View::Named(memory) => memory.get().element_len.max(1),
        }
    }

    /// Returns the format of the elements, as `struct` and `memoryview` write it.
    pub(crate) fn format(&self) -> String {
        match self {
            View::Exported(buffer) => buffer.format().to_string_lossy().into_owned(),
            View::Named(memory) => memory.get().format.clone(),
        }
    }

    /// Returns the type of the elements.
    pub(crate) fn element(&self) -> PyResult<Element> {
        let found = match self {
            View::Exported(buffer) => element_of(buffer.format().to_bytes(), buffer.item_size()),
            View::Named(memory) => {
                let memory = memory.get();
                element_of(memory.format.as_bytes(), memory.element_len)
            }
        };
        found.ok_or_else(|| {
            PyTypeError::new_err(format!(
                "reductions do not support elements of format '{}'; use integers or floats",
                self.format()
            ))
        })
    }

    fn at(&self) -> *mut u8 {
        match self.len() {
            0 => NonNull::dangling().as_ptr(),
            _ => match self {
                View::Exported(buffer) => buffer.buf_ptr().cast(),
                View::Named(memory) => ptr::with_exposed_provenance_mut(memory.get().address),
            },
        }
    }

    /// Returns the bytes. Python programs must not write to them during the call, as for any
    /// function that releases Python's lock.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the object has `len` bytes at this address until `self` is dropped.
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

/// Returns the type of elements with a format of `struct`.
fn element_of(format: &[u8], len: usize) -> Option<Element> {
    let code = match format {
        [b'@' | b'=' | b'<', code @ ..] => code,
        code => code,
    };
    Some(match (code, len) {
        (b"b", 1) => Element::I8,
        (b"h", 2) => Element::I16,
        (b"i" | b"l" | b"q", 4) => Element::I32,
        (b"i" | b"l" | b"q", 8) => Element::I64,
        (b"B", 1) => Element::U8,
        (b"H", 2) => Element::U16,
        (b"I" | b"L" | b"Q", 4) => Element::U32,
        (b"I" | b"L" | b"Q", 8) => Element::U64,
        (b"e", 2) => Element::F16,
        (b"bf16", 2) => Element::Bf16,
        (b"f", 4) => Element::F32,
        (b"d", 8) => Element::F64,
        _ => return None,
    })
}
