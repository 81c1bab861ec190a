// SPDX-License-Identifier: MIT OR Apache-2.0
//! Commands of `ip` and `tc` that make the wires of a lab as slow and lossy as `--link` requests.
//!
//! A host's interface sends at the rate of the wire (tbf), like a NIC: a full queue blocks senders
//! on the host. With a switch, each port sends at that rate towards its host, and drops frames that
//! its queue cannot hold. Loss occurs at the exit of a port. The frame has left its sender by then,
//! so the sender is not notified, and each receiver of a broadcast loses frames independently.

use super::link::{DelayBy, IN_FLIGHT_LEN, Link};
use super::{Options, ip, line, plan};
use crate::error::user_error;
use anyhow::Result;

/// Bytes of a frame on Ethernet that the kernel does not count: preamble 8, checksum 4, gap 12
/// (IEEE 802.3, clause 4).
const OVERHEAD: u64 = 24;

/// Bytes of the header, which an MTU does not include.
const HEADER: u64 = 14;

/// Lateness of a kernel timer up to which the wire keeps its rate: it sends this much at once after
/// a pause. With half of this value a busy virtual machine stayed 2 % below a gigabit.
const SLACK_NS: u64 = 200_000;

/// Longest duration of a burst of segments, which arrives at once where a real wire would spread
/// it. With single frames the same machine did not reach a gigabit.
const BURST_NS_MAX: u64 = 100_000;

/// Largest burst of segments from the kernel (GSO, TSO) in bytes.
const SUPERFRAME: u64 = 65_536;

/// Frames that the queue of a host's interface holds (`txqueuelen`, `DEFAULT_TX_QUEUE_LEN` of
/// include/linux/netdevice.h).
const HOST_FRAMES: u64 = 1000;

/// Returns true if frames are dropped or delayed between the hosts. Two hosts then need a switch,
/// because on a veth pair the sender would be notified of the loss.
pub(super) fn needs_switch(link: &Link) -> bool {
    link.loss_ppm > 0 || !link.delay.is_zero()
}

/// Selects the mechanism for the delay, if there is one: the kernel if possible, which needs no
/// process.
pub(super) fn settle(options: &Options) -> Result<Options> {
    let mut options = options.clone();
    let link = &mut options.link;
    if link.delay.is_zero() {
        return Ok(options);
    }
    let by = match link.delay_by {
        Some(DelayBy::Line) => DelayBy::Line,
        requested => match has_netem(&options.name)? {
            true => DelayBy::Netem,
            false if requested.is_none() => DelayBy::Line,
            false => user_error!(
                "--link: by=netem is not possible: this kernel has no netem (NET_SCH_NETEM); leave it out, and a \
                 process delays the frames"
            ),
        },
    };
    link.delay_by = Some(by);
    if by == DelayBy::Line {
        line::check(link)?;
    }
    Ok(options)
}

/// Returns true if netem works, by a test on the `lo` of a temporary namespace. A list of modules
/// or a successful load does not prove that it works.
fn has_netem(name: &str) -> Result<bool> {
    let namespace = plan::trial_namespace(name);
    ip::run(&["netns", "add", &namespace])?;
    let has = ip::can_shape(&namespace, "qdisc add dev lo root netem delay 1ms\n");
    ip::run(&["netns", "delete", &namespace])?;
    has
}

/// Returns an error for a link that cannot be created with this MTU.
pub(super) fn check(options: &Options) -> Result<()> {
    let frame = frame(options);
    if let Some(len) = options.link.queue_len
        && len < frame
    {
        user_error!(
            "--link: queue={len} is too short for a frame of MTU {}, which has {frame} bytes: make it longer",
            options.mtu
        );
    }
    Ok(())
}

