// SPDX-License-Identifier: MIT OR Apache-2.0
//! A node and the tasks that wait for it.
//!
//! The driver moves what has arrived from the node into queues, as far as tasks wait for it, and
//! wakes them. The one invariant: a queue of a port is limited, so that a slow program slows its
//! senders down.

use crate::driver::Shared;
use portolan::{Completion, Connecting, Error, Failed, Node, PeerEvent, Request};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Messages of a port that are received ahead of the program: those of one burst.
const AHEAD_MAX: usize = 64;

/// Longest message that is received ahead of the program. A longer one waits until the queue is
/// empty.
const AHEAD_LEN_MAX: usize = 64 * 1024;

/// Turns in a row that find no work and cannot arm, after which an event must be the reason. A frame
/// that arrives between the two explains one.
const IDLE_TURNS_MAX: u32 = 16;

type Received = Result<(Vec<u8>, u32), Error>;

/// See the module documentation.
pub(crate) struct State {
    node: Option<Node>,
    is_armed: bool,
    ports: BTreeMap<u16, Port>,
    /// Operations that have not ended.
    pending: Vec<Request>,
    waiting: HashMap<Request, Slot>,
    /// Set once a task has waited for an event. All are then taken, because the descriptor cannot
    /// be armed while one is left.
    takes_events: bool,
    /// Turns in a row that found no work and could not arm the descriptor.
    idle_turns: u32,
    /// An error is the last entry: no peer is left.
    events: VecDeque<Result<PeerEvent, Error>>,
    event_wakers: Vec<Waker>,
    /// Tasks that connect.
    connecting: Vec<Waker>,
    /// Number of messages that were received.
    received_count: u64,
}

#[derive(Default)]
struct Port {
    /// Received messages, the oldest first.
    queue: VecDeque<Received>,
    /// Messages that are being received, the oldest first.
    receiving: VecDeque<Request>,
    wakers: Vec<Waker>,
}

/// Operation that a task waits for, or that belongs to a port.
enum Slot {
    Pending(Option<Waker>),
    Ended(Result<Completion, Failed>),
    /// The future was dropped; the result is discarded.
    Abandoned,
}

impl State {
    pub(crate) fn new(node: Node) -> State {
        State {
            node: Some(node),
            is_armed: false,
            ports: BTreeMap::new(),
            pending: Vec::new(),
            waiting: HashMap::new(),
            takes_events: false,
            idle_turns: 0,
            events: VecDeque::new(),
            event_wakers: Vec::new(),
            connecting: Vec::new(),
            received_count: 0,
        }
    }

    pub(crate) fn received_count(&self) -> u64 {
        self.received_count
    }

    pub(crate) fn node(&mut self) -> Option<&mut Node> {
        self.node.as_mut()
    }

    pub(crate) fn take(&mut self) -> Option<Node> {
        let mut node = self.node.take();
        if let Some(node) = node.as_mut().filter(|_| self.is_armed) {
            node.disarm();
        }
        let of_ports = self.ports.values_mut();
        of_ports.for_each(|port| port.wakers.drain(..).for_each(Waker::wake));
        self.event_wakers.drain(..).for_each(Waker::wake);
        self.connecting.drain(..).for_each(Waker::wake);
        for slot in self.waiting.values_mut() {
            let ended = Slot::Ended(Err(Error::Cancelled.into()));
            if let Slot::Pending(Some(waker)) = std::mem::replace(slot, ended) {
                waker.wake();
            }
        }
        node
    }

    /// Handles everything that has arrived. Returns `true` when the descriptor is armed, or no
    /// further event can occur.
    pub(crate) fn work(&mut self) -> bool {
        let Some(node) = &mut self.node else {
            return true;
        };
        if std::mem::take(&mut self.is_armed) {
            node.disarm();
        }
        let progressed = node.progress();
        let is_idle = matches!(progressed, Ok(0));
        self.end_requests();
        self.receive();
        self.take_events();
        self.connecting.drain(..).for_each(Waker::wake);
        let armed = match (&mut self.node, progressed) {
            (Some(node), Ok(_)) => node.arm(),
            (_, Err(error)) => Err(error),
            (None, _) => return true,
        };
        match armed {
            Ok(armed) => {
                self.is_armed = armed;
                self.idle_turns = if is_idle && !armed {
                    self.idle_turns + 1
                } else {
                    0
                };
                if self.idle_turns == IDLE_TURNS_MAX {
                    self.take_left_events();
                }
                armed
            }
            Err(error) => {
                self.fail_waiting(&error);
                true
            }
        }
    }

