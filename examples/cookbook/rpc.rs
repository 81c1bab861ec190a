// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server and its clients, without a launcher: `rpc serve ADDRESS` and `rpc call ADDRESS TEXT COUNT`.
//! The server returns texts in capitals. A client finds a restarted server again.

use portolan::{Error, Node, Peer};
use std::time::Duration;

const PORT: u16 = 7;
const SECRET: &[u8] = b"16 random bytes or more, from a file";
const PATIENCE: Duration = Duration::from_secs(30);

fn serve(address: &str) -> Result<(), Error> {
    let mut node = Node::standalone()?;
    node.serve(PORT, |context, call| {
        context.reply(call.reply_to(), 0, call.bytes().to_ascii_uppercase())
    })?;
    println!("listening at {}", node.listen(address, SECRET)?);
    node.wait_until(|| false)
}

fn call(address: &str, text: &str, count: u32) -> Result<(), Error> {
    let mut node = Node::standalone()?;
    let mut server: Option<Peer> = None;
    let mut done = 0;
    while done < count {
        let to = match server {
            Some(server) => server,
            None => *server.insert(node.connect(address, SECRET, PATIENCE)?),
        };
        match node
            .call(to.port(PORT), text.as_bytes())
            .timeout(PATIENCE)
            .wait()
        {
            Ok(reply) if done == 0 => println!("{}", String::from_utf8_lossy(&reply.bytes)),
            Err(Error::PeerGone { .. }) => {
                server = None;
                continue;
            }
            reply => drop(reply?),
        }
        done += 1;
    }
    println!("{count} calls returned");
    node.close()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address)?,
        ["call", address, text, count] => call(address, text, count.parse()?)?,
        _ => return Err("usage: rpc serve ADDRESS | rpc call ADDRESS TEXT COUNT".into()),
    }
    Ok(())
}
