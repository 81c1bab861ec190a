// SPDX-License-Identifier: MIT OR Apache-2.0
//! Systems of rows, with names and colours that are the same in all charts.

use crate::chart::Ink;
use crate::{competitors, mpi};
use portolan_bench::{Path, Row};

/// A system in a chart.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct System {
    /// Full name.
    pub(crate) name: String,
    /// Short name for narrow charts.
    pub(crate) short: String,
    /// Colour.
    pub(crate) ink: Ink,
    /// Set for a yardstick: the same work without a protocol.
    pub(crate) is_limit: bool,
}

/// Returns the system of `row`. Returns `None` for rows that repeat another row under the name of
/// another path. The kernel's protocols are the same beside every network path. The limit of a
/// choice between paths is the limit of one of them.
pub(crate) fn of(row: &Row) -> Option<System> {
    if let Some(system) = competitors::system(row) {
        return Some(system);
    }
    let system = match row.system.as_str() {
        "portolan" => portolan(row.path),
        "tcp" if row.path == Path::Shm => kernel("TCP, one host", "TCP local", Ink::KERNEL_LOCAL),
        "tcp" => kernel("TCP", "TCP", Ink::KERNEL),
        "limit" if row.path != Path::Auto => limit(row.path),
        "limit" | "limit-single" | "udp" => return None,
        other if mpi::is_mpi(row) => {
            let name = format!("{other}, {}", path_name(row.path));
            kernel(&name, other, Ink::System(4))
        }
        other => System {
            name: other.into(),
            short: other.into(),
            ink: Ink::System(4),
            is_limit: false,
        },
    };
    Some(under(system, &choices(row)))
}

pub(crate) fn portolan(path: Path) -> System {
    let short = match path {
        Path::Auto => "auto",
        Path::Packet => "Ethernet",
        Path::Xdp => "AF_XDP",
        Path::XdpNative => "native XDP",
        Path::Udp => "UDP",
        Path::Stream => "streams",
        Path::Shm => "memory",
    };
    System {
        name: format!("Portolan, {}", path_name(path)),
        short: format!("P. {short}"),
        ink: ink(path),
        is_limit: false,
    }
}

pub(crate) fn kernel(name: &str, short: &str, ink: Ink) -> System {
    System {
        name: name.into(),
        short: short.into(),
        ink,
        is_limit: false,
    }
}

fn limit(path: Path) -> System {
    let bare = match path {
        Path::Packet | Path::Auto => "bare Ethernet",
        Path::Xdp => "bare AF_XDP",
        Path::XdpNative => "bare native AF_XDP",
        // Short messages of a stream path use UDP, and no bare stream is measured.
        Path::Udp | Path::Stream => "bare UDP",
        Path::Shm => "bare memory",
    };
    System {
        name: format!("limit: {bare}"),
        short: bare.into(),
        ink: ink(path),
        is_limit: true,
    }
}

/// Returns the name of a path in a sentence.
pub(crate) fn path_name(path: Path) -> &'static str {
    match path {
        Path::Packet => "raw Ethernet",
        Path::Xdp => "AF_XDP",
        Path::XdpNative => "AF_XDP in the driver",
        Path::Udp => "UDP",
        Path::Stream => "streams",
        Path::Shm => "shared memory",
        Path::Auto => "its own choice",
    }
}

fn ink(path: Path) -> Ink {
    Ink::System(match path {
        Path::Packet => 0,
        Path::Udp => 1,
        Path::Shm => 2,
        Path::Auto => 3,
        Path::Xdp => 4,
        // Streams and AF_XDP in the driver are unlikely in one chart, so they share a colour.
        Path::Stream | Path::XdpNative => 5,
    })
}

/// Returns the settings of Portolan in this row.
fn choices(row: &Row) -> String {
    let mut conditions = row.conditions;
    (conditions.loss_ppm, conditions.interfere) = (0, 0);
    conditions.describe()
}

fn under(system: System, choices: &str) -> System {
    if choices.is_empty() {
        return system;
    }
    // Colours for the lines of different placements, ciphers or orders of service.
    const COLOURS: usize = 6;
    let Ink::System(ink) = system.ink else {
        return system;
    };
    let shift = choices.bytes().map(usize::from).sum::<usize>() % COLOURS;
    System {
        name: format!("{}, {choices}", system.name),
        short: choices.rsplit(' ').next().unwrap_or(choices).into(),
        ink: Ink::System((ink + shift) % COLOURS),
        ..system
    }
}
