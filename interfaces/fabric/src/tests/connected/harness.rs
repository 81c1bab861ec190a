// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listening and connecting programs, in one process.

#![allow(unsafe_code, reason = "the tests call as C does")]

use std::ffi::{CString, c_int, c_void};
use std::net::SocketAddr;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::rc::Rc;
use std::time::Instant;

use crate::abi::*;
use crate::cm::DropReason;
use crate::eq;
use crate::provider::fi_prov_ini;
use crate::sockaddr;
use crate::tests::harness::{API, PATIENCE, close, free, is_readable, ok};

/// Context that endpoints are opened with.
pub(super) const CONTEXT: *mut c_void = 0x77 as *mut c_void;

pub(super) const AGAIN: isize = -(libc::EAGAIN as isize);
pub(super) const NOT_CONNECTED: isize = -(libc::ENOTCONN as isize);

/// Environment variable that is set in a process that runs one test only.
const ALONE: &str = "PORTOLAN_TEST_ALONE";

/// Runs this test in its own process, because it changes process-wide state. Returns true in
/// that process.
pub(super) fn runs_in_own_process(test: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args(["--exact", "--nocapture", test]).env(ALONE, "1");
    let out = alone.output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
    false
}

/// Requests connected endpoints, to listen if the flags contain `SOURCE`, or else to connect.
pub(super) fn query(
    service: Option<u16>,
    flags: u64,
    change: impl FnOnce(&mut Info),
) -> Result<*mut Info, c_int> {
    let provider = fi_prov_ini().cast::<Provider>();
    let service = service.map(|port| CString::new(port.to_string()).unwrap());
    let service_ptr = service.as_ref().map_or(null(), |text| text.as_ptr());
    let node = service.as_ref().map_or(null(), |_| c"127.0.0.1".as_ptr());
    // SAFETY: the hints live through the call, and `out` is on the stack.
    unsafe {
        let mut fabric: FabricAttr = std::mem::zeroed();
        fabric.prov_name = crate::provider_info::NAME.as_ptr().cast_mut();
        let mut ep: EpAttr = std::mem::zeroed();
        ep.ep_type = EP_MSG;
        let mut hints: Info = std::mem::zeroed();
        (hints.fabric_attr, hints.ep_attr) = (&raw mut fabric, &raw mut ep);
        change(&mut hints);
        let (mut out, getinfo) = (null_mut(), (*provider).getinfo);
        let hints = &raw const hints;
        match getinfo(API, node, service_ptr, flags, hints, &raw mut out) {
            0 => Ok(out),
            code => Err(code),
        }
    }
}

/// An event that the test has read.
#[derive(Debug)]
pub(super) struct ReadEvent {
    pub(super) event: u32,
    pub(super) fid: *mut Fid,
    pub(super) info: *mut Info,
    pub(super) data: Vec<u8>,
}

/// A fabric and its event queue.
pub(super) struct EventQueue {
    pub(super) fabric: *mut FidFabric,
    pub(super) eq: *mut FidEq,
}

impl EventQueue {
    pub(super) fn open(info: *mut Info) -> Rc<EventQueue> {
        let provider = fi_prov_ini().cast::<Provider>();
        let (mut fabric, mut eq) = (null_mut(), null_mut());
        // SAFETY: complete attributes, and storage for the objects.
        unsafe {
            let attr = (*info).fabric_attr;
            ok(((*provider).fabric)(attr, &raw mut fabric, null_mut()));
            (*fabric).api_version = API;
            let open = (*(*fabric).ops).eq_open;
            ok(open(fabric, null_mut(), &raw mut eq, null_mut()));
        }
        Rc::new(EventQueue { fabric, eq })
    }

    /// Reads an event with up to `data_len` bytes of data.
    pub(super) fn read(&self, data_len: usize, flags: u64) -> Result<ReadEvent, isize> {
        const HEAD: usize = size_of::<EqCmEntry>();
        let mut words = vec![0u64; (HEAD + data_len).div_ceil(8)];
        let mut event = 0xa5;
        // SAFETY: an open queue, and storage for the event.
        let code = unsafe {
            let buf = words.as_mut_ptr().cast();
            ((*(*self.eq).ops).sread)(self.eq, &raw mut event, buf, HEAD + data_len, 0, flags)
        };
        let len = usize::try_from(code).map_err(|_| code)?;
        // SAFETY: an entry was written to the beginning, followed by its data.
        unsafe {
            let entry = *words.as_ptr().cast::<EqCmEntry>();
            let bytes = std::slice::from_raw_parts(words.as_ptr().cast::<u8>(), len);
            Ok(ReadEvent {
                event,
                fid: entry.fid,
                info: entry.info,
                data: bytes[HEAD..].to_vec(),
            })
        }
    }

