// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connected endpoint: the same operations, with one peer while the connection lives.

use portolan::binding::PeerIndex;

use super::Ep;
use crate::cm::Stage;
use crate::errno::Errno;
use crate::state::link::Link;

impl Ep {
    /// Makes this a connected endpoint, with the connection `link`.
    pub(crate) fn connected_by(mut self, link: Link) -> Ep {
        self.link = Some(Box::new(link));
        self
    }

    pub(crate) fn is_connected_kind(&self) -> bool {
        self.link.is_some()
    }

    /// Returns the connection.
    ///
    /// # Errors
    /// `NOSYS` for a connectionless endpoint.
    pub(crate) fn link(&mut self) -> Result<&mut Link, Errno> {
        self.link.as_deref_mut().ok_or(Errno::NOSYS)
    }

    /// Returns the peer of an operation.
    #[inline]
    pub(super) fn peer(&mut self, addr: u64) -> Result<PeerIndex, Errno> {
        match self.peers.find(addr) {
            Ok(peer) => Ok(peer),
            Err(error) => self.only_peer(error),
        }
    }

    /// Returns the connection's peer, whatever address the application passes.
    #[inline(never)]
    fn only_peer(&mut self, otherwise: Errno) -> Result<PeerIndex, Errno> {
        let Some(link) = &self.link else {
            return Err(otherwise);
        };
        match link.peer() {
            Some(peer) => Ok(peer),
            None if link.stage() == Stage::Connected => self.add_peer(),
            None => Err(Errno::NOTCONN),
        }
    }

    #[cold]
    fn add_peer(&mut self) -> Result<PeerIndex, Errno> {
        let link = self.link.as_mut().ok_or(Errno::NOTCONN)?;
        if let Some((peer, address)) = link.add_peer(&mut self.engine)? {
            self.peers.set_only(peer, &address);
        }
        link.peer().ok_or(Errno::NOTCONN)
    }

    /// Handles changes of the connection's state.
    #[cold]
    #[inline(never)]
    pub(super) fn handle_link(&mut self) {
        let Some(link) = &mut self.link else { return };
        if self.peers.has_failed_peer() {
            link.hang_up();
        }
        match link.poll_stage_sometimes() {
            // On failure the next operation returns the error.
            Some(Stage::Connected) => drop(self.add_peer()),
            Some(Stage::Closed) => self.end_session(),
            // New receives match messages that have arrived; all others are cancelled.
            None if link.has_ended_session() => self.engine.cancel_all(),
            _ => {}
        }
    }

    /// Handles a closed connection: ends the session once all data sent before the close has
    /// arrived.
    fn end_session(&mut self) {
        let Some(link) = &mut self.link else { return };
        // The connection may have been established and closed between two polls.
        if let Ok(Some((peer, address))) = link.add_peer(&mut self.engine) {
            self.peers.set_only(peer, &address);
        }
        if link.has_drained(&self.engine) {
            link.end_session(&mut self.engine);
        }
    }

    /// Returns true if all sent data has arrived, or can no longer arrive.
    pub(crate) fn is_settled(&self) -> bool {
        let link = self.link.as_ref();
        link.is_none_or(|link| link.is_settled(&self.engine))
    }

    /// Returns true if the connection's state has changed and the next turn would handle it.
    pub(super) fn has_link_change(&mut self) -> bool {
        let link = self.link.as_mut();
        link.is_some_and(|link| link.poll_stage().is_some())
    }
}

impl Drop for Ep {
    /// Ends the connection after the sent data has arrived.
    fn drop(&mut self) {
        if let Some(link) = &mut self.link
            && !self.engine.is_forked()
        {
            if !link.linger(&mut self.engine) {
                log::info!("a connected endpoint was closed before all sent data had arrived");
            }
            link.close();
            link.end_session(&mut self.engine);
        }
    }
}
