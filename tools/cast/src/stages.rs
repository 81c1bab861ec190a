// SPDX-License-Identifier: MIT OR Apache-2.0
//! The threads beside the one that has the network: reading at the source, hashing and storing at the
//! others. Each hands its news to that one, and wakes it.

use crate::block::{Block, Coding, Head, Kind};
use crate::coding::{self, Decoder, Encoder};
use crate::entry::Totals;
use crate::event::{Checked, Event};
use crate::fault::Fault;
use crate::pays::Left;
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

/// Blocks that the source has read and not handed over: one is read while another is sent.
const READ_AHEAD: usize = 4;

/// What a thread tells the one that has the network.
#[derive(Debug)]
pub(crate) enum News {
    /// Blocks below are what was sent.
    Verified(u64),
    /// Blocks below are stored, and this is what they held.
    Stored(u64, Totals),
    /// Data blocks of a batch that are not here already; a bit each, lowest first.
    Needs(u32, Vec<u8>),
    /// What people and the command are to know.
    Told(Event),
    /// Everything has been compared, and this was found.
    Checked(Checked),
    /// This process cannot go on.
    Failed(Fault),
    /// At the source: everything has been read.
    Read(Totals),
}

/// The other end of [`News`].
#[derive(Debug)]
pub(crate) struct Desk {
    news: Receiver<News>,
    waker: Arc<OwnedFd>,
}

/// Where threads hand their news to.
#[derive(Clone, Debug)]
pub(crate) struct Teller {
    news: Sender<News>,
    waker: Arc<OwnedFd>,
}

/// A desk, and what tells it.
pub(crate) fn desk() -> Result<(Desk, Teller), Fault> {
    let waker = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    let waker = Arc::new(waker.map_err(|errno| Fault::System {
        what: "making an event descriptor",
        errno: errno.into(),
    })?);
    let (teller, news) = channel();
    let desk = Desk {
        news,
        waker: Arc::clone(&waker),
    };
    Ok((
        desk,
        Teller {
            news: teller,
            waker,
        },
    ))
}

impl Desk {
    /// Readable when there is news.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.waker.as_fd()
    }

    /// Makes [`Desk::fd`] unreadable until more comes; call it before [`Desk::next`].
    pub(crate) fn rest(&self) {
        // Not readable is what it should be.
        let _ = rustix::io::read(&*self.waker, &mut [0; 8]);
    }

    pub(crate) fn next(&self) -> Option<News> {
        self.news.try_recv().ok()
    }
}

impl Teller {
    fn wake(&self) {
        // Full means that it is readable.
        let _ = rustix::io::write(&*self.waker, &1_u64.to_ne_bytes());
    }

    fn tell(&self, news: News) {
        // Where nobody listens any more, the process ends.
        let _ = self.news.send(news);
        self.wake();
    }
}

/// Memory of blocks that have gone, for those that come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(Arc<Mutex<Vec<Vec<u8>>>>);

impl Memory {
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spare.pop().unwrap_or_default()
    }

    pub(crate) fn give(&self, memory: impl IntoIterator<Item = Vec<u8>>) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        spare.extend(memory);
    }
}

/// Time that threads were busy, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    pub(crate) processor: AtomicU64,
    pub(crate) disk: AtomicU64,
    /// At the source: another process's disk or processor is busy nearly all the time.
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

/// The threads of a receiver.
#[derive(Debug)]
pub(crate) struct Storing {
    pub(crate) blocks: Option<Sender<Block>>,
    threads: Vec<JoinHandle<()>>,
}

impl Storing {
    /// Starts hashing and storing.
    pub(crate) fn start(
        spec: &Spec,
        rank: u32,
        cleanup: &Cleanup,
        teller: &Teller,
        busy: &Arc<Busy>,
    ) -> Storing {
        let (blocks, incoming) = channel();
        let (verified, to_store) = channel();
        let hashing = {
            let (teller, busy) = (teller.clone(), Arc::clone(busy));
            std::thread::spawn(move || {
                if let Err(fault) = verify_all(&incoming, &verified, &teller, &busy) {
                    teller.tell(News::Failed(fault));
                }
            })
        };
        let storing = {
            let (teller, busy, spec, cleanup) = (
                teller.clone(),
                Arc::clone(busy),
                spec.clone(),
                cleanup.clone(),
            );
            std::thread::spawn(move || {
                if let Err(fault) = store_all(&spec, rank, &cleanup, &to_store, &teller, &busy) {
                    teller.tell(News::Failed(fault));
                }
            })
        };
        Storing {
            blocks: Some(blocks),
            threads: vec![hashing, storing],
        }
    }

    /// Whether the threads have ended, after [`Storing::blocks`] was dropped.
    pub(crate) fn has_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }
}

