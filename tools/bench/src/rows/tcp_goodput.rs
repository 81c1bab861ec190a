// SPDX-License-Identifier: MIT OR Apache-2.0
//! Goodput of the kernel's TCP in a given time, however little that is.
//!
//! The work is that of [`super::tcp::stream`]: windows of large messages, each acknowledged. A
//! network that loses one packet in five may not deliver a whole window within the time. Therefore
//! the receiver counts bytes and ends the measurement.

use super::tcp;
use crate::end::End;
use crate::measure::{Pace, Sample, WARM_UP};
use crate::pattern::{stamp, verify};
use crate::socket;
use crate::spec::window;
use crate::spin_wait::SpinWait;
use anyhow::{Result, bail, ensure};
use portolan::Region;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Time after which the sender ends without a message from the receiver, because that message can
/// be lost as well. It is shorter than the time limit of an end.
const SENDER_GRACE: Duration = Duration::from_secs(20);

/// Runs one end. The receiver returns the sample.
///
/// # Errors
/// A payload was wrong, or the sender ended first.
pub(crate) fn run(end: &mut End) -> Result<Option<Sample>> {
    let stream = socket::tcp(end)?;
    stream.set_nonblocking(true)?;
    if !end.drives() {
        return receive(end, stream).map(Some);
    }
    let until = Instant::now() + time(end.spec.pace).mul_f64(1.0 + WARM_UP) + SENDER_GRACE;
    let spin_wait = end.spin_wait();
    let mut flow = Flow {
        stream,
        spin_wait,
        until,
    };
    let mut message = Region::new(end.spec.size)?;
    let mut seq = 0;
    loop {
        stamp(&mut message, seq, super::pass_flags(seq, false));
        seq += 1;
        for _ in 0..window(message.len()) {
            if !flow.write(&message) {
                return Ok(None);
            }
        }
        if !flow.await_ack()? {
            return Ok(None);
        }
    }
}

/// Returns the measured time. It is zero for a number of messages, which ends the measurement
/// instead.
fn time(pace: Pace) -> Duration {
    match pace {
        Pace::Seconds(seconds) => Duration::from_secs_f64(seconds),
        Pace::Iterations(_) => Duration::ZERO,
    }
}

/// Connection of the sender. Its functions return `false` when the receiver has measured enough.
struct Flow {
    stream: TcpStream,
    spin_wait: SpinWait,
    until: Instant,
}

impl Flow {
    fn write(&mut self, bytes: &[u8]) -> bool {
        let mut written = 0;
        while written < bytes.len() {
            match self.stream.write(&bytes[written..]) {
                Ok(count) => written += count,
                Err(error) if self.may_retry(&error) => self.spin_wait.pause(),
                Err(_) => return false,
            }
        }
        true
    }

    /// Waits for an acknowledgement.
    ///
    /// # Errors
    /// The received data is not an acknowledgement.
    fn await_ack(&mut self) -> Result<bool> {
        let mut ack = [0; tcp::ACK.len()];
        let mut filled = 0;
        while filled < ack.len() {
            match self.stream.read(&mut ack[filled..]) {
                Ok(0) => return Ok(false),
                Ok(count) => filled += count,
                Err(error) if self.may_retry(&error) => self.spin_wait.pause(),
                Err(_) => return Ok(false),
            }
        }
        ensure!(ack == tcp::ACK, "the acknowledgement is {ack:?}");
        Ok(true)
    }

    fn may_retry(&self, error: &std::io::Error) -> bool {
        error.kind() == ErrorKind::WouldBlock && Instant::now() < self.until
    }
}

fn receive(end: &mut End, mut stream: TcpStream) -> Result<Sample> {
    let mut message = Region::new(end.spec.size)?;
    let mut tally = Tally::new(end.spec.pace, message.len());
    let spin_wait = end.spin_wait();
    let (mut filled, mut count, mut seq) = (0, 0, 0);
    while !tally.is_over(Instant::now()) {
        match stream.read(&mut message[filled..]) {
            Ok(0) => bail!("the sender closed the connection"),
            Ok(len) => {
                filled += len;
                tally.add(len);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => spin_wait.pause(),
            Err(error) => return Err(error.into()),
        }
        if filled == message.len() {
            verify(&message, seq)?;
            (filled, count) = (0, count + 1);
            if count == window(message.len()) {
                stream.write_all(&tcp::ACK)?;
                (count, seq) = (0, seq + 1);
            }
        }
    }
    Ok(tally.sample(Instant::now()))
}

/// Counts bytes after the warm-up, which begins with the first byte.
struct Tally {
    pace: Pace,
    message_len: usize,
    bytes: u64,
    first: Option<Instant>,
    counted_from: Option<Instant>,
}

impl Tally {
    fn new(pace: Pace, message_len: usize) -> Self {
        Tally {
            pace,
            message_len,
            bytes: 0,
            first: None,
            counted_from: None,
        }
    }

    fn add(&mut self, len: usize) {
        if self.first.is_none() {
            self.first = Some(Instant::now());
        }
        if self.counted_from.is_some() {
            self.bytes += len as u64;
        }
    }

    /// Returns true if enough was counted. Starts the count when the warm-up is over.
    fn is_over(&mut self, now: Instant) -> bool {
        let (Some(first), Some(from)) = (self.first, self.counted_from) else {
            let warm = |first| now >= first + time(self.pace).mul_f64(WARM_UP);
            self.counted_from = self.first.filter(|first| warm(*first)).map(|_| now);
            return false;
        };
        debug_assert!(first <= from, "counted before the first byte");
        match self.pace {
            Pace::Seconds(_) => now >= from + time(self.pace),
            Pace::Iterations(count) => self.bytes >= count * self.message_len as u64,
        }
    }

    /// Returns a sample without quantiles, because messages may be incomplete.
    #[allow(clippy::cast_precision_loss, reason = "three digits are reported")]
    fn sample(&self, now: Instant) -> Sample {
        let spent = self
            .counted_from
            .map_or(Duration::ZERO, |from| now - from)
            .as_secs_f64();
        let messages = self.bytes as f64 / self.message_len as f64;
        let per = |what: f64, by: f64| if by > 0.0 { what / by } else { 0.0 };
        Sample {
            iterations: self.bytes / self.message_len as u64,
            mean_us: per(spent * 1e6, messages),
            msgs_per_s: per(messages, spent),
            ..Sample::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_messages_after_warm_up_count() {
        let mut tally = Tally::new(Pace::Seconds(1.0), 1_000_000);
        let start = Instant::now();
        assert!(!tally.is_over(start + Duration::from_secs(100)), "no byte");
        tally.add(500);
        let warm = Instant::now() + Duration::from_secs(1);
        assert!(!tally.is_over(warm));
        tally.add(2000);
        tally.add(3000);
        assert!(!tally.is_over(warm + Duration::from_millis(999)));
        assert!(tally.is_over(warm + Duration::from_secs(2)));
        let sample = tally.sample(warm + Duration::from_secs(2));
        assert_eq!(sample.iterations, 0);
        assert!((sample.msgs_per_s - 0.0025).abs() < 1e-9, "{sample:?}");
    }

    #[test]
    fn no_data_is_zero_goodput() {
        let mut tally = Tally::new(Pace::Seconds(1.0), 1000);
        tally.add(1);
        let warm = Instant::now() + Duration::from_secs(1);
        assert!(!tally.is_over(warm));
        let sample = tally.sample(warm + Duration::from_secs(1));
        assert_eq!((sample.msgs_per_s, sample.mean_us), (0.0, 0.0));
    }
}
