// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores that each host of a lab owns. Processes of a host run on its cores only.
//!
//! Two hosts that exchange messages therefore never share a core by accident. The processes of one
//! host share its cores as the scheduler decides, and they yield.

use std::fmt;
use std::io;
use std::process::Command;
use std::str::FromStr;

/// Word for hosts without own cores.
const ALL: &str = "all";

/// Longest text for the cores of one host. The text is part of a namespace's mark, together with
/// the wire's properties; a mark is an alias of at most 255 bytes (`IFALIASZ` of
/// include/uapi/linux/if.h).
const TEXT_LEN_MAX: usize = 100;

/// Cores of one host; empty if the scheduler may use all cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cores(Vec<usize>);

impl Cores {
    pub(crate) fn new(cores: Vec<usize>) -> Cores {
        Cores(cores)
    }

    /// Returns the numbers of the cores; empty for all cores.
    pub(crate) fn numbers(&self) -> &[usize] {
        &self.0
    }

    /// Returns true if both hosts own a common core. For hosts without own cores the scheduler
    /// avoids conflicts.
    pub(crate) fn overlaps(&self, other: &Cores) -> bool {
        self.0.iter().any(|core| other.0.contains(core))
    }

    /// Makes `command` and its descendants run on these cores.
    pub(crate) fn bind(&self, command: &mut Command) {
        if !self.0.is_empty() {
            portolan_sys::inherit::run_on(command, &self.0);
        }
    }

    /// Makes the calling thread and its descendants run on these cores.
    ///
    /// # Errors
    /// The error of the system if this process may use none of them.
    pub(crate) fn bind_self(&self) -> io::Result<()> {
        match self.0.is_empty() {
            true => Ok(()),
            false => portolan_bench::run_on(&self.0),
        }
    }
}

/// Formats as `all`, or as numbers and ranges joined by `+`.
impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(ALL);
        }
        let mut rest = &self.0[..];
        while let Some(first) = rest.first() {
            let follows = |at: &usize| rest.get(*at).is_some_and(|core| *core == first + at);
            let len = (1..).take_while(follows).count() + 1;
            let plus = if rest.len() < self.0.len() { "+" } else { "" };
            match len {
                1 => write!(f, "{plus}{first}")?,
                _ => write!(f, "{plus}{first}-{}", first + len - 1)?,
            }
            rest = &rest[len..];
        }
        Ok(())
    }
}

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Cores, String> {
        if text == ALL {
            return Ok(Cores::default());
        }
        let mut cores = Vec::new();
        for part in text.split('+') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |text: &str| {
                let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                let number: Option<usize> = plain.then(|| text.parse().ok()).flatten();
                number.filter(|core| *core < portolan_sys::inherit::CORES_MAX)
            };
            match (number(first), number(last)) {
                (Some(first), Some(last)) if first <= last => cores.extend(first..=last),
                _ => {
                    return Err(format!(
                        "{part:?} is neither the number of a core nor a range of cores"
                    ));
                }
            }
        }
        cores.sort_unstable();
        cores.dedup();
        let cores = Cores(cores);
        if cores.to_string().len() > TEXT_LEN_MAX {
            return Err(format!(
                "the cores of a host are longer than {TEXT_LEN_MAX} characters"
            ));
        }
        Ok(cores)
    }
}

/// Cores for the hosts of a lab, in their order. They are reused from the start if there are more
/// hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CoreList(Vec<Cores>);

impl CoreList {
    /// Creates a list with one core for each host, of those that this process may use.
    pub(crate) fn one_each() -> CoreList {
        let usable = portolan_bench::usable_cores();
        CoreList(usable.into_iter().map(|core| Cores(vec![core])).collect())
    }

    /// Creates the shortest list that gives each host these cores.
    pub(super) fn of(hosts: impl Iterator<Item = Cores>) -> CoreList {
        let hosts: Vec<Cores> = hosts.collect();
        let repeats = |period: &usize| {
            hosts
                .iter()
                .zip(hosts.iter().skip(*period))
                .all(|(a, b)| a == b)
        };
        let period = (1..hosts.len()).find(repeats).unwrap_or(hosts.len());
        match &hosts[..] {
            [first, ..] if period == 1 && first.0.is_empty() => CoreList::all(),
            _ => CoreList(hosts[..period].to_vec()),
        }
    }

