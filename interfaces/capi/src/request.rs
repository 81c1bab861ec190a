// SPDX-License-Identifier: MIT OR Apache-2.0
//! Non-blocking operations, and waiting for them.

use crate::code::*;
use crate::failure::{Failure, guard, timed_out, timeout};
use crate::handle::{Caller, enter, enter_any, portolan_node_t};
use crate::memory::{self, Out};
use crate::message::target;
use crate::node::number;
use crate::port;
use crate::types::{PORTOLAN_ANY_SOURCE, portolan_completion_t, portolan_request_t};
use portolan::{Completion, Ended, Failed, Node, Request};
use std::ffi::{c_int, c_void};
use std::ptr;

/// Calls a function that both nodes and the contexts of handlers have.
macro_rules! call {
    ($caller:ident.$call:ident($($argument:expr),*)) => {
        match $caller {
            Caller::Program(mut entered) => entered.node()?.$call($($argument),*)?,
            Caller::Handler(context) => context.$call($($argument),*)?,
        }
    };
}
pub(crate) use call;

/// Common part of all functions that start an operation: checks the caller, starts `operation`, and
/// stores the request unless `request` is null.
///
/// # Safety
/// As [`enter_any`]; `request` is null or points to a request.
#[inline(always)]
pub(crate) unsafe fn begin(
    node: *mut portolan_node_t,
    request: *mut portolan_request_t,
    operation: impl FnOnce(Caller) -> Result<Request, Failure>,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let made = operation(unsafe { enter_any(node)? })?;
        if !request.is_null() {
            // SAFETY: guaranteed by the caller.
            unsafe { request.write(made.to_raw()) };
        }
        Ok(PORTOLAN_OK)
    })
}

/// Like [`begin`], for an operation that must be waited for: a null `request` is refused.
///
/// # Safety
/// As [`begin`].
#[inline(always)]
pub(crate) unsafe fn begin_waited(
    node: *mut portolan_node_t,
    request: *mut portolan_request_t,
    operation: impl FnOnce(Caller) -> Result<Request, Failure>,
) -> c_int {
    if request.is_null() {
        return guard(|| Err(Failure::null("request")));
    }
    // SAFETY: guaranteed by the caller.
    unsafe { begin(node, request, operation) }
}

/// Starts a nonblocking send. The `len` bytes must not change until the operation has ended. Pass
/// `*request` to portolan_wait() or portolan_test(). Short messages of a burst share frames, which
/// are sent by the next call that waits or makes progress. Handlers may call it.
///
/// Errors: those of portolan_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_isend(
    node: *mut portolan_node_t,
    rank: u32,
    port: u32,
    buffer: *const c_void,
    len: usize,
    flags: u32,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |caller: Caller| {
        // SAFETY: guaranteed by the program.
        let buffer = unsafe { memory::send_buffer(buffer, len)? };
        let target = target(rank, port, flags)?;
        Ok(call!(caller.isend(target, buffer)))
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin_waited(node, request, operation) }
}

/// Starts a nonblocking send of a copy of `len` bytes, without a request to wait for. The message
/// is sent as by portolan_isend(). Handlers may call it.
///
/// Errors: those of portolan_send().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_isend_copy(
    node: *mut portolan_node_t,
    rank: u32,
    port: u32,
    buffer: *const c_void,
    len: usize,
    flags: u32,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (caller, bytes) =
            unsafe { (enter_any(node)?, memory::bytes("the buffer", buffer, len)?) };
        let target = target(rank, port, flags)?;
        match caller {
            Caller::Program(mut entered) => entered.node()?.isend_copy(target, bytes)?,
            Caller::Handler(context) => context.send(target, bytes)?,
        }
        Ok(PORTOLAN_OK)
    })
}

