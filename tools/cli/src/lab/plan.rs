// SPDX-License-Identifier: MIT OR Apache-2.0
//! Namespaces, names, addresses and commands that make up a lab. This module changes nothing; it
//! only checks if the kernel has IPv6.

use super::cores::Cores;
use super::link::{DelayBy, Link};
use super::{Options, shape};
use crate::error::user_error;
use anyhow::Result;
use std::net::Ipv4Addr;
use std::path::Path;

/// Largest number of hosts: a Linux bridge has at most 1024 ports (BR_MAX_PORTS in
/// net/bridge/br_private.h).
pub(crate) const HOSTS_MAX: u32 = 1024;

/// Smallest MTU that jobs can use. Their frames have at least 512 bytes, sealed ones 24 more, and
/// every host must accept datagrams of 576 bytes (RFC 791).
const MTU_MIN: u32 = 576;

/// Largest MTU of a veth interface (ETH_MAX_MTU in include/uapi/linux/if_ether.h).
const MTU_MAX: u32 = 65535;

/// Longest name: `NAME-h1023` is also a file name, and should fit a column.
const NAME_LEN_MAX: usize = 64;

/// Address of host 0. A /16 network has room for the addresses of 1024 hosts.
const FIRST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const PREFIX_LEN: u32 = 16;

/// Directory that exists if the kernel has IPv6.
const IPV6: &str = "/proc/sys/net/ipv6";

/// First word of the alias of a lab namespace's `lo`.
const MARK: &str = "portolan-lab";

/// Contents of a namespace's mark `portolan-lab:HOSTS:MTU:CORES:LINK`, with the cores of this host.
/// It has at most 255 bytes (`IFALIASZ` of include/uapi/linux/if.h).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) host_count: u32,
    pub(super) mtu: u32,
    pub(super) cores: Cores,
    pub(super) link: Link,
}

/// Returns an error for options from which no lab can be created.
pub(super) fn check(options: &Options) -> Result<()> {
    let name = &options.name;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let starts_plain = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if !starts_plain || !name.chars().all(plain) || name.len() > NAME_LEN_MAX {
        user_error!(
            "{name:?} cannot name a lab: use a letter or digit, then letters, digits, - and _, \
             at most {NAME_LEN_MAX} characters"
        );
    }
    if options.host_count == 0 || options.host_count > HOSTS_MAX {
        user_error!(
            "a lab cannot have {} hosts: a bridge joins 1 to {HOSTS_MAX} hosts; change --hosts",
            options.host_count
        );
    }
    if !(MTU_MIN..=MTU_MAX).contains(&options.mtu) {
        user_error!(
            "an MTU of {} is not possible: Portolan's frames need at least {MTU_MIN} bytes, and \
             veth interfaces support at most {MTU_MAX}; change --mtu",
            options.mtu
        );
    }
    let usable = portolan_bench::usable_cores();
    if let Some(core) = options.cores.first_unusable(&usable) {
        user_error!(
            "--cores: this process may not use core {core}: choose from {}",
            Cores::new(usable)
        );
    }
    shape::check(options)
}

/// Returns the name of the namespace of host `index` of the lab `name`.
pub(super) fn host_namespace(name: &str, index: u32) -> String {
    format!("{name}-h{index}")
}

/// Returns the name of the bridge's namespace.
pub(super) fn switch_namespace(name: &str) -> String {
    format!("{name}-sw")
}

/// Returns the name of a temporary namespace for testing the kernel's features.
pub(super) fn trial_namespace(name: &str) -> String {
    format!("{name}-try{}", std::process::id())
}

/// Parses the lab and the host index from the name of a namespace.
pub(super) fn host_of(namespace: &str) -> Option<(&str, u32)> {
    let (name, digits) = namespace.rsplit_once("-h")?;
    let index = digits.parse().ok()?;
    // `lab-h01` is not a name that this program creates.
    (!name.is_empty() && host_namespace(name, index) == namespace).then_some((name, index))
}

