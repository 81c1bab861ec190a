// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters. Nothing is dropped silently: every drop has a reason, and every reason has a counter
//! (`P1.8`).

use portolan_wire::Malformed;

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// Reason why a frame or a record was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum DropReason { $($(#[$doc])* $name,)* }

        impl DropReason {
            /// All reasons.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name,)*];

            /// Returns a fixed name for reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }
        }
    };
}

drop_reasons! {
    /// Shorter than its header or its stated length.
    Truncated => "truncated",
    /// Unsupported protocol version.
    Version => "wrong version",
    /// Unknown kind of frame or record, or a field out of range.
    Malformed => "malformed",
    /// Handshake of another job.
    OtherJob => "other job",
    /// Handshake with a wrong authenticator.
    BadMac => "bad authenticator",
    /// Handshake for another rank, or from a rank outside the job.
    WrongRank => "wrong rank",
    /// Handshake of an earlier incarnation of the peer.
    OldIncarnation => "old incarnation",
    /// Session that this process did not open, or has closed.
    StaleSession => "stale session",
    /// Frame on a link without a path to the peer.
    NoPath => "no such path",
    /// Numbered frame that has arrived before.
    Duplicate => "duplicate",
    /// Numbered frame beyond the window.
    BeyondWindow => "beyond window",
    /// Acknowledgement of frames that were never sent.
    BadAck => "impossible acknowledgement",
    /// Message beyond its lane's window or credit.
    BeyondCredit => "beyond credit",
    /// Fragment that contradicts its message or transfer.
    BadFragment => "contradicting fragment",
    /// Transfer that does not exist or has ended.
    StaleTransfer => "stale transfer",
    /// Memory for eager messages is exhausted. The frame will be retransmitted; a best-effort
    /// message is dropped as a whole.
    NoMemory => "out of eager memory",
    /// Best-effort message to a port without a buffer.
    BestEffortNoBuffer => "best effort, no buffer",
    /// Best-effort message of several frames, some of which did not arrive in time (`P7.8`).
    BestEffortIncomplete => "best effort, incomplete",
    /// Frame or handshake of this process that was reflected back.
    Reflected => "reflected",
    /// Unsealed frame in a job that seals its frames.
    Unsealed => "not sealed",
    /// Sealed frame with a wrong tag: forged, altered or misdirected.
    BadSeal => "bad seal",
    /// Corrupted frame: its checksum is wrong (`P13.3`).
    BadChecksum => "bad checksum",
    /// Frame without a checksum on a path that uses checksums (`P13.3`).
    Unchecked => "no checksum",
    /// Sealed frame that has arrived before, or is too old to check.
    Replayed => "replayed",
    /// Record that is not allowed in its kind of frame or on its link.
    Misplaced => "misplaced record",
    /// Request for remote memory with an unknown key, or the key of a closed region.
    RemoteKey => "unknown remote key",
    /// Request that reaches beyond its region.
    RemoteBounds => "beyond remote region",
    /// Request for an access that its region does not allow.
    RemoteAccess => "no right to remote region",
    /// Atomic operation that is not supported for its number type.
    RemoteUnsupported => "unknown atomic operation",
}

impl From<Malformed> for DropReason {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Truncated | Malformed::Length => DropReason::Truncated,
            Malformed::Version(_) => DropReason::Version,
            Malformed::FrameKind(_) | Malformed::RecordKind(_) | Malformed::Field => {
                DropReason::Malformed
            }
        }
    }
}

/// Counters of the core since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Transmits, retransmissions included. A run of frames that leaves in one call counts as one.
    pub frames_sent: u64,
    /// Frames accepted.
    pub frames_received: u64,
    /// Frames retransmitted.
    pub retransmits: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Paths abandoned because another path answered and they did not.
    pub paths_left: u64,
    /// Messages accepted for sending.
    pub messages_sent: u64,
    /// Messages delivered.
    pub messages_received: u64,
    /// Payload bytes of delivered messages.
    pub bytes_received: u64,
    /// Requests for memory of this process that were handled.
    pub remote_requests: u64,
    /// Messages held because they arrived early or found no buffer.
    pub messages_held: u64,
    /// Best-effort messages that never arrived, by the gaps in their numbers.
    pub best_effort_lost: u64,
    /// Bulk frames received at their final place, without a copy.
    pub placement_hits: u64,
    /// Frames received at a place predicted for another frame.
    pub placement_misses: u64,
    /// Bytes of misplaced frames, headers included, that were copied to correct that.
    pub placement_repaired_bytes: u64,
    /// Numbered frames accepted with a congestion mark of the network.
    pub frames_marked: u64,
    /// Frames sent that peers reported as marked.
    pub marks_heard: u64,
    /// Bytes of transfers received by streams.
    pub stream_bytes: u64,
    /// Pushed parts that found their buffer.
    pub pushes_placed: u64,
    /// Pushed parts that were discarded because no buffer was posted.
    pub pushes_missed: u64,
    /// Frames that the link refused for lack of room.
    pub link_full: u64,
    /// Drops, in the order of [`DropReason::ALL`].
    pub drops_by_reason: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// Returns the number of drops for `reason`.
    #[must_use]
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops_by_reason[reason as usize]
    }

    /// Returns all nonzero drop counts with their reasons.
    pub fn iter_drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL
            .iter()
            .map(|&reason| (reason, self.drops(reason)))
            .filter(|&(_, n)| n > 0)
    }

    #[cold]
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.drops_by_reason[reason as usize] += 1;
    }
}
