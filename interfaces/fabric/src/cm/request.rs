// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections that somebody asks for, between the event that tells of one and the program's answer.

#![allow(
    unsafe_code,
    reason = "a table that programs name entries of by pointer"
)]

use std::collections::HashMap;
use std::ffi::c_void;
use std::net::SocketAddr;
use std::ptr::null_mut;

use parking_lot::Mutex;
use portolan::EndpointAddress;
use portolan_sys::fork::Owner;
use portolan_wire::{ConnectionWord, ENDPOINT_ID_LEN};

use super::seats::Seat;
use super::talk::Talk;
use crate::abi::{CLASS_CONNREQ, Fid, Ops};
use crate::absent;
use crate::errno::Errno;

/// A request for a connection. One that is dropped without an answer is rejected.
pub(crate) struct Request {
    /// `None` when it was answered.
    talk: Option<Talk>,
    peer: EndpointAddress,
    /// Who may answer: a forked child may not.
    owner: Owner,
    /// Among those that have no answer.
    _seat: Seat,
}

impl Request {
    pub(super) fn new(talk: Talk, peer: EndpointAddress, seat: Seat) -> Request {
        Request {
            talk: Some(talk),
            peer,
            owner: Owner::this_process(),
            _seat: seat,
        }
    }

    /// Our address, and that of who asks.
    pub(crate) fn ends(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let talk = self.talk.as_ref();
        (talk.and_then(Talk::local), talk.and_then(Talk::remote))
    }

    /// Say no, with data for the other program.
    ///
    /// # Errors
    /// `OPBADSTATE` in a forked child.
    pub(crate) fn reject(mut self, data: &[u8]) -> Result<(), Errno> {
        if self.owner.is_another() {
            return Err(Errno::OPBADSTATE);
        }
        self.answer_no(data);
        Ok(())
    }

    fn answer_no(&mut self, data: &[u8]) {
        if !self.owner.is_another()
            && let Some(mut talk) = self.talk.take()
        {
            // Who asked and went is told nothing.
            let _ = talk.say(ConnectionWord::Reject, [0; ENDPOINT_ID_LEN], data);
        }
    }

    /// Say yes, as the endpoint of this address. Returns the connection, and who is at its other end.
    ///
    /// # Errors
    /// `CONNABORTED` when who asked has gone.
    pub(super) fn accept(
        mut self,
        own: &EndpointAddress,
        data: &[u8],
    ) -> Result<(Talk, EndpointAddress), Errno> {
        let aborted = Errno(libc::ECONNABORTED);
        let mut talk = self.talk.take().ok_or(aborted)?;
        let said = talk.say(ConnectionWord::Accept, *own.as_bytes(), data);
        said.map_err(|_| aborted)?;
        Ok((talk, self.peer))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.answer_no(&[]);
    }
}

/// A handle is used by others, and does nothing itself.
static OPS: Ops = absent::OPS;

/// What a program holds for a request: the head of an object of libfabric's, which it may look at.
struct Handle {
    head: Fid,
    request: Request,
}

// SAFETY: the head's pointers are null, and to a static.
unsafe impl Send for Handle {}

/// The requests that were told of and are not answered, by their handles' addresses. A handle that is
/// not here is never followed: programs may use one twice.
static HANDLES: Mutex<Option<HashMap<usize, Box<Handle>>>> = Mutex::new(None);

/// A request in the table.
pub(crate) struct Offered {
    at: usize,
    owner: Owner,
}

impl Offered {
    pub(super) fn new(request: Request) -> Offered {
        let (context, owner): (*mut c_void, Owner) = (null_mut(), request.owner);
        let handle = Box::new(Handle {
            head: Fid {
                fclass: CLASS_CONNREQ,
                context,
                ops: &raw const OPS,
            },
            request,
        });
        let at = (&raw const handle.head) as usize;
        HANDLES.lock().get_or_insert_default().insert(at, handle);
        Offered { at, owner }
    }

    /// What the program names it by.
    pub(super) fn ptr(&self) -> *mut Fid {
        self.at as *mut Fid
    }

    /// Leave it to the program.
    pub(crate) fn give(self) {
        std::mem::forget(self);
    }
}

impl Drop for Offered {
    /// Nobody was told. In a forked child the table may be locked for ever.
    fn drop(&mut self) {
        if !self.owner.is_another() {
            drop(Request::take(self.ptr()));
        }
    }
}

impl Request {
    /// The request of a handle, which is of no use from then on; `None` for one that is none.
    pub(crate) fn take(handle: *mut Fid) -> Option<Request> {
        let mut handles = HANDLES.lock();
        let handle = handles.as_mut()?.remove(&(handle as usize))?;
        Some(handle.request)
    }
}