/// Shapes the wires of a lab with existing interfaces.
pub(super) fn make(options: &Options) -> Result<()> {
    if !options.link.is_shaped() {
        return Ok(());
    }
    let hosts = host_commands(options);
    for index in 0..options.host_count {
        let namespace = plan::host_namespace(&options.name, index);
        if let Some(limit) = burst_limit(options).command() {
            ip::batch(&namespace, &limit)?;
        }
        ip::shape(&namespace, &hosts)?;
    }
    if plan::has_switch(options) {
        let switch = plan::switch_namespace(&options.name);
        ip::shape(&switch, &switch_commands(options))?;
    }
    Ok(())
}

/// Largest unit that the kernel passes on at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Burst {
    /// Single frames.
    Frame,
    /// Segments of this many bytes together.
    Segments(u64),
    /// No limit of its own: as many segments as a segmenting NIC accepts.
    Whole,
}

impl Burst {
    fn command(self) -> Option<String> {
        match self {
            Burst::Frame => Some("link set dev eth0 gso_max_segs 1\n".into()),
            Burst::Segments(len) => Some(format!("link set dev eth0 gso_max_size {len}\n")),
            Burst::Whole => None,
        }
    }
}

/// Returns the burst size: at most [`BURST_NS_MAX`] long, and single frames if frames are to be
/// lost.
fn burst_limit(options: &Options) -> Burst {
    if options.link.loss_ppm > 0 {
        return Burst::Frame;
    }
    let rate = options.link.rate_bits_per_sec;
    match rate.map(|rate| bytes_in(BURST_NS_MAX, rate)) {
        Some(len) if len < 2 * frame(options) => Burst::Frame,
        Some(len) if len < SUPERFRAME => Burst::Segments(len),
        _ => Burst::Whole,
    }
}

fn host_commands(options: &Options) -> String {
    let queue_len = match (options.link.queue_len, options.host_count > 2) {
        // A cable, or a switch that only loses frames: frames wait at the NIC.
        (Some(len), false) => len,
        (len, _) => len.unwrap_or(0).max(HOST_FRAMES * frame(options)),
    };
    rate_command(options, "eth0", "root", queue_len)
}

fn switch_commands(options: &Options) -> String {
    let mut commands = String::new();
    for index in 0..options.host_count {
        let port = plan::port(index);
        let by_netem = options.link.delay_by == Some(DelayBy::Netem);
        if by_netem {
            commands.push_str(&netem_command(options, &port));
        }
        if options.host_count > 2 {
            let queue_len = options
                .link
                .queue_len
                .unwrap_or(HOST_FRAMES * frame(options));
            let place = if by_netem { UNDER_NETEM } else { "root" };
            commands.push_str(&rate_command(options, &port, place, queue_len));
        }
        if options.link.loss_ppm > 0 {
            commands.push_str(&format!(
                "qdisc add dev {port} clsact\n\
                 filter add dev {port} egress bpf da bytecode \"{}\"\n",
                portolan_bench::loss_program(options.link.loss_ppm)
            ));
        }
    }
    commands
}

/// Parent of the port's rate if the port has netem: delayed frames continue into it (tc-netem(8),
/// "rate control").
const UNDER_NETEM: &str = "parent 1: handle 2:";

fn netem_command(options: &Options, device: &str) -> String {
    let link = &options.link;
    let in_flight = link.in_flight_len().unwrap_or(IN_FLIGHT_LEN);
    // Twice the full frames in flight, because netem counts frames and some are shorter.
    let limit = HOST_FRAMES + 2 * in_flight / frame(options);
    format!(
        "qdisc add dev {device} root handle 1: netem delay {}us limit {limit}\n",
        link.delay.as_micros()
    )
}

fn rate_command(options: &Options, device: &str, place: &str, queue_len: u64) -> String {
    let Some(rate) = options.link.rate_bits_per_sec else {
        return String::new();
    };
    let largest = match burst_limit(options) {
        Burst::Frame => frame(options),
        Burst::Segments(len) => len + HEADER,
        Burst::Whole => SUPERFRAME.max(options.mtu.into()) + HEADER,
    };
    let burst = bytes_in(SLACK_NS, rate).max(largest) + OVERHEAD;
    let limit = queue_len.max(burst);
    format!(
        "qdisc add dev {device} {place} tbf rate {rate}bit burst {burst} limit {limit} overhead {OVERHEAD}\n"
    )
}

