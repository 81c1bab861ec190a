// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receives: blocking, one at a time for each tag that does not block, and reading a short message
//! where it lies.

use crate::init::BIPSMALLSIZE;
use crate::machine::{Failure, State, failure, run};
use crate::message::{self, WORD_LEN};
use crate::tag::{self, Got, Tag, Use};
use portolan::{Buffer, Error};
use std::ffi::c_int;
use std::ptr;

/// Of functions that may find nothing.
const NOTHING: c_int = -1;

/// Bytes of the longest short message.
const SMALL_LEN: usize = BIPSMALLSIZE as usize * WORD_LEN;

impl State {
    /// # Safety
    /// `buf` has `maxlen` words, which nobody else uses.
    #[inline]
    unsafe fn recv(&mut self, tag: Tag, buf: *mut c_int, maxlen: c_int) -> Result<Got, Failure> {
        self.tags.check_free(tag)?;
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { message::bytes_mut(buf, maxlen)? };
        let envelope = self.node.recv_tagged(tag.selector(), bytes)?;
        Ok(message::got(envelope.len, envelope.source))
    }

    /// # Safety
    /// As [`State::recv`], until the receive has ended.
    unsafe fn irecv(&mut self, tag: Tag, buf: *mut c_int, maxlen: c_int) -> Result<c_int, Failure> {
        self.tags.check_free(tag)?;
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { message::bytes_mut(buf, maxlen)? };
        // SAFETY: the same, beyond this call.
        let buffer = unsafe { Buffer::from_raw_mut(bytes.as_mut_ptr(), bytes.len()) };
        let request = self.node.post_recv_tagged(tag.selector(), buffer)?;
        Ok(self.tags.begin(tag, request))
    }

    /// Ends a receive that was begun; `None` if it has not ended and is not waited for.
    fn end(&mut self, id: c_int, wait: bool) -> Result<Option<Got>, Failure> {
        let tag = self.tags.of(id)?;
        if let Use::Receiving(request) = self.tags.place(tag).what {
            let done = match wait {
                true => Some(self.node.wait(request)?),
                false => self.node.test(request)?,
            };
            let Some(done) = done else { return Ok(None) };
            let place = self.tags.place(tag);
            place.what = Use::Free;
            place.ended = Some(message::got(done.len, done.source));
        }
        Ok(self.tags.place(tag).ended)
    }

    /// Whether a short message is the first that has come.
    fn short_is_there(&mut self, tag: Tag) -> Result<bool, Failure> {
        let first = self.node.peek(tag.selector())?;
        Ok(first.is_some_and(|envelope| envelope.len <= SMALL_LEN))
    }

    /// # Safety
    /// As [`State::recv`].
    unsafe fn recv_short(
        &mut self,
        tag: Tag,
        buf: *mut c_int,
        maxlen: c_int,
    ) -> Result<Option<Got>, Failure> {
        self.tags.check_free(tag)?;
        // Refused whether or not a message is there.
        // SAFETY: the caller's promise; the slice is not used.
        let _: &mut [u8] = unsafe { message::bytes_mut(buf, maxlen)? };
        match self.short_is_there(tag)? {
            // SAFETY: guaranteed by the caller.
            true => unsafe { self.recv(tag, buf, maxlen) }.map(Some),
            false => Ok(None),
        }
    }

    /// Receives a short message into the tag's own memory, where the program reads it.
    fn read(&mut self, tag: Tag) -> Result<(*mut c_int, Got), Failure> {
        self.tags.check_free(tag)?;
        let place = self.tags.place(tag);
        let words = place
            .message
            .get_or_insert_with(|| vec![0; BIPSMALLSIZE as usize].into());
        // SAFETY: the words are as many bytes, of which any are a word.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), SMALL_LEN) };
        let envelope = match self.node.recv_tagged(tag.selector(), bytes) {
            Err(Error::TruncatedTagged { message_len, .. }) => {
                return Err(failure(format!(
                    "the first message {} has {} words and is long: receive it with bip_trecv()",
                    tag.name(),
                    message_len / WORD_LEN as u64
                )));
            }
            envelope => envelope?,
        };
        let place = self.tags.place(tag);
        place.what = Use::Reading;
        let at = place
            .message
            .as_mut()
            .map_or(ptr::null_mut(), |words| words.as_mut_ptr());
        Ok((at.cast(), message::got(envelope.len, envelope.source)))
    }
}

/// Waits for the next message without a tag, of at most `maxlen` words; its length in words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_recv(buf: *mut c_int, maxlen: c_int) -> c_int {
    run("bip_recv", |bip| {
        // SAFETY: guaranteed by the program.
        Ok(unsafe { bip.recv(Tag::NONE, buf, maxlen)? }.len)
    })
}

/// Waits for the next message with `tag`, of at most `maxlen` words; its length in words.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_trecv(tag: c_int, buf: *mut c_int, maxlen: c_int) -> c_int {
    run("bip_trecv", |bip| {
        // SAFETY: guaranteed by the program.
        Ok(unsafe { bip.recv(tag::checked(tag)?, buf, maxlen)? }.len)
    })
}

/// As bip_trecv(); `src` gets the number of the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_trecvx(
    tag: c_int,
    buf: *mut c_int,
    maxlen: c_int,
    src: *mut c_int,
) -> c_int {
    run("bip_trecvx", |bip| {
        // Refused before a message is taken.
        // SAFETY: guaranteed by the program.
        unsafe { message::tell(src, NOTHING)? };
        // SAFETY: guaranteed by the program.
        let got = unsafe { bip.recv(tag::checked(tag)?, buf, maxlen)? };
        // SAFETY: guaranteed by the program.
        unsafe { message::tell(src, got.node)? };
        Ok(got.len)
    })
}

