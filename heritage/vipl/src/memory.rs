// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registered memory. The original's hardware required registration for all transfers. Portolan
//! needs none, so a region is only an entry in a table of access rights for VIs and other
//! processes.

use crate::code::*;
use crate::error::{Failure, exhausted, invalid};
use crate::machine::call;
use crate::slots::{Kind, SHORT_MAX, Slots};
use crate::types::*;
use crate::world::World;
use std::ffi::{c_int, c_void};

/// A registered region of memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) nic: u32,
    at: usize,
    len: usize,
    pub(crate) ptag: u32,
    write: bool,
    read: bool,
}

/// Access of another process to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Write,
    Read,
}

/// All regions, by handle.
pub(crate) struct Regions(Slots<Region>);

impl Region {
    #[inline]
    fn has(&self, at: usize, len: usize) -> bool {
        let offset = at.wrapping_sub(self.at);
        offset <= self.len && len <= self.len - offset
    }
}

impl Regions {
    pub(crate) const fn new() -> Self {
        Regions(Slots::new(Kind::Mem, SHORT_MAX))
    }

    /// Returns true if the region contains all `len` bytes at `at` and has this protection tag.
    #[inline]
    pub(crate) fn covers(&self, handle: u32, at: usize, len: usize, ptag: u32) -> bool {
        let region = self.0.by_short(handle);
        region.is_some_and(|region| region.ptag == ptag && region.has(at, len))
    }

    /// Returns true if another process may access these bytes through a VI with this protection
    /// tag.
    pub(crate) fn opens(
        &self,
        handle: u32,
        (at, len): (usize, usize),
        ptag: u32,
        access: Access,
    ) -> bool {
        self.covers(handle, at, len, ptag)
            && self.0.by_short(handle).is_some_and(|region| match access {
                Access::Write => region.write,
                Access::Read => region.read,
            })
    }

    /// Registers memory for tests.
    #[cfg(test)]
    pub(crate) fn open(&mut self, at: usize, len: usize, ptag: u32) -> u32 {
        let region = Region {
            nic: 0,
            at,
            len,
            ptag,
            write: true,
            read: true,
        };
        let index = self.0.insert(region).unwrap();
        self.0.short_handle(index)
    }

    pub(crate) fn uses(&self, ptag: u32) -> bool {
        self.0.iter().any(|(_, region)| region.ptag == ptag)
    }

    /// Deregisters the regions of a NIC.
    pub(crate) fn close(&mut self, nic: u32) {
        let of_nic = |(index, region): (u32, &Region)| (region.nic == nic).then_some(index);
        let removed: Vec<u32> = self.0.iter().filter_map(of_nic).collect();
        for index in removed {
            self.0.remove(index);
        }
    }
}

impl World {
    /// Returns the index of the region with this handle, which must begin at `at`.
    fn region(&self, nic: u32, at: *const c_void, handle: u32) -> Result<u32, Failure> {
        let found = self.regions.0.by_short(handle);
        match found.filter(|region| region.nic == nic && region.at == at.addr()) {
            Some(_) => Ok(self.regions.0.short_index(handle).unwrap_or(0)),
            None => Err(invalid(format!(
                "no memory at {at:p} is registered with handle {handle:#x}"
            ))),
        }
    }

    /// Returns the index of the protection tag with this handle.
    pub(crate) fn ptag(&self, nic: u32, handle: VIP_PROTECTION_HANDLE) -> Result<u32, Failure> {
        let index = self.ptags.index_of(handle);
        let index = index.filter(|index| self.ptags.get(*index) == Some(&nic));
        index.ok_or_else(|| {
            Failure::new(
                VIP_INVALID_PTAG,
                "the handle is not a protection tag; VipCreatePtag() creates one",
            )
        })
    }
}

/// Creates a protection tag. A VI may only use memory with the same tag.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipCreatePtag(
    NicHandle: VIP_NIC_HANDLE,
    ProtectionTag: *mut VIP_PROTECTION_HANDLE,
) -> VIP_RETURN {
    call(|machine| {
        let mut world = machine.world();
        let nic = world.nic(NicHandle)?;
        if ProtectionTag.is_null() {
            return Err(Failure::null("ProtectionTag"));
        }
        let made = world.ptags.insert(nic);
        let index = made.ok_or_else(|| {
            exhausted("the maximum number of protection tags exists; destroy one first")
        })?;
        // SAFETY: not null; the program guarantees that it may be written.
        unsafe { ProtectionTag.write(world.ptags.handle(index)) };
        Ok(VIP_SUCCESS)
    })
}

/// Destroys a protection tag that no memory or VI uses.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_INVALID_PTAG, VIP_ERROR_RESOURCE when it is in use.
#[unsafe(no_mangle)]
pub extern "C" fn VipDestroyPtag(
    NicHandle: VIP_NIC_HANDLE,
    ProtectionTag: VIP_PROTECTION_HANDLE,
) -> VIP_RETURN {
    call(|machine| {
        let mut world = machine.world();
        let nic = world.nic(NicHandle)?;
        let ptag = world.ptag(nic, ProtectionTag)?;
        if world.regions.uses(ptag) || world.vis.iter().any(|(_, vi)| vi.ptag == ptag) {
            return Err(exhausted(
                "memory or a VI uses the protection tag; deregister or destroy it first",
            ));
        }
        world.ptags.remove(ptag);
        Ok(VIP_SUCCESS)
    })
}