fn frame(options: &Options) -> u64 {
    u64::from(options.mtu) + HEADER
}

/// Returns the bytes that a wire passes in a time.
fn bytes_in(time_ns: u64, rate_bits_per_sec: u64) -> u64 {
    // This cannot overflow: the largest rate times the longest time used is 10^16.
    time_ns * rate_bits_per_sec / 8_000_000_000
}

#[cfg(test)]
mod tests {
    use super::super::cores::CoreList;
    use super::*;

    fn options(host_count: u32, link: &str) -> Options {
        Options {
            name: "lab".into(),
            host_count,
            mtu: 1500,
            cores: CoreList::all(),
            link: link.parse().unwrap(),
        }
    }

    #[test]
    fn burst_limit_depends_on_rate_and_loss() {
        let limit = |link: &str| burst_limit(&options(2, link));
        assert_eq!(limit("fast-ethernet"), Burst::Frame);
        assert_eq!(limit("1g"), Burst::Segments(12_500));
        assert_eq!(limit("10g"), Burst::Whole);
        assert_eq!(limit("10g,loss=1%"), Burst::Frame);
        let jumbo = Options {
            mtu: 9000,
            ..options(2, "1g")
        };
        assert_eq!(burst_limit(&jumbo), Burst::Frame);
    }

    #[test]
    fn burst_covers_timer_lateness() {
        let host = host_commands(&options(2, "rate=1g,queue=256k"));
        let parameters = "rate 1000000000bit burst 25024 limit 262144 overhead 24";
        assert_eq!(host, format!("qdisc add dev eth0 root tbf {parameters}\n"));
        // At least the longest frame, which otherwise would never pass.
        assert!(host_commands(&options(2, "rate=10m")).contains("burst 1538 "));
        assert!(host_commands(&options(2, "rate=10g")).contains("burst 250024 "));
    }

    #[test]
    fn queue_is_at_switch_ports() {
        let options = options(3, "rate=1g,queue=64k");
        assert!(host_commands(&options).contains("limit 1514000 "));
        let switch = switch_commands(&options);
        assert_eq!(switch.matches("limit 65536 ").count(), 3);
        assert!(switch.contains("dev p2 root tbf rate 1000000000bit"));
    }

    #[test]
    fn loss_between_two_hosts_uses_a_switch_without_rate() {
        let options = options(2, "1g,loss=1%");
        assert!(plan::has_switch(&options));
        let switch = switch_commands(&options);
        assert!(!switch.contains("tbf"), "{switch}");
        assert_eq!(switch.matches("egress bpf da bytecode").count(), 2);
        assert!(!plan::has_switch(&super::tests::options(2, "1g")));
    }

    #[test]
    fn netem_delays_before_the_port_rate() {
        let switch = switch_commands(&options(3, "1g,delay=2ms,loss=1%,by=netem"));
        let netem = "dev p2 root handle 1: netem delay 2000us limit 1330\n";
        assert!(switch.contains(netem), "{switch}");
        assert!(
            switch.contains("dev p2 parent 1: handle 2: tbf rate 1000000000bit"),
            "{switch}"
        );
        let cable = switch_commands(&options(2, "1g,delay=2ms,by=netem"));
        assert_eq!(
            (cable.matches("netem").count(), cable.matches("tbf").count()),
            (2, 0)
        );
        let line = switch_commands(&options(3, "1g,delay=2ms,by=line"));
        assert!(
            !line.contains("netem") && line.contains("dev p2 root tbf"),
            "{line}"
        );
    }

    #[test]
    fn queue_shorter_than_a_frame_is_refused() {
        let error = check(&options(2, "rate=1g,queue=1500")).unwrap_err();
        assert!(error.to_string().contains("queue=1500"), "{error}");
        assert!(check(&options(2, "rate=1g,queue=1514")).is_ok());
    }
}