/// Posts a buffer for the next message to `port` from process `source`, or from any with
/// PORTOLAN_ANY_SOURCE. The buffer must not be used until the operation has ended. At a port with a
/// handler, the handler receives it: there is nothing to wait for, and `request` may be null. At
/// other ports it must not be null. Handlers may call it, with PORTOLAN_ANY_SOURCE.
///
/// Errors: PORTOLAN_ERR_PORT_CLOSED; PORTOLAN_ERR_NO_SUCH_RANK; PORTOLAN_ERR_NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_post_recv(
    node: *mut portolan_node_t,
    port: u32,
    source: u32,
    buffer: *mut c_void,
    len: usize,
    request: *mut portolan_request_t,
) -> c_int {
    let operation = |mut caller: Caller| {
        // SAFETY: guaranteed by the program.
        let buffer = unsafe { memory::receive_buffer(buffer, len)? };
        let port = port::number(port)?;
        if matches!(caller, Caller::Handler(_)) && source != PORTOLAN_ANY_SOURCE {
            let text = format!("source {source}: handlers can post for PORTOLAN_ANY_SOURCE only");
            return Err(Failure::new(PORTOLAN_ERR_ARGUMENT, text));
        }
        if request.is_null() && !caller.has_handler(port)? {
            let text = "request is null: a receive at a port without a handler must be waited for";
            return Err(Failure::new(PORTOLAN_ERR_NULL, text));
        }
        match (caller, source) {
            (Caller::Program(mut entered), source) if source != PORTOLAN_ANY_SOURCE => {
                Ok(entered.node()?.post_recv_from(source, port, buffer)?)
            }
            (caller, _) => Ok(call!(caller.post_recv(port, buffer))),
        }
    };
    // SAFETY: guaranteed by the program.
    unsafe { begin(node, request, operation) }
}

/// Waits until an operation has ended, and stores its result in `*completion`, which may be null.
///
/// After a failure of the operation `*completion` has its buffer, the length and tag of a message
/// that did not fit, and the source, which is PORTOLAN_ANY_SOURCE if it is unknown.
///
/// Errors: PORTOLAN_ERR_PEER_GONE, PORTOLAN_ERR_NOBODY_LEFT, PORTOLAN_ERR_REFUSED,
/// PORTOLAN_ERR_TRUNCATED; PORTOLAN_ERR_STALE_REQUEST when it was completed before, or its port has
/// a handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_wait(
    node: *mut portolan_node_t,
    request: portolan_request_t,
    completion: *mut portolan_completion_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, completion) =
            unsafe { (enter(node)?, Out::new("completion", completion)?) };
        let done = entered.node()?.wait(named(request)?);
        end(done, completion)
    })
}

/// Waits like portolan_wait(), at most `timeout_ns` nanoseconds.
///
/// Errors: PORTOLAN_ERR_TIMEOUT, and the request stays valid; those of portolan_wait().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_wait_for(
    node: *mut portolan_node_t,
    request: portolan_request_t,
    timeout_ns: u64,
    completion: *mut portolan_completion_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, completion) =
            unsafe { (enter(node)?, Out::new("completion", completion)?) };
        let timeout = timeout(timeout_ns);
        let done = entered.node()?.wait_timeout(named(request)?, timeout);
        let done = done.transpose();
        let done = done.ok_or_else(|| timed_out("the operation has not ended", timeout))?;
        end(done, completion)
    })
}

/// Waits until all of `count` operations have ended; requests of 0 count as ended. Each request is
/// set to 0. Returns the first failure, if there is one, after all have ended.
///
/// Errors: those of portolan_wait().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_wait_all(
    node: *mut portolan_node_t,
    requests: *mut portolan_request_t,
    count: usize,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        // SAFETY: the program guarantees that `requests` has `count` elements.
        let requests = unsafe { memory::elements_mut("requests", requests.cast(), count)? };
        let mut result = Ok(PORTOLAN_OK);
        for request in requests {
            let request: portolan_request_t = std::mem::take(request);
            if request == 0 {
                continue;
            }
            if let Err(failed) = entered.node()?.wait(Request::from_raw(request)) {
                result = result.and(Err(portolan::Error::from(failed).into()));
            }
        }
        result
    })
}

/// SIZE_MAX of C: the index if all requests are 0.
const NO_INDEX: usize = usize::MAX;

