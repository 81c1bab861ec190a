// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node of this process, and the lock around it and the [`World`].
//!
//! Functions of the program run without the lock, so they may call anything. The handler of arriving
//! messages runs inside calls of the node, with the lock held by that call.

use crate::code::*;
use crate::error::{Failure, lacking};
use crate::world::World;
use portolan::{Error, Message, Node, PortConfig};
use portolan_ffi::Locked;
use std::cell::{RefCell, RefMut};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The port of Portolan's that carries everything: "VI".
pub(crate) const CARRIER: u16 = 0x5649;

/// How long the end of the process waits for the lock: many times what any call holds it.
const PATIENCE: Duration = Duration::from_secs(1);

/// The one of this process.
struct WorldCell(RefCell<World>);

// SAFETY: it is borrowed only by who holds the machine's lock: `world` needs a reference to what that
// guards, and the handler runs inside calls of the node, which is behind it, too.
unsafe impl Sync for WorldCell {}
// SAFETY: as above; the addresses in it are memory that the program lends to whichever thread is in the
// library.
unsafe impl Send for WorldCell {}

static WORLD: WorldCell = WorldCell(RefCell::new(World::new()));

/// See the module documentation.
pub(crate) struct Machine {
    node: Option<Node>,
    /// exit() was called.
    pub(crate) is_over: bool,
    /// The node's, for sleeping.
    pub(crate) event_fd: RawFd,
    /// Turns in which nothing came, since something did.
    pub(crate) idle_turns: u32,
    /// How many there were when it was looked who lives, and when others were let have the core.
    pub(crate) looked_at: u32,
    pub(crate) yielded_at: u32,
    /// Where messages are put together.
    pub(crate) scratch: Vec<u8>,
}

static MACHINE: Locked<Machine> = Locked::new(Machine {
    node: None,
    is_over: false,
    event_fd: -1,
    idle_turns: 0,
    looked_at: 0,
    yielded_at: 0,
    scratch: Vec::new(),
});

/// In a child of a process that has joined: the node is the parent's.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn disown() {
    FORKED.store(true, Ordering::Relaxed);
}

/// The machine, with the lock held.
pub(crate) type Held = portolan_ffi::Held<Machine>;

/// Whether more than one thread has ever been in the library.
pub(crate) fn is_shared() -> bool {
    MACHINE.is_shared()
}

/// The machine, in whatever state.
#[inline]
pub(crate) fn lock() -> Result<Held, Failure> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Error::Forked.into());
    }
    MACHINE.take().ok_or_else(inside)
}

#[cold]
fn inside() -> Failure {
    lacking(
        "this thread is in a function of the library, and was interrupted by a signal: call none from its handler",
    )
}

/// Runs the body of a function with the lock held; afterwards, without it, those are called that want to
/// know what has happened.
#[inline]
pub(crate) fn call(body: impl FnOnce(&mut Machine) -> Result<VIP_RETURN, Failure>) -> VIP_RETURN {
    portolan_ffi::guard(|| {
        let mut machine = lock()?;
        let result = body(&mut machine);
        release(machine);
        result
    })
}

/// Gives the lock back, and calls those that want to know what has happened.
#[inline]
pub(crate) fn release(machine: Held) {
    let has_calls = machine.world().has_calls;
    drop(machine);
    if has_calls {
        crate::helper::deliver();
    }
}

impl Machine {
    /// Everything but the node; not to be held while the node is called.
    #[inline]
    pub(crate) fn world(&self) -> RefMut<'_, World> {
        WORLD.0.borrow_mut()
    }

    #[inline]
    pub(crate) fn node(&mut self) -> Result<&mut Node, Failure> {
        self.node.as_mut().ok_or_else(not_begun)
    }

    /// Joins the job, if that has not happened.
    pub(crate) fn join(&mut self) -> Result<(), Failure> {
        if self.is_over {
            return Err(lacking("the process is ending: exit() was called"));
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
        self.node = Some(node);
        portolan_ffi::watch_forks(disown);
        // SAFETY: the function exists as long as this library.
        if unsafe { libc::atexit(leave) } != 0 {
            return Err(lacking("the system has no place for a function at exit"));
        }
        Ok(())
    }
}

#[cold]
fn not_begun() -> Failure {
    crate::error::invalid("call VipOpenNic() first")
}

/// Runs when the process ends: ends its connections, and leaves the job when what was sent has arrived.
extern "C" fn leave() {
    let closed = portolan_ffi::fenced(|| {
        if FORKED.load(Ordering::Relaxed) {
            return Ok(());
        }
        // The thread that calls handlers comes out soon; another that does not will not: the launcher sees
        // to the job's end.
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
    /// Memory that the program has lent may be gone: nothing is taken in any more.
    fn retire(&mut self) -> Result<(), Failure> {
        self.acknowledge()?;
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
