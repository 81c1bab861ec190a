// SPDX-License-Identifier: MIT OR Apache-2.0
//! The conversation between the command and the two ends of a bare row: one JSON line each.
//!
//! Each end offers its addresses, is given the other's, does its work, and reports. An end that
//! hears nothing from the command any more ends itself (see `worker`), so nothing here waits for
//! ever.

use crate::extra::Account;
use crate::measure::Sample;
use anyhow::{Context, Result, anyhow, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read, Write};

/// What the other end must know before the work begins.
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
    /// How another library's program is found, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
}

/// What an end says last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Offer(Offer),
    /// The sample of the end that measured, and an answerer's account.
    Done(Option<Box<Sample>>, Account),
    Failed(String),
}

/// An end's side of the conversation, or the command's side towards one end.
pub(crate) struct Wire {
    reader: BufReader<Box<dyn Read + Send>>,
    writer: Box<dyn Write + Send>,
}

impl Wire {
    /// Talks over any pair of streams.
    pub(crate) fn new(
        reader: impl Read + Send + 'static,
        writer: impl Write + Send + 'static,
    ) -> Self {
        Wire {
            reader: BufReader::new(Box::new(reader)),
            writer: Box::new(writer),
        }
    }

    /// For an end: offers, and learns the other end's offer.
    ///
    /// # Errors
    /// The command is gone.
    pub(crate) fn exchange(&mut self, offer: &Offer) -> Result<Offer> {
        self.send(&Word::Offer(offer.clone()))?;
        self.receive()
    }

    /// For an end: says how it went.
    ///
    /// # Errors
    /// The command is gone.
    pub(crate) fn report(
        &mut self,
        outcome: Result<Option<Sample>>,
        account: Account,
    ) -> Result<()> {
        self.send(&match outcome {
            Ok(sample) => Word::Done(sample.map(Box::new), account),
            Err(error) => Word::Failed(format!("{error:#}")),
        })
    }

    fn send(&mut self, word: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(word)?;
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
            bail!("ended without a report");
        }
        serde_json::from_str(&line).with_context(|| format!("not a control line: {line:?}"))
    }

    fn receive_offer(&mut self) -> Result<Offer> {
        match self.receive()? {
            Word::Offer(offer) => Ok(offer),
            Word::Failed(why) => Err(anyhow!(why)),
            Word::Done(..) => bail!("reported before it began"),
        }
    }

    fn receive_report(&mut self) -> Result<(Option<Box<Sample>>, Account)> {
        match self.receive()? {
            Word::Done(sample, account) => Ok((sample, account)),
            Word::Failed(why) => Err(anyhow!(why)),
            Word::Offer(_) => bail!("offered twice"),
        }
    }
}

/// For the command: introduces the ends to one another and returns the sample of the one that
/// measured.
///
/// # Errors
/// What the ends say that failed; the answerer's error counts first, since the driver then only
/// noticed a silence.
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
