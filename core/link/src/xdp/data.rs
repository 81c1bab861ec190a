// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data path of the AF_XDP link.
//!
//! Frames leave by one system call each, as in `packet`. Received frames are found by reading
//! memory. They are copied out before they are parsed, because other processes may write there.

use super::{HEADER_LEN, Xdp};
use crate::cut::checked_single;
use crate::notice::is_refused_permanently;
use crate::{PeerId, RxFrame, TxError, TxFrame};
use libc::xdp_desc;
use portolan_sys::net;
use portolan_sys::usage;
use std::io;
use std::os::fd::AsFd;

impl Xdp {
    #[inline]
    pub(super) fn send_frame(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        let header = self.peers.find(peer)?;
        let len = match frame.segments {
            Some(_) => checked_single(frame)?,
            None => frame.head.len() + frame.payload_len(),
        };
        if len > self.caps.frame_len_max {
            return Err(TxError::TooLong {
                frame_len_max: self.caps.frame_len_max,
            });
        }
        let Some(chunk) = self.chunks.take_tx() else {
            return self.on_no_chunk();
        };
        usage::count_copy();
        let area = &self.chunks.area;
        // The offset of a chunk is an index into mapped memory.
        #[allow(clippy::cast_possible_truncation, reason = "areas are mapped")]
        let mut at = chunk as usize;
        let pieces = frame.payload.iter().map(|slice| &**slice);
        for piece in [header, frame.head].into_iter().chain(pieces) {
            area.write(at, piece);
            at += piece.len();
        }
        #[allow(clippy::cast_possible_truncation, reason = "frames fit a page")]
        let len = (HEADER_LEN + len) as u32;
        let pushed = self.tx.push(xdp_desc {
            addr: chunk,
            len,
            options: 0,
        });
        debug_assert!(pushed, "the ring has an entry for each chunk");
        self.push_out()
    }

    /// Makes the kernel send the frames in the ring.
    #[inline]
    fn push_out(&mut self) -> Result<(), TxError> {
        if !self.tx.needs_wakeup() {
            return Ok(());
        }
        match net::send(self.socket.as_fd(), &[]) {
            Ok(_) => {
                self.refusals = 0;
                Ok(())
            }
            Err(error) => self.not_sent(error),
        }
    }

    /// Handles a failed send. A frame for which the kernel has no memory stays in the ring and is
    /// sent by the next call (EAGAIN, ENOBUFS). A frame that the driver refused was dropped
    /// (EBUSY). If the ring is not empty, the dropped frame was an older one, which counts as lost.
    #[cold]
    fn not_sent(&mut self, error: io::Error) -> Result<(), TxError> {
        self.unsent = false;
        match error.raw_os_error() {
            Some(libc::EBUSY) if self.tx.is_empty() => {
                let refused = io::Error::from_raw_os_error(libc::ENOBUFS);
                if is_refused_permanently(&refused, &mut self.refusals) {
                    return Err(TxError::System(refused));
                }
                Err(TxError::Full)
            }
            Some(libc::EBUSY | libc::EAGAIN | libc::ENOBUFS) => {
                self.unsent = true;
                Ok(())
            }
            _ => Err(TxError::System(error)),
        }
    }

    /// Retries sending the frames left in the ring.
    #[cold]
    pub(super) fn push_unsent(&mut self) {
        self.unsent = false;
        // The next send reports the error.
        let _ = self.push_out();
    }

    /// Handles the case that all chunks are in flight, or wait for an interface that is down.
    #[cold]
    fn on_no_chunk(&mut self) -> Result<(), TxError> {
        match self.push_out() {
            Err(TxError::System(error)) => Err(TxError::System(error)),
            _ => Err(TxError::Full),
        }
    }

    #[inline]
    pub(super) fn receive_frames(
        &mut self,
        budget: usize,
        sink: &mut dyn FnMut(RxFrame<'_>),
    ) -> usize {
        if self.unsent {
            self.push_unsent();
        }
        let (mut taken, mut refused) = (0, 0);
        while taken < budget {
            let Some(desc) = self.rx.take() else {
                self.backlog = 0;
                break;
            };
            refused += usize::from(!self.deliver(&desc, sink));
            if self.chunks.return_chunk(desc.addr) {
                // The driver sleeps for lack of chunks. If this call fails, frames are lost.
                let _ = net::recv(self.socket.as_fd(), &mut []);
            }
            taken += 1;
        }
        if taken > 0 {
            self.note(taken, refused);
        }
        taken - refused
    }

    /// Delivers the bytes behind the header of a frame. Returns `false` if there are none, or too
    /// many.
    #[inline]
    fn deliver(&mut self, desc: &xdp_desc, sink: &mut dyn FnMut(RxFrame<'_>)) -> bool {
        let Ok(at) = usize::try_from(desc.addr) else {
            return false;
        };
        let Some(bytes) = (desc.len as usize)
            .checked_sub(HEADER_LEN)
            .and_then(|len| self.rx_buf.get_mut(..len))
        else {
            return false;
        };
        if !self.chunks.area.read(at + HEADER_LEN, bytes) {
            return false;
        }
        sink(RxFrame {
            from: None,
            head: bytes,
            body: None,
            marked: false,
        });
        true
    }

    #[inline]
    fn note(&mut self, taken: usize, refused: usize) {
        self.backlog += taken;
        if self.backlog >= super::RX_LEN as usize {
            self.backlog = 0;
            self.may_have_dropped = true;
        }
        if refused > 0 {
            let refused = u32::try_from(refused).unwrap_or(u32::MAX);
            self.refused = self.refused.saturating_add(refused);
        }
    }
}
