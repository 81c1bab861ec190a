// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Link` for boxed links, so that a wrapper can contain a link chosen at run time, and a macro for
//! wrappers.

use crate::{Link, PeerId, Receiver, RxFrame, TxError, TxFrame};

/// Implements the given methods of [`Link`] by calling those of `$inner`.
macro_rules! forward {
    ($self:ident => $inner:expr; $($method:ident),+) => {
        $($crate::boxed::forward!(@$method $self $inner);)+
    };
    (@caps $self:ident $inner:expr) => {
        fn caps(&$self) -> &$crate::LinkCaps {
            $inner.caps()
        }
    };
    (@local_addr $self:ident $inner:expr) => {
        fn local_addr(&$self) -> $crate::LinkAddr {
            $inner.local_addr()
        }
    };
    (@connect $self:ident $inner:expr) => {
        fn connect(
            &mut $self,
            peer: $crate::PeerId,
            addr: &$crate::LinkAddr,
        ) -> Result<(), $crate::LinkError> {
            $inner.connect(peer, addr)
        }
    };
    (@disconnect $self:ident $inner:expr) => {
        fn disconnect(&mut $self, peer: $crate::PeerId) {
            $inner.disconnect(peer);
        }
    };
    (@pull $self:ident $inner:expr) => {
        fn pull(
            &mut $self,
            peer: $crate::PeerId,
            remote_addr: u64,
            dst: &mut [u8],
        ) -> Result<(), $crate::PullError> {
            $inner.pull(peer, remote_addr, dst)
        }

        fn offered(&$self, peer: $crate::PeerId) -> Option<u64> {
            $inner.offered(peer)
        }

        fn help(&mut $self, peer: $crate::PeerId, memory: &[u8]) -> bool {
            $inner.help(peer, memory)
        }
    };
    (@poll_notice $self:ident $inner:expr) => {
        fn poll_notice(&mut $self) -> Option<$crate::Notice> {
            $inner.poll_notice()
        }
    };
    (@arm $self:ident $inner:expr) => {
        fn arm(&mut $self, wake: &mut $crate::WakeSet) -> bool {
            $inner.arm(wake)
        }
    };
    (@disarm $self:ident $inner:expr) => {
        fn disarm(&mut $self) {
            $inner.disarm();
        }
    };
}
pub(crate) use forward;

impl<L: Link + ?Sized> Link for Box<L> {
    forward!(self => (**self); caps, local_addr, connect, disconnect, pull, poll_notice, arm, disarm);

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
}
