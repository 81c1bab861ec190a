// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passive endpoints: where peers may ask for connections.

#![allow(unsafe_code, reason = "called from C, with memory of the application")]

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::abi::*;
use crate::absent;
use crate::answer::Answer;
use crate::cm::{self, Fidptr, Listening, Manager, Request, socket};
use crate::eq;
use crate::errno::{Errno, status};
use crate::object::{class, fid};
use crate::sockaddr::{self, CAddr};

static FID_OPS: Ops = Ops {
    close,
    bind,
    control,
    ..absent::OPS
};

static OPS: OpsEp = OpsEp {
    size: size_of::<OpsEp>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: absent::tx_ctx,
    rx_ctx: absent::rx_ctx,
    rx_size_left: absent::size_left,
    tx_size_left: absent::size_left,
};

static CM_OPS: OpsCm = OpsCm {
    size: size_of::<OpsCm>(),
    setname,
    getname,
    getpeer: absent::getpeer,
    connect: absent::connect,
    listen,
    accept: absent::accept,
    reject,
    shutdown: absent::shutdown,
    join: absent::join,
};

/// Requests that wait in the system until the program looks, unless it says how many.
const BACKLOG_DEFAULT: c_int = 128;

#[repr(C)]
struct Pep {
    head: FidPep,
    state: Mutex<State>,
}

struct State {
    /// What is told of who asks, but for addresses.
    template: Answer,
    manager: Option<Arc<Manager>>,
    backlog: c_int,
    /// Bound, until somebody listens at it or connects from it.
    socket: Option<OwnedFd>,
    /// Its address.
    name: Option<SocketAddr>,
    listening: Option<Listening>,
}

/// Addresses of the passive endpoints that are open: a handle that is not here is never followed.
static OPEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Whether a handle is a passive endpoint that is open.
pub(crate) fn is_open(handle: *mut Fid) -> bool {
    OPEN.lock().contains(&(handle as usize))
}

pub(crate) extern "C" fn open(
    fabric: *mut FidFabric,
    info: *mut Info,
    out: *mut *mut FidPep,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: an open fabric of ours, and the application's information.
        let (api, info) = unsafe { ((*fabric).api_version, info.as_ref().ok_or(Errno::INVAL)?) };
        // SAFETY: parts of the information are null or valid.
        let (ep, addr, template) = unsafe {
            (
                info.ep_attr.as_ref(),
                sockaddr::read(info.src_addr, info.src_addrlen),
                Answer::again(info, api),
            )
        };
        if ep.is_some_and(|ep| ep.ep_type != EP_MSG) {
            return Err(Errno::NOSYS);
        }
        let mut state = State {
            template,
            manager: None,
            backlog: BACKLOG_DEFAULT,
            socket: None,
            name: None,
            listening: None,
        };
        if let Some(addr) = addr {
            state.bind(&addr)?;
        }
        let head = FidPep {
            fid: fid(CLASS_PEP, context, &FID_OPS),
            ops: &raw const OPS,
            cm: &raw const CM_OPS,
        };
        let state = Mutex::new(state);
        let pep = Box::into_raw(Box::new(Pep { head, state }));
        OPEN.lock().insert(pep as usize);
        // SAFETY: the application's place for the endpoint.
        unsafe { *out = pep.cast() };
        Ok(())
    })
}

/// # Safety
/// An open passive endpoint of ours.
unsafe fn pep<'a, P>(pep: *mut P) -> &'a Pep {
    // SAFETY: the head is at the beginning, by `repr(C)`.
    unsafe { &*pep.cast() }
}

/// Take the address of a passive endpoint that does not listen, to connect from it.
///
/// # Errors
/// `INVAL` if it has none, or none any more.
///
/// # Safety
/// An open passive endpoint of ours.
pub(crate) unsafe fn take_socket(handle: *mut Fid) -> Result<OwnedFd, Errno> {
    // SAFETY: the caller's promise.
    let mut state = unsafe { pep(handle) }.state.lock();
    state.socket.take().ok_or(Errno::INVAL)
}

impl State {
    fn bind(&mut self, addr: &SocketAddr) -> Result<(), Errno> {
        // One that cannot be had leaves what there is. It may be this very address.
        let socket = socket::bind(addr)?;
        self.name = socket::name(&socket);
        self.socket = Some(socket);
        Ok(())
    }

    fn listen(&mut self, fid: Fidptr) -> Result<(), Errno> {
        let manager = self.manager.as_ref().ok_or(Errno::NOEQ)?;
        if self.listening.is_some() {
            return Err(Errno::OPBADSTATE);
        }
        let manager = Arc::clone(manager);
        match (&self.socket, self.name) {
            (Some(_), _) => {}
            (None, None) => self.bind(&(Ipv4Addr::UNSPECIFIED, 0).into())?,
            // An endpoint has taken its address.
            (None, Some(_)) => return Err(Errno::OPBADSTATE),
        }
        let socket = self.socket.take().ok_or(Errno::INVAL)?;
        let template = self.template.clone();
        match manager.listen(socket, self.backlog, fid, template) {
            Ok(listening) => self.listening = Some(listening),
            Err((socket, errno)) => {
                self.socket = Some(socket);
                return Err(errno);
            }
        }
        Ok(())
    }
}

