// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receives: blocking, non-blocking (one at a time for each tag), and in the library's memory
//! (short messages only).

use crate::init::BIPSMALLSIZE;
use crate::machine::{Failure, State, failure, run};
use crate::message::{self, WORD_LEN};
use crate::tag::{self, Received, Tag, Use};
use portolan::{Buffer, Error};
use std::ffi::c_int;
use std::ptr;

/// Result of functions that found no message.
const NO_MESSAGE: c_int = -1;

/// Maximum bytes of a short message.
const SMALL_LEN: usize = BIPSMALLSIZE as usize * WORD_LEN;

impl State {
    /// Receives a message.
    ///
    /// # Safety
    /// `buf` has `maxlen` words, which no other code accesses.
    #[inline]
    unsafe fn recv(
        &mut self,
        tag: Tag,
        buf: *mut c_int,
        maxlen: c_int,
    ) -> Result<Received, Failure> {
        self.tags.check_free(tag)?;
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { message::bytes_mut(buf, maxlen)? };
        let envelope = self.node.recv_tagged(tag.selector(), bytes)?;
        Ok(message::received(envelope.len, envelope.source))
    }

    /// Starts a nonblocking receive.
    ///
    /// # Safety
    /// As for [`State::recv`], until the receive is complete.
    unsafe fn irecv(&mut self, tag: Tag, buf: *mut c_int, maxlen: c_int) -> Result<c_int, Failure> {
        self.tags.check_free(tag)?;
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { message::bytes_mut(buf, maxlen)? };
        // SAFETY: guaranteed by the caller until the receive is complete.
        let buffer = unsafe { Buffer::from_raw_mut(bytes.as_mut_ptr(), bytes.len()) };
        let request = self.node.post_recv_tagged(tag.selector(), buffer)?;
        Ok(self.tags.begin(tag, request))
    }

    /// Returns the message of a receive that was started. Returns `None` if it is not complete and
    /// `wait` is not set.
    fn end(&mut self, id: c_int, wait: bool) -> Result<Option<Received>, Failure> {
        let tag = self.tags.of(id)?;
        if let Use::Receiving(request) = self.tags.entry(tag).state {
            let done = match wait {
                true => Some(self.node.wait(request)?),
                false => self.node.test(request)?,
            };
            let Some(done) = done else { return Ok(None) };
            let entry = self.tags.entry(tag);
            entry.state = Use::Free;
            entry.ended = Some(message::received(done.len, done.source));
        }
        Ok(self.tags.entry(tag).ended)
    }

    /// Returns true if a message has arrived and the first one is short.
    fn has_short_message(&mut self, tag: Tag) -> Result<bool, Failure> {
        let first = self.node.peek(tag.selector())?;
        Ok(first.is_some_and(|envelope| envelope.len <= SMALL_LEN))
    }

    /// Receives a message if a short one has arrived.
    ///
    /// # Safety
    /// As for [`State::recv`].
    unsafe fn recv_short(
        &mut self,
        tag: Tag,
        buf: *mut c_int,
        maxlen: c_int,
    ) -> Result<Option<Received>, Failure> {
        self.tags.check_free(tag)?;
        // Check the buffer even if no message has arrived.
        // SAFETY: guaranteed by the caller; the slice is not used.
        let _: &mut [u8] = unsafe { message::bytes_mut(buf, maxlen)? };
        match self.has_short_message(tag)? {
            // SAFETY: guaranteed by the caller.
            true => unsafe { self.recv(tag, buf, maxlen) }.map(Some),
            false => Ok(None),
        }
    }

