// SPDX-License-Identifier: MIT OR Apache-2.0
//! Endpoints: their state, and the calls that change it. What they carry is in the modules below.

#![allow(
    unsafe_code,
    reason = "called from C, and holds pointers of the application"
)]

mod atomic;
mod cm;
mod message;
mod msg;
mod options;
mod peek;
mod pieces;
mod rma;

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use portolan::{
    Cookie, Endpoint, EndpointAddress, EndpointConfig, Error, PeerIndex, RawAccess, RawClaim,
    RawEnvelope, RawPiece,
};

use crate::abi::*;
use crate::absent;
use crate::cntr;
use crate::cq::{self, Entry};
use crate::domain::Domain;
use crate::errno::{Errno, done, status};
use crate::mr::Mr;
use crate::object::{Object, class, fid};
use crate::state::State;

pub(crate) use atomic::query as query_atomic;
pub(crate) use cm::hand_out;

static FID_OPS: Ops = Ops {
    size: size_of::<Ops>(),
    close,
    bind,
    control,
    ops_open: absent::ops_open,
};

/// Least room that a buffer for many messages keeps, unless the application says another: the
/// messages of most programs' control traffic are shorter.
const MIN_FREE_DEFAULT: usize = 64;

/// An endpoint.
pub(crate) struct Ep {
    pub(crate) engine: Endpoint,
    pub(crate) routes: Routes,
    /// Peers that are gone, of which the user was told.
    pub(crate) lost: Vec<PeerIndex>,
    /// Peers by their place in the address vector.
    pub(crate) peers: Vec<Option<PeerIndex>>,
    pub(crate) av: Option<usize>,
    /// Messages that were taken out of matching.
    pub(crate) claims: Vec<Claimed>,
    pub(crate) tx: Side,
    pub(crate) rx: Side,
    /// Receives may name a source.
    pub(crate) directed: bool,
    pub(crate) min_free: usize,
}

/// A message that was taken out of matching.
pub(crate) struct Claimed {
    /// The pointer that the application took it with, and names it by.
    pub(crate) context: usize,
    pub(crate) claim: RawClaim,
    pub(crate) envelope: RawEnvelope,
}

/// Flags of one direction.
#[derive(Clone, Copy, Default)]
pub(crate) struct Side {
    /// Those of calls that pass none.
    pub(crate) default: u64,
    /// Only operations that ask for it are reported.
    pub(crate) selective: bool,
}

impl Side {
    #[inline]
    pub(crate) fn reports(self, flags: u64) -> bool {
        !self.selective || flags & COMPLETION != 0
    }
}

/// An operation under way. The engine carries it, as a cookie.
#[derive(Clone, Copy)]
pub(crate) struct Op {
    /// The application's pointer, handed back and never followed.
    pub(crate) context: usize,
    /// The flags of its completion.
    pub(crate) flags: u64,
    /// Report success.
    pub(crate) reported: bool,
    /// Do not even report failure: the application gave no context, and could not tell whose it is.
    pub(crate) silent: bool,
}

/// In a cookie's flags, above those that libfabric has: [`Op::reported`] and [`Op::silent`].
const REPORTED: u64 = 1 << 63;
const SILENT: u64 = 1 << 62;

impl From<Op> for Cookie {
    #[inline]
    fn from(op: Op) -> Cookie {
        let mut cookie = Cookie::new(op.context as u64);
        cookie.flags = op.flags;
        cookie.flags |= if op.reported { REPORTED } else { 0 };
        cookie.flags |= if op.silent { SILENT } else { 0 };
        cookie
    }
}

impl Op {
    /// One that is reported as most are.
    #[inline]
    fn new(context: *mut c_void, flags: u64, reported: bool) -> Op {
        Op {
            context: context as usize,
            flags,
            reported,
            silent: false,
        }
    }

