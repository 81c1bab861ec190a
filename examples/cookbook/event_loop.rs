// SPDX-License-Identifier: MIT OR Apache-2.0
//! Waits for messages and a pipe at once, by `poll`: `portolan run -n 2 -- event_loop PIPE`. Rank 0
//! copies what comes from the pipe to the other ranks, which print it, until the pipe is closed.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use portolan::{Error, Node, PortConfig, Target};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::time::Duration;

const PORT: u16 = 1;

/// Waits until the pipe, if it is awaited, or the node is readable. Returns `true` for the pipe.
fn wait(node: &mut Node, pipe: Option<&File>) -> Result<bool, Error> {
    let timeout = if node.arm()? {
        PollTimeout::NONE
    } else {
        PollTimeout::ZERO
    };
    let mut fds = vec![PollFd::new(node.event_fd()?, PollFlags::POLLIN)];
    fds.extend(pipe.map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)));
    let _ = poll(&mut fds, timeout);
    let is_pipe = fds.get(1).is_some_and(|fd| fd.any() == Some(true));
    node.disarm();
    Ok(is_pipe)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: event_loop PIPE")?;
    let mut node = Node::join()?;
    node.open(PORT, PortConfig::default())?;
    let mut pipe = (node.rank() == 0).then(|| File::open(path)).transpose()?;
    let mut is_over = node.size() == 1;
    while !is_over {
        if wait(&mut node, pipe.as_ref())?
            && let Some(pipe) = &mut pipe
        {
            let mut text = [0; 4096];
            let len = pipe.read(&mut text)?;
            for rank in 1..node.size() {
                node.isend_copy(Target::new(rank, PORT), &text[..len])?;
            }
            is_over = len == 0;
        }
        while !is_over && pipe.is_none() {
            let Some((text, _)) = node.recv_vec_timeout::<u8>(PORT, Duration::ZERO)? else {
                break;
            };
            print!("{}", String::from_utf8_lossy(&text));
            is_over = text.is_empty();
        }
    }
    Ok(node.close()?)
}
