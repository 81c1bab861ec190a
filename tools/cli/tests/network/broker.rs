// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan broker` between the two hosts of a lab. A hostile user's process can neither
//! send nor receive, an ordinary one runs jobs over raw Ethernet, and a broker that dies does not
//! affect jobs.

mod xdp;

use crate::common::labs::unique_name;
use crate::common::ranks::{joined, role, unique_word};
use crate::common::{
    Ended, KillOnDrop, can_make_labs, copy_program, kill, portolan, run, wait_until,
};
use portolan_sys::net::{self, MacAddr};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

ranks_of_this_module!(ranks_command);

const PORT: u16 = 1;

/// A user without privileges that owns nothing else here.
const UID: &str = "65533";

/// Round trips of a job.
const ROUNDS: u32 = 200;

const HOSTILE: &str = include_str!("broker/hostile.py");

/// EtherType that selects all frames (ETH_P_ALL of linux/if_ether.h).
const ALL: u16 = 3;

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    let Some(mut node) = joined(&[PORT]) else {
        return;
    };
    let peer = 1 - node.rank();
    let waits = role().as_deref() == Some("wait in the middle");
    let mut buffer = [0; 64];
    for round in 0..ROUNDS {
        if waits && round == ROUNDS / 2 {
            println!("\nmiddle");
            // The test removes the file when it has seen both ranks and finished its work.
            let flag = std::env::var("BROKER_TEST_FLAG").unwrap();
            wait_until("the test's word", || !Path::new(&flag).exists());
        }
        if node.rank() == 0 {
            node.send(portolan::Target::new(peer, PORT), &round.to_le_bytes())
                .unwrap();
            let _ = node.recv_from(peer, PORT, &mut buffer).unwrap();
        } else {
            let got = node.recv_from(peer, PORT, &mut buffer).unwrap();
            node.send(portolan::Target::new(peer, PORT), &buffer[..got.len])
                .unwrap();
        }
        assert_eq!(buffer[..4], round.to_le_bytes());
    }
    for path in node.paths(peer) {
        println!("\npath={path}");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find(|line| line.starts_with("CapEff"));
    println!("\n{}", effective.unwrap());
}

/// Two hosts, and a broker on each of them on request.
struct Lab {
    name: String,
    directory: tempfile::TempDir,
}

impl Lab {
    /// Creates the hosts; prints SKIPPED and returns `None` where that is not possible.
    fn up(test: &str) -> Option<Lab> {
        if !can_make_labs() {
            return None;
        }
        let name = unique_name(test);
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let lab = Lab { name, directory };
        let ended = run(&["lab", "up", "--name", &lab.name, "--hosts", "2"]);
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        Some(lab)
    }

    fn host(&self, host: usize) -> String {
        format!("{}-h{host}", self.name)
    }

    /// Starts a broker for all users at a path.
    fn broker_listening(&self, host: usize, socket: &str) -> Option<Broker> {
        let text = format!("socket = '{socket}'\n[[nic]]\ninterface = 'eth0'\ngroups = ['*']\n");
        self.start(host, &text)
    }

    /// Starts a broker for all users; see [`Lab::broker_for`].
    fn broker(&self, host: usize, lines: &str) -> Option<Broker> {
        self.broker_for(host, "*", lines)
    }

    /// Starts a broker for a group.
    fn broker_for(&self, host: usize, group: &str, lines: &str) -> Option<Broker> {
        self.broker_at(host, "eth0", group, lines)
    }

    /// Starts a broker for a group at an interface other than the lab's.
    fn broker_at(&self, host: usize, nic: &str, group: &str, lines: &str) -> Option<Broker> {
        let nic = format!("[[nic]]\ninterface = '{nic}'\ngroups = ['{group}']\n");
        self.start(
            host,
            &format!("socket = '@portolan-broker'\n{lines}\n{nic}"),
        )
    }

