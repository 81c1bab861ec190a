// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends: blocking, and one non-blocking send at a time.

use crate::machine::{Failure, State, failure, run};
use crate::message::{self, WORD_LEN};
use crate::tag::{self, Tag};
use portolan::{Buffer, TagTarget};
use std::ffi::c_int;

impl State {
    /// Returns the target of a message, if `dst` is valid.
    #[inline]
    fn target(&self, dst: c_int, tag: Tag) -> Result<TagTarget, Failure> {
        match u32::try_from(dst) {
            Ok(rank) if rank < self.node.size() && rank != self.node.rank() => Ok(tag.target(rank)),
            _ => Err(self.no_target(dst)),
        }
    }

    #[cold]
    fn no_target(&self, dst: c_int) -> Failure {
        let size = self.node.size();
        match u32::try_from(dst) == Ok(self.node.rank()) {
            true => failure("a node cannot send to itself"),
            false => failure(format!(
                "node {dst} does not exist; the job has {size} nodes, numbered from 0"
            )),
        }
    }

    #[inline]
    fn check_no_send(&self) -> Result<(), Failure> {
        match self.outgoing.request {
            None => Ok(()),
            Some(_) => Err(failure(
                "a send is in progress; wait for it with bip_swait()",
            )),
        }
    }

    /// Sends a message.
    ///
    /// # Safety
    /// `buf` has `len` words.
    #[inline]
    unsafe fn send(
        &mut self,
        dst: c_int,
        tag: Tag,
        buf: *const c_int,
        len: c_int,
    ) -> Result<(), Failure> {
        let to = self.target(dst, tag)?;
        self.check_no_send()?;
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { message::bytes(buf, len)? };
        Ok(self.node.send_tagged(to, bytes)?)
    }

    /// Starts a nonblocking send.
    ///
    /// # Safety
    /// `buf` has `len` words, which stay valid and unchanged until the send is complete.
    unsafe fn isend(
        &mut self,
        dst: c_int,
        tag: Tag,
        buf: *const c_int,
        len: c_int,
    ) -> Result<c_int, Failure> {
        let to = self.target(dst, tag)?;
        self.check_no_send()?;
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { message::bytes(buf, len)? };
        // SAFETY: guaranteed by the caller until the send is complete.
        let buffer = unsafe { Buffer::from_raw(bytes.as_ptr(), bytes.len()) };
        let request = self.node.isend_tagged(to, buffer)?;
        self.node.flush();
        let outgoing = &mut self.outgoing;
        outgoing.id = outgoing.id.checked_add(1).unwrap_or(1);
        outgoing.request = Some(request);
        Ok(outgoing.id)
    }

    fn check_send(&self, id: c_int) -> Result<(), Failure> {
        match id == self.outgoing.id && id > 0 {
            true => Ok(()),
            false => Err(failure(format!("{id} is not the number of the last send"))),
        }
    }
}

/// Sends `len` words to node `dst`, without a tag. The words may be reused when it returns. A
/// message of more than BIPSMALLSIZE words may have to wait for its receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_send(dst: c_int, buf: *const c_int, len: c_int) {
    // SAFETY: guaranteed by the program.
    run("bip_send", |bip| unsafe {
        bip.send(dst, Tag::NONE, buf, len)
    });
}

/// Sends a message with `tag`, which selects the receive, as bip_send() does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_tsend(dst: c_int, tag: c_int, buf: *const c_int, len: c_int) {
    // SAFETY: guaranteed by the program.
    run("bip_tsend", |bip| unsafe {
        bip.send(dst, tag::checked(tag)?, buf, len)
    });
}

/// Starts a nonblocking send of `len` words to node `dst`, without a tag. Returns the number of the
/// send. Only one send may be in progress. The words must not be changed until bip_swait() has
/// returned or bip_stest() has returned 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_isend(dst: c_int, buf: *const c_int, len: c_int) -> c_int {
    // SAFETY: guaranteed by the program.
    run("bip_isend", |bip| unsafe {
        bip.isend(dst, Tag::NONE, buf, len)
    })
}

/// Starts a nonblocking send with `tag`, like bip_isend().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_tisend(
    dst: c_int,
    tag: c_int,
    buf: *const c_int,
    len: c_int,
) -> c_int {
    // SAFETY: guaranteed by the program.
    run("bip_tisend", |bip| unsafe {
        bip.isend(dst, tag::checked(tag)?, buf, len)
    })
}

/// Waits until the send with the number `id` is complete.
#[unsafe(no_mangle)]
pub extern "C" fn bip_swait(id: c_int) {
    run("bip_swait", |bip| {
        bip.check_send(id)?;
        if let Some(request) = bip.outgoing.request.take() {
            let _lent: portolan::Completion = bip.node.wait(request)?;
        }
        Ok(())
    });
}

/// Returns 1 if the send with the number `id` is complete, or 0.
#[unsafe(no_mangle)]
pub extern "C" fn bip_stest(id: c_int) -> c_int {
    run("bip_stest", |bip| {
        bip.check_send(id)?;
        if let Some(request) = bip.outgoing.request {
            if bip.node.test(request)?.is_none() {
                return Ok(0);
            }
            bip.outgoing.request = None;
        }
        Ok(1)
    })
}

const _: () = assert!(WORD_LEN == size_of::<c_int>(), "words are ints");
