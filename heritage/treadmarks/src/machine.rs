// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node and the memory of this process, under one lock.
//!
//! A thread of the program that waits holds the lock and drives the node. While the program
//! computes, a helper thread sleeps on the node's events, and serves the requests of other
//! processes. Both handle messages completely before they release the lock.

use crate::arena::Arena;
use crate::error::{Failure, failure, of_dsm};
use crate::gate::{self, Gate};
use crate::image;
use crate::mapping::{self, Mapping};
use crate::private::Private;
use crate::protocol::wire::{FOREIGN_KIND, Shape, kind_of};
use crate::protocol::{Dsm, DsmError, Limits};
use crate::settings::Settings;
use crate::startup::TMK_NPROCS;
use parking_lot::{Mutex, MutexGuard};
use portolan::binding::Plumbing as _;
use portolan::{Error, Message, Node, PeerEventKind, PortConfig, Request, Target};
use portolan_ffi::{fenced, run_promptly, this_thread};
use portolan_sys::process::spawn_quiet;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The Portolan port of all messages.
const CARRIER: u16 = 0x544d;
/// A port at which no message arrives. A receive there ends when its peer has failed.
const CANARY: u16 = CARRIER + 1;

/// Polls of a waiting thread: turns of each, polls before it yields the core, and before it sleeps.
const TURNS: u32 = 32;
const POLLS_BEFORE_YIELD: u32 = 16;
const POLLS_BEFORE_SLEEP: u32 = 24;
/// Longest sleep before a waiting thread checks its peers.
const SLEEP_MS: c_int = 200;

static MACHINE: Mutex<Option<Machine>> = Mutex::new(None);
/// Thread that holds the lock, or 0.
static HOLDER: AtomicUsize = AtomicUsize::new(0);
/// Set in a child of a process that has joined.
static FORKED: AtomicBool = AtomicBool::new(false);
/// Received messages with their senders.
static INBOX: Mutex<VecDeque<(u32, Vec<u8>)>> = Mutex::new(VecDeque::new());

extern "C" fn disown() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Returns whether this process is a child of one that has joined.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// The node and the memory of this process.
pub(crate) struct Machine {
    pub(crate) node: Node,
    pub(crate) dsm: Dsm<Mapping>,
    pub(crate) arena: Arena,
    pub(crate) settings: Settings,
    event_fd: RawFd,
    /// Open while the program computes.
    gate: Gate,
    /// Receive from each other process at a port without messages.
    canaries: Vec<Request>,
    /// Processes that have not answered this process's `Tmk_distribute`.
    pub(crate) unstored: u32,
    /// Set when every process has called `Tmk_exit`: they may leave in any order.
    pub(crate) is_ending: bool,
}

