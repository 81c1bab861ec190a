// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node of this process, and the lock around it and the [`World`].
//!
//! The program's functions run without the lock, so they may call any function. The handler of
//! incoming messages runs in calls of the node, whose caller holds the lock.

use crate::code::*;
use crate::error::{Failure, exhausted};
use crate::world::World;
use portolan::binding::Plumbing as _;
use portolan::{Error, Message, Node, PortConfig};
use portolan_ffi::{Locked, Served, Serving};
use std::cell::{RefCell, RefMut};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The Portolan port for all messages: "VI".
pub(crate) const CARRIER: u16 = 0x5649;

/// Time for which the exit handler waits for the lock: much longer than any call holds it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The only [`World`] of this process.
struct WorldCell(RefCell<World>);

// SAFETY: borrowed only while the machine's lock is held. `world` needs a reference to the machine,
// and the handler runs in calls of the node, which is part of the machine.
unsafe impl Sync for WorldCell {}
// SAFETY: as above. The addresses in it refer to memory that the program makes available to
// whichever thread is in the library.
unsafe impl Send for WorldCell {}

static WORLD: WorldCell = WorldCell(RefCell::new(World::new()));

/// The node and its state; see the module documentation.
pub(crate) struct Machine {
    node: Option<Node>,
    /// Set by the exit handler.
    pub(crate) is_over: bool,
    /// Event descriptor of the node, for sleeping.
    pub(crate) event_fd: RawFd,
    /// Number of passes since the last message.
    pub(crate) idle_passes: u32,
    /// Values of `idle_passes` at the last liveness check and at the last yield.
    pub(crate) checked_at: u32,
    pub(crate) yielded_at: u32,
    /// Buffer in which messages are assembled.
    pub(crate) scratch: Vec<u8>,
    /// The thread that makes progress while the program computes.
    serving: Serving,
}

static MACHINE: Locked<Machine> = Locked::new(Machine {
    node: None,
    is_over: false,
    event_fd: -1,
    idle_passes: 0,
    checked_at: 0,
    yielded_at: 0,
    scratch: Vec::new(),
    serving: Serving::new(),
});

/// Set in a child of a process that has joined; the node belongs to the parent.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn disown() {
    FORKED.store(true, Ordering::Relaxed);
}

/// The machine, with the lock held.
pub(crate) type Held = portolan_ffi::Held<Machine>;

/// Returns true if more than one thread has ever been in the library.
pub(crate) fn is_shared() -> bool {
    MACHINE.is_shared()
}

/// Locks the machine in any state.
#[inline]
pub(crate) fn lock() -> Result<Held, Failure> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Error::Forked.into());
    }
    let mut machine = MACHINE.take().ok_or_else(inside)?;
    if machine.serving.on_call() {
        machine.resume();
    }
    Ok(machine)
}

#[cold]
fn inside() -> Failure {
    exhausted(
        "a signal handler has interrupted a function of the library: do not call the library from signal handlers",
    )
}

/// Runs the body of a function with the lock held. Afterwards, without the lock, pending functions
/// of the program are called.
#[inline]
pub(crate) fn call(body: impl FnOnce(&mut Machine) -> Result<VIP_RETURN, Failure>) -> VIP_RETURN {
    portolan_ffi::guard(|| {
        let mut machine = lock()?;
        let result = body(&mut machine);
        release(machine);
        result
    })
}

/// Releases the lock, and wakes the thread that calls the program's functions.
#[inline]
pub(crate) fn release(machine: Held) {
    let has_calls = machine.world().has_calls;
    drop(machine);
    if has_calls {
        crate::helper::deliver();
    }
}

impl Machine {
    /// Borrows the state. It must not be borrowed while the node is called.
    #[inline]
    pub(crate) fn world(&self) -> RefMut<'_, World> {
        WORLD.0.borrow_mut()
    }

    #[inline]
    pub(crate) fn node(&mut self) -> Result<&mut Node, Failure> {
        self.node.as_mut().ok_or_else(not_begun)
    }

    /// Takes the node back from the thread that makes progress.
    #[cold]
    fn resume(&mut self) {
        if let Some(node) = &mut self.node {
            self.serving.resume(node);
        }
    }

    /// Joins the job, unless this process has joined.
    pub(crate) fn join(&mut self) -> Result<(), Failure> {
        if self.is_over {
            return Err(exhausted("the process is ending: exit() was called"));
        }
        if self.node.is_some() {
            return Ok(());
        }
        let mut node = Node::join()?;
        self.event_fd = node.event_fd()?.as_raw_fd();
        {
            let mut world = self.world();
            world.size = node.size();
            world.rank = node.rank();
        }
        node.open_active(
            CARRIER,
            PortConfig::in_place(),
            |_, message: Message<'_>| {
                let mut world = WORLD.0.borrow_mut();
                world.on_message(message.source(), message.bytes());
            },
        )?;
        if node.has_progress_thread() {
            self.serving.start("vipl-progress", &mut node, with)?;
        }
        self.node = Some(node);
        portolan_ffi::watch_forks(disown);
        // SAFETY: the function exists as long as this library.
        if unsafe { libc::atexit(leave) } != 0 {
            return Err(exhausted("atexit() failed: the system is out of memory"));
        }
        Ok(())
    }
}

/// Runs `step` for the thread that makes progress.
fn with(step: &mut dyn FnMut(&mut dyn Served)) -> Option<()> {
    let mut machine = MACHINE.take()?;
    step(&mut *machine);
    release(machine);
    Some(())
}

impl Served for Machine {
    fn serving(&mut self) -> &mut Serving {
        &mut self.serving
    }

    fn node(&mut self) -> Option<&mut Node> {
        self.node.as_mut()
    }

    fn pass(&mut self) -> Result<usize, String> {
        // Ignore errors of a peer: each of its connections reports the failure.
        let moved = Machine::node(self).map(|node| node.progress().unwrap_or(0));
        let pass = moved.and_then(|moved| {
            self.advance_longs()?;
            self.work()?;
            self.acknowledge()?;
            Ok(moved)
        });
        pass.map_err(|failure| failure.text().to_owned())
    }
}

#[cold]
fn not_begun() -> Failure {
    crate::error::invalid("call VipOpenNic() first")
}

/// Runs when the process exits. Ends all connections, and leaves the job when sent data has
/// arrived.
extern "C" fn leave() {
    let closed = portolan_ffi::fenced(|| {
        if FORKED.load(Ordering::Relaxed) {
            return Ok(());
        }
        // The thread that calls handlers releases the lock soon. If another thread does not, the
        // launcher ends the job.
        let Some(mut machine) = MACHINE.take_within(PATIENCE) else {
            return Ok(());
        };
        machine.is_over = true;
        if machine.node.is_some() {
            machine.retire()?;
        }
        match machine.node.take() {
            Some(node) => Ok(portolan_ffi::leave(node)?),
            None => Ok::<_, Failure>(()),
        }
    });
    if let Err(failure) = closed {
        eprintln!("vipl: at exit: {}", failure.text());
    }
}

impl Machine {
    /// Closes all NICs. The program's memory may be invalid already, so no more messages are
    /// accepted.
    fn retire(&mut self) -> Result<(), Failure> {
        self.acknowledge()?;
        let posted = self.world().longs.posted();
        for request in posted {
            self.node()?.cancel(request);
        }
        {
            let mut world = self.world();
            let all: Vec<u32> = world.nics.iter().map(|(index, _)| index).collect();
            for nic in all {
                world.close(nic, true);
            }
        }
        self.work()
    }
}
