// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bursts in the engine: sends and receives the records of `admission`, and passes the sender with
//! precedence to the core.

use super::Inner;
use super::collective::system_spec;
use super::multicast::CONTROL_PORT;
use crate::admission::{BurstAnswer, Record};
use crate::error::Error;
use portolan_proto::PeerId;

impl Inner {
    /// Requests a burst to a process. A request of this process to itself is granted.
    pub(crate) fn request_burst(&mut self, rank: u32) -> Result<(), Error> {
        let peer = self.check_rank(rank)?;
        let record = self.admissions.request(peer);
        self.pass_burst_record(peer, record)
    }

    pub(crate) fn end_burst(&mut self, rank: u32) -> Result<(), Error> {
        let peer = self.check_rank(rank)?;
        match self.admissions.end(peer) {
            Some(record) => self.pass_burst_record(peer, record),
            None => Ok(()),
        }
    }

    pub(crate) fn burst_answer(&self, rank: u32) -> Result<Option<BurstAnswer>, Error> {
        let peer = self.check_rank(rank)?;
        Ok(self.admissions.answer(peer))
    }

    pub(crate) fn refused_burst_count(&self) -> u64 {
        self.admissions.refused_count()
    }

    fn pass_burst_record(&mut self, peer: PeerId, record: Record) -> Result<(), Error> {
        let spec = system_spec(CONTROL_PORT);
        self.send_copy_spec(peer, spec, &record.to_bytes())
    }

    /// Handles a record of a peer.
    #[cold]
    pub(super) fn on_burst_record(&mut self, source: PeerId, record: Record) {
        let answer = self.admissions.on_record(source, record, self.now);
        self.core.set_precedence(self.admissions.holder());
        let Some(answer) = answer else {
            return;
        };
        if let Err(error) = self.pass_burst_record(source, answer) {
            log::debug!("answering a request for a burst of {source}: {error}");
        }
        self.flush_wanted = true;
    }
}
