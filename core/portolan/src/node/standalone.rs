// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers and clients without a launcher: processes that become peers when one connects to the
//! other.
//!
//! A standalone process is its own rank 0. Each peer gets the next free rank, which each side
//! chooses for itself. The one invariant: a [`Peer`] stands for one connection. A process that
//! connects again is another peer.

use super::exchange::PreparedPlans;
use super::group::SPLIT_ID_MIN;
use super::{Group, Node};
use crate::clock::Clock;
use crate::directory::{Directory, EndpointAddress, endpoint_key, shm_name};
use crate::engine::{Awaited, Engine, Inner, PeerEvent, Waiter};
use crate::error::Error;
use crate::launch::{Job, PathChoice, check_env};
use crate::links::{Links, Plan};
use crate::meeting::{Meeting, Refusal, Unconnected};
use crate::port::Target;
use crate::seal::Auth;
use crate::start::{CONNECT_TIMEOUT, EndpointConfig, new_core, random, set_options, short_address};
use crate::table::Table;
use portolan_link::ShmConfig;
use portolan_link::shm::OpenConfig;
use portolan_proto::{Instant, PeerId};
use portolan_sys::barrier;
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

/// A process that is connected to this standalone process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    rank: u32,
    generation: u32,
}

impl Peer {
    /// Combines a rank with the number of peers that had it before, as in an event.
    ///
    /// # Examples
    /// See [`Node::connect`].
    #[must_use]
    pub fn new(rank: u32, generation: u32) -> Peer {
        Peer { rank, generation }
    }

    /// Returns the rank by which this process addresses the peer. Another peer gets it at the
    /// earliest one second after this one has ended, and not before the program has taken the
    /// event of the end.
    ///
    /// # Examples
    /// See [`Node::connect`].
    #[must_use]
    pub fn rank(self) -> u32 {
        self.rank
    }

    /// Returns the number of peers that had the same rank before.
    ///
    /// # Examples
    /// See [`Node::connect`].
    #[must_use]
    pub fn generation(self) -> u32 {
        self.generation
    }

    /// Selects `port` of the peer.
    ///
    /// # Examples
    /// See [`Node::connect`].
    #[must_use]
    pub fn port(self, port: u16) -> Target {
        Target::new(self.rank, port)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}.{}", self.rank, self.generation)
    }
}

/// An attempt to connect, which [`Node::begin_connect`] has started.
#[derive(Debug)]
#[must_use = "the result is returned by `end_connect`"]
pub struct Connecting {
    id: u64,
    address: Box<str>,
    timeout: Duration,
    deadline: Instant,
}

impl PeerEvent {
    /// Returns the peer, for events of a standalone process.
    ///
    /// # Examples
    /// See [`Node::next_peer_event`].
    #[must_use]
    pub fn peer(&self) -> Peer {
        Peer::new(self.rank, self.generation)
    }
}

