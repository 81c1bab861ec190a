// SPDX-License-Identifier: MIT OR Apache-2.0
//! Descriptors, where the program has put them: what they ask for, and the bytes that they name.
//!
//! A descriptor is read when it is posted and when its bytes are moved, and written when it ends; between
//! these the program must leave it alone. What is registered is looked at when bytes are moved.

use crate::code::*;
use crate::memory::Regions;
use crate::types::*;
use std::ptr;

/// What a descriptor begins at: a multiple of this, as the specification has it.
const ALIGN: usize = 64;
/// Bytes before the segments.
const CONTROL_LEN: usize = size_of::<VIP_CONTROL_SEGMENT>();
/// Bytes of a segment.
const SEGMENT_LEN: usize = size_of::<VIP_DESCRIPTOR_SEGMENT>();
/// Most segments of a descriptor: far more than programs of the time used.
pub(crate) const SEGMENTS_MAX: u16 = 64;

/// A descriptor of the program's, which is there as long as it is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor(pub(crate) *mut VIP_DESCRIPTOR);

/// What a descriptor asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) control: u32,
    /// Bytes of its data segments.
    pub(crate) total: u32,
}

/// Whose memory is named: registered with this protection tag.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    pub(crate) regions: &'a Regions,
    pub(crate) ptag: u32,
}

impl Descriptor {
    /// Whether a descriptor can begin there.
    #[inline]
    pub(crate) fn is_aligned(self) -> bool {
        !self.0.is_null() && self.0.addr().is_multiple_of(ALIGN)
    }

    #[inline]
    fn control_segment(self) -> VIP_CONTROL_SEGMENT {
        // SAFETY: it is posted, or about to be, so it is there: the program's promise.
        unsafe { (&raw const (*self.0).CS).read() }
    }

    /// Bytes that it takes.
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
        // SAFETY: as above; there are as many as it says, which was looked at when it was posted.
        unsafe { at.cast::<VIP_DESCRIPTOR_SEGMENT>().read() }
    }

    #[inline]
    fn local(self, index: usize) -> VIP_DATA_SEGMENT {
        // SAFETY: any bits are numbers.
        unsafe { self.segment(index).Local }
    }

    /// The address segment of an RDMA: address and handle.
    #[inline]
    pub(crate) fn remote(self) -> (u64, u32) {
        // SAFETY: any bits are numbers.
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

    /// The data segments.
    #[inline]
    fn locals(self) -> impl Iterator<Item = VIP_DATA_SEGMENT> {
        let control = self.control_segment();
        let is_rdma = u32::from(control.Control) & VIP_CONTROL_OP_MASK != VIP_CONTROL_OP_SENDRECV;
        // A program that changes a posted descriptor reads no further than it could have posted.
        let count = control.SegCount.min(SEGMENTS_MAX);
        (usize::from(is_rdma)..usize::from(count)).map(move |index| self.local(index))
    }

    /// What it asks for, or the status that says what is wrong with it.
    #[inline]
    pub(crate) fn parse(self) -> Result<Asked, u32> {
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
            Ok(total) => Ok(Asked { control, total }),
            Err(_) => Err(VIP_STATUS_LENGTH_ERROR),
        }
    }

    /// Bytes that it says it has.
    #[inline]
    pub(crate) fn declared_len(self) -> u32 {
        self.control_segment().Length
    }

    /// Calls `each` for the pieces of memory that hold bytes `from..from + len` of it.
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
            // SAFETY: any bits are an address.
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

    /// Copies bytes from `from` on to `out`, or says what is wrong.
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
            // SAFETY: registered memory: the program's promise that it is there and that nobody writes
            // to it now.
            unsafe { ptr::copy_nonoverlapping(at, here.as_mut_ptr(), len) };
        })
    }

    /// Copies `bytes` to where bytes from `from` on belong, or says what is wrong.
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
            // SAFETY: registered memory: the program's promise that it is there and the library's until
            // the descriptor has ended.
            unsafe { ptr::copy_nonoverlapping(here.as_ptr(), at, len) };
        })
    }

    /// Notes immediate data that have come.
    pub(crate) fn set_immediate(self, word: u32) {
        // SAFETY: it is posted: the library's.
        unsafe { (&raw mut (*self.0).CS.ImmediateData).write(word) };
    }

    /// Ends it.
    #[inline]
    pub(crate) fn end(self, status: u32, len: Option<u32>) {
        // SAFETY: it is posted: the library's until this.
        let control = unsafe { &raw mut (*self.0).CS };
        if let Some(len) = len {
            // SAFETY: as above.
            unsafe { (&raw mut (*control).Length).write(len) };
        }
        // SAFETY: as above. A program may look at it from another thread, but must ask the library before
        // it reads what has come.
        unsafe { (&raw mut (*control).Status).write_volatile(status | VIP_STATUS_DONE) };
    }

    /// Begins it.
    #[inline]
    pub(crate) fn begin(self) {
        // SAFETY: it is about to be posted: the program has handed it over.
        unsafe { (&raw mut (*self.0).CS.Status).write_volatile(0) };
    }

    /// How it has ended.
    #[inline]
    pub(crate) fn status(self) -> u32 {
        self.control_segment().Status
    }
}
