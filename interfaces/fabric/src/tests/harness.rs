// SPDX-License-Identifier: MIT OR Apache-2.0
//! A program that opens one object of each type and calls through the tables.

#![allow(unsafe_code, reason = "the tests call as C does")]

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use crate::abi::*;
use crate::provider::fi_prov_ini;

/// Longest wait for an expected event, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
pub(super) const API: u32 = version(1, 17);

/// Sleeps on a descriptor until it is readable or the timeout expires. Returns true if it is
/// readable.
pub(crate) fn is_readable(fd: c_int, timeout_ms: c_int) -> bool {
    let mut entry = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, on the stack.
    match unsafe { libc::poll(&raw mut entry, 1, timeout_ms) } {
        -1 => panic!("poll: {}", std::io::Error::last_os_error()),
        count => count > 0,
    }
}

/// Options with which a program opens its objects.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) threading: c_int,
    pub(super) format: c_int,
    /// Flags of the binding to the completion queue, in addition to the directions.
    pub(super) binding: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            threading: THREAD_SAFE,
            format: CQ_FORMAT_TAGGED,
            binding: 0,
        }
    }
}

/// A program with one object of each type.
pub(super) struct Party {
    pub(super) info: *mut Info,
    pub(super) fabric: *mut FidFabric,
    pub(super) domain: *mut FidDomain,
    pub(super) av: *mut FidAv,
    pub(super) cq: *mut FidCq,
    pub(super) cntr: *mut FidCntr,
    pub(super) ep: *mut FidEp,
}

/// A completion that the test has read.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(super) struct Done {
    pub(super) context: usize,
    pub(super) flags: u64,
    pub(super) len: usize,
    pub(super) data: u64,
    pub(super) tag: u64,
    pub(super) source: u64,
}

/// Calls `fi_getinfo` as a program that names the provider.
pub(super) fn getinfo(change: impl FnOnce(&mut Info)) -> Result<*mut Info, c_int> {
    let provider = fi_prov_ini().cast::<Provider>();
    // SAFETY: the hints live through the call, and `out` is on the stack.
    unsafe {
        let mut fabric: FabricAttr = std::mem::zeroed();
        fabric.prov_name = crate::provider_info::NAME.as_ptr().cast_mut();
        let mut hints: Info = std::mem::zeroed();
        hints.fabric_attr = &raw mut fabric;
        change(&mut hints);
        let mut out = null_mut();
        let code = ((*provider).getinfo)(API, null(), null(), 0, &raw const hints, &raw mut out);
        if code == 0 { Ok(out) } else { Err(code) }
    }
}

pub(super) fn free(info: *mut Info) {
    // SAFETY: freed the way libfabric does; each part is on the C heap.
    unsafe {
        let head = &*info;
        if !head.next.is_null() {
            free(head.next);
        }
        libc::free((*head.domain_attr).name.cast());
        libc::free((*head.fabric_attr).name.cast());
        for part in [
            head.tx_attr.cast::<c_void>(),
            head.rx_attr.cast(),
            head.ep_attr.cast(),
            head.domain_attr.cast(),
            head.fabric_attr.cast(),
            head.src_addr,
            head.dest_addr,
            info.cast(),
        ] {
            libc::free(part);
        }
    }
}

