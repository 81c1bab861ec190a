// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections of two processes without sockets.

use super::*;
use crate::directory::EndpointAddress;

const PATIENT: usize = 10;

/// One process: its directory, and the address of which the port is its number.
struct Process {
    directory: Directory,
    auth: u8,
}

fn address(number: u16) -> EndpointAddress {
    let mut bytes = [0; EndpointAddress::LEN];
    bytes[0] = 3;
    bytes[2..4].copy_from_slice(&number.to_le_bytes());
    bytes[47] = 1;
    EndpointAddress::from_bytes(&bytes).unwrap()
}

impl Process {
    fn new(number: u16) -> Process {
        let directory = Directory::new(&[7; 16]);
        directory.close_to_strangers();
        directory.set_own(address(number));
        directory.insert(&address(number));
        Process { directory, auth: 1 }
    }

    fn host<'a>(&'a self, beginning: &'a [EndpointAddress]) -> Host<'a> {
        Host {
            directory: &self.directory,
            auth: self.auth,
            beginning,
            relation: 77,
        }
    }
}

/// A connection with its process at both ends.
struct Ends<'a> {
    client: (&'a Process, Visit),
    server: (&'a Process, Visit),
}

impl<'a> Ends<'a> {
    fn new(client: &'a Process, server: &'a Process, secrets: [&str; 2]) -> Ends<'a> {
        let visit = |is_client, secret: &str| Visit::new(is_client, secret.as_bytes().into());
        Ends {
            client: (client, visit(true, secrets[0]).unwrap()),
            server: (server, visit(false, secrets[1]).unwrap()),
        }
    }

    /// Passes bytes one by one until each end has a result; returns those of client and server.
    fn exchange(&mut self) -> [Step; 2] {
        let mut steps = [Step::More, Step::More];
        for _ in 0..PATIENT {
            let [of_client, of_server] = &mut steps;
            pass(&mut self.client.1, &mut self.server, of_server);
            pass(&mut self.server.1, &mut self.client, of_client);
        }
        steps
    }
}

fn pass(from: &mut Visit, to: &mut (&Process, Visit), step: &mut Step) {
    for byte in from.take_output() {
        if *step == Step::More {
            *step = to.1.on_bytes(&[byte], &to.0.host(&[]));
        }
    }
}

fn joined(peer: u32) -> Step {
    Step::Joined {
        peer: PeerId(peer),
        replaced: None,
    }
}

#[test]
fn processes_with_one_secret_become_peers_until_one_leaves() {
    let (a, b) = (Process::new(1), Process::new(2));
    let mut ends = Ends::new(&a, &b, ["secret"; 2]);
    assert_eq!(ends.exchange(), [joined(1), joined(1)]);
    let (to_b, to_a) = (a.directory.take_fresh(), b.directory.take_fresh());
    assert_eq!(
        to_b.last().unwrap().pair_secret,
        to_a.last().unwrap().pair_secret
    );
    assert_eq!(
        a.directory.relation_with(&address(2)),
        Some((PeerId(1), 77))
    );
    assert_eq!(
        b.directory.relation_with(&address(1)),
        Some((PeerId(1), 77))
    );
    ends.server.1.bid_farewell();
    assert_eq!(ends.exchange(), [Step::Left, Step::More]);
}

#[test]
fn wrong_secret_is_refused_and_changes_nothing() {
    let (a, b) = (Process::new(1), Process::new(2));
    let mut ends = Ends::new(&a, &b, ["secret", "secreT"]);
    let refused = || Step::Refused(Refusal::WrongSecret);
    assert_eq!(ends.exchange(), [refused(), refused()]);
    assert!(a.directory.connected().is_empty() && b.directory.connected().is_empty());
}

