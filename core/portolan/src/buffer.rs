// SPDX-License-Identifier: MIT OR Apache-2.0
//! Buffers of non-blocking operations. The library owns a buffer while its operation is pending and
//! returns it with the completion.
#![allow(
    unsafe_code,
    reason = "programs in other languages pass memory by address"
)]

use crate::error::Error;
use crate::pool::PooledBuf;
use crate::region::Region;
use bytemuck::Pod;
use portolan_sys::memory;
use portolan_sys::shortage::Shortage;
use std::any::{Any, TypeId};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// Memory for a non-blocking send or a posted receive.
///
/// A `Vec<u8>` or a [`Region`] belongs to one operation at a time. An `Arc<[u8]>`, or the result of
/// [`Buffer::shared`] or [`Buffer::shared_region`], may be in several sends at once, and cannot be
/// received into. [`Buffer::typed`] makes one of numbers or other plain data.
#[derive(Clone, Debug)]
pub struct Buffer(Kind);

#[derive(Debug)]
enum Kind {
    Owned(PooledBuf),
    Region(Region),
    Shared(Arc<[u8]>),
    /// A received vector that is passed on without a copy.
    SharedVec(Arc<Vec<u8>>),
    SharedRegion(Arc<Region>),
    /// Elements of a type other than `u8`, or memory with a function that releases it.
    Typed(Box<dyn Elements>),
    /// Memory of the program, by address.
    Foreign(Foreign),
}

/// A vector of plain data.
trait Elements: Any + fmt::Debug + Send + Sync {
    fn bytes(&self) -> &[u8];
    /// Returns the bytes for writing; `None` if they can only be read.
    fn bytes_mut(&mut self) -> Option<&mut [u8]>;
    fn copied(&self) -> Box<dyn Elements>;
    fn element_type(&self) -> TypeId;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: Pod + fmt::Debug + Send + Sync> Elements for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        Some(bytemuck::cast_slice_mut(self))
    }

    fn copied(&self) -> Box<dyn Elements> {
        Box::new(self.clone())
    }

    fn element_type(&self) -> TypeId {
        TypeId::of::<T>()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Memory of another language that a function releases.
struct Released<F: FnOnce()> {
    memory: Foreign,
    release: Option<F>,
}

impl<F: FnOnce()> fmt::Debug for Released<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory.fmt(f)
    }
}

