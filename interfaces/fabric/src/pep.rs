// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passive endpoints, at which peers request connections.

#![allow(unsafe_code, reason = "called from C, with memory of the application")]

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::abi::*;
use crate::cm::{self, Fidptr, Listening, Manager, Request, socket};
use crate::eq;
use crate::errno::{Errno, status};
use crate::object::{class, fid};
use crate::provider_info::ProviderInfo;
use crate::sockaddr::{self, CAddr};
use crate::unsupported;

static FID_OPS: Ops = Ops {
    close,
    bind,
    control,
    ..unsupported::OPS
};

static OPS: OpsEp = OpsEp {
    size: size_of::<OpsEp>(),
    cancel,
    getopt,
    setopt,
    tx_ctx: unsupported::tx_ctx,
    rx_ctx: unsupported::rx_ctx,
    rx_size_left: unsupported::size_left,
    tx_size_left: unsupported::size_left,
};

static CM_OPS: OpsCm = OpsCm {
    size: size_of::<OpsCm>(),
    setname,
    getname,
    getpeer: unsupported::getpeer,
    connect: unsupported::connect,
    listen,
    accept: unsupported::accept,
    reject,
    shutdown: unsupported::shutdown,
    join: unsupported::join,
};

/// Default length of the system's queue of connections that the program has not accepted.
const BACKLOG_DEFAULT: c_int = 128;

#[repr(C)]
struct Pep {
    head: FidPep,
    state: Mutex<State>,
}

struct State {
    /// Information reported with each request, without the addresses.
    template: ProviderInfo,
    manager: Option<Arc<Manager>>,
    backlog: c_int,
    /// A bound socket, until an endpoint listens at it or connects from it.
    socket: Option<OwnedFd>,
    name: Option<SocketAddr>,
    listening: Option<Listening>,
}

/// Addresses of the open passive endpoints. A handle that is not in this set is never dereferenced.
static OPEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Returns true if a handle is an open passive endpoint.
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
        // SAFETY: an open fabric of this provider, and the application's information.
        let (api, info) = unsafe { ((*fabric).api_version, info.as_ref().ok_or(Errno::INVAL)?) };
        // SAFETY: the parts of `info` are null or valid.
        let (ep, addr, template) = unsafe {
            (
                info.ep_attr.as_ref(),
                sockaddr::read(info.src_addr, info.src_addrlen),
                ProviderInfo::from_info(info, api),
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
        // SAFETY: `out` is the application's storage for the endpoint.
        unsafe { *out = pep.cast() };
        Ok(())
    })
}

/// Returns the passive endpoint behind a pointer.
///
/// # Safety
/// `pep` is an open passive endpoint of this provider.
unsafe fn pep<'a, P>(pep: *mut P) -> &'a Pep {
    // SAFETY: the head is the first field, by `repr(C)`.
    unsafe { &*pep.cast() }
}

/// Takes the socket of a passive endpoint that does not listen, to connect from its address.
///
/// # Errors
/// `INVAL` if it has none, or if the socket was taken before.
///
/// # Safety
/// `handle` is an open passive endpoint of this provider.
pub(crate) unsafe fn take_socket(handle: *mut Fid) -> Result<OwnedFd, Errno> {
    // SAFETY: guaranteed by the caller.
    let mut state = unsafe { pep(handle) }.state.lock();
    state.socket.take().ok_or(Errno::INVAL)
}

impl State {
    fn bind(&mut self, addr: &SocketAddr) -> Result<(), Errno> {
        // On failure the previous socket stays bound, possibly to this very address.
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
            // Another endpoint has taken the socket.
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
        // SAFETY: an open passive endpoint and an open object of this provider.
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
        // SAFETY: an open passive endpoint of this provider; `arg` points to an `int`.
        let (mut state, backlog) = unsafe { (pep(at).state.lock(), *arg.cast::<c_int>()) };
        if backlog < 0 || state.listening.is_some() {
            return Err(Errno::INVAL);
        }
        state.backlog = backlog;
        Ok(())
    })
}

/// Fails, because no operation is ever posted on a passive endpoint.
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
    // SAFETY: `value` is the application's storage of `*len` bytes.
    status(|| unsafe { cm_data_len(level, name, value, len) })
}

/// Stores the maximum length of a program's connection data.
///
/// # Errors
/// `NOPROTOOPT` for any other option, `TOOSMALL`.
///
/// # Safety
/// `value` has room for `*len` bytes.
pub(crate) unsafe fn cm_data_len(
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> Result<(), Errno> {
    if level != OPT_ENDPOINT || name != OPT_CM_DATA_SIZE {
        return Err(Errno::NOPROTOOPT);
    }
    // SAFETY: guaranteed by the caller.
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
        // SAFETY: an open passive endpoint of this provider, and the application's address.
        let (mut state, addr) = unsafe { (pep(at).state.lock(), sockaddr::read(addr, len)) };
        if state.listening.is_some() {
            return Err(Errno::BUSY);
        }
        state.bind(&addr.ok_or(Errno::INVAL)?)
    })
}

extern "C" fn getname(at: *mut Fid, out: *mut c_void, len: *mut usize) -> c_int {
    status(|| {
        // SAFETY: an open passive endpoint of this provider.
        let name = unsafe { pep(at) }.state.lock().name;
        // SAFETY: the application's buffer has as many bytes as it states.
        unsafe { hand_out(name.as_ref(), out, len) }
    })
}

/// Writes an address, or the unspecified one if there is no socket yet.
///
/// # Errors
/// As for [`crate::av::hand_out_bytes`].
///
/// # Safety
/// `out` has room for `*len` bytes.
pub(crate) unsafe fn hand_out(
    name: Option<&SocketAddr>,
    out: *mut c_void,
    len: *mut usize,
) -> Result<(), Errno> {
    let unbound = (Ipv4Addr::UNSPECIFIED, 0).into();
    let name = CAddr::of(name.unwrap_or(&unbound));
    // SAFETY: guaranteed by the caller.
    unsafe { crate::av::hand_out_bytes(name.bytes(), out, len) }
}

extern "C" fn listen(at: *mut FidPep) -> c_int {
    status(|| {
        // SAFETY: an open passive endpoint of this provider.
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
        // SAFETY: the application's data of `len` bytes.
        let data = unsafe { param_of(param, len)? };
        let request = Request::take(handle).ok_or(Errno::INVAL)?;
        request.reject(data)
    })
}

/// Returns a program's connection data.
///
/// # Errors
/// `INVAL` if the data is too long.
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
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { std::slice::from_raw_parts(param.cast(), len) })
}

extern "C" fn close(at: *mut Fid) -> c_int {
    status(|| {
        OPEN.lock().remove(&(at as usize));
        // SAFETY: allocated by `open`, and closed only once.
        drop(unsafe { Box::from_raw(at.cast::<Pep>()) });
        Ok(())
    })
}
