// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic operations on numbers in a peer's memory. Operands are copied: they are short.

use std::ffi::{c_int, c_void};

use portolan::{AtomicOp, Datatype, RawAtomic, RawPiece, RawRemote};

use super::pieces::{Pieces, gather, piece, total_len};
use super::{Ep, Op, with};
use crate::abi::*;
use crate::errno::{Errno, status};
use crate::state::State;

pub(super) static OPS: OpsAtomic = OpsAtomic {
    size: size_of::<OpsAtomic>(),
    write,
    writev,
    writemsg,
    inject,
    readwrite,
    readwritev,
    readwritemsg,
    compwrite,
    compwritev,
    compwritemsg,
    writevalid,
    readwritevalid,
    compwritevalid,
};

/// libfabric's operations, by their numbers.
const OPERATIONS: [AtomicOp; 19] = [
    AtomicOp::Min,
    AtomicOp::Max,
    AtomicOp::Sum,
    AtomicOp::Product,
    AtomicOp::LogicalOr,
    AtomicOp::LogicalAnd,
    AtomicOp::BitOr,
    AtomicOp::BitAnd,
    AtomicOp::LogicalXor,
    AtomicOp::BitXor,
    AtomicOp::Read,
    AtomicOp::Write,
    AtomicOp::SwapIfEqual,
    AtomicOp::SwapIfNotEqual,
    AtomicOp::SwapIfNotGreater,
    AtomicOp::SwapIfLess,
    AtomicOp::SwapIfNotLess,
    AtomicOp::SwapIfGreater,
    AtomicOp::SwapMasked,
];
/// `FI_ATOMIC_READ`.
const READ_OP: c_int = 10;
/// The first of those that compare.
const SWAP_OP: c_int = 12;

/// The three forms of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Fetching,
    Comparing,
}

impl Form {
    fn takes(self, op: c_int) -> bool {
        match self {
            Form::Plain => op < SWAP_OP && op != READ_OP,
            Form::Fetching => op < SWAP_OP,
            Form::Comparing => op >= SWAP_OP,
        }
    }
}

/// What is done, and to which kind of number.
#[derive(Clone, Copy)]
struct What {
    op: AtomicOp,
    datatype: Datatype,
}

impl What {
    /// # Errors
    /// The form of call has no such operation, or not on such numbers.
    fn of(form: Form, datatype: c_int, op: c_int) -> Result<What, Errno> {
        let unsupported = Errno(libc::EOPNOTSUPP);
        let at = |number: c_int| usize::try_from(number).unwrap_or(usize::MAX);
        let what = What {
            op: *OPERATIONS.get(at(op)).ok_or(unsupported)?,
            // libfabric's order of the numbers up to 64 bits, without complex ones.
            datatype: *Datatype::ALL.get(at(datatype)).ok_or(unsupported)?,
        };
        let known = form.takes(op) && what.op.supports(what.datatype);
        if known { Ok(what) } else { Err(unsupported) }
    }

    fn count_max(self) -> usize {
        // Operands and compared numbers share the bound.
        ATOMIC_LEN_MAX / 2 / self.datatype.len()
    }
}

/// Where it is done, and how it is reported.
struct Access {
    peer: u64,
    remote: RawRemote,
    context: *mut c_void,
    flags: u64,
}

/// The numbers of a call. `result` is empty where nothing is fetched.
struct Numbers<'a> {
    operands: &'a [RawPiece],
    compare: &'a [RawPiece],
    result: &'a [RawPiece],
}

