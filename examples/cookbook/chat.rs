// SPDX-License-Identifier: MIT OR Apache-2.0
//! A chat on Tokio: `chat serve ADDRESS`, and `chat join ADDRESS NAME` with lines on standard input.

use portolan::{Node, PeerEventKind, PortConfig};
use portolan_tokio::AsyncNode;
use std::collections::BTreeSet;
use std::error::Error;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};

const PORT: u16 = 7;
const SECRET: &[u8] = b"16 random bytes or more, from a file";

/// Passes each message on to all members.
async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let mut node = Node::standalone()?;
    node.open(PORT, PortConfig::default())?;
    println!("listening at {}", node.listen(address, SECRET)?);
    let node = AsyncNode::new(node)?;
    let mut members = BTreeSet::new();
    loop {
        tokio::select! {
            message = node.recv(PORT) => {
                let (message, _) = message?;
                for member in &members {
                    let to = portolan::Target::new(*member, PORT);
                    // One that has left is reported by an event.
                    let _ = node.with(|node| node.isend_copy(to, &message));
                }
            }
            event = node.next_peer_event() => {
                let event = event?;
                match event.kind {
                    PeerEventKind::Joined => members.insert(event.rank),
                    _ => members.remove(&event.rank),
                };
            }
        }
    }
}

async fn join(address: &str, name: &str) -> Result<(), Box<dyn Error>> {
    let mut node = Node::standalone()?;
    node.open(PORT, PortConfig::default())?;
    let node = AsyncNode::new(node)?;
    let patience = Duration::from_secs(30);
    let server = node.connect(address, SECRET, patience).await?;
    let mut lines = BufReader::new(stdin()).lines();
    loop {
        tokio::select! {
            line = lines.next_line() => match line? {
                Some(line) => drop(node.send(server.port(PORT), format!("{name}: {line}").into_bytes()).await?),
                None => return Ok(node.close().await?),
            },
            message = node.recv(PORT) => println!("{}", String::from_utf8_lossy(&message?.0)),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address).await,
        ["join", address, name] => join(address, name).await,
        _ => Err("usage: chat serve ADDRESS | chat join ADDRESS NAME".into()),
    }
}
