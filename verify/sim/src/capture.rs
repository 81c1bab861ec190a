// SPDX-License-Identifier: MIT OR Apache-2.0
//! Capture of the sent frames to a file, in virtual time.
//!
//! The format equals that of the library's own captures: each frame is in an Ethernet frame of
//! EtherType 0x88B5, whatever link it used. The address of process 5 is `02:01:00:00:00:05`; the
//! number of its link, 0 to 2, is in the place of the endpoints. The file includes lost frames,
//! because they were sent.

use pcap_file::TsResolution;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use portolan_proto::LinkId;
use portolan_wire::ETHERTYPE;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::time::Duration;

/// Length in bytes of the longest packet in a file: the maximum that Wireshark reads.
const SNAP_LEN: u32 = 262_144;

/// See the module documentation.
pub(crate) struct Capture {
    writer: PcapWriter<BufWriter<File>>,
}

impl Capture {
    pub(crate) fn create(path: &Path) -> io::Result<Capture> {
        let header = PcapHeader {
            snaplen: SNAP_LEN,
            ts_resolution: TsResolution::NanoSecond,
            ..PcapHeader::default()
        };
        let file = BufWriter::new(File::create(path)?);
        let writer = PcapWriter::with_header(file, header).map_err(io::Error::other)?;
        Ok(Capture { writer })
    }

    pub(crate) fn record(
        &mut self,
        now_ns: u64,
        (from, to): (u32, u32),
        link: LinkId,
        frame: &[u8],
    ) -> io::Result<()> {
        let mut packet = Vec::with_capacity(18 + frame.len());
        for node in [to, from] {
            packet.extend_from_slice(&[2, 1]);
            packet.extend_from_slice(&node.to_be_bytes());
        }
        packet.extend_from_slice(&ETHERTYPE.to_be_bytes());
        packet.extend_from_slice(&[0, link.as_u8(), 0, link.as_u8()]);
        packet.extend_from_slice(frame);
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let packet = PcapPacket::new(Duration::from_nanos(now_ns), len, &packet);
        self.writer
            .write_packet(&packet)
            .map_err(io::Error::other)?;
        Ok(())
    }
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").finish_non_exhaustive()
    }
}
