// SPDX-License-Identifier: MIT OR Apache-2.0
//! The streams of this process: kernel TCP connections by which transfers go (`P15`), beside the links
//! of frames. Whether there are any is a setting; each is opened when the core asks for it.

use crate::error::Error;
use crate::launch::Job;
use crate::settings;
use portolan_link::stream::Stream;
use portolan_link::udp::{Udp, UdpConfig};
use portolan_link::{Link, LinkAddr, WakeSet};
use portolan_proto::{Instant, StreamUse};
use std::net::Ipv6Addr;
use std::time::Duration;

/// Ports of UDP that are tried until TCP's of the same number is free: others of the host have some
/// hundreds of the 28,000.
const PORTS_TRIED: usize = 8;

/// A connection that carried nothing for so long, or up to twice as long, is closed. Opening one costs
/// a round trip or two, for which transfers go by a path.
const IDLE: Duration = Duration::from_secs(2);

/// Between looks whether connections get through: a fraction of the shortest timeout of TCP.
const STALL_LOOKS: Duration = Duration::from_millis(50);

/// Turns in which what came unexpectedly is looked at: enough to see the end of a connection.
const ROUSED_TURNS: u32 = 4;

/// See the module documentation.
pub(crate) struct Streams {
    link: Stream,
    /// Parts without a checksum are not believed. `P15.5`
    wants_sums: bool,
    /// Turn until which they are looked at although nothing is expected.
    roused_until: u32,
    idle_at: Instant,
    stall_at: Instant,
}

impl Streams {
    /// Listens at the port of `udp`, so that peers know it; another `udp` if that one's is taken. `None`
    /// where none is free: transfers then go by paths alone.
    ///
    /// # Errors
    /// When UDP cannot be opened again.
    pub(crate) fn open(
        udp: &mut Udp,
        config: &UdpConfig,
        over_wire: bool,
        wants_sums: bool,
    ) -> Result<Option<Box<Streams>>, Error> {
        let tries = PORTS_TRIED.max(config.ports.count());
        for _ in 0..tries {
            let LinkAddr::Udp { socket } = udp.local_addr() else {
                return Ok(None);
            };
            // A checksum has just read the bytes, and a copy from the cache costs less than passing pages
            // by reference, see docs/design/streams.md. On a loopback, which has no checksums, the peer's
            // queue would hold this process's own pages, even after the peer is declared dead.
            let lends = over_wire && !wants_sums;
            let at = match config.also {
                Some(_) => (Ipv6Addr::UNSPECIFIED, socket.port()).into(),
                None => socket,
            };
            match Stream::open(at, config.ports, lends) {
                Ok(link) => {
                    return Ok(Some(Box::new(Streams {
                        link,
                        wants_sums,
                        roused_until: 0,
                        idle_at: Instant::default(),
                        stall_at: Instant::default(),
                    })));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                    *udp = Udp::open(config)?;
                }
                Err(error) => {
                    log::info!("without streams: {error}");
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Bytes that a connection buffers.
    pub(crate) fn buffer_len(&self) -> usize {
        self.link.caps().rx_buffer_len
    }

    #[inline]
    pub(crate) fn link_mut(&mut self) -> &mut Stream {
        &mut self.link
    }

    /// Whether parts without a checksum are not believed. `P15.5`
    pub(crate) fn wants_sums(&self) -> bool {
        self.wants_sums
    }

    /// Whether connections that carry nothing are to be looked for.
    pub(crate) fn idle_is_due(&mut self, now: Instant) -> bool {
        is_due(&mut self.idle_at, now, IDLE)
    }

    /// Whether it is to be looked whether connections get through.
    pub(crate) fn stall_is_due(&mut self, now: Instant) -> bool {
        is_due(&mut self.stall_at, now, STALL_LOOKS)
    }

    pub(crate) fn is_roused(&self, turn: u32) -> bool {
        self.roused_until.wrapping_sub(turn) < 1 << 31
    }

    /// Something has come by a connection.
    pub(crate) fn rouse(&mut self, turn: u32) {
        self.roused_until = turn.wrapping_add(ROUSED_TURNS);
    }

    pub(crate) fn arm(&mut self, wake: &mut WakeSet) -> bool {
        self.link.arm(wake)
    }
}

/// Whether it is time; if so, `at` is put off by `interval`.
fn is_due(at: &mut Instant, now: Instant, interval: Duration) -> bool {
    let is_due = now >= *at;
    if is_due {
        *at = now + interval;
    }
    is_due
}

/// What the job has chosen.
pub(crate) fn usage(job: &Job) -> Result<StreamUse, Error> {
    let usage = match settings::STREAM.of(job).as_deref() {
        None | Some("auto") => StreamUse::Auto,
        Some("off") => StreamUse::Off,
        Some("on") => StreamUse::On,
        Some(other) => {
            return Err(Error::Setting {
                name: "stream",
                value: other.to_owned(),
                why: "write on, off or auto".to_owned(),
            });
        }
    };
    let is_excluded = settings::stream_excluder(|setting| setting.of(job)).is_some();
    Ok(if is_excluded { StreamUse::Off } else { usage })
}
