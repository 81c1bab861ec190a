// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests without privilege; `tests/packet.rs` has the others, in a namespace of its own.
use super::*;

#[test]
fn errors_name_the_interface_and_the_remedy() {
    let config = PacketConfig::new(InterfaceRef::Name("no-such-if0".into()), 1);
    let message = Packet::open(&config).err().unwrap().to_string();
    assert!(
        message.contains("no-such-if0") && message.contains("ip link"),
        "{message}"
    );
    let config = PacketConfig::new(InterfaceRef::Index(u32::MAX), 1);
    let message = Packet::open(&config).err().unwrap().to_string();
    assert!(message.contains("number 4294967295"), "{message}");
    let config = PacketConfig::new(InterfaceRef::Name("lo".into()), ENDPOINT_ALL);
    let message = Packet::open(&config).err().unwrap().to_string();
    assert!(message.contains("choose another one"), "{message}");
}

#[test]
fn header_is_as_documented() {
    let (from, to) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    let expected = [
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5, 0x12, 0x34, 0x56, 0x78,
    ];
    assert_eq!(header(from, 0x5678, to, 0x1234), expected);
}