impl Node {
    /// Creates a process without a launcher, which finds its peers with [`Node::listen`] and
    /// [`Node::connect`]. It is rank 0 of a job of its own.
    ///
    /// # Errors
    /// [`Error::Link`] if a requested link cannot be opened, [`Error::Setting`] for an invalid
    /// setting, [`Error::Launch`] for an unknown variable.
    ///
    /// # Examples
    /// ```
    /// use portolan::{Node, PortConfig};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), portolan::Error> {
    /// let secret = b"from a file that only the user can read";
    /// let mut server = Node::standalone()?;
    /// server.open(7, PortConfig::default())?;
    /// let address = server.listen("127.0.0.1:0", secret)?;
    ///
    /// let mut client = Node::standalone()?;
    /// let to = client.connect(&address.to_string(), secret, Duration::from_secs(10))?;
    /// client.isend(to.port(7), b"ahoy".to_vec())?;
    /// # let client = std::thread::spawn(move || client.close());
    /// let (message, from) = server.recv_vec::<u8>(7)?;
    /// assert_eq!((&message[..], from), (&b"ahoy"[..], 1));
    /// # client.join().unwrap()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn standalone() -> Result<Node, Error> {
        Node::standalone_with(&EndpointConfig::default())
    }

    /// As [`Node::standalone`], with some settings of its own.
    ///
    /// # Errors
    /// As [`Node::standalone`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; fn main() -> Result<(), Error> {
    /// let mut config = EndpointConfig::default();
    /// config.encrypt = true;
    /// let node = Node::standalone_with(&config)?;
    /// # Ok(()) }
    /// ```
    pub fn standalone_with(config: &EndpointConfig) -> Result<Node, Error> {
        check_env()?;
        barrier::register_ahead();
        let token = random()?;
        let job = standalone_job(config)?;
        let auth = Auth::of(&job)?;
        let plan = Plan::new(&job)?;
        let directory = Arc::new(Directory::new(&token));
        directory.close_to_strangers();
        let shm = ShmConfig::open(OpenConfig {
            name: shm_name(&token),
            directory: Arc::clone(&directory) as Arc<_>,
        });
        let links = Links::open(&plan, &job, shm)?;
        let (own, unstarted) = short_address(&plan, &links)?;
        let address = EndpointAddress::of(&own, token);
        directory.set_own(address);
        // Rank 0 is this process itself.
        directory.insert(&address);
        let key = endpoint_key(&token);
        let liveness = unstarted.start_open(&key, Clock::new())?;
        let (mut core, model) = new_core(&job, auth, &links, &plan)?;
        let handshake_key = auth.handshake_key(&key);
        core.open(*address.as_bytes(), handshake_key, auth.is_sealed());
        let table = Table::of_endpoint(own, Arc::clone(&directory));
        let mut inner = Inner::new(job.clone(), auth, core, table, Clock::new())?;
        let first_call = u64::from(u32::from_le_bytes(random()?));
        inner.stand_alone(&directory, CONNECT_TIMEOUT, first_call);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let mut engine = Engine::new(inner, links, None, Some(liveness)).published(&model);
        engine.set_meeting(Meeting::start(directory, auth.code(), plan.ports())?);
        engine.register_fresh();
        Ok(Node {
            engine: engine.guard()?,
            job: Box::new(job),
            waiter: Waiter::of_endpoint(cores),
            descriptor: None,
            all: Group::of_job(0, 1),
            next_group_id: SPLIT_ID_MIN,
            is_clean: true,
            is_closed: false,
            model,
            plans: PreparedPlans::default(),
        })
    }

    /// Listens for peers at `address`, "HOST:PORT", from now on. Returns the address in use, with
    /// the port that the system has chosen for port 0. A process may listen at several addresses,
    /// each with a secret of its own.
    ///
    /// A thread serves the connections, so a peer can connect while the program computes. Peers
    /// must have `secret`, which never leaves this process. Who records a failed attempt can test
    /// guesses, so it should be 16 random bytes or more.
    ///
    /// # Errors
    /// [`Error::Address`] if the address cannot be used; [`Error::NotStandalone`].
    ///
    /// # Examples
    /// See [`Node::connect`].
    pub fn listen(&mut self, address: &str, secret: &[u8]) -> Result<SocketAddr, Error> {
        let engine = &mut *self.engine.enter();
        engine.inner.check_owner()?;
        let meeting = engine.meeting().ok_or(Error::NotStandalone)?;
        let mut first = None;
        for at in resolve(address, secret)? {
            let bound = meeting.listen(at, secret);
            let bound = bound.map_err(|errno| bad_address(address, &errno))?;
            first.get_or_insert(bound);
        }
        engine.inner.note_listening();
        first.ok_or_else(|| bad_address(address, &io::ErrorKind::AddrNotAvailable.into()))
    }

    /// Connects to the process that listens at `address`, "HOST:PORT", with the same secret. Waits
    /// at most `timeout` until such a process exists, so either side may start first. If a name
    /// has several addresses, the first that answers is used.
    ///
    /// If the two processes are connected already, returns the current peer. After an event of its
    /// loss, connecting again reaches its successor.
    ///
    /// # Errors
    /// [`Error::NoServer`] after the timeout; [`Error::ServerRefused`] at once if the secrets, the
    /// settings `auth` or the versions differ; [`Error::Address`]; [`Error::NotStandalone`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; use std::time::Duration; fn main() -> Result<(), Error> {
    /// # let (secret, patience) = (b"16 random bytes", Duration::from_secs(30));
    /// # let mut server = Node::standalone()?;
    /// let address = server.listen("127.0.0.1:0", secret)?.to_string();
    /// let mut client = Node::standalone()?;
    /// let peer: Peer = client.connect(&address, secret, patience)?;
    /// assert_eq!(client.peer(peer.rank()), Some(peer));
    /// assert_eq!(client.peers(), [peer]);
    /// client.disconnect(peer)?;
    /// # Ok(()) }
    /// ```
    pub fn connect(
        &mut self,
        address: &str,
        secret: &[u8],
        timeout: Duration,
    ) -> Result<Peer, Error> {
        let connecting = self.begin_connect(address, secret, timeout)?;
        // The thread ends the attempt at the deadline; this is for a thread that gets no core.
        let latest = connecting.deadline + CONNECT_GRACE;
        let (id, waits) = (connecting.id, Awaited::Condition);
        let has_ended = |inner: &Inner| inner.has_result(id);
        let mut engine = self.engine.enter();
        // An interruption ends one wait.
        while !has_ended(&engine.inner) && engine.inner.read_clock() < latest {
            (self.waiter).until_deadline(&mut engine, &[], waits, latest, has_ended);
        }
        drop(engine);
        self.end_connect(connecting)
    }

    /// Starts to connect as [`Node::connect`] does, without waiting. Resolves a host name first,
    /// which may take time.
    ///
    /// # Errors
    /// [`Error::Address`]; [`Error::NotStandalone`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; use std::time::Duration; fn main() -> Result<(), Error> {
    /// # let (secret, patience) = (b"16 random bytes", Duration::from_secs(30));
    /// # let mut server = Node::standalone()?;
    /// # let address = server.listen("127.0.0.1:0", secret)?.to_string();
    /// # let mut client = Node::standalone()?;
    /// let connecting = client.begin_connect(&address, secret, patience)?;
    /// while !client.has_connected(&connecting) {
    ///     client.progress()?;
    /// }
    /// let peer = client.end_connect(connecting)?;
    /// # client.disconnect(peer)?;
    /// # Ok(()) }
    /// ```
    pub fn begin_connect(
        &mut self,
        address: &str,
        secret: &[u8],
        timeout: Duration,
    ) -> Result<Connecting, Error> {
        let engine = &mut *self.engine.enter();
        engine.inner.check_owner()?;
        let deadline = engine.inner.deadline(timeout);
        let addresses = resolve(address, secret)?;
        let meeting = engine.meeting().ok_or(Error::NotStandalone)?;
        let id = meeting.connect(addresses, secret, deadline);
        engine.inner.note_attempt();
        Ok(Connecting {
            id,
            address: address.into(),
            timeout,
            deadline,
        })
    }

    /// Tests whether an attempt to connect has ended. Calls that wait or make progress notice the
    /// end, and it makes [`Node::event_fd`] readable.
    ///
    /// # Examples
    /// See [`Node::begin_connect`].
    #[must_use]
    pub fn has_connected(&self, connecting: &Connecting) -> bool {
        self.engine.read().inner.has_result(connecting.id)
    }

    /// Returns the result of an attempt to connect. One that has not ended is given up.
    ///
    /// # Errors
    /// As [`Node::connect`].
    ///
    /// # Examples
    /// See [`Node::begin_connect`].
    pub fn end_connect(&mut self, connecting: Connecting) -> Result<Peer, Error> {
        let engine = &mut *self.engine.enter();
        let Connecting {
            id,
            address,
            timeout,
            ..
        } = connecting;
        let address = address.into_string();
        let why = match engine.inner.take_result(id) {
            Some(Ok(peer)) => return Ok(engine.inner.peer(peer)),
            Some(Err(Unconnected::Refused(refusal))) => {
                return Err(Error::ServerRefused {
                    address,
                    is_wrong_secret: refusal == Refusal::WrongSecret,
                    why: refusal.text(),
                });
            }
            Some(Err(Unconnected::TimedOut(why))) => why,
            None => {
                if let Some(meeting) = engine.meeting() {
                    meeting.abandon(id);
                }
                "the attempt was given up".to_owned()
            }
        };
        Err(Error::NoServer {
            address,
            timeout,
            why,
        })
    }

    /// Disconnects from `peer`, after everything that was sent to it has arrived. The peer gets the
    /// event that this process has left. Has no effect on a peer that has ended.
    ///
    /// # Errors
    /// [`Error::NotStandalone`], [`Error::Forked`].
    ///
    /// # Examples
    /// See [`Node::connect`].
    pub fn disconnect(&mut self, peer: Peer) -> Result<(), Error> {
        self.disconnect_within(peer, None).map(|_| ())
    }

    /// Disconnects like [`Node::disconnect`], but waits at most for `timeout`. Returns `false`, and
    /// leaves the peer connected, if something has not arrived by then. A second after the first
    /// call, sends without a receiver no longer delay it.
    ///
    /// # Errors
    /// As [`Node::disconnect`].
    ///
    /// # Examples
    /// ```
    /// # use portolan::*; use std::time::Duration; fn main() -> Result<(), Error> {
    /// # let (secret, patience) = (b"16 random bytes", Duration::from_secs(30));
    /// # let mut server = Node::standalone()?;
    /// # let address = server.listen("127.0.0.1:0", secret)?.to_string();
    /// # let mut client = Node::standalone()?;
    /// let peer = client.connect(&address, secret, patience)?;
    /// assert!(client.disconnect_timeout(peer, patience)?);
    /// # Ok(()) }
    /// ```
    pub fn disconnect_timeout(&mut self, peer: Peer, timeout: Duration) -> Result<bool, Error> {
        self.disconnect_within(peer, Some(timeout))
    }

    fn disconnect_within(&mut self, peer: Peer, timeout: Option<Duration>) -> Result<bool, Error> {
        if self.peer(peer.rank) != Some(peer) {
            return match self.job.is_standalone() {
                true => Ok(true),
                false => Err(Error::NotStandalone),
            };
        }
        let engine = &mut *self.engine.enter();
        engine.inner.check_owner()?;
        engine.flush();
        let id = PeerId(peer.rank);
        // Repeated calls with short timeouts share the time for sends without a receiver.
        let begin = engine.inner.leaving_since(id);
        let is_over =
            |inner: &Inner| inner.is_gone(id) || !inner.undelivered_peers(begin).contains(&id);
        match timeout {
            None => (self.waiter).until(engine, &[id], Awaited::Close, is_over),
            Some(timeout) => {
                let deadline = engine.inner.deadline(timeout);
                (self.waiter).until_deadline(engine, &[id], Awaited::Close, deadline, is_over);
                if !is_over(&engine.inner) {
                    return Ok(false);
                }
            }
        }
        engine.leave_peer(id);
        Ok(true)
    }

    /// Returns the peer that has `rank` now, if there is one.
    ///
    /// # Examples
    /// See [`Node::connect`].
    #[must_use]
    pub fn peer(&self, rank: u32) -> Option<Peer> {
        let engine = self.engine.read();
        let directory = engine.inner.met_peers()?;
        let is_peer = directory.is_connected(PeerId(rank));
        is_peer.then(|| engine.inner.peer(PeerId(rank)))
    }

    /// Returns the peers of this standalone process.
    ///
    /// # Examples
    /// See [`Node::connect`].
    #[must_use]
    pub fn peers(&self) -> Vec<Peer> {
        let engine = self.engine.read();
        let Some(directory) = engine.inner.met_peers() else {
            return Vec::new();
        };
        let connected = directory.connected().into_iter();
        connected
            .map(|(peer, generation)| Peer::new(peer.0, generation))
            .collect()
    }
}

