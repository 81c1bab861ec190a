// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers and clients without a launcher, as nodes of one process. Each client runs in a thread of
//! its own.

use crate::common::PATIENCE;
use crate::lab::{Lab, ROLE, print_line, read_line_after};
use portolan::{
    EndpointConfig, Error, Node, PathChoice, Peer, PeerEvent, PeerEventKind, PortConfig, Target,
};
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::{JoinHandle, spawn};
use std::time::{Duration, Instant};

const SECRET: &[u8] = b"sixteen bytes at least";
const PORT: u16 = 7;

pub(crate) fn node(path: PathChoice) -> Node {
    let mut config = EndpointConfig::default();
    config.path = path;
    config.interface = Some("lo".to_owned());
    Node::standalone_with(&config).unwrap()
}

/// Opens a node that listens, and returns its address.
fn server(path: PathChoice) -> (Node, String) {
    let mut node = node(path);
    node.open(PORT, PortConfig::default()).unwrap();
    let address = node.listen("127.0.0.1:0", SECRET).unwrap();
    (node, address.to_string())
}

/// Waits for the next event of a peer.
fn next_event(node: &mut Node) -> PeerEvent {
    let begin = Instant::now();
    loop {
        if let Some(event) = node.next_peer_event() {
            return event;
        }
        assert!(begin.elapsed() < PATIENCE, "no event");
        let _ = node.recv_timeout(PORT, &mut [0; 64], Duration::from_millis(5));
    }
}

fn expect(node: &mut Node, kind: PeerEventKind) -> Peer {
    let event = next_event(node);
    assert_eq!(event.kind, kind, "{event:?}");
    event.peer()
}

/// Starts a client in a thread: it calls the server `count` times, and leaves.
fn calling_client(path: PathChoice, address: String, count: u32) -> JoinHandle<()> {
    spawn(move || {
        let mut client = node(path);
        let server = client.connect(&address, SECRET, PATIENCE).unwrap();
        for number in 0..count {
            let bytes = number.to_le_bytes();
            let call = client.call(server.port(PORT), &bytes).timeout(PATIENCE);
            assert_eq!(call.wait().unwrap().bytes, bytes);
        }
        client.close().unwrap();
    })
}

fn serve(node: &mut Node, count: u32) {
    for _ in 0..count {
        let call = node.recv_call(PORT, Some(PATIENCE)).unwrap().unwrap();
        let bytes = call.bytes().to_vec();
        node.reply(call.reply_to(), 0, bytes).unwrap();
    }
}

fn clients_call_and_leave(path: PathChoice) {
    let (mut server, address) = server(path);
    let clients = [0, 1].map(|_| calling_client(path, address.clone(), 50));
    serve(&mut server, 100);
    let mut kinds: Vec<_> = (0..4).map(|_| next_event(&mut server).kind).collect();
    kinds.sort_unstable_by_key(|kind| *kind == PeerEventKind::Left);
    let (joined, left) = (PeerEventKind::Joined, PeerEventKind::Left);
    assert_eq!(kinds, [joined, joined, left, left]);
    assert_eq!(server.peers(), []);
    clients
        .into_iter()
        .for_each(|client| client.join().unwrap());
}

#[test]
fn clients_call_and_leave_by_udp() {
    clients_call_and_leave(PathChoice::Udp);
}

#[test]
fn clients_call_and_leave_by_shm() {
    clients_call_and_leave(PathChoice::Auto);
}

#[test]
fn peers_of_one_host_share_memory() {
    let (mut server, address) = server(PathChoice::Auto);
    let client = spawn(move || {
        let mut client = node(PathChoice::Auto);
        let server = client.connect(&address, SECRET, PATIENCE).unwrap();
        client.send(server.port(PORT), b"ahoy").unwrap();
        assert!(client.shares_memory(server.rank()));
        client.close().unwrap();
    });
    let (message, from) = server.recv_vec::<u8>(PORT).unwrap();
    assert_eq!(message, b"ahoy");
    assert!(server.shares_memory(from));
    client.join().unwrap();
}