extern "C" fn bind(at: *mut Fid, other: *mut Fid, _flags: u64) -> c_int {
    status(|| {
        // SAFETY: an open passive endpoint, and an open object, of ours.
        unsafe {
            if class(other)? != CLASS_EQ {
                return Err(Errno::INVAL);
            }
            let mut state = pep(at).state.lock();
            if state.manager.is_some() {
                return Err(Errno::OPBADSTATE);
            }
            state.manager = Some(eq::manager(other));
        }
        Ok(())
    })
}

extern "C" fn control(at: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    status(|| {
        if command != BACKLOG {
            return Err(Errno::NOSYS);
        }
        // SAFETY: an open passive endpoint of ours; the backlog is an `int`.
        let (mut state, backlog) = unsafe { (pep(at).state.lock(), *arg.cast::<c_int>()) };
        if backlog < 0 || state.listening.is_some() {
            return Err(Errno::INVAL);
        }
        state.backlog = backlog;
        Ok(())
    })
}

/// Nothing is ever posted here.
extern "C" fn cancel(_: *mut Fid, _: *mut c_void) -> isize {
    -(libc::ENOSYS as isize)
}

extern "C" fn getopt(
    _: *mut Fid,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    // SAFETY: the application's place for a value.
    status(|| unsafe { cm_data_len(level, name, value, len) })
}

/// Tell how long a program's own data may be.
///
/// # Errors
/// `NOPROTOOPT` for any other option, `TOOSMALL`.
///
/// # Safety
/// `value` has `*len` bytes.
pub(crate) unsafe fn cm_data_len(
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> Result<(), Errno> {
    if level != OPT_ENDPOINT || name != OPT_CM_DATA_SIZE {
        return Err(Errno::NOPROTOOPT);
    }
    // SAFETY: the caller's promise.
    unsafe {
        if *len < size_of::<usize>() {
            return Err(Errno::TOOSMALL);
        }
        *value.cast() = cm::DATA_LEN_MAX;
        *len = size_of::<usize>();
    }
    Ok(())
}

extern "C" fn setopt(_: *mut Fid, _: c_int, _: c_int, _: *const c_void, _: usize) -> c_int {
    -libc::ENOPROTOOPT
}

extern "C" fn setname(at: *mut Fid, addr: *mut c_void, len: usize) -> c_int {
    status(|| {
        // SAFETY: an open passive endpoint of ours; the application's address.
        let (mut state, addr) = unsafe { (pep(at).state.lock(), sockaddr::read(addr, len)) };
        if state.listening.is_some() {
            return Err(Errno::BUSY);
        }
        state.bind(&addr.ok_or(Errno::INVAL)?)
    })
}

extern "C" fn getname(at: *mut Fid, out: *mut c_void, len: *mut usize) -> c_int {
    status(|| {
        // SAFETY: an open passive endpoint of ours.
        let name = unsafe { pep(at) }.state.lock().name;
        // SAFETY: the application's place for as many bytes as it says.
        unsafe { hand_out(name.as_ref(), out, len) }
    })
}

/// Write an address, or the one that no socket has yet.
///
/// # Errors
/// As [`crate::av::hand_out_bytes`].
///
/// # Safety
/// `out` has `*len` bytes.
pub(crate) unsafe fn hand_out(
    name: Option<&SocketAddr>,
    out: *mut c_void,
    len: *mut usize,
) -> Result<(), Errno> {
    let unbound = (Ipv4Addr::UNSPECIFIED, 0).into();
    let name = CAddr::of(name.unwrap_or(&unbound));
    // SAFETY: the caller's promise.
    unsafe { crate::av::hand_out_bytes(name.bytes(), out, len) }
}

extern "C" fn listen(at: *mut FidPep) -> c_int {
    status(|| {
        // SAFETY: an open passive endpoint of ours.
        let (pep, context) = unsafe { (pep(at), (*at).fid.context) };
        let fid = Fidptr::new(at.cast(), context);
        pep.state.lock().listen(fid)
    })
}

extern "C" fn reject(
    _at: *mut FidPep,
    handle: *mut Fid,
    param: *const c_void,
    len: usize,
) -> c_int {
    status(|| {
        // SAFETY: the application's data.
        let data = unsafe { param_of(param, len)? };
        let request = Request::take(handle).ok_or(Errno::INVAL)?;
        request.reject(data)
    })
}

/// A program's own data.
///
/// # Errors
/// `INVAL` if they are too long.
///
/// # Safety
/// `param` is null or has `len` bytes.
pub(crate) unsafe fn param_of<'a>(param: *const c_void, len: usize) -> Result<&'a [u8], Errno> {
    if param.is_null() || len == 0 {
        return Ok(&[]);
    }
    if len > cm::DATA_LEN_MAX {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(param.cast(), len) })
}

extern "C" fn close(at: *mut Fid) -> c_int {
    status(|| {
        OPEN.lock().remove(&(at as usize));
        // SAFETY: made by `open`, closed only once.
        drop(unsafe { Box::from_raw(at.cast::<Pep>()) });
        Ok(())
    })
}
