// SPDX-License-Identifier: MIT OR Apache-2.0
//! The setting `checksum`: selects the paths with checksums in their frames.

use crate::error::Error;
use crate::launch::Job;
use crate::settings;
use portolan_link::{Interface, InterfaceKind, LinkKind};
use portolan_sys::ethtool::Ethtool;

/// Drivers of NICs emulated by a hypervisor. Two virtual machines of one host may share memory.
const PARAVIRTUAL: [&str; 4] = ["virtio_net", "vif", "hv_netvsc", "vmxnet3"];

/// Value of the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    On,
    Off,
    /// On for raw Ethernet only; UDP and TCP have checksums of their own.
    Auto,
}

impl Choice {
    pub(crate) fn of(job: &Job) -> Result<Choice, Error> {
        match settings::CHECKSUM.of(job).as_deref() {
            None | Some("auto") => Ok(Choice::Auto),
            Some("on") => Ok(Choice::On),
            Some("off") => Ok(Choice::Off),
            Some(other) => Err(Error::Setting {
                name: "checksum",
                value: other.to_owned(),
                why: "write on, off, or auto (on for raw Ethernet)".to_owned(),
            }),
        }
    }

    /// Tests whether this side requests checksums on a network link. `P13.4`
    pub(crate) fn is_on_for(self, link: LinkKind) -> bool {
        match (self, link) {
            (Choice::On, _) => true,
            (Choice::Off, _) => false,
            // Ethernet's check covers a single hop. Corruption inside a switch between two hops is
            // not detected.
            (Choice::Auto, LinkKind::Packet | LinkKind::Xdp) => true,
            // The system or the NIC checks UDP and TCP wherever there is a wire.
            (Choice::Auto, _) => false,
        }
    }

    /// Tests whether streams over these interfaces may pass pages to the system by reference.
    ///
    /// Without a NIC that reads the pages, the receiver's queue may hold the sender's own pages,
    /// even after the peer is declared dead. Then only a checksum would detect a later change. A
    /// checksum has just read the bytes, and a copy from the cache costs less than passing pages.
    pub(crate) fn may_lend(self, over: &[Interface]) -> bool {
        match self {
            Choice::On => false,
            Choice::Off => over.iter().any(|interface| !interface.loopback),
            Choice::Auto => !over.is_empty() && over.iter().all(is_hardware),
        }
    }
}

/// Tests whether a NIC of its own sends the frames of `interface`.
fn is_hardware(interface: &Interface) -> bool {
    match interface.kind {
        InterfaceKind::Device => {
            let driver = Ethtool::open(&interface.name).and_then(|tool| tool.driver());
            !driver.is_ok_and(|driver| PARAVIRTUAL.contains(&&*driver))
        }
        InterfaceKind::Bond => true,
        // For virtual interfaces, the layers below are unknown.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(kind: InterfaceKind) -> Interface {
        Interface {
            // Longer than any interface name, so no driver is found.
            name: "an interface that is not there".to_owned(),
            index: 1,
            mac: None,
            mtu: 1500,
            up: true,
            running: true,
            loopback: false,
            kind,
            networks: Vec::new(),
        }
    }

    // P13.4
    #[test]
    fn auto_adds_checksums_to_raw_ethernet_only() {
        let raw = [LinkKind::Packet, LinkKind::Xdp];
        for (link, auto) in raw
            .map(|link| (link, true))
            .into_iter()
            .chain([(LinkKind::Udp, false)])
        {
            assert_eq!(Choice::Auto.is_on_for(link), auto);
            assert!(Choice::On.is_on_for(link));
            assert!(!Choice::Off.is_on_for(link));
        }
    }

    #[test]
    fn pages_are_lent_to_hardware_unless_set_otherwise() {
        let (device, veth) = (InterfaceKind::Device, InterfaceKind::Veth);
        let lends = |choice: Choice, kinds: &[InterfaceKind]| {
            choice.may_lend(&kinds.iter().copied().map(interface).collect::<Vec<_>>())
        };
        assert!(lends(Choice::Auto, &[device]));
        for others in [&[veth][..], &[device, veth], &[]] {
            assert!(!lends(Choice::Auto, others));
        }
        assert!(lends(Choice::Off, &[veth]));
        assert!(!lends(Choice::Off, &[]));
        assert!(!lends(Choice::On, &[device]));
    }

    #[test]
    fn invalid_value_is_refused() {
        let mut job = Job::alone([0; 16], [0; 32]);
        let values = [
            ("on", Choice::On),
            ("off", Choice::Off),
            ("auto", Choice::Auto),
        ];
        for (value, choice) in values {
            job.options.insert("checksum".to_owned(), value.to_owned());
            assert_eq!(Choice::of(&job).unwrap(), choice);
        }
        job.options
            .insert("checksum".to_owned(), "crc32".to_owned());
        let error = Choice::of(&job).unwrap_err().to_string();
        assert!(
            error.contains("checksum") && error.contains("crc32"),
            "{error}"
        );
    }
}