    /// Receives a short message into the tag's own memory, where the program reads it.
    fn read(&mut self, tag: Tag) -> Result<(*mut c_int, Received), Failure> {
        self.tags.check_free(tag)?;
        let entry = self.tags.entry(tag);
        let words = entry
            .message
            .get_or_insert_with(|| vec![0; BIPSMALLSIZE as usize].into());
        // SAFETY: the bytes of the words. All byte values are valid.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), SMALL_LEN) };
        let envelope = match self.node.recv_tagged(tag.selector(), bytes) {
            Err(Error::TruncatedTagged { message_len, .. }) => {
                return Err(failure(format!(
                    "the first message {} has {} words, more than {BIPSMALLSIZE}: receive it with bip_trecv()",
                    tag.name(),
                    message_len / WORD_LEN as u64
                )));
            }
            envelope => envelope?,
        };
        let entry = self.tags.entry(tag);
        entry.state = Use::Reading;
        let at = entry
            .message
            .as_mut()
            .map_or(ptr::null_mut(), |words| words.as_mut_ptr());
        Ok((at.cast(), message::received(envelope.len, envelope.source)))
    }
}

/// Waits for the next message without a tag, of at most `maxlen` words. Returns its length in
/// words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_recv(buf: *mut c_int, maxlen: c_int) -> c_int {
    run("bip_recv", |bip| {
        // SAFETY: guaranteed by the program.
        Ok(unsafe { bip.recv(Tag::NONE, buf, maxlen)? }.len)
    })
}

/// Waits for the next message with `tag`, of at most `maxlen` words. Returns its length in words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_trecv(tag: c_int, buf: *mut c_int, maxlen: c_int) -> c_int {
    run("bip_trecv", |bip| {
        // SAFETY: guaranteed by the program.
        Ok(unsafe { bip.recv(tag::checked(tag)?, buf, maxlen)? }.len)
    })
}

/// Receives a message as bip_trecv() does, and stores the number of the sender in `src`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_trecvx(
    tag: c_int,
    buf: *mut c_int,
    maxlen: c_int,
    src: *mut c_int,
) -> c_int {
    run("bip_trecvx", |bip| {
        // Check the pointer before a message is received.
        // SAFETY: guaranteed by the program.
        unsafe { message::store(src, NO_MESSAGE)? };
        // SAFETY: guaranteed by the program.
        let received = unsafe { bip.recv(tag::checked(tag)?, buf, maxlen)? };
        // SAFETY: guaranteed by the program.
        unsafe { message::store(src, received.node)? };
        Ok(received.len)
    })
}

/// Starts a nonblocking receive of the next message without a tag, of at most `maxlen` words.
/// Returns the number of the receive. The library owns the words until bip_rwait() has returned or
/// bip_rtest() has returned a length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_irecv(buf: *mut c_int, maxlen: c_int) -> c_int {
    // SAFETY: guaranteed by the program.
    run("bip_irecv", |bip| unsafe {
        bip.irecv(Tag::NONE, buf, maxlen)
    })
}

/// Starts a nonblocking receive of a message with `tag`, like bip_irecv(). Each tag may have one
/// receive in progress.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_tirecv(tag: c_int, buf: *mut c_int, maxlen: c_int) -> c_int {
    // SAFETY: guaranteed by the program.
    run("bip_tirecv", |bip| unsafe {
        bip.irecv(tag::checked(tag)?, buf, maxlen)
    })
}

fn len_or_no_message(received: Option<Received>) -> c_int {
    received.map_or(NO_MESSAGE, |received| received.len)
}

/// Waits until the receive with the number `id` is complete. Returns the length of the message in
/// words.
#[unsafe(no_mangle)]
pub extern "C" fn bip_rwait(id: c_int) -> c_int {
    run("bip_rwait", |bip| Ok(len_or_no_message(bip.end(id, true)?)))
}

/// Returns the length in words of the message that the receive `id` has received, or -1 if it is
/// not complete.
#[unsafe(no_mangle)]
pub extern "C" fn bip_rtest(id: c_int) -> c_int {
    run("bip_rtest", |bip| {
        Ok(len_or_no_message(bip.end(id, false)?))
    })
}

/// Returns the length of a received message, and stores the number of the sender in `host`.
///
/// # Safety
/// `host` is null, or may be written.
unsafe fn end_with_source(name: &str, id: c_int, wait: bool, host: *mut c_int) -> c_int {
    run(name, |bip| {
        if host.is_null() {
            return Err(Failure::null("host"));
        }
        let received = bip.end(id, wait)?;
        if let Some(received) = received {
            // SAFETY: guaranteed by the caller.
            unsafe { message::store(host, received.node)? };
        }
        Ok(len_or_no_message(received))
    })
}

