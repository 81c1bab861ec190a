// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one end of a row is told to do: the argument of the hidden worker command.

use crate::args::{Metric, Path};
use crate::competitor::Competitor;
use crate::conditions::Conditions;
use crate::congestion::Congestion;
use crate::interface::Interface;
use crate::measure::Pace;
use crate::mpi::{Carrier, Mpi};
use crate::place::Place;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The work of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Program {
    /// Portolan itself.
    Portolan(Metric, Path),
    /// A C library on top of it.
    Interface(Interface, Metric, Path),
    /// An MPI program. Over what the MPI has itself, the path is `udp` for all between hosts.
    Mpi(Mpi, Carrier, Metric, Path),
    /// Another library, by its own program. The path is `udp` for all between hosts.
    Competitor(Competitor, Metric, Path),
    /// Cache lines bounced between two cores.
    ShmPingpong(Lines),
    /// A copy between two processes of one host.
    ShmStream(Copying),
    /// Records through a ring in shared memory.
    ShmRate(Publish),
    /// Raw Ethernet frames there and back.
    PacketPingpong(Intake),
    /// Raw Ethernet frames there and back by AF_XDP.
    XdpPingpong(Hook),
    /// Frames there and back by Portolan's AF_XDP link, without what is above it.
    XdpLinkPingpong(Hook),
    /// Raw Ethernet frames as fast as they go.
    PacketFlow(Cargo),
    /// Datagrams there and back.
    UdpPingpong(Aim),
    /// Segmentation offload, with a header in each datagram.
    UdpStream(Gather, Scatter),
    /// Datagrams as fast as they go.
    UdpFlow(Cargo),
    /// Bytes there and back.
    TcpPingpong,
    /// Windows of large messages.
    TcpStream(Wait),
    /// Windows of large messages whose pages are lent to the connection.
    TcpLent,
    /// Windows of large messages, of which what arrives within the time counts.
    TcpGoodput(Burst),
    /// Windows of small messages.
    TcpRate(Writes),
    /// Bytes there and back beside a stream.
    TcpLoaded(Chunk),
    /// Windows of messages in both directions at once.
    TcpBidir(Chunk),
    /// LogP's loops.
    TcpLogp,
    /// LogP's loops.
    UdpLogp,
    /// LogP's loops.
    PacketLogp,
}

impl Program {
    /// What a job of Portolan's measures, and by which path; `None` for a bare row.
    pub(crate) fn job(self) -> Option<(Metric, Path)> {
        match self {
            Program::Portolan(metric, path) | Program::Interface(_, metric, path) => {
                Some((metric, path))
            }
            _ => None,
        }
    }

    /// How a person knows the work.
    pub(crate) fn name(self) -> String {
        let name = match self {
            Program::Portolan(_, path) => return format!("portolan over {path}"),
            Program::Interface(interface, _, path) => {
                return format!("{} over {path}", interface.name());
            }
            Program::Mpi(mpi, Carrier::Portolan, _, path) => {
                return format!("{} over {path}", mpi.system(Carrier::Portolan));
            }
            Program::Mpi(mpi, Carrier::Own, ..) => mpi.system(Carrier::Own),
            Program::Competitor(competitor, ..) => competitor.system(),
            Program::ShmPingpong(_) | Program::ShmStream(_) | Program::ShmRate(_) => "bare memory",
            Program::PacketPingpong(_) | Program::PacketFlow(_) | Program::PacketLogp => {
                "bare Ethernet"
            }
            Program::XdpPingpong(_) => "bare AF_XDP",
            Program::XdpLinkPingpong(_) => "the xdp link",
            Program::UdpPingpong(_)
            | Program::UdpFlow(_)
            | Program::UdpStream(..)
            | Program::UdpLogp => "bare UDP",
            Program::TcpPingpong
            | Program::TcpStream(_)
            | Program::TcpLent
            | Program::TcpGoodput(_)
            | Program::TcpRate(_)
            | Program::TcpLoaded(_)
            | Program::TcpBidir(_)
            | Program::TcpLogp => "TCP",
        };
        match self.variant() {
            "" => name.into(),
            variant => format!("{name} ({variant})"),
        }
    }

