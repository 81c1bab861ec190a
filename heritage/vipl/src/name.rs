// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name service: the hosts of the job by name, and by aliases from a file.
//!
//! The first process of a host has the host's name and the index 0, the next one the index 1, and
//! so on. `host:1` is the name of the second process. A line of the file is `NAME HOST[:INDEX]`;
//! `#` begins a comment.

use crate::code::*;
use crate::error::{Failure, exhausted, invalid};
use crate::machine::{Machine, call};
use crate::nic::{ADDRESS_LEN, address_of, rank_of};
use crate::types::*;
use crate::world::World;
use std::ffi::{CStr, c_char, c_void};

/// Aliases from a file, with the hosts they stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts(Vec<(String, String)>);

impl Hosts {
    /// Parses a file. Returns the number of an invalid line as the error.
    fn parse(text: &str) -> Result<Hosts, usize> {
        let mut hosts = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [] => {}
                [name, host] => hosts.push((name.to_owned(), host.to_owned())),
                _ => return Err(number),
            }
        }
        Ok(Hosts(hosts))
    }

    /// Returns the host that a name stands for.
    fn resolve<'a>(&'a self, name: &'a str) -> &'a str {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map_or(name, |(_, host)| host)
    }

    /// Returns the file's name for a host.
    fn name_of<'a>(&'a self, host: &'a str) -> &'a str {
        let found = self.0.iter().find(|(_, own)| own == host);
        found.map_or(host, |(name, _)| name)
    }
}

#[cold]
fn unknown(text: impl Into<String>) -> Failure {
    Failure::new(VIP_ERROR_NAMESERVICE, text)
}

impl World {
    /// Returns the aliases of a NIC's name service.
    fn hosts(&self, handle: VIP_NIC_HANDLE) -> Result<Hosts, Failure> {
        let nic = self.nic(handle)?;
        let hosts = self.nics.get(nic).and_then(|nic| nic.hosts.clone());
        hosts.ok_or_else(|| unknown("the name service was not begun; call VipNSInit() first"))
    }
}

impl Machine {
    /// Returns the rank of process `index` on the host `name`.
    fn find(&mut self, name: &str, index: VIP_ULONG) -> Result<Option<u32>, Failure> {
        let (host, first) = match name.rsplit_once(':') {
            Some((host, number)) => match number.parse::<VIP_ULONG>() {
                Ok(number) => (host, number),
                Err(_) => (name, 0),
            },
            None => (name, 0),
        };
        let size = self.world().size;
        let node = self.node()?;
        let mut own = (0..size).filter(|rank| node.host_name(*rank).as_deref() == Some(host));
        let index = usize::try_from(first.saturating_add(index)).unwrap_or(usize::MAX);
        Ok(own.nth(index))
    }
}

/// Initializes the name service of a NIC. `NSInitInfo` is null, or the path of a file with aliases
/// for the hosts of the job, in lines `NAME HOST[:INDEX]`.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_ERROR_NAMESERVICE when the file cannot be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipNSInit(
    NicHandle: VIP_NIC_HANDLE,
    NSInitInfo: *mut c_void,
) -> VIP_RETURN {
    call(|machine| {
        let mut world = machine.world();
        let nic = world.nic(NicHandle)?;
        let hosts = if NSInitInfo.is_null() {
            Hosts::default()
        } else {
            // SAFETY: not null; the program guarantees a string.
            let path = unsafe { CStr::from_ptr(NSInitInfo.cast()) }.to_string_lossy();
            let text = std::fs::read_to_string(&*path)
                .map_err(|error| unknown(format!("cannot read the hosts file {path}: {error}")))?;
            Hosts::parse(&text).map_err(|line| {
                unknown(format!("{path}, line {line}: expected NAME HOST[:INDEX]"))
            })?
        };
        if let Some(nic) = world.nics.get_mut(nic) {
            nic.hosts = Some(hosts);
        }
        Ok(VIP_SUCCESS)
    })
}

