// SPDX-License-Identifier: MIT OR Apache-2.0
//! Facts about the job, its processes, and the paths to them.

use super::Node;
use crate::links::RawBy;
use crate::settings;
use portolan_proto::{Counters, LinkId, PathStatus, PeerId};
use std::collections::BTreeMap;
use std::fmt;

/// Measured properties of a path to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathInfo {
    status: PathStatus,
    raw_by: Option<RawBy>,
}

impl fmt::Display for PathInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PathStatus {
            link,
            up,
            small,
            bulk,
            frame_len,
            rtt_min,
            window,
            ..
        } = self.status;
        write!(f, "{link}: {}", if up { "up" } else { "down" })?;
        match self.raw_by {
            Some(RawBy::Broker) => f.write_str(", by the broker")?,
            Some(RawBy::Xdp(mode)) => write!(f, ", by AF_XDP in {mode} mode")?,
            None => {}
        }
        if let Some(rtt) = rtt_min {
            write!(f, ", round trip from {:.1} µs", rtt.as_secs_f64() * 1e6)?;
        }
        write!(f, ", frames of {frame_len} bytes")?;
        if let Some(window) = window {
            write!(f, ", {window} under way at most")?;
        }
        match (small, bulk) {
            (true, true) => f.write_str(", all messages"),
            (true, false) => f.write_str(", small messages"),
            (false, true) => f.write_str(", bulk data"),
            (false, false) => Ok(()),
        }
    }
}

impl Node {
    /// Returns the rank of this process, from 0.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// assert!(node.rank() < node.size());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.job.rank
    }

    /// Returns the number of processes in the job; 1 in a standalone process.
    ///
    /// # Examples
    /// See [`Node::rank`].
    #[must_use]
    pub fn size(&self) -> u32 {
        self.job.size
    }

    /// Returns the random number of the job, the same in all its processes.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// println!("job {:x?}", node.job_id());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn job_id(&self) -> [u8; 16] {
        self.job.job_id
    }

    /// Returns the name of the host of process `rank`, as the launcher spells it; `None` if there
    /// is no such process.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// let host = node.host_name(node.rank());
    /// assert!(host.is_some());
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn host_name(&self, rank: u32) -> Option<String> {
        let engine = self.engine.read();
        let is_known = rank < engine.inner.size();
        is_known.then(|| engine.inner.host_of(PeerId(rank)))
    }

    /// Returns the program's own option `name`, given with `portolan run --option app.NAME=VALUE`.
    /// All processes of the job have the same options. Portolan's own settings are not among them.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// // Started by: portolan run --option app.colour=purple -- ./program
    /// let colour = node.option("colour").unwrap_or("blue");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        settings::app_option(&self.job.options, name)
    }

    /// Returns the protocol's counters.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// node.send(own, b"ahoy")?;
    /// println!("{} messages sent", node.counters().messages_sent);
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.engine.read().inner.core.counters().clone()
    }

    /// Returns whether messages to process `rank` use shared memory, which loses none. Interfaces
    /// use this to choose their services.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// if node.shares_memory(0) {
    ///     println!("rank 0 is on this host");
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn shares_memory(&self, rank: u32) -> bool {
        let engine = self.engine.read();
        let status = engine.inner.core.path_status(PeerId(rank), LinkId::SHM);
        status.is_some_and(|path| path.up)
    }

    /// Returns the number of drops of the protocol and the links, by reason.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// for (reason, count) in node.drops() {
    ///     println!("{count} drops: {reason}");
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn drops(&self) -> BTreeMap<&'static str, u64> {
        self.engine.read().inner.drops()
    }

    /// Returns the paths to process `rank` that were tried so far.
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> { let mut node = Node::join()?;
    /// # node.open(7, PortConfig::default())?; let own = Target::new(node.rank(), 7);
    /// for path in node.paths(0) {
    ///     println!("{path}");
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn paths(&self, rank: u32) -> Vec<PathInfo> {
        let engine = self.engine.read();
        let status = |link| engine.inner.core.path_status(PeerId(rank), link);
        LinkId::ALL
            .into_iter()
            .filter_map(status)
            .map(|status| PathInfo {
                status,
                raw_by: engine.raw_by().filter(|_| status.link == LinkId::PACKET),
            })
            .collect()
    }
}