/// Waits as bip_rwait() does, and stores the number of the sender in `host`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_rwaitx(id: c_int, host: *mut c_int) -> c_int {
    // SAFETY: guaranteed by the program.
    unsafe { end_with_source("bip_rwaitx", id, true, host) }
}

/// Tests as bip_rtest() does, and stores the number of the sender in `host` if the receive is
/// complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_rtestx(id: c_int, host: *mut c_int) -> c_int {
    // SAFETY: guaranteed by the program.
    unsafe { end_with_source("bip_rtestx", id, false, host) }
}

/// Receives the next message with `tag` if a short one has arrived. Returns its length in words, or
/// -1 if no message has arrived or the first one is long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_tnrecv(tag: c_int, buf: *mut c_int, maxlen: c_int) -> c_int {
    run("bip_tnrecv", |bip| {
        // SAFETY: guaranteed by the program.
        let received = unsafe { bip.recv_short(tag::checked(tag)?, buf, maxlen)? };
        Ok(len_or_no_message(received))
    })
}

/// Receives as bip_tnrecv() does, and stores the number of the sender in `src` if there is a
/// message.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_tnrecvx(
    tag: c_int,
    buf: *mut c_int,
    maxlen: c_int,
    src: *mut c_int,
) -> c_int {
    run("bip_tnrecvx", |bip| {
        if src.is_null() {
            return Err(Failure::null("src"));
        }
        // SAFETY: guaranteed by the program.
        let received = unsafe { bip.recv_short(tag::checked(tag)?, buf, maxlen)? };
        if let Some(received) = received {
            // SAFETY: guaranteed by the program.
            unsafe { message::store(src, received.node)? };
        }
        Ok(len_or_no_message(received))
    })
}

/// Receives a short message into the library's memory. Returns null if `wait` is not set and there
/// is none.
///
/// # Safety
/// `len` and `node` are null, or may be written.
unsafe fn get(name: &str, tag: c_int, len: *mut c_int, node: *mut c_int, wait: bool) -> *mut c_int {
    run(name, |bip| {
        let tag = tag::checked(tag)?;
        if len.is_null() || node.is_null() {
            return Err(Failure::null("the pointer for a result"));
        }
        bip.tags.check_free(tag)?;
        if !wait && !bip.has_short_message(tag)? {
            return Ok(ptr::null_mut());
        }
        let (at, received) = bip.read(tag)?;
        // SAFETY: guaranteed by the caller.
        unsafe { message::store(len, received.len)? };
        // SAFETY: guaranteed by the caller.
        unsafe { message::store(node, received.node)? };
        Ok(at)
    })
}

/// Waits for the next message with `tag`, which must be short, and returns a pointer to it in the
/// library's memory. `len` receives its length in words, `node` the number of the sender. The
/// message is valid until bip_tfreemsg(); until then the tag can have no other receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_tgetmsg(tag: c_int, len: *mut c_int, node: *mut c_int) -> *mut c_int {
    // SAFETY: guaranteed by the program.
    unsafe { get("bip_tgetmsg", tag, len, node, true) }
}

/// Returns a message as bip_tgetmsg() does, without waiting. Returns null if no message has arrived
/// or the first one is long.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_tngetmsg(tag: c_int, len: *mut c_int, node: *mut c_int) -> *mut c_int {
    // SAFETY: guaranteed by the program.
    unsafe { get("bip_tngetmsg", tag, len, node, false) }
}

/// Releases the message that bip_tgetmsg() or bip_tngetmsg() has returned.
#[unsafe(no_mangle)]
pub extern "C" fn bip_tfreemsg(tag: c_int) {
    run("bip_tfreemsg", |bip| {
        let tag = tag::checked(tag)?;
        let entry = bip.tags.entry(tag);
        match entry.state {
            Use::Reading => {
                entry.state = Use::Free;
                Ok(())
            }
            _ => Err(failure(format!(
                "no message {} is to be released",
                tag.name()
            ))),
        }
    });
}
