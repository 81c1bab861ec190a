// SPDX-License-Identifier: MIT OR Apache-2.0
//! The AF_XDP link between two hosts, in both modes: alone, with IP traffic and with `packet` links.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{ADDRS, Lab, METHODS, open_packet};
use portolan_link::packet::InterfaceRef;
use portolan_link::xdp::{Xdp, XdpConfig, XdpMode};
use portolan_link::{Link, LinkError, Notice, TxFrame, conformance};
use portolan_sys::bpf;
use portolan_sys::net::XdpSocket;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// Longer than any delay by a scheduler.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

const MODES: [XdpMode; 2] = [XdpMode::Generic, XdpMode::Native];

/// Returns two hosts, if the kernel and this process's privilege allow AF_XDP.
fn lab(test: &str) -> Option<Lab> {
    let tried = XdpSocket::open()
        .and_then(|_| bpf::create_socket_map(1))
        .map(drop);
    if let Err(why) = tried {
        println!("SKIPPED {test}: no AF_XDP here: {why}");
        return None;
    }
    Lab::try_new(test)
}

fn config(mode: XdpMode) -> XdpConfig {
    static ENDPOINT: AtomicU16 = AtomicU16::new(30_000);
    // The other process of a test uses a separate range.
    let own = u16::from(std::env::var_os(CHILD_MODE).is_some()) * 10_000;
    let endpoint = own + ENDPOINT.fetch_add(1, Ordering::Relaxed);
    let mut config = XdpConfig::new(InterfaceRef::Name("eth0".into()), endpoint);
    config.mode = mode;
    config
}

fn open(lab: &Lab, host: usize, mode: XdpMode) -> Xdp {
    lab.on(host, || Xdp::open(&config(mode)).unwrap())
}

fn refusal(lab: &Lab, config: &XdpConfig) -> LinkError {
    lab.on(1, || Xdp::open(config).err().expect("it is refused"))
}

fn receive_one(link: &mut impl Link) -> Vec<u8> {
    let start = Instant::now();
    let mut got = None;
    while got.is_none() {
        assert!(start.elapsed() < TEST_TIMEOUT, "nothing arrived");
        link.receive(1, &mut |frame| got = Some(frame.head.to_vec()));
    }
    got.unwrap()
}

/// Checks that a frame from `from` reaches `to`, its peer 1.
fn passes(from: &mut impl Link, to: &mut impl Link, byte: u8) {
    from.connect(1, &to.local_addr()).unwrap();
    from.transmit(1, &TxFrame::contiguous(&[byte; 64])).unwrap();
    assert_eq!(receive_one(to), [byte; 64]);
}

#[test]
fn xdp_conforms_between_hosts() {
    let Some(lab) = lab("xdp_conforms_between_hosts") else {
        return;
    };
    for mode in MODES {
        conformance::run(&format!("xdp, {mode} mode, veth"), &mut |count| {
            let open = |index: usize| Box::new(open(&lab, index.min(1), mode)) as Box<dyn Link>;
            (0..count).map(open).collect()
        });
    }
}

#[test]
fn xdp_conforms_with_the_longest_frames() {
    let Some(lab) = lab("xdp_conforms_with_the_longest_frames") else {
        return;
    };
    for host in 0..2 {
        lab.ip(host, &["link", "set", "eth0", "mtu", "3826"]);
    }
    conformance::run("xdp, generic mode, MTU 3826", &mut |count| {
        let open = |index: usize| open(&lab, index.min(1), XdpMode::Generic);
        let links: Vec<_> = (0..count)
            .map(|index| Box::new(open(index)) as Box<dyn Link>)
            .collect();
        assert_eq!(links[0].caps().frame_len_max, 3822);
        links
    });
    lab.ip(1, &["link", "set", "eth0", "mtu", "3827"]);
    let error = refusal(&lab, &config(XdpMode::Generic)).to_string();
    assert!(error.contains("lower its MTU to 3826"), "{error}");
}

#[test]
fn ip_traffic_is_unaffected() {
    let Some(lab) = lab("ip_traffic_is_unaffected") else {
        return;
    };
    for mode in MODES {
        let (mut a, mut b) = (open(&lab, 0, mode), open(&lab, 1, mode));
        a.connect(1, &b.local_addr()).unwrap();
        let socket = |host: usize| lab.on(host, move || UdpSocket::bind((ADDRS[host], 0)).unwrap());
        let (left, right) = (socket(0), socket(1));
        left.connect(right.local_addr().unwrap()).unwrap();
        right.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        for number in 0..200_u32 {
            let bytes = number.to_be_bytes();
            a.transmit(1, &TxFrame::contiguous(&bytes)).unwrap();
            left.send(&bytes).unwrap();
            let mut buf = [0xa5; 16];
            assert_eq!(right.recv(&mut buf).unwrap(), 4);
            assert_eq!(buf[..4], bytes);
            assert_eq!(receive_one(&mut b), bytes);
        }
        stream_passes(&lab);
        assert_eq!(b.receive(64, &mut |_| {}), 0, "nothing of IP's");
    }
}