    /// Without a context: neither success nor failure is reported.
    fn untold(flags: u64) -> Op {
        Op {
            silent: true,
            ..Op::new(null_mut(), flags, false)
        }
    }

    #[inline]
    pub(crate) fn of(cookie: Cookie) -> Op {
        Op {
            context: usize::try_from(cookie.context).unwrap_or(0),
            flags: cookie.flags & !(REPORTED | SILENT),
            reported: cookie.flags & REPORTED != 0,
            silent: cookie.flags & SILENT != 0,
        }
    }

    /// What is told of one that has ended where the call is made.
    #[inline]
    pub(crate) fn entry(&self) -> Entry {
        Entry {
            context: self.context,
            flags: self.flags,
            ..Entry::default()
        }
    }
}

/// Where an endpoint's completions go.
#[derive(Default)]
pub(crate) struct Routes {
    pub(crate) tx_cq: Option<usize>,
    pub(crate) rx_cq: Option<usize>,
    pub(crate) counters: Vec<Bound>,
    /// Places in the address vector, by peer.
    pub(crate) sources: Vec<u64>,
    /// Who the peers are, for messages to people.
    pub(crate) owners: Vec<Option<EndpointAddress>>,
}

/// A counter of the operations with any of these flags.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) of: u64,
    pub(crate) cntr: usize,
}

impl Routes {
    #[inline]
    pub(crate) fn source(&self, peer: Option<PeerIndex>) -> u64 {
        let index = peer.map_or(usize::MAX, |peer| peer.0 as usize);
        self.sources.get(index).copied().unwrap_or(ADDR_NOTAVAIL)
    }

    /// A peer, in words. Its place in the address vector is often, and not always, its rank.
    #[cold]
    pub(crate) fn describe(&self, peer: PeerIndex) -> String {
        let owner = self.owners.get(peer.0 as usize).copied().flatten();
        let owner = owner.map_or_else(
            || "a process that was not inserted".to_owned(),
            |owner| format!("process {} on {}", owner.pid(), owner.ip()),
        );
        match self.source(Some(peer)) {
            ADDR_NOTAVAIL => owner,
            place => format!("{owner} (peer {place} of the address vector)"),
        }
    }
}

impl Ep {
    /// The peer at an address of the vector.
    #[inline]
    pub(crate) fn peer(&self, addr: u64) -> Result<PeerIndex, Errno> {
        let at = usize::try_from(addr).unwrap_or(usize::MAX);
        self.peers.get(at).copied().flatten().ok_or(Errno::INVAL)
    }

    /// The peer that a receive is limited to.
    #[inline]
    pub(crate) fn source(&self, addr: u64) -> Result<Option<PeerIndex>, Errno> {
        if !self.directed || addr == ADDR_UNSPEC {
            Ok(None)
        } else {
            self.peer(addr).map(Some)
        }
    }

    /// Learn of an address at its place in the vector.
    pub(crate) fn learn(&mut self, at: usize, peer: PeerIndex, address: &EndpointAddress) {
        if self.peers.len() <= at {
            self.peers.resize(at + 1, None);
        }
        self.peers[at] = Some(peer);
        let Routes {
            sources, owners, ..
        } = &mut self.routes;
        let index = peer.0 as usize;
        if sources.len() <= index {
            sources.resize(index + 1, ADDR_NOTAVAIL);
            owners.resize(index + 1, None);
        }
        owners[index] = Some(*address);
        // Inserted twice: messages are told to come from the first place.
        if sources[index] == ADDR_NOTAVAIL {
            sources[index] = at as u64;
        }
    }

    /// Forget an address; the peer goes with its last place.
    pub(crate) fn forget(&mut self, at: usize) {
        let Some(peer) = self.peers.get_mut(at).and_then(Option::take) else {
            return;
        };
        let other = self.peers.iter().position(|&other| other == Some(peer));
        if let Some(source) = self.routes.sources.get_mut(peer.0 as usize) {
            *source = other.map_or(ADDR_NOTAVAIL, |at| at as u64);
        }
        if other.is_none() {
            self.engine.remove(peer);
        }
    }

