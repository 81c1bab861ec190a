// SPDX-License-Identifier: MIT OR Apache-2.0
//! VIPL's constants. Results, control bits, status bits, service levels and states have the values
//! of the original. docs/reference/heritage.md lists the others.

use std::ffi::{c_int, c_uint};

/// The result of a function.
pub type VIP_RETURN = c_int;

/// Success.
pub const VIP_SUCCESS: VIP_RETURN = 0;
/// The operation is not complete.
pub const VIP_NOT_DONE: VIP_RETURN = 1;
/// An argument is invalid.
pub const VIP_INVALID_PARAMETER: VIP_RETURN = 2;
/// A resource is exhausted or in use.
pub const VIP_ERROR_RESOURCE: VIP_RETURN = 3;
/// The timeout has expired.
pub const VIP_TIMEOUT: VIP_RETURN = 4;
/// The other side has rejected the connection.
pub const VIP_REJECT: VIP_RETURN = 5;
/// The reliability levels of the two VIs differ, or the level is invalid.
pub const VIP_INVALID_RELIABILITY_LEVEL: VIP_RETURN = 6;
/// The maximum transfer sizes of the two VIs differ, or the size is too large.
pub const VIP_INVALID_MTU: VIP_RETURN = 7;
/// The qualities of service of the two VIs differ.
pub const VIP_INVALID_QOS: VIP_RETURN = 8;
/// The protection tag does not exist.
pub const VIP_INVALID_PTAG: VIP_RETURN = 9;
/// RDMA read requires a reliable VI.
pub const VIP_INVALID_RDMAREAD: VIP_RETURN = 10;
/// A descriptor has completed with an error, which its status contains.
pub const VIP_DESCRIPTOR_ERROR: VIP_RETURN = 11;
/// The VI is in the wrong state.
pub const VIP_INVALID_STATE: VIP_RETURN = 12;
/// The name service is not initialized, or has no such name.
pub const VIP_ERROR_NAMESERVICE: VIP_RETURN = 13;
/// No process waits for the connection.
pub const VIP_NO_MATCH: VIP_RETURN = 14;
/// The host does not exist, or its process has failed or exited.
pub const VIP_NOT_REACHABLE: VIP_RETURN = 15;
/// The function is not supported.
pub const VIP_ERROR_NOT_SUPPORTED: VIP_RETURN = 16;

/// The descriptor is a send or a receive.
pub const VIP_CONTROL_OP_SENDRECV: c_uint = 0;
/// The descriptor writes to the memory of the other side.
pub const VIP_CONTROL_OP_RDMAWRITE: c_uint = 1;
/// The descriptor reads the memory of the other side.
pub const VIP_CONTROL_OP_RDMAREAD: c_uint = 2;
/// Mask of the bits that select the operation.
pub const VIP_CONTROL_OP_MASK: c_uint = 3;
/// The message carries immediate data.
pub const VIP_CONTROL_IMMEDIATE: c_uint = 4;
/// The descriptor waits until all earlier RDMA reads have completed.
pub const VIP_CONTROL_QFENCE: c_uint = 8;

/// Mask of the reserved control bits.
pub const VIP_CONTROL_RESERVED: c_uint = 0xFFF0;

/// Alignment of a descriptor, in bytes.
pub const VIP_DESCRIPTOR_ALIGNMENT: c_uint = 64;

/// Mask of the reserved status bits.
pub const VIP_STATUS_RESERVED: c_uint = 0xFFF0_FE00;
/// The descriptor has completed.
pub const VIP_STATUS_DONE: c_uint = 1;
/// The descriptor is malformed.
pub const VIP_STATUS_FORMAT_ERROR: c_uint = 2;
/// The descriptor's memory is not registered, or has another protection tag.
pub const VIP_STATUS_PROTECTION_ERROR: c_uint = 4;
/// The descriptor is too long, or shorter than the message that has arrived.
pub const VIP_STATUS_LENGTH_ERROR: c_uint = 8;
/// A part of the data was transferred.
pub const VIP_STATUS_PARTIAL_ERROR: c_uint = 0x10;
/// The descriptor was flushed because the connection has ended.
pub const VIP_STATUS_DESC_FLUSHED_ERROR: c_uint = 0x20;
/// The other side has failed or exited.
pub const VIP_STATUS_TRANSPORT_ERROR: c_uint = 0x40;
/// The other side does not permit access to that memory.
pub const VIP_STATUS_RDMA_PROT_ERROR: c_uint = 0x80;
/// The other side had no descriptor for the message, or an unusable one.
pub const VIP_STATUS_REMOTE_DESC_ERROR: c_uint = 0x100;
/// Mask of all errors.
pub const VIP_STATUS_ERROR_MASK: c_uint = 0x1FE;
/// The completed descriptor is a send.
pub const VIP_STATUS_OP_SEND: c_uint = 0;
/// The completed descriptor is a receive.
pub const VIP_STATUS_OP_RECEIVE: c_uint = 0x10000;
/// The completed descriptor is an RDMA write.
pub const VIP_STATUS_OP_RDMA_WRITE: c_uint = 0x20000;
/// The completed descriptor is a receive that an RDMA write of the other side has consumed for its
/// immediate data.
pub const VIP_STATUS_OP_REMOTE_RDMA_WRITE: c_uint = 0x30000;
/// The completed descriptor is an RDMA read.
pub const VIP_STATUS_OP_RDMA_READ: c_uint = 0x40000;
/// Mask of the bits that identify the operation.
pub const VIP_STATUS_OP_MASK: c_uint = 0x70000;
/// Immediate data has arrived with the message.
pub const VIP_STATUS_IMMEDIATE: c_uint = 0x80000;