/// Returns the address of host `index`.
pub(super) fn address(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST_ADDRESS.to_bits() + index)
}

/// Returns the names of all namespaces of the lab.
pub(super) fn namespaces(options: &Options) -> Vec<String> {
    let mut names: Vec<String> = (0..options.host_count)
        .map(|index| host_namespace(&options.name, index))
        .collect();
    if has_switch(options) {
        names.push(switch_namespace(&options.name));
    }
    names
}

/// Returns commands that mark a namespace as this program's and bring `lo` up.
pub(super) fn mark_commands(options: &Options, namespace: &str) -> String {
    let Options {
        host_count,
        mtu,
        link,
        ..
    } = options;
    let cores = match host_of(namespace) {
        Some((_, index)) => options.cores.of_host(index),
        None => Cores::default(),
    };
    format!("link set dev lo alias {MARK}:{host_count}:{mtu}:{cores}:{link}\nlink set dev lo up\n")
}

/// Parses a mark.
pub(super) fn parse_mark(alias: &str) -> Option<Mark> {
    let words: Vec<&str> = alias.split(':').collect();
    let [MARK, host_count, mtu, cores, link] = words[..] else {
        return None;
    };
    Some(Mark {
        host_count: host_count.parse().ok()?,
        mtu: mtu.parse().ok()?,
        cores: cores.parse().ok()?,
        link: match link {
            "" => Link::default(),
            link => link.parse().ok()?,
        },
    })
}

/// Returns the commands that join the hosts, in batches with the namespace to run them in.
pub(super) fn network_commands(options: &Options) -> Vec<(String, String)> {
    let mut batches = Vec::new();
    if has_switch(options) {
        batches.push((switch_namespace(&options.name), switch_commands(options)));
    } else {
        let [here, there] = [0, 1].map(|index| host_namespace(&options.name, index));
        let mtu = options.mtu;
        let pair = format!(
            "link add name eth0 mtu {mtu} type veth peer name eth0 mtu {mtu} netns {there}\n"
        );
        batches.push((here, pair));
    }
    for index in 0..options.host_count {
        let commands = format!(
            "address add {}/{PREFIX_LEN} dev eth0\nlink set dev eth0 up\n",
            address(index)
        );
        batches.push((host_namespace(&options.name, index), commands));
    }
    batches
}

/// Returns true if the lab has a switch. A single host has one, so that programs find the expected
/// interface. Two hosts have one if frames are delayed or lost between them.
pub(super) fn has_switch(options: &Options) -> bool {
    options.host_count != 2 || shape::needs_switch(&options.link)
}

fn switch_commands(options: &Options) -> String {
    let mtu = options.mtu;
    if options.link.delay_by == Some(DelayBy::Line) {
        return line_commands(options);
    }
    // Without its own MTU the bridge takes the smallest of its ports. Snooping is off, so that
    // broadcast and multicast reach every host, as on a plain switch.
    let mut commands = String::from("link add name br0 type bridge mcast_snooping 0\n");
    for index in 0..options.host_count {
        let host = host_namespace(&options.name, index);
        let port = port(index);
        commands.push_str(&format!(
            "link add name {port} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {host}\n\
             link set dev {port} master br0 up\n"
        ));
    }
    commands.push_str("link set dev br0 up\n");
    commands
}

/// Returns commands for cables if the line opens their other ends. Nothing else joins them, and the
/// kernel sends no frames of its own.
fn line_commands(options: &Options) -> String {
    let mtu = options.mtu;
    let mut commands = String::new();
    for index in 0..options.host_count {
        let host = host_namespace(&options.name, index);
        let port = port(index);
        commands.push_str(&format!(
            "link add name {port} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {host}\n"
        ));
        // A kernel without IPv6 rejects this command and does not need it.
        if Path::new(IPV6).exists() {
            commands.push_str(&format!("link set dev {port} addrgenmode none\n"));
        }
        commands.push_str(&format!("link set dev {port} up\n"));
    }
    commands
}