    /// Starts a broker on a host; prints SKIPPED and returns `None` where the kernel lacks a
    /// feature.
    fn start(&self, host: usize, text: &str) -> Option<Broker> {
        let config = self.directory.path().join("broker.toml");
        fs::write(&config, text).unwrap();
        let command = portolan(&[
            "broker",
            "--foreground",
            "--config",
            config.to_str().unwrap(),
        ]);
        let mut child = self
            .inside(host, &command)
            .env("RUST_LOG", "portolan_broker=info")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut said = Vec::new();
        let broker = Broker(KillOnDrop(child));
        let mut lines = lines.map(Result::unwrap);
        let mac = loop {
            let Some(line) = lines.next() else {
                let why = said.join("\n");
                assert!(why.contains("it needs Linux"), "{why}");
                eprintln!("SKIPPED: {why}");
                return None;
            };
            if let Some((_, rest)) = line.split_once("is served from ") {
                break rest.split(',').next().unwrap().to_owned();
            }
            said.push(line);
        };
        let ready = lines.next().unwrap();
        assert!(ready.contains("serving at"), "{ready}");
        // Drain later output, which otherwise could fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        println!("broker on host {host} serves from {mac}");
        Some(broker)
    }

    /// Returns `command` run on a host.
    fn inside(&self, host: usize, command: &Command) -> Command {
        let mut inside = Command::new("ip");
        inside.args(["netns", "exec", &self.host(host)]);
        inside.arg(command.get_program()).args(command.get_args());
        inside.stdin(Stdio::null());
        inside
    }

    /// Returns a copy of this program, because an unprivileged user may not enter the build
    /// directory.
    fn program(&self) -> PathBuf {
        let copy = self.directory.path().join("program");
        if !copy.exists() {
            copy_program(&std::env::current_exe().unwrap(), &copy);
        }
        copy
    }

    /// Returns a job of the unprivileged user with two ranks, one on each host.
    fn job(&self, role: &str, args: &[&str]) -> Command {
        self.job_of(UID, role, args)
    }

    /// Returns the same job with a group in addition to the user's own.
    fn job_of(&self, group: &str, role: &str, args: &[&str]) -> Command {
        let args = [&["--option", "broker=@portolan-broker"], args].concat();
        // The launcher runs as root, which labs need; the ranks do not.
        let drop = ["setpriv", "--reuid", UID, "--regid", UID, "--groups", group];
        self.job_by(&drop, self.program().to_str().unwrap(), role, &args)
    }

    /// Returns the same job with the given words in front of each rank's program.
    fn job_by(&self, words: &[&str], program: &str, role: &str, args: &[&str]) -> Command {
        let args = [&["--lab", &self.name, "--path", "packet"], args].concat();
        let whole = ranks_command(2, role, &args, &unique_word());
        let mut job = Command::new(whole.get_program());
        let mut args = whole.get_args();
        job.args(args.by_ref().take_while(|arg| *arg != "--"));
        job.arg("--").args(words).arg(program);
        job.args(args.skip(1));
        job.stdin(Stdio::null())
            .env("XDG_CONFIG_HOME", "/nonexistent");
        job.stdout(Stdio::piped()).stderr(Stdio::piped());
        job
    }
}

type Lines = std::io::Lines<BufReader<ChildStdout>>;

impl Lab {
    /// Starts a job and waits until both ranks are in their middle. Returns the job, its further
    /// output, and the file that holds the ranks there.
    fn job_in_its_middle(&self) -> (KillOnDrop, Lines, PathBuf) {
        let flag = self.directory.path().join("flag");
        fs::write(&flag, "").unwrap();
        let variable = format!("BROKER_TEST_FLAG={}", flag.display());
        let mut job = self.job("wait in the middle", &["--env", &variable]);
        let mut job = KillOnDrop(job.spawn().unwrap());
        let mut lines = BufReader::new(job.0.stdout.take().unwrap()).lines();
        let mut middles = 0;
        while middles < 2 {
            let line = lines.next().expect("both ranks get to the middle").unwrap();
            middles += u32::from(line.contains("middle"));
        }
        (job, lines, flag)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = portolan(&["lab", "down", "--name", &self.name]).output();
    }
}

struct Broker(KillOnDrop);

impl Broker {
    fn child(&mut self) -> &mut Child {
        &mut self.0.0
    }

    /// Stops the broker as systemd does.
    fn stop(mut self) {
        kill(i32::try_from(self.child().id()).unwrap(), "-TERM");
        assert!(self.child().wait().unwrap().success());
    }

    fn memory_kib(&mut self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child().id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse().unwrap()
    }
}

