// SPDX-License-Identifier: MIT OR Apache-2.0
//! Atomic operations on a peer's memory. Operands are copied, because they are short.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use portolan::binding::{RawAtomic, RawRemote};
use portolan::{AtomicOp, Datatype};

use super::pieces::{Pieces, gather, total_len};
use super::with;
use crate::abi::*;
use crate::errno::{Errno, status};
use crate::state::{Ep, Op};

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

/// libfabric's operations, in the order of their numbers.
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
/// First operation that compares.
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

/// Operation and data type of a call.
#[derive(Clone, Copy)]
struct AtomicKind {
    op: AtomicOp,
    datatype: Datatype,
}

impl AtomicKind {
    /// Looks up an operation.
    ///
    /// # Errors
    /// The form has no such operation, or not for this data type.
    fn of(form: Form, datatype: c_int, op: c_int) -> Result<AtomicKind, Errno> {
        let unsupported = Errno(libc::EOPNOTSUPP);
        let at = |number: c_int| usize::try_from(number).unwrap_or(usize::MAX);
        let what = AtomicKind {
            op: *OPERATIONS.get(at(op)).ok_or(unsupported)?,
            // libfabric's order of the data types up to 64 bits, without complex numbers.
            datatype: *Datatype::ALL.get(at(datatype)).ok_or(unsupported)?,
        };
        let is_supported = form.takes(op) && what.op.supports(what.datatype);
        if is_supported {
            Ok(what)
        } else {
            Err(unsupported)
        }
    }

    fn count_max(self) -> usize {
        // Operands and comparands share the limit.
        ATOMIC_LEN_MAX / 2 / self.datatype.len()
    }
}

/// The arguments that all forms share.
struct Call {
    datatype: c_int,
    op: c_int,
    peer: u64,
    remote: RawRemote,
    context: *mut c_void,
    report: Report,
}

/// Reporting of a call's completion.
#[derive(Clone, Copy)]
enum Report {
    /// According to the endpoint's flags.
    Default,
    /// According to the flags of the call's structure.
    Flags(u64),
    /// Nothing is reported, not even a failure.
    Never,
}

impl Call {
    fn new(datatype: c_int, op: c_int, peer: u64, remote: RawRemote, context: *mut c_void) -> Call {
        Call {
            datatype,
            op,
            peer,
            remote,
            context,
            report: Report::Default,
        }
    }

    fn as_op(&self, ep: &Ep, form: Form) -> Op {
        let direction = if form == Form::Plain { WRITE } else { READ };
        let flags = ATOMIC | direction;
        let op = |by| ep.tx().op(self.context, flags, by);
        match self.report {
            Report::Default => op(ep.tx().default_flags()),
            Report::Flags(by) => op(by),
            Report::Never => Op::unreported(flags),
        }
    }
}

/// Operands, comparands or results as C passes them.
#[derive(Clone, Copy)]
enum Array {
    None,
    Buffer(*const c_void, usize),
    List(*const Ioc, usize),
}

impl Array {
    /// Returns the array as byte pieces.
    ///
    /// # Errors
    /// More pieces than the provider supports, or a length overflow.
    ///
    /// # Safety
    /// A list has the length it states.
    unsafe fn pieces(self, element_len: usize) -> Result<Pieces, Errno> {
        let one;
        let (ioc, count) = match self {
            Array::None => (null(), 0),
            Array::Buffer(addr, count) => {
                let addr = addr.cast_mut();
                one = Ioc { addr, count };
                (&raw const one, 1)
            }
            Array::List(ioc, count) => (ioc, count),
        };
        // SAFETY: guaranteed by the caller.
        unsafe { Pieces::of_ioc(ioc, count, element_len) }
    }
}

/// The arrays of a call.
struct Numbers {
    operands: Array,
    compare: Array,
    result: Array,
}

impl Numbers {
    fn of(operands: Array) -> Numbers {
        Numbers {
            operands,
            compare: Array::None,
            result: Array::None,
        }
    }

    fn against(self, compare: Array) -> Numbers {
        Numbers { compare, ..self }
    }

    fn into(self, result: Array) -> Numbers {
        Numbers { result, ..self }
    }
}

/// Runs a call of any form.
///
/// # Safety
/// The arrays are valid as described: operands and comparands are readable now. The results stay
/// untouched until the completion.
unsafe fn run(ep: *mut FidEp, form: Form, call: &Call, numbers: &Numbers) -> isize {
    with(ep, |state, at| {
        let what = AtomicKind::of(form, call.datatype, call.op)?;
        // SAFETY: guaranteed by the caller.
        unsafe { perform(state.ep(at), form, what, call, numbers) }
    })
}

/// Runs an operation of the table.
///
/// # Safety
/// As for [`run`].
unsafe fn perform(
    ep: &mut Ep,
    form: Form,
    what: AtomicKind,
    call: &Call,
    numbers: &Numbers,
) -> Result<(), Errno> {
    let len = what.datatype.len();
    // SAFETY: guaranteed by the caller.
    let [operands, compare, result] = unsafe {
        [
            numbers.operands.pieces(len)?,
            numbers.compare.pieces(len)?,
            numbers.result.pieces(len)?,
        ]
    };
    let reads = what.op == AtomicOp::Read;
    let span = total_len(if reads { &result } else { &operands }.as_ref());
    if span > what.count_max() * len {
        return Err(Errno::MSGSIZE);
    }
    let mut bytes = Vec::new();
    // SAFETY: guaranteed by the caller.
    unsafe {
        if !reads {
            bytes = gather(operands.as_ref());
        }
        bytes.extend(gather(compare.as_ref()));
    }
    let atomic = RawAtomic {
        op: what.op,
        datatype: what.datatype,
        operands: &bytes,
    };
    let op = call.as_op(ep, form);
    // SAFETY: guaranteed by the caller for the results.
    unsafe { ep.atomic((call.peer, call.remote), &atomic, result.as_ref(), op) }
}

