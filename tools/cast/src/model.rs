// SPDX-License-Identifier: MIT OR Apache-2.0
//! How fast a cast can be, and by which shape: the smallest of what each resource has, divided by how
//! often a byte uses it. So the paper on speculative defragmentation (section 5.4) predicts its
//! distribution of disk images, after Rauch, Kurmann and Stricker.
//!
//! No clock and no system: rates come in, from [`crate::survey`] or assumed.

use crate::shape::{Form, Shape};
use crate::spec::BLOCK_LEN;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a byte takes of one kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Seconds that pass.
    pub seconds: f64,
    /// Seconds of a processor among them.
    pub cpu: f64,
}

impl Cost {
    /// Bytes a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        1.0 / self.seconds
    }

    /// Seconds that the device works and the processor does not.
    fn waiting(&self) -> f64 {
        (self.seconds - self.cpu).max(0.0)
    }
}

/// What was measured on one host. What is unknown bounds nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Which kernel it runs on: hosts that have it in common share processors and disks.
    pub machine: String,
    /// Processors of that machine, as far as others leave them.
    pub processors: f64,
    /// Which device the files are on, as that machine numbers it.
    pub disk: Option<u64>,
    /// Hashing.
    pub hash: Cost,
    /// Reading, at the source.
    pub read: Option<Cost>,
    /// Storing, at the others.
    pub write: Option<Cost>,
    /// Sending to one other.
    pub send: Option<Cost>,
    /// Receiving.
    pub receive: Option<Cost>,
}

impl Rates {
    /// A host of a gigabit Ethernet, for where nothing was measured: what the shape depends on is how
    /// long the way is beside how much there is, and little on these.
    #[must_use]
    pub fn assumed(rank: u32) -> Rates {
        // 1448 bytes of payload in 1538 on the wire (IEEE 802.3, TCP over IPv4 with time stamps).
        let link = Cost {
            seconds: 8e-9 * 1538.0 / 1448.0,
            cpu: 0.0,
        };
        Rates {
            machine: rank.to_string(),
            processors: 1.0,
            disk: None,
            // Of one slow core.
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

/// What a byte uses, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// One thread of the source reads and hashes.
    Reader,
    /// The thread of a host that hashes.
    Hashing(u32),
    /// The thread of a host that stores.
    Storing(u32),
    /// A host's way into the network; it sends to several one after the other.
    Out(u32),
    /// A host's way out of it.
    Into(u32),
    /// The thread of a host that has the network: what it receives and sends.
    NetworkThread(u32),
    /// A disk, by its first host.
    Disk(u32),
    /// All processors of a machine, by its first host.
    Processors(u32),
    /// What the user allows.
    Limit,
}

impl Resource {
    /// Its name, with those of hosts.
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

/// What a shape would bring.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// How the data goes.
    pub form: Form,
    /// Bytes a second.
    pub bytes_per_sec: f64,
    /// Until the last host has all, if it is known how much there is.
    pub seconds: Option<f64>,
    /// What bounds it.
    pub bound: Resource,
}

/// A cast whose rates are known.
#[derive(Clone, Debug)]
pub struct Model<'a> {
    /// By rank.
    pub rates: &'a [Rates],
    /// Bytes, if it is known.
    pub size: Option<u64>,
    /// Bytes a second that may leave the source.
    pub limit: Option<f64>,
    /// Multicast may be chosen.
    pub multicast: bool,
}

/// Shapes that are compared; the widest is one hop to everybody.
const DEGREES: [u32; 6] = [1, 2, 3, 4, 8, 16];

/// A chain is left for what takes less than this share of its time, and is faster by more than can be
/// noticed: it is the shape that the slowest link bounds the least.
const GAIN: f64 = 0.9;
const GAIN_SECONDS: f64 = 0.05;

impl Model<'_> {
    /// What each shape would bring, the chain first.
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

    /// The best of them. What is as long as it lasts is taken to last long.
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

    /// What this form would bring.
    #[must_use]
    pub fn predict(&self, form: Form) -> Prediction {
        let uses = self.uses(form);
        // Of several alike the first.
        let most = uses
            .into_iter()
            .reduce(|most, next| if next.1 > most.1 { next } else { most });
        // Every cast hashes.
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

    /// How often a host sends each byte.
    fn sends(&self, form: Form, rank: u32) -> u32 {
        let others = self.shape(form).children(rank).count();
        let others = u32::try_from(others).unwrap_or(u32::MAX);
        match form {
            Form::Tree(_) => others,
            Form::Multicast => others.min(1),
        }
    }

    /// Seconds that a byte takes of each resource: uses divided by capacity.
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

    /// Until the first block has come to the host that is farthest: each passes it on when it has it
    /// whole and hashed, to the last of its others last.
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
        // What is shorter than a block goes as it is.
        let block = self
            .size
            .map_or(u64::from(BLOCK_LEN), |size| size.min(u64::from(BLOCK_LEN)));
        seconds * block as f64
    }
}

#[cfg(test)]
mod tests;
