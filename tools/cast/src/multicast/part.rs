// SPDX-License-Identifier: MIT OR Apache-2.0
//! Part of a process in a multicast cast.

use super::Message;
use crate::block::TRAILER_LEN;
use crate::fault::Fault;
use crate::relay::Relay;
use crate::spec::BLOCK_LEN;
use crate::stages::Memory;
use portolan_multicast::{Caster, Codec, Listener, Run, Sent, Socket, Terms};
use rustix::event::{PollFd, PollFlags};
use std::time::Instant;

/// Runs sent or received per poll before the loop handles other work.
const RUNS_PER_POLL: usize = 32;

/// Runs per window. With longer runs, a lost burst would be a larger share of the window.
const RUNS_PER_WINDOW: u64 = 8;

/// Bytes of the longest block's message.
const MESSAGE_LEN: usize = BLOCK_LEN as usize + TRAILER_LEN;

/// Multicast state of the source or of a receiver.
pub(crate) enum Part {
    Casting(Box<Casting>),
    Listening(Box<Listening>),
}

/// Result of a poll.
#[derive(Default)]
pub(crate) struct Polled {
    /// Set if there may be more work at once.
    pub(crate) has_acted: bool,
    /// Messages of complete blocks in order, with their numbers.
    pub(crate) blocks: Vec<(u64, Vec<u8>)>,
    /// Control messages to send, with their receivers.
    pub(crate) messages: Vec<(u32, Message)>,
}

impl Part {
    pub(crate) fn new(
        (socket, codec, terms): (Box<Socket>, Box<Codec>, Terms),
        (rank, size): (u32, u32),
        now: Instant,
    ) -> Part {
        match rank {
            0 => Part::Casting(Box::new(Casting {
                socket,
                codec,
                piece_len: terms.piece_len,
                run_count: usize::try_from(terms.window / RUNS_PER_WINDOW).unwrap_or(1),
                caster: Caster::new(1..size, terms, now),
                run: Run::default(),
                is_blocked: false,
                failed_count: 0,
            })),
            _ => Part::Listening(Box::new(Listening {
                socket,
                codec,
                listener: Listener::new(terms, TRAILER_LEN..=MESSAGE_LEN),
                sent: None,
            })),
        }
    }

    /// Handles a control message about multicast. Other messages are ignored.
    pub(crate) fn on_message(&mut self, rank: u32, message: &Message) {
        match (self, message) {
            (Part::Casting(casting), Message::Report(report)) => {
                casting.caster.on_report(rank, report);
            }
            (Part::Listening(listening), Message::Sent { serial, front }) if rank == 0 => {
                listening.sent = Some(Sent {
                    serial: *serial,
                    front: *front,
                });
            }
            _ => {}
        }
    }

    /// Sends or receives up to the limit of one poll.
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        relay: &mut Relay,
        memory: &Memory,
    ) -> Result<Polled, Fault> {
        match self {
            Part::Casting(casting) => casting.poll(now, relay),
            Part::Listening(listening) => listening.poll(relay, memory),
        }
    }

    /// Returns the descriptor and event to wait for.
    pub(crate) fn poll_fd(&self) -> Option<PollFd<'_>> {
        match self {
            Part::Casting(casting) if casting.is_blocked => Some(PollFd::from_borrowed_fd(
                casting.socket.fd(),
                PollFlags::OUT,
            )),
            Part::Casting(_) => None,
            Part::Listening(listening) => Some(PollFd::from_borrowed_fd(
                listening.socket.fd(),
                PollFlags::IN,
            )),
        }
    }

    /// Returns the time of the next action without events.
    pub(crate) fn timeout(&self) -> Option<Instant> {
        match self {
            Part::Casting(casting) if casting.is_blocked => None,
            Part::Casting(casting) => casting.caster.timeout(),
            Part::Listening(_) => None,
        }
    }
}

/// State of the source.
pub(crate) struct Casting {
    socket: Box<Socket>,
    codec: Box<Codec>,
    piece_len: usize,
    run_count: usize,
    caster: Caster<Instant>,
    /// Run that is being sent.
    run: Run,
    /// Set if the socket buffer was full.
    is_blocked: bool,
    /// Number of failed processes at the last poll.
    failed_count: usize,
}

impl Casting {
    fn poll(&mut self, now: Instant, relay: &mut Relay) -> Result<Polled, Fault> {
        if relay.failed().len() != self.failed_count {
            self.failed_count = relay.failed().len();
            relay
                .failed()
                .iter()
                .for_each(|rank| self.caster.remove_member(*rank));
        }
        self.caster.forget(relay.acked());
        let mut polled = Polled::default();
        self.is_blocked = false;
        for _ in 0..RUNS_PER_POLL {
            if self.run.is_empty() {
                self.fill(now, relay);
            }
            if self.run.is_empty() {
                break;
            }
            let sent = self.socket.send(&mut self.run);
            self.is_blocked = !sent.map_err(|errno| Fault::System {
                what: "sending by multicast",
                errno,
            })?;
            if self.is_blocked {
                break;
            }
            self.caster.on_sent(now);
            polled.has_acted = true;
        }
        // Data still waiting in the run must not be reported as sent.
        if !self.is_blocked {
            let positions = self.caster.on_time(now).into_iter();
            polled.messages = positions
                .map(|(rank, Sent { serial, front })| (rank, Message::Sent { serial, front }))
                .collect();
        }
        Ok(polled)
    }

    fn fill(&mut self, now: Instant, relay: &mut Relay) {
        while self.run.has_space(self.run_count) {
            let len_of = |seq| relay.block(seq).map(|block| block.message().len());
            let Some(header) = self.caster.next(now, len_of) else {
                break;
            };
            relay.on_cast(header.block);
            if let Some(block) = relay.block(header.block) {
                let bytes = block.message();
                self.run.push(&self.codec, &header, &bytes, self.piece_len);
            }
        }
    }
}

/// State of a receiver.
pub(crate) struct Listening {
    socket: Box<Socket>,
    codec: Box<Codec>,
    listener: Listener,
    /// Latest sent position of the source, until all received datagrams have been read.
    sent: Option<Sent>,
}

impl Listening {
    fn poll(&mut self, relay: &Relay, memory: &Memory) -> Result<Polled, Fault> {
        let mut polled = Polled::default();
        let limit = relay.limit();
        let mut is_drained = false;
        for _ in 0..RUNS_PER_POLL {
            let listener = &mut self.listener;
            let received = self.socket.receive(&self.codec, |header, body| {
                listener.on_datagram(header, body, limit, || memory.take());
            });
            is_drained = !received.map_err(|errno| Fault::System {
                what: "receiving by multicast",
                errno,
            })?;
            if is_drained {
                break;
            }
            polled.has_acted = true;
        }
        while let Some(block) = self.listener.take_block() {
            polled.blocks.push(block);
        }
        if let Some(sent) = self.sent.filter(|_| is_drained) {
            self.sent = None;
            self.listener.on_sent(sent);
        }
        let report = self.listener.take_report().map(Message::Report);
        polled.messages = report.into_iter().map(|message| (0, message)).collect();
        Ok(polled)
    }
}
