// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connection requests, from the event that reports one to the reply of the program.

#![allow(
    unsafe_code,
    reason = "a table that programs name entries of by pointer"
)]

use std::collections::HashMap;
use std::ffi::c_void;
use std::net::SocketAddr;
use std::ptr::null_mut;

use parking_lot::Mutex;
use portolan::binding::EndpointAddress;
use portolan_sys::fork::Owner;
use portolan_wire::{ConnectionKind, ENDPOINT_ID_LEN};

use super::channel::Channel;
use super::permits::Permit;
use crate::abi::{CLASS_CONNREQ, Fid, Ops};
use crate::errno::Errno;
use crate::unsupported;

/// A connection request. It is rejected if it is dropped without a reply.
pub(crate) struct Request {
    /// `None` once the request is answered.
    channel: Option<Channel>,
    peer: EndpointAddress,
    /// The process that may reply. A forked child may not.
    owner: Owner,
    /// The request's place among the unanswered ones.
    _permit: Permit,
}

impl Request {
    pub(super) fn new(channel: Channel, peer: EndpointAddress, permit: Permit) -> Request {
        Request {
            channel: Some(channel),
            peer,
            owner: Owner::this_process(),
            _permit: permit,
        }
    }

    /// Returns the local address and the requester's address.
    pub(crate) fn ends(&self) -> (Option<SocketAddr>, Option<SocketAddr>) {
        let channel = self.channel.as_ref();
        (
            channel.and_then(Channel::local),
            channel.and_then(Channel::remote),
        )
    }

    /// Rejects the request, with data for the other program.
    ///
    /// # Errors
    /// `OPBADSTATE` in a forked child.
    pub(crate) fn reject(mut self, data: &[u8]) -> Result<(), Errno> {
        if self.owner.is_another() {
            return Err(Errno::OPBADSTATE);
        }
        self.send_reject(data);
        Ok(())
    }

    fn send_reject(&mut self, data: &[u8]) {
        if !self.owner.is_another()
            && let Some(mut channel) = self.channel.take()
        {
            // A requester that has disconnected gets no reply.
            let _ = channel.send(ConnectionKind::Reject, [0; ENDPOINT_ID_LEN], data);
        }
    }

    /// Accepts the request for the local endpoint `own`. Returns the connection and the peer's
    /// endpoint.
    ///
    /// # Errors
    /// `CONNABORTED` if the requester has disconnected.
    pub(super) fn accept(
        mut self,
        own: &EndpointAddress,
        data: &[u8],
    ) -> Result<(Channel, EndpointAddress), Errno> {
        let aborted = Errno(libc::ECONNABORTED);
        let mut channel = self.channel.take().ok_or(aborted)?;
        let sent = channel.send(ConnectionKind::Accept, *own.as_bytes(), data);
        sent.map_err(|_| aborted)?;
        Ok((channel, self.peer))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.send_reject(&[]);
    }
}

/// Operations of a handle. Other calls take a handle as an argument; it has none of its own.
static OPS: Ops = unsupported::OPS;

/// A request as the program refers to it, with the head of a libfabric object, which programs may
/// read.
struct Handle {
    head: Fid,
    request: Request,
}

// SAFETY: the head's pointers are null or point to a static.
unsafe impl Send for Handle {}

/// Requests that were reported and are not answered, keyed by the address of their handle. A handle
/// that is not in this table is never dereferenced, because programs may use one twice.
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

    /// Returns the handle by which the program refers to the request.
    pub(super) fn ptr(&self) -> *mut Fid {
        self.at as *mut Fid
    }

    /// Leaves the request to the program.
    pub(crate) fn release(self) {
        std::mem::forget(self);
    }
}

impl Drop for Offered {
    /// Removes the request, which was not reported. In a forked child the table may be locked for
    /// ever.
    fn drop(&mut self) {
        if !self.owner.is_another() {
            drop(Request::take(self.ptr()));
        }
    }
}

impl Request {
    /// Removes and returns the request of a handle, which is invalid from then on. Returns `None`
    /// for an unknown handle.
    pub(crate) fn take(handle: *mut Fid) -> Option<Request> {
        let mut handles = HANDLES.lock();
        let handle = handles.as_mut()?.remove(&(handle as usize))?;
        Some(handle.request)
    }
}