    /// Returns the number of callers dropped for this reason.
    pub(super) fn dropped(&self, reason: DropReason) -> u64 {
        // SAFETY: an open queue.
        unsafe { eq::manager(&raw mut (*self.eq).fid) }.dropped(reason)
    }

    /// Returns 0 if a sleep on the queue is allowed, or else the error.
    pub(super) fn trywait(&self, queue: *mut Fid) -> c_int {
        let mut fids = [queue];
        // SAFETY: open objects.
        unsafe { ((*(*self.fabric).ops).trywait)(self.fabric, fids.as_mut_ptr(), 1) }
    }

    /// Returns the next event, or the number of a failure, while `others` makes progress.
    pub(super) fn wait(&self, mut others: impl FnMut()) -> Result<ReadEvent, isize> {
        let begun = Instant::now();
        loop {
            match self.read(1024, 0) {
                Err(code) if code == AGAIN => others(),
                done => return done,
            }
            assert!(begun.elapsed() < PATIENCE, "nothing happens");
        }
    }

    /// Returns the next failure and its data.
    pub(super) fn failure(&self, others: impl FnMut()) -> (EqErrEntry, Vec<u8>) {
        assert_eq!(self.wait(others).unwrap_err(), -(EAVAIL as isize));
        // SAFETY: an open queue, and storage for the entry. Its data stays valid until the next
        // failure is read.
        unsafe {
            let mut entry: EqErrEntry = std::mem::zeroed();
            let code = ((*(*self.eq).ops).readerr)(self.eq, &raw mut entry, 0);
            assert_eq!(code, size_of::<EqErrEntry>().cast_signed());
            let data = std::slice::from_raw_parts(entry.err_data.cast(), entry.err_data_size);
            let data = data.to_vec();
            (entry, data)
        }
    }
}

impl Drop for EventQueue {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: open until now.
            unsafe {
                ok(close(&raw mut (*self.eq).fid));
                ok(close(&raw mut (*self.fabric).fid));
            }
        }
    }
}

/// A program that listens at a loopback port.
pub(super) struct Server {
    pub(super) events: Rc<EventQueue>,
    pub(super) pep: *mut FidPep,
    info: *mut Info,
}

impl Server {
    /// Creates a server whose passive endpoint does not listen yet.
    pub(super) fn bound() -> Server {
        let info = query(Some(0), SOURCE, |_| ()).unwrap();
        let events = EventQueue::open(info);
        let mut pep = null_mut();
        // SAFETY: open objects, and storage for another.
        unsafe {
            let open = (*(*events.fabric).ops).passive_ep;
            ok(open(events.fabric, info, &raw mut pep, null_mut()));
            let fid = &raw mut (*pep).fid;
            ok(((*(*fid).ops).bind)(fid, &raw mut (*events.eq).fid, 0));
        }
        Server { events, pep, info }
    }

    pub(super) fn listening() -> Server {
        let server = Server::bound();
        assert_eq!(server.listen(), 0);
        server
    }

    pub(super) fn listen(&self) -> c_int {
        // SAFETY: an open passive endpoint.
        unsafe { ((*(*self.pep).cm).listen)(self.pep) }
    }

    pub(super) fn addr(&self) -> SocketAddr {
        // SAFETY: an open passive endpoint.
        unsafe { name_of(&raw mut (*self.pep).fid, (*(*self.pep).cm).getname) }.unwrap()
    }

    /// Returns the next request.
    pub(super) fn request(&self, others: impl FnMut()) -> ReadEvent {
        let got = self.events.wait(others).unwrap();
        // SAFETY: an open passive endpoint.
        let fid = unsafe { &raw mut (*self.pep).fid };
        assert_eq!((got.event, got.fid), (CONNREQ, fid));
        got
    }

