// SPDX-License-Identifier: MIT OR Apache-2.0
//! Threads beside the network thread: reading at the source, hashing and storing at the receivers.
//! Each sends notices to the network thread and wakes it.

use crate::block::{Block, Coding, Head, Kind};
use crate::coding::{self, Decoder, Encoder};
use crate::compression::SentBlock;
use crate::entry::Totals;
use crate::event::{Checked, Event};
use crate::fault::Fault;
use crate::source::{self, Out};
use crate::spec::Spec;
use crate::target::{self, Cleanup};
use rustix::event::EventfdFlags;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Blocks that the source has read ahead, so that reading and sending overlap.
const READ_AHEAD: usize = 4;

/// Notice from a thread to the network thread.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Blocks below this number are verified.
    Verified(u64),
    /// Blocks below this number are stored, with these totals.
    Stored(u64, Totals),
    /// Data blocks of a batch that are missing here, one bit each, lowest first.
    Needs(u32, Vec<u8>),
    /// An event for the command.
    Event(Event),
    /// The comparison has ended with this result.
    Checked(Checked),
    /// This process cannot continue.
    Failed(Fault),
    /// At the source: everything has been read.
    Read(Totals),
}

/// Receiving end of [`Notice`].
#[derive(Debug)]
pub(crate) struct NoticeReceiver {
    notices: Receiver<Notice>,
    waker: Arc<OwnedFd>,
}

/// Sending end of [`Notice`].
#[derive(Clone, Debug)]
pub(crate) struct NoticeSender {
    notices: Sender<Notice>,
    waker: Arc<OwnedFd>,
}

/// Creates both ends of a notice channel.
pub(crate) fn notice_channel() -> Result<(NoticeReceiver, NoticeSender), Fault> {
    let waker = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let waker = Arc::new(waker.map_err(|errno| Fault::System {
        what: "creating an event descriptor",
        errno: errno.into(),
    })?);
    let (sender, receiver) = channel();
    let receiver = NoticeReceiver {
        notices: receiver,
        waker: Arc::clone(&waker),
    };
    Ok((
        receiver,
        NoticeSender {
            notices: sender,
            waker,
        },
    ))
}

impl NoticeReceiver {
    /// Returns a descriptor that is readable while notices are pending.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }

    /// Makes [`NoticeReceiver::fd`] unreadable until further notices arrive. Call it before
    /// [`NoticeReceiver::next`].
    pub(crate) fn clear(&self) {
        // An error means that it is already unreadable.
        let _ = rustix::io::read(&*self.waker, &mut [0; 8]);
    }

    pub(crate) fn next(&self) -> Option<Notice> {
        self.notices.try_recv().ok()
    }
}

impl NoticeSender {
    fn wake(&self) {
        // A full counter means that it is already readable.
        let _ = rustix::io::write(&*self.waker, &1_u64.to_ne_bytes());
    }

    fn notify(&self, notice: Notice) {
        // Without a receiver the process is about to end.
        let _ = self.notices.send(notice);
        self.wake();
    }
}

/// Pool of block buffers for reuse.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<Vec<Vec<u8>>>>);

impl Memory {
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.pop().unwrap_or_default()
    }

    pub(crate) fn give(&self, memory: impl IntoIterator<Item = Vec<u8>>) {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.extend(memory);
    }
}

/// Busy time of threads in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct BusyTime {
    pub(crate) processor: AtomicU64,
    pub(crate) disk: AtomicU64,
    /// At the source: set if another process's disk or processor is nearly always busy.
    pub(crate) others: AtomicBool,
}

fn count(counter: &AtomicU64, time: Duration) {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    counter.fetch_add(ns, Ordering::Relaxed);
}

fn timed<T>(counter: &AtomicU64, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = work();
    count(counter, begin.elapsed());
    done
}

/// Threads of a receiver.
#[derive(Debug)]
pub(crate) struct Storing {
    pub(crate) blocks: Option<Sender<Block>>,
    threads: Vec<JoinHandle<()>>,
}

impl Storing {
    /// Starts the threads that hash and store.
    pub(crate) fn start(
        spec: &Spec,
        rank: u32,
        cleanup: &Cleanup,
        notifier: &NoticeSender,
        busy: &Arc<BusyTime>,
    ) -> Storing {
        let (blocks, incoming) = channel();
        let (verified, to_store) = channel();
        let hashing = {
            let (notifier, busy) = (notifier.clone(), Arc::clone(busy));
            std::thread::spawn(move || {
                if let Err(fault) = verify_all(&incoming, &verified, &notifier, &busy) {
                    notifier.notify(Notice::Failed(fault));
                }
            })
        };
        let storing = {
            let (notifier, busy, spec, cleanup) = (
                notifier.clone(),
                Arc::clone(busy),
                spec.clone(),
                cleanup.clone(),
            );
            std::thread::spawn(move || {
                if let Err(fault) = store_all(&spec, rank, &cleanup, &to_store, &notifier, &busy) {
                    notifier.notify(Notice::Failed(fault));
                }
            })
        };
        Storing {
            blocks: Some(blocks),
            threads: vec![hashing, storing],
        }
    }