impl Party {
    pub(super) fn open(plan: Plan) -> Party {
        let info = getinfo(|_| ()).unwrap();
        let provider = fi_prov_ini().cast::<Provider>();
        let (mut fabric, mut domain, mut av, mut cq, mut cntr) =
            (null_mut(), null_mut(), null_mut(), null_mut(), null_mut());
        // SAFETY: each object is open when it is used, and the attributes are complete.
        unsafe {
            (*(*info).fabric_attr).api_version = API;
            (*(*info).domain_attr).threading = plan.threading;
            ok(((*provider).fabric)(
                (*info).fabric_attr,
                &raw mut fabric,
                null_mut(),
            ));
            (*fabric).api_version = API;
            ok(((*(*fabric).ops).domain)(
                fabric,
                info,
                &raw mut domain,
                null_mut(),
            ));
            let ops = &*(*domain).ops;
            ok((ops.av_open)(domain, null_mut(), &raw mut av, null_mut()));
            let mut attr: CqAttr = std::mem::zeroed();
            attr.format = plan.format;
            ok((ops.cq_open)(
                domain,
                &raw mut attr,
                &raw mut cq,
                null_mut(),
            ));
            ok((ops.cntr_open)(
                domain,
                null_mut(),
                &raw mut cntr,
                null_mut(),
            ));
        }
        let ep = null_mut();
        let mut party = Party {
            info,
            fabric,
            domain,
            av,
            cq,
            cntr,
            ep,
        };
        party.open_ep(plan.binding);
        party
    }

    fn open_ep(&mut self, binding: u64) {
        // SAFETY: open objects, and storage for the endpoint.
        unsafe {
            let open = (*(*self.domain).ops).endpoint;
            ok(open(self.domain, self.info, &raw mut self.ep, null_mut()));
            let fid = &raw mut (*self.ep).fid;
            let bind = (*(*fid).ops).bind;
            ok(bind(fid, &raw mut (*self.av).fid, 0));
            ok(bind(fid, &raw mut (*self.cq).fid, SEND | RECV | binding));
            ok(bind(fid, &raw mut (*self.cntr).fid, SEND | READ | WRITE));
            ok(((*(*fid).ops).control)(fid, ENABLE, null_mut()));
        }
    }

    /// Replaces the endpoint by a new one.
    pub(super) fn reopen_ep(&mut self) {
        self.close_ep();
        self.open_ep(0);
    }

    /// Opens two programs, each at index 0 of the other's address vector.
    pub(super) fn pair(plan: Plan) -> (Party, Party) {
        let (a, b) = (Party::open(plan), Party::open(plan));
        assert_eq!(a.insert(&b.name()), 0);
        assert_eq!(b.insert(&a.name()), 0);
        (a, b)
    }

    pub(super) fn name(&self) -> Vec<u8> {
        let mut bytes = vec![0xa5; 100];
        let mut len = bytes.len();
        // SAFETY: an open endpoint, and room for `len` bytes.
        unsafe {
            let fid = &raw mut (*self.ep).fid;
            ok(((*(*self.ep).cm).getname)(
                fid,
                bytes.as_mut_ptr().cast(),
                &raw mut len,
            ));
        }
        bytes.truncate(len);
        bytes
    }

    pub(super) fn insert(&self, name: &[u8]) -> u64 {
        let mut addr = 0xa5;
        // SAFETY: an open vector, one address, and storage for one number.
        let count = unsafe {
            ((*(*self.av).ops).insert)(
                self.av,
                name.as_ptr().cast(),
                1,
                &raw mut addr,
                0,
                null_mut(),
            )
        };
        assert_eq!(count, 1);
        addr
    }

    pub(super) fn tagged(&self) -> &OpsTagged {
        // SAFETY: an open endpoint; the table is static.
        unsafe { &*(*self.ep).tagged }
    }

    pub(super) fn msg(&self) -> &OpsMsg {
        // SAFETY: as above.
        unsafe { &*(*self.ep).msg }
    }

    pub(super) fn tsend(&self, bytes: &[u8], tag: u64, context: usize) {
        let buf = bytes.as_ptr().cast();
        let context = context as *mut c_void;
        self.retry(|| (self.tagged().send)(self.ep, buf, bytes.len(), null_mut(), 0, tag, context));
    }

    pub(super) fn trecv(&self, buf: &mut [u8], from: u64, tag: u64, ignore: u64, context: usize) {
        let (ptr, context) = (buf.as_mut_ptr().cast(), context as *mut c_void);
        let recv = self.tagged().recv;
        self.retry(|| {
            recv(
                self.ep,
                ptr,
                buf.len(),
                null_mut(),
                from,
                tag,
                ignore,
                context,
            )
        });
    }

