// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints in the C interface. The operations are in the submodules.

#![allow(
    unsafe_code,
    reason = "called from C, and holds pointers of the application"
)]

mod atomic;
mod cm;
mod connected;
mod message;
mod msg;
mod options;
mod peek;
mod pieces;
mod rma;

use std::ffi::{c_int, c_void};
use std::ptr::null;

use portolan::EndpointConfig;
use portolan::binding::Endpoint;

use crate::abi::*;
use crate::eq;
use crate::errno::{Errno, done, status};
use crate::object::{Object, class, domain_of, fid};
use crate::state::{Ep, State};
use crate::unsupported;

pub(crate) use atomic::query as query_atomic;

static FID_OPS: Ops = Ops {
    close,
    bind,
    control,
    ..unsupported::OPS
};

pub(crate) extern "C" fn open(
    domain: *mut FidDomain,
    info: *mut Info,
    out: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: an open domain of this provider, and the application's information.
        let (domain, info) = unsafe { (domain_of(domain), info.as_ref().ok_or(Errno::INVAL)?) };
        // SAFETY: as above; a handle is an object of this provider.
        let link = unsafe { connected::link_of(info)? };
        let cm = match link {
            None => &raw const cm::OPS,
            Some(_) => &raw const connected::OPS,
        };
        let mut config = EndpointConfig::default();
        config.progress_thread = domain.has_own_progress();
        let engine = Endpoint::open(&config).map_err(|error| {
            eprintln!("portolan: cannot open an endpoint for libfabric: {error}");
            Errno(libc::ENODEV)
        })?;
        // SAFETY: the parts of `info` are null or valid.
        let ep = unsafe { new(engine, info) };
        let ep = match link {
            None => ep,
            Some(link) => ep.connected_by(link),
        };
        let index = domain.lock().open_ep(ep)?;
        let head = FidEp {
            fid: fid(CLASS_EP, context, &FID_OPS),
            ops: &raw const options::OPS,
            cm,
            msg: &raw const msg::plain::OPS,
            rma: &raw const rma::OPS,
            tagged: &raw const msg::tagged::OPS,
            atomic: &raw const atomic::OPS,
            collective: null(),
        };
        // SAFETY: `out` is the application's storage for the endpoint.
        unsafe { Object::store(out, head, domain, index) };
        Ok(())
    })
}

/// Creates the state of an endpoint.
///
/// # Safety
/// The parts of `info` are null or valid.
unsafe fn new(engine: Endpoint, info: &Info) -> Ep {
    // SAFETY: guaranteed by the caller.
    let (tx, rx) = unsafe { (info.tx_attr.as_ref(), info.rx_attr.as_ref()) };
    let (tx_flags, rx_flags) = (
        tx.map_or(0, |tx| tx.op_flags),
        rx.map_or(0, |rx| rx.op_flags),
    );
    let directed = info.caps & DIRECTED_RECV != 0;
    Ep::new(engine, tx_flags, rx_flags, directed)
}

extern "C" fn bind(ep: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    status(|| {
        // SAFETY: an open endpoint and an open object of this provider.
        unsafe {
            let object = Object::<FidEp>::of(ep);
            let (mut state, ep) = (object.lock(), object.index());
            match class(other)? {
                CLASS_AV if state.ep(ep).is_connected_kind() => Err(Errno::INVAL),
                CLASS_AV => state.bind_av(ep, Object::<FidAv>::of(other).index()),
                CLASS_CQ => {
                    allow(flags, SEND | RECV | SELECTIVE_COMPLETION, Errno::BADFLAGS)?;
                    state.bind_cq(ep, Object::<FidCq>::of(other).index(), flags)
                }
                // The target of remote memory operations is not notified of them.
                CLASS_CNTR if flags == 0 => Err(Errno::NOSYS),
                CLASS_CNTR => {
                    allow(flags, SEND | RECV | READ | WRITE, Errno::NOSYS)?;
                    state.bind_cntr(ep, Object::<FidCntr>::of(other).index(), flags)
                }
                CLASS_EQ if state.ep(ep).is_connected_kind() => {
                    state.ep(ep).link()?.set_manager(eq::manager(other))
                }
                // Connectionless endpoints report no events.
                CLASS_EQ => Ok(()),
                _ => Err(Errno::INVAL),
            }
        }
    })
}

fn allow(flags: u64, allowed: u64, otherwise: Errno) -> Result<(), Errno> {
    if flags & !allowed == 0 {
        Ok(())
    } else {
        Err(otherwise)
    }
}

extern "C" fn control(ep: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    status(|| {
        // SAFETY: an open endpoint of this provider; `arg` has the type that the command requires.
        unsafe {
            let object = Object::<FidEp>::of(ep);
            let mut state = object.lock();
            let ep = state.ep(object.index());
            match command {
                ENABLE if ep.is_connected_kind() => match ep.link()?.has_manager() {
                    true => Ok(()),
                    false => Err(Errno::NOEQ),
                },
                ENABLE if !ep.has_av() => Err(Errno(ENOAV)),
                ENABLE => Ok(()),
                GETOPSFLAG => options::get_flags(ep, arg.cast()),
                SETOPSFLAG => ep.set_default_flags(*arg.cast()),
                _ => Err(Errno::NOSYS),
            }
        }
    })
}

/// Closes the endpoint. It flushes sent data without the lock, so the domain's other endpoints need
/// not wait.
extern "C" fn close(ep: *mut Fid) -> c_int {
    // SAFETY: an open endpoint of this provider, closed only once.
    unsafe { Object::<FidEp>::close(ep, State::close_ep) }
}

/// Returns the immediate data of a message or a write, if the flags of the call request it.
fn data_of(data: u64, flags: u64) -> Option<u64> {
    (flags & REMOTE_CQ_DATA != 0).then_some(data)
}

/// Runs a data path operation on an endpoint's domain.
#[inline(always)]
fn with(ep: *mut FidEp, operation: impl FnOnce(&mut State, usize) -> Result<(), Errno>) -> isize {
    done(|| {
        // SAFETY: an open endpoint of this provider.
        let object = unsafe { Object::<FidEp>::of(ep) };
        operation(&mut object.lock(), object.index())
    })
}