impl<F: FnOnce()> Drop for Released<F> {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

impl<F: FnOnce() + Send + Sync + 'static> Elements for Released<F> {
    fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.memory.bytes_mut()
    }

    fn copied(&self) -> Box<dyn Elements> {
        Box::new(self.memory.bytes().to_vec())
    }

    fn element_type(&self) -> TypeId {
        TypeId::of::<()>()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[derive(Clone, Copy, Debug)]
struct Foreign {
    at: *mut u8,
    len: usize,
    writable: bool,
}

// SAFETY: the caller of `from_raw` or `from_raw_mut` guarantees that the memory belongs to the
// buffer, on any thread, until the buffer is dropped. It is reached only through the buffer, by the
// ordinary rules of references.
unsafe impl Send for Foreign {}
// SAFETY: as above; `&Foreign` only allows reads.
unsafe impl Sync for Foreign {}

impl Foreign {
    #[inline]
    fn bytes(&self) -> &[u8] {
        // SAFETY: `Buffer::from_raw`'s caller keeps the memory valid while the buffer exists.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }

    fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        // SAFETY: the caller of `Buffer::from_raw_mut` passed the bytes for writing; `&mut self`
        // keeps this the only access.
        self.writable
            .then(|| unsafe { std::slice::from_raw_parts_mut(self.at, self.len) })
    }
}

impl Buffer {
    /// Wraps memory of another language, to send from.
    ///
    /// # Safety
    /// The `len` bytes at `at` must be initialised, and must not move or change until the buffer is
    /// dropped, which an operation may delay. `at` is not null, even when `len` is 0.
    ///
    /// # Examples
    /// See [`crate::Node::scope`].
    #[must_use]
    pub unsafe fn from_raw(at: *const u8, len: usize) -> Buffer {
        Buffer(Kind::Foreign(Foreign {
            at: at.cast_mut(),
            len,
            writable: false,
        }))
    }

    /// Wraps memory of another language, to send from. `release` runs when the buffer is dropped.
    ///
    /// # Safety
    /// Same as [`Buffer::from_raw`], until `release` runs.
    ///
    /// # Examples
    /// See [`crate::Node::scope`].
    #[must_use]
    pub unsafe fn from_raw_released(
        at: *const u8,
        len: usize,
        release: impl FnOnce() + Send + Sync + 'static,
    ) -> Buffer {
        let memory = Foreign {
            at: at.cast_mut(),
            len,
            writable: false,
        };
        Buffer(Kind::Typed(Box::new(Released {
            memory,
            release: Some(release),
        })))
    }

    /// Wraps memory of another language, to receive into.
    ///
    /// # Safety
    /// Same as [`Buffer::from_raw`]. The bytes must not be used otherwise until the buffer is
    /// dropped.
    ///
    /// # Examples
    /// See [`crate::Node::scope`].
    #[must_use]
    pub unsafe fn from_raw_mut(at: *mut u8, len: usize) -> Buffer {
        Buffer(Kind::Foreign(Foreign {
            at,
            len,
            writable: true,
        }))
    }

    /// Wraps memory of another language, to receive into. `release` runs when the buffer is
    /// dropped.
    ///
    /// # Safety
    /// Same as [`Buffer::from_raw_mut`], until `release` runs.
    ///
    /// # Examples
    /// See [`crate::Node::scope`].
    #[must_use]
    pub unsafe fn from_raw_mut_released(
        at: *mut u8,
        len: usize,
        release: impl FnOnce() + Send + Sync + 'static,
    ) -> Buffer {
        let memory = Foreign {
            at,
            len,
            writable: true,
        };
        Buffer(Kind::Typed(Box::new(Released {
            memory,
            release: Some(release),
        })))
    }

    /// Wraps a vector that may be in several sends at once, such as a received one that is passed
    /// on.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let bytes = std::sync::Arc::new(vec![1; 1000]);
    /// let requests = [1, 2].map(|_| node.isend(own, Buffer::shared(bytes.clone())));
    /// # for request in requests { node.recv(7, &mut [0; 1000])?; node.wait(request?)?; }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn shared(bytes: Arc<Vec<u8>>) -> Buffer {
        Buffer(Kind::SharedVec(bytes))
    }

    /// Wraps a vector of numbers or other plain data without a copy. [`Buffer::into_typed`] and
    /// [`Completion::into_vec`] return it. Elements are sent as they are in memory.
    ///
    /// [`Completion::into_vec`]: crate::Completion::into_vec
    ///
    /// # Examples
    /// ```
    /// use portolan::Buffer;
    ///
    /// let buffer = Buffer::typed(vec![1.5, 2.5]);
    /// assert_eq!(buffer.len(), 16);
    /// let numbers: Vec<f64> = buffer.into_typed()?;
    /// assert_eq!(numbers, [1.5, 2.5]);
    /// # Ok::<(), portolan::Error>(())
    /// ```
    #[must_use]
    pub fn typed<T: Pod + fmt::Debug + Send + Sync>(elements: Vec<T>) -> Buffer {
        let mut elements = Some(elements);
        let any: &mut dyn Any = &mut elements;
        if let Some(bytes) = any.downcast_mut::<Option<Vec<u8>>>() {
            return Buffer::from(bytes.take().unwrap_or_default());
        }
        Buffer(Kind::Typed(Box::new(elements.unwrap_or_default())))
    }

    /// Returns the elements. They are not copied if the buffer was made of such elements.
    ///
    /// # Errors
    /// [`Error::PartialElement`] if the length is not a multiple of the element's.
    ///
    /// # Examples
    /// See [`Buffer::typed`].
    pub fn into_typed<T: Pod>(self) -> Result<Vec<T>, Error> {
        let len = self.len();
        self.into_elements(len)
    }

    /// Returns the elements in the first `len` bytes.
    pub(crate) fn into_elements<T: Pod>(self, len: usize) -> Result<Vec<T>, Error> {
        let element_len = size_of::<T>();
        if element_len == 0 || !len.is_multiple_of(element_len) {
            return Err(Error::PartialElement { len, element_len });
        }
        let (count, len) = (len / element_len, len.min(self.len()));
        let is_typed = matches!(&self.0, Kind::Typed(elements) if elements.element_type() == TypeId::of::<T>());
        let any: Box<dyn Any> = match self.0 {
            Kind::Typed(elements) if is_typed => elements.into_any(),
            Kind::Owned(_) | Kind::SharedVec(_) if TypeId::of::<T>() == TypeId::of::<u8>() => {
                Box::new(self.into_vec())
            }
            _ => return Ok(bytemuck::pod_collect_to_vec(&self[..len])),
        };
        let mut elements = any
            .downcast::<Vec<T>>()
            .map_or_else(|_| Vec::new(), |own| *own);
        elements.truncate(count);
        Ok(elements)
    }

    /// Wraps a region that may be in several sends at once.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let region = std::sync::Arc::new(Region::new(4096)?);
    /// let request = node.isend(own, Buffer::shared_region(region.clone()))?;
    /// # node.recv(7, &mut [0; 4096])?; node.wait(request)?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn shared_region(region: Arc<Region>) -> Buffer {
        Buffer(Kind::SharedRegion(region))
    }

    /// Returns the bytes for writing; `None` for shared ones.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let mut buffer = Buffer::from(vec![0; 4]);
    /// buffer.as_mut_slice().unwrap()[0] = 1;
    /// assert_eq!(buffer.into_vec(), [1, 0, 0, 0]);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        match &mut self.0 {
            Kind::Owned(bytes) => Some(bytes),
            Kind::Region(bytes) => Some(bytes),
            Kind::Typed(elements) => elements.bytes_mut(),
            Kind::Shared(_) | Kind::SharedVec(_) | Kind::SharedRegion(_) => None,
            Kind::Foreign(lent) => lent.bytes_mut(),
        }
    }

    /// Returns the region that the buffer was made of.
    ///
    /// # Errors
    /// The buffer itself, if it was made of something else.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let buffer = Buffer::from(Region::new(4096)?);
    /// assert!(buffer.into_region().is_ok());
    /// # Ok(()) }
    /// ```
    pub fn into_region(self) -> Result<Region, Buffer> {
        match self.0 {
            Kind::Region(region) => Ok(region),
            _ => Err(self),
        }
    }

    /// Returns the bytes as a vector. Shared ones, and those of a region or of elements of another
    /// type, are copied.
    ///
    /// # Examples
    /// See [`Buffer::as_mut_slice`].
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Kind::Owned(bytes) => bytes.into_vec(),
            Kind::Region(bytes) => bytes.to_vec(),
            Kind::Shared(bytes) => bytes.to_vec(),
            Kind::SharedVec(bytes) => Arc::unwrap_or_clone(bytes),
            Kind::SharedRegion(bytes) => bytes.to_vec(),
            Kind::Typed(elements) => elements.bytes().to_vec(),
            Kind::Foreign(bytes) => bytes.bytes().to_vec(),
        }
    }
}