/// Sends 1 MiB by TCP from host 0 to host 1.
fn stream_passes(lab: &Lab) {
    let listener = lab.on(1, || TcpListener::bind((ADDRS[1], 0)).unwrap());
    let addr = listener.local_addr().unwrap();
    let mut stream = lab.on(0, || TcpStream::connect(addr).unwrap());
    let (mut accepted, _) = listener.accept().unwrap();
    accepted.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| stream.write_all(&bytes).unwrap());
        let mut got = vec![0xa5; bytes.len()];
        accepted.read_exact(&mut got).unwrap();
        assert!(got == bytes, "TCP's bytes differ");
    });
}

#[test]
fn xdp_interoperates_with_packet() {
    let Some(lab) = lab("xdp_interoperates_with_packet") else {
        return;
    };
    for mode in MODES {
        for method in METHODS {
            let (mut a, mut b) = (open(&lab, 0, mode), open(&lab, 1, mode));
            let mut plain_a = lab.on(0, || open_packet("eth0", method));
            let mut plain_b = lab.on(1, || open_packet("eth0", method));
            passes(&mut a, &mut plain_b, 1);
            passes(&mut plain_b, &mut a, 2);
            passes(&mut plain_a, &mut plain_b, 3);
            passes(&mut plain_a, &mut b, 4);
            assert_eq!(a.receive(64, &mut |_| {}), 0);
            assert_eq!(plain_b.receive(64, &mut |_| {}), 0);
        }
    }
}

#[test]
fn last_process_detaches_the_program() {
    let Some(lab) = lab("last_process_detaches_the_program") else {
        return;
    };
    for mode in MODES {
        let mut from = open(&lab, 0, mode);
        let mut first = open(&lab, 1, mode);
        let mut second = open(&lab, 1, mode);
        passes(&mut from, &mut first, 1);
        passes(&mut from, &mut second, 2);
        let how = match mode {
            XdpMode::Generic => "xdpgeneric",
            XdpMode::Native => "xdp",
        };
        assert!(lab.has_xdp(1, how), "{mode} mode");
        // The founder leaves with frames that it has not received.
        from.connect(2, &first.local_addr()).unwrap();
        for _ in 0..100 {
            from.transmit(2, &TxFrame::contiguous(&[3; 1000])).unwrap();
        }
        drop(first);
        passes(&mut from, &mut second, 4);
        // More processes than places, one after the other: places and chunks are reused.
        for byte in 0..100 {
            let mut next = open(&lab, 1, mode);
            passes(&mut from, &mut next, byte);
            drop(next);
        }
        passes(&mut from, &mut second, 5);
        drop(second);
        assert!(!lab.has_xdp(1, how), "the program is still attached");
        let mut again = open(&lab, 1, mode);
        passes(&mut from, &mut again, 6);
    }
}

/// Variable that turns this program into a process to be killed.
const CHILD_MODE: &str = "PORTOLAN_TEST_XDP_MODE";

/// Opens a link, reports that, and waits to be killed.
#[test]
fn child() {
    let Ok(mode) = std::env::var(CHILD_MODE) else {
        return;
    };
    let _link = Xdp::open(&config(mode.parse().unwrap())).unwrap();
    println!("\nopen");
    std::thread::sleep(TEST_TIMEOUT);
}

