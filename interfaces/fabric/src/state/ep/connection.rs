// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connected endpoint: the same operations with the one peer there is, while there is one.

use portolan::PeerIndex;

use super::Ep;
use crate::cm::Stage;
use crate::errno::Errno;
use crate::state::link::Link;

impl Ep {
    /// Make it one that is connected by `link`.
    pub(crate) fn connected_by(mut self, link: Link) -> Ep {
        self.link = Some(Box::new(link));
        self
    }

    pub(crate) fn is_connected_kind(&self) -> bool {
        self.link.is_some()
    }

    /// Its connection.
    ///
    /// # Errors
    /// `NOSYS` for an endpoint of the other kind.
    pub(crate) fn link(&mut self) -> Result<&mut Link, Errno> {
        self.link.as_deref_mut().ok_or(Errno::NOSYS)
    }

    /// The peer of an operation.
    #[inline]
    pub(super) fn peer(&mut self, addr: u64) -> Result<PeerIndex, Errno> {
        match self.peers.find(addr) {
            Ok(peer) => Ok(peer),
            Err(error) => self.only_peer(error),
        }
    }

    /// The one that there is, whatever the application calls it.
    #[inline(never)]
    fn only_peer(&mut self, otherwise: Errno) -> Result<PeerIndex, Errno> {
        let Some(link) = &self.link else {
            return Err(otherwise);
        };
        match link.peer() {
            Some(peer) => Ok(peer),
            None if link.stage() == Stage::Connected => self.meet(),
            None => Err(Errno::NOTCONN),
        }
    }

    #[cold]
    fn meet(&mut self) -> Result<PeerIndex, Errno> {
        let link = self.link.as_mut().ok_or(Errno::NOTCONN)?;
        if let Some((peer, address)) = link.meet(&mut self.engine)? {
            self.peers.learn_only(peer, &address);
        }
        link.peer().ok_or(Errno::NOTCONN)
    }

    /// Do what follows from what has become of the connection.
    #[cold]
    #[inline(never)]
    pub(super) fn follow(&mut self) {
        let Some(link) = &mut self.link else { return };
        if self.peers.has_lost() {
            link.hang_up();
        }
        match link.look_sometimes() {
            // Without it, the first operation says why.
            Some(Stage::Connected) => drop(self.meet()),
            Some(Stage::Over) => self.part(),
            // What has come is there for receives that are posted now; others wait for nobody.
            None if link.has_parted() => self.engine.cancel_all(),
            _ => {}
        }
    }

    /// The connection is over: when all has come that was sent before, what is left ends.
    fn part(&mut self) {
        let Some(link) = &mut self.link else { return };
        // A connection may have come and gone between two looks.
        if let Ok(Some((peer, address))) = link.meet(&mut self.engine) {
            self.peers.learn_only(peer, &address);
        }
        if link.has_all(&self.engine) {
            link.part(&mut self.engine);
        }
    }

    /// Whether all that was sent has arrived, or cannot any more.
    pub(crate) fn is_settled(&self) -> bool {
        let link = self.link.as_ref();
        link.is_none_or(|link| link.is_settled(&self.engine))
    }

    /// Whether something has become of the connection that a turn would follow.
    pub(super) fn has_link_news(&mut self) -> bool {
        let link = self.link.as_mut();
        link.is_some_and(|link| link.look().is_some())
    }
}

impl Drop for Ep {
    /// A connection ends when what was sent has arrived.
    fn drop(&mut self) {
        if let Some(link) = &mut self.link
            && !self.engine.is_forked()
        {
            if !link.linger(&mut self.engine) {
                log::info!("a connected endpoint is closed before all that was sent has arrived");
            }
            link.close();
            link.part(&mut self.engine);
        }
    }
}
