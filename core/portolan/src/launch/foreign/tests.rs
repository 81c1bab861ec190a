// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of joining through key-value spaces that the test plays.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};

/// Values that all ranks of a job share.
#[derive(Debug, Default)]
struct Shared {
    values: Mutex<BTreeMap<String, String>>,
    arrived: Mutex<usize>,
    moved: Condvar,
}

/// View of the shared values by one rank.
#[derive(Debug)]
struct Memory {
    shared: Arc<Shared>,
    rank: u32,
    size: u32,
    value_len_max: usize,
}

impl Space for Memory {
    fn launcher(&self) -> &'static str {
        "memory"
    }
    fn job_name(&self) -> String {
        "job".to_owned()
    }
    fn rank(&self) -> u32 {
        self.rank
    }
    fn size(&self) -> u32 {
        self.size
    }
    fn value_len_max(&self) -> usize {
        self.value_len_max
    }
    fn put(&mut self, key: &str, value: &str) -> Result<(), LaunchError> {
        assert!(value.len() <= self.value_len_max && !value.contains([' ', '\n', '=']));
        let before = self
            .shared
            .values
            .lock()
            .unwrap()
            .insert(key.to_owned(), value.to_owned());
        assert_eq!(before, None, "{key} was put twice");
        Ok(())
    }
    fn fence(&mut self) -> Result<(), LaunchError> {
        let size = self.size as usize;
        let mut arrived = self.shared.arrived.lock().unwrap();
        *arrived += 1;
        let goal = arrived.div_ceil(size) * size;
        self.shared.moved.notify_all();
        let missing = |arrived: &mut usize| *arrived < goal;
        let limit = Duration::from_secs(60);
        let waited = self
            .shared
            .moved
            .wait_timeout_while(arrived, limit, missing);
        // Another rank has failed, which is reported elsewhere. This one must not wait forever.
        assert!(!waited.unwrap().1.timed_out(), "a rank did not come");
        Ok(())
    }
    fn get(&mut self, _rank: u32, key: &str) -> Result<String, LaunchError> {
        let values = self.shared.values.lock().unwrap();
        let value = values.get(key).cloned();
        value.ok_or_else(|| refused(self, format!("no {key}")))
    }
    fn bye(&mut self) {}
    fn abort(&mut self, _status: i32, _reason: &str) {}
}

