// SPDX-License-Identifier: MIT OR Apache-2.0
//! Streams of this process: kernel TCP connections for transfers (`P15`), beside the links of
//! frames. A setting enables them; each is opened when the core requests it.

use crate::error::Error;
use crate::launch::Job;
use crate::settings;
use portolan_link::stream::Stream;
use portolan_link::udp::{Udp, UdpConfig};
use portolan_link::{Link, LinkAddr, WakeSet};
use portolan_proto::{Instant, OpId, PeerId, StreamUse};
use std::net::Ipv6Addr;
use std::time::Duration;

/// UDP ports that are tried until the TCP port of the same number is free. Other programs of the
/// host use hundreds of the 28,000.
const PORTS_TRIED: usize = 8;

/// Time without data after which a connection is closed; it may take up to twice as long. Opening
/// one costs a round trip or two, in which transfers use a path.
const IDLE: Duration = Duration::from_secs(2);

/// Interval between checks for stalled connections: a fraction of the shortest timeout of TCP.
const STALL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Number of turns in which streams are polled after unexpected data: enough to detect the end of a
/// connection.
pub(crate) const POLL_ALL_TURNS: u32 = 4;

/// The streams of this process.
pub(crate) struct Streams {
    link: Stream,
    /// Set to reject parts without a checksum. `P15.5`
    requires_sums: bool,
    /// Turn until which streams are polled although nothing is expected.
    poll_until: u32,
    idle_at: Instant,
    stall_at: Instant,
    /// Parts of which the sockets have not accepted the end.
    unsent: Vec<Unsent>,
}

/// End of a part that waits for room in its stream.
#[derive(Clone, Copy, Debug)]
struct Unsent {
    peer: PeerId,
    op: OpId,
    /// Offset of the part's end in the memory of `op`.
    end: u64,
}

impl Streams {
    /// Listens on TCP at the port number of `udp`, which the peers have. If that TCP port is taken,
    /// replaces `udp` by one on another port. If `lends` is set, the streams send
    /// pages by reference. Returns `None` if no port is free: transfers then use paths only.
    ///
    /// # Errors
    /// If UDP cannot be opened again.
    pub(crate) fn open(
        udp: &mut Udp,
        config: &UdpConfig,
        lends: bool,
        requires_sums: bool,
    ) -> Result<Option<Box<Streams>>, Error> {
        let tries = PORTS_TRIED.max(config.ports.count());
        for _ in 0..tries {
            let LinkAddr::Udp { socket } = udp.local_addr() else {
                return Ok(None);
            };
            let at = match config.also {
                Some(_) => (Ipv6Addr::UNSPECIFIED, socket.port()).into(),
                None => socket,
            };
            match Stream::open(at, config.ports, lends) {
                Ok(link) => {
                    return Ok(Some(Box::new(Streams {
                        link,
                        requires_sums,
                        poll_until: 0,
                        idle_at: Instant::default(),
                        stall_at: Instant::default(),
                        unsent: Vec::new(),
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

    /// Returns the number of bytes that a connection buffers.
    pub(crate) fn buffer_len(&self) -> usize {
        self.link.caps().rx_buffer_len
    }

    #[inline]
    pub(crate) fn link_mut(&mut self) -> &mut Stream {
        &mut self.link
    }

    /// Records that the part that ends at `end` in the memory of `op` was sent to `peer`.
    pub(crate) fn on_sent(&mut self, peer: PeerId, op: OpId, end: u64) {
        if self.link.owed_len(peer.0) > 0 {
            self.unsent.push(Unsent { peer, op, end });
        }
    }

    /// Continues parts that did not fit their sockets. If the operation of a part has ended, the
    /// stream fails, because the rest of the part is missing. `bytes_of` returns a range of an
    /// operation's memory, given its offset and its length.
    pub(crate) fn resume<'a>(&mut self, bytes_of: impl Fn(OpId, usize, usize) -> Option<&'a [u8]>) {
        let Streams { link, unsent, .. } = self;
        unsent.retain(|part| {
            let len = link.owed_len(part.peer.0);
            if len == 0 {
                return false;
            }
            let begin = usize::try_from(part.end)
                .ok()
                .and_then(|end| end.checked_sub(len));
            let bytes = begin.and_then(|begin| bytes_of(part.op, begin, len));
            link.resume(part.peer.0, bytes);
            link.owed_len(part.peer.0) > 0
        });
    }

    /// Returns `true` if parts wait for room in their stream.
    pub(crate) fn has_unsent_parts(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Returns whether parts without a checksum are rejected. `P15.5`
    pub(crate) fn requires_sums(&self) -> bool {
        self.requires_sums
    }

    /// Returns whether a check for idle connections is due, and schedules the next.
    pub(crate) fn idle_is_due(&mut self, now: Instant) -> bool {
        is_due(&mut self.idle_at, now, IDLE)
    }

    /// Returns whether a check for stalled connections is due, and schedules the next.
    pub(crate) fn stall_is_due(&mut self, now: Instant) -> bool {
        is_due(&mut self.stall_at, now, STALL_CHECK_INTERVAL)
    }

    pub(crate) fn is_roused(&self, turn: u32) -> bool {
        self.poll_until.wrapping_sub(turn) < 1 << 31
    }

    /// Polls the streams in the next `turns` turns, because something has happened there.
    pub(crate) fn poll_all(&mut self, turn: u32, turns: u32) {
        let until = turn.wrapping_add(turns);
        if self.poll_until.wrapping_sub(until) >= 1 << 31 {
            self.poll_until = until;
        }
    }

    pub(crate) fn arm(&mut self, wake: &mut WakeSet) -> bool {
        self.link.arm(wake)
    }
}

/// Returns whether `at` has passed; if so, sets it to `interval` from now.
fn is_due(at: &mut Instant, now: Instant, interval: Duration) -> bool {
    let is_due = now >= *at;
    if is_due {
        *at = now + interval;
    }
    is_due
}

/// Returns the job's use of streams (setting `stream`).
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