/// Registers `Length` bytes of memory. Descriptors may be placed in it and refer to it. Other
/// processes may write and read it as far as the attributes of the memory and of the VI permit. The
/// cost is one table entry.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_INVALID_PTAG, VIP_ERROR_RESOURCE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipRegisterMem(
    NicHandle: VIP_NIC_HANDLE,
    VirtualAddress: *mut c_void,
    Length: VIP_ULONG,
    MemAttributes: *const VIP_MEM_ATTRIBUTES,
    MemHandle: *mut VIP_MEM_HANDLE,
) -> VIP_RETURN {
    call(|machine| {
        let mut world = machine.world();
        let nic = world.nic(NicHandle)?;
        if VirtualAddress.is_null() || MemAttributes.is_null() || MemHandle.is_null() {
            return Err(Failure::null(
                "the memory, its attributes or the place for its handle",
            ));
        }
        let at = VirtualAddress.expose_provenance();
        let len = usize::try_from(Length).ok();
        let len = len.filter(|len| *len > 0 && at.checked_add(*len).is_some());
        let len = len.ok_or_else(|| {
            invalid(format!(
                "{Length} bytes at {VirtualAddress:p} are not valid memory"
            ))
        })?;
        // SAFETY: not null; the program guarantees that it may be read.
        let attributes = unsafe { MemAttributes.read() };
        let region = Region {
            nic,
            at,
            len,
            ptag: world.ptag(nic, attributes.Ptag)?,
            write: attributes.EnableRdmaWrite != VIP_FALSE,
            read: attributes.EnableRdmaRead != VIP_FALSE,
        };
        let made = world.regions.0.insert(region);
        let index = made.ok_or_else(|| {
            exhausted("the maximum number of registrations exists; deregister memory first")
        })?;
        // SAFETY: not null; the program guarantees that it may be written.
        unsafe { MemHandle.write(world.regions.0.short_handle(index)) };
        Ok(VIP_SUCCESS)
    })
}

/// Deregisters memory. From then on no transfer accesses the memory through this registration: waits
/// for long transfers in flight.
///
/// Errors: VIP_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipDeregisterMem(
    NicHandle: VIP_NIC_HANDLE,
    VirtualAddress: *mut c_void,
    MemHandle: VIP_MEM_HANDLE,
) -> VIP_RETURN {
    call(|machine| {
        let removed = {
            let mut world = machine.world();
            let nic = world.nic(NicHandle)?;
            let index = world.region(nic, VirtualAddress, MemHandle)?;
            world.regions.0.remove(index)
        };
        if let Some(Region { at, len, .. }) = removed {
            machine.wait_for_longs(|world| world.longs.uses(at, len))?;
        }
        Ok(VIP_SUCCESS)
    })
}

/// Stores the attributes of registered memory in `MemAttributes`.
///
/// Errors: VIP_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipQueryMem(
    NicHandle: VIP_NIC_HANDLE,
    VirtualAddress: *mut c_void,
    MemHandle: VIP_MEM_HANDLE,
    MemAttributes: *mut VIP_MEM_ATTRIBUTES,
) -> VIP_RETURN {
    call(|machine| {
        let world = machine.world();
        let nic = world.nic(NicHandle)?;
        if MemAttributes.is_null() {
            return Err(Failure::null("MemAttributes"));
        }
        let index = world.region(nic, VirtualAddress, MemHandle)?;
        let Some(region) = world.regions.0.get(index) else {
            return Err(invalid("the memory is not registered"));
        };
        let attributes = VIP_MEM_ATTRIBUTES {
            Ptag: world.ptags.handle(region.ptag),
            EnableRdmaWrite: c_int::from(region.write),
            EnableRdmaRead: c_int::from(region.read),
        };
        // SAFETY: not null; the program guarantees that it may be written.
        unsafe { MemAttributes.write(attributes) };
        Ok(VIP_SUCCESS)
    })
}

/// Changes the attributes of registered memory.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_INVALID_PTAG.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipSetMemAttributes(
    NicHandle: VIP_NIC_HANDLE,
    VirtualAddress: *mut c_void,
    MemHandle: VIP_MEM_HANDLE,
    MemAttributes: *const VIP_MEM_ATTRIBUTES,
) -> VIP_RETURN {
    call(|machine| {
        let mut world = machine.world();
        let nic = world.nic(NicHandle)?;
        if MemAttributes.is_null() {
            return Err(Failure::null("MemAttributes"));
        }
        let index = world.region(nic, VirtualAddress, MemHandle)?;
        // SAFETY: not null; the program guarantees that it may be read.
        let attributes = unsafe { MemAttributes.read() };
        let ptag = world.ptag(nic, attributes.Ptag)?;
        if let Some(region) = world.regions.0.get_mut(index) {
            region.ptag = ptag;
            region.write = attributes.EnableRdmaWrite != VIP_FALSE;
            region.read = attributes.EnableRdmaRead != VIP_FALSE;
        }
        Ok(VIP_SUCCESS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_limited_to_registered_bytes() {
        let mut regions = Regions::new();
        let region = Region {
            nic: 0,
            at: 100,
            len: 50,
            ptag: 3,
            write: true,
            read: false,
        };
        let index = regions.0.insert(region).unwrap();
        let handle = regions.0.short_handle(index);
        for (at, len, ptag, is_in) in [
            (100, 50, 3, true),
            (150, 0, 3, true),
            (149, 2, 3, false),
            (99, 1, 3, false),
            (151, 0, 3, false),
            (100, 50, 4, false),
            (usize::MAX, 2, 3, false),
        ] {
            assert_eq!(regions.covers(handle, at, len, ptag), is_in, "{at} {len}");
        }
        assert!(regions.opens(handle, (100, 1), 3, Access::Write));
        assert!(!regions.opens(handle, (100, 1), 3, Access::Read));
        assert!(regions.uses(3) && !regions.uses(4));
        regions.close(0);
        assert!(!regions.covers(handle, 100, 1, 3));
    }
}
