// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages and events as streams, which end when the node was closed. Events also end when no peer
//! is left.

use crate::driver::Shared;
use futures_core::Stream;
use portolan::{Error, PeerEvent};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Messages to a port, each with the rank of its sender.
pub struct Messages {
    shared: Arc<Shared>,
    port: u16,
}

impl Messages {
    pub(crate) fn new(shared: Arc<Shared>, port: u16) -> Messages {
        Messages { shared, port }
    }
}

impl Stream for Messages {
    type Item = Result<(Vec<u8>, u32), Error>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let received = self.shared.poll_recv(self.port, context);
        received.map(|received| match received {
            Err(Error::Cancelled) => None,
            received => Some(received),
        })
    }
}

/// Events of peers.
pub struct PeerEvents(Arc<Shared>);

impl PeerEvents {
    pub(crate) fn new(shared: Arc<Shared>) -> PeerEvents {
        PeerEvents(shared)
    }
}

impl Stream for PeerEvents {
    type Item = PeerEvent;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<PeerEvent>> {
        self.0.poll_event(context).map(Result::ok)
    }
}