/// Runs a call by structure, like [`run`]. `numbers` adds the other arrays to the operands.
///
/// # Safety
/// The structure is valid as described. For the arrays, as for [`run`].
unsafe fn run_msg(
    ep: *mut FidEp,
    form: Form,
    msg: *const MsgAtomic,
    flags: u64,
    numbers: impl FnOnce(Array) -> Numbers,
) -> isize {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let msg = &*msg;
        if msg.rma_iov_count != 1 {
            return -(Errno::INVAL.0 as isize);
        }
        let target = *msg.rma_iov;
        let remote = RawRemote {
            addr: target.addr,
            key: target.key,
        };
        let call = Call {
            report: Report::Flags(flags),
            ..Call::new(msg.datatype, msg.op, msg.addr, remote, msg.context)
        };
        let numbers = numbers(Array::List(msg.iov, msg.iov_count));
        run(ep, form, &call, &numbers)
    }
}

/// Defines the calls of one [`Form`]: with one array, with a list of arrays, by structure, and the
/// query for supported operations. A form may have more arrays than operands, each with the method
/// of [`Numbers`] that adds it.
macro_rules! calls {
    (
        $form:expr, $one:ident, $list:ident, $by_msg:ident, $valid:ident
        $(, $as:ident($buf:ident: *$mut:tt, $iov:ident, $iov_count:ident))*
    ) => {
        extern "C" fn $one(
            ep: *mut FidEp,
            buf: *const c_void,
            count: usize,
            _desc: *mut c_void,
            $($buf: *$mut c_void, _: *mut c_void,)*
            peer: u64,
            addr: u64,
            key: u64,
            datatype: c_int,
            op: c_int,
            context: *mut c_void,
        ) -> isize {
            let call = Call::new(datatype, op, peer, RawRemote { addr, key }, context);
            let numbers = Numbers::of(Array::Buffer(buf, count))$(.$as(Array::Buffer($buf, count)))*;
            // SAFETY: arrays of the application.
            unsafe { run(ep, $form, &call, &numbers) }
        }

        extern "C" fn $list(
            ep: *mut FidEp,
            iov: *const Ioc,
            _desc: *mut *mut c_void,
            count: usize,
            $($iov: *$mut Ioc, _: *mut *mut c_void, $iov_count: usize,)*
            peer: u64,
            addr: u64,
            key: u64,
            datatype: c_int,
            op: c_int,
            context: *mut c_void,
        ) -> isize {
            let call = Call::new(datatype, op, peer, RawRemote { addr, key }, context);
            let numbers = Numbers::of(Array::List(iov, count))$(.$as(Array::List($iov, $iov_count)))*;
            // SAFETY: arrays of the application.
            unsafe { run(ep, $form, &call, &numbers) }
        }

        extern "C" fn $by_msg(
            ep: *mut FidEp,
            msg: *const MsgAtomic,
            $($iov: *$mut Ioc, _: *mut *mut c_void, $iov_count: usize,)*
            flags: u64,
        ) -> isize {
            let numbers = |of: Array| Numbers::of(of)$(.$as(Array::List($iov, $iov_count)))*;
            // SAFETY: structure and arrays of the application.
            unsafe { run_msg(ep, $form, msg, flags, numbers) }
        }

        extern "C" fn $valid(_: *mut FidEp, datatype: c_int, op: c_int, count: *mut usize) -> c_int {
            status(|| {
                let what = AtomicKind::of($form, datatype, op)?;
                // SAFETY: `count` is null or points to the application's storage.
                if let Some(count) = unsafe { count.as_mut() } {
                    *count = what.count_max();
                }
                Ok(())
            })
        }
    };
}

calls!(Form::Plain, write, writev, writemsg, writevalid);
calls!(
    Form::Fetching, readwrite, readwritev, readwritemsg, readwritevalid,
    into(result: *mut, resultv, result_count)
);
calls!(
    Form::Comparing, compwrite, compwritev, compwritemsg, compwritevalid,
    against(compare: *const, comparev, compare_count),
    into(result: *mut, resultv, result_count)
);

extern "C" fn inject(
    ep: *mut FidEp,
    buf: *const c_void,
    count: usize,
    peer: u64,
    addr: u64,
    key: u64,
    datatype: c_int,
    op: c_int,
) -> isize {
    let call = Call {
        report: Report::Never,
        ..Call::new(datatype, op, peer, RawRemote { addr, key }, null_mut())
    };
    let numbers = Numbers::of(Array::Buffer(buf, count));
    // SAFETY: arrays of the application.
    unsafe { run(ep, Form::Plain, &call, &numbers) }
}

/// `fi_query_atomic`: checks that an operation exists in the form that the flags select.
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
        let what = AtomicKind::of(form, datatype, op)?;
        // SAFETY: `attr` is null or the application's storage.
        let attr = unsafe { attr.as_mut() }.ok_or(Errno::INVAL)?;
        attr.count = what.count_max();
        attr.size = what.datatype.len();
        Ok(())
    })
}

/// Maximum bytes of operands and comparands of one operation together. It is the protocol's limit,
/// one page.
pub(crate) const ATOMIC_LEN_MAX: usize = 4096;

/// Flags of `fi_query_atomic`.
const FETCH_ATOMIC: u64 = 1 << 58;
const COMPARE_ATOMIC: u64 = 1 << 59;