/// Perform an atomic operation.
///
/// # Safety
/// Operands and compared numbers are readable now; results are left alone until the completion.
unsafe fn perform(
    state: &mut State,
    at: usize,
    what: What,
    access: &Access,
    numbers: &Numbers<'_>,
    op: Op,
) -> Result<(), Errno> {
    let ep = &mut state.eps[at];
    let peer = ep.peer(access.peer)?;
    let reads = what.op == AtomicOp::Read;
    let span = total_len(if reads {
        numbers.result
    } else {
        numbers.operands
    });
    if span > what.count_max() * what.datatype.len() {
        return Err(Errno::MSGSIZE);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe {
        let mut bytes = if reads {
            Vec::new()
        } else {
            gather(numbers.operands)
        };
        bytes.extend(gather(numbers.compare));
        bytes
    };
    let atomic = RawAtomic {
        op: what.op,
        datatype: what.datatype,
        operands: &bytes,
    };
    let key = ep.ops.insert(op);
    // SAFETY: the caller's promise, for the results.
    let sent = unsafe {
        ep.engine
            .atomic(peer, access.remote, &atomic, numbers.result, key as u64)
    };
    sent.map_err(|error| {
        ep.ops.remove(key);
        error.into()
    })
}

fn op(ep: &Ep, access: &Access, form: Form) -> Op {
    let direction = if form == Form::Plain { WRITE } else { READ };
    Op {
        context: access.context as usize,
        flags: ATOMIC | direction,
        reported: ep.tx.reports(access.flags),
        silent: false,
        multi: false,
        holds: false,
    }
}

/// The arguments that all forms share, as C passes them.
struct Call {
    datatype: c_int,
    op: c_int,
    peer: u64,
    remote: RawRemote,
    context: *mut c_void,
    /// Those of calls by structure; others have the endpoint's.
    flags: Option<u64>,
}

/// Arrays of numbers, as C passes them.
#[derive(Clone, Copy)]
struct Array {
    ioc: *const Ioc,
    count: usize,
}

const NONE: Array = Array {
    ioc: std::ptr::null(),
    count: 0,
};

impl Array {
    /// # Safety
    /// The array is as long as it says.
    unsafe fn pieces(self, element_len: usize) -> Result<Pieces, Errno> {
        // SAFETY: the caller's promise.
        unsafe { Pieces::of_ioc(self.ioc, self.count, element_len) }
    }
}

/// Do what a call of any form asks for.
///
/// # Safety
/// The arrays, and what they list, are as the application describes them.
unsafe fn run(
    ep: *mut FidEp,
    form: Form,
    call: &Call,
    operands: Array,
    compare: Array,
    result: Array,
) -> isize {
    with(ep, |state, at| {
        let what = What::of(form, call.datatype, call.op)?;
        let len = what.datatype.len();
        // SAFETY: the caller's promise.
        let (operands, compare, result) = unsafe {
            (
                operands.pieces(len)?,
                compare.pieces(len)?,
                result.pieces(len)?,
            )
        };
        let ep = &state.eps[at];
        let (peer, remote, context) = (call.peer, call.remote, call.context);
        let flags = call.flags.unwrap_or(ep.tx.default);
        let access = Access {
            peer,
            remote,
            context,
            flags,
        };
        let op = op(ep, &access, form);
        let numbers = Numbers {
            operands: &operands,
            compare: &compare,
            result: &result,
        };
        // SAFETY: the caller's promise.
        unsafe { perform(state, at, what, &access, &numbers, op) }
    })
}

/// One array of `count` numbers.
fn one(buf: *const c_void, count: usize) -> Ioc {
    Ioc {
        addr: buf.cast_mut(),
        count,
    }
}

fn array(of: &Ioc) -> Array {
    Array { ioc: of, count: 1 }
}

/// The shared arguments of a call by structure.
///
/// # Safety
/// The structure is as the application describes it.
unsafe fn unpack(msg: &MsgAtomic, flags: u64) -> Result<(Call, Array), Errno> {
    if msg.rma_iov_count != 1 {
        return Err(Errno::INVAL);
    }
    // SAFETY: the caller's promise.
    let target = unsafe { *msg.rma_iov };
    let call = Call {
        datatype: msg.datatype,
        op: msg.op,
        peer: msg.addr,
        remote: RawRemote {
            addr: target.addr,
            key: target.key,
        },
        context: msg.context,
        flags: Some(flags),
    };
    Ok((
        call,
        Array {
            ioc: msg.iov,
            count: msg.iov_count,
        },
    ))
}

/// As [`run`], for a call by structure.
///
/// # Safety
/// As for [`run`].
unsafe fn run_msg(
    ep: *mut FidEp,
    form: Form,
    msg: *const MsgAtomic,
    compare: Array,
    result: Array,
    flags: u64,
) -> isize {
    // SAFETY: the caller's promise.
    unsafe {
        match unpack(&*msg, flags) {
            Ok((call, operands)) => run(ep, form, &call, operands, compare, result),
            Err(error) => -(error.0 as isize),
        }
    }
}

extern "C" fn write(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let remote = RawRemote { addr, key };
    let call = Call {
        datatype,
        op,
        peer,
        remote,
        context,
        flags: None,
    };
    // SAFETY: the application's numbers.
    unsafe { run(ep, Form::Plain, &call, array(&one(buf, count)), NONE, NONE) }
}

extern "C" fn writev(
    ep: *mut FidEp,
    iov: *const Ioc,
    _desc: *mut *mut c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let remote = RawRemote { addr, key };
    let call = Call {
        datatype,
        op,
        peer,
        remote,
        context,
        flags: None,
    };
    // SAFETY: the application's numbers.
    unsafe {
        run(
            ep,
            Form::Plain,
            &call,
            Array { ioc: iov, count },
            NONE,
            NONE,
        )
    }
}

extern "C" fn writemsg(ep: *mut FidEp, msg: *const MsgAtomic, flags: u64) -> isize {
    // SAFETY: the application's structure and numbers.
    unsafe { run_msg(ep, Form::Plain, msg, NONE, NONE, flags) }
}

extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op_number: c_int,
) -> isize {
    with(ep, |state, at| {
        let what = What::of(Form::Plain, datatype, op_number)?;
        let len = count.checked_mul(what.datatype.len()).ok_or(Errno::INVAL)?;
        let remote = RawRemote { addr, key };
        let access = Access {
            peer,
            remote,
            context: std::ptr::null_mut(),
            flags: 0,
        };
        let op = op(&state.eps[at], &access, Form::Plain);
        let op = Op {
            reported: false,
            silent: true,
            ..op
        };
        let operands = [piece(buf, len)];
        let numbers = Numbers {
            operands: &operands,
            compare: &[],
            result: &[],
        };
        // SAFETY: the application's numbers, for this call.
        unsafe { perform(state, at, what, &access, &numbers, op) }
    })
}

