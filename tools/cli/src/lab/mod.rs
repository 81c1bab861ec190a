// SPDX-License-Identifier: MIT OR Apache-2.0
//! Labs: hosts on one machine, made of network namespaces.
//!
//! A lab NAME consists of the namespaces NAME-h0, NAME-h1 … with one interface `eth0` each,
//! 10.77.0.1 upwards. Two hosts are joined by a veth pair, other numbers by a bridge in NAME-sw.
//! Everything is created inside these namespaces; the machine's own network is never changed.
//!
//! Invariant: only namespaces that carry this program's mark (the alias of their `lo`) are listed,
//! entered or removed.

mod capture;
pub(crate) mod command;
pub(crate) mod cores;
pub(crate) mod host;
mod ip;
mod line;
pub(crate) mod link;
mod plan;
mod shape;
mod temporary;

use crate::error::{UserError, user_error};
use anyhow::Result;
use cores::{CoreList, Cores};
use link::{DelayBy, Link};
pub(crate) use plan::HOSTS_MAX;
use std::collections::{BTreeMap, BTreeSet};
pub(crate) use temporary::TemporaryLab;

/// A lab that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lab {
    /// Its name, the first part of its namespaces' names.
    pub(crate) name: String,
    pub(crate) host_count: u32,
    /// MTU of its interfaces.
    pub(crate) mtu: u32,
    /// Cores of each existing host, by its index.
    cores: BTreeMap<u32, Cores>,
    /// Properties of its wires.
    pub(crate) link: Link,
}

/// A lab to create.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Name of the lab.
    pub(crate) name: String,
    /// Number of hosts, at least 1.
    pub(crate) host_count: u32,
    /// MTU of the interfaces in bytes.
    pub(crate) mtu: u32,
    /// The cores of the hosts.
    pub(crate) cores: CoreList,
    /// Properties of the wires.
    pub(crate) link: Link,
}

/// A lab to create, without its name.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) host_count: u32,
    /// MTU of the interfaces in bytes.
    pub(crate) mtu: u32,
    /// The cores of the hosts.
    pub(crate) cores: CoreList,
    /// Properties of the wires.
    pub(crate) link: Link,
}

impl Kind {
    /// Returns a lab with one core for each host, joined by bare veth.
    pub(crate) fn plain(host_count: u32, mtu: u32) -> Kind {
        Kind {
            host_count,
            mtu,
            cores: CoreList::one_each(),
            link: Link::default(),
        }
    }

    /// Sets the cores and wires given to `--cores` and `--link`, if any.
    ///
    /// # Errors
    /// An error message for the user that names the option.
    pub(crate) fn with(mut self, cores: Option<&str>, link: Option<&str>) -> Result<Kind> {
        if let Some(list) = cores {
            let parsed = list.parse();
            self.cores = parsed.map_err(|why| UserError::new(format!("--cores {list}: {why}")))?;
        }
        if let Some(link) = link {
            self.link = link.parse().map_err(UserError::new)?;
        }
        Ok(self)
    }

    fn named(self, name: String) -> Options {
        Options {
            name,
            host_count: self.host_count,
            mtu: self.mtu,
            cores: self.cores,
            link: self.link,
        }
    }
}

impl Lab {
    /// Creates a lab that stays until it is removed. If creation fails half-way, nothing is left.
    ///
    /// # Errors
    /// An error message for the user: bad name or numbers, lab already up, no privilege, `ip`
    /// missing.
    pub(crate) fn up(options: &Options) -> Result<Lab> {
        plan::check(options)?;
        ip::check_privilege()?;
        refuse_existing(options)?;
        let options = &shape::settle(options)?;
        let mut undo = Undo::default();
        for namespace in plan::namespaces(options) {
            ip::run(&["netns", "add", &namespace])?;
            undo.made.push(namespace.clone());
            ip::batch(&namespace, &plan::mark_commands(options, &namespace))?;
        }
        for (namespace, commands) in plan::network_commands(options) {
            ip::batch(&namespace, &commands)?;
        }
        shape::make(options)?;
        if options.link.delay_by == Some(DelayBy::Line) {
            line::start(options)?;
        }
        undo.made.clear();
        Ok(Lab::of(options))
    }

    /// Returns the lab that was created with `options`.
    fn of(options: &Options) -> Lab {
        let cores = (0..options.host_count).map(|index| (index, options.cores.of_host(index)));
        Lab {
            name: options.name.clone(),
            host_count: options.host_count,
            mtu: options.mtu,
            cores: cores.collect(),
            link: options.link,
        }
    }

    /// Finds a usable lab by its name.
    ///
    /// # Errors
    /// An error message for the user if there is none, or if its line process has ended.
    pub(crate) fn find(name: &str) -> Result<Lab> {
        let lab = Lab::find_any(name)?;
        if lab.link.delay_by == Some(DelayBy::Line) && line::find(name)?.is_none() {
            user_error!(
                "the cables of lab {name} are dead: its line process, which delayed frames by {}, \
                 has ended (was it killed?); create the lab again: `portolan lab down --name {name}`, then \
                 `portolan lab up`",
                link::time(lab.link.delay)
            );
        }
        Ok(lab)
    }

    /// Finds a lab by its name.
    ///
    /// # Errors
    /// An error message for the user if there is none.
    fn find_any(name: &str) -> Result<Lab> {
        if let Some(lab) = marked(|lab| lab == name)?.remove(name) {
            return Ok(lab);
        }
        user_error!(
            "there is no lab {name}: `portolan lab list` shows the existing labs, \
             `portolan lab up --name {name} --hosts 2` creates it"
        )
    }

