// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages between the processes. Numbers have 32 bits and are little-endian; a list or a byte
//! string follows its length.

use super::clock::Clock;
use super::interval::Interval;
use super::page::Notice;
use super::update::Update;

/// Defect of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Malformed {
    /// It ends too early.
    #[error("it is too short")]
    Short,
    /// It has bytes after its end.
    #[error("it is too long")]
    Long,
    /// Its kind is unknown.
    #[error("its kind is unknown")]
    Kind,
    /// A number exceeds what it counts or selects.
    #[error("a number is out of range")]
    Range,
}

/// Kind of barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    /// The program's barrier with this number.
    Barrier(u32),
    /// The end of a collection.
    Collection,
    /// The end of the program.
    Exit,
}

/// Form in which the receiver of a request sends a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The requested diffs.
    Diffs,
    /// The shorter one, if its copy contains all writes of the requester's copy.
    Shorter,
    /// The whole page, if its copy contains all writes of the requester's copy.
    Preferred,
    /// The whole page: the requester has no copy.
    Whole,
}

/// A request for a lock, by the process that wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) lock: u32,
    pub(crate) by: u32,
    pub(crate) clock: Clock,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// To the lock's manager.
    Request(Wanted),
    /// From the manager to the process that the lock was last assigned to.
    Forward(Wanted),
    Grant {
        lock: u32,
        intervals: Vec<Interval>,
    },
    Arrive {
        barrier: BarrierKind,
        clock: Clock,
        intervals: Vec<Interval>,
        updates: Vec<Update>,
        is_full: bool,
    },
    Depart {
        intervals: Vec<Interval>,
        updates: Vec<Update>,
        collects: bool,
    },
    Fetch {
        page: u32,
        form: Form,
        contained: Vec<Notice>,
        numbers: Vec<u32>,
    },
    Diffs {
        page: u32,
        diffs: Vec<(u32, Vec<u8>)>,
    },
    Copy {
        page: u32,
        applied: Clock,
        bytes: Vec<u8>,
    },
    /// To the manager: wait for the condition, and then for the lock.
    Sleep {
        condition: u32,
        wanted: Wanted,
    },
    /// Answer to `Sleep`: the lock may be released.
    Asleep {
        lock: u32,
    },
    Signal {
        lock: u32,
        condition: u32,
        all: bool,
    },
}

mod kind {
    pub(super) const REQUEST: u32 = 1;
    pub(super) const FORWARD: u32 = 2;
    pub(super) const GRANT: u32 = 3;
    pub(super) const ARRIVE: u32 = 4;
    pub(super) const DEPART: u32 = 5;
    pub(super) const FETCH: u32 = 6;
    pub(super) const DIFFS: u32 = 7;
    pub(super) const COPY: u32 = 8;
    pub(super) const SLEEP: u32 = 9;
    pub(super) const ASLEEP: u32 = 10;
    pub(super) const SIGNAL: u32 = 11;
}

/// First number of messages that are not of this module.
pub(crate) const FOREIGN_KIND: u32 = 100;

/// Returns the kind of a message, its first number.
pub(crate) fn kind_of(bytes: &[u8]) -> Option<u32> {
    let head = bytes.first_chunk()?;
    Some(u32::from_le_bytes(*head))
}

