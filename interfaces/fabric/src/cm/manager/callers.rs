// SPDX-License-Identifier: MIT OR Apache-2.0
//! Callers of a listener: accepting, reading their requests, and reporting them to the program.
//!
//! A caller that is not accepted waits in the system's backlog. A listener that cannot accept now
//! is parked: it is not watched, because it would stay readable and keep sleepers awake.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan::binding::EndpointAddress;
use portolan_wire::ConnectionKind;

use super::{Inner, Slot};
use crate::cm::channel::{Channel, Received};
use crate::cm::drops::DropReason;
use crate::cm::event::{Event, Fidptr};
use crate::cm::permits::{Alarm, Permit, Permits};
use crate::cm::request::{Offered, Request};
use crate::cm::socket;
use crate::provider_info::ProviderInfo;

/// Time in which a caller must send its request: many times the transmission time. `P16.2`
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Maximum number of silent callers. Beyond it, the oldest is dropped. `P16.2`
const SILENT_MAX: usize = 64;
/// Maximum number of unanswered callers of a listener, unless its backlog is longer. It is an
/// eighth of the usual descriptor limit of a process. Programs that need more set a longer backlog.
const UNANSWERED_MAX: usize = 128;
/// Maximum number of connections accepted from one listener per call of `progress`.
const ACCEPTED_MAX: usize = 16;
/// Delay before the next `accept` when the system lacks resources: ten attempts in the second after
/// which TCP retransmits.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// A listening socket.
pub(super) struct Listener {
    socket: TcpListener,
    fid: Fidptr,
    /// Information reported with each request, without the addresses.
    template: ProviderInfo,
    permits: Permits,
    /// Set if the last `accept` failed for lack of resources.
    short: bool,
}

/// A caller that has connected and has not sent a complete request.
pub(super) struct Caller {
    channel: Channel,
    /// Slot of the listener that accepted it.
    listener: usize,
    until: Instant,
    permit: Permit,
}

impl Listener {
    pub(super) fn new(
        bound: OwnedFd,
        backlog: i32,
        fid: Fidptr,
        template: ProviderInfo,
        alarm: &Arc<Alarm>,
    ) -> Listener {
        let backlog = usize::try_from(backlog).unwrap_or(0);
        Listener {
            socket: TcpListener::from(bound),
            fid,
            template,
            permits: Permits::new(backlog.max(UNANSWERED_MAX), alarm),
            short: false,
        }
    }

    pub(super) fn is_of(&self, object: Fidptr) -> bool {
        self.fid == object
    }