/// Begins to receive the next message without a tag, of at most `maxlen` words; the number of the
/// receive. The words are the library's until bip_rwait() has returned or bip_rtest() has told a length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_irecv(buf: *mut c_int, maxlen: c_int) -> c_int {
    // SAFETY: guaranteed by the program.
    run("bip_irecv", |bip| unsafe {
        bip.irecv(Tag::NONE, buf, maxlen)
    })
}

/// As bip_irecv(), with `tag`. One receive may be under way for each tag.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_tirecv(tag: c_int, buf: *mut c_int, maxlen: c_int) -> c_int {
    // SAFETY: guaranteed by the program.
    run("bip_tirecv", |bip| unsafe {
        bip.irecv(tag::checked(tag)?, buf, maxlen)
    })
}

fn len_or_nothing(got: Option<Got>) -> c_int {
    got.map_or(NOTHING, |got| got.len)
}

/// Waits until the receive with the number `id` has ended; the length of the message in words.
#[unsafe(no_mangle)]
pub extern "C" fn bip_rwait(id: c_int) -> c_int {
    run("bip_rwait", |bip| Ok(len_or_nothing(bip.end(id, true)?)))
}

/// The length in words of the message that the receive with the number `id` has got, or -1 while it has
/// got none.
#[unsafe(no_mangle)]
pub extern "C" fn bip_rtest(id: c_int) -> c_int {
    run("bip_rtest", |bip| Ok(len_or_nothing(bip.end(id, false)?)))
}

/// # Safety
/// `host` is null, or may be written.
unsafe fn end_telling(name: &str, id: c_int, wait: bool, host: *mut c_int) -> c_int {
    run(name, |bip| {
        if host.is_null() {
            return Err(Failure::null("host"));
        }
        let got = bip.end(id, wait)?;
        if let Some(got) = got {
            // SAFETY: guaranteed by the caller.
            unsafe { message::tell(host, got.node)? };
        }
        Ok(len_or_nothing(got))
    })
}

/// As bip_rwait(); `host` gets the number of the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_rwaitx(id: c_int, host: *mut c_int) -> c_int {
    // SAFETY: guaranteed by the program.
    unsafe { end_telling("bip_rwaitx", id, true, host) }
}

/// As bip_rtest(); `host` gets the number of the sender, if there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_rtestx(id: c_int, host: *mut c_int) -> c_int {
    // SAFETY: guaranteed by the program.
    unsafe { end_telling("bip_rtestx", id, false, host) }
}

/// Receives the next message with `tag` if it has come and is short: its length in words, or -1 when none
/// has come, or a long one is the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_tnrecv(tag: c_int, buf: *mut c_int, maxlen: c_int) -> c_int {
    run("bip_tnrecv", |bip| {
        // SAFETY: guaranteed by the program.
        let got = unsafe { bip.recv_short(tag::checked(tag)?, buf, maxlen)? };
        Ok(len_or_nothing(got))
    })
}

/// As bip_tnrecv(); `src` gets the number of the sender, if there is a message.
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
        let got = unsafe { bip.recv_short(tag::checked(tag)?, buf, maxlen)? };
        if let Some(got) = got {
            // SAFETY: guaranteed by the program.
            unsafe { message::tell(src, got.node)? };
        }
        Ok(len_or_nothing(got))
    })
}

/// # Safety
/// `len` and `node` are null, or may be written.
unsafe fn get(name: &str, tag: c_int, len: *mut c_int, node: *mut c_int, wait: bool) -> *mut c_int {
    run(name, |bip| {
        let tag = tag::checked(tag)?;
        if len.is_null() || node.is_null() {
            return Err(Failure::null("the pointer for a result"));
        }
        bip.tags.check_free(tag)?;
        if !wait && !bip.short_is_there(tag)? {
            return Ok(ptr::null_mut());
        }
        let (at, got) = bip.read(tag)?;
        // SAFETY: guaranteed by the caller.
        unsafe { message::tell(len, got.len)? };
        // SAFETY: guaranteed by the caller.
        unsafe { message::tell(node, got.node)? };
        Ok(at)
    })
}

/// Waits for the next message with `tag`, which must be short, and returns where it lies in the library's
/// memory; `len` gets its length in words, `node` the number of the sender. It stays there until
/// bip_tfreemsg(); until then the tag has no other receive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_tgetmsg(tag: c_int, len: *mut c_int, node: *mut c_int) -> *mut c_int {
    // SAFETY: guaranteed by the program.
    unsafe { get("bip_tgetmsg", tag, len, node, true) }
}

/// As bip_tgetmsg(), without waiting: null when no message has come, or a long one is the first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bip_tngetmsg(tag: c_int, len: *mut c_int, node: *mut c_int) -> *mut c_int {
    // SAFETY: guaranteed by the program.
    unsafe { get("bip_tngetmsg", tag, len, node, false) }
}

/// Gives back the message that bip_tgetmsg() has returned.
#[unsafe(no_mangle)]
pub extern "C" fn bip_tfreemsg(tag: c_int) {
    run("bip_tfreemsg", |bip| {
        let tag = tag::checked(tag)?;
        let place = bip.tags.place(tag);
        match place.what {
            Use::Reading => {
                place.what = Use::Free;
                Ok(())
            }
            _ => Err(failure(format!("no message {} is being read", tag.name()))),
        }
    });
}
