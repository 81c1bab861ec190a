// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deliberate bugs that the checkers must find, which proves that the checkers work.

use std::fmt;
use std::str::FromStr;

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
    /// All bugs.
    pub const ALL: [Canary; 15] = [
        Canary::LostPlacement,
        Canary::DeliverTwice,
        Canary::WrongOrder,
        Canary::PlainOvertakes,
        Canary::LeakHeld,
        Canary::LostWakeup,
        Canary::EarlyReuse,
        Canary::EarlyReturn,
        Canary::HalfMessage,
        Canary::NoOtherLink,
        Canary::CountTwice,
        Canary::EarlyClose,
        Canary::EarlyLeave,
        Canary::ForgetAcked,
        Canary::RingDies,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Canary::LostPlacement => "lost-placement",
            Canary::DeliverTwice => "deliver-twice",
            Canary::WrongOrder => "wrong-order",
            Canary::PlainOvertakes => "plain-overtakes",
            Canary::LeakHeld => "leak-held",
            Canary::LostWakeup => "lost-wakeup",
            Canary::EarlyReuse => "early-reuse",
            Canary::EarlyReturn => "early-return",
            Canary::HalfMessage => "half-message",
            Canary::NoOtherLink => "no-other-link",
            Canary::CountTwice => "count-twice",
            Canary::EarlyClose => "early-close",
            Canary::EarlyLeave => "early-leave",
            Canary::ForgetAcked => "forget-acked",
            Canary::RingDies => "ring-dies",
        }
    }
}

impl fmt::Display for Canary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Canary {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Canary::ALL
            .into_iter()
            .find(|canary| canary.name() == name)
            .ok_or_else(|| {
                let names: Vec<_> = Canary::ALL.iter().map(|canary| canary.name()).collect();
                format!("no canary of this name; there are {}", names.join(", "))
            })
    }
}