/// Returns the name of the other end of host `index`'s cable, in the namespace of the switch.
pub(super) fn port(index: u32) -> String {
    format!("p{index}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(name: &str, host_count: u32) -> Options {
        Options {
            name: name.into(),
            host_count,
            mtu: 1500,
            cores: "all".parse().unwrap(),
            link: Link::default(),
        }
    }

    #[test]
    fn addresses_carry_into_the_third_byte() {
        assert_eq!(address(0), Ipv4Addr::new(10, 77, 0, 1));
        assert_eq!(address(254), Ipv4Addr::new(10, 77, 0, 255));
        assert_eq!(address(255), Ipv4Addr::new(10, 77, 1, 0));
        assert_eq!(address(HOSTS_MAX - 1), Ipv4Addr::new(10, 77, 4, 0));
    }

    #[test]
    fn host_of_accepts_only_generated_names() {
        assert_eq!(host_of("lab-h0"), Some(("lab", 0)));
        assert_eq!(host_of("my-h1-h12"), Some(("my-h1", 12)));
        for other in ["lab-sw", "lab-h", "lab-h01", "-h1", "h1", "lab-h+1", "vpn"] {
            assert_eq!(host_of(other), None, "{other}");
        }
    }

    #[test]
    fn marks_round_trip() {
        let read = |options: &Options, namespace: &str| {
            let commands = mark_commands(options, namespace);
            let alias = commands.lines().next().unwrap().rsplit(' ').next();
            parse_mark(alias.unwrap()).unwrap()
        };
        let mut options = options("lab", 3);
        options.cores = "0,1-2".parse().unwrap();
        let mark = read(&options, "lab-h1");
        assert_eq!((mark.host_count, mark.mtu), (3, 1500));
        assert_eq!(
            (mark.cores.numbers(), mark.link),
            (&[1, 2][..], Link::default())
        );
        options.link = "25g,loss=0.1%".parse().unwrap();
        assert_eq!(read(&options, "lab-h2").link, options.link);
        assert!(read(&options, "lab-sw").cores.numbers().is_empty());
        for other in [
            "",
            "portolan-lab",
            "portolan-lab:3:1500",
            "other:3:1500:all:",
            "portolan-lab:3:1500:all:x",
            "portolan-lab:3:1500:all::1",
        ] {
            assert_eq!(parse_mark(other), None, "{other}");
        }
    }

    #[test]
    fn only_two_hosts_need_no_switch() {
        assert_eq!(namespaces(&options("lab", 2)), ["lab-h0", "lab-h1"]);
        assert_eq!(namespaces(&options("lab", 1)), ["lab-h0", "lab-sw"]);
        assert_eq!(namespaces(&options("lab", 3)).last().unwrap(), "lab-sw");
        let batches = network_commands(&options("lab", 3));
        assert_eq!(batches[0].0, "lab-sw");
        assert_eq!(batches[0].1.matches("master br0").count(), 3);
        let link = "delay=1ms,by=line".parse().unwrap();
        let delayed = Options {
            link,
            ..options("lab", 2)
        };
        assert_eq!(namespaces(&delayed).last().unwrap(), "lab-sw");
        assert!(!network_commands(&delayed)[0].1.contains("br0"));
    }

    #[test]
    fn check_refuses_invalid_options() {
        assert!(check(&options("lab", 2)).is_ok());
        for name in ["", "-x", "a b", "a/b", "..", &"x".repeat(65)] {
            assert!(check(&options(name, 2)).is_err(), "{name}");
        }
        assert!(check(&options("lab", 0)).is_err());
        assert!(check(&options("lab", HOSTS_MAX + 1)).is_err());
        assert!(
            check(&Options {
                mtu: 575,
                ..options("lab", 2)
            })
            .is_err()
        );
    }
}
