// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connecting an endpoint, and ending its connection.

use std::ffi::{c_int, c_void};
use std::time::Instant;

use crate::abi::*;
use crate::cm::{Fidptr, Request, Stage};
use crate::errno::{Errno, status};
use crate::object::Object;
use crate::pep;
use crate::sockaddr;
use crate::state::{Ep, LINGER, Link};
use crate::unsupported;

pub(super) static OPS: OpsCm = OpsCm {
    size: size_of::<OpsCm>(),
    setname,
    getname,
    getpeer,
    connect,
    listen: unsupported::listen,
    accept,
    reject: unsupported::reject,
    shutdown,
    join: unsupported::join,
};

/// Returns the connection state of a new connected endpoint, or `None` for a connectionless one.
/// The handle is a request, a passive endpoint whose address is taken over, or null.
///
/// # Errors
/// `INVAL` for any other handle, or one that was used before.
///
/// # Safety
/// The parts of `info` are null or valid. Its handle is null, an object of this provider, or was
/// the handle of a request.
pub(super) unsafe fn link_of(info: &Info) -> Result<Option<Link>, Errno> {
    // SAFETY: guaranteed by the caller.
    let ep_type = unsafe { info.ep_attr.as_ref() }.map_or(EP_UNSPEC, |ep| ep.ep_type);
    if ep_type != EP_MSG {
        return Ok(None);
    }
    if info.handle.is_null() {
        let mut link = Link::default();
        // SAFETY: guaranteed by the caller.
        let source = unsafe { sockaddr::read(info.src_addr, info.src_addrlen) };
        // The kernel selects an address when the endpoint connects. A socket bound now would occupy
        // a port for all destinations.
        if let Some(addr) = source.filter(|addr| !sockaddr::is_any(addr)) {
            link.bind(&addr)?;
        }
        return Ok(Some(link));
    }
    if let Some(request) = Request::take(info.handle) {
        return Ok(Some(Link::of_request(request)));
    }
    // SAFETY: `is_open` accepts only open passive endpoints, whatever the handle is.
    let socket = unsafe { pep::is_open(info.handle).then(|| pep::take_socket(info.handle)) };
    Ok(Some(Link::of_socket(socket.ok_or(Errno::INVAL)??)))
}

/// Calls `body` with the endpoint behind a pointer.
///
/// # Safety
/// `ep` is an open endpoint of this provider.
unsafe fn with<T>(
    ep: *mut Fid,
    body: impl FnOnce(&mut Ep) -> Result<T, Errno>,
) -> Result<T, Errno> {
    // SAFETY: guaranteed by the caller.
    let object = unsafe { Object::<FidEp>::of(ep) };
    body(object.lock().ep(object.index()))
}

extern "C" fn setname(ep: *mut Fid, addr: *mut c_void, len: usize) -> c_int {
    // SAFETY: an open endpoint of this provider, and the application's address.
    status(|| unsafe {
        let addr = sockaddr::read(addr, len).ok_or(Errno::INVAL)?;
        with(ep, |ep| ep.link()?.bind(&addr))
    })
}

extern "C" fn getname(ep: *mut Fid, out: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: an open endpoint of this provider; the application's buffer has as many bytes as it
    // states.
    status(|| unsafe {
        let name = with(ep, |ep| Ok(ep.link()?.local()))?;
        pep::hand_out(name.as_ref(), out, len)
    })
}

extern "C" fn getpeer(ep: *mut FidEp, out: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: as in `getname`.
    status(|| unsafe {
        let remote = with(ep.cast(), |ep| {
            let link = ep.link()?;
            match link.stage() {
                Stage::Idle | Stage::Requesting => Err(Errno::NOTCONN),
                Stage::Connected | Stage::Closed => link.remote().ok_or(Errno::NOTCONN),
            }
        })?;
        pep::hand_out(Some(&remote), out, len)
    })
}

extern "C" fn connect(
    ep: *mut FidEp,
    addr: *const c_void,
    param: *const c_void,
    len: usize,
) -> c_int {
    // SAFETY: an open endpoint of this provider, and the application's address and data.
    status(|| unsafe {
        let data = pep::param_of(param, len)?;
        let to = sockaddr::read_by_family(addr).ok_or(Errno::INVAL)?;
        let fid = Fidptr::new(ep.cast(), (*ep).fid.context);
        with(ep.cast(), |ep| {
            let own = ep.address();
            ep.link()?.connect(fid, own, &to, data)
        })
    })
}

extern "C" fn accept(ep: *mut FidEp, param: *const c_void, len: usize) -> c_int {
    // SAFETY: an open endpoint of this provider, and the application's data.
    status(|| unsafe {
        let data = pep::param_of(param, len)?;
        let fid = Fidptr::new(ep.cast(), (*ep).fid.context);
        with(ep.cast(), |ep| {
            let own = ep.address();
            ep.link()?.accept(fid, &own, data)
        })
    })
}

/// Ends the connection after the data sent so far has arrived, or after `LINGER`.
extern "C" fn shutdown(ep: *mut FidEp, _flags: u64) -> c_int {
    status(|| {
        // SAFETY: an open endpoint of this provider.
        let object = unsafe { Object::<FidEp>::of(ep) };
        let end = Instant::now() + LINGER;
        loop {
            let mut state = object.lock();
            state.progress(object.index());
            let ep = state.ep(object.index());
            match ep.link()?.stage() {
                Stage::Idle | Stage::Requesting => return Err(Errno::NOTCONN),
                Stage::Closed => return Ok(()),
                Stage::Connected => {}
            }
            if ep.is_settled() || Instant::now() >= end {
                ep.link()?.hang_up();
                state.progress(object.index());
                return Ok(());
            }
            drop(state);
            std::thread::yield_now();
        }
    })
}
