// SPDX-License-Identifier: MIT OR Apache-2.0
//! The node of this process, and the lock of the node and the [`World`].
//!
//! Callbacks of the program run without the lock, so they may call anything. The handler of arriving
//! messages runs inside calls of the node, with the lock held by that call.

use crate::code::*;
use crate::error::{Failure, invalid};
use crate::port::{gm_port, index_of};
use crate::world::World;
use portolan::binding::Plumbing as _;
use portolan::{Error, Message, Node, PortConfig};
use portolan_ffi::{Locked, Served, Serving};
use std::cell::{RefCell, RefMut};
use std::ffi::c_int;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The Portolan port that carries all of GM's messages. Programs of GM use no other port.
pub(crate) const CARRIER: u16 = 0x474d;

/// Maximum number of processes: a node id has 16 bits, and 0 is no node.
const NODES_MAX: u32 = 65_534;

/// Time that a message may wait for a buffer unless the environment overrides it. GM too waited
/// long before it gave up a receiver.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time for which the exit handler waits for the lock: much longer than the progress thread holds
/// it.
const EXIT_PATIENCE: Duration = Duration::from_secs(1);

/// Environment variable that overrides it, in milliseconds.
const PATIENCE_VARIABLE: &str = "GM_SEND_TIMEOUT";

/// Cell of this process's world.
struct WorldCell(RefCell<World>);

// SAFETY: it is borrowed only by the holder of the machine's lock. `world` needs a reference to the
// locked value, and the handler runs inside calls of the node, which the lock also protects.
unsafe impl Sync for WorldCell {}
// SAFETY: as above; its addresses are memory that the program exposes to any thread in the library.
unsafe impl Send for WorldCell {}

static WORLD: WorldCell = WorldCell(RefCell::new(World::new()));

/// The node of this process, with the state of waits.
pub(crate) struct Machine {
    node: Option<Node>,
    /// Number of calls of gm_init(), minus those of gm_finalize().
    pub(crate) uses: u32,
    is_over: bool,
    /// Event descriptor of the node, for sleeping.
    pub(crate) event_fd: RawFd,
    /// Number of passes without a received message, since the last message.
    pub(crate) idle_passes: u32,
    /// Value of `idle_passes` at the last check of the peers.
    pub(crate) checked_at: u32,
    /// Value of `idle_passes` when this thread last yielded its core.
    pub(crate) yielded_at: u32,
    /// The thread that makes progress while the program computes.
    serving: Serving,
}

static MACHINE: Locked<Machine> = Locked::new(Machine {
    node: None,
    uses: 0,
    is_over: false,
    event_fd: -1,
    idle_passes: 0,
    checked_at: 0,
    yielded_at: 0,
    serving: Serving::new(),
});

/// Set in a child of a process that has joined: the node belongs to the parent.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn disown() {
    FORKED.store(true, Ordering::Relaxed);
}

/// The machine, with the lock held.
pub(crate) type Held = portolan_ffi::Held<Machine>;

/// Returns whether more than one thread has ever been in the library. From then on waits sleep only
/// briefly.
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
    let text = "a signal handler has interrupted a function of the library: do not call the library \
                from signal handlers";
    Failure::new(GM_FAILURE, text)
}

impl Machine {
    /// Borrows the world. The borrow must end before the node is called.
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

    /// Joins the job unless that has happened.
    pub(crate) fn join(&mut self) -> Result<(), Failure> {
        if self.is_over {
            let text = "the process is ending: exit() was called";
            return Err(Failure::new(GM_FAILURE, text));
        }
        if self.node.is_some() {
            return Ok(());
        }
        let patience = patience()?;
        let mut node = Node::join()?;
        if node.size() > NODES_MAX {
            let text = format!(
                "the job has {} processes, and GM supports at most {NODES_MAX}; start fewer",
                node.size()
            );
            return Err(Failure::new(GM_FAILURE, text));
        }
        self.event_fd = node.event_fd()?.as_raw_fd();
        {
            let mut world = self.world();
            world.size = node.size();
            world.patience = patience;
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
            self.serving.start("gm-progress", &mut node, with)?;
        }
        self.node = Some(node);
        portolan_ffi::watch_forks(disown);
        // SAFETY: the function exists as long as this library.
        if unsafe { libc::atexit(leave) } != 0 {
            let text = "atexit() failed: the system is out of memory";
            return Err(Failure::new(GM_UNTRANSLATED_SYSTEM_ERROR, text));
        }
        Ok(())
    }
}

