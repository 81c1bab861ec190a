// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bursts: a sender requests precedence for its long messages at a receiver; see `admission`.

use super::Node;
use crate::admission::BurstAnswer;
use crate::error::Error;

impl Node {
    /// Requests that process `rank` serves the long messages of this process before those of other
    /// senders, until [`Node::end_burst`]. Does not wait for the answer: messages may be sent at
    /// once, and have precedence from the grant on. If the request is refused, because another
    /// sender has precedence, they share an eighth of the link.
    ///
    /// With the setting `schedule=exclusive` receivers choose a sender by themselves.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::PeerGone`].
    ///
    /// # Examples
    /// ```
    /// use portolan::{BurstAnswer, Node, PortConfig, Target};
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let mut node = Node::join()?;
    /// node.open(7, PortConfig::default())?;
    /// let rank = node.rank();
    /// node.request_burst(rank)?;
    /// node.send(Target::new(rank, 7), &[7; 100_000])?;
    /// while node.burst_answer(rank)? == Some(BurstAnswer::Pending) {
    ///     node.progress();
    /// }
    /// node.end_burst(rank)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn request_burst(&mut self, rank: u32) -> Result<(), Error> {
        let engine = &mut *self.engine.enter();
        engine.inner.request_burst(rank)?;
        engine.flush();
        Ok(())
    }

    /// Returns the answer to [`Node::request_burst`]; `None` if no burst was requested, or it has
    /// ended, or the process has failed. Makes no progress.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`].
    ///
    /// # Examples
    /// See [`Node::request_burst`].
    pub fn burst_answer(&self, rank: u32) -> Result<Option<BurstAnswer>, Error> {
        self.engine.read().inner.burst_answer(rank)
    }

    /// Ends a burst, whatever its answer was. Its grant ends when the receiver gets this, usually
    /// after the messages of the burst.
    ///
    /// # Errors
    /// [`Error::NoSuchRank`], [`Error::PeerGone`].
    ///
    /// # Examples
    /// See [`Node::request_burst`].
    pub fn end_burst(&mut self, rank: u32) -> Result<(), Error> {
        let engine = &mut *self.engine.enter();
        engine.inner.end_burst(rank)?;
        engine.flush();
        Ok(())
    }

    /// Returns the number of bursts that this process has refused to other processes.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let node = Node::join()?;
    /// println!("{} bursts refused", node.refused_burst_count());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn refused_burst_count(&self) -> u64 {
        self.engine.read().inner.refused_burst_count()
    }
}
