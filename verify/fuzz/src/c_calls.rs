// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of the C interface, with valid and invalid arguments, in a job of one process.
//!
//! Model: a call that is refused for its arguments has no visible effect, and each sent message is
//! received once, in order.
#![allow(unsafe_code, reason = "the interface is that of C")]

use crate::input::Input;
use portolan_c::code::*;
use portolan_c::types::*;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ptr::{null, null_mut};

/// Node, as seen by C.
#[repr(C)]
struct Node([u8; 0]);

unsafe extern "C" {
    fn portolan_join(node: *mut *mut Node) -> c_int;
    fn portolan_open(node: *mut Node, port: u32) -> c_int;
    fn portolan_send(
        n: *mut Node,
        rank: u32,
        port: u32,
        at: *const c_void,
        len: usize,
        flags: u32,
    ) -> c_int;
    fn portolan_recv(
        n: *mut Node,
        port: u32,
        source: u32,
        at: *mut c_void,
        len: usize,
        got: *mut portolan_received_t,
    ) -> c_int;
    fn portolan_progress(n: *mut Node) -> c_int;
    fn portolan_post_recv(
        n: *mut Node,
        port: u32,
        source: u32,
        at: *mut c_void,
        len: usize,
        request: *mut u64,
    ) -> c_int;
    fn portolan_isend(
        n: *mut Node,
        rank: u32,
        port: u32,
        at: *const c_void,
        len: usize,
        flags: u32,
        request: *mut u64,
    ) -> c_int;
    fn portolan_wait(n: *mut Node, request: u64, done: *mut portolan_completion_t) -> c_int;
    fn portolan_test(n: *mut Node, request: u64, done: *mut portolan_completion_t) -> c_int;
    fn portolan_send_tagged(
        n: *mut Node,
        rank: u32,
        tag: u64,
        imm: *const u64,
        at: *const c_void,
        len: usize,
        flags: u32,
    ) -> c_int;
    fn portolan_recv_tagged(
        n: *mut Node,
        tag: u64,
        ignore: u64,
        source: u32,
        at: *mut c_void,
        len: usize,
        envelope: *mut portolan_envelope_t,
    ) -> c_int;
    fn portolan_peek(
        n: *mut Node,
        tag: u64,
        ignore: u64,
        source: u32,
        envelope: *mut portolan_envelope_t,
    ) -> c_int;
    fn portolan_claim(
        n: *mut Node,
        tag: u64,
        ignore: u64,
        source: u32,
        envelope: *mut portolan_envelope_t,
        claim: *mut u64,
    ) -> c_int;
    fn portolan_register(
        n: *mut Node,
        at: *mut c_void,
        len: usize,
        access: u32,
        key: *mut u64,
    ) -> c_int;
    fn portolan_put(
        n: *mut Node,
        to: *const portolan_remote_t,
        at: *const c_void,
        len: usize,
    ) -> c_int;
    fn portolan_next_notice(n: *mut Node, notice: *mut portolan_notice_t) -> c_int;
    fn portolan_counters(n: *mut Node, counters: *mut portolan_counters_t) -> c_int;
    fn portolan_broadcast(
        n: *mut Node,
        group: *const c_void,
        root: u32,
        at: *mut c_void,
        len: usize,
    ) -> c_int;
    fn portolan_allreduce(
        n: *mut Node,
        group: *const c_void,
        op: c_int,
        kind: c_int,
        at: *mut c_void,
        count: usize,
    ) -> c_int;
}

const PORT: u32 = 4;
const CLOSED: u32 = 5;
const TAG: u64 = 77;
const ANY: u32 = PORTOLAN_ANY_SOURCE;

/// Maximum number of unread messages; beyond it, the oldest is received first.
const UNREAD_MAX: usize = 64;

/// Items that the program has not taken yet.
#[derive(Default)]
struct Model {
    port: VecDeque<u8>,
    tagged: VecDeque<u8>,
    notices: usize,
    request: Option<u64>,
}

