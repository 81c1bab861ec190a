// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listening socket and client connections.
//!
//! The broker never waits for a client. A request is one record, and a reply is one record that
//! always fits the empty socket. A connection without a request is closed after a timeout. A
//! connection with a socket represents that socket. Closing it, as the kernel does when a process
//! exits, returns the endpoint.

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

/// Time limit for a connection's request. Clients send it directly after connecting.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Extra connections per user beyond those with sockets, because the processes of a job connect at
/// once.
const CONNECTIONS_EXTRA: u32 = 64;

/// Maximum connections of all users: descriptors of about 1 KiB each.
const CONNECTIONS_MAX: usize = 8192;

/// Descriptors for other purposes: the listener, the namespaces, the log.
const DESCRIPTORS_RESERVED: u64 = 64;

/// Maximum connections accepted before existing ones are served.
const ACCEPTS_MAX: usize = 64;

/// Interval for closing idle connections and freeing endpoints, without other events.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// First epoll token of a connection.
const TOKEN_FIRST: u64 = 1;

/// Reason why the broker cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot {0}: {1}; {2}")]
pub struct BrokerError(String, #[source] io::Error, &'static str);

fn failed(what: impl Into<String>, remedy: &'static str) -> impl FnOnce(io::Error) -> BrokerError {
    let what = what.into();
    move |source| BrokerError(what, source, remedy)
}

/// A broker that is ready to serve, with most privileges dropped.
pub struct Broker {
    config: Config,
    listener: SeqpacketListener,
    /// Set if this process created the listening socket and must remove its path.
    owns_name: bool,
    nics: Vec<Nic>,
    epoll: Epoll,
    clients: BTreeMap<u64, Client>,
    next_token: u64,
    clients_max: usize,
    /// Sockets with closed connections that may still exist in the kernel.
    closing: Vec<Leased>,
}

/// A client connection.
struct Client {
    connection: Seqpacket,
    uid: u32,
    since: Instant,
    leased: Option<(Leased, Mapping)>,
}

/// A leased socket and the quota that is charged to its user.
#[derive(Clone, Copy, Debug)]
struct Leased {
    uid: u32,
    nic: usize,
    grant: Grant,
    inode: u64,
}

impl Broker {
    /// Prepares the broker and drops privileges. It must be called before the process has other
    /// threads. With `activated` it uses the listening socket created by systemd.
    ///
    /// # Errors
    /// See [`BrokerError`].
    pub fn prepare(config: Config, activated: bool) -> Result<Broker, BrokerError> {
        let listener = listen(&config, activated)?;
        let confine = |dropped: io::Result<()>| {
            dropped.map_err(failed(
                "drop privileges",
                "start it as root, with all capabilities",
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
        let limits = "check the limit of open files (`ulimit -n`)";
        let clients_max =
            raise_descriptors().map_err(failed("raise the limit of open files", limits))?;
        let epoll = Epoll::new().map_err(failed("wait for requests", limits))?;
        confine(confine::drop_capabilities())?;
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
            closing: Vec::new(),
        })
    }

    /// Serves until `stop` is readable or hung up, then removes everything that it created.
    ///
    /// # Errors
    /// Waiting for events fails.
    pub fn serve(mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        let fds = [stop, self.listener.as_fd(), self.epoll.as_fd()].map(|fd| fd.as_raw_fd());
        let mut ready = Vec::new();
        while readiness(stop) == Readiness::default() {
            wait_readable(&fds, POLL_INTERVAL)?;
            self.accept();
            ready.clear();
            self.epoll.poll(&mut ready)?;
            self.free_closed();
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
        let max = self.config.quota.sockets.saturating_add(CONNECTIONS_EXTRA);
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
        // One byte more than a request, so that longer records are detected.
        let mut buffer = [0; lease::REQUEST_LEN + 1];
        let done = match client.connection.receive_with_fd(&mut buffer) {
            Ok(None) if !ready.hung_up => Ok(()),
            Ok(Some(record)) if record.len > 0 => {
                let request = Request::decode(&buffer[..record.len]);
                request.and_then(|request| self.lease(&mut client, &request))
            }
            _ => return self.close(client),
        };
        if let Err(refusal) = done {
            refuse(&client, refusal);
            return self.close(client);
        }
        self.clients.insert(ready.token, client);
    }

    /// Opens a socket and passes it to the client.
    fn lease(&mut self, client: &mut Client, request: &Request) -> Result<(), Refusal> {
        if client.leased.is_some() {
            // A connection represents one socket only.
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
        let opened = nic.run(move |inside| inside.open(grant.endpoint, &ring));
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
        // The client has exited or does not read, which is not an error of the broker.
        sent.map_err(|_| Refusal::Malformed)?;
        log::info!(
            "user {} has endpoint {} of {name}",
            client.uid,
            grant.endpoint
        );
        Ok(())
    }

    /// Returns the index of the NIC `interface` if one of the client's groups may use it.
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

    /// Returns all sockets that may still exist in the kernel.
    fn all_leased(&self) -> impl Iterator<Item = &Leased> {
        let clients = self.clients.values();
        let held = clients.filter_map(|client| client.leased.as_ref());
        held.map(|(leased, _)| leased).chain(&self.closing)
    }

    /// Closes a connection. Its socket counts until the kernel has freed it, because the owner may
    /// have duplicated it or passed it on.
    fn close(&mut self, client: Client) {
        self.epoll.remove(&client.connection);
        self.closing.extend(client.leased.map(|(leased, _)| leased));
    }

    fn free_closed(&mut self) {
        for (index, nic) in self.nics.iter().enumerate() {
            if !self.closing.iter().any(|leased| leased.nic == index) {
                continue;
            }
            let Ok(inodes) = nic.run(Inside::inodes) else {
                continue;
            };
            self.closing
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
            if let Err(error) = nic.run(Inside::remove) {
                log::warn!("{}: removing its macvlan: {error}", nic.config.interface);
            }
        }
        if self.owns_name
            && let Err(error) = fs::remove_file(&self.config.socket)
        {
            // The next broker removes it.
            log::info!("{} is not removed: {error}", self.config.socket);
        }
    }
}

/// Sends the reason for a refusal. A client that does not read does not receive it.
fn refuse(client: &Client, refusal: Refusal) {
    log::debug!("user {}: {refusal}", client.uid);
    if let Err(error) = client.connection.send(&lease::encode_reply(&Err(refusal))) {
        log::debug!("user {}: {error}", client.uid);
    }
}

/// Opens the listening socket. All users may connect; groups decide about NICs.
fn listen(config: &Config, activated: bool) -> Result<SeqpacketListener, BrokerError> {
    let name = &config.socket;
    let failed = |remedy| failed(format!("listen at {name}"), remedy);
    if activated {
        let listener = SeqpacketListener::activated().and_then(|found| {
            let missing = io::ErrorKind::NotFound;
            found.ok_or_else(|| missing.into())
        });
        return listener.map_err(failed(
            "start it through portolan-broker.socket, or with --foreground",
        ));
    }
    let taken = "stop the running broker, or choose another name";
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
        // Allows the broker to remove the path after it has switched to that user.
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

/// Raises the limit of descriptors as far as possible. Returns the resulting number of connections.
fn raise_descriptors() -> io::Result<usize> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    let connections = usize::try_from(hard.saturating_sub(DESCRIPTORS_RESERVED));
    Ok(connections.unwrap_or(CONNECTIONS_MAX).min(CONNECTIONS_MAX))
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENODEV) => "specify an interface that `ip link` lists",
        Some(libc::EPERM | libc::EACCES) => {
            "start it as root, with CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW"
        }
        Some(libc::EOPNOTSUPP | libc::ENOENT | libc::EINVAL) => {
            "it needs Linux 5.16 with macvlan, nf_tables and its egress hook, and an Ethernet interface"
        }
        Some(libc::EBUSY) => {
            "it belongs to a bridge, or has a macvlan in another mode: specify the bridge"
        }
        _ => "see `dmesg`",
    }
}
