// SPDX-License-Identifier: MIT OR Apache-2.0
//! Performs one process's part of a program, and reports the result of each step.

use crate::plan::{
    Fault, Goal, How, Members, Message, Outcome, Pick, Place, Program, Reducer, Remote, Step,
    UNTOUCHED, Wanted, sum, sum_values, values,
};
use portolan::binding::DropReason;
use portolan::{
    Access, AtomicOp, Buffer, Completion, Datatype, Error, Group, Lane, Node, PortConfig, Received,
    ReduceOp, Registration, RemoteKey, RemoteTarget, Request, TagMatch, TagTarget, Target,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Kind of request in a slot.
#[derive(Clone, Copy)]
enum Kind {
    Send,
    Receive { tagged: bool },
    Access,
    Fetch,
}

type Heard = Arc<Mutex<Vec<(u32, u64, u64)>>>;

/// A process that performs its part.
pub(crate) struct Player {
    node: Option<Node>,
    slots: HashMap<u32, (Request, Kind)>,
    heard: HashMap<u16, Heard>,
    regions: HashMap<u32, Registration>,
    keys: HashMap<u32, RemoteKey>,
    bursts: HashMap<u16, Vec<Request>>,
}

/// Joins, performs the steps of this process, and passes the result of each to `report`.
pub(crate) fn play(program: &Program, mut report: impl FnMut(u32, &Outcome)) {
    let node = Node::join().unwrap();
    let rank = node.rank();
    let mut player = Player {
        node: Some(node),
        slots: HashMap::new(),
        heard: HashMap::new(),
        regions: HashMap::new(),
        keys: HashMap::new(),
        bursts: HashMap::new(),
    };
    for step in &program.processes[rank as usize] {
        let outcome = player
            .perform(step)
            .unwrap_or_else(|error| Outcome::Fault(fault(&error)));
        report(rank, &outcome);
    }
}

fn lane(high: bool) -> Lane {
    if high { Lane::High } else { Lane::Low }
}

fn target(to: Goal, port: u16) -> Target {
    Target::new(to.rank, port).lane(lane(to.high))
}

fn tag_target(to: Goal, tag: u64, imm: Option<u64>) -> TagTarget {
    let target = TagTarget::new(to.rank, tag).lane(lane(to.high));
    imm.map_or(target, |imm| target.imm(imm))
}

fn tag_match(which: Wanted, tag: u64, ignore: u64) -> TagMatch {
    let wanted = TagMatch::new(tag).ignore(ignore);
    which.source.map_or(wanted, |rank| wanted.source(rank))
}

/// Converts an error to the form of the plan.
fn fault(error: &Error) -> Fault {
    match error {
        &Error::NoSuchRank { rank, size } => Fault::NoSuchRank { rank, size },
        &Error::NoSuchMember { member, size } => Fault::NoSuchMember { member, size },
        &Error::NobodyLeft { others } => Fault::NobodyLeft { others },
        &Error::PeerGone { rank, .. } => Fault::PeerGone { rank },
        &Error::PortClosed { port } => Fault::PortClosed(port),
        &Error::PortInUse { port } => Fault::PortInUse(port),
        &Error::PortHandled { port } => Fault::PortHandled(port),
        &Error::Truncated {
            port,
            message_len,
            buffer_len,
            ..
        } => Fault::Truncated {
            port,
            message_len,
            buffer_len,
        },
        &Error::TruncatedTagged {
            source_rank,
            tag,
            message_len,
            buffer_len,
            ..
        } => Fault::TruncatedTagged {
            source: source_rank,
            tag,
            message_len,
            buffer_len,
        },
        Error::BufferShared => Fault::BufferShared,
        Error::RegionShared => Fault::RegionShared,
        Error::StaleRequest => Fault::StaleRequest,
        Error::Cancelled => Fault::Cancelled,
        Error::Setting { name, .. } => Fault::Setting((*name).to_owned()),
        Error::RemoteRefused { rank, fault, .. } => Fault::RemoteRefused {
            rank: *rank,
            why: format!("{fault:?}"),
        },
        other => Fault::Other(other.to_string()),
    }
}

impl Player {
    fn node(&mut self) -> &mut Node {
        self.node.as_mut().expect("nothing follows `Close`")
    }

    fn perform(&mut self, step: &Step) -> Result<Outcome, Error> {
        match step {
            Step::Open(_)
            | Step::OpenActive { .. }
            | Step::Flush
            | Step::Progress
            | Step::SleepUs(_)
            | Step::Close
            | Step::Kill => self.around(step),
            Step::Send { .. } | Step::Start { .. } | Step::Wait(_) | Step::Test(_) => {
                self.send_or_wait(step)
            }
            Step::Barrier(_) | Step::Broadcast { .. } | Step::Reduce { .. } | Step::Group(_) => {
                self.together(step)
            }
            Step::Burst { .. } | Step::ExpectBursts { .. } | Step::TakeBursts(_) => {
                self.best_effort(step)
            }
            Step::Recv { .. }
            | Step::Post { .. }
            | Step::PostShared(_)
            | Step::Cancel(_)
            | Step::Peek(_)
            | Step::PeekNothing(_)
            | Step::Claim { .. }
            | Step::Handled { .. } => self.receive(step),
            _ => self.remote(step),
        }
    }

    fn around(&mut self, step: &Step) -> Result<Outcome, Error> {
        match *step {
            Step::Open(port) => self.node().open(port, PortConfig::default())?,
            Step::OpenActive { port, buffers } => self.open_active(port, buffers)?,
            Step::Flush => self.node().flush(),
            Step::Progress => {
                // Fails if other processes have ended, which depends on time.
                let _ = self.node().progress();
            }
            Step::SleepUs(micros) => std::thread::sleep(Duration::from_micros(micros)),
            Step::Close => self.node.take().expect("closed once").close()?,
            Step::Kill => {
                let own = nix::unistd::Pid::this();
                nix::sys::signal::kill(own, nix::sys::signal::Signal::SIGKILL).unwrap();
                loop {
                    std::thread::park();
                }
            }
            _ => unreachable!("not given to this function"),
        }
        Ok(Outcome::Done)
    }

    fn open_active(&mut self, port: u16, buffers: Option<(usize, usize)>) -> Result<(), Error> {
        let heard = Heard::default();
        self.heard.insert(port, Arc::clone(&heard));
        let config = match buffers {
            Some(_) => PortConfig::default(),
            None => PortConfig::in_place(),
        };
        let node = self.node();
        node.open_active(port, config, move |_, message| {
            let got = (
                message.source(),
                message.message_len(),
                sum(message.bytes()),
            );
            heard.lock().unwrap().push(got);
        })?;
        let (count, len) = buffers.unwrap_or((0, 0));
        for _ in 0..count {
            let _ = node.post_recv(port, vec![UNTOUCHED; len])?;
        }
        Ok(())
    }

    fn send_or_wait(&mut self, step: &Step) -> Result<Outcome, Error> {
        match *step {
            Step::Send { to, message, how } => {
                let bytes = message.bytes();
                send(self.node(), to, &bytes, how)?;
                Ok(Outcome::Done)
            }
            Step::Start { slot, to, message } => {
                let bytes = message.bytes();
                let node = self.node();
                let request = match to.place {
                    Place::Port(port) => node.isend(target(to, port), bytes)?,
                    Place::Tag { tag, imm } => {
                        node.isend_tagged(tag_target(to, tag, imm), bytes)?
                    }
                };
                self.slots.insert(slot, (request, Kind::Send));
                Ok(Outcome::Done)
            }
            Step::Wait(slot) | Step::Test(slot) => {
                let Some(&(request, kind)) = self.slots.get(&slot) else {
                    return Ok(Outcome::NoRequest);
                };
                let done = match step {
                    Step::Wait(_) => self.node().wait(request)?,
                    _ => until_some(|| Ok(self.node().test(request)?))?,
                };
                Ok(ended(done, kind))
            }
            _ => unreachable!("not given to this function"),
        }
    }

    fn receive(&mut self, step: &Step) -> Result<Outcome, Error> {
        match *step {
            Step::Recv { which, buffer } => recv(self.node(), which, buffer),
            Step::Post {
                slot,
                which,
                buffer,
            } => {
                let request = post(self.node(), which, vec![UNTOUCHED; buffer])?;
                let tagged = matches!(which.pick, Pick::Tag { .. });
                self.slots.insert(slot, (request, Kind::Receive { tagged }));
                Ok(Outcome::Done)
            }
            Step::PostShared(port) => {
                let shared: Arc<[u8]> = Arc::from([0_u8; 8]);
                self.node().post_recv(port, shared).map(|_| Outcome::Done)
            }
            Step::Cancel(slot) => match self.slots.get(&slot) {
                Some(&(request, _)) => Ok(Outcome::Withdrawn(self.node().cancel(request))),
                None => Ok(Outcome::NoRequest),
            },
            Step::Peek(which) => {
                let seen = until_some(|| self.node().peek(matcher(which)))?;
                Ok(Outcome::Seen {
                    len: seen.len,
                    source: seen.source,
                    label: (seen.tag, seen.imm),
                })
            }
            Step::PeekNothing(which) => {
                let seen = self.node().peek(matcher(which))?;
                assert!(seen.is_none(), "{seen:?} is what nobody has sent");
                Ok(Outcome::Nothing)
            }
            Step::Claim {
                slot,
                which,
                buffer,
            } => {
                let claimed = until_some(|| self.node().claim(matcher(which)))?;
                let buffer = vec![UNTOUCHED; buffer];
                let request = self.node().recv_claimed(claimed, buffer)?;
                let kind = Kind::Receive { tagged: true };
                self.slots.insert(slot, (request, kind));
                Ok(Outcome::Done)
            }
            Step::Handled { port, count } => {
                let heard = Arc::clone(&self.heard[&port]);
                self.node()
                    .wait_until(|| heard.lock().unwrap().len() >= count)?;
                let heard = heard.lock().unwrap();
                Ok(Outcome::Handled(heard[..count].to_vec()))
            }
            _ => unreachable!("not given to this function"),
        }
    }

    fn together(&mut self, step: &Step) -> Result<Outcome, Error> {
        let node = self.node();
        match step {
            Step::Barrier(group) => {
                let group = members(node, group)?;
                group.barrier(node)?;
                Ok(Outcome::Done)
            }
            Step::Group(group) => members(node, group).map(|_| Outcome::Done),
            &Step::Broadcast {
                ref group,
                root,
                message,
            } => {
                let group = members(node, group)?;
                let is_root = group.rank() == root;
                let mut bytes = match is_root {
                    true => message.bytes(),
                    false => vec![UNTOUCHED; message.len],
                };
                group.broadcast(node, root, &mut bytes)?;
                Ok(Outcome::Bytes(sum(&bytes)))
            }
            &Step::Reduce {
                ref group,
                root,
                op,
                len,
            } => {
                let group = members(node, group)?;
                let mut values = values(node.rank(), len);
                let op = match op {
                    Reducer::Sum => ReduceOp::Sum,
                    Reducer::Product => ReduceOp::Product,
                    Reducer::Min => ReduceOp::Min,
                    Reducer::Max => ReduceOp::Max,
                };
                match root {
                    Some(root) => group.reduce(node, root, op, &mut values)?,
                    None => group.allreduce(node, op, &mut values)?,
                }
                // The documentation does not specify the values of the other ranks.
                Ok(match root.is_none_or(|root| root == group.rank()) {
                    true => Outcome::Bytes(sum_values(&values)),
                    false => Outcome::Done,
                })
            }
            _ => unreachable!("not given to this function"),
        }
    }

    fn remote(&mut self, step: &Step) -> Result<Outcome, Error> {
        match *step {
            Step::Register {
                region,
                len,
                read,
                write,
            } => {
                let registered = self.node().register(vec![0; len], Access { read, write })?;
                self.regions.insert(region, registered);
                Ok(Outcome::Done)
            }
            Step::RegisterShared => {
                let shared: Arc<[u8]> = Arc::from([0_u8; 8]);
                self.node()
                    .register(shared, Access::BOTH)
                    .map(|_| Outcome::Done)
            }
            Step::GiveKey { to, region } => {
                let key = self.regions[&region].key().to_bytes();
                send(self.node(), to, &key, How::Plain)?;
                Ok(Outcome::Done)
            }
            Step::TakeKey { which, region } => {
                let mut key = [0; 8];
                match which.pick {
                    Pick::Port(port) => {
                        let source = which.source.expect("keys come from one rank");
                        self.node().recv_from(source, port, &mut key)?;
                    }
                    Pick::Tag { .. } => {
                        self.node().recv_tagged(matcher(which), &mut key)?;
                    }
                }
                self.keys.insert(region, RemoteKey::from_bytes(key));
                Ok(Outcome::Done)
            }
            Step::Access { .. } | Step::StartAccess { .. } => self.access(step),
            Step::Trespass(rank) => {
                let key = RemoteKey::from_bytes([0x5a; 8]);
                self.node().put(RemoteTarget::new(rank, key, 0), &[0; 8])?;
                Ok(Outcome::Done)
            }
            Step::Look(region) => {
                let registered = &self.regions[&region];
                let node = self.node.as_ref().expect("nothing follows `Close`");
                Ok(Outcome::Bytes(sum(node.registered(registered))))
            }
            Step::Deregister(region) => {
                let registered = self.regions.remove(&region).expect("registered before");
                Ok(Outcome::Bytes(sum(&self.node().deregister(registered))))
            }
            _ => unreachable!("not given to this function"),
        }
    }

    fn access(&mut self, step: &Step) -> Result<Outcome, Error> {
        let (slot, rank, region, offset, what, high) = match *step {
            Step::Access {
                rank,
                region,
                offset,
                what,
                high,
            } => (None, rank, region, offset, what, high),
            Step::StartAccess {
                slot,
                rank,
                region,
                offset,
                what,
                high,
            } => (Some(slot), rank, region, offset, what, high),
            _ => unreachable!("not given to this function"),
        };
        let Some(&key) = self.keys.get(&region) else {
            return Ok(Outcome::NoRequest);
        };
        let place = RemoteTarget::new(rank, key, offset).lane(lane(high));
        let Some(slot) = slot else {
            return access(self.node(), place, what);
        };
        let (request, kind) = start_access(self.node(), place, what)?;
        self.slots.insert(slot, (request, kind));
        Ok(Outcome::Done)
    }

    fn best_effort(&mut self, step: &Step) -> Result<Outcome, Error> {
        match *step {
            Step::ExpectBursts { port, count } => {
                self.node().open(port, PortConfig::default())?;
                for _ in 0..count {
                    // Longer than any message of a burst, which must fit a frame.
                    let request = self.node().post_recv(port, vec![0; 2048])?;
                    self.bursts.entry(port).or_default().push(request);
                }
                Ok(Outcome::Done)
            }
            Step::Burst {
                to,
                port,
                first,
                count,
            } => {
                let target = Target::new(to, port).best_effort();
                for id in (first.id..).take(count) {
                    let bytes = Message { id, ..first }.bytes();
                    self.node().send(target, &bytes)?;
                }
                Ok(Outcome::Done)
            }
            Step::TakeBursts(port) => {
                let mut got = Vec::new();
                for request in self.bursts.remove(&port).unwrap_or_default() {
                    if self.node().cancel(request) {
                        continue;
                    }
                    let done = self.node().wait(request)?;
                    let buffer = done.buffer.expect("it was posted");
                    got.push(sum(&buffer[..done.len]));
                }
                let counters = self.node().counters();
                let dropped = counters.drops(DropReason::BestEffortNoBuffer);
                let counted = counters.best_effort_lost + dropped;
                Ok(Outcome::Bursts { got, counted })
            }
            _ => unreachable!("not given to this function"),
        }
    }
}

/// Repeats the call until it returns a value.
fn until_some<T>(mut ask: impl FnMut() -> Result<Option<T>, Error>) -> Result<T, Error> {
    loop {
        if let Some(found) = ask()? {
            return Ok(found);
        }
        std::thread::yield_now();
    }
}

fn members(node: &Node, members: &Members) -> Result<Group, Error> {
    match members.id {
        0 => Ok(Group::all(node)),
        id => Group::new(node, id, &members.ranks),
    }
}

fn send(node: &mut Node, to: Goal, bytes: &[u8], how: How) -> Result<(), Error> {
    let third = bytes.len() / 3;
    let (first, rest) = bytes.split_at(third);
    let (second, last) = rest.split_at(third);
    match (to.place, how) {
        (Place::Port(port), How::Plain) => node.send(target(to, port), bytes),
        (Place::Port(port), How::Gathered) => {
            node.send_gather(target(to, port), &[first, second, last])
        }
        (Place::Port(port), How::Copied) => node.isend_copy(target(to, port), bytes),
        (Place::Tag { tag, imm }, How::Copied) => {
            node.isend_tagged_copy(tag_target(to, tag, imm), bytes)
        }
        (Place::Tag { tag, imm }, _) => node.send_tagged(tag_target(to, tag, imm), bytes),
    }
}

fn matcher(which: Wanted) -> TagMatch {
    match which.pick {
        Pick::Tag { tag, ignore } => tag_match(which, tag, ignore),
        Pick::Port(port) => panic!("port {port} is no tag"),
    }
}

fn recv(node: &mut Node, which: Wanted, len: usize) -> Result<Outcome, Error> {
    let mut buffer = vec![UNTOUCHED; len];
    let of_port = |got: Received| (got.len, got.source, None);
    let got = match (which.pick, which.source) {
        (Pick::Port(port), Some(source)) => node.recv_from(source, port, &mut buffer).map(of_port),
        (Pick::Port(port), None) => node.recv(port, &mut buffer).map(of_port),
        (Pick::Tag { .. }, _) => node
            .recv_tagged(matcher(which), &mut buffer)
            .map(|got| (got.len, got.source, Some((got.tag, got.imm)))),
    };
    let bytes = sum(&buffer);
    match got {
        Ok((len, source, label)) => Ok(Outcome::Got {
            len,
            source,
            label,
            bytes,
        }),
        Err(error @ (Error::Truncated { .. } | Error::TruncatedTagged { .. })) => {
            let fault = fault(&error);
            Ok(Outcome::Cut { fault, bytes })
        }
        Err(error) => Err(error),
    }
}

fn post(node: &mut Node, which: Wanted, buffer: Vec<u8>) -> Result<Request, Error> {
    match (which.pick, which.source) {
        (Pick::Port(port), Some(source)) => node.post_recv_from(source, port, buffer),
        (Pick::Port(port), None) => node.post_recv(port, buffer),
        (Pick::Tag { .. }, _) => node.post_recv_tagged(matcher(which), buffer),
    }
}

fn ended(done: Completion, kind: Kind) -> Outcome {
    let buffer = done.buffer.as_deref().unwrap_or_default();
    match kind {
        Kind::Send => Outcome::Sent {
            len: done.len,
            to: done.source,
        },
        Kind::Access => Outcome::Done,
        Kind::Fetch => Outcome::Bytes(sum(buffer)),
        Kind::Receive { tagged } => Outcome::Got {
            len: done.len,
            source: done.source,
            label: tagged.then_some((done.tag, done.imm)),
            bytes: sum(buffer),
        },
    }
}

fn access(node: &mut Node, place: RemoteTarget, what: Remote) -> Result<Outcome, Error> {
    match what {
        Remote::Put(message) => node.put(place, &message.bytes()).map(|()| Outcome::Done),
        Remote::Get(len) => {
            let mut bytes = vec![UNTOUCHED; len];
            node.get(place, &mut bytes)?;
            Ok(Outcome::Bytes(sum(&bytes)))
        }
        Remote::Add(number) => {
            node.atomic(place, AtomicOp::Sum, &[number])?;
            Ok(Outcome::Done)
        }
        Remote::FetchAdd(number) => {
            let mut before = [0_u64];
            node.fetch_atomic(place, AtomicOp::Sum, &[number], &mut before)?;
            Ok(Outcome::Bytes(sum(&before[0].to_le_bytes())))
        }
    }
}

fn start_access(
    node: &mut Node,
    place: RemoteTarget,
    what: Remote,
) -> Result<(Request, Kind), Error> {
    let mut atomic = |number: u64, before| {
        let operands = number.to_le_bytes();
        node.iatomic(place, AtomicOp::Sum, Datatype::U64, &operands, before)
    };
    let fetched = || Buffer::from(vec![UNTOUCHED; 8]);
    Ok(match what {
        Remote::Add(number) => (atomic(number, None)?, Kind::Access),
        Remote::FetchAdd(number) => (atomic(number, Some(fetched()))?, Kind::Fetch),
        Remote::Put(message) => (node.iput(place, message.bytes())?, Kind::Access),
        Remote::Get(len) => (node.iget(place, vec![UNTOUCHED; len])?, Kind::Fetch),
    })
}