    /// Logs the reason of an `accept` failure once, until an `accept` succeeds.
    fn log_shortage(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.short, true) {
            let at = self.socket.local_addr().map(|at| at.to_string());
            let at = at.unwrap_or_else(|_| "a passive endpoint".to_owned());
            log::warn!(
                "cannot accept connections at {at}: {error}; raise the descriptor limit, \
                 `ulimit -n`"
            );
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsFd for Caller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl Inner {
    pub(super) fn take_callers(&mut self, at: usize) {
        for _ in 0..ACCEPTED_MAX {
            let Some(Slot::Listener(listener)) = self.slots.get_mut(at) else {
                return;
            };
            if self.events.is_full() || listener.permits.are_exhausted() {
                return self.park(at);
            }
            match socket::accept(&listener.socket) {
                Ok((stream, who)) => {
                    listener.short = false;
                    let caller = Caller {
                        channel: Channel::new(stream),
                        listener: at,
                        until: Instant::now() + SILENCE_MAX,
                        permit: listener.permits.take(),
                    };
                    self.admit(caller, who);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return,
                    // The caller has disconnected.
                    ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                    _ => {
                        listener.log_shortage(&error);
                        self.alarm.fire_after(RETRY_AFTER);
                        return self.park(at);
                    }
                },
            }
        }
    }

    fn admit(&mut self, caller: Caller, who: SocketAddr) {
        let ready = caller.channel.prepare();
        match ready.and_then(|()| self.add(Slot::Silent(caller))) {
            Ok(at) => {
                self.silent.push_back(at);
                // Most callers have sent their request by now.
                self.read_caller(at);
            }
            Err(_) => self.drops.count(DropReason::System, Some(who)),
        }
    }

    /// Stops watching a listener until [`Inner::resume`].
    fn park(&mut self, at: usize) {
        if let Some(slot @ Slot::Listener(_)) = self.slots.get(at) {
            self.net.remove(slot);
            self.parked.push(at);
        }
    }

    /// Watches the parked listeners again, after a resource was released.
    pub(super) fn resume(&mut self) {
        for at in std::mem::take(&mut self.parked) {
            if let Some(slot @ Slot::Listener(_)) = self.slots.get(at)
                && self.net.add(slot, at as u64).is_err()
            {
                self.parked.push(at);
                self.alarm.fire_after(RETRY_AFTER);
            }
        }
    }

    /// Drops the callers of a closed listener.
    pub(super) fn drop_callers(&mut self, of: usize) {
        let slots = self.slots.iter();
        let callers: Vec<usize> = slots
            .filter(|(_, slot)| matches!(slot, Slot::Silent(caller) if caller.listener == of))
            .map(|(at, _)| at)
            .collect();
        self.silent.retain(|at| !callers.contains(at));
        for at in callers {
            self.drop_caller(at, DropReason::ListenerClosed);
        }
    }

    /// Drops callers that were silent too long, or exceed the limit.
    pub(super) fn drop_silent(&mut self) {
        while let Some(&at) = self.silent.front() {
            let reason = match self.slots.get(at) {
                Some(Slot::Silent(_)) if self.silent.len() > SILENT_MAX => DropReason::TooMany,
                Some(Slot::Silent(caller)) if caller.until <= Instant::now() => DropReason::Silent,
                Some(Slot::Silent(_)) => return,
                _ => {
                    self.silent.pop_front();
                    continue;
                }
            };
            self.silent.pop_front();
            self.drop_caller(at, reason);
        }
    }

    fn drop_caller(&mut self, at: usize, reason: DropReason) {
        if let Some(Slot::Silent(caller)) = self.remove(at) {
            self.drops.count(reason, caller.channel.remote());
        }
    }

    pub(super) fn read_caller(&mut self, at: usize) {
        let Some(Slot::Silent(caller)) = self.slots.get_mut(at) else {
            return;
        };
        let received = caller.channel.receive();
        if matches!(received, Received::Nothing) {
            return;
        }
        self.silent.retain(|&other| other != at);
        let Some(Slot::Silent(caller)) = self.remove(at) else {
            return;
        };
        let Some(Slot::Listener(listener)) = self.slots.get(caller.listener) else {
            return;
        };
        let who = caller.channel.remote();
        // Invalid requests are not answered.
        match request_event(caller, received, listener) {
            Some(event) => self.events.push(event),
            None => self.drops.count(DropReason::NoRequest, who),
        }
    }
}

/// Returns the event for a caller's request, or `None` if its bytes are not a request.
fn request_event(caller: Caller, received: Received, listener: &Listener) -> Option<Event> {
    let Received::Frame(frame) = received else {
        return None;
    };
    if frame.kind != ConnectionKind::Request {
        return None;
    }
    let peer = EndpointAddress::from_bytes(&frame.endpoint_id).ok()?;
    let Caller {
        channel, permit, ..
    } = caller;
    let (local, remote) = (channel.local()?, channel.remote()?);
    let offered = Offered::new(Request::new(channel, peer, permit));
    let template = listener.template.of_request(&local, &remote);
    let info = template.with_handle(offered.ptr()).build().ok()?;
    let (fid, data) = (listener.fid, frame.data);
    Some(Event::Request {
        fid,
        info,
        offered,
        data,
    })
}
