// SPDX-License-Identifier: MIT OR Apache-2.0
//! [`Comm`] implemented with Portolan: each channel is a port.

use anyhow::{Context, Result};
use heat::Comm;
use heat::comm::{Channel, Received};
use portolan::{Buffer, Completion, Node, PortConfig, Request, Target};

/// Port of the first channel; any free range works.
const FIRST_PORT: u16 = 1000;

/// A member of a Portolan job.
pub(crate) struct NodeComm {
    node: Node,
    rank: usize,
    size: usize,
}

impl NodeComm {
    /// Wraps a node that has joined its job.
    pub(crate) fn new(node: Node) -> Result<Self> {
        let (rank, size) = (usize::try_from(node.rank())?, usize::try_from(node.size())?);
        Ok(NodeComm { node, rank, size })
    }

    /// Describes the tried paths, one per line; processes without any communication have none.
    pub(crate) fn paths(&self) -> String {
        let others = (0..self.node.size()).filter(|&other| other != self.node.rank());
        let lines = others.flat_map(|other| {
            let paths = self.node.paths(other).into_iter();
            paths.map(move |path| format!("rank {} to {other}: {path}\n", self.rank))
        });
        lines.collect()
    }
}

fn port(channel: Channel) -> u16 {
    FIRST_PORT + channel.index()
}

fn target(to: usize, channel: Channel) -> Result<Target> {
    Ok(Target::new(to.try_into()?, port(channel)))
}

fn received(completion: &Completion) -> Result<Received> {
    Ok(Received {
        len: completion.len,
        source: completion.source.try_into()?,
    })
}

fn buffer_of(completion: Completion) -> Result<Vec<u8>> {
    completion
        .buffer
        .map(Into::into)
        .context("a request ended without giving its buffer back")
}

impl Comm for NodeComm {
    type Request = Request;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn open(&mut self, channel: Channel) -> Result<()> {
        self.node.open(port(channel), PortConfig::default())?;
        Ok(())
    }

    fn start_send(&mut self, to: usize, channel: Channel, data: Vec<u8>) -> Result<Request> {
        Ok(self.node.isend(target(to, channel)?, Buffer::from(data))?)
    }

    fn start_recv(&mut self, channel: Channel, buffer: Vec<u8>) -> Result<Request> {
        Ok(self.node.post_recv(port(channel), Buffer::from(buffer))?)
    }

    fn wait_send(&mut self, request: Request) -> Result<Vec<u8>> {
        buffer_of(self.node.wait(request)?)
    }

    fn wait_recv(&mut self, request: Request) -> Result<(Received, Vec<u8>)> {
        let completion = self.node.wait(request)?;
        Ok((received(&completion)?, buffer_of(completion)?))
    }

    fn send(&mut self, to: usize, channel: Channel, data: &[u8]) -> Result<()> {
        Ok(self.node.send(target(to, channel)?, data)?)
    }

    fn recv(&mut self, channel: Channel, buffer: &mut [u8]) -> Result<Received> {
        let message = self.node.recv(port(channel), buffer)?;
        Ok(Received {
            len: message.len,
            source: message.source.try_into()?,
        })
    }

    fn barrier(&mut self) -> Result<()> {
        Ok(self.node.barrier()?)
    }
}