/// Copies `pieces` into one vector. An error names `what`.
///
/// # Errors
/// [`Error::NoMemory`].
pub(crate) fn gathered(what: &'static str, pieces: &[&[u8]]) -> Result<Vec<u8>, Error> {
    let len = || pieces.iter().map(|piece| piece.len()).sum();
    memory::gathered(pieces).map_err(|lack| Error::NoMemory {
        what,
        len: len(),
        lack,
    })
}

/// Allocates zeroed memory. An error names `what`.
///
/// # Errors
/// [`Error::NoMemory`].
pub(crate) fn zeroed(what: &'static str, len: usize) -> Result<Vec<u8>, Error> {
    memory::zeroed(len).map_err(|lack| Error::NoMemory { what, len, lack })
}

/// Allocates zeroed elements for a message of `len` bytes.
///
/// # Errors
/// [`Error::NoMemory`], [`Error::PartialElement`].
pub(crate) fn zeroed_elements<T: Pod>(len: usize) -> Result<Vec<T>, Error> {
    let element_len = size_of::<T>();
    if element_len == 0 || !len.is_multiple_of(element_len) {
        return Err(Error::PartialElement { len, element_len });
    }
    let mut elements = Vec::new();
    elements
        .try_reserve_exact(len / element_len)
        .map_err(|_| Error::NoMemory {
            what: "memory for a message",
            len,
            lack: Shortage::memory(),
        })?;
    elements.resize(len / element_len, T::zeroed());
    Ok(elements)
}

