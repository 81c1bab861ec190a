// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors in the program's memory: their operation, and the data that they refer to.
//!
//! A descriptor is read when it is posted and when its data is moved. It is written when it
//! completes. In between, the program must not access it. Registration is checked when data is
//! moved.

use crate::code::*;
use crate::memory::Regions;
use crate::types::*;
use std::ptr;

/// Alignment of a descriptor, as the specification requires.
const ALIGN: usize = 64;
/// Length of the control segment, which precedes the other segments.
const CONTROL_LEN: usize = size_of::<VIP_CONTROL_SEGMENT>();
/// Bytes of a segment.
const SEGMENT_LEN: usize = size_of::<VIP_DESCRIPTOR_SEGMENT>();
/// Maximum number of segments of a descriptor: far more than programs of the time used.
pub(crate) const SEGMENTS_MAX: u16 = 64;

/// A descriptor of the program, which is valid while it is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor(pub(crate) *mut VIP_DESCRIPTOR);

/// The operation that a descriptor requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    pub(crate) control: u32,
    /// Bytes of the data segments.
    pub(crate) total: u32,
}

/// Registered memory with the protection tag that accesses must have.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    pub(crate) regions: &'a Regions,
    pub(crate) ptag: u32,
}

impl Descriptor {
    /// Returns true if the address is a valid address of a descriptor.
    #[inline]
    pub(crate) fn is_aligned(self) -> bool {
        !self.0.is_null() && self.0.addr().is_multiple_of(ALIGN)
    }

    #[inline]
    fn control_segment(self) -> VIP_CONTROL_SEGMENT {
        // SAFETY: the descriptor is posted, or about to be; the program guarantees that it is
        // valid.
        unsafe { (&raw const (*self.0).CS).read() }
    }

    /// Returns the bytes of the descriptor, with all segments.
    #[inline]
    pub(crate) fn len(self) -> usize {
        CONTROL_LEN + usize::from(self.control_segment().SegCount) * SEGMENT_LEN
    }

    #[inline]
    fn segment(self, index: usize) -> VIP_DESCRIPTOR_SEGMENT {
        let at = self
            .0
            .cast::<u8>()
            .wrapping_add(CONTROL_LEN + index * SEGMENT_LEN);
        // SAFETY: as above; the number of segments was checked when the descriptor was posted.
        unsafe { at.cast::<VIP_DESCRIPTOR_SEGMENT>().read() }
    }

    #[inline]
    fn local(self, index: usize) -> VIP_DATA_SEGMENT {
        // SAFETY: all bit patterns are valid integers.
        unsafe { self.segment(index).Local }
    }

    /// Returns the address and handle of an RDMA operation's address segment.
    #[inline]
    pub(crate) fn remote(self) -> (u64, u32) {
        // SAFETY: all bit patterns are valid integers.
        let (remote, bits) = unsafe {
            let remote = self.segment(0).Remote;
            (remote, remote.Data.AddressBits)
        };
        (bits, remote.Handle)
    }

    #[inline]
    pub(crate) fn immediate(self) -> u32 {
        self.control_segment().ImmediateData
    }

    #[inline]
    fn locals(self) -> impl Iterator<Item = VIP_DATA_SEGMENT> {
        let control = self.control_segment();
        let is_rdma = u32::from(control.Control) & VIP_CONTROL_OP_MASK != VIP_CONTROL_OP_SENDRECV;
        // Limits the segments even if the program changes a posted descriptor.
        let count = control.SegCount.min(SEGMENTS_MAX);
        (usize::from(is_rdma)..usize::from(count)).map(move |index| self.local(index))
    }

    /// Returns the requested operation, or the error status of a malformed descriptor.
    #[inline]
    pub(crate) fn parse(self) -> Result<Parsed, u32> {
        let segment = self.control_segment();
        let control = u32::from(segment.Control);
        let is_rdma = match control & VIP_CONTROL_OP_MASK {
            VIP_CONTROL_OP_SENDRECV => false,
            VIP_CONTROL_OP_RDMAWRITE | VIP_CONTROL_OP_RDMAREAD => true,
            _ => return Err(VIP_STATUS_FORMAT_ERROR),
        };
        if segment.SegCount > SEGMENTS_MAX || is_rdma && segment.SegCount == 0 {
            return Err(VIP_STATUS_FORMAT_ERROR);
        }
        let lens = self.locals().map(|local| u64::from(local.Length));
        let total: u64 = lens.sum();
        match u32::try_from(total) {
            Ok(total) => Ok(Parsed { control, total }),
            Err(_) => Err(VIP_STATUS_LENGTH_ERROR),
        }
    }

