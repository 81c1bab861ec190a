// SPDX-License-Identifier: MIT OR Apache-2.0
//! Predicted speed of a cast for each shape.
//!
//! The slowest resource determines the rate: its capacity divided by the number of uses per byte.
//! The paper on speculative defragmentation (section 5.4) predicts its distribution of disk images
//! in this way, after Rauch, Kurmann and Stricker.
//!
//! The model uses no clock and no system calls. Its inputs are rates that [`crate::survey`]
//! measures or that are assumed.

use crate::shape::{Form, Shape};
use crate::spec::BLOCK_LEN;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Cost per byte of one kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Elapsed seconds.
    pub seconds: f64,
    /// Processor seconds within the elapsed time.
    pub cpu: f64,
}

impl Cost {
    /// Returns the bytes per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        1.0 / self.seconds
    }

    /// Returns the seconds in which the device works and the processor does not.
    fn waiting(&self) -> f64 {
        (self.seconds - self.cpu).max(0.0)
    }
}

/// Measured rates of one host. An unknown rate imposes no limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Id of the running kernel. Hosts with the same id share processors and disks.
    pub machine: String,
    /// Processors of that machine that other programs leave free.
    pub processors: f64,
    /// Device of the files, as numbered by that machine.
    pub disk: Option<u64>,
    /// Cost of hashing.
    pub hash: Cost,
    /// Cost of reading, at the source.
    pub read: Option<Cost>,
    /// Cost of storing, at the receivers.
    pub write: Option<Cost>,
    /// Cost of sending to one other host.
    pub send: Option<Cost>,
    /// Cost of receiving.
    pub receive: Option<Cost>,
}

impl Rates {
    /// Returns typical rates of a host on gigabit Ethernet, for casts without measurements. The
    /// best shape mainly depends on the path length compared with the amount of data, and little on
    /// these rates.
    #[must_use]
    pub fn assumed(rank: u32) -> Rates {
        // 1448 bytes of payload in 1538 bytes on the wire (IEEE 802.3, TCP over IPv4 with time
        // stamps).
        let link = Cost {
            seconds: 8e-9 * 1538.0 / 1448.0,
            cpu: 0.0,
        };
        Rates {
            machine: rank.to_string(),
            processors: 1.0,
            disk: None,
            // Hashing on one slow core.
            hash: Cost {
                seconds: 1e-9,
                cpu: 1e-9,
            },
            read: None,
            write: None,
            send: Some(link),
            receive: Some(link),
        }
    }
}

/// A resource that limits the rate, with its host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Thread of the source that reads and hashes.
    Reader,
    /// Thread of a host that hashes.
    Hashing(u32),
    /// Thread of a host that stores.
    Storing(u32),
    /// Outgoing link of a host, which sends to several children one after another.
    Out(u32),
    /// Incoming link of a host.
    Into(u32),
    /// Thread of a host that receives and sends.
    NetworkThread(u32),
    /// A disk, named by its first host.
    Disk(u32),
    /// All processors of a machine, named by its first host.
    Processors(u32),
    /// Rate limit of the user.
    Limit,
}

impl Resource {
    /// Returns the name of the resource, including its host.
    #[must_use]
    pub fn describe(&self, hosts: &[String]) -> String {
        let host = |rank: &u32| hosts.get(*rank as usize).map_or("", String::as_str);
        match self {
            Resource::Reader => format!("reading and hashing on {}", host(&0)),
            Resource::Hashing(rank) => format!("hashing on {}", host(rank)),
            Resource::Storing(rank) => format!("storing on {}", host(rank)),
            Resource::Out(rank) => format!("the network from {}", host(rank)),
            Resource::Into(rank) => format!("the network to {}", host(rank)),
            Resource::NetworkThread(rank) => format!("receiving and sending on {}", host(rank)),
            Resource::Disk(rank) => format!("the disk of {}", host(rank)),
            Resource::Processors(rank) => format!("the processors of {}", host(rank)),
            Resource::Limit => "--limit".to_owned(),
        }
    }
}

/// Predicted performance of a shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Form of the distribution.
    pub form: Form,
    /// Bytes per second.
    pub bytes_per_sec: f64,
    /// Seconds until the last host has all data, if the amount is known.
    pub seconds: Option<f64>,
    /// Resource that limits the rate.
    pub bound: Resource,
}

/// A cast with known rates.
#[derive(Clone, Debug)]
pub struct Model<'a> {
    /// Rates by rank.
    pub rates: &'a [Rates],
    /// Bytes of the source, if known.
    pub size: Option<u64>,
    /// Maximum bytes per second that the source sends.
    pub limit: Option<f64>,
    /// Set if multicast may be chosen.
    pub multicast: bool,
}

/// Degrees to compare. The number of receivers is added, for a tree of one hop.
const DEGREES: [u32; 6] = [1, 2, 3, 4, 8, 16];

/// Maximum ratio to the chain's time, and minimum saving in seconds, for another shape to replace
/// the chain. The chain is preferred because the slowest link limits it least.
const GAIN: f64 = 0.9;
const GAIN_SECONDS: f64 = 0.05;

