// SPDX-License-Identifier: MIT OR Apache-2.0
//! Types as programs see them: descriptors with the layout of the specification, addresses, attributes.

use crate::code::*;
use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::mem::offset_of;

/// A number of as many bits as a pointer has.
pub type VIP_ULONG = c_ulong;
/// True or false.
pub type VIP_BOOLEAN = c_int;
/// A NIC, as VipOpenNic() gives it.
pub type VIP_NIC_HANDLE = *mut c_void;
/// A VI, as VipCreateVi() gives it.
pub type VIP_VI_HANDLE = *mut c_void;
/// A completion queue, as VipCreateCQ() gives it.
pub type VIP_CQ_HANDLE = *mut c_void;
/// A request for a connection, as VipConnectWait() gives it.
pub type VIP_CONN_HANDLE = *mut c_void;
/// A protection tag, as VipCreatePtag() gives it.
pub type VIP_PROTECTION_HANDLE = *mut c_void;
/// Registered memory, as VipRegisterMem() gives it.
pub type VIP_MEM_HANDLE = u32;
/// A quality of service; any number, of which the two sides of a connection need the same.
pub type VIP_QOS = *mut c_void;

/// An address in 64 bits.
#[repr(C)]
#[derive(Clone, Copy)]
pub union VIP_PVOID64 {
    /// As a number.
    pub AddressBits: u64,
    /// As a pointer.
    pub Address: *mut c_void,
}

/// The first part of a descriptor.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_CONTROL_SEGMENT {
    /// Not read: queues are kept by the library.
    pub Next: VIP_PVOID64,
    /// Not read.
    pub NextHandle: VIP_MEM_HANDLE,
    /// Segments that follow, the address segment among them.
    pub SegCount: u16,
    /// VIP_CONTROL_ bits.
    pub Control: u16,
    /// Zero.
    pub Reserved: u32,
    /// A word that goes with the message.
    pub ImmediateData: u32,
    /// Bytes of all data segments; of a receive that has ended, those that have arrived.
    pub Length: u32,
    /// VIP_STATUS_ bits; written when the descriptor has ended.
    pub Status: u32,
}

/// Where an RDMA goes to or comes from.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_ADDRESS_SEGMENT {
    /// Address in the other process.
    pub Data: VIP_PVOID64,
    /// The handle that the other process has for the memory.
    pub Handle: VIP_MEM_HANDLE,
    /// Zero.
    pub Reserved: u32,
}

/// A piece of memory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_DATA_SEGMENT {
    /// Where it begins.
    pub Data: VIP_PVOID64,
    /// Its handle.
    pub Handle: VIP_MEM_HANDLE,
    /// Bytes.
    pub Length: u32,
}

/// A segment of either kind.
#[repr(C)]
#[derive(Clone, Copy)]
pub union VIP_DESCRIPTOR_SEGMENT {
    /// An address segment, the first of an RDMA.
    pub Remote: VIP_ADDRESS_SEGMENT,
    /// A data segment.
    pub Local: VIP_DATA_SEGMENT,
}

/// A descriptor: more segments follow in memory if `CS.SegCount` says so. It begins at a multiple of 64.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_DESCRIPTOR {
    /// What is to be done, and how it has ended.
    pub CS: VIP_CONTROL_SEGMENT,
    /// The segments.
    pub DS: [VIP_DESCRIPTOR_SEGMENT; 2],
}

// The layout is the specification's, and programs that lay descriptors out themselves rely on it.
const _: () = {
    assert!(size_of::<VIP_CONTROL_SEGMENT>() == 32);
    assert!(size_of::<VIP_DESCRIPTOR_SEGMENT>() == 16);
    assert!(size_of::<VIP_DESCRIPTOR>() == 64);
    assert!(offset_of!(VIP_CONTROL_SEGMENT, SegCount) == 12);
    assert!(offset_of!(VIP_CONTROL_SEGMENT, ImmediateData) == 20);
    assert!(offset_of!(VIP_CONTROL_SEGMENT, Status) == 28);
    assert!(offset_of!(VIP_DATA_SEGMENT, Length) == 12);
};

