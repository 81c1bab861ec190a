// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the setting `network` on invented hosts.

use super::*;

fn interface(name: &str, kind: InterfaceKind, addrs: &[&str]) -> Interface {
    let networks = addrs.iter().map(|text| {
        let subnet: IpNet = text.parse().unwrap();
        Network {
            addr: subnet.addr(),
            prefix_len: subnet.prefix_len(),
        }
    });
    Interface {
        name: name.to_owned(),
        index: 1,
        mac: None,
        mtu: 1500,
        up: true,
        running: true,
        loopback: kind == InterfaceKind::Loopback,
        kind,
        networks: networks.collect(),
    }
}

/// A host with every kind of interface.
fn host() -> Vec<Interface> {
    let mut down = interface("eth2", InterfaceKind::Device, &["10.3.0.1/16"]);
    down.up = false;
    let mut unplugged = interface("eth3", InterfaceKind::Device, &["10.4.0.1/16"]);
    unplugged.running = false;
    vec![
        interface("lo", InterfaceKind::Loopback, &["127.0.0.1/8", "::1/128"]),
        interface(
            "docker0",
            InterfaceKind::ContainerBridge,
            &["172.17.0.1/16"],
        ),
        interface("wg0", InterfaceKind::Tunnel, &["10.9.0.1/24"]),
        interface(
            "eth0",
            InterfaceKind::Device,
            &["fe80::1/64", "fd00::1/64", "10.1.0.1/16", "10.2.0.1/16"],
        ),
        interface("eth1", InterfaceKind::Device, &["10.0.2.15/24"]),
        down,
        unplugged,
    ]
}

/// Returns the candidates that `value` selects on host `a`, as `interface address`.
fn selected(value: &str) -> Vec<String> {
    selected_on("a", value)
}

fn selected_on(name: &str, value: &str) -> Vec<String> {
    let selection: Selection = value.parse().unwrap();
    listed(&selection.candidates(name, &host()))
}

fn listed(candidates: &[Candidate<'_>]) -> Vec<String> {
    let shown = |at: &Candidate<'_>| format!("{} {}", at.interface.name, at.network.addr);
    candidates.iter().map(shown).collect()
}

#[test]
fn default_prefers_hardware_interfaces() {
    let interfaces = host();
    let candidates = Selection::default().candidates("a", &interfaces);
    assert_eq!(
        listed(&candidates),
        [
            "eth0 10.1.0.1",
            "eth0 10.2.0.1",
            "eth1 10.0.2.15",
            "eth0 fd00::1",
            "eth0 fe80::1",
            "wg0 10.9.0.1",
        ]
    );
}

#[test]
fn subnet_selects_addresses_on_any_interface() {
    assert_eq!(selected("10.2.0.0/16"), ["eth0 10.2.0.1"]);
    assert_eq!(selected("10.2.0.1"), ["eth0 10.2.0.1"]);
    assert_eq!(selected("10.2.3.4/16"), ["eth0 10.2.0.1"]);
    assert_eq!(selected("fd00::/8"), ["eth0 fd00::1"]);
    assert_eq!(selected("127.0.0.0/8"), ["lo 127.0.0.1"]);
}

#[test]
fn pattern_selects_interfaces_by_name() {
    assert_eq!(selected("eth1"), ["eth1 10.0.2.15"]);
    assert_eq!(selected("eth?").len(), 5);
    assert_eq!(selected("w*"), ["wg0 10.9.0.1"]);
}

#[test]
fn named_loopback_is_used_but_pattern_excludes_it() {
    assert_eq!(selected("docker0"), ["docker0 172.17.0.1"]);
    assert_eq!(selected("lo"), ["lo 127.0.0.1", "lo ::1"]);
    assert!(!selected("*").iter().any(|found| found.starts_with("lo ")));
    assert!(selected("l*").is_empty());
}

#[test]
fn exclusion_wins_in_any_position() {
    assert_eq!(selected("!eth*"), ["wg0 10.9.0.1"]);
    assert_eq!(selected("!eth0,eth*"), ["eth1 10.0.2.15"]);
    assert_eq!(selected("eth0,!10.1.0.0/16,!fc00::/6"), ["eth0 10.2.0.1"]);
}

#[test]
fn exclusions_alone_retain_the_default() {
    let without_tunnel = selected("!wg0");
    assert!(
        !without_tunnel
            .iter()
            .any(|found| found.starts_with("docker0"))
    );
    assert_eq!(without_tunnel.len(), 5);
}

#[test]
fn order_of_terms_is_the_order_of_candidates() {
    assert_eq!(
        selected("wg0,eth1,10.2.0.0/16"),
        ["wg0 10.9.0.1", "eth1 10.0.2.15", "eth0 10.2.0.1"]
    );
}

#[test]
fn interface_that_is_down_or_unplugged_is_no_candidate() {
    assert!(selected("eth2,eth3").is_empty());
}

#[test]
fn ipv6_link_local_addresses_come_last() {
    assert_eq!(selected("fe80::/10"), ["eth0 fe80::1"]);
    assert_eq!(selected("eth0").last().unwrap(), "eth0 fe80::1");
}

#[test]
fn hosts_have_lists_of_their_own() {
    let value = "a=eth1; b*=wg0 ;10.2.0.0/16";
    assert_eq!(selected_on("a", value), ["eth1 10.0.2.15"]);
    assert_eq!(selected_on("b7", value), ["wg0 10.9.0.1"]);
    assert_eq!(selected_on("c", value), ["eth0 10.2.0.1"]);
    // A host without a list of its own has the default.
    assert_eq!(selected_on("c", "a=eth1").len(), 6);
}

#[test]
fn interface_is_a_name_alone() {
    let interfaces = host();
    let selection = Selection::of_interface("eth1");
    assert_eq!(
        listed(&selection.candidates("a", &interfaces)),
        ["eth1 10.0.2.15"]
    );
    let pattern = Selection::of_interface("eth*");
    assert!(pattern.candidates("a", &interfaces).is_empty());
    let all = Selection::default().candidates("a", &interfaces);
    let allowed = all.iter().filter(|at| selection.allows("a", at)).count();
    assert_eq!(allowed, 1);
}

#[test]
fn invalid_values_are_refused() {
    let refused = |value: &str| value.parse::<Selection>().unwrap_err();
    for value in ["", ",", "eth0,", "!", "a=", "=eth0", "eth0;"] {
        assert_eq!(refused(value), Malformed::Empty, "{value:?}");
    }
    for value in ["10.1.0.0/33", "10.1/16", "fd00::/129", "eth0/24"] {
        assert_eq!(refused(value), Malformed::Subnet(value.to_owned()));
    }
    for value in ["an-interface-name", "eth 0"] {
        assert_eq!(refused(value), Malformed::Name(value.to_owned()));
    }
}

#[test]
fn inventory_lists_state_and_addresses() {
    let mut bare = interface("eth9", InterfaceKind::Device, &[]);
    bare.index = 9;
    let mut all = host().split_off(4);
    all.push(bare);
    assert_eq!(
        Inventory(&all).to_string(),
        "eth1 10.0.2.15/24; eth2 (down) 10.3.0.1/16; eth3 (no carrier) 10.4.0.1/16; \
         eth9 without an address"
    );
    assert_eq!(Inventory(&[]).to_string(), "no interface");
}