    /// How the JSON and the table name this way of doing the work; empty where there is only one.
    pub(crate) fn variant(self) -> &'static str {
        match self {
            Program::Portolan(..)
            | Program::Interface(..)
            | Program::Mpi(_, Carrier::Portolan, ..)
            | Program::UdpLogp
            | Program::PacketLogp => "",
            Program::Mpi(_, Carrier::Own, _, Path::Shm) => "its shared memory",
            Program::Mpi(_, Carrier::Own, ..) => "its TCP",
            Program::Competitor(competitor, _, path) => competitor.variant(path),
            Program::PacketPingpong(Intake::Ring) => "mapped ring",
            Program::PacketPingpong(Intake::Call) => "recv",
            Program::XdpPingpong(Hook::Generic) | Program::XdpLinkPingpong(Hook::Generic) => {
                "generic mode"
            }
            Program::XdpPingpong(Hook::Native) | Program::XdpLinkPingpong(Hook::Native) => {
                "native mode"
            }
            Program::UdpPingpong(Aim::Connected) => "connected",
            Program::UdpPingpong(Aim::Each) => "an address with each",
            Program::TcpPingpong | Program::TcpLogp => "spinning, TCP_NODELAY",
            Program::ShmPingpong(Lines::One) => "one line",
            Program::ShmPingpong(Lines::Two) => "one line each way",
            Program::ShmStream(Copying::Pipelined) => "pipelined copy",
            Program::ShmStream(Copying::VmRead) => "process_vm_readv",
            Program::ShmRate(Publish::Each) => "published one by one",
            Program::ShmRate(Publish::Batch) => "published in batches",
            Program::PacketFlow(cargo) => cargo.name("frame"),
            Program::UdpFlow(cargo) => cargo.name("datagram"),
            Program::UdpStream(Gather::List, Scatter::Bounce) => "gather list, bounce buffer",
            Program::UdpStream(Gather::List, Scatter::List) => "gather list, scatter list",
            Program::UdpStream(Gather::Copy, Scatter::Bounce) => "copy, bounce buffer",
            Program::UdpStream(Gather::Copy, Scatter::List) => "copy, scatter list",
            Program::TcpLent => "spinning, lent pages",
            Program::TcpStream(Wait::Block) => "blocking",
            Program::TcpStream(Wait::Spin) => "spinning",
            Program::TcpGoodput(Burst::Whole) => "spinning",
            Program::TcpGoodput(Burst::Segments) => "spinning, without segmentation offload",
            Program::TcpLoaded(Chunk::Small) => "spinning, TCP_NODELAY, stream in 64 KB calls",
            Program::TcpLoaded(Chunk::Large) => "spinning, TCP_NODELAY, stream in 1 MB calls",
            Program::TcpBidir(Chunk::Small) => "one connection, spinning, 64 KB calls",
            Program::TcpBidir(Chunk::Large) => "one connection, spinning, 1 MB calls",
            Program::TcpRate(Writes::Each) => "one write per message",
            Program::TcpRate(Writes::Window) => "one write per window",
        }
    }
}

/// How many cache lines a ping-pong through memory uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Lines {
    /// Both ends write the same one.
    One,
    /// Each end writes its own.
    Two,
}

/// How frames come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Intake {
    /// By a ring that the kernel fills.
    Ring,
    /// By a call for each.
    Call,
}

/// Where a program takes out frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Hook {
    /// Behind the driver.
    Generic,
    /// In it.
    Native,
}

/// How a socket knows where datagrams go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Aim {
    /// It is connected.
    Connected,
    /// Each call says it.
    Each,
}

/// How bytes get from one process to the other within a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Copying {
    /// In and out of shared memory, piece by piece, both ends at work.
    Pipelined,
    /// By the receiver alone.
    VmRead,
}

/// When a ring's producer makes records visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Publish {
    /// After every record.
    Each,
    /// After a batch of them.
    Batch,
}

/// What the frames or datagrams of a flow carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cargo {
    /// One message.
    Single,
    /// As many messages as fit, with a header each.
    Full,
    /// Pieces of large messages.
    Pieces,
}

