// SPDX-License-Identifier: MIT OR Apache-2.0
//! Control protocol between the command and the two ends of a bare row: one JSON line per message.
//!
//! Each end offers its addresses, receives the other end's, does its work, and reports. An end
//! exits when its connection to the command closes (see `worker`), so nothing here waits forever.

use crate::extra::Account;
use crate::measure::Sample;
use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};

/// Information that the other end needs before the work starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Offer {
    /// UDP or TCP port.
    pub(crate) port: Option<u16>,
    /// Hardware address.
    pub(crate) mac: Option<[u8; 6]>,
    /// Process id.
    pub(crate) pid: Option<i32>,
    /// Address of a buffer in that process.
    pub(crate) buffer: Option<usize>,
    /// Address of another library's program, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

/// Message of an end to the command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Message {
    Offer(Offer),
    /// The sample of the measuring end, and an answerer's account.
    Done(Option<Box<Sample>>, Account),
    Failed(String),
}

/// One side of the connection between the command and an end.
pub(crate) struct Wire {
    reader: BufReader<Box<dyn Read + Send>>,
    writer: Box<dyn Write + Send>,
}

impl Wire {
    /// Creates a connection over any pair of streams.
    pub(crate) fn new(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> Self {
        Wire {
            reader: BufReader::new(Box::new(reader)),
            writer: Box::new(writer),
        }
    }

    /// Sends an end's offer and returns the other end's offer.
    pub(crate) fn exchange(&mut self, offer: &Offer) -> Result<Offer> {
        self.send(&Message::Offer(offer.clone()))?;
        self.receive()
    }

    /// Sends an end's outcome to the command.
    pub(crate) fn report(
        &mut self,
        outcome: Result<Option<Sample>>,
        account: Account,
    ) -> Result<()> {
        self.send(&match outcome {
            Ok(sample) => Message::Done(sample.map(Box::new), account),
            Err(error) => Message::Failed(format!("{error:#}")),
        })
    }

    fn send(&mut self, message: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.writer
            .write_all(&line)
            .and_then(|()| self.writer.flush())
            .context("control line")
    }

    fn receive<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        self.reader.read_line(&mut line).context("control line")?;
        if line.is_empty() {
            bail!("exited without a report");
        }
        serde_json::from_str(&line).with_context(|| format!("invalid control line: {line:?}"))
    }

    fn receive_offer(&mut self) -> Result<Offer> {
        match self.receive()? {
            Message::Offer(offer) => Ok(offer),
            Message::Failed(why) => Err(anyhow!(why)),
            Message::Done(..) => bail!("reported before its offer"),
        }
    }

    fn receive_report(&mut self) -> Result<(Option<Box<Sample>>, Account)> {
        match self.receive()? {
            Message::Done(sample, account) => Ok((sample, account)),
            Message::Failed(why) => Err(anyhow!(why)),
            Message::Offer(_) => bail!("sent two offers"),
        }
    }
}

/// Exchanges the offers of the ends for the command and returns the driver's sample.
///
/// # Errors
/// The error that an end reports. The answerer's error takes precedence, because the driver may
/// only have noticed a silence.
pub(crate) fn conduct(driver: &mut Wire, answerer: &mut Wire) -> Result<Sample> {
    let driver_offer = driver.receive_offer()?;
    let answerer_offer = answerer.receive_offer()?;
    driver.send(&answerer_offer)?;
    answerer.send(&driver_offer)?;
    let (driven, _) = match driver.receive_report() {
        Ok(report) => report,
        Err(error) => return Err(answerer.receive_report().err().unwrap_or(error)),
    };
    let (seen, account) = answerer.receive_report()?;
    let mut sample = *driven.or(seen).context("neither end measured anything")?;
    sample.take(account);
    Ok(sample)
}