    /// Returns the length that the descriptor states.
    #[inline]
    pub(crate) fn declared_len(self) -> u32 {
        self.control_segment().Length
    }

    /// Calls `each` for the pieces of memory with the bytes `from..from + len` of the descriptor.
    #[inline]
    fn pieces(
        self,
        memory: Memory<'_>,
        from: u32,
        len: usize,
        mut each: impl FnMut(*mut u8, usize),
    ) -> Result<(), u32> {
        let (mut skip, mut left) = (from as usize, len);
        for local in self.locals() {
            if left == 0 {
                break;
            }
            let local_len = local.Length as usize;
            if skip >= local_len {
                skip -= local_len;
                continue;
            }
            // SAFETY: all bit patterns are valid addresses.
            let base = unsafe { local.Data.Address }.cast::<u8>();
            let here = left.min(local_len - skip);
            let at = base.wrapping_add(skip);
            if !memory
                .regions
                .covers(local.Handle, at.addr(), here, memory.ptag)
            {
                return Err(VIP_STATUS_PROTECTION_ERROR);
            }
            each(at, here);
            (skip, left) = (0, left - here);
        }
        match left {
            0 => Ok(()),
            _ => Err(VIP_STATUS_LENGTH_ERROR),
        }
    }

    /// Returns true if the first `len` bytes are in one segment.
    pub(crate) fn is_contiguous(self, len: u32) -> bool {
        let mut locals = self.locals();
        locals.next().is_some_and(|local| local.Length >= len)
    }

    /// Returns the address of the first `len` bytes if they are in one segment. Returns an error
    /// status if the memory is not registered.
    pub(crate) fn whole(self, memory: Memory<'_>, len: u32) -> Result<Option<*mut u8>, u32> {
        if !self.is_contiguous(len) {
            return Ok(None);
        }
        let mut whole = None;
        self.pieces(memory, 0, len as usize, |at, _| whole = Some(at))?;
        Ok(whole)
    }

    /// Copies bytes, starting at `from`, to `out`. Returns an error status if the memory is not
    /// registered.
    #[inline]
    pub(crate) fn gather(
        self,
        memory: Memory<'_>,
        from: u32,
        mut out: &mut [u8],
    ) -> Result<(), u32> {
        let len = out.len();
        self.pieces(memory, from, len, |at, len| {
            let (here, rest) = std::mem::take(&mut out).split_at_mut(len);
            out = rest;
            // SAFETY: registered memory. The program guarantees that it is valid and not written
            // now.
            unsafe { ptr::copy_nonoverlapping(at, here.as_mut_ptr(), len) };
        })
    }

    /// Copies `bytes` to the descriptor's memory, starting at `from`. Returns an error status if
    /// the memory is not registered.
    #[inline]
    pub(crate) fn scatter(
        self,
        memory: Memory<'_>,
        from: u32,
        mut bytes: &[u8],
    ) -> Result<(), u32> {
        let len = bytes.len();
        self.pieces(memory, from, len, |at, len| {
            let (here, rest) = bytes.split_at(len);
            bytes = rest;
            // SAFETY: registered memory. The program guarantees that it is valid and does not
            // access it until the descriptor completes.
            unsafe { ptr::copy_nonoverlapping(here.as_ptr(), at, len) };
        })
    }

    /// Stores immediate data.
    pub(crate) fn set_immediate(self, word: u32) {
        // SAFETY: a posted descriptor, which is borrowed by the library.
        unsafe { (&raw mut (*self.0).CS.ImmediateData).write(word) };
    }

    /// Completes the descriptor.
    #[inline]
    pub(crate) fn end(self, status: u32, len: Option<u32>) {
        // SAFETY: a posted descriptor, which the library borrows until this call.
        let control = unsafe { &raw mut (*self.0).CS };
        if let Some(len) = len {
            // SAFETY: as above.
            unsafe { (&raw mut (*control).Length).write(len) };
        }
        // SAFETY: as above. A program may poll the status from another thread, but it must call the
        // library before it reads the data.
        unsafe { (&raw mut (*control).Status).write_volatile(status | VIP_STATUS_DONE) };
    }

    /// Clears the status of a descriptor that is about to be posted.
    #[inline]
    pub(crate) fn begin(self) {
        // SAFETY: the program has passed the descriptor to the library.
        unsafe { (&raw mut (*self.0).CS.Status).write_volatile(0) };
    }

    #[inline]
    pub(crate) fn status(self) -> u32 {
        self.control_segment().Status
    }
}
