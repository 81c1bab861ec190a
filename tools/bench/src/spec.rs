// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work of one end of a row: the argument of the hidden worker command.

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
    /// A C library on top of Portolan.
    Interface(Interface, Metric, Path),
    /// An MPI program. With the MPI's own transport, the path is `udp` for all paths between hosts.
    Mpi(Mpi, Carrier, Metric, Path),
    /// Another library's own program. The path is `udp` for all paths between hosts.
    Competitor(Competitor, Metric, Path),
    /// Cache lines bounced between two cores.
    ShmPingpong(Lines),
    /// A copy between two processes of one host.
    ShmStream(Copying),
    /// Records through a ring in shared memory.
    ShmRate(Publish),
    /// Ping-pong of raw Ethernet frames.
    PacketPingpong(Intake),
    /// Ping-pong of raw Ethernet frames through AF_XDP.
    XdpPingpong(Hook),
    /// Ping-pong of frames through Portolan's AF_XDP link, without the layers above it.
    XdpLinkPingpong(Hook),
    /// Raw Ethernet frames at the maximum rate.
    PacketFlow(Payload),
    /// Ping-pong of datagrams.
    UdpPingpong(Aim),
    /// Bulk datagrams with segmentation offload and a header in each datagram.
    UdpStream(Gather, Scatter),
    /// Datagrams at the maximum rate.
    UdpFlow(Payload),
    /// Ping-pong over TCP.
    TcpPingpong,
    /// Windows of large messages.
    TcpStream(Wait),
    /// Windows of large messages sent with zero-copy.
    TcpZeroCopy,
    /// Windows of large messages; only the data received within the time counts.
    TcpGoodput(Burst),
    /// Windows of small messages.
    TcpRate(Writes),
    /// Ping-pong over TCP beside a stream.
    TcpLoaded(Chunk),
    /// Windows of messages in both directions at once.
    TcpBidir(Chunk),
    /// LogP's loops over TCP.
    TcpLogp,
    /// LogP's loops over UDP.
    UdpLogp,
    /// LogP's loops over raw Ethernet.
    PacketLogp,
}

impl Program {
    /// Returns the metric and path of a Portolan job, and `None` for a bare row.
    pub(crate) fn job(self) -> Option<(Metric, Path)> {
        match self {
            Program::Portolan(metric, path) | Program::Interface(_, metric, path) => {
                Some((metric, path))
            }
            _ => None,
        }
    }

    /// Returns the name of the work for messages to the user.
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
            Program::XdpLinkPingpong(_) => "the XDP link",
            Program::UdpPingpong(_)
            | Program::UdpFlow(_)
            | Program::UdpStream(..)
            | Program::UdpLogp => "bare UDP",
            Program::TcpPingpong
            | Program::TcpStream(_)
            | Program::TcpZeroCopy
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

    /// Returns the name of this variant in the JSON and the table, and an empty string if there is
    /// only one variant.
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
            Program::UdpPingpong(Aim::Each) => "unconnected",
            Program::TcpPingpong | Program::TcpLogp => "spinning, TCP_NODELAY",
            Program::ShmPingpong(Lines::One) => "one cache line",
            Program::ShmPingpong(Lines::Two) => "two cache lines",
            Program::ShmStream(Copying::Pipelined) => "pipelined copy",
            Program::ShmStream(Copying::VmRead) => "process_vm_readv",
            Program::ShmRate(Publish::Each) => "published one by one",
            Program::ShmRate(Publish::Batch) => "published in batches",
            Program::PacketFlow(payload) => payload.name("frame"),
            Program::UdpFlow(payload) => payload.name("datagram"),
            Program::UdpStream(Gather::List, Scatter::Bounce) => "gather list, bounce buffer",
            Program::UdpStream(Gather::List, Scatter::List) => "gather list, scatter list",
            Program::UdpStream(Gather::Copy, Scatter::Bounce) => "copy, bounce buffer",
            Program::UdpStream(Gather::Copy, Scatter::List) => "copy, scatter list",
            Program::TcpZeroCopy => "spinning, zero-copy",
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

/// Number of cache lines in a shared-memory ping-pong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Lines {
    /// Both ends write the same line.
    One,
    /// Each end writes its own line.
    Two,
}

/// Receive method for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Intake {
    /// A ring filled by the kernel.
    Ring,
    /// One system call per frame.
    Call,
}

/// Position of an XDP program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Hook {
    /// Behind the driver.
    Generic,
    /// In the driver.
    Native,
}

/// Destination of a socket's datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Aim {
    /// The socket is connected.
    Connected,
    /// Each call names the destination.
    Each,
}

