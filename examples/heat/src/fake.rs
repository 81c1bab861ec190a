// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job of threads that exchange messages through channels, for tests.

use crate::comm::{Channel, Comm, Received};
use anyhow::{Context, Result, ensure};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;

type Message = (usize, Vec<u8>);

pub(crate) struct FakeComm {
    rank: usize,
    /// By receiver, then channel.
    senders: Arc<Vec<Vec<Sender<Message>>>>,
    /// By channel.
    receivers: Vec<Receiver<Message>>,
    barrier: Arc<Barrier>,
}

pub(crate) enum FakeRequest {
    Send(Vec<u8>),
    Recv(Channel, Vec<u8>),
}

/// Runs `body` as `size` processes and returns their results, by rank.
pub(crate) fn run<T: Send>(
    size: usize,
    body: impl Fn(&mut FakeComm) -> Result<T> + Sync,
) -> Vec<T> {
    let mut job = FakeComm::job(size);
    thread::scope(|scope| {
        let body = &body;
        let ranks: Vec<_> = job
            .iter_mut()
            .map(|comm| scope.spawn(move || body(comm)))
            .collect();
        ranks
            .into_iter()
            .map(|rank| rank.join().unwrap().unwrap())
            .collect()
    })
}

impl FakeComm {
    fn job(size: usize) -> Vec<FakeComm> {
        let ends = || (0..Channel::ALL.len()).map(|_| channel()).unzip();
        let (senders, receivers): (Vec<Vec<_>>, Vec<Vec<_>>) = (0..size).map(|_| ends()).unzip();
        let senders = Arc::new(senders);
        let barrier = Arc::new(Barrier::new(size));
        let comm = |(rank, receivers)| FakeComm {
            rank,
            senders: Arc::clone(&senders),
            receivers,
            barrier: Arc::clone(&barrier),
        };
        receivers.into_iter().enumerate().map(comm).collect()
    }
}

impl Comm for FakeComm {
    type Request = FakeRequest;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.senders.len()
    }

    fn open(&mut self, _channel: Channel) -> Result<()> {
        Ok(())
    }

    fn start_send(&mut self, to: usize, channel: Channel, data: Vec<u8>) -> Result<FakeRequest> {
        self.send(to, channel, &data)?;
        Ok(FakeRequest::Send(data))
    }

    fn start_recv(&mut self, channel: Channel, mut buffer: Vec<u8>) -> Result<FakeRequest> {
        buffer.fill(0xa5);
        Ok(FakeRequest::Recv(channel, buffer))
    }

    fn wait_send(&mut self, request: FakeRequest) -> Result<Vec<u8>> {
        match request {
            FakeRequest::Send(buffer) => Ok(buffer),
            FakeRequest::Recv(..) => anyhow::bail!("wait_send on a receive"),
        }
    }

    fn wait_recv(&mut self, request: FakeRequest) -> Result<(Received, Vec<u8>)> {
        let FakeRequest::Recv(channel, mut buffer) = request else {
            anyhow::bail!("wait_recv on a send")
        };
        Ok((self.recv(channel, &mut buffer)?, buffer))
    }

    fn send(&mut self, to: usize, channel: Channel, data: &[u8]) -> Result<()> {
        let sender = &self.senders[to][usize::from(channel.index())];
        sender
            .send((self.rank, data.to_vec()))
            .context("the receiver was dropped")
    }

    fn recv(&mut self, channel: Channel, buffer: &mut [u8]) -> Result<Received> {
        let (source, data) = self.receivers[usize::from(channel.index())].recv()?;
        ensure!(data.len() <= buffer.len(), "message longer than its buffer");
        buffer[..data.len()].copy_from_slice(&data);
        Ok(Received {
            len: data.len(),
            source,
        })
    }

    fn barrier(&mut self) -> Result<()> {
        self.barrier.wait();
        Ok(())
    }
}
