// SPDX-License-Identifier: MIT OR Apache-2.0
//! The listening socket, and who is connected.
//!
//! Nothing here waits for a client: a request is one record, a reply is one record that finds an empty
//! socket, and a connection without a request is closed after a while. A connection that has a socket
//! stands for it; closing it, as a process does that ends, gives it back.

use crate::config::{Config, Quota};
use crate::confine;
use crate::nic::{self, Inside, Nic};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use portolan_link::packet::lease::{self, Grant, Refusal, Request};
use portolan_sys::epoll::{Epoll, Ready};
use portolan_sys::mapping::Mapping;
use portolan_sys::net::{Readiness, readiness, wait_readable};
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

/// Between looks at who has not asked, and at what the kernel has freed, if nothing else happens.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Tokens of the epoll set below the connections'.
const TOKEN_FIRST: u64 = 1;

/// Why a broker cannot be.
#[derive(Debug, thiserror::Error)]
#[error("cannot {0}: {1}; {2}")]
pub struct BrokerError(String, #[source] io::Error, &'static str);

fn failed(what: impl Into<String>, remedy: &'static str) -> impl FnOnce(io::Error) -> BrokerError {
    let what = what.into();
    move |source| BrokerError(what, source, remedy)
}

/// A broker that is ready to serve, and can do little else any more.
pub struct Broker {
    config: Config,
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
    leased: Option<(Leased, Mapping)>,
}

/// What a socket counts for.
#[derive(Clone, Copy, Debug)]
struct Leased {
    uid: u32,
    nic: usize,
    grant: Grant,
    inode: u64,
}

impl Broker {
    /// Prepares all, and gives up what is not needed afterwards: to be called before the process has
    /// other threads. With `activated` the listening socket is the one that systemd has made.
    ///
    /// # Errors
    /// See [`BrokerError`].
    pub fn prepare(config: Config, activated: bool) -> Result<Broker, BrokerError> {
        let listener = listen(&config, activated)?;
        let confine = |give_up: io::Result<()>| {
            give_up.map_err(failed(
                "give privileges up",
                "start it as root, with capabilities",
            ))
        };
        confine(confine::become_user(config.user))?;
        let mut nics = Vec::new();
        for nic in &config.nic {
            let name = &nic.interface;
            let prepared = Nic::prepare(nic.clone());
            let prepared = prepared.map_err(|error| {
                let remedy = remedy(&error);
                failed(format!("serve {name}"), remedy)(error)
            })?;
            let mac = prepared.mac;
            log::info!("{name} is served from {mac}, {} endpoints", nic.endpoints);
            nics.push(prepared);
        }
        let limits = "check the limits of descriptors (`ulimit -n`)";
        let clients_max = raise_descriptors().map_err(failed("have descriptors", limits))?;
        let epoll = Epoll::new().map_err(failed("wait for requests", limits))?;
        confine(confine::keep_nothing())?;
        confine(confine::filter_calls())?;
        Ok(Broker {
            owns_name: !activated && !config.socket.starts_with('@'),
            config,
            listener,
            nics,
            epoll,
            clients: BTreeMap::new(),
            next_token: TOKEN_FIRST,
            clients_max,
            gone: Vec::new(),
        })
    }

    /// Serves until `stop` is readable or hung up, then removes all that it has made.
    ///
    /// # Errors
    /// When the kernel does not let it wait.
    pub fn serve(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        let fds = [stop, self.listener.as_fd(), self.epoll.as_fd()].map(|fd| fd.as_raw_fd());
        let mut ready = Vec::new();
        while readiness(stop) == Readiness::default() {
            wait_readable(&fds, LOOK_INTERVAL)?;
            self.accept();
            ready.clear();
            self.epoll.look(&mut ready)?;
            self.free_gone();
            ready.iter().for_each(|ready| self.handle(*ready));
            self.close_idle();
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
            let client = Client {
                connection,
                uid: cred.uid,
                since: Instant::now(),
                leased: None,
            };
            let token = self.next_token;
            if let Err(refusal) = self.may_connect(cred.uid) {
                refuse(&client, refusal);
            } else if self.epoll.add(&client.connection, token).is_ok() {
                self.next_token += 1;
                self.clients.insert(token, client);
            }
        }
    }

    fn may_connect(&self, uid: u32) -> Result<(), Refusal> {
        let max = self.config.quota.sockets.saturating_add(CONNECTIONS_SPARE);
        let own = self.clients.values().filter(|client| client.uid == uid);
        if own.count() >= max as usize || self.clients.len() >= self.clients_max {
            return Err(Refusal::Connections(max.into()));
        }
        Ok(())
    }

    fn handle(&mut self, ready: Ready) {
        let Some(mut client) = self.clients.remove(&ready.token) else {
            return;
        };
        // One byte more than a request, so that a longer record is seen to be one.
        let mut buffer = [0; lease::REQUEST_LEN + 1];
        let done = match client.connection.receive_with_fd(&mut buffer) {
            Ok(None) if !ready.hung_up => Ok(()),
            Ok(Some(record)) if record.len > 0 => {
                let request = Request::decode(&buffer[..record.len]);
                request.and_then(|request| self.lend(&mut client, &request))
            }
            _ => return self.close(client),
        };
        if let Err(refusal) = done {
            refuse(&client, refusal);
            return self.close(client);
        }
        self.clients.insert(ready.token, client);
    }

    /// Opens a socket and passes it on.
    fn lend(&mut self, client: &mut Client, request: &Request) -> Result<(), Refusal> {
        if client.leased.is_some() {
            // It stands for that socket alone.
            return Err(Refusal::Malformed);
        }
        let index = self.may_use(client, &request.interface)?;
        let ring = nic::ring_of(self.nics[index].mtu, request.ring_len);
        self.check_quota(client.uid, ring.len() as u64)?;
        let taken = self.all_leased().filter(|leased| leased.nic == index);
        let taken: HashSet<u16> = taken.map(|leased| leased.grant.endpoint).collect();
        let nic = &mut self.nics[index];
        let all = Refusal::Endpoints(nic.config.endpoints.into());
        let grant = Grant {
            endpoint: nic.free_endpoint(&taken).ok_or(all)?,
            mac: nic.mac,
            mtu: u32::try_from(nic.mtu).unwrap_or(u32::MAX),
            ring,
        };
        let name = &nic.config.interface;
        let system = |error: io::Error| {
            log::warn!("{name}: {error}");
            Refusal::System(error.raw_os_error().unwrap_or(libc::EIO))
        };
        let opened = nic.ask(move |inside| inside.open(grant.endpoint, &ring));
        let opened = opened.map_err(system)?;
        let leased = Leased {
            uid: client.uid,
            nic: index,
            grant,
            inode: opened.inode,
        };
        client.leased = Some((leased, opened.ring));
        let record = lease::encode_reply(&Ok(grant));
        let sent = client
            .connection
            .send_with_fd(&record, opened.socket.as_fd());
        // It has gone, or does not read: nothing is wrong here.
        sent.map_err(|_| Refusal::Malformed)?;
        log::info!(
            "user {} has endpoint {} of {name}",
            client.uid,
            grant.endpoint
        );
        Ok(())
    }

    /// The number of the NIC `interface`, if one of the client's groups may use it.
    fn may_use(&self, client: &Client, interface: &str) -> Result<usize, Refusal> {
        let named = |nic: &Nic| nic.config.interface == interface;
        let index = self.nics.iter().position(named).ok_or(Refusal::NoSuchNic)?;
        let Some(allowed) = &self.nics[index].config.groups.0 else {
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
        } = self.config.quota;
        let own = || self.all_leased().filter(|leased| leased.uid == uid);
        if own().count() >= sockets as usize {
            return Err(Refusal::Sockets(sockets.into()));
        }
        let held: u64 = own().map(|leased| leased.grant.ring.len() as u64).sum();
        if held.saturating_add(ring_len) > ring_memory {
            return Err(Refusal::RingMemory(ring_memory));
        }
        Ok(())
    }

    /// All that the kernel may still have.
    fn all_leased(&self) -> impl Iterator<Item = &Leased> {
        let clients = self.clients.values();
        let held = clients.filter_map(|client| client.leased.as_ref());
        held.map(|(leased, _)| leased).chain(&self.gone)
    }

    /// Closes a connection. Its socket counts until the kernel has none such: its owner may have kept
    /// it, or passed it on.
    fn close(&mut self, client: Client) {
        self.epoll.remove(&client.connection);
        self.gone.extend(client.leased.map(|(leased, _)| leased));
    }

    fn free_gone(&mut self) {
        for (index, nic) in self.nics.iter().enumerate() {
            if !self.gone.iter().any(|leased| leased.nic == index) {
                continue;
            }
            let Ok(inodes) = nic.ask(Inside::inodes) else {
                continue;
            };
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
            let client = self.clients.remove(&token);
            client.into_iter().for_each(|client| self.close(client));
        }
    }

    fn remove(self) {
        for nic in &self.nics {
            if let Err(error) = nic.ask(Inside::remove) {
                log::warn!("{}: removing its macvlan: {error}", nic.config.interface);
            }
        }
        if self.owns_name
            && let Err(error) = fs::remove_file(&self.config.socket)
        {
            // The next broker does it.
            log::info!("{} stays: {error}", self.config.socket);
        }
    }
}

/// Says why there is no socket; a client that does not read is not told.
fn refuse(client: &Client, refusal: Refusal) {
    log::debug!("user {}: {refusal}", client.uid);
    if let Err(error) = client.connection.send(&lease::encode_reply(&Err(refusal))) {
        log::debug!("user {}: {error}", client.uid);
    }
}

/// The listening socket, which everybody may connect to: who may have what is said by groups.
fn listen(config: &Config, activated: bool) -> Result<SeqpacketListener, BrokerError> {
    let name = &config.socket;
    let failed = |remedy| failed(format!("listen at {name}"), remedy);
    if activated {
        let listener = SeqpacketListener::activated().and_then(|found| {
            let missing = io::ErrorKind::NotFound;
            found.ok_or_else(|| missing.into())
        });
        return listener.map_err(failed(
            "start it by portolan-broker.socket, or with --foreground",
        ));
    }
    let taken = "end the broker that is there, or choose another name";
    if name.starts_with('@') {
        return SeqpacketListener::bind_named(name).map_err(failed(taken));
    }
    if Seqpacket::connect_named(name).is_ok() {
        return Err(failed(taken)(io::ErrorKind::AddrInUse.into()));
    }
    bind_path(config).map_err(failed("choose a directory that root can write"))
}

fn bind_path(config: &Config) -> io::Result<SeqpacketListener> {
    let path = Path::new(&config.socket);
    if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
        fs::create_dir_all(directory)?;
        // So that it can remove the name when it has become that user.
        std::os::unix::fs::chown(directory, Some(config.user.uid), Some(config.user.gid))?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = SeqpacketListener::bind_named(&config.socket)?;
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