/// Copy method between two processes of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Copying {
    /// Through shared memory, in pieces, with both ends copying at once.
    Pipelined,
    /// Copied by the receiver alone, with `process_vm_readv`.
    VmRead,
}

/// Interval at which a ring's producer publishes records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Publish {
    /// After every record.
    Each,
    /// After each batch of records.
    Batch,
}

/// Contents of the frames or datagrams of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Payload {
    /// One message.
    Single,
    /// As many messages as fit, each with a header.
    Full,
    /// Fragments of large messages.
    Pieces,
}

impl Payload {
    fn name(self, unit: &'static str) -> &'static str {
        match (self, unit) {
            (Payload::Single, "frame") => "one message per frame",
            (Payload::Single, _) => "one message per datagram",
            (Payload::Full, "frame") => "full frames",
            (Payload::Full, _) => "full datagrams, segmentation offload",
            (Payload::Pieces, _) => "one frame per descriptor",
        }
    }
}

/// Method by which a sender puts headers between the fragments of its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Gather {
    /// The kernel gathers headers and fragments.
    List,
    /// The process copies both into one buffer.
    Copy,
}

/// Method by which a receiver moves fragments into its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scatter {
    /// The kernel scatters them to their predicted positions.
    List,
    /// The process copies them after the receive.
    Bounce,
}

/// Method by which an end waits for its socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Wait {
    /// Block in the kernel.
    Block,
    /// Retry a non-blocking call.
    Spin,
}

/// Unit of data that a lossy network drops from a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Burst {
    /// A whole segmentation-offload buffer of up to 64 KB.
    Whole,
    /// A single segment, because segmentation offload is disabled.
    Segments,
}

/// Maximum bytes that one call moves before the program polls the other connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Chunk {
    /// 64 KB, the amount that the kernel moves at a time.
    Small,
    /// A whole message of up to 1 MB.
    Large,
}

impl Chunk {
    /// Returns the maximum bytes of a call.
    pub(crate) fn call_len(self) -> usize {
        match self {
            Chunk::Small => 64 << 10,
            Chunk::Large => 1 << 20,
        }
    }
}

/// Number of messages per `write`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Writes {
    /// One message.
    Each,
    /// All messages of a window.
    Window,
}

/// End of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    /// The end that sends first and measures.
    Driver,
    /// The end that replies.
    Answerer,
}

/// Everything that an end needs for its work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// The work.
    pub(crate) program: Program,
    /// Conditions of the measurement.
    #[serde(default)]
    pub(crate) conditions: Conditions,
    /// TCP's congestion control, if not the kernel's default.
    #[serde(default)]
    pub(crate) congestion: Option<Congestion>,
    /// Set to count the system calls, copies and wake-ups per message in Portolan's rows.
    #[serde(default)]
    pub(crate) calls: bool,
    /// End of the row that this process is. Portolan's rows ignore it and use the rank.
    pub(crate) role: Role,
    /// Bytes of a message.
    pub(crate) size: usize,
    /// Duration or message count.
    pub(crate) pace: Pace,
    /// MTU of network paths.
    pub(crate) mtu: usize,
    /// Cores of the driver and the answerer.
    pub(crate) cores: Option<[usize; 2]>,
    /// Hosts of the driver and the answerer.
    pub(crate) hosts: [Place; 2],
    /// Senders of an incast.
    #[serde(default)]
    pub(crate) senders: u32,
    /// Executable of another library's row.
    #[serde(default)]
    pub(crate) program_file: Option<PathBuf>,
    /// File behind the shared memory.
    pub(crate) shared: Option<PathBuf>,
    /// File for the sample of a Portolan row's rank 0. Other rows write to their standard output.
    pub(crate) result: Option<PathBuf>,
}

/// Returns the number of messages in flight before the sender waits for an acknowledgement, as in
/// `osu_bw` and `osu_mbw_mr`. It is the same for all systems of a row.
pub(crate) fn window(size: usize) -> u64 {
    /// Window of the OSU micro-benchmarks.
    const MESSAGES_MAX: usize = 64;
    /// Limits a pass of 1 MB messages to less than 10 ms, so that a round contains enough passes.
    const BYTES_MAX: usize = 16 << 20;
    (BYTES_MAX / size.max(1)).clamp(1, MESSAGES_MAX) as u64
}

impl Role {
    /// Returns the index into the pairs of a [`Spec`].
    pub(crate) fn index(self) -> usize {
        match self {
            Role::Driver => 0,
            Role::Answerer => 1,
        }
    }

    /// Returns the other role.
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
    fn windows_are_bounded_by_messages_and_bytes() {
        assert_eq!(window(1), 64);
        assert_eq!(window(64 << 10), 64);
        assert_eq!(window(1 << 20), 16);
        assert_eq!(window(1 << 30), 1);
    }
}
