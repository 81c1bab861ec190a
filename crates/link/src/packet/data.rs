// SPDX-License-Identifier: MIT OR Apache-2.0
//! The data path of the raw Ethernet link.
//!
//! Plain `send` and `recv`: measured faster for small frames than the rings of packet(7), and the
//! copy behind the prebuilt header costs nothing beside the call.

use super::{BROADCAST, HEADER_LEN, Packet};
use crate::cut::Run;
use crate::notice::is_refused_for_good;
use crate::{PeerId, RxFrame, TxError, TxFrame};
use portolan_sys::net;
use std::io;
use std::os::fd::AsFd;

impl Packet {
    #[inline]
    pub(super) fn send_frame(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        let header = if peer == BROADCAST {
            &self.broadcast
        } else {
            self.peers.find(peer)?
        };
        let len = match frame.segments {
            Some(_) => checked_single(frame)?,
            None => frame.head.len() + frame.payload_len(),
        };
        if len > self.caps.frame_len_max {
            return Err(TxError::TooLong {
                frame_len_max: self.caps.frame_len_max,
            });
        }
        self.tx_buf[..HEADER_LEN].copy_from_slice(header);
        let mut end = HEADER_LEN;
        for piece in std::iter::once(frame.head).chain(frame.payload.iter().map(|slice| &**slice)) {
            self.tx_buf[end..end + piece.len()].copy_from_slice(piece);
            end += piece.len();
        }
        match net::send(self.socket.as_fd(), &self.tx_buf[..end]) {
            Ok(_) => {
                self.refusals = 0;
                Ok(())
            }
            Err(error) => self.send_again(end, error),
        }
    }

    /// After a failed attempt: an interface that was down leaves an error on the socket, which is
    /// reported once and then is gone, so one more attempt tells what holds now.
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
            // EAGAIN: the socket's send buffer; ENOBUFS: the driver's queue.
            Some(libc::EAGAIN | libc::ENOBUFS) => {
                if is_refused_for_good(&error, &mut self.refusals) {
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

    /// Stops after a frame that came right behind a look that found nothing, for the same reason
    /// as the UDP link: its answer need not wait for one more system call.
    #[inline]
    pub(super) fn receive_frames(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        let mut handed = 0;
        while handed < budget {
            match net::recv(self.socket.as_fd(), &mut self.rx_buf) {
                Ok(None) => {
                    self.polled_empty = true;
                    break;
                }
                Ok(Some(len)) => {
                    handed += self.hand_over(len, sink);
                    if std::mem::replace(&mut self.polled_empty, false) {
                        break;
                    }
                }
                Err(error) => {
                    self.down = Some(error);
                    break;
                }
            }
        }
        handed
    }

    #[inline]
    fn hand_over(&mut self, len: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        // `len` is the frame's own length, beyond the buffer if the sender's MTU is larger.
        match self.rx_buf.get(HEADER_LEN..len) {
            Some(head) => {
                sink(RxFrame {
                    from: None,
                    head,
                    body: None,
                    marked: false,
                });
                1
            }
            None => {
                self.refused = self.refused.saturating_add(1);
                0
            }
        }
    }
}

/// A run of one segment is a frame; longer ones are beyond what the link said it can do.
#[cold]
fn checked_single(frame: &TxFrame<'_>) -> Result<usize, TxError> {
    let run = Run::new(frame);
    if run.count == 1 {
        Ok(run.total_len())
    } else {
        Err(TxError::TooLong { frame_len_max: 0 })
    }
}