/// Stores the address of process `NameIndex` on host `Name` in `Address`. Its `HostAddressLen`
/// contains the bytes of room for the host address. The discriminator is not changed.
///
/// Errors: VIP_ERROR_NAMESERVICE, VIP_INVALID_PARAMETER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipNSGetHostByName(
    NicHandle: VIP_NIC_HANDLE,
    Name: *const c_char,
    Address: *mut VIP_NET_ADDRESS,
    NameIndex: VIP_ULONG,
) -> VIP_RETURN {
    call(|machine| {
        let hosts = machine.world().hosts(NicHandle)?;
        if Name.is_null() || Address.is_null() {
            return Err(Failure::null("the name or the place for the address"));
        }
        // SAFETY: not null; the program guarantees a string.
        let name = unsafe { CStr::from_ptr(Name) }.to_string_lossy();
        // SAFETY: not null; the program guarantees that it may be read.
        let capacity = unsafe { (*Address).HostAddressLen };
        if usize::from(capacity) < ADDRESS_LEN {
            return Err(invalid(format!(
                "HostAddressLen is {capacity}, but an address has {ADDRESS_LEN} bytes: set it to NicAddressLen"
            )));
        }
        let Some(rank) = machine.find(hosts.resolve(&name), NameIndex)? else {
            let text = format!("this job has no process {NameIndex} on host {name}");
            return Err(unknown(text));
        };
        // SAFETY: the program guarantees as much room as `HostAddressLen` states.
        unsafe {
            (*Address).HostAddressLen = u16::try_from(ADDRESS_LEN).unwrap_or(0);
            let bytes = (&raw mut (*Address).HostAddress).cast::<[u8; ADDRESS_LEN]>();
            bytes.write(address_of(rank));
        }
        Ok(VIP_SUCCESS)
    })
}

/// Stores the name of the process at an address in `Name`, which has room for `*NameLen` bytes.
/// `*NameLen` receives the bytes required, including the terminating zero.
///
/// Errors: VIP_ERROR_NAMESERVICE, VIP_INVALID_PARAMETER, VIP_ERROR_RESOURCE when the name does not
/// fit.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VipNSGetHostByAddr(
    NicHandle: VIP_NIC_HANDLE,
    Address: *const VIP_NET_ADDRESS,
    Name: *mut c_char,
    NameLen: *mut VIP_ULONG,
) -> VIP_RETURN {
    call(|machine| {
        let hosts = machine.world().hosts(NicHandle)?;
        // SAFETY: guaranteed by the program.
        let address = unsafe { crate::body::Address::read(Address) };
        let Some(address) = address.filter(|_| !Name.is_null() && !NameLen.is_null()) else {
            return Err(Failure::null("the address, or a place for its name"));
        };
        let size = machine.world().size;
        let rank = rank_of(&address.host).filter(|rank| *rank < size);
        let rank = rank.ok_or_else(|| unknown("no process of this job has that address"))?;
        let own = portolan_ffi::name_of(machine.node()?, rank);
        let text = hosts.name_of(&own);
        // SAFETY: not null; the program guarantees that it may be read and written.
        let capacity = unsafe { NameLen.read() };
        let len = text.len() as VIP_ULONG + 1;
        // SAFETY: as above.
        unsafe { NameLen.write(len) };
        if capacity < len {
            return Err(exhausted(format!(
                "the name {text} needs {len} bytes, but NameLen is {capacity}"
            )));
        }
        for (index, byte) in text.bytes().chain([0]).enumerate() {
            // SAFETY: the program guarantees room for `capacity` bytes, which is at least `len`.
            unsafe { Name.add(index).cast::<u8>().write(byte) };
        }
        Ok(VIP_SUCCESS)
    })
}

/// Shuts down the name service of a NIC.
///
/// Errors: VIP_INVALID_PARAMETER, VIP_ERROR_NAMESERVICE when it is not initialized.
#[unsafe(no_mangle)]
pub extern "C" fn VipNSShutdown(NicHandle: VIP_NIC_HANDLE) -> VIP_RETURN {
    call(|machine| {
        let mut world = machine.world();
        world.hosts(NicHandle)?;
        let nic = world.nic(NicHandle)?;
        if let Some(nic) = world.nics.get_mut(nic) {
            nic.hosts = None;
        }
        Ok(VIP_SUCCESS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_file_adds_names() {
        let text = "# hosts\nserver  node7 # the first\n\nclient node7:1\n";
        let hosts = Hosts::parse(text).unwrap();
        assert_eq!(hosts.resolve("server"), "node7");
        assert_eq!(hosts.resolve("client"), "node7:1");
        assert_eq!(hosts.resolve("node8"), "node8");
        assert_eq!(hosts.name_of("node7:1"), "client");
        assert_eq!(hosts.name_of("node8"), "node8");
    }

    #[test]
    fn malformed_line_is_reported_by_number() {
        assert_eq!(Hosts::parse("a b\nc\n"), Err(2));
        assert_eq!(Hosts::parse("a b c\n"), Err(1));
    }
}
