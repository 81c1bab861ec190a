// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the client with an agent that the test plays.

use super::super::PathChoice;
use super::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};

fn welcome() -> Welcome {
    let mut job = Job::alone([7; 16], [9; 32]);
    (job.rank, job.size, job.host_count) = (1, 2, 2);
    job.path = PathChoice::Udp;
    job.options = BTreeMap::from([("linger".to_owned(), "5".to_owned())]);
    Welcome {
        version: VERSION,
        job,
    }
}

fn send(mut agent: &UnixStream, message: &ToProcess) {
    agent
        .write_all(format!("{}\n", serde_json::to_string(message).unwrap()).as_bytes())
        .unwrap();
}

fn read(agent: &UnixStream) -> Value {
    let mut line = String::new();
    BufReader::new(agent).read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

fn gone(rank: u32) -> EndedRank {
    EndedRank {
        rank,
        host: "lab-h0".into(),
        cause: "exit status 3".into(),
        is_success: false,
    }
}

fn joined() -> (UnixStream, Agent) {
    let (agent, process) = UnixStream::pair().unwrap();
    send(&agent, &ToProcess::Welcome(welcome()));
    let launch = Agent::from_stream(process).unwrap();
    (agent, launch)
}

#[test]
fn welcome_becomes_the_job() {
    let (_agent, launch) = joined();
    let job = launch.job();
    assert_eq!(
        (job.rank, job.size, job.local_rank, job.local_size),
        (1, 2, 0, 1)
    );
    assert_eq!(
        (job.job_id, job.secret, job.path),
        ([7; 16], [9; 32], PathChoice::Udp)
    );
    assert_eq!(job.options["linger"], "5");
    assert!(!format!("{launch:?}").contains("secret"));
}

#[test]
fn exchange_sends_the_address_and_waits_for_the_table() {
    let (agent, mut launch) = joined();
    let table = vec![json!({"at": 0}), json!({"at": 1})];
    let reply = ToProcess::Table {
        addresses: table.clone(),
    };
    let agent_side = std::thread::spawn(move || {
        let address = read(&agent);
        send(&agent, &reply);
        (agent, address)
    });
    assert_eq!(launch.exchange(&json!({"at": 1})).unwrap(), table);
    let (_agent, address) = agent_side.join().unwrap();
    assert_eq!(address, json!({"type": "address", "address": {"at": 1}}));
    assert!(matches!(
        launch.exchange(&json!(1)),
        Err(LaunchError::AlreadyExchanged)
    ));
}

#[test]
fn rank_death_before_table_ends_exchange() {
    let (agent, mut launch) = joined();
    send(&agent, &ToProcess::Gone(gone(0)));
    let error = launch.exchange(&json!(1)).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("rank 0 on lab-h0 failed: exit status 3"),
        "{error}"
    );
}

#[test]
fn table_of_wrong_size_is_refused() {
    let (agent, mut launch) = joined();
    send(
        &agent,
        &ToProcess::Table {
            addresses: vec![json!(1)],
        },
    );
    assert!(matches!(
        launch.exchange(&json!(1)),
        Err(LaunchError::Malformed(_))
    ));
}

#[test]
fn poll_reports_each_ended_rank_once_without_waiting() {
    let (agent, mut launch) = joined();
    assert_eq!(launch.poll(), None);
    send(&agent, &ToProcess::Gone(gone(0)));
    send(&agent, &ToProcess::Gone(gone(1)));
    assert_eq!(launch.poll(), Some(gone(0)));
    assert_eq!(launch.poll(), Some(gone(1)));
    assert_eq!(launch.poll(), None);
}

#[test]
fn rank_ended_before_the_table_is_reported() {
    let (agent, mut launch) = joined();
    let addresses = vec![json!(0), json!(1)];
    send(&agent, &ToProcess::Table { addresses });
    send(&agent, &ToProcess::Gone(gone(0)));
    launch.exchange(&json!(1)).unwrap();
    assert_eq!(launch.poll(), Some(gone(0)));
    assert_eq!(launch.poll(), None);
}

#[test]
fn descriptor_disappears_when_the_agent_hangs_up() {
    let (agent, mut launch) = joined();
    assert!(launch.fd() >= 0);
    send(&agent, &ToProcess::Gone(gone(0)));
    drop(agent);
    assert_eq!(
        launch.poll(),
        Some(gone(0)),
        "what was said before is still heard"
    );
    assert_eq!(launch.poll(), None);
    assert_eq!(launch.fd(), -1);
    launch.bye();
}

#[test]
fn bye_and_abort_arrive_after_polling() {
    let (agent, mut launch) = joined();
    assert_eq!(launch.poll(), None);
    launch.abort(4, "no input");
    assert_eq!(
        read(&agent),
        json!({"type": "abort", "status": 4, "reason": "no input"})
    );
    launch.bye();
    assert_eq!(read(&agent), json!({"type": "bye"}));
}

#[test]
fn version_mismatch_and_early_end_are_reported() {
    let (agent, process) = UnixStream::pair().unwrap();
    send(
        &agent,
        &ToProcess::Welcome(Welcome {
            version: VERSION + 1,
            ..welcome()
        }),
    );
    let error = Agent::from_stream(process).unwrap_err();
    assert!(
        matches!(error, LaunchError::Version { ours: VERSION, .. }),
        "{error}"
    );

    let (agent, process) = UnixStream::pair().unwrap();
    drop(agent);
    assert!(matches!(
        Agent::from_stream(process),
        Err(LaunchError::Closed)
    ));
}
