// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connecting an endpoint, and ending its connection.

use std::ffi::{c_int, c_void};
use std::time::Instant;

use crate::abi::*;
use crate::absent;
use crate::cm::{Fidptr, Request, Stage};
use crate::errno::{Errno, status};
use crate::object::Object;
use crate::pep;
use crate::sockaddr;
use crate::state::{Ep, LINGER, Link};

pub(super) static OPS: OpsCm = OpsCm {
    size: size_of::<OpsCm>(),
    setname,
    getname,
    getpeer,
    connect,
    listen: absent::listen,
    accept,
    reject: absent::reject,
    shutdown,
    join: absent::join,
};

/// What connects an endpoint, if it is of that kind: a request, a passive endpoint whose address it
/// takes, or nothing yet.
///
/// # Errors
/// `INVAL` for a handle that is neither, or was used before.
///
/// # Safety
/// The information's parts are null or valid; its handle is null, or an object of ours, or was one of
/// a request.
pub(super) unsafe fn link_of(info: &Info) -> Result<Option<Link>, Errno> {
    // SAFETY: the caller's promise.
    let ep_type = unsafe { info.ep_attr.as_ref() }.map_or(EP_UNSPEC, |ep| ep.ep_type);
    if ep_type != EP_MSG {
        return Ok(None);
    }
    if info.handle.is_null() {
        let mut link = Link::default();
        // SAFETY: the caller's promise.
        let source = unsafe { sockaddr::read(info.src_addr, info.src_addrlen) };
        // The kernel chooses an address when the endpoint connects. A socket bound now would occupy a
        // port for all destinations.
        if let Some(addr) = source.filter(|addr| !sockaddr::is_any(addr)) {
            link.bind(&addr)?;
        }
        return Ok(Some(link));
    }
    if let Some(request) = Request::take(info.handle) {
        return Ok(Some(Link::of_request(request)));
    }
    // SAFETY: open passive endpoints only, whatever the handle is.
    let socket = unsafe { pep::is_open(info.handle).then(|| pep::take_socket(info.handle)) };
    Ok(Some(Link::of_socket(socket.ok_or(Errno::INVAL)??)))
}

/// Use the endpoint behind a pointer.
///
/// # Safety
/// An open endpoint of ours.
unsafe fn with<T>(
    ep: *mut Fid,
    body: impl FnOnce(&mut Ep) -> Result<T, Errno>,
) -> Result<T, Errno> {
    // SAFETY: the caller's promise.
    let object = unsafe { Object::<FidEp>::of(ep) };
    body(object.lock().ep(object.index()))
}

extern "C" fn setname(ep: *mut Fid, addr: *mut c_void, len: usize) -> c_int {
    // SAFETY: an open endpoint of ours; the application's address.
    status(|| unsafe {
        let addr = sockaddr::read(addr, len).ok_or(Errno::INVAL)?;
        with(ep, |ep| ep.link()?.bind(&addr))
    })
}

extern "C" fn getname(ep: *mut Fid, out: *mut c_void, len: *mut usize) -> c_int {
    // SAFETY: an open endpoint of ours; the application's place for as many bytes as it says.
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
                Stage::Idle | Stage::Asking => Err(Errno::NOTCONN),
                Stage::Connected | Stage::Over => link.remote().ok_or(Errno::NOTCONN),
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
    // SAFETY: an open endpoint of ours; the application's address, and its data.
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
    // SAFETY: an open endpoint of ours; the application's data.
    status(|| unsafe {
        let data = pep::param_of(param, len)?;
        let fid = Fidptr::new(ep.cast(), (*ep).fid.context);
        with(ep.cast(), |ep| {
            let own = ep.address();
            ep.link()?.accept(fid, &own, data)
        })
    })
}

/// What was sent arrives first, within a while.
extern "C" fn shutdown(ep: *mut FidEp, _flags: u64) -> c_int {
    status(|| {
        // SAFETY: an open endpoint of ours.
        let object = unsafe { Object::<FidEp>::of(ep) };
        let end = Instant::now() + LINGER;
        loop {
            let mut state = object.lock();
            state.progress(object.index());
            let ep = state.ep(object.index());
            match ep.link()?.stage() {
                Stage::Idle | Stage::Asking => return Err(Errno::NOTCONN),
                Stage::Over => return Ok(()),
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