/// Number of processes that message lists may refer to, and the length of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) size: u32,
    pub(crate) page_len: usize,
    pub(crate) page_count: u32,
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, value: u32) -> &mut Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    #[allow(clippy::cast_possible_truncation, reason = "lists and pages are short")]
    fn len(&mut self, len: usize) -> &mut Self {
        self.number(len as u32)
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.len(bytes.len());
        self.0.extend_from_slice(bytes);
        self
    }

    fn clock(&mut self, clock: &Clock) -> &mut Self {
        for &number in clock.as_slice() {
            self.number(number);
        }
        self
    }

    fn wanted(&mut self, wanted: &Wanted) -> &mut Self {
        self.number(wanted.lock)
            .number(wanted.by)
            .clock(&wanted.clock)
    }

    fn barrier(&mut self, barrier: BarrierKind) -> &mut Self {
        match barrier {
            BarrierKind::Barrier(id) => self.number(0).number(id),
            BarrierKind::Collection => self.number(1).number(0),
            BarrierKind::Exit => self.number(2).number(0),
        }
    }

    fn intervals(&mut self, intervals: &[Interval]) -> &mut Self {
        self.len(intervals.len());
        for interval in intervals {
            self.number(interval.process).clock(&interval.clock);
            self.len(interval.runs.len());
            for &(first, count) in &interval.runs {
                self.number(first).number(count);
            }
        }
        self
    }

    fn updates(&mut self, updates: &[Update]) -> &mut Self {
        self.len(updates.len());
        for update in updates {
            self.number(update.page);
            self.number(update.notice.process)
                .number(update.notice.number);
            self.len(update.readers.len());
            for &reader in &update.readers {
                self.number(reader);
            }
            self.bytes(&update.diff);
        }
        self
    }
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        match self {
            Message::Request(wanted) => out.number(kind::REQUEST).wanted(wanted),
            Message::Forward(wanted) => out.number(kind::FORWARD).wanted(wanted),
            Message::Grant { lock, intervals } => {
                out.number(kind::GRANT).number(*lock).intervals(intervals)
            }
            Message::Arrive {
                barrier,
                clock,
                intervals,
                updates,
                is_full,
            } => {
                let out = out.number(kind::ARRIVE).barrier(*barrier).clock(clock);
                let out = out.number(u32::from(*is_full)).intervals(intervals);
                out.updates(updates)
            }
            Message::Depart {
                intervals,
                updates,
                collects,
            } => {
                let out = out.number(kind::DEPART).number(u32::from(*collects));
                out.intervals(intervals).updates(updates)
            }
            Message::Fetch { .. } | Message::Diffs { .. } | Message::Copy { .. } => {
                self.encode_page(&mut out)
            }
            Message::Sleep { condition, wanted } => {
                out.number(kind::SLEEP).number(*condition).wanted(wanted)
            }
            Message::Asleep { lock } => out.number(kind::ASLEEP).number(*lock),
            Message::Signal {
                lock,
                condition,
                all,
            } => {
                let out = out.number(kind::SIGNAL).number(*lock);
                out.number(*condition).number(u32::from(*all))
            }
        };
        out.0
    }

    fn encode_page<'a>(&self, out: &'a mut Writer) -> &'a mut Writer {
        match self {
            Message::Fetch {
                page,
                form,
                contained,
                numbers,
            } => {
                out.number(kind::FETCH).number(*page);
                out.number(*form as u32).len(contained.len());
                for notice in contained {
                    out.number(notice.process).number(notice.number);
                }
                out.len(numbers.len());
                for &number in numbers {
                    out.number(number);
                }
            }
            Message::Diffs { page, diffs } => {
                out.number(kind::DIFFS).number(*page).len(diffs.len());
                for (number, diff) in diffs {
                    out.number(*number).bytes(diff);
                }
            }
            Message::Copy {
                page,
                applied,
                bytes,
            } => {
                out.number(kind::COPY)
                    .number(*page)
                    .clock(applied)
                    .bytes(bytes);
            }
            _ => {}
        }
        out
    }

    /// Reads a message. The result refers only to existing processes and pages.
    ///
    /// # Errors
    /// [`Malformed`].
    pub(crate) fn decode(bytes: &[u8], shape: Shape) -> Result<Message, Malformed> {
        let mut from = Reader { bytes, shape };
        let kind = from.number()?;
        let message = from.message(kind)?;
        match from.bytes.is_empty() {
            true => Ok(message),
            false => Err(Malformed::Long),
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    shape: Shape,
}

impl Reader<'_> {
    fn number(&mut self) -> Result<u32, Malformed> {
        let (head, rest) = self.bytes.split_first_chunk().ok_or(Malformed::Short)?;
        self.bytes = rest;
        Ok(u32::from_le_bytes(*head))
    }

    fn number_below(&mut self, end: u32) -> Result<u32, Malformed> {
        let number = self.number()?;
        (number < end).then_some(number).ok_or(Malformed::Range)
    }

    /// Reads a list of elements, each of at least one number.
    fn list<T>(
        &mut self,
        element: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let len = self.number()? as usize;
        if len > self.bytes.len() / size_of::<u32>() {
            return Err(Malformed::Short);
        }
        (0..len).map(|_| element(self)).collect()
    }

    fn string(&mut self) -> Result<Vec<u8>, Malformed> {
        let len = self.number()? as usize;
        let (bytes, rest) = self.bytes.split_at_checked(len).ok_or(Malformed::Short)?;
        self.bytes = rest;
        Ok(bytes.to_vec())
    }

    fn flag(&mut self) -> Result<bool, Malformed> {
        Ok(self.number_below(2)? == 1)
    }

    fn process(&mut self) -> Result<u32, Malformed> {
        self.number_below(self.shape.size)
    }

    fn page(&mut self) -> Result<u32, Malformed> {
        self.number_below(self.shape.page_count)
    }

    fn clock(&mut self) -> Result<Clock, Malformed> {
        let numbers: Result<_, _> = (0..self.shape.size).map(|_| self.number()).collect();
        numbers.map(Clock::from_vec)
    }

    fn wanted(&mut self) -> Result<Wanted, Malformed> {
        Ok(Wanted {
            lock: self.number()?,
            by: self.process()?,
            clock: self.clock()?,
        })
    }

    fn notice(&mut self) -> Result<Notice, Malformed> {
        Ok(Notice {
            process: self.process()?,
            number: self.number()?,
        })
    }

    fn run(&mut self) -> Result<(u32, u32), Malformed> {
        let (first, count) = (self.page()?, self.number()?);
        match count <= self.shape.page_count - first {
            true => Ok((first, count)),
            false => Err(Malformed::Range),
        }
    }

    fn intervals(&mut self) -> Result<Vec<Interval>, Malformed> {
        self.list(|from| {
            Ok(Interval {
                process: from.process()?,
                clock: from.clock()?,
                runs: from.list(Self::run)?,
            })
        })
    }

    fn updates(&mut self) -> Result<Vec<Update>, Malformed> {
        self.list(|from| {
            Ok(Update {
                page: from.page()?,
                notice: from.notice()?,
                readers: from.list(Self::process)?,
                diff: from.string()?,
            })
        })
    }

    fn barrier(&mut self) -> Result<BarrierKind, Malformed> {
        match (self.number()?, self.number()?) {
            (0, id) => Ok(BarrierKind::Barrier(id)),
            (1, _) => Ok(BarrierKind::Collection),
            (2, _) => Ok(BarrierKind::Exit),
            _ => Err(Malformed::Range),
        }
    }

    fn form(&mut self) -> Result<Form, Malformed> {
        const FORMS: [Form; 4] = [Form::Diffs, Form::Shorter, Form::Preferred, Form::Whole];
        let index = self.number()? as usize;
        FORMS.get(index).copied().ok_or(Malformed::Range)
    }

    fn page_bytes(&mut self) -> Result<Vec<u8>, Malformed> {
        let bytes = self.string()?;
        match bytes.len() == self.shape.page_len {
            true => Ok(bytes),
            false => Err(Malformed::Range),
        }
    }

    fn message(&mut self, kind: u32) -> Result<Message, Malformed> {
        Ok(match kind {
            kind::REQUEST => Message::Request(self.wanted()?),
            kind::FORWARD => Message::Forward(self.wanted()?),
            kind::GRANT => Message::Grant {
                lock: self.number()?,
                intervals: self.intervals()?,
            },
            kind::ARRIVE => Message::Arrive {
                barrier: self.barrier()?,
                clock: self.clock()?,
                is_full: self.flag()?,
                intervals: self.intervals()?,
                updates: self.updates()?,
            },
            kind::DEPART => Message::Depart {
                collects: self.flag()?,
                intervals: self.intervals()?,
                updates: self.updates()?,
            },
            kind::FETCH => Message::Fetch {
                page: self.page()?,
                form: self.form()?,
                contained: self.list(Self::notice)?,
                numbers: self.list(Self::number)?,
            },
            kind::DIFFS => Message::Diffs {
                page: self.page()?,
                diffs: self.list(|from| Ok((from.number()?, from.string()?)))?,
            },
            kind::COPY => Message::Copy {
                page: self.page()?,
                applied: self.clock()?,
                bytes: self.page_bytes()?,
            },
            kind::SLEEP => Message::Sleep {
                condition: self.number()?,
                wanted: self.wanted()?,
            },
            kind::ASLEEP => Message::Asleep {
                lock: self.number()?,
            },
            kind::SIGNAL => Message::Signal {
                lock: self.number()?,
                condition: self.number()?,
                all: self.flag()?,
            },
            _ => return Err(Malformed::Kind),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        size: 2,
        page_len: 4,
        page_count: 100,
    };

    fn samples() -> Vec<Message> {
        let clock = Clock::from_vec(vec![3, 1]);
        let wanted = Wanted {
            lock: 7,
            by: 1,
            clock: clock.clone(),
        };
        let intervals = vec![Interval::new(1, clock.clone(), vec![4, 5, 99])];
        let updates = vec![Update {
            page: 5,
            notice: Notice {
                process: 1,
                number: 1,
            },
            readers: vec![0, 1],
            diff: vec![1, 2, 3],
        }];
        vec![
            Message::Request(wanted.clone()),
            Message::Forward(wanted.clone()),
            Message::Grant {
                lock: 2,
                intervals: intervals.clone(),
            },
            Message::Arrive {
                barrier: BarrierKind::Barrier(3),
                clock: clock.clone(),
                intervals: intervals.clone(),
                updates: updates.clone(),
                is_full: true,
            },
            Message::Depart {
                intervals,
                updates,
                collects: false,
            },
            Message::Fetch {
                page: 9,
                form: Form::Preferred,
                contained: vec![Notice {
                    process: 1,
                    number: 2,
                }],
                numbers: vec![4, 6],
            },
            Message::Diffs {
                page: 9,
                diffs: vec![(4, vec![1, 2]), (6, Vec::new())],
            },
            Message::Copy {
                page: 1,
                applied: clock,
                bytes: vec![1, 2, 3, 4],
            },
            Message::Sleep {
                condition: 1,
                wanted,
            },
            Message::Asleep { lock: 1 },
            Message::Signal {
                lock: 1,
                condition: 2,
                all: true,
            },
        ]
    }

    #[test]
    fn messages_survive_the_wire() {
        for message in samples() {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes, SHAPE), Ok(message));
        }
    }

    #[test]
    fn shortened_and_lengthened_messages_are_refused() {
        for message in samples() {
            let mut bytes = message.encode();
            for len in 0..bytes.len() {
                assert!(
                    Message::decode(&bytes[..len], SHAPE).is_err(),
                    "{message:?}"
                );
            }
            bytes.push(0);
            assert!(Message::decode(&bytes, SHAPE).is_err(), "{message:?}");
        }
    }

    #[test]
    fn changed_messages_never_panic() {
        for message in samples() {
            let bytes = message.encode();
            for at in 0..bytes.len() {
                for value in [0, 1, 0x7f, 0xff] {
                    let mut changed = bytes.clone();
                    changed[at] = value;
                    let _ = Message::decode(&changed, SHAPE);
                }
            }
        }
    }
}