/// Captures the frames on a host's eth0 while `work` runs, which gets the interface's address.
fn watched<T>(lab: &Lab, host: usize, work: impl FnOnce(MacAddr) -> T) -> (Vec<Vec<u8>>, T) {
    let netns = Path::new("/run/netns").join(lab.host(host));
    watched_at(&netns, "eth0", work)
}

/// Runs `watched` at an interface of any namespace.
fn watched_at<T>(
    netns: &Path,
    interface: &str,
    work: impl FnOnce(MacAddr) -> T,
) -> (Vec<Vec<u8>>, T) {
    let stop = AtomicBool::new(false);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            net::enter_netns(netns).unwrap();
            let all = net::interfaces().unwrap();
            let found = all.into_iter().find(|found| found.name == interface);
            let found = found.unwrap();
            let socket = net::packet_socket().unwrap();
            net::bind_packet(socket.as_fd(), found.index, ALL).unwrap();
            tell.send(found.mac.unwrap()).unwrap();
            let (mut frames, mut buffer) = (Vec::new(), vec![0; 2048]);
            loop {
                // Read the flag first, so that all earlier frames are received.
                let last = stop.load(Ordering::Acquire);
                while let Some(len) = net::recv(socket.as_fd(), &mut buffer).unwrap() {
                    frames.push(buffer[..len.min(2048)].to_vec());
                }
                if last {
                    return frames;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        });
        // Stop and join the watcher also if `work` panics.
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| work(told.recv().unwrap())));
        stop.store(true, Ordering::Release);
        let result = result.unwrap_or_else(|failure| resume_unwind(failure));
        (watcher.join().unwrap(), result)
    })
}

fn holds(frame: &[u8], word: &[u8]) -> bool {
    frame.windows(word.len()).any(|window| window == word)
}

#[test]
fn hostile_process_can_neither_send_nor_receive() {
    let Some(lab) = Lab::up("hostile") else {
        return;
    };
    if Command::new("python3").arg("-V").output().is_err() {
        return eprintln!("SKIPPED: the hostile process needs python3");
    }
    let Some(mut broker) = lab.broker(0, "[quota]\nsockets = 16\nring_memory = 8388608") else {
        return;
    };
    let script = lab.directory.path().join("hostile.py");
    fs::write(&script, HOSTILE).unwrap();
    let (frames, ended) = watched(&lab, 1, |mac| {
        let mut python = Command::new("python3");
        python
            .arg(&script)
            .args(["@portolan-broker", &mac.to_string(), UID]);
        Ended::from(lab.inside(0, &python).output().unwrap())
    });
    println!("{}", ended.out);
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    assert!(!ended.out.contains("FAIL"), "{}", ended.out);
    assert!(ended.out.ends_with("done\n"));
    assert!(
        frames.iter().any(|frame| holds(frame, b"HONEST")),
        "the watcher sees what leaves"
    );
    let forged = frames.iter().find(|frame| holds(frame, b"FORGED"));
    assert_eq!(forged, None);
    // A debug build takes 15 MiB, and many connections as much again.
    let memory = broker.memory_kib();
    assert!(memory < 64 << 10, "{memory} KiB");
    broker.stop();
}

#[test]
fn a_user_without_privilege_runs_jobs_over_raw_ethernet() {
    let Some(lab) = Lab::up("job") else { return };
    let Some(first) = lab.broker(0, "") else {
        return;
    };
    let second = lab.broker(1, "").unwrap();
    let told = Ended::from(lab.job("talk", &[]).output().unwrap()).succeeded("the job");
    assert_eq!(
        told.matches("path=packet: up, by the broker").count(),
        2,
        "{told}"
    );
    assert_eq!(
        told.matches("CapEff:\t0000000000000000").count(),
        2,
        "{told}"
    );
    let refused = Ended::from(
        lab.job("talk", &["--option", "broker=off"])
            .output()
            .unwrap(),
    );
    assert_ne!(refused.status, 0);
    assert!(refused.err.contains("CAP_NET_RAW"), "{}", refused.err);
    second.stop();
    let refused = Ended::from(lab.job("talk", &[]).output().unwrap());
    assert!(refused.err.contains("no reply"), "{}", refused.err);
    first.stop();
}

