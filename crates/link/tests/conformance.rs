// SPDX-License-Identifier: MIT OR Apache-2.0
//! The suite for all links, on the loopback, in memory, and between two namespaces.

mod common;

use common::{ADDRS, Lab};
use portolan_link::fault::{Fault, FaultSpec};
use portolan_link::packet::{InterfaceRef, Packet, PacketConfig};
use portolan_link::pcap::Pcap;
use portolan_link::sim::{SimNet, SimParams};
use portolan_link::udp::{Udp, UdpConfig};
use portolan_link::{Link, LinkAddr, TxFrame, conformance};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

fn boxed(link: impl Link + 'static) -> Box<dyn Link> {
    Box::new(link)
}

/// A UDP link on the loopback with frames as long as Ethernet's, so that runs are runs.
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

/// The suite itself must be able to fail.
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
    if let Err(error) = Packet::open(&PacketConfig::new(InterfaceRef::Name("lo".into()), 1)) {
        println!("SKIPPED packet_conforms_on_the_loopback: {error}");
        return;
    }
    conformance::run("packet, loopback", &mut |count| {
        (0..count).map(|_| boxed(open_packet("lo"))).collect()
    });
}

#[test]
fn packet_conforms_between_hosts() {
    let Some(lab) = Lab::try_new("packet_conforms_between_hosts") else {
        return;
    };
    conformance::run("packet, veth", &mut |count| {
        let open = |index: usize| lab.on(index.min(1), || open_packet("eth0"));
        (0..count).map(|index| boxed(open(index))).collect()
    });
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

#[test]
fn packet_and_ip_share_an_interface() {
    let Some(lab) = Lab::try_new("packet_and_ip_share_an_interface") else {
        return;
    };
    let mut a = lab.on(0, || open_packet("eth0"));
    let mut b = lab.on(1, || open_packet("eth0"));
    a.connect(1, &b.local_addr()).unwrap();
    let socket = |host: usize| lab.on(host, move || UdpSocket::bind((ADDRS[host], 0)).unwrap());
    let (left, right) = (socket(0), socket(1));
    left.connect(right.local_addr().unwrap()).unwrap();
    right
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    for number in 0..200_u32 {
        let bytes = number.to_be_bytes();
        a.transmit(1, &TxFrame::whole(&bytes)).unwrap();
        left.send(&bytes).unwrap();
        let mut buf = [0xa5; 16];
        assert_eq!(right.recv(&mut buf).unwrap(), 4);
        assert_eq!(buf[..4], bytes);
    }
    let mut got = Vec::new();
    let start = Instant::now();
    while got.len() < 200 && start.elapsed() < Duration::from_secs(5) {
        b.receive(64, &mut |frame| {
            got.push(u32::from_be_bytes(frame.head[..4].try_into().unwrap()))
        });
    }
    assert_eq!(got, (0..200).collect::<Vec<_>>());
    assert_eq!(
        b.receive(64, &mut |_| {}),
        0,
        "only its own frames, nothing of IP's"
    );
}

#[test]
fn host_that_is_gone_is_no_error_of_the_link() {
    let Some(lab) = Lab::try_new("host_that_is_gone_is_no_error_of_the_link") else {
        return;
    };
    let mut a = lab.on(0, || open_packet("eth0"));
    let b = lab.on(1, || open_packet("eth0"));
    a.connect(1, &b.local_addr()).unwrap();
    drop(b);
    a.transmit(1, &TxFrame::whole(b"to nobody")).unwrap();
    assert_eq!(a.receive(64, &mut |_| {}), 0);
}

/// A raw Ethernet link with an endpoint that no other of this process has.
fn open_packet(interface: &str) -> Packet {
    static ENDPOINT: AtomicU16 = AtomicU16::new(1000);
    let endpoint = ENDPOINT.fetch_add(1, Ordering::Relaxed);
    let config = PacketConfig::new(InterfaceRef::Name(interface.into()), endpoint);
    let link = Packet::open(&config).unwrap();
    assert!(matches!(link.local_addr(), LinkAddr::Packet { endpoint: own, .. } if own == endpoint));
    link
}