/// One reliability level, or a set of them.
pub type VIP_RELIABILITY_LEVEL = u16;

/// Messages may be lost. A send completes when it has left.
pub const VIP_SERVICE_UNRELIABLE: c_uint = 1;
/// Messages arrive once and in order. A send completes when it has arrived.
pub const VIP_SERVICE_RELIABLE_DELIVERY: c_uint = 2;
/// Messages arrive once and in order. A send completes when it is in the receiver's memory.
pub const VIP_SERVICE_RELIABLE_RECEPTION: c_uint = 4;

/// The state of a VI.
pub type VIP_VI_STATE = c_int;

/// The VI is not connected.
pub const VIP_STATE_IDLE: VIP_VI_STATE = 0;
/// The VI is connected.
pub const VIP_STATE_CONNECTED: VIP_VI_STATE = 1;
/// A connection was requested.
pub const VIP_STATE_CONNECT_PENDING: VIP_VI_STATE = 2;
/// The connection has failed. VipDisconnect() makes the VI idle again.
pub const VIP_STATE_ERROR: VIP_VI_STATE = 3;

/// The cause of an asynchronous error.
pub type VIP_ERROR_CODE = c_uint;

/// A descriptor is not in memory that is registered for its queue.
pub const VIP_ERROR_POST_DESC: VIP_ERROR_CODE = 0;
/// A connection has ended, but not by a call on this side.
pub const VIP_ERROR_CONN_LOST: VIP_ERROR_CODE = 1;
/// A message has arrived without a posted descriptor.
pub const VIP_ERROR_RECVQ_EMPTY: VIP_ERROR_CODE = 2;
/// A completion queue was full.
pub const VIP_ERROR_VI_OVERRUN: VIP_ERROR_CODE = 3;
/// The other side has tried to write to memory without permission.
pub const VIP_ERROR_RDMAW_PROT: VIP_ERROR_CODE = 4;
/// Data of an RDMA write was corrupted. Not reported by Portolan, which retransmits such data.
pub const VIP_ERROR_RDMAW_DATA: VIP_ERROR_CODE = 5;
/// An RDMA write was aborted. Not reported by Portolan.
pub const VIP_ERROR_RDMAW_ABORT: VIP_ERROR_CODE = 6;
/// The other side has tried to read memory without permission.
pub const VIP_ERROR_RDMAR_PROT: VIP_ERROR_CODE = 7;
/// A completion could not be written. Not reported by Portolan.
pub const VIP_ERROR_COMP_PROT: VIP_ERROR_CODE = 8;
/// RDMA data could not be transported. Not reported by Portolan.
pub const VIP_ERROR_RDMA_TRANSPORT: VIP_ERROR_CODE = 9;
/// No further operation is possible.
pub const VIP_ERROR_CATASTROPHIC: VIP_ERROR_CODE = 10;

/// The kind of object to which an asynchronous error refers.
pub type VIP_RESOURCE_CODE = c_uint;

/// The NIC.
pub const VIP_RESOURCE_NIC: VIP_RESOURCE_CODE = 0;
/// A VI.
pub const VIP_RESOURCE_VI: VIP_RESOURCE_CODE = 1;
/// A completion queue.
pub const VIP_RESOURCE_CQ: VIP_RESOURCE_CODE = 2;
/// A descriptor.
pub const VIP_RESOURCE_DESCRIPTOR: VIP_RESOURCE_CODE = 3;

/// Discovery of other hosts.
pub const VIP_SMI_AUTODISCOVERY: c_uint = 1;

/// An infinite timeout.
pub const VIP_INFINITE: c_uint = 0xFFFF_FFFF;
/// False.
pub const VIP_FALSE: c_int = 0;
/// True.
pub const VIP_TRUE: c_int = 1;

/// Returns true if a status contains an error.
#[inline]
pub(crate) const fn is_error(status: u32) -> bool {
    status & VIP_STATUS_ERROR_MASK != 0
}