#[test]
fn a_job_outlives_its_brokers_and_new_jobs_find_new_ones() {
    let Some(lab) = Lab::up("outlive") else {
        return;
    };
    let Some(first) = lab.broker(0, "") else {
        return;
    };
    let second = lab.broker(1, "").unwrap();
    let (mut job, lines, flag) = lab.job_in_its_middle();
    // Dropping the brokers kills them instead of stopping them.
    drop((first, second));
    let _first = lab.broker(0, "").unwrap();
    let _second = lab.broker(1, "").unwrap();
    Ended::from(lab.job("talk", &[]).output().unwrap()).succeeded("a new job");
    fs::remove_file(&flag).unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(job.0.wait().unwrap().success(), "{rest:?}");
    let paths = rest.iter().filter(|line| line.contains("packet: up"));
    assert_eq!(paths.count(), 2, "{rest:?}");
}

/// The kernel determines group membership: the allowed group is root's, and the user is not in it.
#[test]
fn a_group_that_is_not_named_gets_nothing() {
    let Some(lab) = Lab::up("group") else { return };
    let Some(_first) = lab.broker_for(0, "root", "") else {
        return;
    };
    let _second = lab.broker_for(1, "root", "").unwrap();
    let refused = Ended::from(lab.job("talk", &[]).output().unwrap());
    assert_ne!(refused.status, 0);
    assert!(
        refused.err.contains("no group of this user"),
        "{}",
        refused.err
    );
    let told = Ended::from(lab.job_of("0", "talk", &[]).output().unwrap());
    let told = told.succeeded("the job of a user who is in the group");
    assert!(told.contains("by the broker"), "{told}");
}

#[test]
fn job_continues_by_udp_when_its_brokers_stop() {
    let Some(lab) = Lab::up("udp") else { return };
    let Some(first) = lab.broker(0, "") else {
        return;
    };
    let second = lab.broker(1, "").unwrap();
    let (mut job, lines, flag) = lab.job_in_its_middle();
    first.stop();
    second.stop();
    fs::remove_file(&flag).unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(job.0.wait().unwrap().success(), "{rest:?}");
    let count = |word: &str| rest.iter().filter(|line| line.contains(word)).count();
    let (packet, udp) = (count("path=packet: up"), count("path=udp: up"));
    assert_eq!((packet, udp), (0, 2), "{rest:?}");
}

/// Adds another interface to a lab's host with `words` of `ip link add`. Prints SKIPPED and returns
/// `None` where the kernel does not support it.
fn with_interface(lab: &Lab, host: usize, words: &str, address: &str) -> Option<()> {
    let ip = |line: &str| {
        let mut ip = Command::new("ip");
        ip.args(["-n", &lab.host(host)]).args(line.split(' '));
        Ended::from(ip.output().unwrap())
    };
    let made = ip(&format!("link add {words}"));
    if made.status != 0 {
        eprintln!("SKIPPED: `ip link add {words}`: {}", made.err.trim());
        return None;
    }
    if words.contains("type bond") || words.contains("type bridge") {
        for line in [
            "link set eth0 down",
            "link set eth0 master other",
            "link set eth0 up",
        ] {
            ip(line).succeeded(line);
        }
    }
    for line in [
        &format!("address add {address} dev other"),
        "link set other up",
    ] {
        ip(line).succeeded(line);
    }
    Some(())
}

/// Runs a job over an interface on top of a NIC.
fn served(test: &str, words: &str) {
    let Some(lab) = Lab::up(test) else { return };
    let hosts = [(0, "10.79.0.1/24"), (1, "10.79.0.2/24")];
    for (host, address) in hosts {
        if with_interface(&lab, host, words, address).is_none() {
            return;
        }
    }
    // The kernel handles a change of carrier up to a second later; until then nothing is forwarded.
    for (host, _) in hosts {
        wait_until("the interfaces to be up", || {
            ["eth0", "other"].into_iter().all(|name| {
                let mut ip = Command::new("ip");
                ip.args(["-n", &lab.host(host), "link", "show", name]);
                Ended::from(ip.output().unwrap()).out.contains("state UP")
            })
        });
    }
    let Some(_first) = lab.broker_at(0, "other", "*", "") else {
        return;
    };
    let _second = lab.broker_at(1, "other", "*", "").unwrap();
    let told = Ended::from(
        lab.job("talk", &["--option", "interface=other"])
            .output()
            .unwrap(),
    );
    let told = told.succeeded("the job");
    let count = told.matches("path=packet: up, by the broker").count();
    assert_eq!(count, 2, "{told}");
}

