// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes CAP_NET_RAW to the programs of a job as an ambient capability (capabilities(7)), if this
//! program has it as a file capability. For clusters that trust their users: docs/guide/broker.md.

use caps::{CapSet, Capability, errors::CapsError};

/// Lets every program that this thread starts keep CAP_NET_RAW, if this process may use it. The
/// programs of root have it anyway.
pub(crate) fn keep_net_raw() {
    let may = caps::has_cap(None, CapSet::Permitted, Capability::CAP_NET_RAW).unwrap_or(false);
    if !may || nix::unistd::geteuid().is_root() {
        return;
    }
    if let Err(error) = raise() {
        eprintln!(
            "portolan: warning: CAP_NET_RAW cannot be passed to the processes ({error}): for raw Ethernet, \
             run `portolan broker`, or set the capability on the program itself"
        );
    }
}

fn raise() -> Result<(), CapsError> {
    caps::raise(None, CapSet::Inheritable, Capability::CAP_NET_RAW)?;
    caps::raise(None, CapSet::Ambient, Capability::CAP_NET_RAW)
}
