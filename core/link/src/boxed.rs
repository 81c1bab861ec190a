// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Link` for boxed links, so that a wrapper can contain a link chosen at run time.

use crate::{
    Link, LinkAddr, LinkCaps, LinkError, Notice, PeerId, PullError, Receiver, RxFrame, TxError,
    TxFrame, WakeSet,
};

impl<L: Link + ?Sized> Link for Box<L> {
    fn caps(&self) -> &LinkCaps {
        (**self).caps()
    }

    fn local_addr(&self) -> LinkAddr {
        (**self).local_addr()
    }

    fn connect(&mut self, peer: PeerId, addr: &LinkAddr) -> Result<(), LinkError> {
        (**self).connect(peer, addr)
    }

    fn disconnect(&mut self, peer: PeerId) {
        (**self).disconnect(peer);
    }

    fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        (**self).transmit(peer, frame)
    }

    fn send(&mut self, peer: PeerId, frame: &[u8]) -> Result<(), TxError> {
        (**self).send(peer, frame)
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        (**self).receive(budget, sink)
    }

    fn receive_placed(&mut self, budget: usize, receiver: &mut dyn Receiver) -> usize {
        (**self).receive_placed(budget, receiver)
    }

    fn pull(&mut self, peer: PeerId, remote_addr: u64, dst: &mut [u8]) -> Result<(), PullError> {
        (**self).pull(peer, remote_addr, dst)
    }

    fn offered(&self, peer: PeerId) -> Option<u64> {
        (**self).offered(peer)
    }

    fn help(&mut self, peer: PeerId, memory: &[u8]) -> bool {
        (**self).help(peer, memory)
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        (**self).poll_notice()
    }

    fn arm(&mut self, wake: &mut WakeSet) -> bool {
        (**self).arm(wake)
    }

    fn disarm(&mut self) {
        (**self).disarm();
    }
}
