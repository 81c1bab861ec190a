// SPDX-License-Identifier: MIT OR Apache-2.0
//! One process of a cast: the network thread's loop, controlled by [`Relay`].

use crate::block::{Block, Kind, TRAILER_LEN};
use crate::control::Control;
use crate::entry::Totals;
use crate::event::{Bound, Checked, Done, Event};
use crate::fault::Fault;
use crate::multicast::{self, Job, Part, Polled, ProbeResult};
use crate::relay::{Action, Relay};
use crate::shape::Form;
use crate::spec::{BLOCK_LEN, Spec};
use crate::stages::{self, BusyTime, Memory, Notice, NoticeReceiver, Reading, Storing};
use crate::target::Cleanup;
use crate::wait::wait_for_event;
use portolan::{Buffer, Error, Lane, Node, PortConfig, Request, Target};
use rustix::event::{PollFd, PollFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Port of blocks.
const DATA: u16 = 1;
/// Port of control messages.
pub(crate) const CONTROL: u16 = 2;
/// Port without senders. A receive from a process fails when that process fails.
pub(crate) const WATCH: u16 = 3;

/// Posted receives: while one block arrives, the next is granted.
const RECEIVING_MAX: usize = 4;

/// Interval between progress reports.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// Time for a thread to leave a system call before its file is removed.
const STOP_DELAY: Duration = Duration::from_secs(2);

/// Bytes of a receive: a block, or a batch of entries, which is not longer. The number of receives
/// limits the memory.
const MESSAGE_LEN: usize = BLOCK_LEN as usize + TRAILER_LEN;

/// Runs this process's part of a cast, from joining the job to the end. Reports progress on
/// standard error, as lines of [`Event`].
#[must_use]
pub fn work(spec: &Spec) -> ExitCode {
    let cleanup = Cleanup::default();
    let fault = match Member::join(spec, &cleanup) {
        Err(fault) => fault,
        Ok(mut member) => match member.run() {
            Ok(()) => match member.node.close() {
                Ok(()) => return ExitCode::SUCCESS,
                Err(error) => error.into(),
            },
            Err(fault) => {
                let storing = member.storing.take();
                // Dropping a node would wait until all sent data has arrived.
                std::mem::forget(member);
                storing.into_iter().for_each(stop);
                fault
            }
        },
    };
    cleanup.run();
    Event::Failed {
        why: fault.to_string(),
    }
    .emit();
    // Exits without closing the node, so that the other processes notice the failure and continue
    // at once.
    std::process::exit(match fault {
        Fault::Signal(signal) => 128 + signal,
        _ => 1,
    });
}

/// Stops the threads, waiting at most [`STOP_DELAY`].
fn stop(mut storing: Storing) {
    drop(storing.blocks.take());
    let deadline = Instant::now() + STOP_DELAY;
    while !storing.has_ended() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Received control messages with their senders.
pub(crate) type Inbox = Arc<Mutex<VecDeque<(u32, Vec<u8>)>>>;

struct Member {
    node: Node,
    relay: Relay,
    inbox: Inbox,
    notices: NoticeReceiver,
    memory: Memory,
    free_buffers: Vec<Vec<u8>>,
    reading: Option<Reading>,
    storing: Option<Storing>,
    /// Posted receives of blocks, oldest first, all from this process, the current or former
    /// parent.
    receives: VecDeque<Request>,
    receives_from: Option<u32>,
    sends: Vec<(u32, Request)>,
    watches: Vec<(u32, Request)>,
    signals: Signals,
    /// Batch with missing blocks that the source waits for.
    pending_batch: Option<u32>,
    /// State of multicast, if it is used.
    multicast: Option<Part>,
    report: Report,
}

struct Report {
    begin: Instant,
    last: Instant,
    bytes: u64,
    entries: u64,
    wire_bytes: u64,
    busy: Arc<BusyTime>,
    before: (u64, u64),
    checked: Option<Checked>,
    /// Set after [`Event::Done`].
    is_done_reported: bool,
}

pub(crate) struct Signals {
    number: Arc<AtomicUsize>,
    pipe: UnixStream,
}

impl Signals {
    fn take() -> std::io::Result<Signals> {
        let number = Arc::new(AtomicUsize::new(0));
        let (pipe, end) = UnixStream::pair()?;
        for signal in [SIGINT, SIGTERM, SIGHUP, SIGQUIT] {
            let value = usize::try_from(signal).unwrap_or(0);
            signal_hook::flag::register_usize(signal, Arc::clone(&number), value)?;
            signal_hook::low_level::pipe::register(signal, end.try_clone()?)?;
        }
        Ok(Signals { number, pipe })
    }

    pub(crate) fn check(&self) -> Result<(), Fault> {
        match i32::try_from(self.number.load(Ordering::Relaxed)) {
            Ok(signal) if signal > 0 => Err(Fault::Signal(signal)),
            _ => Ok(()),
        }
    }
}

impl Member {
    fn join(spec: &Spec, cleanup: &Cleanup) -> Result<Member, Fault> {
        let signals = Signals::take().map_err(|errno| Fault::System {
            what: "installing signal handlers",
            errno,
        })?;
        let mut node = Node::join()?;
        let now = Instant::now();
        let inbox = Inbox::default();
        let inbox_of_handler = Arc::clone(&inbox);
        node.open(DATA, PortConfig::default())?;
        node.open(WATCH, PortConfig::default())?;
        node.open_active(CONTROL, PortConfig::in_place(), move |_, message| {
            let received = (message.source(), message.bytes().to_vec());
            let mut inbox = inbox_of_handler
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            inbox.push_back(received);
        })?;
        let mut spec = spec.clone();
        let job = Job {
            node: &mut node,
            inbox: &inbox,
            signals: &signals,
        };
        let multicast = agree(&mut spec, job)?;
        let spec = &spec;
        let (notices, notifier) = stages::notice_channel()?;
        let (memory, busy) = (Memory::default(), Arc::new(BusyTime::default()));
        let rank = node.rank();
        let is_source = rank == 0;
        let reading = is_source.then(|| Reading::start(spec, &notifier, &memory, &busy));
        let storing = match is_source {
            true => None,
            false => Some(Storing::start(spec, rank, cleanup, &notifier, &busy)),
        };
        let mut relay = Relay::new(rank, spec.shape(), spec.window(), spec.stall(), now);
        if multicast.is_some() {
            relay.begin_multicast();
        }
        Ok(Member {
            relay,
            node,
            inbox,
            notices,
            memory,
            free_buffers: Vec::new(),
            reading,
            storing,
            receives: VecDeque::new(),
            receives_from: None,
            sends: Vec::new(),
            watches: Vec::new(),
            signals,
            pending_batch: None,
            multicast,
            report: Report {
                begin: now,
                last: now,
                bytes: 0,
                entries: 0,
                wire_bytes: 0,
                busy,
                before: (0, 0),
                checked: None,
                is_done_reported: false,
            },
        })
    }

    fn run(&mut self) -> Result<(), Fault> {
        while !self.is_done() {
            self.signals.check()?;
            self.notices.clear();
            self.handle_notices()?;
            self.handle_control()?;
            self.poll_receives()?;
            self.poll_sends()?;
            self.poll_watches()?;
            self.read_source();
            let now = Instant::now();
            let mut has_acted = self.poll_multicast(now)?;
            self.post_receives()?;
            self.relay.on_time(now, &mut self.free_buffers);
            has_acted |= self.act()?;
            self.memory.give(self.free_buffers.drain(..));
            if let Some(bound) = self.report.report_if_due(now) {
                self.relay.set_busy(bound != Bound::Network);
                let others = self.relay.is_downstream_busy();
                self.report.busy.others.store(others, Ordering::Relaxed);
            }
            if !has_acted {
                self.sleep()?;
            }
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        let has_no_receiver = self.reading.is_some() && self.relay.is_alone();
        let is_reported = self.sends.is_empty() && self.report.is_done_reported;
        is_over(self.relay.is_finished(), is_reported, has_no_receiver)
    }

    fn handle_notices(&mut self) -> Result<(), Fault> {
        while let Some(notice) = self.notices.next() {
            match notice {
                Notice::Verified(seq) => self.relay.on_verified(seq),
                Notice::Stored(seq, totals) => {
                    self.relay.on_stored(seq, &mut self.free_buffers);
                    self.report.bytes = totals.bytes;
                    self.report.entries = totals.entries;
                    if self.relay.has_stored_all() {
                        self.report.report_done(&totals);
                    }
                }
                Notice::Needs(batch, bits) => self.relay.on_own_needs(batch, bits),
                Notice::Event(event) => event.emit(),
                Notice::Checked(checked) => self.report.checked = Some(checked),
                Notice::Failed(fault) => return Err(fault),
                Notice::Read(totals) => {
                    self.report.bytes = totals.bytes;
                    self.report.report_done(&totals);
                }
            }
        }
        Ok(())
    }

    fn handle_control(&mut self) -> Result<(), Fault> {
        loop {
            let received = self
                .inbox
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop_front();
            let Some((rank, bytes)) = received else {
                return Ok(());
            };
            let control = Control::parse(&bytes)?;
            if let (Some(multicast), Control::Multicast(word)) = (&mut self.multicast, &control) {
                multicast.on_message(rank, word);
            }
            let now = Instant::now();
            self.relay
                .on_control(now, rank, control, &mut self.free_buffers);
        }
    }

    fn poll_receives(&mut self) -> Result<(), Fault> {
        while let Some(request) = self.receives.front() {
            match self.node.test(*request) {
                Ok(None) => break,
                Ok(Some(done)) => {
                    self.receives.pop_front();
                    let mut bytes = done.buffer.map(Vec::from).unwrap_or_default();
                    bytes.truncate(done.len);
                    self.on_block(Block::parse(bytes)?);
                }
                Err(error) => {
                    self.receives.pop_front();
                    if let Some(sender) = self.receives_from {
                        self.on_failure(sender, error.into())?;
                    }
                }
            }
        }
        Ok(())
    }

    fn on_block(&mut self, block: Block) {
        let len = block.payload().len() as u64;
        if !self.relay.on_block(block.clone()) {
            return;
        }
        self.report.wire_bytes += len;
        if let Some(Some(blocks)) = self.storing.as_ref().map(|storing| &storing.blocks) {
            // A thread that has ended has already reported the reason.
            let _ = blocks.send(block);
        }
    }

    /// Sends or receives by multicast.
    fn poll_multicast(&mut self, now: Instant) -> Result<bool, Fault> {
        let Some(multicast) = &mut self.multicast else {
            return Ok(false);
        };
        let polled = multicast.poll(now, &mut self.relay, &self.memory)?;
        let Polled {
            has_acted,
            blocks,
            messages,
        } = polled;
        for (seq, message) in blocks {
            let block = Block::parse(message)?;
            if block.head.seq != seq {
                return Err(Fault::Protocol("a block with a wrong number"));
            }
            self.on_block(block);
        }
        for (to, word) in messages {
            self.send_control(to, &Control::Multicast(word))?;
        }
        Ok(has_acted)
    }

    fn send_control(&mut self, to: u32, control: &Control) -> Result<(), Fault> {
        let target = Target::new(to, CONTROL).lane(Lane::High);
        match self.node.isend_copy(target, &control.to_bytes()) {
            Ok(()) => Ok(()),
            Err(error) => self.on_failure(to, error),
        }
    }

    fn poll_sends(&mut self) -> Result<(), Fault> {
        let mut index = 0;
        while let Some((rank, request)) = self.sends.get(index).copied() {
            match self.node.test(request) {
                Ok(None) => index += 1,
                Ok(Some(_)) => {
                    let _ = self.sends.swap_remove(index);
                    self.relay.on_sent(rank, &mut self.free_buffers);
                }
                Err(error) => {
                    let _ = self.sends.swap_remove(index);
                    self.on_failure(rank, error.into())?;
                }
            }
        }
        Ok(())
    }

    fn poll_watches(&mut self) -> Result<(), Fault> {
        let mut index = 0;
        while let Some((rank, request)) = self.watches.get(index).copied() {
            match self.node.test(request) {
                Ok(None) => index += 1,
                Ok(Some(_)) => return Err(Fault::Protocol("a message on the watch port")),
                Err(error) => {
                    let _ = self.watches.swap_remove(index);
                    self.on_failure(rank, error.into())?;
                }
            }
        }
        Ok(())
    }

    /// Handles a failed operation on `rank`. If that process has failed, the cast continues without
    /// it.
    fn on_failure(&mut self, rank: u32, error: Error) -> Result<(), Fault> {
        let why = match &error {
            Error::PeerGone { reason, .. } => reason.to_string(),
            Error::NoAnswer { .. } | Error::NoPath { .. } | Error::OutOfResource { .. } => {
                error.to_string()
            }
            _ => return Err(error.into()),
        };
        // Earlier control messages must be processed before the failed process's children are
        // adopted.
        self.handle_control()?;
        let now = Instant::now();
        self.relay
            .on_failed(now, rank, &why, &mut self.free_buffers);
        Ok(())
    }

    fn read_source(&mut self) {
        let Some(reading) = &self.reading else {
            return;
        };
        while self.relay.free_slots() > 0 {
            let Some(block) = reading.next() else {
                break;
            };
            let head = block.head;
            self.report.wire_bytes += block.payload().len() as u64;
            self.report.bytes += u64::from(head.raw_len);
            self.relay.on_block(block);
            self.relay.on_verified(head.seq + 1);
            self.relay.on_stored(head.seq + 1, &mut self.free_buffers);
            if head.kind == Kind::Entries && head.index > 0 {
                self.pending_batch = Some(head.batch);
                // The source itself lacks nothing.
                let bits = vec![0; head.index.div_ceil(8) as usize];
                self.relay.on_own_needs(head.batch, bits);
            }
        }
        if let Some(batch) = self.pending_batch
            && let Some(bits) = self.relay.take_needs(batch)
        {
            self.pending_batch = None;
            reading.send_needs(batch, bits);
        }
    }

    fn post_receives(&mut self) -> Result<(), Fault> {
        let Some(parent) = self.relay.parent().filter(|_| self.multicast.is_none()) else {
            return Ok(());
        };
        if self.receives_from != Some(parent) {
            // Receives posted for the former parent end when they are dropped.
            self.receives.clear();
            self.receives_from = Some(parent);
        }
        let most = self.relay.free_slots().min(RECEIVING_MAX);
        while self.receives.len() < most && !self.relay.is_complete() {
            let mut memory = self.memory.take();
            memory.resize(MESSAGE_LEN, 0);
            match self.node.post_recv_from(parent, DATA, memory) {
                Ok(request) => self.receives.push_back(request),
                Err(error) => {
                    self.on_failure(parent, error)?;
                    break;
                }
            }
        }
        Ok(())
    }

    fn act(&mut self) -> Result<bool, Fault> {
        let mut has_acted = false;
        while let Some(action) = self.relay.poll_action() {
            has_acted = true;
            match action {
                Action::Send { to, block } => {
                    match self
                        .node
                        .isend(Target::new(to, DATA), Buffer::shared(block.message()))
                    {
                        Ok(request) => self.sends.push((to, request)),
                        Err(error) => self.on_failure(to, error)?,
                    }
                }
                Action::SendControl { to, control } => self.send_control(to, &control)?,
                Action::Watch(rank) => match self.node.post_recv_from(rank, WATCH, vec![0]) {
                    Ok(request) => self.watches.push((rank, request)),
                    Err(error) => self.on_failure(rank, error)?,
                },
                Action::Bypassed { rank, why } => Event::Bypassed { rank, why }.emit(),
                Action::Orphaned => return Err(Fault::SourceGone),
                Action::Dismissed(why) => return Err(Fault::Dismissed(why)),
            }
        }
        Ok(has_acted)
    }

    fn sleep(&mut self) -> Result<(), Fault> {
        // Testing requests also runs the handler, so the inbox may have messages.
        let is_empty = self
            .inbox
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty();
        if !is_empty {
            return Ok(());
        }
        let timeout = self.multicast.as_ref().and_then(Part::timeout);
        let longest = timeout.map_or(REPORT_INTERVAL, |timeout| {
            let left = timeout.saturating_duration_since(Instant::now());
            left.min(REPORT_INTERVAL)
        });
        let others = [
            PollFd::from_borrowed_fd(self.notices.fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.signals.pipe.as_fd(), PollFlags::IN),
        ];
        let multicast = self.multicast.as_ref().and_then(Part::poll_fd);
        wait_for_event(&mut self.node, others.into_iter().chain(multicast), longest)
    }
}

/// Returns true if a process may exit. An unfinished source ends when no receiver is left; each
/// failure was reported by the receiver or its parent. Finished receivers exit as well, possibly
/// before the source's own threads have reported their end.
fn is_over(is_finished: bool, is_reported: bool, has_no_receiver: bool) -> bool {
    match is_finished {
        true => is_reported,
        false => has_no_receiver,
    }
}

/// Returns the multicast state if the form is multicast. Changes the form to a chain if multicast
/// does not reach all.
fn agree(spec: &mut Spec, job: Job<'_>) -> Result<Option<Part>, Fault> {
    if spec.form != Form::Multicast {
        return Ok(None);
    }
    let place = (job.node.rank(), job.node.size());
    match multicast::probe(job)? {
        ProbeResult::Chain => {
            spec.form = Form::CHAIN;
            Ok(None)
        }
        ProbeResult::Multicast {
            socket,
            codec,
            terms,
        } => Ok(Some(Part::new(
            (socket, codec, terms),
            place,
            Instant::now(),
        ))),
    }
}

impl Report {
    fn report_if_due(&mut self, now: Instant) -> Option<Bound> {
        let passed = now.duration_since(self.last);
        if passed < REPORT_INTERVAL {
            return None;
        }
        self.last = now;
        let busy = (
            self.busy.processor.load(Ordering::Relaxed),
            self.busy.disk.load(Ordering::Relaxed),
        );
        let share = |now: u64, before: u64| (now - before) as f64 / passed.as_nanos() as f64;
        let processor = share(busy.0, self.before.0);
        let disk = share(busy.1, self.before.1);
        self.before = busy;
        // The bottleneck is busy nearly all the time, and a process that waits for the network
        // hardly ever.
        let bound = match (disk, processor) {
            (disk, processor) if disk >= processor && disk > 0.7 => Bound::Disk,
            (_, processor) if processor > 0.7 => Bound::Processor,
            _ => Bound::Network,
        };
        Event::Progress {
            bytes: self.bytes,
            entries: self.entries,
            wire_bytes: self.wire_bytes,
            bound,
        }
        .emit();
        Some(bound)
    }

    fn report_done(&mut self, totals: &Totals) {
        self.is_done_reported = true;
        let usage = Usage::now();
        Event::Done(Done {
            bytes: totals.bytes,
            entries: totals.entries,
            wire_bytes: self.wire_bytes,
            hash: hex::encode(totals.hash),
            seconds: self.begin.elapsed().as_secs_f64(),
            cpu_seconds: usage.cpu_seconds,
            memory: usage.memory,
            checked: self.checked,
        })
        .emit();
    }
}

/// Resources used by this process so far.
struct Usage {
    cpu_seconds: f64,
    memory: u64,
}

impl Usage {
    /// Reads `/proc/self` (proc(5)); returns zeros if it is not available.
    fn now() -> Usage {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|text| text.trim().strip_suffix("kB"));
        let memory = kib.and_then(|text| text.trim().parse::<u64>().ok());
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // After the name in parentheses, user and system time are the 12th and 13th fields.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let ticks = fields.split_whitespace().skip(11).take(2);
        let ticks: u64 = ticks.filter_map(|text| text.parse::<u64>().ok()).sum();
        Usage {
            cpu_seconds: ticks as f64 / TICKS_PER_SECOND,
            memory: memory.unwrap_or(0) << 10,
        }
    }
}

/// Unit of times in `/proc` (`USER_HZ`; 100 on all architectures that Linux runs on today).
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::is_over;

    #[test]
    fn source_completes_after_all_receivers_have_left() {
        assert!(!is_over(true, false, true));
        assert!(is_over(true, true, true) && is_over(true, true, false));
    }

    #[test]
    fn source_ends_if_all_receivers_fail() {
        assert!(is_over(false, false, true));
        assert!(!is_over(false, false, false) && !is_over(false, true, false));
    }
}