/// Common part of the functions that wait for any of `count` operations.
///
/// # Safety
/// As [`enter`]; the pointers belong to the program as its call describes.
unsafe fn any(
    node: *mut portolan_node_t,
    requests: *mut portolan_request_t,
    count: usize,
    index: *mut usize,
    completion: *mut portolan_completion_t,
    wait: impl FnOnce(&mut Node, &mut Vec<Request>) -> Option<Ended>,
    none: impl FnOnce() -> Result<c_int, Failure>,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let (mut entered, completion) =
            unsafe { (enter(node)?, Out::new("completion", completion)?) };
        // SAFETY: guaranteed by the caller.
        let slots: &mut [portolan_request_t] =
            unsafe { memory::elements_mut("requests", requests.cast(), count)? };
        if index.is_null() {
            return Err(Failure::null("index"));
        }
        // SAFETY: not null; the caller guarantees the rest.
        unsafe { index.write(NO_INDEX) };
        let used = slots.iter().filter(|slot| **slot != 0);
        let mut listed: Vec<Request> = used.map(|slot| Request::from_raw(*slot)).collect();
        if listed.is_empty() {
            return Ok(PORTOLAN_OK);
        }
        let Some(ended) = wait(entered.node()?, &mut listed) else {
            return none();
        };
        let raw = ended.request.to_raw();
        if let Some(place) = slots.iter().position(|slot| *slot == raw) {
            slots[place] = 0;
            // SAFETY: as above.
            unsafe { index.write(place) };
        }
        end(ended.result, completion)
    })
}

/// Waits until one of `count` operations has ended: sends, receives, operations on remote memory and
/// collective operations alike. Requests of 0 are ignored. Stores the index of the ended one in
/// `*index`, sets its request to 0, and returns its result like portolan_wait(). If all are 0,
/// returns 0 with SIZE_MAX in `*index`.
///
/// Errors: those of portolan_wait().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_wait_any(
    node: *mut portolan_node_t,
    requests: *mut portolan_request_t,
    count: usize,
    index: *mut usize,
    completion: *mut portolan_completion_t,
) -> c_int {
    let wait = |node: &mut Node, listed: &mut Vec<Request>| node.wait_any(listed);
    let none = || Err(no_request());
    // SAFETY: guaranteed by the program.
    unsafe { any(node, requests, count, index, completion, wait, none) }
}

/// Waits like portolan_wait_any(), at most `timeout_ns` nanoseconds.
///
/// Errors: PORTOLAN_ERR_TIMEOUT, and all requests stay valid; those of portolan_wait().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_wait_any_for(
    node: *mut portolan_node_t,
    requests: *mut portolan_request_t,
    count: usize,
    timeout_ns: u64,
    index: *mut usize,
    completion: *mut portolan_completion_t,
) -> c_int {
    let timeout = timeout(timeout_ns);
    let wait = |node: &mut Node, listed: &mut Vec<Request>| node.wait_any_timeout(listed, timeout);
    let none = || Err(timed_out("no operation has ended", timeout));
    // SAFETY: guaranteed by the program.
    unsafe { any(node, requests, count, index, completion, wait, none) }
}

/// Makes progress once. Returns like portolan_wait_any() if one of `count` operations has ended, and
/// PORTOLAN_PENDING if none has.
///
/// Errors: those of portolan_wait().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_test_any(
    node: *mut portolan_node_t,
    requests: *mut portolan_request_t,
    count: usize,
    index: *mut usize,
    completion: *mut portolan_completion_t,
) -> c_int {
    let wait = |node: &mut Node, listed: &mut Vec<Request>| node.test_any(listed);
    let none = || Ok(PORTOLAN_PENDING);
    // SAFETY: guaranteed by the program.
    unsafe { any(node, requests, count, index, completion, wait, none) }
}