    /// Passes the results of operations to the tasks that wait for them.
    fn end_requests(&mut self) {
        let Some(node) = &mut self.node else { return };
        while !self.pending.is_empty() {
            let Some(ended) = node.test_any(&mut self.pending) else {
                return;
            };
            let slot = self.waiting.get_mut(&ended.request);
            let Some(slot) = slot else { continue };
            match std::mem::replace(slot, Slot::Ended(ended.result)) {
                Slot::Pending(waker) => waker.into_iter().for_each(Waker::wake),
                _ => _ = self.waiting.remove(&ended.request),
            }
        }
    }

    /// Receives the messages at all ports for which tasks wait.
    fn receive(&mut self) {
        let mut ports = std::mem::take(&mut self.ports);
        for (number, port) in &mut ports {
            self.receive_at(*number, port);
        }
        self.ports = ports;
    }

    fn receive_at(&mut self, number: u16, port: &mut Port) {
        self.collect(port);
        while !port.wakers.is_empty() && port.len() < AHEAD_MAX {
            let Some(node) = &mut self.node else { return };
            let waiting = match node.probe_timeout(number, Duration::ZERO) {
                Ok(Some(waiting)) => waiting,
                Ok(None) => break,
                Err(error) => {
                    port.queue.push_back(Err(error));
                    break;
                }
            };
            if waiting.len > AHEAD_LEN_MAX && port.len() > 0 {
                break;
            }
            let mut memory = Vec::new();
            if memory.try_reserve_exact(waiting.len).is_err() {
                // The message waits until there is memory.
                break;
            }
            memory.resize(waiting.len, 0);
            match node.post_recv_from(waiting.source, number, memory) {
                Ok(request) => {
                    self.pending.push(request);
                    self.waiting.insert(request, Slot::Pending(None));
                    port.receiving.push_back(request);
                    self.received_count += 1;
                }
                // Its sender has ended; the next message may be another's.
                Err(Error::PeerGone { .. }) => {}
                Err(error) => port.queue.push_back(Err(error)),
            }
            self.end_requests();
            self.collect(port);
        }
        self.collect(port);
        if !port.queue.is_empty() {
            port.wakers.drain(..).for_each(Waker::wake);
        }
    }

    /// Moves received messages to the queue, in their order.
    fn collect(&mut self, port: &mut Port) {
        while let Some(request) = port.receiving.front() {
            let Some(Slot::Ended(_)) = self.waiting.get(request) else {
                return;
            };
            let ended = self.waiting.remove(request);
            port.receiving.pop_front();
            match ended {
                Some(Slot::Ended(Ok(done))) => {
                    let bytes = done.buffer.map(|buffer| buffer.into_vec());
                    let message = (bytes.unwrap_or_default(), done.source);
                    port.queue.push_back(Ok(message));
                }
                Some(Slot::Ended(Err(failed))) => match Error::from(failed) {
                    // The message is lost with its sender.
                    Error::PeerGone { .. } => {}
                    error => port.queue.push_back(Err(error)),
                },
                _ => {}
            }
        }
    }

    /// Fails the tasks that wait for messages and events, because none can arrive.
    fn fail_waiting(&mut self, error: &Error) {
        let Error::NobodyLeft { others } = *error else {
            return;
        };
        for port in self.ports.values_mut() {
            if port.len() == 0 && !port.wakers.is_empty() {
                port.queue.push_back(Err(Error::NobodyLeft { others }));
                port.wakers.drain(..).for_each(Waker::wake);
            }
        }
        if self.events.is_empty() && !self.event_wakers.is_empty() {
            self.events.push_back(Err(Error::NobodyLeft { others }));
            self.event_wakers.drain(..).for_each(Waker::wake);
        }
    }

    /// Takes the events of a program that has called [`Node::next_peer_event`] itself: the
    /// descriptor cannot be armed while one is left.
    fn take_left_events(&mut self) {
        self.idle_turns = 0;
        self.takes_events = true;
        self.take_events();
    }

    fn take_events(&mut self) {
        let Some(node) = &mut self.node else { return };
        if !self.takes_events {
            return;
        }
        while let Some(event) = node.next_peer_event() {
            self.events.push_back(Ok(event));
        }
        if !self.events.is_empty() {
            self.event_wakers.drain(..).for_each(Waker::wake);
        }
    }