    /// Open a region to peers.
    pub(crate) fn register(&mut self, mr: &Mr) -> Result<(), Errno> {
        let memory = RawPiece {
            ptr: mr.start as *mut u8,
            len: mr.len,
        };
        let access = RawAccess {
            read: mr.readable,
            write: mr.writable,
        };
        // SAFETY: the application registered the memory, and keeps it until it closes the region,
        // which deregisters it.
        unsafe { self.engine.register(memory, access, mr.key, mr.base) }.map_err(
            |error| match error {
                Error::KeyInUse { .. } => Errno::NOKEY,
                _ => Errno::INVAL,
            },
        )
    }
}

pub(crate) extern "C" fn open(
    domain: *mut FidDomain,
    info: *mut Info,
    out: *mut *mut FidEp,
    context: *mut c_void,
) -> c_int {
    status(|| {
        // SAFETY: an open domain of ours, and the application's information.
        let (domain, info) = unsafe { (Domain::of(domain), info.as_ref().ok_or(Errno::INVAL)?) };
        let engine = Endpoint::open(&EndpointConfig::default()).map_err(|error| {
            eprintln!("portolan: no endpoint for libfabric: {error}");
            Errno(libc::ENODEV)
        })?;
        // SAFETY: parts of the information are null or valid.
        let mut ep = unsafe { new(engine, info) };
        let mut state = domain.state.lock();
        for (_, mr) in &state.mrs {
            ep.register(mr)?;
        }
        let index = state.eps.insert(ep);
        drop(state);
        let head = FidEp {
            fid: fid(CLASS_EP, context, &FID_OPS),
            ops: &raw const options::OPS,
            cm: &raw const cm::OPS,
            msg: &raw const msg::plain::OPS,
            rma: &raw const rma::OPS,
            tagged: &raw const msg::tagged::OPS,
            atomic: &raw const atomic::OPS,
            collective: null(),
        };
        // SAFETY: the application's place for the endpoint.
        unsafe { Object::give(out, head, domain, index) };
        Ok(())
    })
}

/// # Safety
/// The information's parts are null or valid.
unsafe fn new(engine: Endpoint, info: &Info) -> Ep {
    // SAFETY: the caller's promise.
    let (tx, rx) = unsafe { (info.tx_attr.as_ref(), info.rx_attr.as_ref()) };
    let side = |default| Side {
        default,
        selective: false,
    };
    Ep {
        engine,
        routes: Routes::default(),
        lost: Vec::new(),
        peers: Vec::new(),
        av: None,
        claims: Vec::new(),
        tx: side(tx.map_or(0, |tx| tx.op_flags)),
        rx: side(rx.map_or(0, |rx| rx.op_flags)),
        directed: info.caps & DIRECTED_RECV != 0,
        min_free: MIN_FREE_DEFAULT,
    }
}

extern "C" fn bind(ep: *mut Fid, other: *mut Fid, flags: u64) -> c_int {
    status(|| {
        // SAFETY: an open endpoint, and an open object, of ours.
        unsafe {
            let object = Object::<FidEp>::of(ep);
            match class(other)? {
                CLASS_AV => {
                    let av = Object::<FidAv>::of(other).index;
                    bind_av(&mut object.domain.state.lock(), object.index, av)
                }
                CLASS_CQ => {
                    let cq = Object::<FidCq>::of(other).index;
                    bind_cq(&mut object.domain.state.lock(), object.index, cq, flags)
                }
                CLASS_CNTR => {
                    let cntr = Object::<FidCntr>::of(other).index;
                    bind_cntr(&mut object.domain.state.lock(), object.index, cntr, flags)
                }
                // Endpoints without connections have nothing to say on an event queue.
                CLASS_EQ => Ok(()),
                _ => Err(Errno::INVAL),
            }
        }
    })
}