    /// Returns true if the threads have ended, after [`Storing::blocks`] was dropped.
    pub(crate) fn has_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }
}

fn verify_all(
    incoming: &Receiver<Block>,
    verified: &Sender<Block>,
    notifier: &NoticeSender,
    busy: &BusyTime,
) -> Result<(), Fault> {
    let mut decoder = Decoder::default();
    for block in incoming {
        let seq = block.head.seq;
        let hash = timed(&busy.processor, || decoder.decode(&block).map(blake3::hash))?;
        if *hash.as_bytes() != block.head.hash {
            return Err(Fault::Corrupt { seq });
        }
        notifier.notify(Notice::Verified(seq + 1));
        if verified.send(block).is_err() {
            break;
        }
    }
    Ok(())
}

fn store_all(
    spec: &Spec,
    rank: u32,
    cleanup: &Cleanup,
    blocks: &Receiver<Block>,
    notifier: &NoticeSender,
    busy: &BusyTime,
) -> Result<(), Fault> {
    let mut store = target::open(spec, rank, cleanup)?;
    // Decoded a second time, because keeping the decoded blocks would double the memory.
    let mut decoder = Decoder::default();
    for block in blocks {
        let seq = block.head.seq;
        let payload = match block.head.coding {
            Coding::Plain => block.payload(),
            Coding::Zstd => timed(&busy.processor, || decoder.decode(&block))?,
        };
        let needs = timed(&busy.disk, || store.store(&block, payload))?;
        if let Some(bits) = needs {
            notifier.notify(Notice::Needs(block.head.batch, bits));
        }
        for event in store.take_events() {
            notifier.notify(Notice::Event(event));
        }
        if let Some(checked) = store.checked().filter(|_| block.head.kind == Kind::End) {
            notifier.notify(Notice::Checked(checked));
        }
        // The memory must be free for reuse before the network thread receives the notice.
        drop(block);
        notifier.notify(Notice::Stored(seq + 1, *store.totals()));
    }
    Ok(())
}

/// Thread of the source.
#[derive(Debug)]
pub(crate) struct Reading {
    blocks: Receiver<Block>,
    needs: Sender<(u32, Vec<u8>)>,
}

impl Reading {
    /// Starts reading.
    pub(crate) fn start(
        spec: &Spec,
        notifier: &NoticeSender,
        memory: &Memory,
        busy: &Arc<BusyTime>,
    ) -> Reading {
        let (blocks, outgoing) = sync_channel(READ_AHEAD);
        let (needs, reported_needs) = channel();
        let mut feeder = Feeder {
            blocks,
            needs: reported_needs,
            notifier: notifier.clone(),
            memory: memory.clone(),
            busy: Arc::clone(busy),
            seq: 0,
            hasher: blake3::Hasher::new(),
            since: Instant::now(),
            last: Instant::now(),
            pace: spec.rate_limit.map(Pace::new),
            encoder: None,
        };
        let compress = spec.compress.is_some();
        {
            let (source, notifier) = (spec.source.clone(), notifier.clone());
            // If the source cannot be read, the reader reports the reason.
            std::thread::spawn(move || {
                if let Ok(Some(size)) = source::measure(&source) {
                    let source::Size { bytes, entries } = size;
                    notifier.notify(Notice::Event(Event::Size { bytes, entries }));
                }
            });
        }
        let spec = spec.clone();
        std::thread::spawn(move || {
            let read = feeder
                .begin(compress)
                .and_then(|()| source::read(&spec.source, spec.hashes(), &mut feeder));
            if let Err(fault) = read.and_then(|totals| feeder.finish(totals)) {
                feeder.notifier.notify(Notice::Failed(fault));
            }
        });
        Reading {
            blocks: outgoing,
            needs,
        }
    }

    pub(crate) fn next(&self) -> Option<Block> {
        self.blocks.try_recv().ok()
    }

    /// Passes on the missing blocks that the source waits for.
    pub(crate) fn send_needs(&self, batch: u32, bits: Vec<u8>) {
        // An error means that the reader has failed and has already reported that.
        let _ = self.needs.send((batch, bits));
    }
}

struct Feeder {
    blocks: SyncSender<Block>,
    needs: Receiver<(u32, Vec<u8>)>,
    notifier: NoticeSender,
    memory: Memory,
    busy: Arc<BusyTime>,
    seq: u64,
    hasher: blake3::Hasher,
    /// Time when the last block was handed over; reading began then.
    since: Instant,
    /// Time when the previous block was handed over.
    last: Instant,
    pace: Option<Pace>,
    encoder: Option<Encoder>,
}