impl Clone for Kind {
    /// Copies a region or foreign memory into a vector: allocating another region could fail, and
    /// foreign memory belongs to one buffer only.
    fn clone(&self) -> Kind {
        match self {
            Kind::Owned(bytes) => Kind::Owned(bytes.clone()),
            Kind::Region(bytes) => Kind::Owned(bytes.to_vec().into()),
            Kind::Shared(bytes) => Kind::Shared(Arc::clone(bytes)),
            Kind::SharedVec(bytes) => Kind::SharedVec(Arc::clone(bytes)),
            Kind::SharedRegion(bytes) => Kind::SharedRegion(Arc::clone(bytes)),
            Kind::Typed(elements) => Kind::Typed(elements.copied()),
            Kind::Foreign(bytes) => Kind::Owned(bytes.bytes().to_vec().into()),
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Kind::Owned(bytes) => bytes,
            Kind::Region(bytes) => bytes,
            Kind::Shared(bytes) => bytes,
            Kind::SharedVec(bytes) => bytes,
            Kind::SharedRegion(bytes) => bytes,
            Kind::Typed(elements) => elements.bytes(),
            Kind::Foreign(bytes) => bytes.bytes(),
        }
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Self {
        Buffer(Kind::Owned(bytes.into()))
    }
}

impl From<PooledBuf> for Buffer {
    fn from(bytes: PooledBuf) -> Self {
        Buffer(Kind::Owned(bytes))
    }
}

impl From<Region> for Buffer {
    fn from(bytes: Region) -> Self {
        Buffer(Kind::Region(bytes))
    }
}

impl From<Arc<[u8]>> for Buffer {
    fn from(bytes: Arc<[u8]>) -> Self {
        Buffer(Kind::Shared(bytes))
    }
}

impl From<Buffer> for Vec<u8> {
    fn from(buffer: Buffer) -> Self {
        buffer.into_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_round_trips() {
        let mut region = Region::new(3 << 20).unwrap();
        region[7] = 7;
        let at = region.as_ptr();
        let mut buffer = Buffer::from(region);
        assert_eq!((buffer.as_ptr(), buffer.len()), (at, 3 << 20));
        buffer.as_mut_slice().unwrap()[8] = 8;
        assert_eq!(buffer.clone().into_vec()[..9], [0, 0, 0, 0, 0, 0, 0, 7, 8]);
        let region = buffer.into_region().unwrap();
        assert_eq!((region.as_ptr(), region[7], region[8]), (at, 7, 8));
    }

    #[test]
    fn elements_are_not_copied_and_others_are_converted() {
        let numbers = vec![1_u32, 2, 3];
        let at = numbers.as_ptr();
        let buffer = Buffer::typed(numbers);
        assert_eq!((buffer.len(), buffer.as_ptr()), (12, at.cast()));
        assert!(buffer.clone().into_typed::<u64>().is_err());
        assert_eq!(
            buffer.clone().into_elements::<u64>(8).unwrap(),
            [1 | 2 << 32]
        );
        let first: Vec<u32> = buffer.into_elements(8).unwrap();
        assert_eq!((first.as_ptr(), &first[..]), (at, &[1, 2][..]));
        let bytes = Buffer::from(vec![1, 0, 2, 0, 9]);
        let halves: Vec<u16> = bytes.clone().into_elements(4).unwrap();
        assert_eq!(halves, [1, 2]);
        assert!(matches!(
            bytes.into_typed::<u16>(),
            Err(Error::PartialElement {
                len: 5,
                element_len: 2
            })
        ));
        let bytes = vec![7_u8; 3];
        let at = bytes.as_ptr();
        let same = Buffer::typed(bytes).into_vec();
        assert_eq!(same.as_ptr(), at);
    }

    #[test]
    fn foreign_memory_is_released_once_by_the_last_owner() {
        let mut memory = vec![0xa5_u8; 4];
        let released = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let count = Arc::clone(&released);
        let release = move || _ = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        // SAFETY: `memory` outlives the buffer and is not used until it is dropped.
        let mut buffer = unsafe { Buffer::from_raw_mut_released(memory.as_mut_ptr(), 4, release) };
        let copy = buffer.clone();
        buffer.as_mut_slice().unwrap()[1] = 7;
        drop(copy);
        assert_eq!(released.load(std::sync::atomic::Ordering::Relaxed), 0);
        drop(buffer);
        assert_eq!(released.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert_eq!(memory, [0xa5, 7, 0xa5, 0xa5]);
    }

    #[test]
    fn other_buffers_are_unchanged() {
        let buffer = Buffer::from(vec![1, 2]).into_region().unwrap_err();
        assert_eq!(buffer.into_vec(), [1, 2]);
        let mut shared = Buffer::from(Arc::from([3_u8]));
        assert!(shared.as_mut_slice().is_none());
        assert!(shared.into_region().is_err());
    }

    #[test]
    fn shared_region_is_not_writable() {
        let mut region = Region::new(100).unwrap();
        region[99] = 7;
        let region = Arc::new(region);
        let mut buffer = Buffer::shared_region(Arc::clone(&region));
        assert!(buffer.as_mut_slice().is_none());
        let other = buffer.clone();
        assert_eq!(
            (buffer.as_ptr(), other.as_ptr()),
            (region.as_ptr(), region.as_ptr())
        );
        assert_eq!(other.into_vec(), region[..]);
        assert!(buffer.into_region().is_err());
    }

    #[test]
    fn shared_vector_is_returned_without_copy() {
        let bytes = Arc::new(vec![5_u8; 100]);
        let at = bytes.as_ptr();
        let mut buffer = Buffer::shared(Arc::clone(&bytes));
        assert!(buffer.as_mut_slice().is_none());
        let other = buffer.clone();
        assert_eq!((buffer.as_ptr(), other.as_ptr()), (at, at));
        drop((bytes, other));
        let back = buffer.into_vec();
        assert_eq!(back.as_ptr(), at);
    }
}
