// SPDX-License-Identifier: MIT OR Apache-2.0
//! Constants: capabilities, flags, modes, orders and enumerations.

use std::ffi::c_int;

pub(crate) const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}

// Capabilities and operation flags share one bit space.
pub(crate) const MSG: u64 = 1 << 1;
pub(crate) const RMA: u64 = 1 << 2;
pub(crate) const TAGGED: u64 = 1 << 3;
pub(crate) const ATOMIC: u64 = 1 << 4;
pub(crate) const READ: u64 = 1 << 8;
pub(crate) const WRITE: u64 = 1 << 9;
pub(crate) const RECV: u64 = 1 << 10;
pub(crate) const SEND: u64 = 1 << 11;
pub(crate) const REMOTE_READ: u64 = 1 << 12;
pub(crate) const REMOTE_WRITE: u64 = 1 << 13;
pub(crate) const MULTI_RECV: u64 = 1 << 16;
pub(crate) const REMOTE_CQ_DATA: u64 = 1 << 17;
pub(crate) const PEEK: u64 = 1 << 19;
pub(crate) const COMPLETION: u64 = 1 << 24;
pub(crate) const INJECT: u64 = 1 << 25;
pub(crate) const INJECT_COMPLETE: u64 = 1 << 26;
pub(crate) const TRANSMIT_COMPLETE: u64 = 1 << 27;
pub(crate) const DELIVERY_COMPLETE: u64 = 1 << 28;
pub(crate) const MATCH_COMPLETE: u64 = 1 << 31;
pub(crate) const LOCAL_COMM: u64 = 1 << 51;
pub(crate) const REMOTE_COMM: u64 = 1 << 52;
pub(crate) const RMA_EVENT: u64 = 1 << 56;
pub(crate) const SOURCE: u64 = 1 << 57;
pub(crate) const DIRECTED_RECV: u64 = 1 << 59;
// The same bits have another meaning for a receive, a binding or an atomic operation.
pub(crate) const CLAIM: u64 = 1 << 59;
pub(crate) const DISCARD: u64 = 1 << 58;
pub(crate) const SELECTIVE_COMPLETION: u64 = 1 << 59;

// Flags of `fi_getinfo`. libfabric itself sets `CORE_PROV_ONLY` to find base providers for its
// utility providers.
pub(crate) const NUMERICHOST: u64 = 1 << 55;
pub(crate) const CORE_PROV_ONLY: u64 = 1 << 59;
pub(crate) const PROV_ATTR_ONLY: u64 = 1 << 54;

pub(crate) const ADDR_UNSPEC: u64 = u64::MAX;
pub(crate) const ADDR_NOTAVAIL: u64 = u64::MAX;
pub(crate) const SHARED_CONTEXT: usize = usize::MAX;

// Address formats. The last bit means "defined by the provider".
pub(crate) const FORMAT_UNSPEC: u32 = 0;
pub(crate) const SOCKADDR: u32 = 1;
pub(crate) const SOCKADDR_IN: u32 = 2;
pub(crate) const SOCKADDR_IN6: u32 = 3;
pub(crate) const PROV_SPECIFIC: u32 = 1 << 31;

pub(crate) const EP_UNSPEC: c_int = 0;
pub(crate) const EP_MSG: c_int = 1;
pub(crate) const EP_RDM: c_int = 3;

pub(crate) const AV_UNSPEC: c_int = 0;
pub(crate) const AV_MAP: c_int = 1;
pub(crate) const AV_TABLE: c_int = 2;

pub(crate) const MR_BASIC: c_int = 1;
pub(crate) const MR_SCALABLE: c_int = 2;
pub(crate) const MR_VIRT_ADDR: c_int = 1 << 4;
pub(crate) const MR_ALLOCATED: c_int = 1 << 5;
pub(crate) const MR_PROV_KEY: c_int = 1 << 6;

pub(crate) const PROGRESS_UNSPEC: c_int = 0;
pub(crate) const PROGRESS_AUTO: c_int = 1;
pub(crate) const PROGRESS_MANUAL: c_int = 2;
// Control and data progress by the same calls. Added in libfabric 2.0.
pub(crate) const PROGRESS_CONTROL_UNIFIED: c_int = 3;

