// SPDX-License-Identifier: MIT OR Apache-2.0
//! NICs. A process has one, and joins the job when it is first opened. Each call that opens it
//! returns another handle, which owns the objects that are created with it.

use crate::code::*;
use crate::cq::ENTRIES_MAX;
use crate::descriptor::SEGMENTS_MAX;
use crate::error::{Failure, exhausted, invalid};
use crate::fault::VIP_ERROR_HANDLER;
use crate::machine::{call, lock, release};
use crate::name::Hosts;
use crate::queue::DESCRIPTORS_MAX;
use crate::slots::SHORT_MAX;
use crate::types::*;
use crate::unit::PIECE_LEN;
use crate::world::{CQS_MAX, VIS_MAX, World};
use std::ffi::{CStr, c_char, c_ulong, c_void};
use std::sync::OnceLock;

/// Names of the only NIC.
const NAMES: [&str; 2] = ["VINIC", "VINIC0"];

/// Beginning of other names.
const DEVICES: &str = "/dev/";
/// Bytes of a NIC's address, as in Ethernet.
pub(crate) const ADDRESS_LEN: usize = 6;
/// Prefix of an address, before the rank: the locally administered bit and "PL".
const PREFIX: [u8; 3] = [0x02, b'P', b'L'];
/// Maximum bytes of a discriminator: more than programs of the time used.
pub(crate) const DISCRIMINATOR_MAX: u16 = 64;
/// Maximum bytes of a transfer. The specification requires at least 32 KiB; lengths in descriptors
/// have 32 bits.
pub(crate) const TRANSFER_MAX: c_ulong = 1 << 30;
/// Maximum number of protection tags of a process: one for each VI.
pub(crate) const PTAGS_MAX: usize = VIS_MAX;
/// Version 1.0, that of the interface.
const VERSION: c_ulong = 0x100;
/// All reliability levels.
const LEVELS: u16 = 7;
/// All levels that support RDMA read.
const READ_LEVELS: u16 = 6;

/// Address of this process, to which programs get a pointer. It is the same for all handles, so it
/// stays valid when one of them is closed.
static ADDRESS: OnceLock<[u8; ADDRESS_LEN]> = OnceLock::new();

/// An open NIC.
pub(crate) struct Nic {
    pub(crate) on_error: (VIP_ERROR_HANDLER, *mut c_void),
    pub(crate) hosts: Option<Hosts>,
}

/// Returns the address of the process with this rank.
pub(crate) fn address_of(rank: u32) -> [u8; ADDRESS_LEN] {
    let [_, a, b, c] = rank.to_be_bytes();
    [PREFIX[0], PREFIX[1], PREFIX[2], a, b, c]
}

/// Returns the rank of the process with this address.
pub(crate) fn rank_of(host: &[u8]) -> Option<u32> {
    let &[x, y, z, a, b, c] = host else {
        return None;
    };
    ([x, y, z] == PREFIX).then(|| u32::from_be_bytes([0, a, b, c]))
}

impl World {
    /// Returns the index of the NIC with this handle.
    #[inline]
    pub(crate) fn nic(&self, handle: VIP_NIC_HANDLE) -> Result<u32, Failure> {
        let index = self.nics.index_of(handle);
        index.ok_or_else(|| invalid("the handle is not a NIC; VipOpenNic() opens one"))
    }

    /// Returns the indices of the VIs of a NIC.
    fn vis_of(&self, nic: u32) -> Vec<u32> {
        let vis = self.vis.iter();
        vis.filter(|(_, vi)| vi.nic == nic)
            .map(|(index, _)| index)
            .collect()
    }

    /// Ends all connections of a NIC.
    fn disconnect_all(&mut self, nic: u32) {
        for index in self.vis_of(nic) {
            self.disconnect(index);
        }
    }

    /// Returns true if long transfers use memory of VIs of a NIC.
    fn has_longs_of(&self, nic: u32) -> bool {
        self.vis_of(nic)
            .into_iter()
            .any(|index| self.longs.uses_vi(index))
    }

    /// Destroys all objects of a NIC. If `is_late` is set, the program's memory may be invalid, so
    /// the descriptors are not accessed.
    pub(crate) fn close(&mut self, nic: u32, is_late: bool) {
        let own = |index_nic: u32| index_nic == nic;
        let vis = self.vis_of(nic);
        for index in vis {
            if is_late && let Some(vi) = self.vis.get_mut(index) {
                vi.send.abandon();
                vi.recv.abandon();
            }
            self.disconnect(index);
            self.destroy_vi(index);
        }
        let cqs: Vec<u32> = self
            .cqs
            .iter()
            .filter(|(_, cq)| own(cq.nic))
            .map(|(at, _)| at)
            .collect();
        for index in cqs {
            self.cqs.remove(index);
        }
        let ptags = self.ptags.iter().filter(|(_, of)| own(**of));
        let ptags: Vec<u32> = ptags.map(|(at, _)| at).collect();
        for index in ptags {
            self.ptags.remove(index);
        }
        self.reject_all(nic);
        self.regions.close(nic);
        self.faults.forget(nic);
        self.nics.remove(nic);
    }
}