extern "C" fn readwrite(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let remote = RawRemote { addr, key };
    let call = Call {
        datatype,
        op,
        peer,
        remote,
        context,
        flags: None,
    };
    let (operands, result) = (one(buf, count), one(result, count));
    // SAFETY: the application's numbers.
    unsafe {
        run(
            ep,
            Form::Fetching,
            &call,
            array(&operands),
            NONE,
            array(&result),
        )
    }
}

extern "C" fn readwritev(
    ep: *mut FidEp,
    iov: *const Ioc,
    _desc: *mut *mut c_void,
    count: usize,
    resultv: *mut Ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let remote = RawRemote { addr, key };
    let call = Call {
        datatype,
        op,
        peer,
        remote,
        context,
        flags: None,
    };
    let result = Array {
        ioc: resultv,
        count: result_count,
    };
    // SAFETY: the application's numbers.
    unsafe {
        run(
            ep,
            Form::Fetching,
            &call,
            Array { ioc: iov, count },
            NONE,
            result,
        )
    }
}

extern "C" fn readwritemsg(
    ep: *mut FidEp,
    msg: *const MsgAtomic,
    resultv: *mut Ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let result = Array {
        ioc: resultv,
        count: result_count,
    };
    // SAFETY: the application's structure and numbers.
    unsafe { run_msg(ep, Form::Fetching, msg, NONE, result, flags) }
}