/// Rate limit of blocks.
struct Pace {
    bytes_per_sec: f64,
    next: Instant,
}

impl Pace {
    fn new(bytes_per_sec: f64) -> Pace {
        Pace {
            bytes_per_sec,
            next: Instant::now(),
        }
    }

    /// Waits until a block of `len` bytes may leave. Unused time is not carried over.
    fn wait(&mut self, len: usize) {
        let now = Instant::now();
        std::thread::sleep(self.next.saturating_duration_since(now));
        self.next = self.next.max(now) + Duration::from_secs_f64(len as f64 / self.bytes_per_sec);
    }
}

/// The network thread accepts no more blocks; it has reported the reason.
const ENDED: Fault = Fault::Protocol("the cast has ended");

impl Feeder {
    fn begin(&mut self, compress: bool) -> Result<(), Fault> {
        self.encoder = compress.then(Encoder::new).transpose()?;
        Ok(())
    }

    fn send(&mut self, kind: Kind, batch: u32, index: u32, payload: Vec<u8>) -> Result<(), Fault> {
        let reading = self.since.elapsed();
        count(&self.busy.disk, reading);
        let begin = Instant::now();
        let hash = *blake3::hash(&payload).as_bytes();
        let hashing = begin.elapsed();
        if kind != Kind::End {
            self.hasher.update(&hash);
        }
        let raw_len = payload.len();
        let (coding, payload, compressing) = self.compress_block(payload);
        count(&self.busy.processor, hashing + compressing);
        let head = Head {
            kind,
            coding,
            seq: self.seq,
            raw_len: u32::try_from(raw_len).unwrap_or(u32::MAX),
            batch,
            index,
            hash,
        };
        self.seq += 1;
        let wire_len = payload.len();
        let begin = Instant::now();
        if let Some(pace) = &mut self.pace {
            pace.wait(wire_len);
        }
        let sent = self.blocks.send(Block::new(head, payload));
        self.notifier.wake();
        self.since = Instant::now();
        let block = SentBlock {
            raw: raw_len,
            wire: wire_len,
            own: reading + hashing,
            waited: self.since - begin,
            passed: self.since - std::mem::replace(&mut self.last, self.since),
        };
        if let Some(encoder) = &mut self.encoder {
            let others = self.busy.others.load(Ordering::Relaxed);
            encoder.policy.on_sent(block, others);
        }
        sent.map_err(|_| ENDED)
    }

    /// Compresses a payload while compression helps.
    fn compress_block(&mut self, payload: Vec<u8>) -> (Coding, Vec<u8>, Duration) {
        let Some(encoder) = &mut self.encoder else {
            return (Coding::Plain, payload, Duration::ZERO);
        };
        let mut coded = self.memory.take();
        let (is_shorter, took) = encoder.encode(&payload, &mut coded);
        let (coding, payload, free) = match is_shorter {
            true => (Coding::Zstd, coded, payload),
            false => (Coding::Plain, payload, coded),
        };
        self.memory.give([free]);
        (coding, payload, took)
    }

    fn finish(&mut self, mut totals: Totals) -> Result<(), Fault> {
        totals.hash = *self.hasher.finalize().as_bytes();
        let payload = postcard::to_allocvec(&totals)
            .map_err(|_| Fault::Protocol("totals that cannot be serialized"))?;
        self.send(Kind::End, 0, 0, payload)?;
        self.notifier.notify(Notice::Read(totals));
        Ok(())
    }
}

impl Out for Feeder {
    fn memory(&mut self) -> Vec<u8> {
        let mut memory = self.memory.take();
        memory.clear();
        // Without this reservation, appending the trailer would double the buffer.
        memory.reserve_exact(coding::coded_len_max());
        memory
    }

    fn emit(&mut self, kind: Kind, batch: u32, index: u32, payload: Vec<u8>) -> Result<(), Fault> {
        self.send(kind, batch, index, payload)
    }

    fn give_back(&mut self, memory: Vec<u8>) {
        self.memory.give([memory]);
    }

    fn skip(&mut self, hash: &[u8; 32]) {
        self.seq += 1;
        self.hasher.update(hash);
    }

    fn needs(&mut self, batch: u32) -> Result<Vec<u8>, Fault> {
        loop {
            let (reported, bits) = self.needs.recv().map_err(|_| ENDED)?;
            if reported == batch {
                self.since = Instant::now();
                return Ok(bits);
            }
        }
    }

    fn warn(&mut self, text: String) {
        self.notifier.notify(Notice::Event(Event::Warning { text }));
    }
}
