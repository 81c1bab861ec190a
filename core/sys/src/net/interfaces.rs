// SPDX-License-Identifier: MIT OR Apache-2.0
//! The network interfaces of the calling thread's network namespace, read with rtnetlink(7).
//!
//! `/sys/class/net` is not used, because it keeps showing the namespace in which it was mounted.

mod netlink;

use std::fmt;
use std::io;
use std::net::IpAddr;

/// One network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name, such as `eth0`.
    pub name: String,
    /// Number, unique within the namespace.
    pub index: u32,
    /// Hardware address, if it is an Ethernet address.
    pub mac: Option<MacAddr>,
    /// Bytes of the largest packet, without the Ethernet header.
    pub mtu: usize,
    /// Set if the administrator has enabled it.
    pub up: bool,
    /// Set if a carrier is present, so that frames can pass.
    pub running: bool,
    /// Set if it leads back to this host.
    pub loopback: bool,
    /// Apparent kind.
    pub kind: InterfaceKind,
    /// Internet addresses.
    pub networks: Vec<Network>,
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Interface address and prefix length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The interface's own address.
    pub addr: IpAddr,
    /// Number of leading bits shared by all hosts of the network.
    pub prefix_len: u8,
}

impl Network {
    /// Returns `true` if `other` is an address of the same network.
    #[must_use]
    pub fn contains(&self, other: IpAddr) -> bool {
        match (self.addr, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                let differing = (a.to_bits() ^ b.to_bits()).leading_zeros();
                differing >= u32::from(self.prefix_len.min(32))
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                let differing = (a.to_bits() ^ b.to_bits()).leading_zeros();
                differing >= u32::from(self.prefix_len.min(128))
            }
            _ => false,
        }
    }
}

/// Returns `true` for an IPv6 address that is valid on one link only. Such an address needs the
/// number of an interface.
#[must_use]
pub fn is_of_one_link(addr: IpAddr) -> bool {
    matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local())
}

/// Apparent kind of an interface: a hint for choosing among several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterfaceKind {
    /// The loopback interface.
    Loopback,
    /// Hardware, or a virtual machine's equivalent: the kernel names no kind.
    Device,
    /// One end of a pair between namespaces.
    Veth,
    /// A bridge set up manually.
    Bridge,
    /// A bridge for containers (docker, podman, cni, lxc), known by its name.
    ContainerBridge,
    /// libvirt's bridge for virtual machines, known by its name.
    VirtualMachineBridge,
    /// Several interfaces combined into one.
    Bond,
    /// A VLAN on another interface.
    Vlan,
    /// A tunnel or a tap, such as WireGuard, tun, vxlan, or GRE.
    Tunnel,
    /// Any other kind.
    Other,
}

impl InterfaceKind {
    /// Derives the kind from the kernel's link kind (shown by `ip -d link`), and for bridges also
    /// from the name, which is the only sign of their purpose.
    fn of(name: &str, loopback: bool, kernel_kind: Option<&str>) -> Self {
        if loopback {
            return InterfaceKind::Loopback;
        }
        let named = |prefixes: &[&str]| prefixes.iter().any(|prefix| name.starts_with(prefix));
        match kernel_kind {
            None => InterfaceKind::Device,
            Some("veth") => InterfaceKind::Veth,
            Some("bridge") if named(&["virbr"]) => InterfaceKind::VirtualMachineBridge,
            Some("bridge") if named(&["docker", "br-", "podman", "cni", "lxc", "lxd"]) => {
                InterfaceKind::ContainerBridge
            }
            Some("bridge") => InterfaceKind::Bridge,
            Some("bond" | "team") => InterfaceKind::Bond,
            Some("vlan" | "macvlan" | "ipvlan") => InterfaceKind::Vlan,
            Some(
                "tun" | "wireguard" | "vxlan" | "geneve" | "gre" | "gretap" | "ip6gre" | "ip6tnl"
                | "ip6gretap" | "ipip" | "sit" | "vti" | "vti6" | "erspan" | "ip6erspan",
            ) => InterfaceKind::Tunnel,
            Some(_) => InterfaceKind::Other,
        }
    }
}

impl fmt::Display for InterfaceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            InterfaceKind::Loopback => "loopback",
            InterfaceKind::Device => "device",
            InterfaceKind::Veth => "veth",
            InterfaceKind::Bridge => "bridge",
            InterfaceKind::ContainerBridge => "container bridge",
            InterfaceKind::VirtualMachineBridge => "virtual machine bridge",
            InterfaceKind::Bond => "bond",
            InterfaceKind::Vlan => "vlan",
            InterfaceKind::Tunnel => "tunnel",
            InterfaceKind::Other => "other",
        })
    }
}

/// Returns all interfaces of the calling thread's network namespace, by index.
///
/// # Errors
/// The errno of the netlink socket's calls, or `InvalidData` for an invalid reply.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut found = netlink::links()?;
    for (index, network) in netlink::addresses()? {
        if let Some(interface) = found.iter_mut().find(|interface| interface.index == index) {
            interface.networks.push(network);
        }
    }
    found.sort_by_key(|interface| interface.index);
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_listed_with_its_address() {
        let all = interfaces().unwrap();
        let lo = all.iter().find(|interface| interface.name == "lo").unwrap();
        assert!(lo.loopback && lo.mtu >= 1500 && lo.index > 0);
        assert_eq!(lo.kind, InterfaceKind::Loopback);
        let home = Network {
            addr: "127.0.0.1".parse().unwrap(),
            prefix_len: 8,
        };
        assert!(lo.networks.contains(&home), "{:?}", lo.networks);
    }

    #[test]
    fn network_contains_addresses_with_its_prefix() {
        let network = |addr: &str, prefix_len| Network {
            addr: addr.parse().unwrap(),
            prefix_len,
        };
        let lab = network("10.77.0.1", 24);
        assert!(lab.contains("10.77.0.255".parse().unwrap()));
        assert!(!lab.contains("10.77.1.1".parse().unwrap()));
        assert!(!lab.contains("::1".parse().unwrap()));
        assert!(network("0.0.0.0", 0).contains("8.8.8.8".parse().unwrap()));
        assert!(network("fd00::1", 64).contains("fd00::2".parse().unwrap()));
        assert!(!network("fd00::1", 128).contains("fd00::2".parse().unwrap()));
    }

    #[test]
    fn bridges_are_distinguished_by_name() {
        let of = |name| InterfaceKind::of(name, false, Some("bridge"));
        assert_eq!(of("docker0"), InterfaceKind::ContainerBridge);
        assert_eq!(of("br-0a1b2c3d4e5f"), InterfaceKind::ContainerBridge);
        assert_eq!(of("virbr0"), InterfaceKind::VirtualMachineBridge);
        assert_eq!(of("br0"), InterfaceKind::Bridge);
        assert_eq!(
            InterfaceKind::of("eth0", false, None),
            InterfaceKind::Device
        );
    }
}