extern "C" fn compwrite(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    compare: *const c_void,
    _compare_desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let remote = RawRemote { addr, key };
    let call = Call {
        datatype,
        op,
        peer,
        remote,
        context,
        flags: None,
    };
    let (operands, compare, result) = (one(buf, count), one(compare, count), one(result, count));
    // SAFETY: the application's numbers.
    unsafe {
        run(
            ep,
            Form::Comparing,
            &call,
            array(&operands),
            array(&compare),
            array(&result),
        )
    }
}

extern "C" fn compwritev(
    ep: *mut FidEp,
    iov: *const Ioc,
    _desc: *mut *mut c_void,
    count: usize,
    comparev: *const Ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut Ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
    context: *mut c_void,
) -> isize {
    let remote = RawRemote { addr, key };
    let call = Call {
        datatype,
        op,
        peer,
        remote,
        context,
        flags: None,
    };
    let compare = Array {
        ioc: comparev,
        count: compare_count,
    };
    let result = Array {
        ioc: resultv,
        count: result_count,
    };
    // SAFETY: the application's numbers.
    unsafe {
        run(
            ep,
            Form::Comparing,
            &call,
            Array { ioc: iov, count },
            compare,
            result,
        )
    }
}

extern "C" fn compwritemsg(
    ep: *mut FidEp,
    msg: *const MsgAtomic,
    comparev: *const Ioc,
    _compare_desc: *mut *mut c_void,
    compare_count: usize,
    resultv: *mut Ioc,
    _result_desc: *mut *mut c_void,
    result_count: usize,
    flags: u64,
) -> isize {
    let compare = Array {
        ioc: comparev,
        count: compare_count,
    };
    let result = Array {
        ioc: resultv,
        count: result_count,
    };
    // SAFETY: the application's structure and numbers.
    unsafe { run_msg(ep, Form::Comparing, msg, compare, result, flags) }
}

fn valid(form: Form, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    status(|| {
        let what = What::of(form, datatype, op)?;
        // SAFETY: the application's place for the number, or null.
        if let Some(count) = unsafe { count.as_mut() } {
            *count = what.count_max();
        }
        Ok(())
    })
}

extern "C" fn writevalid(_: *mut FidEp, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
    valid(Form::Plain, datatype, op, count)
}

extern "C" fn readwritevalid(
    _: *mut FidEp,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    valid(Form::Fetching, datatype, op, count)
}

extern "C" fn compwritevalid(
    _: *mut FidEp,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    valid(Form::Comparing, datatype, op, count)
}

/// `fi_query_atomic`: whether an operation exists in the form that the flags name.
pub(crate) extern "C" fn query(
    _domain: *mut FidDomain,
    datatype: c_int,
    op: c_int,
    attr: *mut AtomicAttr,
    flags: u64,
) -> c_int {
    status(|| {
        let form = match flags & (FETCH_ATOMIC | COMPARE_ATOMIC) {
            0 => Form::Plain,
            FETCH_ATOMIC => Form::Fetching,
            COMPARE_ATOMIC => Form::Comparing,
            _ => return Err(Errno::INVAL),
        };
        let what = What::of(form, datatype, op)?;
        // SAFETY: the application's place for the attributes.
        let attr = unsafe { attr.as_mut() }.ok_or(Errno::INVAL)?;
        attr.count = what.count_max();
        attr.size = what.datatype.len();
        Ok(())
    })
}

/// Bytes of the numbers of one operation, operands and compared numbers together: the protocol's
/// bound, a page.
pub(crate) const ATOMIC_LEN_MAX: usize = 4096;

/// Flags of `fi_query_atomic`.
const FETCH_ATOMIC: u64 = 1 << 58;
const COMPARE_ATOMIC: u64 = 1 << 59;