struct Site {
    node: *mut Node,
    key: u64,
}

thread_local! {
    // A process joins once; a node belongs to one thread.
    static SITE: RefCell<Option<Site>> = const { RefCell::new(None) };
}

/// Makes the calls that `data` encodes, and checks each refusal against the model.
///
/// # Panics
/// Panics if a refused call had an effect, or a sent message does not arrive.
pub fn c_calls(data: &[u8]) {
    SITE.with_borrow_mut(|site| {
        let site = site.get_or_insert_with(open);
        let mut model = Model::default();
        let mut input = Input::new(data);
        while !input.is_empty() {
            act(site, &mut model, &mut input);
        }
        drain(site, &mut model);
    });
}

fn open() -> Site {
    let (mut node, mut key) = (null_mut(), 0);
    // It is the region of a process that ends with its memory.
    let memory: &'static mut [u8; 8] = Box::leak(Box::new([0; 8]));
    // SAFETY: all pointers refer to objects that outlive the call; the same holds for all calls
    // below.
    unsafe {
        assert_eq!(portolan_join(&mut node), PORTOLAN_OK);
        assert_eq!(portolan_open(node, PORT), PORTOLAN_OK);
        let at = memory.as_mut_ptr().cast();
        assert_eq!(
            portolan_register(node, at, 8, PORTOLAN_WRITE_ACCESS, &mut key),
            PORTOLAN_OK
        );
    }
    Site { node, key }
}

fn act(site: &Site, model: &mut Model, input: &mut Input<'_>) {
    match input.byte() % 8 {
        0 => send(site, model, input.byte()),
        1 => send_tagged(site, model, input.byte()),
        2 => put(site, model),
        3 if !model.port.is_empty() => recv(site, model),
        4 if !model.tagged.is_empty() => recv_tagged(site, model),
        5 => request(site, model, input.byte()),
        _ => refuse(site, model, input.byte(), input.byte()),
    }
}

fn send(site: &Site, model: &mut Model, byte: u8) {
    if model.port.len() == UNREAD_MAX {
        recv(site, model);
    }
    let at = (&raw const byte).cast();
    assert_eq!(
        // SAFETY: see `open`.
        unsafe { portolan_send(site.node, 0, PORT, at, 1, 0) },
        PORTOLAN_OK
    );
    model.port.push_back(byte);
}

fn send_tagged(site: &Site, model: &mut Model, byte: u8) {
    if model.tagged.len() == UNREAD_MAX {
        recv_tagged(site, model);
    }
    let at = (&raw const byte).cast();
    // SAFETY: see `open`.
    let sent = unsafe { portolan_send_tagged(site.node, 0, TAG, null(), at, 1, 0) };
    assert_eq!(sent, PORTOLAN_OK);
    model.tagged.push_back(byte);
}

fn put(site: &Site, model: &mut Model) {
    if model.notices == UNREAD_MAX {
        notice(site, model);
    }
    let place = place(site.key, size_of::<portolan_remote_t>(), 0, PORTOLAN_NOTIFY);
    assert_eq!(
        // SAFETY: see `open`.
        unsafe { portolan_put(site.node, &place, [1_u8].as_ptr().cast(), 1) },
        PORTOLAN_OK
    );
    model.notices += 1;
}

fn place(key: u64, size: usize, rank: u32, flags: u32) -> portolan_remote_t {
    portolan_remote_t {
        size,
        key,
        offset: 0,
        notice: 1,
        rank,
        flags,
    }
}

fn recv(site: &Site, model: &mut Model) {
    let mut byte = 0_u8;
    let at = (&raw mut byte).cast();
    assert_eq!(
        // SAFETY: see `open`.
        unsafe { portolan_recv(site.node, PORT, ANY, at, 1, null_mut()) },
        PORTOLAN_OK
    );
    assert_eq!(Some(byte), model.port.pop_front());
}