    pub(super) fn reject(&self, handle: *mut Fid, data: &[u8]) -> c_int {
        // SAFETY: an open passive endpoint. Any handle is allowed.
        unsafe {
            let (param, len) = (data.as_ptr().cast(), data.len());
            ((*(*self.pep).cm).reject)(self.pep, handle, param, len)
        }
    }

    /// Opens an endpoint for a request and accepts it.
    pub(super) fn accept(&self, request: ReadEvent, data: &[u8]) -> Side {
        let side = Side::open(&self.events, request.info);
        assert_eq!(side.accept(data), 0);
        let got = self.events.wait(|| ()).unwrap();
        assert_eq!((got.event, got.fid), (CONNECTED, side.fid()));
        assert_eq!(got.data, b"");
        side
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: open until now.
            unsafe { ok(close(&raw mut (*self.pep).fid)) };
            free(self.info);
        }
    }
}

/// Returns the descriptor of a queue.
pub(super) fn wait_fd(queue: *mut Fid) -> c_int {
    let mut fd = -1;
    // SAFETY: an open queue, and storage for the descriptor.
    let code = unsafe { ((*(*queue).ops).control)(queue, GETWAIT, (&raw mut fd).cast()) };
    assert_eq!(code, 0);
    fd
}

/// Returns the address of an object.
pub(super) fn name_of(
    fid: *mut Fid,
    call: extern "C" fn(*mut Fid, *mut c_void, *mut usize) -> c_int,
) -> Result<SocketAddr, c_int> {
    let (mut bytes, mut len) = ([0xa5u8; 64], 64);
    match call(fid, bytes.as_mut_ptr().cast(), &raw mut len) {
        // SAFETY: `len` bytes were written.
        0 => Ok(unsafe { sockaddr::read(bytes.as_ptr().cast(), len) }.unwrap()),
        code => Err(code),
    }
}

/// One end of a connection, in a domain of its own.
pub(super) struct Side {
    pub(super) events: Rc<EventQueue>,
    pub(super) domain: *mut FidDomain,
    pub(super) cq: *mut FidCq,
    pub(super) ep: *mut FidEp,
    pub(super) info: *mut Info,
}

impl Side {
    /// Opens an endpoint for `info`, which is freed with it. Its events go to `events`.
    pub(super) fn open(events: &Rc<EventQueue>, info: *mut Info) -> Side {
        let side = Side::unbound(events, info);
        assert_eq!(side.bind_eq(), 0);
        side
    }

    /// Opens an endpoint that is not bound to an event queue.
    pub(super) fn unbound(events: &Rc<EventQueue>, info: *mut Info) -> Side {
        let (mut domain, mut cq, mut ep) = (null_mut(), null_mut(), null_mut());
        let fabric = events.fabric;
        // SAFETY: open objects, complete attributes, and storage for new objects.
        unsafe {
            let open = (*(*fabric).ops).domain;
            ok(open(fabric, info, &raw mut domain, null_mut()));
            let mut attr: CqAttr = std::mem::zeroed();
            attr.format = CQ_FORMAT_TAGGED;
            let ops = &*(*domain).ops;
            ok((ops.cq_open)(
                domain,
                &raw mut attr,
                &raw mut cq,
                null_mut(),
            ));
            ok((ops.endpoint)(domain, info, &raw mut ep, CONTEXT));
            let fid = &raw mut (*ep).fid;
            ok(((*(*fid).ops).bind)(fid, &raw mut (*cq).fid, SEND | RECV));
        }
        let events = Rc::clone(events);
        Side {
            events,
            domain,
            cq,
            ep,
            info,
        }
    }

    /// Opens an endpoint that is to connect to the server.
    pub(super) fn client(of: &Server) -> Side {
        let info = query(Some(of.addr().port()), 0, |_| ()).unwrap();
        Side::open(&EventQueue::open(info), info)
    }

    /// Opens two connected endpoints.
    pub(super) fn pair(server: &Server) -> (Side, Side) {
        let client = Side::client(server);
        assert_eq!(client.connect(b""), 0);
        let request = server.request(|| client.work());
        let accepted = server.accept(request, b"");
        let got = client.events.wait(|| ()).unwrap();
        assert_eq!((got.event, got.fid), (CONNECTED, client.fid()));
        (client, accepted)
    }

    pub(super) fn fid(&self) -> *mut Fid {
        // SAFETY: an open endpoint.
        unsafe { &raw mut (*self.ep).fid }
    }

