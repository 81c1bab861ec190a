// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deliberate bugs that the checkers must find, which proves that the checkers work.

/// Deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A part of a message is not copied to its place, although its frame is acknowledged.
    LostPlacement,
    /// A message is delivered to the program twice.
    DeliverTwice,
    /// Two messages of a lane are delivered in the wrong order.
    WrongOrder,
    /// Two messages of the plain space are delivered in the wrong order.
    PlainOvertakes,
    /// A held message is never released.
    LeakHeld,
    /// The engine ignores a notification that it may send again.
    LostWakeup,
    /// A send's buffer is reused before the send has completed.
    EarlyReuse,
    /// A send's buffer is reused while a stream still reads its pages.
    EarlyReturn,
    /// An eager message that a stream brings counts as complete although only a part of it arrived.
    HalfMessage,
    /// When a link of a process fails, its other links fail as well, permanently.
    NoOtherLink,
    /// An atomic operation on remote memory is performed twice.
    CountTwice,
    /// A region is deregistered while a peer reads it.
    EarlyClose,
    /// A closing process does not wait until everything it sent has arrived.
    EarlyLeave,
    /// Acknowledged messages that wait are discarded when their sender has exited.
    ForgetAcked,
    /// Frames that a process has committed to a ring of shared memory are lost when it exits.
    RingDies,
}

impl Canary {
    /// All bugs, with their names on the command line.
    pub const NAMES: [(Canary, &'static str); 15] = [
        (Canary::LostPlacement, "lost-placement"),
        (Canary::DeliverTwice, "deliver-twice"),
        (Canary::WrongOrder, "wrong-order"),
        (Canary::PlainOvertakes, "plain-overtakes"),
        (Canary::LeakHeld, "leak-held"),
        (Canary::LostWakeup, "lost-wakeup"),
        (Canary::EarlyReuse, "early-reuse"),
        (Canary::EarlyReturn, "early-return"),
        (Canary::HalfMessage, "half-message"),
        (Canary::NoOtherLink, "no-other-link"),
        (Canary::CountTwice, "count-twice"),
        (Canary::EarlyClose, "early-close"),
        (Canary::EarlyLeave, "early-leave"),
        (Canary::ForgetAcked, "forget-acked"),
        (Canary::RingDies, "ring-dies"),
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Canary::NAMES.iter().find(|(canary, _)| *canary == self);
        found.map_or("", |(_, name)| name)
    }
}

/// Returns the canary that has `name` in the table `names`.
///
/// # Errors
/// A text that lists all names.
pub fn named<C: Copy>(names: &[(C, &str)], name: &str) -> Result<C, String> {
    let mut entries = names.iter();
    let found = entries.find(|(_, listed)| *listed == name);
    found.map(|(canary, _)| *canary).ok_or_else(|| {
        let names: Vec<&str> = names.iter().map(|(_, name)| *name).collect();
        format!("no canary of this name; there are {}", names.join(", "))
    })
}
