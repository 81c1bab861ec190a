// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which rows are one system's, what it is called, and its colour: the same in all charts.

use crate::chart::Ink;
use crate::{competitors, mpi};
use portolan_bench::{Path, Row};

/// A system as charts know it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct System {
    /// Its name.
    pub(crate) name: String,
    /// Its name where there is little room.
    pub(crate) short: String,
    /// Its colour.
    pub(crate) ink: Ink,
    /// A yardstick: the same work without a protocol.
    pub(crate) is_limit: bool,
}

/// The system of `row`. `None` of rows that say again, under the name of a path, what another row
/// says: the kernel's protocols are the same beside every network path, and the limit of a choice
/// between paths is that of one of them.
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
            let name = format!("{other}, {}", way(row.path));
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
        name: format!("Portolan, {}", way(path)),
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
        // Short messages go by UDP there, and no bare stream is measured.
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

/// How a path is called in a sentence.
pub(crate) fn way(path: Path) -> &'static str {
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
        // Nobody asks for streams and for this in one chart.
        Path::Stream | Path::XdpNative => 5,
    })
}

/// What Portolan was told in this row.
fn choices(row: &Row) -> String {
    let mut conditions = row.conditions;
    (conditions.loss_ppm, conditions.interfere) = (0, 0);
    conditions.describe()
}

fn under(system: System, choices: &str) -> System {
    if choices.is_empty() {
        return system;
    }
    // One line a placement, cipher or order of service: a colour each.
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
