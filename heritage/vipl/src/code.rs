// SPDX-License-Identifier: MIT OR Apache-2.0
//! VIPL's numbers. Those of results, control and status bits, services and states are the original's;
//! docs/heritage.md names the others.

use std::ffi::{c_int, c_uint};

/// How a function has ended.
pub type VIP_RETURN = c_int;

/// It has done what it should.
pub const VIP_SUCCESS: VIP_RETURN = 0;
/// Nothing has ended yet.
pub const VIP_NOT_DONE: VIP_RETURN = 1;
/// An argument cannot be.
pub const VIP_INVALID_PARAMETER: VIP_RETURN = 2;
/// Something has run out, or is in use.
pub const VIP_ERROR_RESOURCE: VIP_RETURN = 3;
/// The time is over.
pub const VIP_TIMEOUT: VIP_RETURN = 4;
/// The other side has rejected the connection.
pub const VIP_REJECT: VIP_RETURN = 5;
/// The two VIs differ in their reliability level, or there is none such.
pub const VIP_INVALID_RELIABILITY_LEVEL: VIP_RETURN = 6;
/// The two VIs differ in their greatest transfer, or it is too great.
pub const VIP_INVALID_MTU: VIP_RETURN = 7;
/// The two VIs differ in their quality of service.
pub const VIP_INVALID_QOS: VIP_RETURN = 8;
/// There is no such protection tag.
pub const VIP_INVALID_PTAG: VIP_RETURN = 9;
/// RDMA read needs a reliable VI.
pub const VIP_INVALID_RDMAREAD: VIP_RETURN = 10;
/// A descriptor has ended with an error, which its status tells.
pub const VIP_DESCRIPTOR_ERROR: VIP_RETURN = 11;
/// The VI is in another state.
pub const VIP_INVALID_STATE: VIP_RETURN = 12;
/// The name service was not begun, or does not know the name.
pub const VIP_ERROR_NAMESERVICE: VIP_RETURN = 13;
/// Nobody waits for the connection.
pub const VIP_NO_MATCH: VIP_RETURN = 14;
/// There is no such host, or its process is gone.
pub const VIP_NOT_REACHABLE: VIP_RETURN = 15;
/// This is not offered.
pub const VIP_ERROR_NOT_SUPPORTED: VIP_RETURN = 16;

/// The descriptor sends, or receives.
pub const VIP_CONTROL_OP_SENDRECV: c_uint = 0;
/// The descriptor writes into the memory of the other side.
pub const VIP_CONTROL_OP_RDMAWRITE: c_uint = 1;
/// The descriptor reads the memory of the other side.
pub const VIP_CONTROL_OP_RDMAREAD: c_uint = 2;
/// The bits that say what the descriptor does.
pub const VIP_CONTROL_OP_MASK: c_uint = 3;
/// Immediate data go with it.
pub const VIP_CONTROL_IMMEDIATE: c_uint = 4;
/// It waits until the RDMA reads before it have ended.
pub const VIP_CONTROL_QFENCE: c_uint = 8;

/// The descriptor has ended.
pub const VIP_STATUS_DONE: c_uint = 1;
/// It cannot be understood.
pub const VIP_STATUS_FORMAT_ERROR: c_uint = 2;
/// It names memory that is not registered, or with another protection tag.
pub const VIP_STATUS_PROTECTION_ERROR: c_uint = 4;
/// It is too long, or what has arrived is too long for it.
pub const VIP_STATUS_LENGTH_ERROR: c_uint = 8;
/// A part of it was transferred.
pub const VIP_STATUS_PARTIAL_ERROR: c_uint = 0x10;
/// It was on a queue that was emptied because the connection has ended.
pub const VIP_STATUS_DESC_FLUSHED_ERROR: c_uint = 0x20;
/// The other side is gone.
pub const VIP_STATUS_TRANSPORT_ERROR: c_uint = 0x40;
/// The other side does not open that memory.
pub const VIP_STATUS_RDMA_PROT_ERROR: c_uint = 0x80;
/// The other side had no descriptor for it, or none that it could use.
pub const VIP_STATUS_REMOTE_DESC_ERROR: c_uint = 0x100;
/// All errors.
pub const VIP_STATUS_ERROR_MASK: c_uint = 0x1FE;
/// What has ended is a send.
pub const VIP_STATUS_OP_SEND: c_uint = 0;
/// What has ended is a receive.
pub const VIP_STATUS_OP_RECEIVE: c_uint = 0x10000;
/// What has ended is an RDMA write.
pub const VIP_STATUS_OP_RDMA_WRITE: c_uint = 0x20000;
/// What has ended is a receive that an RDMA write of the other side has used for its immediate data.
pub const VIP_STATUS_OP_REMOTE_RDMA_WRITE: c_uint = 0x30000;
/// What has ended is an RDMA read.
pub const VIP_STATUS_OP_RDMA_READ: c_uint = 0x40000;
/// The bits that say what has ended.
pub const VIP_STATUS_OP_MASK: c_uint = 0x70000;
/// Immediate data have come with it.
pub const VIP_STATUS_IMMEDIATE: c_uint = 0x80000;

