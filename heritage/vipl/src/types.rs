// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types of the C interface: descriptors in the layout of the specification, addresses and
//! attributes.

use crate::code::*;
use std::ffi::{c_char, c_int, c_uchar, c_ulong, c_ushort, c_void};
use std::mem::offset_of;

/// An unsigned integer with the size of a pointer.
pub type VIP_ULONG = c_ulong;
/// A boolean.
pub type VIP_BOOLEAN = c_int;
/// An address.
pub type VIP_PVOID = *mut c_void;
/// A character.
pub type VIP_CHAR = c_char;
/// A character as a number.
pub type VIP_UCHAR = c_uchar;
/// A short number.
pub type VIP_USHORT = c_ushort;
/// A number of 8 bits.
pub type VIP_UINT8 = u8;
/// A number of 16 bits.
pub type VIP_UINT16 = u16;
/// A number of 32 bits.
pub type VIP_UINT32 = u32;
/// A number of 64 bits.
pub type VIP_UINT64 = u64;
/// A NIC, returned by VipOpenNic().
pub type VIP_NIC_HANDLE = *mut c_void;
/// A VI, returned by VipCreateVi().
pub type VIP_VI_HANDLE = *mut c_void;
/// A completion queue, returned by VipCreateCQ().
pub type VIP_CQ_HANDLE = *mut c_void;
/// A connection request, returned by VipConnectWait().
pub type VIP_CONN_HANDLE = *mut c_void;
/// A protection tag, returned by VipCreatePtag().
pub type VIP_PROTECTION_HANDLE = *mut c_void;
/// Registered memory, returned by VipRegisterMem().
pub type VIP_MEM_HANDLE = u32;
/// A quality of service. Any value is allowed, but both sides of a connection need the same.
pub type VIP_QOS = *mut c_void;

/// Another name of VIP_WORK_HANDLER.
pub type VIP_VI_CALLBACK = crate::queue::VIP_WORK_HANDLER;
/// Another name of VIP_CQ_HANDLER.
pub type VIP_CQ_CALLBACK = crate::cq::VIP_CQ_HANDLER;

/// An address in 64 bits.
#[repr(C)]
#[derive(Clone, Copy)]
pub union VIP_PVOID64 {
    /// The address as an integer.
    pub AddressBits: u64,
    /// The address as a pointer.
    pub Address: *mut c_void,
}

/// The first part of a descriptor.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_CONTROL_SEGMENT {
    /// Ignored: the library keeps the queues.
    pub Next: VIP_PVOID64,
    /// Ignored.
    pub NextHandle: VIP_MEM_HANDLE,
    /// Number of segments that follow, including the address segment.
    pub SegCount: u16,
    /// VIP_CONTROL_ bits.
    pub Control: u16,
    /// Reserved, 0.
    pub Reserved: u32,
    /// Immediate data, sent with the message.
    pub ImmediateData: u32,
    /// Bytes of all data segments. In a completed receive, the bytes that have arrived.
    pub Length: u32,
    /// VIP_STATUS_ bits, written when the descriptor completes.
    pub Status: u32,
}

/// Remote memory of an RDMA operation.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_ADDRESS_SEGMENT {
    /// Address in the other process.
    pub Data: VIP_PVOID64,
    /// Handle of the memory in the other process.
    pub Handle: VIP_MEM_HANDLE,
    /// Reserved, 0.
    pub Reserved: u32,
}

/// A piece of memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_DATA_SEGMENT {
    /// Start of the memory.
    pub Data: VIP_PVOID64,
    /// Handle of the memory.
    pub Handle: VIP_MEM_HANDLE,
    /// Length in bytes.
    pub Length: u32,
}

/// A segment of either kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub union VIP_DESCRIPTOR_SEGMENT {
    /// An address segment, the first segment of an RDMA operation.
    pub Remote: VIP_ADDRESS_SEGMENT,
    /// A data segment.
    pub Local: VIP_DATA_SEGMENT,
}

/// A descriptor. It is aligned to 64 bytes. More segments follow in memory if `CS.SegCount` is
/// greater than 2.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_DESCRIPTOR {
    /// Operation and status.
    pub CS: VIP_CONTROL_SEGMENT,
    /// The first segments.
    pub DS: [VIP_DESCRIPTOR_SEGMENT; 2],
}

// The specification defines this layout. Programs that build descriptors themselves rely on it.
const _: () = {
    assert!(size_of::<VIP_CONTROL_SEGMENT>() == 32);
    assert!(size_of::<VIP_DESCRIPTOR_SEGMENT>() == 16);
    assert!(size_of::<VIP_DESCRIPTOR>() == 64);
    assert!(offset_of!(VIP_CONTROL_SEGMENT, SegCount) == 12);
    assert!(offset_of!(VIP_CONTROL_SEGMENT, ImmediateData) == 20);
    assert!(offset_of!(VIP_CONTROL_SEGMENT, Status) == 28);
    assert!(offset_of!(VIP_DATA_SEGMENT, Length) == 12);
};