/// Waits until at least one of `count` operations has ended; requests of 0 are ignored. Returns the
/// number of those that have ended, 0 if all are 0. For each, stores its index in `indices`, its
/// result (0 or a negative number) in `results`, and its completion in `completions`, in this order,
/// and sets its request to 0. The arrays have `count` elements. `results` and `completions` may be
/// null; each completion has its size set.
///
/// Errors: PORTOLAN_ERR_NULL, PORTOLAN_ERR_STRUCT_SIZE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_wait_some(
    node: *mut portolan_node_t,
    requests: *mut portolan_request_t,
    count: usize,
    indices: *mut usize,
    results: *mut c_int,
    completions: *mut portolan_completion_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        // SAFETY: the program guarantees that the arrays have `count` elements.
        let (slots, indices): (&mut [portolan_request_t], &mut [usize]) = unsafe {
            (
                memory::elements_mut("requests", requests.cast(), count)?,
                memory::elements_mut("indices", indices.cast(), count)?,
            )
        };
        let mut outs = Vec::new();
        for place in 0..count {
            let at = match completions.is_null() {
                true => ptr::null_mut(),
                // SAFETY: as above.
                false => unsafe { completions.add(place) },
            };
            // SAFETY: guaranteed by the program.
            outs.push(unsafe { Out::new("completions", at)? });
        }
        let used: Vec<usize> = (0..count).filter(|place| slots[*place] != 0).collect();
        let listed = used.iter().map(|place| Request::from_raw(slots[*place]));
        let all_ended = entered.node()?.wait_some(&mut listed.collect());
        let ended_count = all_ended.len();
        for ((place, ended), out) in all_ended.into_iter().enumerate().zip(outs) {
            indices[place] = used[ended.index];
            slots[used[ended.index]] = 0;
            let code = end(ended.result, out).unwrap_or_else(|failure| failure.code());
            if !results.is_null() {
                // SAFETY: as above.
                unsafe { results.add(place).write(code) };
            }
        }
        Ok(number(ended_count as u64))
    })
}

/// Makes progress once. Returns 0 when the operation has ended, like portolan_wait(), and
/// PORTOLAN_PENDING before.
///
/// Errors: those of portolan_wait().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_test(
    node: *mut portolan_node_t,
    request: portolan_request_t,
    completion: *mut portolan_completion_t,
) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let (mut entered, completion) =
            unsafe { (enter(node)?, Out::new("completion", completion)?) };
        match entered.node()?.test(named(request)?).transpose() {
            None => Ok(PORTOLAN_PENDING),
            Some(done) => end(done, completion),
        }
    })
}

/// Returns the request with that number. Fails for 0, which is no request.
fn named(request: portolan_request_t) -> Result<Request, Failure> {
    match request {
        0 => Err(no_request()),
        raw => Ok(Request::from_raw(raw)),
    }
}

#[cold]
fn no_request() -> Failure {
    Failure::new(
        PORTOLAN_ERR_STALE_REQUEST,
        "request 0 is not an operation; pass the number that the function stored when it began one",
    )
}

/// Fills the program's structure from the result of an operation.
fn end(
    done: Result<Completion, Failed>,
    completion: Out<portolan_completion_t>,
) -> Result<c_int, Failure> {
    match done {
        Ok(done) => {
            completion.fill(&to_c(&done));
            Ok(PORTOLAN_OK)
        }
        Err(failed) => {
            let (error, done) = failed.into_parts();
            completion.fill(&to_c(&done));
            Err(error.into())
        }
    }
}

fn to_c(done: &Completion) -> portolan_completion_t {
    let buffer = done
        .buffer
        .as_ref()
        .filter(|buffer| !buffer.is_empty())
        .map_or(ptr::null(), |buffer| buffer.as_ptr());
    portolan_completion_t {
        size: 0,
        len: done.len as u64,
        buffer: buffer.cast_mut().cast(),
        source: done.source,
        has_imm: u32::from(done.imm.is_some()),
        tag: done.tag,
        imm: done.imm.unwrap_or(0),
    }
}

/// Receives and sends frames that are ready, runs handlers, and returns at once with the number of
/// frames moved.
///
/// Errors: PORTOLAN_ERR_NOBODY_LEFT when all other processes of the job have ended and this process
/// has received all their messages: no further message can arrive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_progress(node: *mut portolan_node_t) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        Ok(number(entered.node()?.progress()? as u64))
    })
}

/// Sends all pending frames.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn portolan_flush(node: *mut portolan_node_t) -> c_int {
    guard(|| {
        // SAFETY: guaranteed by the program.
        let mut entered = unsafe { enter(node)? };
        entered.node()?.flush();
        Ok(PORTOLAN_OK)
    })
}