#[test]
fn others_continue_after_the_founder_is_killed() {
    let Some(lab) = lab("others_continue_after_the_founder_is_killed") else {
        return;
    };
    for mode in MODES {
        let mut founder = lab
            .command(1, &std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture"])
            .env(CHILD_MODE, mode.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(founder.stdout.take().unwrap());
        assert!(output.lines().any(|line| line.unwrap() == "open"));
        let mut from = open(&lab, 0, mode);
        let mut other = open(&lab, 1, mode);
        passes(&mut from, &mut other, 1);
        founder.kill().unwrap();
        founder.wait().unwrap();
        passes(&mut from, &mut other, 2);
        let mut newcomer = open(&lab, 1, mode);
        for byte in 0..100 {
            passes(&mut from, &mut newcomer, byte);
            passes(&mut newcomer, &mut from, byte);
        }
    }
}

/// Sends more frames than the area has chunks through each of two processes that share it.
#[test]
fn chunks_are_reused() {
    let Some(lab) = lab("chunks_are_reused") else {
        return;
    };
    for mode in MODES {
        let mut from = open(&lab, 0, mode);
        let mut both = [open(&lab, 1, mode), open(&lab, 1, mode)];
        for (peer, link) in (0..).zip(&both) {
            from.connect(peer, &link.local_addr()).unwrap();
        }
        for number in 0..20_000_u32 {
            let at = number as usize % 2;
            let bytes = number.to_be_bytes();
            while from
                .transmit(number % 2, &TxFrame::contiguous(&bytes))
                .is_err()
            {}
            assert_eq!(receive_one(&mut both[at]), bytes);
        }
    }
}

#[test]
fn idle_receiver_does_not_block_others() {
    let Some(lab) = lab("idle_receiver_does_not_block_others") else {
        return;
    };
    for mode in MODES {
        let mut from = open(&lab, 0, mode);
        let (mut idle, mut busy) = (open(&lab, 1, mode), open(&lab, 1, mode));
        from.connect(2, &idle.local_addr()).unwrap();
        let mut sent = 0;
        while sent < 5000 {
            sent += usize::from(from.transmit(2, &TxFrame::contiguous(&[1; 64])).is_ok());
        }
        for byte in 0..100 {
            passes(&mut from, &mut busy, byte);
        }
        let mut taken = 0;
        while idle.receive(64, &mut |_| taken += 1) > 0 {}
        assert!((1..5000).contains(&taken), "{taken} frames waited");
        let notice = idle.poll_notice();
        assert!(
            matches!(notice, Some(Notice::Dropped("xdp_receive_ring_full"))),
            "{notice:?}"
        );
        let dropped = 1 + std::iter::from_fn(|| idle.poll_notice()).count();
        assert_eq!(taken + dropped, 5000, "each frame is received or reported");
    }
}

#[test]
fn conflicting_settings_are_refused_with_a_remedy() {
    let Some(lab) = lab("conflicting_settings_are_refused_with_a_remedy") else {
        return;
    };
    let first = config(XdpMode::Generic);
    let _open = lab.on(1, || Xdp::open(&first).unwrap());
    let error = refusal(&lab, &first).to_string();
    assert!(error.contains("no other process there has"), "{error}");
    let error = refusal(&lab, &config(XdpMode::Native)).to_string();
    assert!(
        error.contains("other processes use generic mode"),
        "{error}"
    );
    let most = std::iter::from_fn(|| lab.on(1, || Xdp::open(&config(XdpMode::Generic)).ok()));
    let most: Vec<_> = most.take(64).collect();
    assert!(most.len() >= 7, "{} more", most.len());
    let error = refusal(&lab, &config(XdpMode::Generic)).to_string();
    assert!(error.contains("start fewer"), "{error}");
}

/// Another user may take the name of a group before it is founded.
#[test]
fn name_of_another_user_is_not_joined() {
    let Some(lab) = lab("name_of_another_user_is_not_joined") else {
        return;
    };
    let eth0 = lab.on(1, || portolan_link::interfaces().unwrap());
    let eth0 = eth0.iter().find(|one| one.name == "eth0").unwrap().index;
    let program = format!(
        "import os, socket, sys; os.setuid(65534); \
         s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); \
         s.bind('\\0portolan-xdp-{eth0}-0'); s.listen(); print('open', flush=True); sys.stdin.read()"
    );
    let mut other_user = lab
        .command(1, Path::new("python3"))
        .args(["-c", &program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = String::new();
    let mut reader = BufReader::new(other_user.stdout.take().unwrap());
    reader.read_line(&mut output).unwrap();
    assert_eq!(output, "open\n");
    let error = refusal(&lab, &config(XdpMode::Generic)).to_string();
    other_user.kill().unwrap();
    other_user.wait().unwrap();
    assert!(error.contains("another user's"), "{error}");
}

#[test]
fn interface_down_is_reported_to_senders_and_recovers() {
    let Some(lab) = lab("interface_down_is_reported_to_senders_and_recovers") else {
        return;
    };
    for mode in MODES {
        let (mut a, mut b) = (open(&lab, 0, mode), open(&lab, 1, mode));
        a.connect(1, &b.local_addr()).unwrap();
        lab.ip(0, &["link", "set", "eth0", "down"]);
        for _ in 0..300 {
            let sent = a.transmit(1, &TxFrame::contiguous(b"into the void"));
            let Err(portolan_link::TxError::System(error)) = sent else {
                panic!("{sent:?}");
            };
            assert_eq!(error.raw_os_error(), Some(libc::ENETDOWN));
        }
        lab.ip(0, &["link", "set", "eth0", "up"]);
        let start = Instant::now();
        let mut got = Vec::new();
        while got != [9; 64] {
            assert!(
                start.elapsed() < TEST_TIMEOUT,
                "the interface does not come back"
            );
            let _ = a.transmit(1, &TxFrame::contiguous(&[9; 64]));
            b.receive(64, &mut |frame| got = frame.head.to_vec());
        }
    }
}
