// SPDX-License-Identifier: MIT OR Apache-2.0
//! Destination ports of frames: a switch that takes Ethernet addresses from the senders.
//!
//! It sends no frame itself. Invariant: a frame never returns to the port that it came from.

use std::collections::HashMap;
use std::ops::Range;

/// Largest number of known addresses, as in a small switch. Frames for unknown addresses are
/// flooded.
const ADDRESSES_MAX: usize = 8192;

/// Bit in the first byte of an address that marks a group address (IEEE 802.3, clause 3.2.3).
const GROUP: u8 = 1;

type Address = [u8; 6];

/// See the module documentation.
pub(super) struct Switch {
    port_count: usize,
    known: HashMap<Address, usize>,
}

impl Switch {
    pub(super) fn new(port_count: usize) -> Switch {
        Switch {
            port_count,
            known: HashMap::new(),
        }
    }

    /// Records that `from` is reached by `port`.
    pub(super) fn learn(&mut self, from: Address, port: usize) {
        let is_known = self.known.contains_key(&from);
        if from[0] & GROUP == 0 && (is_known || self.known.len() < ADDRESSES_MAX) {
            self.known.insert(from, port);
        }
    }

    /// Returns the ports to which a frame for `to` from `port` must be sent.
    pub(super) fn output_ports(&self, to: Address, port: usize) -> impl Iterator<Item = usize> {
        let ports: Range<usize> = match self.known.get(&to) {
            Some(known) => *known..*known + 1,
            None => 0..self.port_count,
        };
        ports.filter(move |out| *out != port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Address = [2, 0, 0, 0, 0, 1];
    const B: Address = [2, 0, 0, 0, 0, 2];
    const ALL: Address = [0xff; 6];

    fn output_ports(switch: &Switch, to: Address, port: usize) -> Vec<usize> {
        switch.output_ports(to, port).collect()
    }

    #[test]
    fn unknown_destinations_are_flooded_except_to_the_source_port() {
        let mut switch = Switch::new(3);
        assert_eq!(output_ports(&switch, B, 0), [1, 2]);
        switch.learn(B, 2);
        assert_eq!(output_ports(&switch, B, 0), [2]);
        assert_eq!(output_ports(&switch, B, 2), [0; 0]);
        assert_eq!(output_ports(&switch, ALL, 1), [0, 2]);
        switch.learn(B, 1);
        assert_eq!(output_ports(&switch, B, 0), [1]);
    }

    #[test]
    fn group_addresses_are_not_learned() {
        let mut switch = Switch::new(2);
        switch.learn(ALL, 1);
        assert_eq!(output_ports(&switch, ALL, 0), [1]);
        assert_eq!(output_ports(&switch, ALL, 1), [0]);
    }

    #[test]
    fn full_table_keeps_known_addresses() {
        let mut switch = Switch::new(3);
        switch.learn(A, 0);
        for number in 0..20_000u16 {
            let [high, low] = number.to_be_bytes();
            switch.learn([2, 9, 9, 9, high, low], 1);
        }
        assert_eq!(switch.known.len(), ADDRESSES_MAX);
        assert_eq!(output_ports(&switch, A, 2), [0]);
        switch.learn(A, 1);
        assert_eq!(output_ports(&switch, A, 2), [1]);
    }
}
