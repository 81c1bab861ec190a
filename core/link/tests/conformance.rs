// SPDX-License-Identifier: MIT OR Apache-2.0
//! Conformance of all links, on the loopback, in memory, and between two namespaces.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{ADDRS, Lab, METHODS, open_packet};
use portolan_link::fault::{Fault, FaultSpec};
use portolan_link::pcap::Pcap;
use portolan_link::sim::{SimNet, SimParams};
use portolan_link::udp::{Udp, UdpConfig};
use portolan_link::{Link, Shm, ShmConfig, conformance};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

fn boxed(link: impl Link + 'static) -> Box<dyn Link> {
    Box::new(link)
}

/// Returns a UDP link on the loopback with frames of Ethernet length, so that runs have several
/// segments.
fn loopback_udp(offload: bool) -> Udp {
    let mut config = UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    config.frame_len_max = Some(1472);
    config.offload = offload;
    Udp::open(&config).unwrap()
}

#[test]
fn sim_conforms() {
    conformance::run("sim", &mut |count| {
        let net = SimNet::new(1, SimParams::default());
        (0..count).map(|_| boxed(net.port().unwrap())).collect()
    });
}

#[test]
fn shm_conforms() {
    for allow_pull in [true, false] {
        conformance::run(&format!("shm, pull {allow_pull}"), &mut |count| {
            let (job_id, secret) = (rand::random(), [7; 32]);
            let open = |rank| {
                let mut config = ShmConfig::new(job_id, rank, secret);
                config.allow_pull = allow_pull;
                boxed(Shm::open(config).unwrap())
            };
            (0_u32..).take(count).map(open).collect()
        });
    }
}

#[test]
fn udp_conforms_on_the_loopback() {
    let config = UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    conformance::run("udp, longest frames", &mut |count| {
        (0..count)
            .map(|_| boxed(Udp::open(&config).unwrap()))
            .collect()
    });
    for offload in [true, false] {
        conformance::run(&format!("udp, offload {offload}"), &mut |count| {
            (0..count).map(|_| boxed(loopback_udp(offload))).collect()
        });
    }
}

#[test]
fn udp_conforms_over_ipv6() {
    let config = UdpConfig::new("::1".parse().unwrap());
    if UdpSocket::bind("[::1]:0").is_err() {
        println!("SKIPPED udp_conforms_over_ipv6: no IPv6 on the loopback");
        return;
    }
    conformance::run("udp, IPv6", &mut |count| {
        (0..count)
            .map(|_| boxed(Udp::open(&config).unwrap()))
            .collect()
    });
}

#[test]
fn fault_without_faults_conforms() {
    conformance::run("fault(udp)", &mut |count| {
        let spec = FaultSpec::default();
        (0..count)
            .map(|_| boxed(Fault::new(loopback_udp(true), spec)))
            .collect()
    });
}

/// Runs the suite on a faulty link, to show that it can fail.
fn run_with_fault(fault: &str) {
    let spec: FaultSpec = fault.parse().unwrap();
    conformance::run("fault(sim)", &mut |count| {
        let net = SimNet::new(1, SimParams::default());
        (0..count)
            .map(|_| boxed(Fault::new(net.port().unwrap(), spec)))
            .collect()
    });
}

#[test]
#[should_panic(expected = "differs")]
fn corrupting_link_does_not_conform() {
    run_with_fault("corrupt=0.2");
}

#[test]
#[should_panic(expected = "number of frames")]
fn duplicating_link_does_not_conform() {
    run_with_fault("dup=0.2");
}

#[test]
fn pcap_conforms() {
    let dir = tempfile::tempdir().unwrap();
    conformance::run("pcap(udp)", &mut |count| {
        let path = |index| dir.path().join(format!("{index}.pcap"));
        let wrapped = |index| Pcap::create(loopback_udp(true), &path(index)).unwrap();
        (0..count).map(|index| boxed(wrapped(index))).collect()
    });
}

#[test]
fn packet_conforms_on_the_loopback() {
    let Some(lab) = Lab::try_new("packet_conforms_on_the_loopback") else {
        return;
    };
    for method in METHODS {
        conformance::run(&format!("packet by {method:?}, loopback"), &mut |count| {
            (0..count)
                .map(|_| boxed(lab.on(0, || open_packet("lo", method))))
                .collect()
        });
    }
}

#[test]
fn packet_conforms_between_hosts() {
    let Some(lab) = Lab::try_new("packet_conforms_between_hosts") else {
        return;
    };
    for method in METHODS {
        conformance::run(&format!("packet by {method:?}, veth"), &mut |count| {
            let open = |index: usize| lab.on(index.min(1), || open_packet("eth0", method));
            (0..count).map(|index| boxed(open(index))).collect()
        });
    }
}

#[test]
fn packet_conforms_with_jumbo_frames() {
    let Some(lab) = Lab::try_new("packet_conforms_with_jumbo_frames") else {
        return;
    };
    for host in 0..2 {
        lab.ip(host, &["link", "set", "eth0", "mtu", "9000"]);
    }
    for method in METHODS {
        conformance::run(
            &format!("packet by {method:?}, jumbo frames"),
            &mut |count| {
                let open = |index: usize| lab.on(index.min(1), || open_packet("eth0", method));
                let links: Vec<_> = (0..count).map(|index| boxed(open(index))).collect();
                assert_eq!(links[0].caps().frame_len_max, 8996);
                links
            },
        );
    }
}

#[test]
fn udp_conforms_between_hosts() {
    let Some(lab) = Lab::try_new("udp_conforms_between_hosts") else {
        return;
    };
    conformance::run("udp, veth", &mut |count| {
        let open = |index: usize| {
            let bind: IpAddr = ADDRS[index.min(1)].parse().unwrap();
            lab.on(index.min(1), move || {
                Udp::open(&UdpConfig::new(bind)).unwrap()
            })
        };
        let links: Vec<_> = (0..count).map(|index| boxed(open(index))).collect();
        assert_eq!(links[0].caps().frame_len_max, 1472);
        links
    });
}
