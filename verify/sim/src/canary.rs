// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deliberate bugs that the checkers must find; a checker that finds none of them checks nothing.

use std::fmt;
use std::str::FromStr;

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A part of a message is not copied to its place, although its frame is acknowledged.
    LostPlacement,
    /// A message is handed to the program twice.
    DeliverTwice,
    /// Two messages of a lane are handed over in the wrong order.
    WrongOrder,
    /// Two messages of the plain space are delivered in the wrong order.
    PlainOvertakes,
    /// A held message is never released.
    LeakHeld,
    /// The engine is told that it may send again and forgets it.
    LostWakeup,
    /// A send's buffer is used again before the send has ended.
    EarlyReuse,
    /// The same of one whose pages were lent to a stream.
    EarlyReturn,
    /// When a link of a process goes down, its others go down as well, for good.
    NoOtherLink,
    /// An atomic operation on remote memory is performed twice.
    CountTwice,
    /// A region is deregistered while a peer reads it.
    EarlyClose,
    /// A process that closes does not wait until what it has sent has arrived.
    EarlyLeave,
    /// Messages that were acknowledged and wait are forgotten when their sender has ended.
    ForgetAcked,
    /// What a process has committed to a ring of shared memory is lost when it ends.
    RingDies,
}

impl Canary {
    /// All of them.
    pub const ALL: [Canary; 14] = [
        Canary::LostPlacement,
        Canary::DeliverTwice,
        Canary::WrongOrder,
        Canary::PlainOvertakes,
        Canary::LeakHeld,
        Canary::LostWakeup,
        Canary::EarlyReuse,
        Canary::EarlyReturn,
        Canary::NoOtherLink,
        Canary::CountTwice,
        Canary::EarlyClose,
        Canary::EarlyLeave,
        Canary::ForgetAcked,
        Canary::RingDies,
    ];

    /// The name on the command line.
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