#[test]
fn a_vlan_is_served() {
    served("vlan", "link eth0 name other type vlan id 5");
}

#[test]
fn a_bond_is_served() {
    served("bond", "other type bond mode active-backup");
}

#[test]
fn a_bridge_is_served() {
    served("bridge", "other type bridge");
}

/// Runs a rank in a container with its own root directory, mount and process namespaces, and only
/// the broker's socket from outside.
const CONTAINER: &str = r#"
set -e
root=$1-root socket=$1.sock program=$2
shift 2
mkdir "$root"
mount -t tmpfs none "$root"
cd "$root"
mkdir usr proc run
mount --bind /usr usr
for name in bin lib lib64; do ln -s "usr/$name" "$name"; done
mount -t proc none proc
touch run/broker.sock program
mount --bind "$socket" run/broker.sock
mount --bind "$program" program
exec chroot . "$@"
"#;

/// Runs [`CONTAINER`], given the directory of the hosts' sockets; selects the host's socket
/// outside.
const ENTER: &str = r#"
at=$1/$(ip netns identify $$)
shift
exec unshare --mount --pid --fork --kill-child sh -c "$0" sh "$at" "$@"
"#;

#[test]
fn a_job_in_containers_needs_only_the_socket() {
    let Some(lab) = Lab::up("box") else { return };
    let mut brokers = Vec::new();
    for host in 0..2 {
        let socket = lab.directory.path().join(lab.host(host) + ".sock");
        let Some(broker) = lab.broker_listening(host, socket.to_str().unwrap()) else {
            return;
        };
        brokers.push(broker);
    }
    let directory = lab.directory.path().to_str().unwrap().to_owned();
    let program = lab.program();
    let enter = [
        "sh",
        "-c",
        ENTER,
        CONTAINER,
        &directory,
        program.to_str().unwrap(),
    ];
    let drop = ["setpriv", "--reuid", UID, "--regid", UID, "--clear-groups"];
    let args = ["--option", "broker=/run/broker.sock"];
    let mut job = lab.job_by(&[&enter[..], &drop].concat(), "/program", "talk", &args);
    let told = Ended::from(job.output().unwrap()).succeeded("the job");
    let count = told.matches("path=packet: up, by the broker").count();
    assert_eq!(count, 2, "{told}");
    for broker in brokers {
        broker.stop();
    }
}

#[test]
fn the_benchmark_measures_as_a_user_without_privilege() {
    if !can_make_labs() {
        return;
    }
    let line =
        "bench pingpong --path packet --size 64 --broker --iterations 200 --repeat 1 --json -";
    let ended = run(&line.split(' ').collect::<Vec<_>>());
    if ended.err.contains("it needs Linux") {
        return eprintln!("SKIPPED: {}", ended.err);
    }
    let report: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    let rows = report["results"].as_array().unwrap();
    let brokers: Vec<_> = rows.iter().map(|row| &row["broker"] == true).collect();
    assert_eq!(brokers, [false, true], "{}", report["notes"]);
}

/// An unprivileged user gets advice about the broker instead of advice to get privileges.
#[test]
fn doctor_reports_the_broker() {
    let Some(lab) = Lab::up("doctor") else { return };
    let Some(_broker) = lab.broker(0, "") else {
        return;
    };
    let copy = lab.directory.path().join("portolan");
    copy_program(env!("CARGO_BIN_EXE_portolan").as_ref(), &copy);
    let mut doctor = Command::new("setpriv");
    doctor.args(["--reuid", UID, "--regid", UID, "--clear-groups"]);
    doctor.arg(&copy).arg("doctor");
    let mut doctor = lab.inside(0, &doctor);
    let doctor = doctor.env("PORTOLAN_BROKER", "@portolan-broker");
    let told = Ended::from(doctor.output().unwrap()).succeeded("doctor");
    assert!(told.contains("link packet: yes, by the broker"), "{told}");
    assert!(!told.contains("setcap"), "{told}");
}