fn verify_all(
    incoming: &Receiver<Block>,
    verified: &Sender<Block>,
    teller: &Teller,
    busy: &Busy,
) -> Result<(), Fault> {
    let mut decoder = Decoder::default();
    for block in incoming {
        let seq = block.head.seq;
        let hash = timed(&busy.processor, || decoder.decode(&block).map(blake3::hash))?;
        if *hash.as_bytes() != block.head.hash {
            return Err(Fault::Corrupt { seq });
        }
        teller.tell(News::Verified(seq + 1));
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
    teller: &Teller,
    busy: &Busy,
) -> Result<(), Fault> {
    let mut store = target::open(spec, rank, cleanup)?;
    // A second time: kept, what was decoded would be as much memory again.
    let mut decoder = Decoder::default();
    for block in blocks {
        let seq = block.head.seq;
        let payload = match block.head.coding {
            Coding::Plain => block.payload(),
            Coding::Zstd => timed(&busy.processor, || decoder.decode(&block))?,
        };
        let needs = timed(&busy.disk, || store.store(&block, payload))?;
        if let Some(bits) = needs {
            teller.tell(News::Needs(block.head.batch, bits));
        }
        for event in store.take_events() {
            teller.tell(News::Told(event));
        }
        if let Some(checked) = store.checked().filter(|_| block.head.kind == Kind::End) {
            teller.tell(News::Checked(checked));
        }
        // Its memory is free for another when the network thread hears of it.
        drop(block);
        teller.tell(News::Stored(seq + 1, *store.totals()));
    }
    Ok(())
}

/// The thread of the source.
#[derive(Debug)]
pub(crate) struct Reading {
    blocks: Receiver<Block>,
    needs: Sender<(u32, Vec<u8>)>,
}

impl Reading {
    /// Starts reading.
    pub(crate) fn start(
        spec: &Spec,
        teller: &Teller,
        memory: &Memory,
        busy: &Arc<Busy>,
    ) -> Reading {
        let (blocks, outgoing) = sync_channel(READ_AHEAD);
        let (needs, told) = channel();
        let mut feeder = Feeder {
            blocks,
            needs: told,
            teller: teller.clone(),
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
            let (source, teller) = (spec.source.clone(), teller.clone());
            // Of a source that cannot be read, the reader says why.
            std::thread::spawn(move || {
                if let Ok(Some(size)) = source::measure(&source) {
                    let source::Size { bytes, entries } = size;
                    teller.tell(News::Told(Event::Size { bytes, entries }));
                }
            });
        }
        let spec = spec.clone();
        std::thread::spawn(move || {
            let read = feeder
                .begin(compress)
                .and_then(|()| source::read(&spec.source, spec.hashes(), &mut feeder));
            if let Err(fault) = read.and_then(|totals| feeder.finish(totals)) {
                feeder.teller.tell(News::Failed(fault));
            }
        });
        Reading {
            blocks: outgoing,
            needs,
        }
    }

    /// The next block.
    pub(crate) fn next(&self) -> Option<Block> {
        self.blocks.try_recv().ok()
    }

    /// Answers what the source waits for.
    pub(crate) fn tell_needs(&self, batch: u32, bits: Vec<u8>) {
        // Where nobody listens any more, the reader has failed, and said so.
        let _ = self.needs.send((batch, bits));
    }
}

struct Feeder {
    blocks: SyncSender<Block>,
    needs: Receiver<(u32, Vec<u8>)>,
    teller: Teller,
    memory: Memory,
    busy: Arc<Busy>,
    seq: u64,
    hasher: blake3::Hasher,
    /// When the last block was handed over: since then it has been reading.
    since: Instant,
    /// When the last block was taken by others.
    last: Instant,
    pace: Option<Pace>,
    encoder: Option<Encoder>,
}

/// How fast blocks may leave.
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

    /// Waits until a block of `len` bytes may leave. What was not used is not made up for.
    fn wait(&mut self, len: usize) {
        let now = Instant::now();
        std::thread::sleep(self.next.saturating_duration_since(now));
        self.next = self.next.max(now) + Duration::from_secs_f64(len as f64 / self.bytes_per_sec);
    }
}

/// Nobody takes blocks any more; whoever asked for the end has said why.
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
        let (coding, payload, compressing) = self.code(payload);
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
        self.teller.wake();
        self.since = Instant::now();
        let left = Left {
            raw: raw_len,
            wire: wire_len,
            own: reading + hashing,
            waited: self.since - begin,
            passed: self.since - std::mem::replace(&mut self.last, self.since),
        };
        if let Some(encoder) = &mut self.encoder {
            let others = self.busy.others.load(Ordering::Relaxed);
            encoder.pays.on_left(left, others);
        }
        sent.map_err(|_| ENDED)
    }

    /// Compresses a payload, where that pays.
    fn code(&mut self, payload: Vec<u8>) -> (Coding, Vec<u8>, Duration) {
        let Some(encoder) = &mut self.encoder else {
            return (Coding::Plain, payload, Duration::ZERO);
        };
        let mut coded = self.memory.take();
        let (is_shorter, took) = encoder.encode(&payload, &mut coded);
        let (coding, payload, spare) = match is_shorter {
            true => (Coding::Zstd, coded, payload),
            false => (Coding::Plain, payload, coded),
        };
        self.memory.give([spare]);
        (coding, payload, took)
    }

    fn finish(&mut self, mut totals: Totals) -> Result<(), Fault> {
        totals.hash = *self.hasher.finalize().as_bytes();
        let payload = postcard::to_allocvec(&totals)
            .map_err(|_| Fault::Protocol("totals that have no form"))?;
        self.send(Kind::End, 0, 0, payload)?;
        self.teller.tell(News::Read(totals));
        Ok(())
    }
}

impl Out for Feeder {
    fn memory(&mut self) -> Vec<u8> {
        let mut memory = self.memory.take();
        memory.clear();
        // The trailer would double it.
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
            let (told, bits) = self.needs.recv().map_err(|_| ENDED)?;
            if told == batch {
                self.since = Instant::now();
                return Ok(bits);
            }
        }
    }

    fn warn(&mut self, text: String) {
        self.teller.tell(News::Told(Event::Warning { text }));
    }
}