fn bind_av(state: &mut State, ep: usize, av: usize) -> Result<(), Errno> {
    let State { eps, avs, .. } = state;
    let (ep, av_state) = (&mut eps[ep], avs.get(av).ok_or(Errno::INVAL)?);
    ep.av = Some(av);
    for (at, address) in av_state.addresses() {
        let peer = ep.engine.insert(&address).map_err(|_| Errno::NOMEM)?;
        ep.learn(at, peer, &address);
    }
    Ok(())
}

fn bind_cq(state: &mut State, ep: usize, cq: usize, flags: u64) -> Result<(), Errno> {
    if flags & !(SEND | RECV | SELECTIVE_COMPLETION) != 0 {
        return Err(Errno::BADFLAGS);
    }
    let selective = flags & SELECTIVE_COMPLETION != 0;
    let own = &mut state.eps[ep];
    if flags & SEND != 0 {
        own.routes.tx_cq = Some(cq);
        own.tx.selective = selective;
    }
    if flags & RECV != 0 {
        own.routes.rx_cq = Some(cq);
        own.rx.selective = selective;
    }
    cq::attach(state, cq, ep)
}

fn bind_cntr(state: &mut State, ep: usize, cntr: usize, flags: u64) -> Result<(), Errno> {
    // The target of remote memory operations does not hear of them.
    if flags & !(SEND | RECV | READ | WRITE) != 0 || flags == 0 {
        return Err(Errno::NOSYS);
    }
    state.eps[ep]
        .routes
        .counters
        .push(Bound { of: flags, cntr });
    cntr::attach(state, cntr, ep)
}

extern "C" fn control(ep: *mut Fid, command: c_int, arg: *mut c_void) -> c_int {
    status(|| {
        // SAFETY: an open endpoint of ours; `arg` is as the command wants it.
        unsafe {
            let object = Object::<FidEp>::of(ep);
            let mut state = object.domain.state.lock();
            let ep = &mut state.eps[object.index];
            match command {
                ENABLE if ep.av.is_none() => Err(Errno(ENOAV)),
                ENABLE => Ok(()),
                GETOPSFLAG => options::get_flags(ep, arg.cast()),
                SETOPSFLAG => options::set_flags(ep, arg.cast()),
                _ => Err(Errno::NOSYS),
            }
        }
    })
}

extern "C" fn close(ep: *mut Fid) -> c_int {
    status(|| {
        // SAFETY: an open endpoint of ours, closed only once.
        let object = unsafe { Object::<FidEp>::take(ep) };
        let mut state = object.domain.state.lock();
        let routes = &state.eps[object.index].routes;
        let queues = [routes.tx_cq, routes.rx_cq];
        let counters: Vec<usize> = routes.counters.iter().map(|bound| bound.cntr).collect();
        for cq in queues.into_iter().flatten() {
            cq::detach(&mut state, cq, object.index);
        }
        for cntr in counters {
            cntr::detach(&mut state, cntr, object.index);
        }
        let ep = state.eps.remove(object.index);
        drop(state);
        // It waits for what was sent to arrive; the domain's other endpoints need not.
        drop(ep);
        Ok(())
    })
}

/// The number that goes with a message or a write, if the flags of a call by structure say so.
fn data_of(data: u64, flags: u64) -> Option<u64> {
    (flags & REMOTE_CQ_DATA != 0).then_some(data)
}

/// Run an operation of the data path on an endpoint's domain.
#[inline(always)]
fn with(ep: *mut FidEp, operation: impl FnOnce(&mut State, usize) -> Result<(), Errno>) -> isize {
    done(|| {
        // SAFETY: an open endpoint of ours.
        let object = unsafe { Object::<FidEp>::of(ep) };
        operation(&mut object.domain.state.lock(), object.index)
    })
}