fn recv_tagged(site: &Site, model: &mut Model) {
    let mut byte = 0_u8;
    let at = (&raw mut byte).cast();
    // SAFETY: see `open`.
    let got = unsafe { portolan_recv_tagged(site.node, TAG, 0, ANY, at, 1, null_mut()) };
    assert_eq!(got, PORTOLAN_OK);
    assert_eq!(Some(byte), model.tagged.pop_front());
}

fn notice(site: &Site, model: &mut Model) {
    // SAFETY: see `open`.
    assert_eq!(unsafe { portolan_next_notice(site.node, null_mut()) }, 1);
    model.notices -= 1;
}

/// Waits for the pending request, or starts one. Its byte outlives it.
fn request(site: &Site, model: &mut Model, byte: u8) {
    if let Some(request) = model.request.take() {
        assert_eq!(
            // SAFETY: see `open`.
            unsafe { portolan_wait(site.node, request, null_mut()) },
            PORTOLAN_OK
        );
        return;
    }
    if model.port.len() == UNREAD_MAX {
        recv(site, model);
    }
    static BYTES: [u8; 256] = {
        let mut bytes = [0; 256];
        let mut next = 0_u8;
        while next < 255 {
            next += 1;
            bytes[next as usize] = next;
        }
        bytes
    };
    let mut made = 0;
    let at = BYTES[usize::from(byte)..].as_ptr().cast();
    assert_eq!(
        // SAFETY: see `open`.
        unsafe { portolan_isend(site.node, 0, PORT, at, 1, 0, &mut made) },
        PORTOLAN_OK
    );
    model.port.push_back(byte);
    model.request = Some(made);
}

fn counters(site: &Site) -> [u64; 7] {
    let mut now = portolan_counters_t {
        size: size_of::<portolan_counters_t>(),
        ..Default::default()
    };
    assert_eq!(
        // SAFETY: see `open`.
        unsafe { portolan_counters(site.node, &mut now) },
        PORTOLAN_OK
    );
    [
        now.frames_sent,
        now.frames_received,
        now.messages_sent,
        now.messages_received,
        now.messages_held,
        now.remote_requests,
        now.drops,
    ]
}

/// Returns the counters after the work of earlier calls is done, which the library's own thread
/// would do during a call.
fn settled_counters(site: &Site) -> [u64; 7] {
    loop {
        let before = counters(site);
        // SAFETY: see `open`.
        unsafe { portolan_progress(site.node) };
        if counters(site) == before {
            return before;
        }
    }
}

/// Results of calls with invalid arguments.
const REFUSALS: [c_int; 6] = [
    PORTOLAN_ERR_NULL,
    PORTOLAN_ERR_ARGUMENT,
    PORTOLAN_ERR_STRUCT_SIZE,
    PORTOLAN_ERR_PORT,
    PORTOLAN_ERR_NO_SUCH_RANK,
    PORTOLAN_ERR_PORT_CLOSED,
];