    /// Returns the completion queue.
    pub(super) fn queue(&self) -> *mut Fid {
        // SAFETY: an open queue.
        unsafe { &raw mut (*self.cq).fid }
    }

    pub(super) fn cm(&self) -> &OpsCm {
        // SAFETY: an open endpoint; the table is static.
        unsafe { &*(*self.ep).cm }
    }

    pub(super) fn bind_eq(&self) -> c_int {
        // SAFETY: open objects.
        unsafe { ((*(*self.fid()).ops).bind)(self.fid(), &raw mut (*self.events.eq).fid, 0) }
    }

    pub(super) fn enable(&self) -> c_int {
        // SAFETY: an open endpoint.
        unsafe { ((*(*self.fid()).ops).control)(self.fid(), ENABLE, null_mut()) }
    }

    pub(super) fn connect(&self, data: &[u8]) -> c_int {
        // SAFETY: the information is owned by `self`.
        let dest = unsafe { (*self.info).dest_addr };
        (self.cm().connect)(self.ep, dest, data.as_ptr().cast(), data.len())
    }

    pub(super) fn accept(&self, data: &[u8]) -> c_int {
        (self.cm().accept)(self.ep, data.as_ptr().cast(), data.len())
    }

    pub(super) fn shutdown(&self) -> c_int {
        (self.cm().shutdown)(self.ep, 0)
    }

    pub(super) fn send(&self, bytes: &[u8], context: usize) -> isize {
        let (buf, context) = (bytes.as_ptr().cast(), context as *mut c_void);
        // SAFETY: an open endpoint; the bytes outlive the test's wait for the completion.
        unsafe {
            ((*(*self.ep).msg).send)(self.ep, buf, bytes.len(), null_mut(), ADDR_UNSPEC, context)
        }
    }

    pub(super) fn recv(&self, into: &mut [u8], context: usize) -> isize {
        let (buf, context) = (into.as_mut_ptr().cast(), context as *mut c_void);
        // SAFETY: as in `send`.
        unsafe { ((*(*self.ep).msg).recv)(self.ep, buf, into.len(), null_mut(), 0, context) }
    }

    /// Makes progress without reading an entry.
    pub(super) fn work(&self) {
        // SAFETY: an open queue; no entry is requested.
        unsafe { ((*(*self.cq).ops).read)(self.cq, null_mut(), 0) };
    }

    /// Returns the context of the next completion, or its failure.
    pub(super) fn wait(&self, other: &Side) -> Result<usize, CqErrEntry> {
        let begun = Instant::now();
        loop {
            if let Some(done) = self.poll() {
                return done;
            }
            other.work();
            assert!(begun.elapsed() < PATIENCE, "nothing completes");
        }
    }

    /// Returns the next completion of a program that sleeps on the queue's descriptor.
    pub(super) fn sleep(&self) -> Result<usize, CqErrEntry> {
        let patience_ms = c_int::try_from(PATIENCE.as_millis()).unwrap();
        loop {
            if let Some(done) = self.poll() {
                return done;
            }
            if self.events.trywait(self.queue()) == 0 {
                assert!(
                    is_readable(wait_fd(self.queue()), patience_ms),
                    "it sleeps for ever"
                );
            }
        }
    }

    /// Returns a completion, if there is one.
    fn poll(&self) -> Option<Result<usize, CqErrEntry>> {
        // SAFETY: an open queue with the longest format, and storage for an entry and a failure.
        unsafe {
            let mut entry: CqTaggedEntry = std::mem::zeroed();
            let out = (&raw mut entry).cast();
            match ((*(*self.cq).ops).read)(self.cq, out, 1) {
                1 => Some(Ok(entry.op_context as usize)),
                AGAIN => None,
                code => {
                    assert_eq!(code, -(EAVAIL as isize));
                    let mut entry: CqErrEntry = std::mem::zeroed();
                    assert_eq!(((*(*self.cq).ops).readerr)(self.cq, &raw mut entry, 0), 1);
                    Some(Err(entry))
                }
            }
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: open until now.
            unsafe {
                ok(close(self.fid()));
                ok(close(&raw mut (*self.cq).fid));
                ok(close(&raw mut (*self.domain).fid));
            }
            free(self.info);
        }
    }
}
