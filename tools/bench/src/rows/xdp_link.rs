// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ping-pong of frames through Portolan's AF_XDP link, with both ends spinning. It separates the
//! link's share of a row's time from that of the layers above it.

use super::pingpong::{Channel, play};
use crate::control::Offer;
use crate::end::End;
use crate::measure::Sample;
use crate::spec::Hook;
use crate::spin_wait::SpinWait;
use anyhow::{Context, Result, bail, ensure};
use portolan_link::packet::InterfaceRef;
use portolan_link::xdp::{Xdp, XdpConfig, XdpMode};
use portolan_link::{Link, LinkAddr, TxError, TxFrame};

/// Endpoint ids of the driver and the answerer.
const ENDPOINTS: [u16; 2] = [1, 2];

/// The link's number of the other end.
const PEER: u32 = 0;

/// Runs this end.
///
/// # Errors
/// A payload was wrong, nothing arrived, or the link cannot be opened.
pub(crate) fn pingpong(end: &mut End, hook: Hook) -> Result<Option<Sample>> {
    let role = end.spec.role;
    let name = InterfaceRef::Name(end.here().interface);
    let mut config = XdpConfig::new(name, ENDPOINTS[role.index()]);
    config.mode = match hook {
        Hook::Generic => XdpMode::Generic,
        Hook::Native => XdpMode::Native,
    };
    let mut link = Xdp::open(&config)?;
    let LinkAddr::Packet { mac, .. } = link.local_addr() else {
        bail!("a link for raw Ethernet has another address");
    };
    let offer = end.exchange(&Offer {
        mac: Some(mac),
        ..Offer::default()
    })?;
    let mac = offer
        .mac
        .context("the other end sent no hardware address")?;
    let endpoint = ENDPOINTS[role.peer().index()];
    link.connect(PEER, &LinkAddr::Packet { mac, endpoint })?;
    let size = end.spec.size;
    let spin_wait = end.spin_wait();
    play(
        end,
        Frames {
            link,
            tx: vec![0; size],
            rx: vec![0; size],
            spin_wait,
        },
    )
}

struct Frames {
    link: Xdp,
    tx: Vec<u8>,
    rx: Vec<u8>,
    spin_wait: SpinWait,
}

impl Channel for Frames {
    #[inline]
    fn outbox(&mut self) -> &mut [u8] {
        &mut self.tx
    }

    #[inline]
    fn send(&mut self) -> Result<()> {
        loop {
            match self.link.transmit(PEER, &TxFrame::contiguous(&self.tx)) {
                Ok(()) => return Ok(()),
                Err(TxError::Full) => self.spin_wait.wait()?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    #[inline]
    fn receive(&mut self) -> Result<&[u8]> {
        let (rx, mut got) = (&mut self.rx, None);
        while got.is_none() {
            self.link.receive(1, &mut |frame| {
                got = Some(frame.head.len());
                if frame.head.len() == rx.len() {
                    rx.copy_from_slice(frame.head);
                }
            });
            if got.is_none() {
                self.spin_wait.wait()?;
            }
        }
        let len = self.rx.len();
        ensure!(
            got == Some(len),
            "received a frame of {got:?} bytes instead of {len}"
        );
        self.spin_wait.reset();
        Ok(&self.rx)
    }
}