    /// Creates a list without own cores for any host.
    pub(crate) fn all() -> CoreList {
        CoreList(Vec::new())
    }

    pub(crate) fn of_host(&self, index: u32) -> Cores {
        match self.0.len() {
            0 => Cores::default(),
            count => self.0[index as usize % count].clone(),
        }
    }

    /// Returns a listed core that is not among `usable`.
    pub(super) fn first_unusable(&self, usable: &[usize]) -> Option<usize> {
        let mut named = self.0.iter().flat_map(|cores| &cores.0);
        named.find(|core| !usable.contains(core)).copied()
    }
}

impl fmt::Display for CoreList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(ALL);
        }
        for (index, cores) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{cores}")?;
        }
        Ok(())
    }
}

impl FromStr for CoreList {
    type Err = String;

    fn from_str(text: &str) -> Result<CoreList, String> {
        if text == ALL {
            return Ok(CoreList::all());
        }
        let hosts = text.split(',').map(str::parse).collect::<Result<_, _>>();
        hosts.map(CoreList).map_err(|why: String| {
            format!(
                "{why}; write one entry per host, as in 0,1,2-3,4+6: a core, a range, or several joined by \
                 + (the entries are reused for further hosts), or `{ALL}` to assign no cores"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_reused_for_more_hosts() {
        let list: CoreList = "0,1,2-3,6+4+5+9".parse().unwrap();
        let cores = |index| list.of_host(index).numbers().to_vec();
        assert_eq!([cores(0), cores(1)], [[0], [1]]);
        assert_eq!(cores(2), [2, 3]);
        assert_eq!(cores(3), [4, 5, 6, 9]);
        assert_eq!(cores(4), [0]);
        assert_eq!(list.to_string(), "0,1,2-3,4-6+9");
        assert_eq!(list.to_string().parse::<CoreList>().unwrap(), list);
        let mixed: CoreList = "all,1".parse().unwrap();
        assert_eq!(mixed.of_host(2), Cores::default());
        assert_eq!(mixed.to_string(), "all,1");
    }

    #[test]
    fn list_is_displayed_without_repetition() {
        let shown = |text: &str, host_count| {
            let list: CoreList = text.parse().unwrap();
            CoreList::of((0..host_count).map(|index| list.of_host(index))).to_string()
        };
        assert_eq!(shown("0,1", 8), "0,1");
        assert_eq!(shown("0,1", 3), "0,1");
        assert_eq!(shown("0,1,2", 2), "0,1");
        assert_eq!(shown("all", 4), "all");
        assert_eq!(shown("3", 1), "3");
    }

    #[test]
    fn all_has_no_core_numbers() {
        let list: CoreList = "all".parse().unwrap();
        assert_eq!(list, CoreList::all());
        assert!(list.of_host(5).numbers().is_empty());
        assert_eq!(list.to_string(), "all");
    }

    #[test]
    fn parse_error_contains_the_grammar() {
        for text in ["", "x", "1,", "3-1", "-1", "1-", "+1", "1+", "0 1", "99999"] {
            let error = text.parse::<CoreList>().unwrap_err();
            assert!(error.contains("0,1,2-3,4+6"), "{text}: {error}");
        }
        let long: Vec<String> = (0..60).map(|core| (core * 2).to_string()).collect();
        assert!(long.join("+").parse::<CoreList>().is_err());
    }

    #[test]
    fn cores_overlap_if_one_is_shared() {
        let cores = |text: &str| text.parse::<Cores>().unwrap();
        assert!(cores("0-2").overlaps(&cores("2")));
        assert!(!cores("0-2").overlaps(&cores("3")));
        assert!(!cores("all").overlaps(&cores("3")));
    }

    #[test]
    fn first_unusable_core_is_found() {
        let list: CoreList = "0,1+3".parse().unwrap();
        assert_eq!(list.first_unusable(&[0, 1]), Some(3));
        assert_eq!(list.first_unusable(&[0, 1, 3]), None);
        assert_eq!(CoreList::all().first_unusable(&[]), None);
    }
}
