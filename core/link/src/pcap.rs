// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link that wraps a link and writes its traffic to a capture file for Wireshark and similar
//! tools.
//!
//! Each datagram is recorded as an Ethernet frame of EtherType 0x88B5, as the `packet` link would
//! send it, whatever the wrapped link is. Links without hardware addresses get invented ones:
//! `02:00:00:00:00:00` for this end, and `02:01:` followed by the peer's number for peers. Received
//! frames from a sender that the link does not identify are from `02:02:00:00:00:00`.
//!
//! Slow; for debugging only. A write error ends the capture with a warning in the log and never
//! stops the traffic.

use crate::boxed::forward;
use crate::cut::Run;
use crate::ethernet::{ENDPOINT_ALL, Header, header};
use crate::packet::BROADCAST;
use crate::{
    Body, Link, LinkAddr, LinkCaps, LinkError, PeerId, RxFrame, TxError, TxFrame, WakeSet,
};
use pcap_file::TsResolution;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use portolan_sys::net::MacAddr;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of the longest packet in a file, the most that Wireshark reads (`MAXIMUM_SNAPLEN` of
/// libpcap). Longer frames of shared memory are truncated.
const SNAP_LEN: u32 = 262_144;

/// A link that records its traffic.
pub struct Pcap<L> {
    inner: L,
    caps: LinkCaps,
    own: (MacAddr, u16),
    peers: BTreeMap<PeerId, (MacAddr, u16)>,
    capture: Capture,
    scratch: Vec<u8>,
}

impl<L: Link> Pcap<L> {
    /// Wraps `inner` and creates or truncates the file at `path`.
    ///
    /// # Errors
    /// Returns the error of creating or writing the file, with its path.
    pub fn create(inner: L, path: &Path) -> io::Result<Self> {
        let own = recorded_as(&inner.local_addr(), MacAddr([2, 0, 0, 0, 0, 0]));
        let capture = Capture::create(path)?;
        Ok(Pcap {
            caps: LinkCaps {
                // A record needs the frame in one piece, so frames must not be placed.
                placement: false,
                ..inner.caps().clone()
            },
            inner,
            own,
            peers: BTreeMap::new(),
            capture,
            scratch: Vec::new(),
        })
    }

    fn record_sent(&mut self, peer: PeerId, frame: &TxFrame<'_>) {
        let (own_mac, own_endpoint) = self.own;
        let (mac, endpoint) = self.recorded_peer(Some(peer));
        let header = header(own_mac, own_endpoint, mac, endpoint);
        let capture = &mut self.capture;
        Run::new(frame).for_each_copy(&mut self.scratch, |datagram| {
            capture.record(&header, datagram, None);
        });
    }

    fn recorded_peer(&self, peer: Option<PeerId>) -> (MacAddr, u16) {
        match peer {
            Some(BROADCAST) => (MacAddr([0xff; 6]), ENDPOINT_ALL),
            Some(peer) => self
                .peers
                .get(&peer)
                .copied()
                .unwrap_or((invented_mac(peer), 0)),
            None => (MacAddr([2, 2, 0, 0, 0, 0]), 0),
        }
    }
}

impl<L: Link> Link for Pcap<L> {
    fn caps(&self) -> &LinkCaps {
        &self.caps
    }

    forward!(self => self.inner; local_addr, pull, poll_notice, disarm);

    fn connect(&mut self, peer: PeerId, addr: &LinkAddr) -> Result<(), LinkError> {
        self.inner.connect(peer, addr)?;
        self.peers
            .insert(peer, recorded_as(addr, invented_mac(peer)));
        Ok(())
    }

    fn disconnect(&mut self, peer: PeerId) {
        self.peers.remove(&peer);
        self.inner.disconnect(peer);
    }

    fn transmit(&mut self, peer: PeerId, frame: &TxFrame<'_>) -> Result<(), TxError> {
        self.inner.transmit(peer, frame)?;
        self.record_sent(peer, frame);
        Ok(())
    }

    fn receive(&mut self, budget: usize, sink: &mut dyn FnMut(RxFrame<'_>)) -> usize {
        let unknown = self.recorded_peer(None);
        let (own, peers, capture) = (self.own, &self.peers, &mut self.capture);
        self.inner.receive(budget, &mut |frame| {
            let known = frame.from.and_then(|peer| peers.get(&peer).copied());
            let (mac, endpoint) = known.unwrap_or(unknown);
            capture.record(&header(mac, endpoint, own.0, own.1), frame.head, frame.body);
            sink(frame);
        })
    }

    fn arm(&mut self, wake: &mut WakeSet) -> bool {
        // The sleep may be long, and a user may be watching the file.
        self.capture.flush();
        self.inner.arm(wake)
    }
}

/// The capture file; closed after a write error.
struct Capture {
    path: PathBuf,
    writer: Option<PcapWriter<Shared>>,
    /// Same file as the writer's, because the writer offers no flush.
    file: Shared,
    packet: Vec<u8>,
}

/// A buffered file with two owners.
#[derive(Clone)]
struct Shared(Arc<Mutex<BufWriter<File>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .flush()
    }
}

impl Capture {
    fn create(path: &Path) -> io::Result<Self> {
        let named = |error: &dyn std::error::Error| {
            io::Error::other(format!("capture file {}: {error}", path.display()))
        };
        let file = File::create(path).map_err(|error| named(&error))?;
        let file_header = PcapHeader {
            snaplen: SNAP_LEN,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let file = Shared(Arc::new(Mutex::new(BufWriter::new(file))));
        let writer = PcapWriter::with_header(file.clone(), file_header);
        let writer = Some(writer.map_err(|error| named(&error))?);
        Ok(Capture {
            path: path.to_owned(),
            writer,
            file,
            packet: Vec::new(),
        })
    }

    fn record(&mut self, header: &Header, head: &[u8], body: Option<&dyn Body>) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        self.packet.clear();
        self.packet.extend_from_slice(header);
        self.packet.extend_from_slice(head);
        let full_len = self.packet.len() + body.map_or(0, Body::len);
        let captured_len = full_len.min(SNAP_LEN as usize);
        self.packet.truncate(captured_len);
        if let Some(body) = body {
            let from = self.packet.len();
            self.packet.resize(captured_len, 0);
            body.copy_to(0, &mut self.packet[from..]);
        }
        #[allow(clippy::disallowed_methods, reason = "captures hold dates")]
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let full_len = u32::try_from(full_len).unwrap_or(u32::MAX);
        let packet = PcapPacket::new(now, full_len, &self.packet);
        if let Err(error) = writer.write_packet(&packet) {
            self.give_up(&error);
        }
    }

    fn flush(&mut self) {
        if self.writer.is_some()
            && let Err(error) = self.file.flush()
        {
            self.give_up(&error);
        }
    }

    fn give_up(&mut self, error: &dyn std::error::Error) {
        self.writer = None;
        log::warn!(
            "capture file {} is closed after a write error: {error}",
            self.path.display()
        );
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Returns the hardware address and endpoint recorded for an address.
fn recorded_as(addr: &LinkAddr, otherwise: MacAddr) -> (MacAddr, u16) {
    match addr {
        LinkAddr::Packet { mac, endpoint } => (MacAddr(*mac), *endpoint),
        LinkAddr::Udp { socket } => (otherwise, socket.port()),
        LinkAddr::Sim { port } => (otherwise, u16::try_from(*port).unwrap_or(0)),
        LinkAddr::Shm { .. } => (otherwise, 0),
    }
}

/// Returns the invented hardware address of a peer without one.
fn invented_mac(peer: PeerId) -> MacAddr {
    let [a, b, c, d] = peer.to_be_bytes();
    MacAddr([2, 1, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Segments;
    use crate::sim::{SimNet, SimParams};
    use pcap_file::pcap::PcapReader;
    use std::io::IoSlice;

    #[test]
    fn both_directions_are_recorded_datagram_by_datagram() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("all.pcap");
        let net = SimNet::new(1, SimParams::default());
        let mut a = Pcap::create(net.port().unwrap(), &path).unwrap();
        let mut b = net.port().unwrap();
        a.connect(1, &b.local_addr()).unwrap();
        b.connect(0, &a.local_addr()).unwrap();
        let segments = Some(Segments {
            header_len: 1,
            payload_len: 3,
        });
        let payload = [IoSlice::new(b"abcde")];
        a.transmit(
            1,
            &TxFrame {
                head: b"01",
                payload: &payload,
                segments,
            },
        )
        .unwrap();
        b.transmit(0, &TxFrame::contiguous(b"back")).unwrap();
        assert_eq!(
            a.receive(8, &mut |frame| assert_eq!(frame.head, b"back")),
            1
        );
        drop(a);

        let mut reader = PcapReader::new(File::open(&path).unwrap()).unwrap();
        let mut frames = Vec::new();
        while let Some(packet) = reader.next_packet() {
            frames.push(packet.unwrap().data.into_owned());
        }
        let payloads: Vec<_> = frames
            .iter()
            .map(|frame| &frame[crate::ethernet::HEADER_LEN..])
            .collect();
        assert_eq!(payloads, [&b"0abc"[..], b"1de", b"back"]);
        assert!(frames.iter().all(|frame| frame[12..14] == [0x88, 0xB5]));
        assert_eq!(frames[0][..6], [2, 1, 0, 0, 0, 1]);
        assert_eq!(frames[2][..6], [2, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn error_names_the_capture_file() {
        let net = SimNet::new(1, SimParams::default());
        let made = Pcap::create(net.port().unwrap(), Path::new("/no/such/dir/x.pcap"));
        assert!(
            made.err()
                .unwrap()
                .to_string()
                .contains("/no/such/dir/x.pcap")
        );
    }
}