/// Joins as one rank for each of `hosts`, and exchanges addresses.
fn join(hosts: &[u64], value_len_max: usize) -> Vec<(Job, Vec<Value>)> {
    let shared = Arc::new(Shared::default());
    let size = u32::try_from(hosts.len()).unwrap();
    let ranks = (0..).zip(hosts.to_vec()).map(|(rank, netns)| {
        let space = Box::new(Memory {
            shared: Arc::clone(&shared),
            rank,
            size,
            value_len_max,
        });
        let boot_id = "boot".to_owned();
        std::thread::spawn(move || {
            let mut foreign = Foreign::over(space, HostId { boot_id, netns }).unwrap();
            let table = foreign.exchange(&address(rank)).unwrap();
            assert!(matches!(
                foreign.exchange(&address(rank)),
                Err(LaunchError::AlreadyExchanged)
            ));
            (foreign.job().clone(), table)
        })
    });
    let ranks: Vec<_> = ranks.collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

fn address(rank: u32) -> Value {
    serde_json::json!({ "of": rank, "words with spaces": "= ".repeat(500) })
}

#[test]
fn all_ranks_agree_on_the_job() {
    let ranks = join(&[7, 8, 7, 7], 100);
    let places: Vec<_> = ranks
        .iter()
        .map(|(job, _)| (job.rank, job.local_rank, job.local_size, job.host_count))
        .collect();
    assert_eq!(
        places,
        [(0, 0, 3, 2), (1, 0, 1, 2), (2, 1, 3, 2), (3, 2, 3, 2)]
    );
    let (first, _) = &ranks[0];
    for (job, table) in &ranks {
        assert_eq!((job.job_id, job.secret), (first.job_id, first.secret));
        assert_eq!(table[..], [0, 1, 2, 3].map(address));
    }
    assert_ne!(first.secret, [0; 32]);
}

#[test]
fn two_jobs_with_the_same_name_differ() {
    let [one, two] = [join(&[7], 1024), join(&[7], 1024)].map(|mut ranks| ranks.remove(0).0);
    assert_ne!(one.job_id, two.job_id);
    assert_ne!(one.secret, two.secret);
}

#[test]
fn malformed_records_are_rejected() {
    let mut space = Memory {
        shared: Arc::default(),
        rank: 0,
        size: 2,
        value_len_max: 1024,
    };
    let bad = ["", "x:00", "1:0", "1:zz", "9999999:00", "1:00", "2:7b"];
    for (index, value) in bad.into_iter().enumerate() {
        let what = format!("w{index}");
        let mut values = space.shared.values.lock().unwrap();
        values.insert(format!("portolan-{what}-1-0"), value.to_owned());
        drop(values);
        let error = blob::get::<Value>(&mut space, 1, &what).unwrap_err();
        assert!(matches!(error, LaunchError::Foreign { .. }), "{value:?}");
    }
    assert!(blob::get::<Value>(&mut space, 1, "nothing").is_err());
    space.value_len_max = 8;
    assert!(blob::put(&mut space, "short", &address(0)).is_err());
}

/// Runs a PMI-1 server that sends `answers` in turn, whatever the requests are.
fn scripted(answers: &[&str]) -> (Result<pmi::Pmi, LaunchError>, Vec<String>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let answers: Vec<String> = answers.iter().map(|&text| text.to_owned()).collect();
    let server = std::thread::spawn(move || {
        let mut asked = Vec::new();
        let mut lines = BufReader::new(ours.try_clone().unwrap()).lines();
        for answer in answers {
            let Some(Ok(line)) = lines.next() else { break };
            asked.push(line);
            writeln!(&ours, "{answer}").unwrap();
        }
        asked
    });
    let joined = pmi::Pmi::over(theirs, 0, 1);
    let joined = joined.and_then(|mut pmi| {
        pmi.fence()?;
        pmi.get(0, "k").map(|_| pmi)
    });
    (joined, server.join().unwrap())
}

const INIT: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0";
const MAXES: &str = "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024";
const NAME: &str = "cmd=my_kvsname kvsname=kvs_1";

#[test]
fn pmi_requests_follow_the_expected_order() {
    let get = "cmd=get_result rc=0 msg=success value=1:7b7d";
    let (joined, asked) = scripted(&[INIT, MAXES, NAME, "cmd=barrier_out", get]);
    let pmi = joined.unwrap();
    assert_eq!(
        (pmi.job_name(), pmi.value_len_max()),
        ("kvs_1".to_owned(), 1023)
    );
    assert_eq!(
        asked,
        [
            "cmd=init pmi_version=1 pmi_subversion=1",
            "cmd=get_maxes",
            "cmd=get_my_kvsname",
            "cmd=barrier_in",
            "cmd=get kvsname=kvs_1 key=k",
        ]
    );
}

#[test]
fn faulty_or_closed_pmi_server_is_an_error() {
    let refusal = "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1";
    let missing = "cmd=get_result rc=-1 msg=key_k_not_found value=unknown";
    let barrier = "cmd=barrier_out";
    for (answers, word) in [
        (&[refusal][..], "rc=-1"),
        (&["nonsense"], "got no command"),
        (&[INIT, MAXES, "cmd=my_kvsname"], "returned no name"),
        (&[INIT, MAXES, NAME], "closed the connection"),
        (&[INIT, MAXES, NAME, barrier, missing], "key_k_not_found"),
    ] {
        let error = scripted(answers).0.unwrap_err().to_string();
        assert!(error.contains(word), "{answers:?}: {error}");
    }
}