    /// Returns the labs that are up.
    pub(crate) fn list() -> Result<Vec<Lab>> {
        Ok(marked(|_| true)?.into_values().collect())
    }

    /// Removes the lab. Returns the ids of processes that still run in it, without a network.
    pub(crate) fn down(&self) -> Result<Vec<u32>> {
        ip::check_privilege()?;
        remove(&self.name)
    }

    /// Returns the name of the namespace of host `index`, for messages and for `ip netns exec`.
    pub(crate) fn namespace(&self, index: u32) -> String {
        plan::host_namespace(&self.name, index)
    }

    /// Returns the cores that host `index` owns.
    pub(crate) fn cores(&self, index: u32) -> Cores {
        self.cores.get(&index).cloned().unwrap_or_default()
    }

    /// Returns the number of cores that the hosts have together. If a host owns none, that is the
    /// number of all cores that this process may use.
    pub(crate) fn core_count(&self) -> usize {
        let hosts: Vec<Cores> = (0..self.host_count)
            .map(|index| self.cores(index))
            .collect();
        if hosts.iter().any(|cores| cores.numbers().is_empty()) {
            return portolan_bench::usable_cores().len();
        }
        let all: BTreeSet<&usize> = hosts.iter().flat_map(Cores::numbers).collect();
        all.len()
    }

    /// Returns the cores of all hosts, in the form of `--cores`.
    fn core_list(&self) -> CoreList {
        CoreList::of((0..self.host_count).map(|index| self.cores(index)))
    }

    /// Returns the index of a host named `h1`, `1` or `NAME-h1`.
    ///
    /// # Errors
    /// An error message for the user if the lab has no such host.
    pub(crate) fn host_index(&self, text: &str) -> Result<u32> {
        let text = text
            .strip_prefix(&format!("{}-", self.name))
            .unwrap_or(text);
        match text.strip_prefix('h').unwrap_or(text).parse() {
            Ok(index) if index < self.host_count => Ok(index),
            _ => user_error!(
                "lab {} has no host {text}: its hosts are h0 to h{}",
                self.name,
                self.host_count - 1
            ),
        }
    }
}

/// Removes the namespaces created so far, on drop.
#[derive(Default)]
struct Undo {
    made: Vec<String>,
}

impl Drop for Undo {
    fn drop(&mut self) {
        for namespace in &self.made {
            if let Err(error) = ip::run(&["netns", "delete", namespace]) {
                eprintln!("portolan: the incomplete lab could not be removed: {error:#}");
            }
        }
    }
}

/// Returns the labs that are up and have names that `is_selected` accepts.
fn marked(is_selected: impl Fn(&str) -> bool) -> Result<BTreeMap<String, Lab>> {
    let namespaces = ip::namespaces();
    let hosts = namespaces.iter().filter_map(|namespace| {
        let (name, index) = plan::host_of(namespace)?;
        is_selected(name).then_some((name, index, namespace.as_str()))
    });
    let hosts: Vec<(&str, u32, &str)> = hosts.collect();
    if !hosts.is_empty() {
        ip::check_privilege()?;
    }
    let mut labs = BTreeMap::new();
    let names: Vec<&str> = hosts.iter().map(|(.., namespace)| *namespace).collect();
    for ((name, index, _), mark) in hosts.iter().zip(ip::marks(&names)?) {
        let Some(mark) = mark.as_deref().and_then(plan::parse_mark) else {
            continue;
        };
        let lab = labs.entry((*name).to_owned()).or_insert_with(|| Lab {
            name: (*name).to_owned(),
            host_count: mark.host_count,
            mtu: mark.mtu,
            cores: BTreeMap::new(),
            link: mark.link,
        });
        lab.cores.insert(*index, mark.cores);
    }
    Ok(labs)
}

fn refuse_existing(options: &Options) -> Result<()> {
    let present = ip::namespaces();
    for namespace in plan::namespaces(options) {
        if !present.contains(&namespace) {
            continue;
        }
        if ip::mark(&namespace)?
            .as_deref()
            .and_then(plan::parse_mark)
            .is_none()
        {
            user_error!(
                "the network namespace {namespace} exists and is not part of a portolan lab: \
                 choose another --name, or remove it with `ip netns delete {namespace}`"
            );
        }
        let name = &options.name;
        user_error!(
            "lab {name} is up already: `portolan lab down --name {name}` removes it, \
             or choose another --name"
        );
    }
    Ok(())
}

/// Removes every marked namespace of the lab `name`; returns the ids of processes still in them.
fn remove(name: &str) -> Result<Vec<u32>> {
    let mut lingering = Vec::new();
    for namespace in ip::namespaces() {
        let ours = plan::host_of(&namespace).is_some_and(|(lab, _)| lab == name)
            || namespace == plan::switch_namespace(name);
        if !ours
            || ip::mark(&namespace)?
                .as_deref()
                .and_then(plan::parse_mark)
                .is_none()
        {
            continue;
        }
        if namespace == plan::switch_namespace(name) {
            line::end(name)?;
        }
        let pids = ip::pids(&namespace)?;
        if !pids.is_empty() {
            // The namespace lives as long as these processes. Without its interface the network is
            // down now.
            ip::delete_links(&namespace)?;
        }
        lingering.extend(pids);
        ip::run(&["netns", "delete", &namespace])?;
    }
    Ok(lingering)
}
