// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data path of the raw Ethernet link.
//!
//! Frames leave by plain `send`. A transmit ring saves no system call, and the copy behind the
//! prebuilt header is negligible compared with the call. Receiving is in `packet/receiving.rs`.

use super::{BROADCAST, HEADER_LEN, Packet};
use crate::cut::checked_single;
use crate::notice::is_refused_permanently;
use crate::{PeerId, TxError, TxFrame};
use portolan_sys::net;
use portolan_sys::usage;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;

impl Packet {
    pub(super) fn send_frame(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        if frame.segments.is_some() {
            checked_single(frame)?;
        }
        self.send_pieces(peer, frame.head, frame.payload)
    }

    /// Sends a frame of `head` and `payload` behind the header of the peer.
    #[inline]
    pub(super) fn send_pieces(
        &mut self,
        peer: PeerId,
        head: &[u8],
        payload: &[IoSlice<'_>],
    ) -> Result<(), TxError> {
        let header = match self.peers.find(peer) {
            Ok(header) => header,
            Err(_) if peer == BROADCAST => &self.broadcast,
            Err(error) => return Err(error),
        };
        let pieces = payload.iter().map(|piece| &**piece);
        let pieces = std::iter::once(head).chain(pieces);
        let mut end = HEADER_LEN;
        for piece in pieces {
            // The buffer ends where the longest frame does.
            let Some(room) = self.tx_buf.get_mut(end..end + piece.len()) else {
                return Err(TxError::TooLong {
                    frame_len_max: self.caps.frame_len_max,
                });
            };
            room.copy_from_slice(piece);
            end += piece.len();
        }
        self.tx_buf[..HEADER_LEN].copy_from_slice(header);
        usage::count_copy();
        match net::send(self.socket.as_fd(), &self.tx_buf[..end]) {
            Ok(_) => {
                self.refusals = 0;
                Ok(())
            }
            Err(error) => self.send_again(end, error),
        }
    }

    /// Handles a failed attempt. An interface that was down leaves an error on the socket that is
    /// reported only once, so one more attempt shows the current state.
    #[cold]
    fn send_again(&mut self, end: usize, error: io::Error) -> Result<(), TxError> {
        let error = match error.raw_os_error() {
            Some(libc::ENETDOWN) => match net::send(self.socket.as_fd(), &self.tx_buf[..end]) {
                Ok(_) => return Ok(()),
                Err(error) => error,
            },
            _ => error,
        };
        match error.raw_os_error() {
            // EAGAIN is the socket's send buffer, ENOBUFS the driver's queue.
            Some(libc::EAGAIN | libc::ENOBUFS) => {
                if is_refused_permanently(&error, &mut self.refusals) {
                    Err(TxError::System(error))
                } else {
                    Err(TxError::Full)
                }
            }
            Some(libc::EMSGSIZE) => Err(TxError::TooLong {
                frame_len_max: self.frame_len_max_now(),
            }),
            _ => Err(TxError::System(error)),
        }
    }
}
