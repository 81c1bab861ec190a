// SPDX-License-Identifier: MIT OR Apache-2.0
//! Making the wires of a lab as slow, and as lossy, as `--link` says: which commands of `ip` and `tc`.
//!
//! A host's interface sends at the wire's rate (tbf), as its NIC would, and what runs there feels it: a
//! full queue holds senders up. With a switch each port sends at that rate towards its host, and drops
//! what its queue does not hold. Loss is at a port's way out: a frame is lost after it has left its
//! sender, which is not told, and each receiver of a broadcast loses for itself.

use super::link::{DelayBy, Link, UNDER_WAY_LEN};
use super::{Options, ip, line, plan};
use crate::error::user_error;
use anyhow::Result;

/// What a frame takes on a wire of Ethernet beside the bytes that the kernel counts: preamble 8,
/// checksum 4, gap 12 (IEEE 802.3, clause 4).
const OVERHEAD: u64 = 24;

/// Bytes in front of what an MTU counts.
const HEADER: u64 = 14;

/// How late a timer of the kernel may be, before the wire loses of its rate: what it lets through at once after
/// a pause. With half of it a busy virtual machine stayed 2 % below a gigabit.
const SLACK_NS: u64 = 200_000;

/// How long a burst of segments may take: it arrives in one lump, which a wire would spread. With single
/// frames the same machine had no time for a gigabit.
const LUMP_NS: u64 = 100_000;

/// A burst of segments of the kernel (GSO, TSO), at most.
const SUPERFRAME: u64 = 65_536;

/// Frames that wait at a host's interface (`txqueuelen`, `DEFAULT_TX_QUEUE_LEN` of
/// include/linux/netdevice.h).
const HOST_FRAMES: u64 = 1000;

/// Whether frames are to be dropped between the hosts, where neither of two would be told, or held up there.
pub(super) fn needs_switch(link: &Link) -> bool {
    link.loss_ppm > 0 || !link.delay.is_zero()
}

/// Decides what makes the delay, if there is one: the kernel where it can, which costs no process.
pub(super) fn settle(options: &Options) -> Result<Options> {
    let mut options = options.clone();
    let link = &mut options.link;
    if link.delay.is_zero() {
        return Ok(options);
    }
    let by = match link.delay_by {
        Some(DelayBy::Line) => DelayBy::Line,
        asked => match has_netem(&options.name)? {
            true => DelayBy::Netem,
            false if asked.is_none() => DelayBy::Line,
            false => user_error!(
                "--link: by=netem cannot be made: this kernel has no netem (NET_SCH_NETEM); leave it out for a \
                 process that holds frames up"
            ),
        },
    };
    link.delay_by = Some(by);
    if by == DelayBy::Line {
        line::check(link)?;
    }
    Ok(options)
}

/// Tried on the `lo` of a namespace that is made for it: what is listed, or can be loaded, differs from what
/// works.
fn has_netem(name: &str) -> Result<bool> {
    let namespace = plan::trial_namespace(name);
    ip::run(&["netns", "add", &namespace])?;
    let has = ip::can_shape(&namespace, "qdisc add dev lo root netem delay 1ms\n");
    ip::run(&["netns", "delete", &namespace])?;
    has
}

/// Refuses what cannot be made with this MTU.
pub(super) fn check(options: &Options) -> Result<()> {
    let frame = frame(options);
    if let Some(len) = options.link.queue_len
        && len < frame
    {
        user_error!(
            "--link: queue={len} holds no frame of MTU {}, which has {frame} bytes: make it longer",
            options.mtu
        );
    }
    Ok(())
}

/// Shapes a lab whose interfaces are there.
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

/// What the kernel hands over at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Burst {
    /// Single frames.
    Frame,
    /// Segments, so many bytes of them.
    Segments(u64),
    /// As many as ever: what a NIC takes that segments by itself.
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

/// Bursts last [`LUMP_NS`] at most. Losses are of frames, one by one.
fn burst_limit(options: &Options) -> Burst {
    if options.link.loss_ppm > 0 {
        return Burst::Frame;
    }
    let rate = options.link.rate_bits_per_sec;
    match rate.map(|rate| bytes_in(LUMP_NS, rate)) {
        Some(len) if len < 2 * frame(options) => Burst::Frame,
        Some(len) if len < SUPERFRAME => Burst::Segments(len),
        _ => Burst::Whole,
    }
}

fn host_commands(options: &Options) -> String {
    let queue_len = match (options.link.queue_len, options.host_count > 2) {
        // A cable, or a switch that only loses: what waits, waits at the NIC.
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

/// Where the port's rate is when netem is at the port: what has been held up goes on into it (tc-netem(8),
/// "rate control").
const UNDER_NETEM: &str = "parent 1: handle 2:";

fn netem_command(options: &Options, device: &str) -> String {
    let link = &options.link;
    let under_way = link.under_way_len().unwrap_or(UNDER_WAY_LEN);
    // Of what is under way in full frames twice, for netem counts frames and some are shorter.
    let limit = HOST_FRAMES + 2 * under_way / frame(options);
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

/// Bytes that a wire passes in a time.
fn bytes_in(time_ns: u64, rate_bits_per_sec: u64) -> u64 {
    // No overflow: the largest rate for the longest time used has 10^16.
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
    fn bursts_of_segments_are_short_where_a_wire_would_spread_them() {
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
    fn a_wire_lets_as_much_through_at_once_as_timers_are_late() {
        let host = host_commands(&options(2, "rate=1g,queue=256k"));
        let told = "rate 1000000000bit burst 25024 limit 262144 overhead 24";
        assert_eq!(host, format!("qdisc add dev eth0 root tbf {told}\n"));
        // At least the longest frame, which would never pass otherwise.
        assert!(host_commands(&options(2, "rate=10m")).contains("burst 1538 "));
        assert!(host_commands(&options(2, "rate=10g")).contains("burst 250024 "));
    }

    #[test]
    fn ports_of_a_switch_have_the_queue_and_hosts_one_of_their_own() {
        let options = options(3, "rate=1g,queue=64k");
        assert!(host_commands(&options).contains("limit 1514000 "));
        let switch = switch_commands(&options);
        assert_eq!(switch.matches("limit 65536 ").count(), 3);
        assert!(switch.contains("dev p2 root tbf rate 1000000000bit"));
    }

    #[test]
    fn losses_between_two_hosts_take_a_switch_that_has_no_rate() {
        let options = options(2, "1g,loss=1%");
        assert!(plan::has_switch(&options));
        let switch = switch_commands(&options);
        assert!(!switch.contains("tbf"), "{switch}");
        assert_eq!(switch.matches("egress bpf da bytecode").count(), 2);
        assert!(!plan::has_switch(&super::tests::options(2, "1g")));
    }

    #[test]
    fn netem_holds_frames_up_in_front_of_a_port_s_rate() {
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
    fn a_queue_holds_a_frame_at_least() {
        let error = check(&options(2, "rate=1g,queue=1500")).unwrap_err();
        assert!(error.to_string().contains("queue=1500"), "{error}");
        assert!(check(&options(2, "rate=1g,queue=1514")).is_ok());
    }
}