/// A set of reliability levels, or one.
pub type VIP_RELIABILITY_LEVEL = u16;

/// Messages may be lost; a send has ended when it has left.
pub const VIP_SERVICE_UNRELIABLE: c_uint = 1;
/// Messages arrive once and in order; a send has ended when it has arrived.
pub const VIP_SERVICE_RELIABLE_DELIVERY: c_uint = 2;
/// Messages arrive once and in order; a send has ended when it is in the receiver's memory.
pub const VIP_SERVICE_RELIABLE_RECEPTION: c_uint = 4;

/// A state of a VI.
pub type VIP_VI_STATE = c_int;

/// Not connected.
pub const VIP_STATE_IDLE: VIP_VI_STATE = 0;
/// Connected.
pub const VIP_STATE_CONNECTED: VIP_VI_STATE = 1;
/// A connection was asked for.
pub const VIP_STATE_CONNECT_PENDING: VIP_VI_STATE = 2;
/// The connection has failed; VipDisconnect() ends this state.
pub const VIP_STATE_ERROR: VIP_VI_STATE = 3;

/// What an asynchronous error is about.
pub type VIP_ERROR_CODE = c_uint;

/// A descriptor does not lie in memory that was registered as its queue needs it.
pub const VIP_ERROR_POST_DESC: VIP_ERROR_CODE = 0;
/// A connection has ended, and this side has not ended it.
pub const VIP_ERROR_CONN_LOST: VIP_ERROR_CODE = 1;
/// A message has found no descriptor.
pub const VIP_ERROR_RECVQ_EMPTY: VIP_ERROR_CODE = 2;
/// A completion queue was full.
pub const VIP_ERROR_VI_OVERRUN: VIP_ERROR_CODE = 3;
/// The other side has tried to write to memory that is not open to it.
pub const VIP_ERROR_RDMAW_PROT: VIP_ERROR_CODE = 4;
/// Data of an RDMA write were broken. Not reported by Portolan, which repairs them.
pub const VIP_ERROR_RDMAW_DATA: VIP_ERROR_CODE = 5;
/// An RDMA write has ended early. Not reported by Portolan.
pub const VIP_ERROR_RDMAW_ABORT: VIP_ERROR_CODE = 6;
/// The other side has tried to read memory that is not open to it.
pub const VIP_ERROR_RDMAR_PROT: VIP_ERROR_CODE = 7;
/// A completion could not be told. Not reported by Portolan.
pub const VIP_ERROR_COMP_PROT: VIP_ERROR_CODE = 8;
/// RDMA could not be carried. Not reported by Portolan.
pub const VIP_ERROR_RDMA_TRANSPORT: VIP_ERROR_CODE = 9;
/// Nothing works any more.
pub const VIP_ERROR_CATASTROPHIC: VIP_ERROR_CODE = 10;

/// What kind of thing an asynchronous error has happened to.
pub type VIP_RESOURCE_CODE = c_uint;

/// The NIC.
pub const VIP_RESOURCE_NIC: VIP_RESOURCE_CODE = 0;
/// A VI.
pub const VIP_RESOURCE_VI: VIP_RESOURCE_CODE = 1;
/// A completion queue.
pub const VIP_RESOURCE_CQ: VIP_RESOURCE_CODE = 2;
/// A descriptor.
pub const VIP_RESOURCE_DESCRIPTOR: VIP_RESOURCE_CODE = 3;

/// Which other hosts there are.
pub const VIP_SMI_AUTODISCOVERY: c_uint = 1;

/// As long as it takes.
pub const VIP_INFINITE: c_uint = 0xFFFF_FFFF;
/// False.
pub const VIP_FALSE: c_int = 0;
/// True.
pub const VIP_TRUE: c_int = 1;

/// A status without the bit of its end.
#[inline]
pub(crate) const fn is_error(status: u32) -> bool {
    status & VIP_STATUS_ERROR_MASK != 0
}