/// Runs `step` for the thread that makes progress.
fn with(step: &mut dyn FnMut(&mut dyn Served)) -> Option<()> {
    let mut machine = MACHINE.take()?;
    step(&mut *machine);
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
        // GM has no event for the end of all other processes.
        let moved = Machine::node(self).map(|node| node.progress().unwrap_or(0));
        let pass = moved.and_then(|moved| {
            self.work()?;
            self.acknowledge()?;
            Ok(moved)
        });
        pass.map_err(|failure| failure.text().to_owned())
    }
}

#[cold]
fn not_begun() -> Failure {
    Failure::new(GM_UNATTACHED, "call gm_init() and gm_open() first")
}

fn patience() -> Result<Duration, Failure> {
    match std::env::var(PATIENCE_VARIABLE) {
        Err(_) => Ok(PATIENCE),
        Ok(value) => match value.parse() {
            Ok(ms) => Ok(Duration::from_millis(ms)),
            Err(_) => Err(invalid(format!(
                "{PATIENCE_VARIABLE} is {value:?}, not a number of milliseconds"
            ))),
        },
    }
}

/// Runs when the process exits. Leaves the job when all sent messages have arrived.
extern "C" fn leave() {
    let closed = portolan_ffi::fenced(|| {
        if FORKED.load(Ordering::Relaxed) {
            return Ok(());
        }
        // If the progress thread holds the lock, it releases it soon. Another thread inside the
        // library will not return. The launcher then ends the job.
        let Some(mut machine) = MACHINE.take_within(EXIT_PATIENCE) else {
            return Ok(());
        };
        machine.is_over = true;
        if machine.node.is_some() {
            machine.acknowledge()?;
            let posted = machine.world().retire();
            for request in posted {
                machine.node()?.cancel(request);
            }
        }
        match machine.node.take() {
            Some(node) => Ok(portolan_ffi::leave(node)?),
            None => Ok::<_, Failure>(()),
        }
    });
    if let Err(failure) = closed {
        eprintln!("gm: at exit: {}", failure.text());
    }
}

/// Locks the machine and returns it with the number of an open port.
#[inline]
pub(crate) fn enter(port: *const gm_port) -> Result<(Held, u8), Failure> {
    let Some(own) = index_of(port) else {
        return Err(not_a_port());
    };
    let machine = lock()?;
    if !machine.world().port(own).is_open {
        return Err(Failure::new(
            GM_UNATTACHED,
            format!("port {own} is closed; open it with gm_open()"),
        ));
    }
    Ok((machine, own))
}

#[cold]
fn not_a_port() -> Failure {
    invalid("the pointer is not a port; pass the handle that gm_open() stored")
}

/// Runs the body of a function that cannot return a failure. A failure ends the job.
#[inline]
pub(crate) fn must<T>(name: &str, body: impl FnOnce() -> Result<T, Failure>) -> T {
    match portolan_ffi::fenced(body) {
        Ok(value) => value,
        Err(failure) => die(&format!("{name}(): {}", failure.text()), 1),
    }
}

/// Prints `text` and ends the job.
#[cold]
pub(crate) fn die(text: &str, status: c_int) -> ! {
    eprintln!("gm: {text}");
    if !FORKED.load(Ordering::Relaxed)
        && let Some(mut machine) = MACHINE.take_now()
        && let Some(mut node) = machine.node.take()
    {
        machine.is_over = true;
        node.abort(status, text);
        // Dropping it would wait for events that never occur.
        std::mem::forget(node);
    }
    std::process::exit(status)
}