/// Opens the NIC. The first call joins the job. `DeviceName` is "VINIC", "VINIC0" or the path of a
/// device below /dev, which need not exist.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipOpenNic(
    DeviceName: *const c_char,
    NicHandle: *mut VIP_NIC_HANDLE,
) -> VIP_RETURN {
    call(|machine| {
        if DeviceName.is_null() || NicHandle.is_null() {
            return Err(Failure::null("the name or the place for the handle"));
        }
        // SAFETY: not null; the program guarantees a string.
        let name = unsafe { CStr::from_ptr(DeviceName) }.to_string_lossy();
        // Programs name the device of the driver that they were written for, such as /dev/clanvi0.
        if !NAMES.contains(&&*name) && !name.starts_with(DEVICES) {
            return Err(invalid(format!(
                "there is no NIC {name}; the only NIC is VINIC"
            )));
        }
        machine.join()?;
        let mut world = machine.world();
        let nic = Nic {
            on_error: (None, std::ptr::null_mut()),
            hosts: None,
        };
        let made = world.nics.insert(nic);
        let index = made.ok_or_else(|| {
            exhausted("the maximum number of NIC handles is open; close one first")
        })?;
        // SAFETY: not null; the program guarantees that it may be written.
        unsafe { NicHandle.write(world.nics.handle(index)) };
        Ok(VIP_SUCCESS)
    })
}

/// Closes a handle of the NIC. Its connections are ended. Its VIs, completion queues, protection
/// tags and registrations are destroyed.
///
/// Errors: VIP_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub extern "C" fn VipCloseNic(NicHandle: VIP_NIC_HANDLE) -> VIP_RETURN {
    portolan_ffi::guard(|| {
        let mut machine = lock()?;
        let nic = machine.world().nic(NicHandle)?;
        machine.progress()?;
        // Acknowledge now, so that senders do not wait for messages this side has accepted.
        machine.acknowledge()?;
        machine.world().disconnect_all(nic);
        machine.work()?;
        // The program may free its memory afterwards.
        machine.wait_for_longs(|world| world.has_longs_of(nic))?;
        machine.world().close(nic, false);
        machine.work()?;
        release(machine);
        Ok(VIP_SUCCESS)
    })
}

/// Stores the attributes of the NIC in `NicAttributes`. The address in it is valid until the
/// process exits.
///
/// Errors: VIP_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipQueryNic(
    NicHandle: VIP_NIC_HANDLE,
    NicAttributes: *mut VIP_NIC_ATTRIBUTES,
) -> VIP_RETURN {
    call(|machine| {
        let world = machine.world();
        world.nic(NicHandle)?;
        if NicAttributes.is_null() {
            return Err(Failure::null("NicAttributes"));
        }
        let address = ADDRESS.get_or_init(|| address_of(world.rank));
        // SAFETY: not null; the program guarantees that it may be written.
        unsafe { NicAttributes.write(attributes(address)) };
        Ok(VIP_SUCCESS)
    })
}

#[allow(clippy::cast_possible_truncation, reason = "limits, which are small")]
fn attributes(address: &'static [u8; ADDRESS_LEN]) -> VIP_NIC_ATTRIBUTES {
    let mut name = [0; 64];
    for (to, from) in name.iter_mut().zip(NAMES[0].bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    VIP_NIC_ATTRIBUTES {
        Name: name,
        HardwareVersion: 0,
        ProviderVersion: VERSION,
        NicAddressLen: ADDRESS_LEN as u16,
        LocalNicAddress: address.as_ptr(),
        ThreadSafe: VIP_TRUE,
        MaxDiscriminatorLen: DISCRIMINATOR_MAX,
        MaxRegisterBytes: c_ulong::MAX,
        MaxRegisterRegions: SHORT_MAX as c_ulong,
        MaxRegisterBlockBytes: c_ulong::MAX,
        MaxVI: VIS_MAX as c_ulong,
        MaxDescriptorsPerQueue: DESCRIPTORS_MAX as c_ulong,
        MaxSegmentsPerDesc: SEGMENTS_MAX.into(),
        MaxCQ: CQS_MAX as c_ulong,
        MaxCQEntries: ENTRIES_MAX as c_ulong,
        MaxTransferSize: TRANSFER_MAX,
        NativeMTU: PIECE_LEN as c_ulong,
        MaxPtags: PTAGS_MAX as c_ulong,
        ReliabilityLevelSupport: LEVELS,
        RDMAReadSupport: READ_LEVELS,
    }
}

/// Returns information of the network's management, which Portolan does not have.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_ERROR_NOT_SUPPORTED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipQuerySystemManagementInfo(
    NicHandle: VIP_NIC_HANDLE,
    InfoType: VIP_ULONG,
    SysManInfo: *mut c_void,
) -> VIP_RETURN {
    call(|machine| {
        machine.world().nic(NicHandle)?;
        if SysManInfo.is_null() || InfoType != VIP_ULONG::from(VIP_SMI_AUTODISCOVERY) {
            return Err(invalid(format!(
                "the information type {InfoType} is not supported, or SysManInfo is null"
            )));
        }
        Err(Failure::new(
            VIP_ERROR_NOT_SUPPORTED,
            "hosts are not discovered; VipNSGetHostByName() resolves those of the job",
        ))
    })
}

/// Returns a description of the last error of this thread. It is a sentence, empty before the first
/// error and valid until the next one. Not in the original.
#[unsafe(no_mangle)]
pub extern "C" fn VipLastError() -> *const c_char {
    portolan_ffi::last_error()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_unique_per_process() {
        for rank in [0, 1, 255, 65_536, (1 << 24) - 1] {
            assert_eq!(rank_of(&address_of(rank)), Some(rank));
        }
        for other in [&[2, 80, 76, 0, 0][..], &[3, 80, 76, 0, 0, 0], &[]] {
            assert_eq!(rank_of(other), None);
        }
    }
}