/// An address: `HostAddressLen` bytes of the host, followed by `DiscriminatorLen` bytes that
/// identify a service. More bytes follow in memory than the array declares.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_NET_ADDRESS {
    /// Bytes of the host address.
    pub HostAddressLen: u16,
    /// Bytes of the discriminator, which follows the host address.
    pub DiscriminatorLen: u16,
    /// Host address and discriminator.
    pub HostAddress: [u8; 1],
}

/// Addresses in reach, as VIP_SMI_AUTODISCOVERY would return them. This library discovers none: the
/// name service has the hosts of the job.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_AUTODISCOVERY_LIST {
    /// Maximum number of hops.
    pub NumberOfHops: VIP_ULONG,
    /// The addresses.
    pub ADAddrArray: *mut VIP_NET_ADDRESS,
    /// Number of addresses.
    pub NumAdAddrs: VIP_ULONG,
}

/// The attributes of a VI.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_VI_ATTRIBUTES {
    /// One of VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY,
    /// VIP_SERVICE_RELIABLE_RECEPTION.
    pub ReliabilityLevel: VIP_RELIABILITY_LEVEL,
    /// Maximum bytes of a transfer.
    pub MaxTransferSize: VIP_ULONG,
    /// The quality of service.
    pub QoS: VIP_QOS,
    /// Protection tag of the memory that the VI uses.
    pub Ptag: VIP_PROTECTION_HANDLE,
    /// VIP_TRUE to let the other side write to memory.
    pub EnableRdmaWrite: VIP_BOOLEAN,
    /// VIP_TRUE to let the other side read memory.
    pub EnableRdmaRead: VIP_BOOLEAN,
}

/// The attributes of registered memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_MEM_ATTRIBUTES {
    /// Protection tag of the VIs that may use it.
    pub Ptag: VIP_PROTECTION_HANDLE,
    /// VIP_TRUE to let other processes write to it.
    pub EnableRdmaWrite: VIP_BOOLEAN,
    /// VIP_TRUE to let other processes read it.
    pub EnableRdmaRead: VIP_BOOLEAN,
}

/// The attributes of a NIC.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_NIC_ATTRIBUTES {
    /// Name of the NIC.
    pub Name: [c_char; 64],
    /// Version of the hardware, which does not exist here.
    pub HardwareVersion: VIP_ULONG,
    /// Version of the library.
    pub ProviderVersion: VIP_ULONG,
    /// Bytes of an address without discriminator.
    pub NicAddressLen: u16,
    /// Address of this process, in memory of the library that is valid until the process exits.
    pub LocalNicAddress: *const u8,
    /// VIP_TRUE: any thread may call any function.
    pub ThreadSafe: VIP_BOOLEAN,
    /// Maximum bytes of a discriminator.
    pub MaxDiscriminatorLen: u16,
    /// Maximum bytes of registered memory.
    pub MaxRegisterBytes: VIP_ULONG,
    /// Maximum number of registered regions.
    pub MaxRegisterRegions: VIP_ULONG,
    /// Maximum bytes of a region.
    pub MaxRegisterBlockBytes: VIP_ULONG,
    /// Maximum number of VIs.
    pub MaxVI: VIP_ULONG,
    /// Maximum number of descriptors on a queue.
    pub MaxDescriptorsPerQueue: VIP_ULONG,
    /// Maximum number of segments of a descriptor.
    pub MaxSegmentsPerDesc: VIP_ULONG,
    /// Maximum number of completion queues.
    pub MaxCQ: VIP_ULONG,
    /// Maximum number of entries of a completion queue.
    pub MaxCQEntries: VIP_ULONG,
    /// Maximum bytes of a transfer.
    pub MaxTransferSize: VIP_ULONG,
    /// Bytes that travel in one piece.
    pub NativeMTU: VIP_ULONG,
    /// Maximum number of protection tags.
    pub MaxPtags: VIP_ULONG,
    /// Supported reliability levels.
    pub ReliabilityLevelSupport: VIP_RELIABILITY_LEVEL,
    /// Reliability levels that support RDMA read.
    pub RDMAReadSupport: VIP_RELIABILITY_LEVEL,
}

/// An asynchronous error.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_ERROR_DESCRIPTOR {
    /// The NIC.
    pub NicHandle: VIP_NIC_HANDLE,
    /// The VI, or null.
    pub ViHandle: VIP_VI_HANDLE,
    /// The completion queue, or null.
    pub CQHandle: VIP_CQ_HANDLE,
    /// The descriptor, or null.
    pub DescriptorPtr: *mut VIP_DESCRIPTOR,
    /// VIP_STATUS_OP_ bits of the operation.
    pub OpCode: VIP_ULONG,
    /// Kind of the object that is affected.
    pub ResourceCode: VIP_RESOURCE_CODE,
    /// Cause of the error.
    pub ErrorCode: VIP_ERROR_CODE,
}
