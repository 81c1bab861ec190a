// SPDX-License-Identifier: MIT OR Apache-2.0
//! Finds the status pages of running processes in `/proc`.

use portolan_sys::status_page::{STATUS_LABEL, StatusReader};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Variables in which launchers give a process its rank.
const RANK_VARIABLES: [&str; 4] = [
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
];

/// Identifies a page: a process may have several. The number of the file distinguishes them, also
/// from those of an earlier process with the same id.
pub(super) type Key = (u32, u64);

/// A page of a running process.
#[derive(Debug)]
pub(super) struct Source {
    /// Name of the program.
    pub(super) program: String,
    /// Rank that the launcher gave the process, for endpoints, which have none of their own.
    pub(super) launcher_rank: Option<u32>,
    pub(super) reader: StatusReader,
}

/// Updates `sources` to the pages of the processes that run now. Those of processes that this user
/// may not inspect are left out.
pub(super) fn update(sources: &mut BTreeMap<Key, Source>) {
    let mut found = BTreeMap::new();
    let mut files = Vec::new();
    let mut pids: Vec<u32> = names("/proc")
        .filter_map(|name| name.parse().ok())
        .collect();
    // A forked child has the descriptors of its parent, which is older.
    pids.sort_unstable();
    for pid in pids {
        let fds = format!("/proc/{pid}/fd");
        for name in names(&fds) {
            let path = Path::new(&fds).join(name);
            if !is_page(&path) {
                continue;
            }
            let Ok(file) = fs::metadata(&path).map(|metadata| metadata.ino()) else {
                continue;
            };
            if files.contains(&file) {
                continue;
            }
            files.push(file);
            let key = (pid, file);
            let known = sources.remove(&key).or_else(|| open(pid, &path));
            found.extend(known.map(|source| (key, source)));
        }
    }
    *sources = found;
}

fn names(directory: &str) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

fn is_page(path: &Path) -> bool {
    let label = format!("/memfd:{STATUS_LABEL}");
    fs::read_link(path).is_ok_and(|target| target.to_string_lossy().starts_with(&label))
}

fn open(pid: u32, path: &Path) -> Option<Source> {
    let reader = StatusReader::open(path).ok()?;
    let program = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    Some(Source {
        program: program.trim_end().to_owned(),
        launcher_rank: launcher_rank(&String::from_utf8_lossy(&environment)),
        reader,
    })
}

/// Returns the rank in an environment, in which each variable ends with a zero byte.
fn launcher_rank(environment: &str) -> Option<u32> {
    let value = |name: &&str| {
        let variables = environment.split('\0');
        let mut values = variables.filter_map(|variable| variable.split_once('='));
        values.find(|(other, _)| other == name)?.1.parse().ok()
    };
    RANK_VARIABLES.iter().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_is_that_of_the_launcher() {
        assert_eq!(launcher_rank("A=1\0PMI_RANK=3\0B=2\0"), Some(3));
        assert_eq!(
            launcher_rank("OMPI_COMM_WORLD_RANK=7\0PMIX_RANK=8"),
            Some(7)
        );
        assert_eq!(launcher_rank("XPMI_RANK=3\0PMI_RANK=x"), None);
    }
}
