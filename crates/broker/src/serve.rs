// SPDX-License-Identifier: MIT OR Apache-2.0
//! The listening socket, and who is connected.
//!
//! Nothing here waits for a client: a request is one record, a reply is one record that finds an empty
//! socket, and a connection without a request is closed after a while. A connection that has a socket
//! stands for it; closing it, as a process does that ends, gives it back.

use crate::config::{Quota, Settings};
use crate::confine;
use crate::nic::{self, Held, Nic};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use portolan_link::packet::lease::{self, Grant, Refusal, Request};
use portolan_sys::epoll::{Epoll, Ready};
use portolan_sys::net::wait_readable;
use portolan_sys::seqpacket::{Seqpacket, SeqpacketListener};
use std::collections::{BTreeMap, HashSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A connection has to ask within this time: a request is sent right behind the connect.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections of a user beyond those that have sockets: a job's processes connect at once.
const CONNECTIONS_SPARE: u32 = 64;

/// Connections of all users: descriptors, at some 1 KiB each.
const CONNECTIONS_MAX: usize = 8192;

/// Descriptors that are no connections: the listener, the namespaces', the log.
const DESCRIPTORS_SPARE: u64 = 64;

/// Connections accepted before others get their turn.
const ACCEPTS_MAX: usize = 64;

/// Between looks at sockets that nobody holds here any more and that the kernel still has.
const GONE_INTERVAL: Duration = Duration::from_millis(200);

/// Between looks at who has not asked.
const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// Tokens of the epoll set below the connections'.
const TOKEN_FIRST: u64 = 1;

/// Why a broker cannot be.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// The listening socket.
    #[error("cannot listen at {name}: {source}; {remedy}")]
    Listen {
        /// Its name.
        name: String,
        /// What the kernel said.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// A NIC.
    #[error("cannot serve {interface}: {source}; {remedy}")]
    Nic {
        /// Its name.
        interface: String,
        /// What the kernel said.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// Giving privileges up.
    #[error("cannot give privileges up: {0}; start it as root, with capabilities")]
    Confine(#[source] io::Error),
    /// Anything else of the kernel's.
    #[error("{what}: {source}")]
    System {
        /// What was done.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

/// A broker that is ready to serve, and can do little else any more.
pub struct Broker {
    settings: Settings,
    listener: SeqpacketListener,
    /// The listening socket is this process's own, and its name to be removed.
    owns_name: bool,
    nics: Vec<Nic>,
    epoll: Epoll,
    clients: BTreeMap<u64, Client>,
    next_token: u64,
    clients_max: usize,
    /// Sockets whose connections are closed, and which the kernel may still have.
    gone: Vec<Leased>,
}

/// A connection.
struct Client {
    connection: Seqpacket,
    uid: u32,
    since: Instant,
    leased: Option<(Leased, Held)>,
}

/// What a socket counts for.
#[derive(Clone, Copy, Debug)]
struct Leased {
    uid: u32,
    nic: usize,
    endpoint: u16,
    ring_len: u64,
    inode: u64,
}

impl Broker {
    /// Prepares all, and gives up what is not needed afterwards: to be called before the process has
    /// other threads. With `activated` the listening socket is the one that systemd has made.
    ///
    /// # Errors
    /// See [`BrokerError`].
    pub fn prepare(settings: Settings, activated: bool) -> Result<Broker, BrokerError> {
        let listener = listen(&settings, activated)?;
        confine::become_user(settings.uid, settings.gid).map_err(BrokerError::Confine)?;
        let mut nics = Vec::new();
        for nic in &settings.nics {
            let interface = nic.interface.clone();
            let prepared = Nic::prepare(nic.clone()).map_err(|source| BrokerError::Nic {
                interface,
                remedy: remedy(&source),
                source,
            })?;
            let (name, mac) = (&prepared.settings.interface, prepared.mac);
            log::info!("{name} is served from {mac}, {} endpoints", nic.endpoints);
            nics.push(prepared);
        }
        let system = |what| move |source| BrokerError::System { what, source };
        let clients_max = raise_descriptors().map_err(system("limit of descriptors"))?;
        let epoll = Epoll::new().map_err(system("epoll"))?;
        confine::keep_nothing().map_err(BrokerError::Confine)?;
        confine::filter_calls().map_err(BrokerError::Confine)?;
        Ok(Broker {
            owns_name: !activated && !settings.socket.starts_with('@'),
            settings,
            listener,
            nics,
            epoll,
            clients: BTreeMap::new(),
            next_token: TOKEN_FIRST,
            clients_max,
            gone: Vec::new(),
        })
    }

    /// Serves until `stop` is readable, then removes all that it has made.
    ///
    /// # Errors
    /// When the kernel does not let it wait.
    pub fn serve(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        let fds = [
            stop.as_raw_fd(),
            self.listener.as_fd().as_raw_fd(),
            self.epoll.as_fd().as_raw_fd(),
        ];
        let mut idle_at = Instant::now() + IDLE_INTERVAL;
        let mut ready = Vec::new();
        while !portolan_sys::net::readiness(stop).readable {
            let patience = match self.gone.is_empty() {
                true => IDLE_INTERVAL,
                false => GONE_INTERVAL,
            };
            wait_readable(&fds, patience)?;
            self.accept();
            ready.clear();
            self.epoll.look(&mut ready)?;
            for ready in &ready {
                self.handle(*ready);
            }
            self.free_gone();
            if Instant::now() >= idle_at {
                idle_at = Instant::now() + IDLE_INTERVAL;
                self.close_idle();
            }
        }
        self.remove();
        Ok(())
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            let connection = match self.listener.accept() {
                Ok(Some(connection)) => connection,
                Ok(None) => return,
                Err(error) => return log::warn!("accept: {error}"),
            };
            let Ok(cred) = connection.peer_cred() else {
                continue;
            };
            if let Err(refusal) = self.may_connect(cred.uid) {
                answer(&connection, &Err(refusal));
                continue;
            }
            let token = self.next_token;
            if self.epoll.add(&connection, token).is_ok() {
                self.next_token += 1;
                let client = Client {
                    connection,
                    uid: cred.uid,
                    since: Instant::now(),
                    leased: None,
                };
                self.clients.insert(token, client);
            }
        }
    }

    fn may_connect(&self, uid: u32) -> Result<(), Refusal> {
        let max = self
            .settings
            .quota
            .sockets
            .saturating_add(CONNECTIONS_SPARE);
        let own = self.clients.values().filter(|client| client.uid == uid);
        if own.count() >= max as usize || self.clients.len() >= self.clients_max {
            return Err(Refusal::Connections(max.into()));
        }
        Ok(())
    }

    fn handle(&mut self, ready: Ready) {
        let Some(client) = self.clients.get(&ready.token) else {
            return;
        };
        // One byte more than a request, so that a longer record is seen to be one.
        let mut buffer = [0; lease::REQUEST_LEN + 1];
        let record = match client.connection.receive_with_fd(&mut buffer) {
            Ok(None) if !ready.hung_up => return,
            Ok(Some(record)) if record.len > 0 => record,
            _ => return self.close(ready.token),
        };
        // Whoever has a socket asks on another connection.
        let is_first = client.leased.is_none();
        let uid = client.uid;
        let request = Request::decode(&buffer[..record.len]);
        let reply = match request {
            Ok(request) if is_first => self.lend(ready.token, &request),
            Ok(_) => Err(Refusal::Malformed),
            Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = reply {
            log::debug!("user {uid}: {refusal}");
            if let Some(client) = self.clients.get(&ready.token) {
                answer(&client.connection, &Err(refusal));
            }
            self.close(ready.token);
        }
    }

    /// Opens a socket and passes it on.
    fn lend(&mut self, token: u64, request: &Request) -> Result<(), Refusal> {
        let Some(client) = self.clients.get(&token) else {
            return Ok(());
        };
        let uid = client.uid;
        let index = self.may_use(client, &request.interface)?;
        let ring = nic::ring_of(self.nics[index].mtu, request.ring_len);
        self.check_quota(uid, ring.len() as u64)?;
        let taken = self.all_leased().filter(|leased| leased.nic == index);
        let taken: HashSet<u16> = taken.map(|leased| leased.endpoint).collect();
        let nic = &mut self.nics[index];
        let all = Refusal::Endpoints(nic.settings.endpoints.into());
        let endpoint = nic.free_endpoint(&taken).ok_or(all)?;
        let opened = nic.open(endpoint, ring).map_err(|error| {
            log::warn!("{}: {error}", nic.settings.interface);
            Refusal::System(error.raw_os_error().unwrap_or(libc::EIO))
        })?;
        let grant = Grant {
            endpoint,
            mac: nic.mac,
            mtu: u32::try_from(nic.mtu).unwrap_or(u32::MAX),
            ring: opened.ring,
        };
        log::info!(
            "user {uid} has endpoint {endpoint} of {}",
            nic.settings.interface
        );
        let leased = Leased {
            uid,
            nic: index,
            endpoint,
            ring_len: ring.len() as u64,
            inode: opened.held.inode,
        };
        if let Some(client) = self.clients.get_mut(&token) {
            client.leased = Some((leased, opened.held));
            let record = lease::encode_reply(&Ok(grant));
            let sent = client
                .connection
                .send_with_fd(&record, opened.socket.as_fd());
            if let Err(error) = sent {
                log::debug!("user {uid}: {error}");
                self.close(token);
            }
        }
        Ok(())
    }

    /// The number of the NIC `interface`, if one of the client's groups may use it.
    fn may_use(&self, client: &Client, interface: &str) -> Result<usize, Refusal> {
        let named = |nic: &Nic| nic.settings.interface == interface;
        let index = self.nics.iter().position(named).ok_or(Refusal::NoSuchNic)?;
        let Some(allowed) = &self.nics[index].settings.groups else {
            return Ok(index);
        };
        let groups = client.connection.peer_groups().unwrap_or_default();
        match client.uid == 0 || groups.iter().any(|group| allowed.contains(group)) {
            true => Ok(index),
            false => Err(Refusal::NotAllowed),
        }
    }

    fn check_quota(&self, uid: u32, ring_len: u64) -> Result<(), Refusal> {
        let Quota {
            sockets,
            ring_memory,
        } = self.settings.quota;
        let own = || self.all_leased().filter(|leased| leased.uid == uid);
        if own().count() >= sockets as usize {
            return Err(Refusal::Sockets(sockets.into()));
        }
        let held: u64 = own().map(|leased| leased.ring_len).sum();
        if held.saturating_add(ring_len) > ring_memory {
            return Err(Refusal::RingMemory(ring_memory));
        }
        Ok(())
    }

    /// All that the kernel may still have.
    fn all_leased(&self) -> impl Iterator<Item = &Leased> {
        let held = self
            .clients
            .values()
            .filter_map(|client| client.leased.as_ref());
        held.map(|(leased, _)| leased).chain(&self.gone)
    }

    /// Closes a connection. Its socket counts until the kernel has none such: its owner may have kept
    /// it, or passed it on.
    fn close(&mut self, token: u64) {
        if let Some(client) = self.clients.remove(&token) {
            self.epoll.remove(&client.connection);
            self.gone.extend(client.leased.map(|(leased, _)| leased));
        }
    }

    fn free_gone(&mut self) {
        for (index, nic) in self.nics.iter().enumerate() {
            if !self.gone.iter().any(|leased| leased.nic == index) {
                continue;
            }
            let Ok(inodes) = nic.inodes() else { continue };
            self.gone
                .retain(|leased| leased.nic != index || inodes.contains(&leased.inode));
        }
    }

    fn close_idle(&mut self) {
        let is_idle =
            |client: &Client| client.leased.is_none() && client.since.elapsed() > REQUEST_TIMEOUT;
        let idle = self.clients.iter().filter(|(_, client)| is_idle(client));
        let idle: Vec<u64> = idle.map(|(&token, _)| token).collect();
        for token in idle {
            self.close(token);
        }
    }

    fn remove(self) {
        for nic in &self.nics {
            if let Err(error) = nic.remove() {
                log::warn!("{}: removing its macvlan: {error}", nic.settings.interface);
            }
        }
        if self.owns_name
            && let Err(error) = fs::remove_file(&self.settings.socket)
        {
            // The next broker does it.
            log::info!("{} stays: {error}", self.settings.socket);
        }
    }
}

/// Sends a reply without a socket; a client that does not read has none.
fn answer(connection: &Seqpacket, reply: &Result<Grant, Refusal>) {
    if let Err(error) = connection.send(&lease::encode_reply(reply)) {
        log::debug!("reply: {error}");
    }
}

/// The listening socket, which everybody may connect to: who may have what is said by groups.
fn listen(settings: &Settings, activated: bool) -> Result<SeqpacketListener, BrokerError> {
    let name = &settings.socket;
    let failed = |remedy| {
        move |source| BrokerError::Listen {
            name: name.clone(),
            source,
            remedy,
        }
    };
    if activated {
        let remedy = "start it by portolan-broker.socket, or with --foreground";
        let activated = SeqpacketListener::activated().map_err(failed(remedy))?;
        return activated.ok_or_else(|| failed(remedy)(io::ErrorKind::NotFound.into()));
    }
    if name.starts_with('@') {
        let listener = SeqpacketListener::bind_named(name);
        return listener.map_err(failed(
            "end the broker that is there, or choose another name",
        ));
    }
    if Seqpacket::connect_named(name).is_ok() {
        let taken = io::ErrorKind::AddrInUse.into();
        return Err(failed(
            "end the broker that is there, or choose another name",
        )(taken));
    }
    bind_path(settings).map_err(failed("choose a directory that root can write"))
}

fn bind_path(settings: &Settings) -> io::Result<SeqpacketListener> {
    let path = Path::new(&settings.socket);
    if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
        fs::create_dir_all(directory)?;
        // So that it can remove the name when it has become that user.
        std::os::unix::fs::chown(directory, Some(settings.uid), Some(settings.gid))?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = SeqpacketListener::bind_named(&settings.socket)?;
    fs::set_permissions(path, Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// As many descriptors as may be; returns how many connections that makes.
fn raise_descriptors() -> io::Result<usize> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let connections = usize::try_from(hard.saturating_sub(DESCRIPTORS_SPARE));
    Ok(connections.unwrap_or(CONNECTIONS_MAX).min(CONNECTIONS_MAX))
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENODEV) => "name an interface that `ip link` lists",
        Some(libc::EPERM | libc::EACCES) => {
            "start it as root, with CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW"
        }
        Some(libc::EOPNOTSUPP | libc::ENOENT | libc::EINVAL) => {
            "it takes Linux 5.16 with macvlan, nf_tables and its egress hook, and an Ethernet"
        }
        Some(libc::EBUSY) => "it is a bridge's, or a macvlan's in another mode: name the bridge",
        _ => "see `dmesg`",
    }
}