#[test]
fn sealed_peers_exchange_long_messages() {
    let sealed = || {
        let mut config = EndpointConfig::default();
        (config.path, config.encrypt) = (PathChoice::Udp, true);
        config.interface = Some("lo".to_owned());
        Node::standalone_with(&config).unwrap()
    };
    let mut server = sealed();
    server.open(PORT, PortConfig::default()).unwrap();
    let address = server.listen("127.0.0.1:0", SECRET).unwrap().to_string();
    let plain_address = address.clone();
    let sent: Vec<u8> = (0..=250).cycle().take(300_000).collect();
    let expected = sent.clone();
    let client = spawn(move || {
        let mut client = sealed();
        let server = client.connect(&address, SECRET, PATIENCE).unwrap();
        client.send(server.port(PORT), &sent).unwrap();
        client.close().unwrap();
    });
    assert_eq!(server.recv_vec::<u8>(PORT).unwrap().0, expected);
    client.join().unwrap();
    let refused = node(PathChoice::Udp).connect(&plain_address, SECRET, PATIENCE);
    let is_about_secret = match refused {
        Err(Error::ServerRefused {
            is_wrong_secret, ..
        }) => is_wrong_secret,
        other => panic!("{other:?}"),
    };
    assert!(!is_about_secret);
}

#[test]
fn wrong_secret_is_refused_at_once() {
    let (mut server, address) = server(PathChoice::Auto);
    let mut client = node(PathChoice::Auto);
    let refused = client.connect(&address, b"a guess", Duration::MAX);
    assert!(
        matches!(
            refused,
            Err(Error::ServerRefused {
                is_wrong_secret: true,
                ..
            })
        ),
        "{refused:?}"
    );
    assert_eq!((server.peers(), client.peers()), (vec![], vec![]));
    assert_eq!(server.next_peer_event(), None);
    assert!(
        client.connect(&address, b"", PATIENCE).is_err(),
        "no secret"
    );
}

#[test]
fn second_listener_with_another_secret_is_another_door() {
    let (mut server, address) = server(PathChoice::Auto);
    let other = server.listen("127.0.0.1:0", b"another secret").unwrap();
    let mut client = node(PathChoice::Auto);
    let to = client.connect(&other.to_string(), b"another secret", PATIENCE);
    // Through the first door the client finds the same peer.
    assert_eq!(
        client.connect(&address, SECRET, PATIENCE).unwrap(),
        to.unwrap()
    );
    assert_eq!(client.peers().len(), 1);
    let taken = server.listen(&address, SECRET);
    assert!(matches!(taken, Err(Error::Address { .. })), "{taken:?}");
}