#[test]
fn secret_is_not_sent() {
    let (a, b) = (Process::new(1), Process::new(2));
    let secret = "a secret of some length";
    let mut ends = Ends::new(&a, &b, [secret; 2]);
    let mut sent = Vec::new();
    for _ in 0..PATIENT {
        let bytes = ends.client.1.take_output();
        ends.server.1.on_bytes(&bytes, &b.host(&[]));
        sent.extend_from_slice(&bytes);
        let bytes = ends.server.1.take_output();
        ends.client.1.on_bytes(&bytes, &a.host(&[]));
        sent.extend_from_slice(&bytes);
    }
    assert_eq!(b.directory.connected().len(), 1);
    let holds = |needle: &[u8]| sent.windows(needle.len()).any(|window| window == needle);
    assert!(!holds(secret.as_bytes()) && !holds(&a.directory.own().as_bytes()[..]));
}

#[test]
fn other_settings_of_encryption_are_refused() {
    let (a, mut b) = (Process::new(1), Process::new(2));
    b.auth = 2;
    let refused = || Step::Refused(Refusal::OtherAuth);
    let steps = Ends::new(&a, &b, ["secret"; 2]).exchange();
    assert_eq!(steps, [refused(), refused()]);
}

#[test]
fn changed_bytes_are_refused() {
    let (a, b) = (Process::new(1), Process::new(2));
    let mut ends = Ends::new(&a, &b, ["secret"; 2]);
    let hello = ends.client.1.take_output();
    assert_eq!(ends.server.1.on_bytes(&hello, &b.host(&[])), Step::More);
    let hello = ends.server.1.take_output();
    assert_eq!(ends.client.1.on_bytes(&hello, &a.host(&[])), Step::More);
    let mut record = ends.client.1.take_output();
    record[20] ^= 1;
    let step = ends.server.1.on_bytes(&record, &b.host(&[]));
    assert_eq!(step, Step::Refused(Refusal::WrongSecret));
    // Bytes of another program are not answered at all.
    let mut ends = Ends::new(&a, &b, ["secret"; 2]);
    let step = ends.server.1.on_bytes(&[b'G'; HELLO_LEN], &b.host(&[]));
    assert_eq!(step, Step::Refused(Refusal::Malformed));
    assert!(ends.server.1.take_output().is_empty());
}

#[test]
fn second_connection_finds_the_peer_and_its_own_process() {
    let (a, b) = (Process::new(1), Process::new(2));
    Ends::new(&a, &b, ["secret"; 2]).exchange();
    let steps = Ends::new(&b, &a, ["secret"; 2]).exchange();
    assert_eq!(steps, [Step::Known(PeerId(1)), Step::More]);
    let steps = Ends::new(&a, &a, ["secret"; 2]).exchange();
    assert_eq!(steps[0], Step::Known(PeerId(0)));
}

#[test]
fn process_that_connects_again_is_another_peer() {
    let (a, b) = (Process::new(1), Process::new(2));
    Ends::new(&a, &b, ["secret"; 2]).exchange();
    // The client has lost the connection, and the server does not know it yet.
    a.directory.part(PeerId(1));
    let [of_client, of_server] = Ends::new(&a, &b, ["secret"; 2]).exchange();
    assert_eq!(of_client, joined(2));
    let replaced = Some(PeerId(1));
    let peer = PeerId(2);
    assert_eq!(of_server, Step::Joined { peer, replaced });
}

#[test]
fn of_two_crossing_connections_one_survives() {
    let (a, b) = (Process::new(1), Process::new(2));
    let is_busy = |server: &Process, client: u16| {
        let other = if client == 1 { &a } else { &b };
        let beginning = [address(client)];
        let mut visit = Visit::new(false, b"secret".as_slice().into()).unwrap();
        let mut client = Visit::new(true, b"secret".as_slice().into()).unwrap();
        let mut step = Step::More;
        for _ in 0..PATIENT {
            let bytes = client.take_output();
            if step == Step::More {
                step = visit.on_bytes(&bytes, &server.host(&beginning));
            }
            let bytes = visit.take_output();
            client.on_bytes(&bytes, &other.host(&[]));
        }
        step == Step::Refused(Refusal::Busy)
    };
    assert_ne!(is_busy(&b, 1), is_busy(&a, 2));
}