/// Time that a call waits beyond its deadline for the thread that connects.
const CONNECT_GRACE: Duration = Duration::from_secs(5);

impl Inner {
    fn peer(&self, peer: PeerId) -> Peer {
        let directory = self.met_peers();
        let generation = directory.map_or(0, |directory| directory.generation_of(peer));
        Peer::new(peer.0, generation)
    }
}

/// Returns a job of one process that has the settings.
fn standalone_job(config: &EndpointConfig) -> Result<Job, Error> {
    let mut job = Job::standalone(random()?, random()?);
    if config.path == PathChoice::Shm {
        return Err(Error::Setting {
            name: "path",
            value: "shm".to_owned(),
            why:
                "a standalone process has a network address; write auto, which uses shared memory \
                  within a host"
                    .to_owned(),
        });
    }
    set_options(&mut job, config);
    Ok(job)
}

/// Returns the addresses that a name stands for.
fn resolve(address: &str, secret: &[u8]) -> Result<Vec<SocketAddr>, Error> {
    if secret.is_empty() {
        return Err(Error::Setting {
            name: "secret",
            value: String::new(),
            why: "it is empty, so everyone has it; give both processes the same random bytes"
                .to_owned(),
        });
    }
    let found = address.to_socket_addrs();
    let found: Vec<_> = found
        .map_err(|errno| bad_address(address, &errno))?
        .collect();
    match found.is_empty() {
        true => Err(bad_address(
            address,
            &io::ErrorKind::AddrNotAvailable.into(),
        )),
        false => Ok(found),
    }
}

fn bad_address(address: &str, errno: &io::Error) -> Error {
    Error::Address {
        address: address.to_owned(),
        why: errno.to_string(),
    }
}
