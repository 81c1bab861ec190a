// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts for interfaces in other languages, other launchers, and Portolan's own tools. Programs need
//! none of them, and they may change with any version.
//!
//! The C library, the libfabric provider, the package for Python and the command use this module.

pub use crate::address::Address;
pub use crate::directory::EndpointAddress;
pub use crate::endpoint::{ActiveMessage, Endpoint, PeerInserter, RawAtomic};
pub use crate::engine::{Interrupter, Interruption};
pub use crate::node::{Plumbing, TAKE_LEN_MAX};
pub use crate::raw::{
    Cookie, EndpointLimits, Idle, PeerIndex, RawAccess, RawClaim, RawCompletion, RawEnvelope,
    RawError, RawKind, RawPiece, RawRecv, RawRemote, RawSend, RawSpace, Sent, SubmitError,
};
pub use crate::start::{candidates, check_settings, port_range, ports_of, two_networks};
pub use crate::unexpected::{UnexpectedMemory, unexpected_memory};
pub use portolan_link::{PortRange, PortsUsedUp};
pub use portolan_proto::DropReason;
pub use portolan_sys::fork::Owner;
pub use portolan_sys::usage::Usage;

/// Launchers: how a process joins its job.
pub mod launch {
    pub use crate::launch::*;
}

/// Stored model of a machine's paths.
pub mod model {
    pub use crate::model::*;
}

/// Settings: their names, values and sources.
pub mod settings {
    pub use crate::settings::*;
}

/// Simulated processes; see the module's own documentation in `simulated.rs`.
pub mod simulated {
    pub use crate::canary::{Canary, set_canary};
    pub use crate::endpoint::SimulatedEndpoint;
    pub use crate::engine::InUse;
    pub use crate::links::{simulated_liveness, simulated_port};
    pub use crate::liveness::ProbeWire;
    pub use crate::node::SimulatedNode;
    pub use crate::simulated::{SimulatedConfig, SimulatedJob};
    pub use portolan_link::sim::{SimNet, SimParams, SimStats};
    pub use portolan_sys::clock::{set_virtual_ns, virtual_ns};
    pub use portolan_sys::gate::Pending;
}
