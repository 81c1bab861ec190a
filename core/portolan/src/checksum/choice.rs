// SPDX-License-Identifier: MIT OR Apache-2.0
//! The setting `checksum`: selects the paths with checksums in their frames.

use crate::error::Error;
use crate::launch::Job;
use crate::settings;
use portolan_link::{Interface, InterfaceKind, LinkKind};
use portolan_sys::ethtool::Ethtool;

/// Drivers of NICs emulated by a hypervisor. They accept a neighbour's datagrams without a UDP
/// checksum and report the checksum as right.
const PARAVIRTUAL: [&str; 4] = ["virtio_net", "vif", "hv_netvsc", "vmxnet3"];

/// Value of the setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    On,
    Off,
    /// On if no other layer verifies frames.
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
                why: "write on, off, or auto (on where nothing else checks)".to_owned(),
            }),
        }
    }

    /// Tests whether this side requests checksums on a network link over `interface`, or over the
    /// loopback if there is none. `P13.4`
    pub(crate) fn is_on_for(self, link: LinkKind, interface: Option<&Interface>) -> bool {
        match (self, link) {
            (Choice::On, _) => true,
            (Choice::Off, _) => false,
            // Ethernet's check covers a single hop. Corruption inside a switch between two hops is
            // not detected.
            (Choice::Auto, LinkKind::Packet | LinkKind::Xdp) => true,
            (Choice::Auto, _) => interface.is_some_and(|interface| !verifies_udp(interface)),
        }
    }
}

/// Tests whether UDP checksums are computed and verified on `interface`.
fn verifies_udp(interface: &Interface) -> bool {
    match interface.kind {
        // Memory of one host, like shared memory: there is no wire.
        InterfaceKind::Loopback => true,
        InterfaceKind::Device => {
            let driver = Ethtool::open(&interface.name).and_then(|tool| tool.driver());
            !driver.is_ok_and(|driver| PARAVIRTUAL.contains(&&*driver))
        }
        InterfaceKind::Bond => true,
        // A veth forwards checksums that were never computed. For other virtual interfaces, the
        // layers below are unknown.
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
    fn auto_depends_on_other_checksums() {
        let device = interface(InterfaceKind::Device);
        let veth = interface(InterfaceKind::Veth);
        let wants = |choice: Choice, link, on| choice.is_on_for(link, on);
        assert!(!wants(Choice::Auto, LinkKind::Udp, Some(&device)));
        assert!(!wants(Choice::Auto, LinkKind::Udp, None));
        assert!(wants(Choice::Auto, LinkKind::Udp, Some(&veth)));
        for on in [&device, &veth] {
            assert!(wants(Choice::Auto, LinkKind::Packet, Some(on)));
            assert!(wants(Choice::On, LinkKind::Udp, Some(on)));
            assert!(!wants(Choice::Off, LinkKind::Packet, Some(on)));
        }
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
