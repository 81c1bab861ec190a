// SPDX-License-Identifier: MIT OR Apache-2.0
//! Nodes on Tokio: messages, calls, events, dropped futures, and wake-ups.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use futures_core::Stream;
use portolan::{EndpointConfig, Error, Node, PathChoice, PeerEventKind, PortConfig};
use portolan_tokio::AsyncNode;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;

const SECRET: &[u8] = b"known to the test only";
const PORT: u16 = 7;

/// Longer than anything here takes on a loaded machine; reached only by a failure.
const PATIENCE: Duration = Duration::from_secs(60);

fn node(path: PathChoice) -> Node {
    let mut config = EndpointConfig::default();
    config.path = path;
    config.interface = Some("lo".to_owned());
    let mut node = Node::standalone_with(&config).unwrap();
    node.open(PORT, PortConfig::default()).unwrap();
    node
}

/// Returns a server and a client, and the server as the client's peer.
async fn pair(path: PathChoice) -> (AsyncNode, AsyncNode, portolan::Peer) {
    let mut server = node(path);
    let address = server.listen("127.0.0.1:0", SECRET).unwrap().to_string();
    let server = AsyncNode::new(server).unwrap();
    let client = AsyncNode::new(node(path)).unwrap();
    let peer = client.connect(&address, SECRET, PATIENCE).await.unwrap();
    (server, client, peer)
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    let next = poll_fn(|context| Pin::new(&mut *stream).poll_next(context));
    timeout(PATIENCE, next).await.unwrap()
}

async fn messages_of_all_lengths(path: PathChoice) {
    let (server, client, peer) = pair(path).await;
    let lens = [0, 1, 1_000, 20_000, 100_000, 1_000_000, 7];
    let sender = tokio::spawn(async move {
        for len in lens {
            let sent = vec![0x5a; len];
            let back = client.send(peer.port(PORT), sent).await.unwrap();
            assert_eq!(back.len(), len);
        }
        client
    });
    let mut messages = server.messages(PORT);
    for len in lens {
        let (message, _) = next(&mut messages).await.unwrap().unwrap();
        assert_eq!(message, vec![0x5a; len]);
    }
    sender.await.unwrap().close().await.unwrap();
}

#[tokio::test]
async fn messages_of_all_lengths_arrive_by_shm() {
    messages_of_all_lengths(PathChoice::Auto).await;
}

#[tokio::test]
async fn messages_of_all_lengths_arrive_by_udp() {
    messages_of_all_lengths(PathChoice::Udp).await;
}

#[tokio::test]
async fn calls_are_answered_and_end_with_the_server() {
    let (server, client, peer) = pair(PathChoice::Auto).await;
    server.with(|node| {
        let reply = |context: &mut portolan::Context<'_>, call: portolan::Call<'_>| {
            context.reply(call.reply_to(), 3, call.bytes().to_ascii_uppercase())
        };
        node.serve(8, reply).unwrap();
    });
    let reply = timeout(PATIENCE, client.call(peer.port(8), b"ahoy")).await;
    let reply = reply.unwrap().unwrap();
    assert_eq!((reply.status, &reply.bytes[..]), (3, &b"AHOY"[..]));
    // No server answers at this port.
    let unanswered = client.call(peer.port(PORT), b"ahoy");
    let (ended, closed) = tokio::join!(timeout(PATIENCE, unanswered), server.close());
    assert!(matches!(ended.unwrap(), Err(Error::PeerGone { .. })));
    closed.unwrap();
}

#[tokio::test]
async fn dropped_future_loses_no_message() {
    let (server, client, peer) = pair(PathChoice::Auto).await;
    for number in 0..100u32 {
        // Most of these are dropped before the message is there, some after.
        let early = timeout(Duration::from_micros(50), server.recv(PORT)).await;
        assert!(early.is_err(), "{number}");
        let sent = client.send(peer.port(PORT), number.to_le_bytes().to_vec());
        sent.await.unwrap();
        let received = timeout(PATIENCE, server.recv(PORT)).await.unwrap();
        assert_eq!(received.unwrap().0, number.to_le_bytes());
    }
}

#[tokio::test]
async fn events_of_peers_are_a_stream() {
    let (server, client, _) = pair(PathChoice::Auto).await;
    let mut events = server.peer_events();
    let joined = next(&mut events).await.unwrap();
    assert_eq!(joined.kind, PeerEventKind::Joined);
    client.close().await.unwrap();
    let left = next(&mut events).await.unwrap();
    assert_eq!(
        (left.kind, left.peer()),
        (PeerEventKind::Left, joined.peer())
    );
    server.clone().close().await.unwrap();
    assert_eq!(next(&mut events).await, None);
    assert!(matches!(server.recv(PORT).await, Err(Error::Cancelled)));
}