pub(crate) const THREAD_UNSPEC: c_int = 0;
pub(crate) const THREAD_SAFE: c_int = 1;
pub(crate) const THREAD_DOMAIN: c_int = 3;

pub(crate) const RM_ENABLED: c_int = 2;

pub(crate) const ORDER_STRICT: u64 = 0x1ff;
pub(crate) const ORDER_RAW: u64 = 1 << 1;
pub(crate) const ORDER_WAR: u64 = 1 << 3;
pub(crate) const ORDER_WAW: u64 = 1 << 4;
pub(crate) const ORDER_SAW: u64 = 1 << 7;
pub(crate) const ORDER_SAS: u64 = 1 << 8;
pub(crate) const ORDER_RMA_RAR: u64 = 1 << 32;
pub(crate) const ORDER_RMA_RAW: u64 = 1 << 33;
pub(crate) const ORDER_RMA_WAR: u64 = 1 << 34;
pub(crate) const ORDER_RMA_WAW: u64 = 1 << 35;
pub(crate) const ORDER_ATOMIC_RAR: u64 = 1 << 36;
pub(crate) const ORDER_ATOMIC_RAW: u64 = 1 << 37;
pub(crate) const ORDER_ATOMIC_WAR: u64 = 1 << 38;
pub(crate) const ORDER_ATOMIC_WAW: u64 = 1 << 39;

pub(crate) const CLASS_FABRIC: usize = 1;
pub(crate) const CLASS_DOMAIN: usize = 2;
pub(crate) const CLASS_EP: usize = 3;
pub(crate) const CLASS_PEP: usize = 9;
pub(crate) const CLASS_AV: usize = 11;
pub(crate) const CLASS_MR: usize = 12;
pub(crate) const CLASS_EQ: usize = 13;
pub(crate) const CLASS_CQ: usize = 14;
pub(crate) const CLASS_CNTR: usize = 15;
pub(crate) const CLASS_CONNREQ: usize = 18;

// Connection events.
pub(crate) const CONNREQ: u32 = 1;
pub(crate) const CONNECTED: u32 = 2;
pub(crate) const SHUTDOWN: u32 = 3;

// Commands of `fi_control`.
pub(crate) const GETOPSFLAG: c_int = 2;
pub(crate) const SETOPSFLAG: c_int = 3;
pub(crate) const GETWAIT: c_int = 5;
pub(crate) const ENABLE: c_int = 6;
pub(crate) const BACKLOG: c_int = 7;
pub(crate) const GETWAITOBJ: c_int = 16;

pub(crate) const OPT_ENDPOINT: c_int = 0;
pub(crate) const OPT_MIN_MULTI_RECV: c_int = 0;
pub(crate) const OPT_CM_DATA_SIZE: c_int = 1;

pub(crate) const WAIT_NONE: c_int = 0;
pub(crate) const WAIT_UNSPEC: c_int = 1;
pub(crate) const WAIT_FD: c_int = 3;
pub(crate) const WAIT_YIELD: c_int = 5;

pub(crate) const CQ_FORMAT_UNSPEC: c_int = 0;
pub(crate) const CQ_FORMAT_CONTEXT: c_int = 1;
pub(crate) const CQ_FORMAT_MSG: c_int = 2;
pub(crate) const CQ_FORMAT_DATA: c_int = 3;
pub(crate) const CQ_FORMAT_TAGGED: c_int = 4;

pub(crate) const CQ_COND_NONE: c_int = 0;
pub(crate) const CQ_COND_THRESHOLD: c_int = 1;

// Error codes that libfabric defines. All other codes are errno values.
pub(crate) const EOTHER: i32 = 256;
pub(crate) const ETOOSMALL: i32 = 257;
pub(crate) const EOPBADSTATE: i32 = 258;
pub(crate) const EAVAIL: i32 = 259;
pub(crate) const EBADFLAGS: i32 = 260;
pub(crate) const ENOEQ: i32 = 261;
pub(crate) const ETRUNC: i32 = 265;
pub(crate) const ENOKEY: i32 = 266;
pub(crate) const ENOAV: i32 = 267;