/// The lock, with the machine if the process has joined and not left.
pub(crate) struct Held(MutexGuard<'static, Option<Machine>>);

impl Held {
    /// Waits for the lock. Returns `None` if this thread already holds it.
    pub(crate) fn take() -> Option<Held> {
        if HOLDER.load(Ordering::Relaxed) == this_thread() {
            return None;
        }
        let guard = MACHINE.lock();
        HOLDER.store(this_thread(), Ordering::Relaxed);
        Some(Held(guard))
    }

    pub(crate) fn machine(&mut self) -> &mut Option<Machine> {
        &mut self.0
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HOLDER.store(0, Ordering::Relaxed);
    }
}

/// Sizes that must be the same in all processes, as process 0 sends them.
fn agree(node: &mut Node, settings: &mut Settings) -> Result<usize, Failure> {
    let own = mapping::page_len();
    let mut bytes = [0; 24];
    for (chunk, value) in bytes
        .chunks_mut(8)
        .zip([settings.heap_len, settings.collect_at, own])
    {
        chunk.copy_from_slice(&(value as u64).to_le_bytes());
    }
    node.broadcast(0, &mut bytes)?;
    let (numbers, _) = bytes.as_chunks::<8>();
    let number = |index: usize| {
        let value = u64::from_le_bytes(numbers[index]);
        usize::try_from(value).map_err(|_| failure("process 0 has more address bits than this one"))
    };
    (settings.heap_len, settings.collect_at) = (number(0)?, number(1)?);
    match number(2)? == own {
        true => Ok(own),
        false => Err(failure(format!(
            "a page has {own} bytes here and {} in process 0; use hosts of one kind",
            number(2)?
        ))),
    }
}

impl Machine {
    /// Joins the job, and creates the memory.
    pub(crate) fn join(mut settings: Settings) -> Result<Machine, Failure> {
        let mut node = Node::join()?;
        let size = node.size();
        if size > TMK_NPROCS {
            return Err(failure(format!(
                "the job has {size} processes, and at most {TMK_NPROCS} can share memory; start \
                 fewer"
            )));
        }
        let page_len = agree(&mut node, &mut settings)?;
        let heap_len = settings.heap_len.next_multiple_of(page_len);
        let too_large = || {
            failure(format!(
                "the heaps of {size} processes have too many pages together; reduce TMK_HEAP"
            ))
        };
        let total_len = heap_len.checked_mul(size as usize).ok_or_else(too_large)?;
        let page_count = u32::try_from(total_len / page_len).map_err(|_| too_large())?;
        let mapping = Mapping::create(total_len, page_len)?;
        let shape = Shape {
            size,
            page_len,
            page_count,
        };
        let limits = Limits {
            shape,
            collect_at: settings.collect_at,
        };
        let event_fd = node.event_fd()?.as_raw_fd();
        let keep = |_: &mut portolan::Context<'_>, message: Message<'_>| {
            let message = (message.source(), message.bytes().to_vec());
            INBOX.lock().push_back(message);
        };
        node.open_active(CARRIER, PortConfig::in_place(), keep)?;
        node.open(CANARY, PortConfig::default())?;
        let me = node.rank();
        let others = (0..size).filter(|&rank| rank != me);
        let canaries = others.map(|rank| node.post_recv_from(rank, CANARY, vec![0; 1]));
        let canaries = canaries.collect::<Result<_, _>>()?;
        portolan_ffi::watch_forks(disown);
        Ok(Machine {
            arena: Arena::new(heap_len * me as usize, heap_len, page_len),
            dsm: Dsm::new(me, limits, mapping),
            node,
            settings,
            event_fd,
            gate: Gate::new(event_fd)?,
            canaries,
            unstored: 0,
            is_ending: false,
        })
    }

    /// Starts the helper thread.
    pub(crate) fn start_helper(&self) -> Result<(), Failure> {
        let set = self.gate.set();
        let started = spawn_quiet("treadmarks", move || help(set));
        match started {
            Ok(_) => Ok(()),
            Err(error) => Err(failure(format!("cannot start the helper thread: {error}"))),
        }
    }

    /// Begins an operation of the memory, and waits until it is complete.
    pub(crate) fn perform(
        &mut self,
        begin: impl FnOnce(&mut Dsm<Mapping>) -> Result<(), DsmError>,
    ) -> Result<(), Failure> {
        begin(&mut self.dsm).map_err(|error| of_dsm(&error))?;
        self.transmit()?;
        self.wait(|machine| !machine.dsm.is_waiting())
    }

    /// Handles an access that needs no other process. The helper keeps the node.
    pub(crate) fn complete_local(&mut self, page: u32, write: bool) -> Result<(), Failure> {
        let handled = self.dsm.fault(page, write);
        handled.map_err(|error| of_dsm(&error))?;
        self.dsm.memory().check()
    }

    /// Sends the messages of the memory's protocol.
    fn transmit(&mut self) -> Result<(), Failure> {
        let mut is_sent = false;
        while let Some((to, bytes)) = self.dsm.poll_transmit() {
            self.node.isend_copy(Target::new(to, CARRIER), &bytes)?;
            is_sent = true;
        }
        if is_sent {
            self.node.flush();
        }
        self.dsm.memory().check()
    }

    /// Sends a message outside of the memory's protocol.
    pub(crate) fn send(&mut self, to: u32, message: &Private) -> Result<(), Failure> {
        let target = Target::new(to, CARRIER);
        self.node.isend_copy(target, &message.encode())?;
        self.node.flush();
        Ok(())
    }

    /// Makes progress until `done` returns true. Sleeps if that takes long.
    pub(crate) fn wait(&mut self, done: impl Fn(&Machine) -> bool) -> Result<(), Failure> {
        let mut idle = 0;
        while !done(self) {
            let moved = self.node.progress_until_moved(TURNS);
            if self.handle_inbox()? || moved > 0 {
                idle = 0;
                continue;
            }
            idle += 1;
            if idle >= POLLS_BEFORE_SLEEP {
                self.check_events()?;
                if self.sleep()? {
                    self.check_peers()?;
                }
            } else if idle >= POLLS_BEFORE_YIELD {
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Sleeps until an event may have occurred. Returns whether the sleep timed out.
    fn sleep(&mut self) -> Result<bool, Failure> {
        let is_armed = self.arm()?;
        let is_quiet = is_armed && !poll(self.event_fd, SLEEP_MS);
        self.node.disarm();
        Ok(is_quiet)
    }

    /// Handles received messages. Returns whether there were any.
    fn handle_inbox(&mut self) -> Result<bool, Failure> {
        let mut is_some = false;
        loop {
            let next = INBOX.lock().pop_front();
            let Some((from, bytes)) = next else {
                return Ok(is_some);
            };
            is_some = true;
            if kind_of(&bytes).is_some_and(|kind| kind >= FOREIGN_KIND) {
                self.on_private(from, &bytes)?;
            } else {
                let handled = self.dsm.handle(from, &bytes);
                handled.map_err(|error| of_dsm(&error))?;
                self.transmit()?;
            }
        }
    }

    fn on_private(&mut self, from: u32, bytes: &[u8]) -> Result<(), Failure> {
        match Private::decode(bytes) {
            Some(Private::Distribute { place, bytes }) => {
                let Some(target) = image::address_of(&place, bytes.len()) else {
                    return Err(failure(format!(
                        "process {from} distributes a variable that this process does not have; \
                         all processes must run the same program"
                    )));
                };
                // SAFETY: writable data of the program. The program does not use it before the
                // synchronisation that follows its distribution.
                unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
                self.send(from, &Private::Stored)
            }
            Some(Private::Stored) => {
                self.unstored = self.unstored.saturating_sub(1);
                Ok(())
            }
            Some(Private::Free { offset }) => {
                let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                match self.arena.free(offset) {
                    true => Ok(()),
                    false => Err(failure(format!("process {from} freed memory twice"))),
                }
            }
            None => Err(of_dsm(&DsmError::Unexpected("a message"))),
        }
    }

    /// Fails if a process has ended before its time.
    fn check_events(&mut self) -> Result<(), Failure> {
        while let Some(event) = self.node.next_peer_event() {
            if self.is_ending {
                continue;
            }
            let how = match event.kind {
                PeerEventKind::Left => "has left the job; call Tmk_exit() in all processes".into(),
                _ => format!("has failed: {}", event.reason),
            };
            let (rank, host) = (event.rank, event.host);
            return Err(failure(format!("process {rank} on {host} {how}")));
        }
        Ok(())
    }

    /// Fails if a process has stopped answering.
    fn check_peers(&mut self) -> Result<(), Failure> {
        if self.is_ending {
            return Ok(());
        }
        for index in 0..self.canaries.len() {
            self.node.test(self.canaries[index])?;
        }
        Ok(())
    }

    /// Takes the node from the helper.
    pub(crate) fn take_over(&mut self) -> Result<(), Failure> {
        self.gate.close()?;
        self.node.disarm();
        Ok(())
    }

    /// Gives the node back to the helper, which sleeps until there is work.
    pub(crate) fn leave(&mut self) -> Result<(), Failure> {
        while !self.arm()? {
            self.node.disarm();
            let _moved = self.node.progress();
            self.handle_inbox()?;
            self.check_events()?;
        }
        self.gate.open()
    }

    /// Makes the event descriptor signal. Returns `false` if there is work already: any call of the
    /// node may have received messages.
    fn arm(&mut self) -> Result<bool, Failure> {
        Ok(portolan_ffi::arm(&mut self.node)? && INBOX.lock().is_empty())
    }

    /// Handles received messages.
    fn serve(&mut self) -> Result<(), Failure> {
        self.node.disarm();
        self.handle_inbox()?;
        self.check_events()?;
        self.leave()
    }

    /// Ends the job because of a failure.
    fn abort(mut self, text: &str) {
        self.node.abort(1, text);
        // Dropping the node would wait for operations that can never complete.
        std::mem::forget(self);
    }
}

/// Sleeps until the descriptor is readable. Returns `false` after `timeout_ms`.
fn poll(fd: RawFd, timeout_ms: c_int) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one live element.
    unsafe { libc::poll(&raw mut poll, 1, timeout_ms) != 0 }
}

/// The helper thread: serves other processes while the program computes, until the process leaves.
fn help(set: RawFd) {
    run_promptly();
    loop {
        gate::pass(set);
        let Some(mut held) = Held::take() else {
            return;
        };
        let Some(machine) = held.machine() else {
            return;
        };
        if let Err(why) = fenced(|| machine.serve()) {
            fail(held, "", &why);
            end_now();
        }
    }
}

/// Prints a failure and ends the job. The caller then ends the process.
#[cold]
pub(crate) fn fail(mut held: Held, name: &str, why: &Failure) {
    let why = why.text();
    let own = held.machine().take();
    drop(held);
    let call = if name.is_empty() {
        String::new()
    } else {
        format!("{name}(): ")
    };
    let text = match &own {
        Some(machine) => format!("process {}: {call}{why}", machine.dsm.me()),
        None => format!("{call}{why}"),
    };
    eprintln!("treadmarks: {text}");
    if let Some(machine) = own {
        machine.abort(&text);
    }
}

/// Ends the process without exit handlers, because the program may be in any state.
#[cold]
pub(crate) fn end_now() -> ! {
    // SAFETY: the call has no preconditions.
    unsafe { libc::_exit(1) }
}

/// Runs the body of function `name` with the machine. A failure ends the job.
pub(crate) fn run<T>(name: &str, body: impl FnOnce(&mut Machine) -> Result<T, Failure>) -> T {
    let mut held = enter(name);
    let Some(machine) = held.machine() else {
        let text = "call Tmk_startup() before, and nothing after Tmk_exit()";
        fail(held, name, &failure(text));
        std::process::exit(1)
    };
    let result = fenced(|| {
        machine.take_over()?;
        let value = body(machine)?;
        machine.leave()?;
        Ok(value)
    });
    match result {
        Ok(value) => value,
        Err(why) => {
            fail(held, name, &why);
            std::process::exit(1)
        }
    }
}

/// Takes the lock for function `name`. A process that cannot take it is ended.
pub(crate) fn enter(name: &str) -> Held {
    if is_forked() {
        eprintln!("treadmarks: {name}(): {}", Error::Forked);
        std::process::exit(1)
    }
    match Held::take() {
        Some(held) => held,
        None => {
            eprintln!("treadmarks: {name}(): called from a signal handler");
            end_now()
        }
    }
}