    /// Repeats a call until the endpoint accepts it.
    pub(super) fn retry(&self, mut call: impl FnMut() -> isize) {
        let begun = Instant::now();
        loop {
            match call() {
                0 => return,
                again if again == -(libc::EAGAIN as isize) => self.work(),
                other => panic!("the call failed: {other}"),
            }
            assert!(begun.elapsed() < PATIENCE, "the endpoint stays full");
        }
    }

    /// Makes progress without reading an entry.
    pub(super) fn work(&self) {
        // SAFETY: an open queue; no entry is requested.
        unsafe { ((*(*self.cq).ops).read)(self.cq, null_mut(), 0) };
    }

    /// Returns one completion, or the number of an error.
    pub(super) fn read(&self) -> Result<Done, isize> {
        let mut source = 0xa5;
        // SAFETY: an open queue with the longest format, and storage for one entry.
        unsafe {
            let mut entry: CqTaggedEntry = std::mem::zeroed();
            let out = (&raw mut entry).cast();
            let code = ((*(*self.cq).ops).readfrom)(self.cq, out, 1, &raw mut source);
            if code < 0 {
                return Err(code);
            }
            assert_eq!(code, 1);
            Ok(Done {
                context: entry.op_context as usize,
                flags: entry.flags,
                len: entry.len,
                data: entry.data,
                tag: entry.tag,
                source,
            })
        }
    }

    /// Returns the next completion. The other side makes progress, too.
    pub(super) fn wait(&self, other: &Party) -> Done {
        match self.wait_any(other) {
            Ok(done) => done,
            Err(failure) => panic!("an operation failed: error {}", failure.err),
        }
    }

    /// Returns the next completion or failure.
    pub(super) fn wait_any(&self, other: &Party) -> Result<Done, CqErrEntry> {
        let begun = Instant::now();
        loop {
            match self.read() {
                Ok(done) => return Ok(done),
                Err(code) if code == -(libc::EAGAIN as isize) => other.work(),
                Err(code) => {
                    assert_eq!(code, -(EAVAIL as isize));
                    return Err(self.failure());
                }
            }
            assert!(begun.elapsed() < PATIENCE, "nothing completes");
        }
    }

    pub(super) fn failure(&self) -> CqErrEntry {
        // SAFETY: an open queue, and storage for the entry.
        unsafe {
            let mut entry: CqErrEntry = std::mem::zeroed();
            assert_eq!(((*(*self.cq).ops).readerr)(self.cq, &raw mut entry, 0), 1);
            entry
        }
    }

    pub(super) fn count(&self) -> u64 {
        // SAFETY: an open counter.
        unsafe { ((*(*self.cntr).ops).read)(self.cntr) }
    }

    pub(super) fn close_ep(&mut self) {
        let ep = std::mem::replace(&mut self.ep, null_mut());
        if !ep.is_null() {
            // SAFETY: open until now.
            unsafe { ok(close(&raw mut (*ep).fid)) };
        }
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.close_ep();
        // SAFETY: the objects are open and not used afterwards.
        unsafe {
            ok(close(&raw mut (*self.cntr).fid));
            ok(close(&raw mut (*self.cq).fid));
            ok(close(&raw mut (*self.av).fid));
            ok(close(&raw mut (*self.domain).fid));
            ok(close(&raw mut (*self.fabric).fid));
        }
        free(self.info);
    }
}

/// Closes an object.
///
/// # Safety
/// `fid` is an open object.
pub(super) unsafe fn close(fid: *mut Fid) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe { ((*(*fid).ops).close)(fid) }
}

#[track_caller]
pub(super) fn ok(code: c_int) {
    assert_eq!(code, 0);
}