#[test]
fn client_may_start_before_its_server() {
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = place.local_addr().unwrap().to_string();
    drop(place);
    let to = address.clone();
    let early = node(PathChoice::Auto).connect(&to, SECRET, Duration::from_millis(30));
    assert!(matches!(early, Err(Error::NoServer { .. })), "{early:?}");
    let client = calling_client(PathChoice::Auto, to, 1);
    std::thread::sleep(Duration::from_millis(50));
    let mut late = node(PathChoice::Auto);
    late.open(PORT, PortConfig::default()).unwrap();
    late.listen(&address, SECRET).unwrap();
    serve(&mut late, 1);
    client.join().unwrap();
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    let (mut server, address) = server(PathChoice::Auto);
    let connect = || TcpStream::connect(&address).unwrap();
    let mut silent: Vec<_> = (0..50).map(|_| connect()).collect();
    let mut other_program = connect();
    other_program.write_all(&[b'G'; 200]).unwrap();
    let client = calling_client(PathChoice::Auto, address.clone(), 10);
    serve(&mut server, 10);
    client.join().unwrap();
    // The process that speaks another protocol is disconnected; the silent ones are still there.
    assert!(matches!(other_program.read(&mut [0]), Ok(0) | Err(_)));
    silent[0].set_nonblocking(true).unwrap();
    let waits = silent[0].read(&mut [0]).unwrap_err();
    assert_eq!(waits.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn disconnected_peer_returns_as_another() {
    let (mut server, address) = server(PathChoice::Auto);
    let mut client = node(PathChoice::Auto);
    let first = client.connect(&address, SECRET, PATIENCE).unwrap();
    client.disconnect(first).unwrap();
    assert!(matches!(
        client.send(first.port(PORT), b"late"),
        Err(Error::PeerGone { .. })
    ));
    let second = client.connect(&address, SECRET, PATIENCE).unwrap();
    assert_ne!(first, second);
    client.disconnect(first).unwrap();
    assert_eq!(client.peers(), [second], "not this one");
    let of_first = expect(&mut server, PeerEventKind::Joined);
    assert_eq!(expect(&mut server, PeerEventKind::Left), of_first);
    let of_second = expect(&mut server, PeerEventKind::Joined);
    assert_ne!(of_first, of_second);
    assert_eq!(server.peers(), [of_second]);
    // Numbers of former peers are used again, by another generation.
    let begin = Instant::now();
    let mut last = second;
    while last.generation() == 0 {
        assert!(begin.elapsed() < PATIENCE, "no number is used again");
        client.disconnect(last).unwrap();
        while client.next_peer_event().is_some() {}
        last = client.connect(&address, SECRET, PATIENCE).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        while server.next_peer_event().is_some() {}
    }
    assert!(last.rank() < 64, "{last}");
    // The renewed number works in both directions.
    client.isend_copy(last.port(PORT), b"ahoy").unwrap();
    let begin = Instant::now();
    let mut bytes = [0; 4];
    let got = loop {
        client.progress().unwrap();
        let wait = Duration::from_millis(1);
        if let Some(got) = server.recv_timeout(PORT, &mut bytes, wait).unwrap() {
            break got;
        }
        assert!(begin.elapsed() < PATIENCE, "the message does not arrive");
    };
    assert_eq!((got.len, &bytes), (4, b"ahoy"));
}

#[test]
fn processes_that_connect_to_each_other_are_one_pair() {
    let (mut a, to_a) = server(PathChoice::Auto);
    let (mut b, to_b) = server(PathChoice::Auto);
    let other = spawn(move || {
        let to = b.connect(&to_a, SECRET, PATIENCE).unwrap();
        b.send(to.port(PORT), b"from b").unwrap();
        let mut bytes = [0; 8];
        let got = b.recv(PORT, &mut bytes).unwrap();
        assert_eq!((&bytes[..got.len], got.source), (&b"from a"[..], to.rank()));
        assert_eq!(b.peers(), [to]);
        b.close().unwrap();
    });
    let to = a.connect(&to_b, SECRET, PATIENCE).unwrap();
    a.send(to.port(PORT), b"from a").unwrap();
    let mut bytes = [0; 8];
    let got = a.recv(PORT, &mut bytes).unwrap();
    assert_eq!((&bytes[..got.len], got.source), (&b"from b"[..], to.rank()));
    assert_eq!(expect(&mut a, PeerEventKind::Joined), to);
    assert_eq!(expect(&mut a, PeerEventKind::Left), to);
    other.join().unwrap();
}

#[test]
fn process_is_a_server_and_a_client_at_once() {
    let (mut last, to_last) = server(PathChoice::Auto);
    let (mut middle, to_middle) = server(PathChoice::Auto);
    let first = calling_client(PathChoice::Auto, to_middle, 20);
    let relay = spawn(move || {
        let last = middle.connect(&to_last, SECRET, PATIENCE).unwrap();
        for _ in 0..20 {
            let call = middle.recv_call(PORT, Some(PATIENCE)).unwrap().unwrap();
            let passed = middle.call(last.port(PORT), call.bytes()).timeout(PATIENCE);
            let reply = passed.wait().unwrap();
            middle.reply(call.reply_to(), 0, reply.bytes).unwrap();
        }
        middle.close().unwrap();
    });
    serve(&mut last, 20);
    first.join().unwrap();
    relay.join().unwrap();
}

#[test]
fn client_without_a_server_does_not_wait_for_ever() {
    let (server, address) = server(PathChoice::Auto);
    let mut client = node(PathChoice::Auto);
    client.open(PORT, PortConfig::default()).unwrap();
    let to = client.connect(&address, SECRET, PATIENCE).unwrap();
    let ends = spawn(move || server.close().unwrap());
    let call = client.call(to.port(PORT), b"ahoy").wait();
    assert!(matches!(call, Err(Error::PeerGone { .. })), "{call:?}");
    let nobody = client.recv(PORT, &mut [0; 4]);
    assert!(
        matches!(nobody, Err(Error::NobodyLeft { .. })),
        "{nobody:?}"
    );
    ends.join().unwrap();
}

#[test]
fn rank_zero_is_the_process_itself() {
    let (mut node, address) = server(PathChoice::Auto);
    assert_eq!((node.rank(), node.size()), (0, 1));
    node.send(Target::new(0, PORT), b"ahoy").unwrap();
    assert_eq!(node.recv(PORT, &mut [0; 4]).unwrap().source, 0);
    let own = node.connect(&address, SECRET, PATIENCE).unwrap();
    assert_eq!(own.rank(), 0);
    assert_eq!(node.peers(), []);
}

#[test]
fn member_of_a_job_neither_listens_nor_connects() {
    let mut node = Node::join().unwrap();
    let refused = node.listen("127.0.0.1:0", SECRET);
    assert!(matches!(refused, Err(Error::NotStandalone)), "{refused:?}");
    let refused = node.connect("127.0.0.1:1", SECRET, PATIENCE);
    assert!(matches!(refused, Err(Error::NotStandalone)), "{refused:?}");
}

/// Variable with the setting `encrypt` of a process on a host.
const SEALED: &str = "SERVERS_TEST_SEALED";

/// Runs the server or the client of the test below; does nothing as a test of its own. The client is
/// started first.
#[test]
fn host() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let mut config = EndpointConfig::default();
    config.encrypt = std::env::var(SEALED).is_ok();
    let mut node = Node::standalone_with(&config).unwrap();
    let at = "10.78.0.2:7000";
    let long: Vec<u8> = (0..=250).cycle().take(1_000_000).collect();
    if role == "1" {
        node.open(PORT, PortConfig::default()).unwrap();
        node.listen("0.0.0.0:7000", SECRET).unwrap();
        serve(&mut node, 20);
        let (message, from) = node.recv_vec::<u8>(PORT).unwrap();
        assert!(message == long && !node.shares_memory(from));
        expect(&mut node, PeerEventKind::Joined);
        print_line("served");
        // The client is killed now, without a word.
        expect(&mut node, PeerEventKind::Lost);
        return node.close().unwrap();
    }
    let server = node.connect(at, SECRET, PATIENCE).unwrap();
    let refused = node.connect(at, b"a guess", PATIENCE);
    assert!(matches!(refused, Err(Error::ServerRefused { .. })));
    for number in 0..20u32 {
        let bytes = number.to_le_bytes();
        let call = node.call(server.port(PORT), &bytes).timeout(PATIENCE);
        assert_eq!(call.wait().unwrap().bytes, bytes);
    }
    node.send(server.port(PORT), &long).unwrap();
    std::thread::sleep(PATIENCE);
}

fn client_is_served_and_killed_between_hosts(env: &[(&str, &str)]) {
    let lab = match Lab::try_new() {
        Ok(lab) => lab,
        Err(why) => {
            println!("SKIPPED: no network namespaces here: {why}");
            return;
        }
    };
    let mut client = lab.start((0, 0), "servers::host", env);
    std::thread::sleep(Duration::from_millis(50));
    let mut server = lab.start((1, 1), "servers::host", env);
    let mut lines = BufReader::new(server.stdout.take().unwrap());
    read_line_after(&mut lines, "served");
    client.kill().unwrap();
    client.wait().unwrap();
    assert!(server.wait().unwrap().success());
}

#[test]
fn client_is_served_and_killed_on_another_host() {
    client_is_served_and_killed_between_hosts(&[]);
}

#[test]
fn sealed_client_is_served_and_killed_on_another_host() {
    client_is_served_and_killed_between_hosts(&[(SEALED, "1")]);
}