    /// Takes the next message to a port. The second value is set if the driver must be woken.
    pub(crate) fn poll_recv(
        &mut self,
        number: u16,
        context: &mut Context<'_>,
    ) -> (Poll<Received>, bool) {
        if self.node.is_none() {
            return (Poll::Ready(Err(Error::Cancelled)), false);
        }
        let port = self.ports.entry(number).or_default();
        if let Some(received) = port.queue.pop_front() {
            return (Poll::Ready(received), false);
        }
        (Poll::Pending, register(&mut port.wakers, context))
    }

    /// Takes the next event. The second value is set if the driver must be woken.
    pub(crate) fn poll_event(
        &mut self,
        context: &mut Context<'_>,
    ) -> (Poll<Result<PeerEvent, Error>>, bool) {
        if self.node.is_none() {
            return (Poll::Ready(Err(Error::Cancelled)), false);
        }
        if let Some(event) = self.events.pop_front() {
            return (Poll::Ready(event), false);
        }
        self.takes_events = true;
        (Poll::Pending, register(&mut self.event_wakers, context))
    }

    pub(crate) fn poll_connected(
        &mut self,
        connecting: &Connecting,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        match &self.node {
            Some(node) if !node.has_connected(connecting) => {
                register(&mut self.connecting, context);
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Lists a request for which a task waits, unless it is listed already.
    fn await_request(&mut self, request: Request) {
        if self.waiting.contains_key(&request) {
            return;
        }
        if self.node.is_none() {
            let ended = Slot::Ended(Err(Error::Cancelled.into()));
            self.waiting.insert(request, ended);
            return;
        }
        self.pending.push(request);
        self.waiting.insert(request, Slot::Pending(None));
        // A short send has ended already. Otherwise this has made progress, behind the driver's
        // back.
        self.end_requests();
    }

    fn poll_request(
        &mut self,
        request: Request,
        context: &mut Context<'_>,
    ) -> Poll<Result<Completion, Failed>> {
        match self.waiting.get_mut(&request) {
            Some(Slot::Pending(waker)) => {
                waker.replace(context.waker().clone());
                Poll::Pending
            }
            Some(_) => match self.waiting.remove(&request) {
                Some(Slot::Ended(result)) => Poll::Ready(result),
                _ => Poll::Ready(Err(Error::StaleRequest.into())),
            },
            None => Poll::Ready(Err(Error::StaleRequest.into())),
        }
    }
}

impl Port {
    fn len(&self) -> usize {
        self.queue.len() + self.receiving.len()
    }
}

/// Adds the task of `context` unless it is there. Returns `true` if none was there.
fn register(wakers: &mut Vec<Waker>, context: &Context<'_>) -> bool {
    let waker = context.waker();
    let is_first = wakers.is_empty();
    if !wakers.iter().any(|known| known.will_wake(waker)) {
        wakers.push(waker.clone());
    }
    is_first
}

/// A task's wait for an operation.
pub(crate) struct Waiting<'a> {
    shared: &'a Arc<Shared>,
    request: Request,
    has_ended: bool,
    /// Set for a request of the program, which may wait for it again.
    is_kept: bool,
}

impl<'a> Waiting<'a> {
    /// Waits for a request of a method. It is abandoned if the future is dropped.
    pub(crate) fn new(shared: &'a Arc<Shared>, request: Request) -> Waiting<'a> {
        shared.locked().await_request(request);
        shared.ring();
        Waiting {
            shared,
            request,
            has_ended: false,
            is_kept: false,
        }
    }

    /// Waits for a request of the program. If the future is dropped, the program may wait again.
    pub(crate) fn kept(shared: &'a Arc<Shared>, request: Request) -> Waiting<'a> {
        let mut waiting = Waiting::new(shared, request);
        waiting.is_kept = true;
        waiting
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Completion, Failed>> {
        let poll = self.shared.locked().poll_request(self.request, context);
        self.has_ended = poll.is_ready();
        poll
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let state = &mut *self.shared.locked();
        if !self.has_ended
            && !self.is_kept
            && let Some(slot) = state.waiting.get_mut(&self.request)
            && let Slot::Ended(_) = std::mem::replace(slot, Slot::Abandoned)
        {
            state.waiting.remove(&self.request);
        }
    }
}