impl Model<'_> {
    /// Returns the predictions for all shapes, the chain first.
    #[must_use]
    pub fn compare(&self) -> Vec<Prediction> {
        let others = u32::try_from(self.rates.len())
            .unwrap_or(u32::MAX)
            .saturating_sub(1)
            .max(1);
        let mut degrees: Vec<u32> = DEGREES.into_iter().filter(|&it| it < others).collect();
        degrees.push(others);
        let mut forms: Vec<Form> = degrees.into_iter().map(Form::Tree).collect();
        if self.multicast && others > 1 {
            forms.push(Form::Multicast);
        }
        forms.into_iter().map(|it| self.predict(it)).collect()
    }

    /// Returns the best prediction. A source of unknown size counts as long.
    #[must_use]
    pub fn choose(&self) -> Prediction {
        let compared = self.compare();
        let (chain, others) = (compared[0].clone(), &compared[1..]);
        let time = |it: &Prediction| it.seconds.unwrap_or(1e12 / it.bytes_per_sec);
        let best = others.iter().min_by(|a, b| time(a).total_cmp(&time(b)));
        let gains = |it: &&Prediction| {
            time(it) < GAIN * time(&chain) && time(&chain) - time(it) > GAIN_SECONDS
        };
        best.filter(gains).cloned().unwrap_or(chain)
    }

    /// Returns the prediction for `form`.
    #[must_use]
    pub fn predict(&self, form: Form) -> Prediction {
        let uses = self.uses(form);
        // The first of several equal resources is named.
        let most = uses
            .into_iter()
            .reduce(|most, next| if next.1 > most.1 { next } else { most });
        // Not reached: every cast hashes.
        let (bound, seconds) = most.unwrap_or((Resource::Reader, f64::MIN_POSITIVE));
        let whole = self.size.map(|size| size as f64 * seconds);
        Prediction {
            form,
            bytes_per_sec: 1.0 / seconds,
            seconds: whole.map(|whole| whole + self.fill(form)),
            bound,
        }
    }

    fn shape(&self, form: Form) -> Shape {
        Shape::of(form, u32::try_from(self.rates.len()).unwrap_or(u32::MAX))
    }

    /// Returns how often a host sends each byte.
    fn sends(&self, form: Form, rank: u32) -> u32 {
        let others = self.shape(form).children(rank).count();
        let others = u32::try_from(others).unwrap_or(u32::MAX);
        match form {
            Form::Tree(_) => others,
            Form::Multicast => others.min(1),
        }
    }

    /// Returns the seconds per byte at each resource: uses divided by capacity.
    fn uses(&self, form: Form) -> BTreeMap<Resource, f64> {
        let mut uses = BTreeMap::new();
        let mut processors: BTreeMap<&str, (u32, f64)> = BTreeMap::new();
        let mut disks: BTreeMap<(&str, u64), (u32, f64)> = BTreeMap::new();
        for (rank, rates) in (0..).zip(self.rates) {
            let fanout = f64::from(self.sends(form, rank));
            let seconds = |cost: Option<Cost>| cost.map_or(0.0, |cost| cost.seconds);
            let cpu = |cost: Option<Cost>| cost.map_or(0.0, |cost| cost.cpu);
            let file = if rank == 0 { rates.read } else { rates.write };
            let receive = rates.receive.filter(|_| rank > 0);
            if rank == 0 {
                uses.insert(Resource::Reader, seconds(file) + rates.hash.seconds);
            } else {
                uses.insert(Resource::Hashing(rank), rates.hash.seconds);
                uses.insert(Resource::Storing(rank), seconds(file));
                uses.insert(Resource::Into(rank), seconds(receive));
            }
            uses.insert(Resource::Out(rank), fanout * seconds(rates.send));
            let network = cpu(receive) + fanout * cpu(rates.send);
            uses.insert(Resource::NetworkThread(rank), network);
            let all = processors.entry(&rates.machine).or_insert((rank, 0.0));
            all.1 += (network + cpu(file) + rates.hash.cpu) / rates.processors;
            if let Some(disk) = rates.disk {
                let disk = disks.entry((&rates.machine, disk)).or_insert((rank, 0.0));
                disk.1 += file.map_or(0.0, |cost| cost.waiting());
            }
        }
        for (rank, sum) in processors.into_values() {
            uses.insert(Resource::Processors(rank), sum);
        }
        for (rank, sum) in disks.into_values() {
            uses.insert(Resource::Disk(rank), sum);
        }
        if let Some(limit) = self.limit {
            uses.insert(Resource::Limit, 1.0 / limit);
        }
        uses
    }

    /// Returns the seconds until the first block reaches the farthest host. A host forwards a block
    /// after it has received and hashed it. Its last child is served last.
    fn fill(&self, form: Form) -> f64 {
        let shape = self.shape(form);
        let mut rank = shape.size.saturating_sub(1);
        let mut seconds = 0.0;
        while let Some(parent) = shape.parent(rank) {
            let fanout = f64::from(self.sends(form, parent));
            let send = self.rates[parent as usize].send;
            seconds += fanout * send.map_or(0.0, |cost| cost.seconds);
            seconds += self.rates[rank as usize].hash.seconds;
            rank = parent;
        }
        // Data shorter than a block travels as one short block.
        let block = self
            .size
            .map_or(u64::from(BLOCK_LEN), |size| size.min(u64::from(BLOCK_LEN)));
        seconds * block as f64
    }
}

#[cfg(test)]
mod tests;
