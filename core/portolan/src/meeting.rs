// SPDX-License-Identifier: MIT OR Apache-2.0
//! Connections by which standalone processes become peers, and detect each other's end (`P18`).
//!
//! Each relation has one TCP connection. Over it the two processes prove their secret and exchange
//! addresses; it then stays open and silent. A farewell, or its loss, ends the relation. Messages
//! never use it.
//!
//! One thread serves all connections, so a process is reached while its program computes. It does
//! not touch the engine: it gets commands, changes the directory, and queues reports. The one
//! invariant: no connection waits for another, and none that has not proved the secret is kept for
//! longer than a few seconds.

mod keys;
mod reactor;
mod record;
mod visit;

pub(crate) use record::Refusal;

use crate::directory::Directory;
use crate::error::Error;
use portolan_proto::{Instant, PeerId};
use portolan_sys::doorbell;
use portolan_sys::net::PortRange;
use portolan_sys::process::spawn_quiet;
use reactor::Reactor;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

/// Request to the thread.
enum Command {
    Listen {
        at: SocketAddr,
        secret: Arc<[u8]>,
        reply: mpsc::Sender<io::Result<SocketAddr>>,
    },
    Connect(Wanted),
    /// Forget an attempt to connect.
    Abandon(u64),
    /// Close the connection of a peer; with a farewell if the relation ends in order.
    Close {
        peer: PeerId,
        in_order: bool,
    },
    /// Close all connections with a farewell, and end.
    End,
}

/// A peer that the program wants to connect to.
struct Wanted {
    id: u64,
    addresses: Vec<SocketAddr>,
    secret: Arc<[u8]>,
    deadline: Instant,
}

/// End of a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parting {
    /// The peer sent a farewell, or began another relation.
    InOrder,
    /// The connection was lost.
    Lost,
}

/// Failure to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unconnected {
    /// The server has refused for good.
    Refused(Refusal),
    /// The deadline has passed; the text describes the last attempt.
    TimedOut(String),
}

/// Event for the engine.
#[derive(Debug)]
pub(crate) enum Report {
    Joined(PeerId),
    /// A process that was expected to become a peer did not.
    Unwelcome(PeerId),
    Parted {
        peer: PeerId,
        generation: u32,
        parting: Parting,
    },
    /// The end of an attempt to connect.
    Connected {
        id: u64,
        result: Result<PeerId, Unconnected>,
    },
}

/// Interval at which a call that waits for the thread checks that it runs. It ends only by a fault.
const ALIVE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Default)]
struct Queues {
    commands: Mutex<Vec<Command>>,
    reports: Mutex<Vec<Report>>,
    has_reports: AtomicBool,
}

/// Connections of a standalone process; see the module documentation.
pub(crate) struct Meeting {
    queues: Arc<Queues>,
    /// Readable when there are reports. The thread has the other end.
    bell: OwnedFd,
    thread: Option<JoinHandle<()>>,
    next_id: u64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every update is complete before the lock is released.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Meeting {
    /// Starts the thread. `auth` is the code of the setting `auth`.
    ///
    /// # Errors
    /// [`Error::System`] if no descriptor or thread is left.
    pub(crate) fn start(
        directory: Arc<Directory>,
        auth: u8,
        ports: PortRange,
    ) -> Result<Meeting, Error> {
        let system = |errno: io::Error| Error::System {
            what: "starting the thread that connects processes",
            errno,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (bell, theirs) = pair.map_err(|errno| system(errno.into()))?;
        let queues = Arc::new(Queues::default());
        let for_thread = Arc::clone(&queues);
        let (started, is_started) = mpsc::sync_channel(1);
        let thread = spawn_quiet("portolan-meet", move || {
            match Reactor::new(for_thread, theirs, directory, auth, ports) {
                Ok(mut reactor) => {
                    let _ = started.send(Ok(()));
                    reactor.run();
                }
                Err(errno) => _ = started.send(Err(errno)),
            }
        });
        let thread = thread.map_err(system)?;
        let ended = |_| Err(io::Error::other("the thread has ended"));
        let result = is_started.recv().unwrap_or_else(ended);
        result.map_err(system)?;
        Ok(Meeting {
            queues,
            bell,
            thread: Some(thread),
            next_id: 1,
        })
    }

    /// Listens at `at`. Returns the address, with the port that the system chose for port 0.
    ///
    /// # Errors
    /// The error of the system.
    pub(crate) fn listen(&self, at: SocketAddr, secret: &[u8]) -> io::Result<SocketAddr> {
        let (reply, result) = mpsc::channel();
        let secret = secret.into();
        self.command(Command::Listen { at, secret, reply });
        loop {
            match result.recv_timeout(ALIVE_INTERVAL) {
                Ok(result) => return result,
                // The command holds the other end of the channel, also after the thread has ended.
                Err(RecvTimeoutError::Timeout)
                    if self
                        .thread
                        .as_ref()
                        .is_some_and(|thread| !thread.is_finished()) => {}
                Err(_) => return Err(io::Error::other("the thread that connects has ended")),
            }
        }
    }

    /// Starts to connect to the first of `addresses` that answers. A report with the returned
    /// number follows, at `deadline` at the latest.
    pub(crate) fn connect(
        &mut self,
        addresses: Vec<SocketAddr>,
        secret: &[u8],
        deadline: Instant,
    ) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.command(Command::Connect(Wanted {
            id,
            addresses,
            secret: secret.into(),
            deadline,
        }));
        id
    }

    /// Gives up an attempt to connect.
    pub(crate) fn abandon(&self, id: u64) {
        self.command(Command::Abandon(id));
    }

    /// Closes the connection of `peer`. No report follows.
    pub(crate) fn close(&self, peer: PeerId, in_order: bool) {
        self.command(Command::Close { peer, in_order });
    }

    /// Tests whether the thread has reported an event.
    #[inline]
    pub(crate) fn has_reports(&self) -> bool {
        self.queues.has_reports.load(Ordering::Acquire)
    }

    pub(crate) fn take_reports(&self) -> Vec<Report> {
        doorbell::drain(&self.bell);
        let mut reports = locked(&self.queues.reports);
        self.queues.has_reports.store(false, Ordering::Relaxed);
        std::mem::take(&mut reports)
    }

    /// Returns the descriptor that is readable when there are reports.
    pub(crate) fn fd(&self) -> RawFd {
        self.bell.as_raw_fd()
    }

    /// Ends all relations in order, and waits until the peers' farewells are written.
    pub(crate) fn end(&mut self) {
        self.command(Command::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn command(&self, command: Command) {
        locked(&self.queues.commands).push(command);
        doorbell::ring(&self.bell);
    }
}

#[cfg(test)]
mod tests;