/// One runtime thread: while it sends, the receiver's driver cannot run, so the whole burst has
/// arrived when it is woken.
#[tokio::test]
async fn burst_wakes_the_driver_once() {
    let (server, client, peer) = pair(PathChoice::Auto).await;
    client
        .send(peer.port(PORT), b"first".to_vec())
        .await
        .unwrap();
    server.recv(PORT).await.unwrap();
    for _ in 0..10 {
        let receiver = server.clone();
        let received = tokio::spawn(async move {
            for number in 0..50u32 {
                let (message, _) = receiver.recv(PORT).await.unwrap();
                assert_eq!(message, number.to_le_bytes());
            }
        });
        // Lets the receiver wait.
        tokio::task::yield_now().await;
        let before = server.wake_count();
        client.with(|node| {
            for number in 0..50u32 {
                node.isend_copy(peer.port(PORT), &number.to_le_bytes())
                    .unwrap();
            }
            node.flush();
        });
        timeout(PATIENCE, received).await.unwrap().unwrap();
        let woken = server.wake_count() - before;
        assert_eq!(woken, 1, "for one burst");
    }
}

#[tokio::test]
async fn wrong_secret_is_an_error_of_connect() {
    let (server, client, _) = pair(PathChoice::Auto).await;
    let address = server.with(|node| node.listen("127.0.0.1:0", b"another").unwrap());
    let refused = client.connect(&address.to_string(), SECRET, PATIENCE).await;
    let is_refused = matches!(
        refused,
        Err(Error::ServerRefused {
            is_wrong_secret: true,
            ..
        })
    );
    assert!(is_refused, "{refused:?}");
}

#[tokio::test]
async fn dropped_wait_may_be_repeated() {
    let (server, client, peer) = pair(PathChoice::Auto).await;
    for number in 0..20u32 {
        let request = server
            .with(|node| node.post_recv(PORT, vec![0; 4]))
            .unwrap();
        for _ in 0..3 {
            let early = timeout(Duration::from_micros(50), server.wait(request)).await;
            assert!(early.is_err(), "{number}");
        }
        let sent = client.send(peer.port(PORT), number.to_le_bytes().to_vec());
        sent.await.unwrap();
        // In every other round the operation ends while no future waits for it.
        if number % 2 == 0 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let done = timeout(PATIENCE, server.wait(request))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(done.buffer.unwrap().into_vec(), number.to_le_bytes());
    }
}

#[tokio::test]
async fn calls_after_close_are_cancelled() {
    let (server, client, peer) = pair(PathChoice::Auto).await;
    let request = server
        .with(|node| node.post_recv(PORT, vec![0; 4]))
        .unwrap();
    let connected = client.clone();
    server.clone().close().await.unwrap();
    client.close().await.unwrap();
    let is_cancelled = |error: Error| matches!(error, Error::Cancelled);
    let waited = timeout(PATIENCE, server.wait(request)).await.unwrap();
    assert!(is_cancelled(waited.unwrap_err().into()));
    let sent = connected.send(peer.port(PORT), vec![1]).await;
    assert!(is_cancelled(sent.unwrap_err().into()));
    let called = connected.call(peer.port(PORT), b"").await;
    assert!(is_cancelled(called.unwrap_err()));
    let connecting = connected.connect("127.0.0.1:1", SECRET, PATIENCE).await;
    assert!(is_cancelled(connecting.unwrap_err()));
}

/// The program takes an event itself, and leaves the next one.
#[tokio::test]
async fn event_that_nobody_takes_does_not_keep_the_node() {
    let (server, client, _) = pair(PathChoice::Auto).await;
    let mut events = client.peer_events();
    assert_eq!(next(&mut events).await.unwrap().kind, PeerEventKind::Joined);
    while server.with(Node::next_peer_event).is_none() {
        tokio::task::yield_now().await;
    }
    let address = server.with(|node| node.listen("127.0.0.1:0", SECRET).unwrap());
    let other = AsyncNode::new(node(PathChoice::Auto)).unwrap();
    other
        .connect(&address.to_string(), SECRET, PATIENCE)
        .await
        .unwrap();
    drop(server);
    assert_eq!(next(&mut events).await.unwrap().kind, PeerEventKind::Left);
}
