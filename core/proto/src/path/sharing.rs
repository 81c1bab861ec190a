// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bulk data on two networks at once (`P6.8`).
//!
//! The path with fewer frames in flight carries the next ones. The faster network acknowledges
//! sooner, so it carries more, in proportion to its speed.

use super::{Path, Paths};
use crate::LinkId;

impl Path {
    /// Returns true if the path can send a frame of `frame_len` bytes now.
    fn is_ready(&self, frame_len: usize) -> bool {
        self.is_usable() && !self.blocked && self.frame_len >= frame_len && self.window_left() > 0
    }

    /// Returns the number of frames in flight, and of eager fragments that wait.
    fn load(&self) -> usize {
        let waiting = |run: &super::Run| run.len.div_ceil(run.segment_len);
        self.in_flight + self.runs.iter().map(waiting).sum::<usize>()
    }
}

impl Paths {
    /// Returns true if two networks share bulk data.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.second.is_some()
    }

    /// Returns true if a second network works, whether or not the first one does.
    #[inline]
    pub(crate) fn has_second(&self) -> bool {
        self.get(LinkId::UDP2).is_some_and(Path::is_usable)
    }

    /// Returns the frame length that both networks carry, if one of them carries `frame_len`.
    pub(crate) fn shared_frame_len(&self, frame_len: usize) -> usize {
        let second = self.second.and_then(|link| self.get(link));
        second.map_or(frame_len, |path| path.frame_len.min(frame_len))
    }

    /// Returns the other one of the two links that share bulk data.
    fn partner_of(&self, link: LinkId) -> Option<LinkId> {
        match (self.bulk, self.second) {
            (Some(bulk), second) if bulk == link => second,
            (bulk, Some(second)) if second == link => bulk,
            _ => None,
        }
    }

    /// Returns true if `link` carries the next fragments, in frames of `frame_len` bytes, of a
    /// transfer that would use only `route` without sharing. `route` alone cuts fragments that no
    /// path carries whole.
    pub(crate) fn is_turn_of(&self, link: LinkId, route: LinkId, frame_len: usize) -> bool {
        let partner = self.partner_of(route);
        let next = partner.filter(|partner| self.is_ahead(*partner, route, frame_len));
        next.unwrap_or(route) == link
    }

    /// Returns true if `partner` can send a frame of `frame_len` bytes, and has less to send than
    /// `route`, or `route` cannot send one.
    fn is_ahead(&self, partner: LinkId, route: LinkId, frame_len: usize) -> bool {
        let (Some(partner), Some(route)) = (self.get(partner), self.get(route)) else {
            return false;
        };
        partner.is_ready(frame_len) && (!route.is_ready(frame_len) || partner.load() < route.load())
    }

    /// Returns the link for a message of several frames: `bulk`, or the one that shares its data
    /// if that has less to send.
    #[inline]
    pub(super) fn less_loaded(&self, bulk: LinkId) -> LinkId {
        match self.second {
            None => bulk,
            Some(second) => self.less_loaded_of(bulk, second),
        }
    }

    fn less_loaded_of(&self, bulk: LinkId, second: LinkId) -> LinkId {
        let load = |link| {
            let path = self.get(link)?;
            Some((!path.is_ready(0), path.load()))
        };
        match (load(bulk), load(second)) {
            (Some(here), Some(there)) if there < here => second,
            _ => bulk,
        }
    }
}
