// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleep until a message arrives or one of several descriptors is ready.

use crate::fault::Fault;
use portolan::{Error, Node};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::os::fd::AsFd;
use std::time::Duration;

/// Sleeps for at most `longest`, until a message may have arrived or one of `others` is ready.
/// Returns at once if something has already arrived. Sleeping keeps idle time out of the processor
/// times, which spinning would not.
pub(crate) fn wait_for_event<'a>(
    node: &mut Node,
    others: impl IntoIterator<Item = PollFd<'a>>,
    longest: Duration,
) -> Result<(), Fault> {
    let is_alone = match node.arm() {
        Ok(true) => false,
        Ok(false) => {
            // Operations on the other processes report those that have failed.
            let _ = node.progress();
            return Ok(());
        }
        Err(Error::NobodyLeft { .. }) => true,
        Err(error) => return Err(error.into()),
    };
    let slept = {
        let event = node.event_fd()?;
        let mut fds = Vec::new();
        if !is_alone {
            fds.push(PollFd::from_borrowed_fd(event.as_fd(), PollFlags::IN));
        }
        for other in others {
            fds.push(other);
        }
        let longest = Timespec {
            tv_sec: i64::try_from(longest.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: longest.subsec_nanos().into(),
        };
        rustix::event::poll(&mut fds, Some(&longest))
    };
    if !is_alone {
        node.disarm();
    }
    match slept {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(errno) => Err(Fault::System {
            what: "waiting",
            errno: errno.into(),
        }),
    }
}