#[test]
fn stopped_broker_leaves_nothing_behind() {
    let Some(lab) = Lab::up("stop") else { return };
    let links = || {
        let mut list = Command::new("ip");
        list.args(["-o", "link"]);
        let out = lab.inside(0, &list).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    let before = links();
    let Some(broker) = lab.broker(0, "") else {
        return;
    };
    assert_eq!(links(), before, "its macvlan is elsewhere");
    broker.stop();
    // The host sees the macvlan by name and by promiscuity, which macvlans of a veth set.
    wait_until("the macvlan is gone", || links() == before);
    // The name is free again.
    lab.broker(0, "").unwrap().stop();
}

/// Checks the service's units as installed, for an existing command.
#[test]
fn systemd_takes_the_units() {
    let directory = tempfile::tempdir().unwrap();
    let bin = directory.path().join("bin");
    fs::create_dir(&bin).unwrap();
    copy_program(
        env!("CARGO_BIN_EXE_portolan").as_ref(),
        &bin.join("portolan"),
    );
    let mut verify = Command::new("systemd-analyze");
    verify.arg("verify");
    for name in ["portolan-broker.service", "portolan-broker.socket"] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/systemd");
        let text = fs::read_to_string(source.join(name)).unwrap();
        let unit = directory.path().join(name);
        fs::write(
            &unit,
            text.replace("@PREFIX@", directory.path().to_str().unwrap()),
        )
        .unwrap();
        verify.arg(unit);
    }
    let Ok(output) = verify.output() else {
        return eprintln!("SKIPPED: no `systemd-analyze` here");
    };
    let told = Ended::from(output);
    assert_eq!((told.status, told.err.as_str()), (0, ""), "{}", told.out);
}

/// systemd listens, as configured in portolan-broker.socket.
#[test]
fn a_broker_takes_the_socket_that_systemd_has_made() {
    let Some(lab) = Lab::up("systemd") else {
        return;
    };
    if Command::new("systemd-socket-activate")
        .arg("--version")
        .output()
        .is_err()
    {
        return eprintln!("SKIPPED: no `systemd-socket-activate` here");
    }
    let mut activators = Vec::new();
    for host in 0..2 {
        let config = lab.directory.path().join("broker.toml");
        fs::write(&config, "[[nic]]\ninterface = 'eth0'\ngroups = ['*']\n").unwrap();
        let own = env!("CARGO_BIN_EXE_portolan");
        let mut activate = Command::new("systemd-socket-activate");
        activate.args([
            "--seqpacket",
            "-l",
            "@portolan-broker",
            own,
            "broker",
            "--config",
        ]);
        let mut child = lab.inside(host, activate.arg(&config));
        let mut child = KillOnDrop(child.stderr(Stdio::piped()).spawn().unwrap());
        let mut lines = BufReader::new(child.0.stderr.take().unwrap()).lines();
        let said = lines.next().unwrap().unwrap();
        assert!(said.starts_with("Listening on"), "{said}");
        std::thread::spawn(move || lines.for_each(drop));
        activators.push(child);
    }
    let told = Ended::from(lab.job("talk", &[]).output().unwrap()).succeeded("the job");
    let count = told.matches("path=packet: up, by the broker").count();
    assert_eq!(count, 2, "{told}");
}

#[test]
fn a_configuration_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("broker.toml");
    let check = |text: &str| {
        fs::write(&path, text).unwrap();
        run(&["broker", "--check", "--config", path.to_str().unwrap()])
    };
    let good = check("[[nic]]\ninterface = 'eth0'\ngroups = ['*']");
    assert_eq!((good.status, good.err.as_str()), (0, ""));
    assert!(
        good.out.contains("eth0: 1024 endpoints, for everyone"),
        "{}",
        good.out
    );
    let bad = check("[[nic]]\ninterface = 'eth0'\ngroups = ['no-such-group']");
    assert_eq!(bad.status, 2);
    assert!(bad.err.contains("no such group"), "{}", bad.err);
    let missing = run(&["broker", "--check", "--config", "/nonexistent"]);
    assert!(
        missing.status == 2 && missing.err.contains("docs/guide/broker.md"),
        "{}",
        missing.err
    );
}
