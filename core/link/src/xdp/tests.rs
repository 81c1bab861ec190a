// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests without privilege; `tests/xdp.rs` has the others, in namespaces of their own.
use super::*;

#[test]
fn errors_name_the_interface_and_the_remedy() {
    let config = XdpConfig::new(InterfaceRef::Name("no-such-if0".into()), 1);
    let message = Xdp::open(&config).err().unwrap().to_string();
    assert!(
        message.contains("no-such-if0") && message.contains("ip link"),
        "{message}"
    );
    let config = XdpConfig::new(InterfaceRef::Name("lo".into()), u16::MAX);
    let message = Xdp::open(&config).err().unwrap().to_string();
    assert!(message.contains("choose another one"), "{message}");
}

#[test]
fn modes_survive_a_round_trip() {
    for mode in [XdpMode::Generic, XdpMode::Native] {
        assert_eq!(mode.to_string().parse(), Ok(mode));
        assert_eq!(XdpMode::from_byte(mode.to_byte()), Some(mode));
    }
    assert!("driver".parse::<XdpMode>().is_err());
    assert_eq!(XdpMode::from_byte(0), None);
}