/// An address: `HostAddressLen` bytes of a host, and `DiscriminatorLen` bytes that tell its services apart.
/// More bytes follow in memory than are declared.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_NET_ADDRESS {
    /// Bytes of the host.
    pub HostAddressLen: u16,
    /// Bytes behind those.
    pub DiscriminatorLen: u16,
    /// All of them.
    pub HostAddress: [u8; 1],
}

/// What a VI is to be like.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_VI_ATTRIBUTES {
    /// One of VIP_SERVICE_UNRELIABLE, VIP_SERVICE_RELIABLE_DELIVERY, VIP_SERVICE_RELIABLE_RECEPTION.
    pub ReliabilityLevel: VIP_RELIABILITY_LEVEL,
    /// Bytes of the longest transfer.
    pub MaxTransferSize: VIP_ULONG,
    /// A quality of service.
    pub QoS: VIP_QOS,
    /// What the memory that it uses is registered with.
    pub Ptag: VIP_PROTECTION_HANDLE,
    /// The other side may write to memory.
    pub EnableRdmaWrite: VIP_BOOLEAN,
    /// The other side may read memory.
    pub EnableRdmaRead: VIP_BOOLEAN,
}

/// What registered memory is like.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_MEM_ATTRIBUTES {
    /// Whose VIs may use it.
    pub Ptag: VIP_PROTECTION_HANDLE,
    /// Other processes may write to it.
    pub EnableRdmaWrite: VIP_BOOLEAN,
    /// Other processes may read it.
    pub EnableRdmaRead: VIP_BOOLEAN,
}

/// What a NIC is like.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VIP_NIC_ATTRIBUTES {
    /// Its name.
    pub Name: [c_char; 64],
    /// Version of the hardware, of which there is none.
    pub HardwareVersion: VIP_ULONG,
    /// Version of the library.
    pub ProviderVersion: VIP_ULONG,
    /// Bytes of an address without discriminator.
    pub NicAddressLen: u16,
    /// This process's, in memory of the library's that is there as long as the process.
    pub LocalNicAddress: *const u8,
    /// Any thread may call any function.
    pub ThreadSafe: VIP_BOOLEAN,
    /// Bytes of the longest discriminator.
    pub MaxDiscriminatorLen: u16,
    /// Bytes that may be registered.
    pub MaxRegisterBytes: VIP_ULONG,
    /// Pieces that may be registered.
    pub MaxRegisterRegions: VIP_ULONG,
    /// Bytes of the greatest piece.
    pub MaxRegisterBlockBytes: VIP_ULONG,
    /// VIs.
    pub MaxVI: VIP_ULONG,
    /// Descriptors on a queue.
    pub MaxDescriptorsPerQueue: VIP_ULONG,
    /// Segments of a descriptor.
    pub MaxSegmentsPerDesc: VIP_ULONG,
    /// Completion queues.
    pub MaxCQ: VIP_ULONG,
    /// Entries of a completion queue.
    pub MaxCQEntries: VIP_ULONG,
    /// Bytes of the longest transfer.
    pub MaxTransferSize: VIP_ULONG,
    /// Bytes that travel in one piece.
    pub NativeMTU: VIP_ULONG,
    /// Protection tags.
    pub MaxPtags: VIP_ULONG,
    /// The levels that there are.
    pub ReliabilityLevelSupport: VIP_RELIABILITY_LEVEL,
    /// The levels with RDMA read.
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
    /// What was being done: VIP_STATUS_OP_ bits.
    pub OpCode: VIP_ULONG,
    /// What it has happened to.
    pub ResourceCode: VIP_RESOURCE_CODE,
    /// What has happened.
    pub ErrorCode: VIP_ERROR_CODE,
}