impl Cargo {
    fn name(self, unit: &'static str) -> &'static str {
        match (self, unit) {
            (Cargo::Single, "frame") => "one message per frame",
            (Cargo::Single, _) => "one message per datagram",
            (Cargo::Full, "frame") => "full frames",
            (Cargo::Full, _) => "full datagrams, segmentation offload",
            (Cargo::Pieces, _) => "one frame a descriptor",
        }
    }
}

/// How a sender of datagrams puts headers between the pieces of its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Gather {
    /// The kernel gathers.
    List,
    /// The process copies first.
    Copy,
}

/// How a receiver of datagrams gets the pieces into its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scatter {
    /// The kernel scatters them to where they are expected.
    List,
    /// The process copies afterwards.
    Bounce,
}

/// How an end waits for its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wait {
    /// In the kernel.
    Block,
    /// Trying again.
    Spin,
}

/// What a network that loses packets loses of a stream at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Burst {
    /// What segmentation offload hands over in one piece: up to 64 KB.
    Whole,
    /// A segment, because there is no such offload.
    Segments,
}

/// Bytes of a stream that a call may move before the other connection is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Chunk {
    /// 64 KB: what the kernel moves at a time.
    Small,
    /// A whole message of up to 1 MB.
    Large,
}

impl Chunk {
    /// Bytes of a call, at most.
    pub(crate) fn call_len(self) -> usize {
        match self {
            Chunk::Small => 64 << 10,
            Chunk::Large => 1 << 20,
        }
    }
}

/// How many messages a `write` carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Writes {
    /// One.
    Each,
    /// Those of a window.
    Window,
}

/// Which end of a row a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// Sends first, and measures.
    Driver,
    /// Answers.
    Answerer,
}

/// All that an end needs to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// The work.
    pub(crate) program: Program,
    /// Under which conditions.
    #[serde(default)]
    pub(crate) conditions: Conditions,
    /// TCP's congestion control, if not the kernel's default.
    #[serde(default)]
    pub(crate) congestion: Option<Congestion>,
    /// Count what a message costs, in Portolan's rows.
    #[serde(default)]
    pub(crate) calls: bool,
    /// The part in it. Ignored by Portolan rows, where the rank says it.
    pub(crate) role: Role,
    /// Bytes of a message.
    pub(crate) size: usize,
    /// How long.
    pub(crate) pace: Pace,
    /// MTU of network paths.
    pub(crate) mtu: usize,
    /// Cores of the driver and of the answerer.
    pub(crate) cores: Option<[usize; 2]>,
    /// Host of the driver and of the answerer.
    pub(crate) hosts: [Place; 2],
    /// Senders of an incast.
    #[serde(default)]
    pub(crate) senders: u32,
    /// The program of another library's row.
    #[serde(default)]
    pub(crate) program_file: Option<PathBuf>,
    /// File behind the shared memory.
    pub(crate) shared: Option<PathBuf>,
    /// Where rank 0 of a Portolan row leaves its sample; other ends report on their standard
    /// output.
    pub(crate) result: Option<PathBuf>,
}

/// Messages that are under way before an acknowledgement is waited for, in the manner of `osu_bw`
/// and `osu_mbw_mr`. The same for all systems of a row.
pub(crate) fn window(size: usize) -> u64 {
    /// What the OSU micro-benchmarks use.
    const MESSAGES_MAX: usize = 64;
    /// Keeps a turn of 1 MB messages below 10 ms, so that a round holds enough of them.
    const BYTES_MAX: usize = 16 << 20;
    (BYTES_MAX / size.max(1)).clamp(1, MESSAGES_MAX) as u64
}

impl Role {
    /// Position in the pairs of a [`Spec`].
    pub(crate) fn index(self) -> usize {
        match self {
            Role::Driver => 0,
            Role::Answerer => 1,
        }
    }

    /// The other one.
    pub(crate) fn peer(self) -> Role {
        match self {
            Role::Driver => Role::Answerer,
            Role::Answerer => Role::Driver,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_bounded_in_messages_and_in_bytes() {
        assert_eq!(window(1), 64);
        assert_eq!(window(64 << 10), 64);
        assert_eq!(window(1 << 20), 16);
        assert_eq!(window(1 << 30), 1);
    }
}