/// Makes one call that must be refused for its arguments; `junk` is the invalid value.
fn refuse(site: &Site, model: &Model, which: u8, junk: u8) {
    let before = settled_counters(site);
    let node = site.node;
    let size = usize::from(junk) % size_of::<portolan_received_t>();
    let far = u32::from(junk) + 1;
    let mut word = [0_u64; 2];
    let at: *mut c_void = word.as_mut_ptr().cast();
    // SAFETY: all of them are plain numbers and pointers, which may be zero.
    let (mut got, mut envelope, mut done, mut told) = unsafe {
        (
            zeroed::<portolan_received_t>(),
            zeroed::<portolan_envelope_t>(),
            zeroed::<portolan_completion_t>(),
            zeroed::<portolan_notice_t>(),
        )
    };
    (got.size, envelope.size, done.size, told.size) = (size, size, size, size);
    let mut short = portolan_counters_t {
        size,
        ..Default::default()
    };
    let request = model.request.unwrap_or(0);
    let whole = size_of::<portolan_remote_t>();
    // SAFETY: see `open`.
    let code = unsafe {
        match which % 24 {
            0 => portolan_recv(node, PORT, ANY, at, 1, &mut got),
            1 => portolan_recv(node, PORT, ANY, null_mut(), 1, null_mut()),
            2 => portolan_recv(node, PORT + 65536, ANY, at, 1, null_mut()),
            3 => portolan_recv(node, PORT, far, at, 1, null_mut()),
            4 => portolan_recv(node, CLOSED, ANY, at, 1, null_mut()),
            5 => portolan_recv_tagged(node, TAG, 0, ANY, at, 1, &mut envelope),
            6 => portolan_recv_tagged(node, TAG, 0, far, at, 1, null_mut()),
            7 => portolan_peek(node, TAG, 0, ANY, &mut envelope),
            8 => portolan_claim(node, TAG, 0, ANY, &mut envelope, &mut word[0]),
            9 => portolan_claim(node, TAG, 0, ANY, null_mut(), null_mut()),
            10 => portolan_wait(node, request, &mut done),
            11 => portolan_test(node, request, &mut done),
            12 => portolan_post_recv(node, PORT, ANY, at, 1, null_mut()),
            13 => portolan_post_recv(node, CLOSED, ANY, at, 1, &mut word[1]),
            14 => portolan_next_notice(node, &mut told),
            15 => portolan_counters(node, &mut short),
            16 => portolan_send(node, far, PORT, at, 1, 0),
            17 => portolan_send(node, 0, PORT, at, 1, 4 << (junk % 29)),
            18 => portolan_send(node, 0, PORT, null(), 1, 0),
            19 => portolan_send_tagged(node, far, TAG, null(), at, 1, 0),
            20 => portolan_put(node, &place(site.key, whole - 1, 0, 0), at, 1),
            21 => portolan_put(node, &place(site.key, whole, 0, 64), at, 1),
            22 => portolan_broadcast(node, null(), far, at, 8),
            _ => portolan_allreduce(node, null(), c_int::from(junk) + 7, PORTOLAN_UINT64, at, 1),
        }
    };
    assert!(REFUSALS.contains(&code), "call {which}: {code}");
    assert_eq!(counters(site), before, "refused call {which} had an effect");
    assert_eq!(word, [0; 2], "refused call {which} wrote");
    assert_eq!((got.len, envelope.len, done.len, told.len), (0, 0, 0, 0));
}

/// Takes everything that must be there, and checks that there is nothing else.
fn drain(site: &Site, model: &mut Model) {
    if model.request.is_some() {
        request(site, model, 0);
    }
    while !model.port.is_empty() {
        recv(site, model);
    }
    while !model.tagged.is_empty() {
        recv_tagged(site, model);
    }
    while model.notices > 0 {
        notice(site, model);
    }
    let mut byte = 0_u8;
    let (mut posted, at) = (0, (&raw mut byte).cast());
    // SAFETY: see `open`; the receive posted last takes the message that is sent after it.
    unsafe {
        assert_eq!(portolan_peek(site.node, TAG, 0, ANY, null_mut()), 0);
        assert_eq!(portolan_next_notice(site.node, null_mut()), 0);
        assert_eq!(
            portolan_post_recv(site.node, PORT, ANY, at, 1, &mut posted),
            PORTOLAN_OK
        );
        assert_eq!(
            portolan_send(site.node, 0, PORT, [9_u8].as_ptr().cast(), 1, 0),
            PORTOLAN_OK
        );
        assert_eq!(portolan_wait(site.node, posted, null_mut()), PORTOLAN_OK);
    }
    assert_eq!(
        byte, 9,
        "a message came twice, or a refused receive took one"
    );
}
