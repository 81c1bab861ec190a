// SPDX-License-Identifier: MIT OR Apache-2.0
//! Counters. Nothing is dropped in silence: every drop has a reason, and every reason a counter
//! (`P1.8`).

use portolan_wire::Malformed;

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// Why a frame or a record was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum DropReason { $($(#[$doc])* $name,)* }

        impl DropReason {
            /// Every reason.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name,)*];

            /// A fixed name for reports.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }
        }
    };
}

drop_reasons! {
    /// Shorter than its header or than it says.
    Truncated => "truncated",
    /// Another version of the protocol.
    Version => "wrong version",
    /// Kind of frame or record that nobody defined, or a field out of range.
    Malformed => "malformed",
    /// Handshake of another job.
    OtherJob => "other job",
    /// Handshake whose authenticator is wrong.
    BadMac => "bad authenticator",
    /// Handshake for another rank, or from a rank outside the job.
    WrongRank => "wrong rank",
    /// Handshake of an earlier life of the peer.
    OldIncarnation => "old incarnation",
    /// Session that this process did not hand out, or no longer honours.
    StaleSession => "stale session",
    /// Frame on a link that the peer has no path on.
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
    /// Transfer that does not exist (any more).
    StaleTransfer => "stale transfer",
    /// Eager memory of this process is exhausted; the frame will be sent again, unless it is one of a
    /// best-effort message, which is dropped whole.
    NoMemory => "out of eager memory",
    /// Best-effort message to a port without a buffer.
    BestEffortNoBuffer => "best effort, no buffer",
    /// Best-effort message of several frames of which some did not come in time (`P7.8`).
    BestEffortIncomplete => "best effort, incomplete",
    /// Own frame or handshake that somebody has sent back.
    Reflected => "reflected",
    /// Frame without a seal, where the job seals its frames.
    Unsealed => "not sealed",
    /// Sealed frame that was forged or altered, or belongs elsewhere: its tag is wrong.
    BadSeal => "bad seal",
    /// Frame that was altered on its way: its checksum is wrong (`P13.3`).
    BadChecksum => "bad checksum",
    /// Frame without a checksum, on a path whose frames have one (`P13.3`).
    Unchecked => "no checksum",
    /// Sealed frame that has arrived before, or is too old to tell.
    Replayed => "replayed",
    /// Record that its kind of frame or link may not carry.
    Misplaced => "misplaced record",
    /// Request for remote memory whose key nobody handed out, or that is closed.
    RemoteKey => "unknown remote key",
    /// Request that reaches beyond its region.
    RemoteBounds => "beyond remote region",
    /// Request for what its region is not open for.
    RemoteAccess => "no right to remote region",
    /// Atomic operation that is not known for its kind of number.
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

/// What the core has done so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// What was handed out for transmission, retransmissions included: frames, and runs of frames that
    /// leave with one call.
    pub frames_sent: u64,
    /// Frames accepted.
    pub frames_received: u64,
    /// Frames sent again.
    pub retransmits: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Paths that were left because another answered and they did not.
    pub paths_left: u64,
    /// Messages accepted for sending.
    pub messages_sent: u64,
    /// Messages delivered.
    pub messages_received: u64,
    /// Payload bytes of delivered messages.
    pub bytes_received: u64,
    /// Requests for memory of this process that were dealt with.
    pub remote_requests: u64,
    /// Messages that were held because they came early or found no buffer.
    pub messages_held: u64,
    /// Best-effort messages that never arrived here, by the gaps in their numbers.
    pub best_effort_lost: u64,
    /// Bulk frames that were received at their place, without a copy.
    pub placement_hits: u64,
    /// Frames that were received where another was expected.
    pub placement_misses: u64,
    /// Bytes of those, headers included, that were copied to put them right.
    pub placement_repaired_bytes: u64,
    /// Numbered frames accepted that the network had marked as having met congestion.
    pub frames_marked: u64,
    /// Frames sent of which peers said that they were marked so.
    pub marks_heard: u64,
    /// Bytes of transfers that came by streams.
    pub stream_bytes: u64,
    /// Frames whose sending the link put off.
    pub link_full: u64,
    /// What was dropped, in the order of [`DropReason::ALL`].
    pub drops_by_reason: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// How often something was dropped for `reason`.
    #[must_use]
    pub fn drops(&self, reason: DropReason) -> u64 {
        self.drops_by_reason[reason as usize]
    }

    /// Everything that was dropped, reasons with a count of zero left out.
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
