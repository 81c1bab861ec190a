// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of `portolan lab`, in namespaces with unique names.

mod topologies;

use crate::common::labs;
use crate::common::ranks::{joined, role};
use crate::common::{self, KillOnDrop, can_make_labs, kill, portolan, refused, run, wait_until};
use std::process::{Command, Stdio};

ranks_of_this_module!(run_ranks, ranks_command);

/// Runs one rank of a job; not a test of its own.
#[test]
fn as_rank() {
    match role().as_deref() {
        Some("exchange") => return exchanged(topologies::exchange),
        Some("exchange by endpoints") => return exchanged(topologies::exchange_by_endpoints),
        _ => {}
    }
    let Some(mut node) = joined(&[1]) else { return };
    if role().as_deref() == Some("lose a peer") && node.rank() == 1 {
        std::process::exit(7);
    }
    match node.barrier() {
        Ok(()) => println!("\nmet"),
        Err(error) => println!("\nfailed: {error}"),
    }
}

fn exchanged(exchange: fn(&mut portolan::Node) -> Result<(), portolan::Error>) {
    let exchanged = portolan::Node::join().and_then(|mut node| exchange(&mut node));
    match exchanged {
        Ok(()) => println!("\nexchanged"),
        Err(error) => {
            println!("\nfailed: {error}");
            std::process::exit(1);
        }
    }
}

/// Ranks and launcher use the same name for a host.
#[test]
fn errors_name_a_host_as_the_launcher_does() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("names", &["--hosts", "2"]);
    let ended = run_ranks(2, "lose a peer", &["--lab", &lab.0]);
    let named = format!("rank 1 on {}-h1", lab.0);
    let told = format!("failed: {named} failed");
    assert!(ended.out.contains(&told), "{}", ended.out);
    assert!(ended.err.contains(&named), "{}", ended.err);
}

/// The option works if hosts share two networks and the first one loses all UDP.
#[test]
fn setting_network_selects_the_network_that_works() {
    if !can_make_labs() {
        return;
    }
    let lab = labs::Lab::up("two", "2");
    let name = &lab.0;
    for host in ["h0", "h1"] {
        if !lab.filter(host, "iifname eth0 udp sport 1-65535") {
            return;
        }
    }
    let peer = format!("{name}-h1");
    let cable = [
        "add", "eth1", "type", "veth", "peer", "name", "eth1", "netns", &peer,
    ];
    ip(name, "h0", &[&["link"], &cable[..]].concat());
    for (host, address) in [("h0", "10.78.0.1/24"), ("h1", "10.78.0.2/24")] {
        ip(name, host, &["address", "add", address, "dev", "eth1"]);
        ip(name, host, &["link", "set", "eth1", "up"]);
    }
    let meet = |value: &str| {
        let option = format!("network={value}");
        let args = ["--lab", name, "--path", "udp", "--option", &option];
        run_ranks(2, "meet", &args)
    };
    let by_host = format!("{name}-h0=eth1;10.78.0.0/16");
    for value in ["eth1", "10.78.0.0/24", "!eth0", "eth1,eth0", &by_host] {
        let out = meet(value).succeeded(value);
        assert_eq!(out.matches(" met").count(), 2, "{value}: {out}");
    }
    let dead = meet("eth0").out;
    assert_eq!(dead.matches(" failed: rank").count(), 2, "{dead}");
    let err = meet("eth9").err;
    for word in ["network", &format!("{name}-h0"), "eth1 10.78.0.1/24"] {
        assert!(err.contains(word), "{word} is not in: {err}");
    }
}

/// Runs `ip` in the namespace of a host of the lab `name`.
fn ip(name: &str, host: &str, args: &[&str]) {
    run(&[&["lab", "exec", "--name", name, host, "--", "ip"], args].concat()).succeeded("ip");
}

/// A lab that is removed when a test ends, however it ends.
struct Lab(String);

impl Lab {
    fn up(test: &str, args: &[&str]) -> Lab {
        let lab = Lab(labs::unique_name(test));
        let ended = run(&[&["lab", "up", "--name", &lab.0], args].concat());
        assert_eq!((ended.status, ended.err.as_str()), (0, ""));
        lab
    }

    fn exec(&self, host: &str, command: &[&str]) -> common::Ended {
        run(&[&["lab", "exec", "--name", &self.0, host, "--"], command].concat())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = portolan(&["lab", "down", "--name", &self.0]).output();
    }
}

fn namespaces_of(name: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/run/netns") else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .map(|entry| entry.file_name().into_string().unwrap());
    names
        .filter(|namespace| namespace.starts_with(name))
        .collect()
}

/// Returns the names of this namespace's own interfaces.
fn own_links() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/net").unwrap().flatten();
    entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect()
}

/// Sends a datagram from one host to the address of another and returns what arrives.
fn reach(lab: &Lab, from: &str, to: &str, address: &str) -> String {
    let receive = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                   s.bind(('0.0.0.0', 7))\ns.settimeout(10)\nprint('ready', flush=True)\n\
                   print(s.recv(100).decode())";
    let mut receiver = portolan(&["lab", "exec", "--name", &lab.0, to, "--", "python3", "-c"]);
    let mut receiver = receiver
        .arg(receive)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines =
        std::io::BufRead::lines(std::io::BufReader::new(receiver.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let send = format!(
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)\
         .sendto(b'from {from}', ('{address}', 7))"
    );
    assert_eq!(lab.exec(from, &["python3", "-c", &send]).status, 0);
    let line = lines.next().and_then(Result::ok).unwrap_or_default();
    receiver.wait().unwrap();
    line
}

#[test]
fn two_hosts_reach_each_other_and_the_lab_is_removed() {
    if !can_make_labs() {
        return;
    }
    let before = own_links();
    let lab = Lab::up("pair", &["--hosts", "2", "--mtu", "4000"]);
    let name = lab.0.clone();
    assert_eq!(
        own_links(),
        before,
        "something was added to the machine's own network"
    );
    let shown = lab.exec("h1", &["ip", "-4", "addr", "show", "eth0"]).out;
    assert!(
        shown.contains("10.77.0.2/16") && shown.contains("mtu 4000"),
        "{shown}"
    );
    assert!(
        lab.exec("h0", &["ip", "-br", "link", "show", "lo"])
            .out
            .contains("LOOPBACK,UP")
    );
    if Command::new("python3").arg("-V").output().is_ok() {
        assert_eq!(reach(&lab, "h0", "h1", "10.77.0.2"), "from h0");
    } else {
        eprintln!("SKIPPED: sending a datagram needs python3");
    }
    let listed = run(&["lab", "list"]).out;
    assert!(
        listed
            .lines()
            .any(|line| line.starts_with(&format!("{name} hosts 2 mtu 4000")))
    );
    assert_eq!(run(&["lab", "down", "--name", &name]).status, 0);
    assert_eq!(namespaces_of(&name), Vec::<String>::new());
    assert_eq!(own_links(), before);
}

/// Includes the smallest MTU, and sealed frames.
#[test]
fn one_host_has_an_interface_that_a_job_can_use() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("one", &["--hosts", "1", "--mtu", "576"]);
    let shown = lab.exec("h0", &["ip", "-br", "addr", "show", "eth0"]).out;
    assert!(
        shown.contains("UP") && shown.contains("10.77.0.1/16"),
        "{shown}"
    );
    for path in ["udp", "packet"] {
        let args = ["--path", path, "--option", "auth=aead", "--lab", &lab.0];
        let out = run_ranks(2, "meet", &args).succeeded(path);
        assert_eq!(out.matches("met").count(), 2, "{out}");
    }
    let name = lab.0.clone();
    assert_eq!(run(&["lab", "down", "--name", &name]).status, 0);
    assert_eq!(namespaces_of(&name), Vec::<String>::new());
}

#[test]
fn more_hosts_are_joined_by_a_bridge() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("bridge", &["--hosts", "4"]);
    assert_eq!(namespaces_of(&lab.0).len(), 5);
    if Command::new("python3").arg("-V").output().is_ok() {
        assert_eq!(reach(&lab, "3", "h1", "10.77.0.2"), "from 3");
    }
    assert_eq!(run(&["lab", "down", "--name", &lab.0]).status, 0);
    assert!(namespaces_of(&lab.0).is_empty());
}

#[test]
fn ranks_are_spread_over_a_lab() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("run", &["--hosts", "2"]);
    let show = ["--", "sh", "-c", "readlink /proc/self/ns/net"];
    let ended = run(&[
        &["run", "-n", "4", "--tag-output", "--lab", &lab.0],
        &show[..],
    ]
    .concat());
    assert_eq!((ended.status, ended.err.as_str()), (0, ""));
    let place = |rank: u32| {
        let tag = format!("[{rank}] ");
        ended
            .out
            .lines()
            .find_map(|line| line.strip_prefix(&tag))
            .unwrap()
            .to_owned()
    };
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    assert_eq!(place(0), place(1));
    assert_eq!(place(2), place(3));
    assert_ne!(place(0), place(2));
    assert_ne!(place(0), own.to_str().unwrap());
    let err = refused(&[
        "run",
        "-n",
        "3",
        "--per-host",
        "1",
        "--lab",
        &lab.0,
        "--",
        "true",
    ]);
    assert!(err.contains("2 slots of 2 hosts"), "{err}");
    let err = refused(&["run", "-n", "2", "--lab", &lab.0, "--", "no-such-program"]);
    assert!(err.contains(&format!("host {}-h", lab.0)), "{err}");
}

#[test]
fn mistakes_get_one_sentence_and_status_two() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("twice", &["--hosts", "2"]);
    let err = refused(&["lab", "up", "--name", &lab.0]);
    assert!(
        err.contains("is up already") && err.contains("portolan lab down --name"),
        "{err}"
    );
    let err = refused(&["lab", "exec", "--name", &lab.0, "h2", "--", "true"]);
    assert!(
        err.contains("has no host") && err.contains("h0 to h1"),
        "{err}"
    );
    let err = refused(&[
        "lab",
        "exec",
        "--name",
        &lab.0,
        "h0",
        "--",
        "no-such-program",
    ]);
    assert!(err.contains("no-such-program not found"), "{err}");
    assert_eq!(lab.exec("h0", &["sh", "-c", "exit 7"]).status, 7);
    assert!(refused(&["lab", "down", "--name", "no-such-lab"]).contains("no lab no-such-lab"));
    let err = refused(&["run", "--lab", "no-such-lab", "--", "true"]);
    assert!(err.contains("portolan lab up --name no-such-lab"), "{err}");
    assert!(refused(&["lab", "up", "--name", "a/b"]).contains("cannot name a lab"));
    for mtu in ["10", "100", "575", "70000"] {
        let err = refused(&["lab", "up", "--name", "x", "--mtu", mtu]);
        assert!(err.contains("--mtu") && err.contains("576 bytes"), "{err}");
    }
}

#[test]
fn foreign_namespaces_are_not_touched() {
    if !can_make_labs() {
        return;
    }
    let name = labs::unique_name("other");
    let namespace = format!("{name}-h0");
    let ip = |args: &[&str]| assert!(Command::new("ip").args(args).status().unwrap().success());
    ip(&["netns", "add", &namespace]);
    let up = run(&["lab", "up", "--name", &name]);
    let down = run(&["lab", "down", "--name", &name]);
    let kept = namespaces_of(&name);
    ip(&["netns", "delete", &namespace]);
    assert_eq!((up.status, down.status), (2, 2));
    assert!(up.err.contains("not part of a portolan lab"), "{}", up.err);
    assert_eq!(kept, [namespace]);
}

#[test]
fn failed_lab_setup_is_undone() {
    if !can_make_labs() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let fake = directory.path().join("ip");
    // An `ip` that fails at the second namespace.
    let script = "#!/bin/sh\nreal=$(PATH=${PATH#*:} command -v ip)\n\
                  case \"$*\" in 'netns add '*-h1) echo no space >&2; exit 1;; esac\n\
                  exec $real \"$@\"\n";
    std::fs::write(&fake, script).unwrap();
    std::os::unix::fs::PermissionsExt::set_mode(
        &mut std::fs::metadata(&fake).unwrap().permissions(),
        0o755,
    );
    Command::new("chmod").arg("+x").arg(&fake).status().unwrap();
    let name = labs::unique_name("half");
    let search = format!(
        "{}:{}",
        directory.path().display(),
        std::env::var("PATH").unwrap()
    );
    let up = portolan(&["lab", "up", "--name", &name])
        .env("PATH", search)
        .output()
        .unwrap();
    assert_eq!(up.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&up.stderr).contains("no space"));
    assert_eq!(namespaces_of(&name), Vec::<String>::new());
}

#[test]
fn lab_of_one_job_is_removed_even_if_run_is_killed() {
    if !can_make_labs() {
        return;
    }
    let sleep = common::unique_sleep();
    let job = portolan(&["run", "-n", "2", "--new-lab", "2", "--", "sleep", &sleep]).spawn();
    let job = KillOnDrop(job.unwrap());
    let labs = || namespaces_of(&format!("tmp{}-", job.0.id()));
    let ranks = || common::processes_with(&format!("sleep\0{sleep}")).len();
    // `run` itself has the same words in its command line.
    wait_until("two ranks", || ranks() == 3);
    assert_eq!(labs().len(), 2);
    kill(i32::try_from(job.0.id()).unwrap(), "-9");
    wait_until("no namespace left", || labs().is_empty());
    wait_until("no process left", || ranks() == 0);
}

#[test]
fn lab_is_removed_even_if_its_starter_was_killed() {
    if !can_make_labs() {
        return;
    }
    let name = labs::unique_name("untold");
    // The guard's situation if `run` is killed while its lab is being created.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let guard = portolan(&["lab", "guard", "--name", &name, "--hosts", "2"])
        .stdin(Stdio::null())
        .stdout(writer)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&guard.stderr);
    // The guard reports its lost reader by its exit status; the lab had been created.
    assert_eq!((guard.status.code(), &*said), (Some(141), ""));
    assert_eq!(namespaces_of(&name), Vec::<String>::new());
}

#[test]
fn a_missing_ip_command_is_named_with_the_package() {
    if !can_make_labs() {
        return;
    }
    let up = portolan(&["lab", "up", "--name", "never"])
        .env("PATH", "/nowhere")
        .output()
        .unwrap();
    assert_eq!(up.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&up.stderr).contains("apt install iproute2"));
}
/// Returns the cores that a process may use according to its status.
fn allowed(status: &str) -> String {
    let line = status
        .lines()
        .find(|line| line.starts_with("Cpus_allowed_list:"));
    line.unwrap().split_whitespace().last().unwrap().to_owned()
}

const STATUS: [&str; 2] = ["cat", "/proc/self/status"];

#[test]
fn programs_on_a_host_run_on_its_cores() {
    if !can_make_labs() {
        return;
    }
    let usable = portolan_bench::usable_cores();
    let lab = Lab::up("cores", &["--hosts", "3"]);
    for (index, host) in ["h0", "h1", "h2"].into_iter().enumerate() {
        let core = usable[index % usable.len()].to_string();
        assert_eq!(allowed(&lab.exec(host, &STATUS).out), core, "{host}");
    }
    let listed: Vec<String> = usable.iter().take(3).map(usize::to_string).collect();
    let line = run(&["lab", "list"]).out;
    let line = line
        .lines()
        .find(|line| line.starts_with(&lab.0))
        .unwrap()
        .to_owned();
    assert!(
        line.ends_with(&format!(" cores {} link veth", listed.join(","))),
        "{line}"
    );
    let job = ["run", "-n", "3", "--tag-output", "--lab", &lab.0, "--"];
    let ended = run(&[&job[..], &STATUS].concat());
    for (rank, core) in usable.iter().cycle().take(3).enumerate() {
        let line = format!("[{rank}] Cpus_allowed_list:\t{core}\n");
        assert!(ended.out.contains(&line), "{line}{}", ended.out);
    }
}

#[test]
fn cores_may_be_chosen_or_left_to_the_scheduler() {
    if !can_make_labs() {
        return;
    }
    let own = allowed(&std::fs::read_to_string("/proc/self/status").unwrap());
    let core = portolan_bench::usable_cores()[0].to_string();
    let chosen = Lab::up(
        "chosen",
        &["--hosts", "2", "--cores", &format!("{core},all")],
    );
    assert_eq!(allowed(&chosen.exec("h0", &STATUS).out), core);
    assert_eq!(allowed(&chosen.exec("h1", &STATUS).out), own);
    let job = ["run", "-n", "2", "--new-lab", "2", "--cores", "all", "--"];
    let ended = run(&[&job[..], &STATUS].concat());
    assert_eq!(
        ended
            .out
            .matches(&format!("Cpus_allowed_list:\t{own}\n"))
            .count(),
        2
    );
    for (list, why) in [
        ("1000", "core 1000"),
        ("0,x", "0,1,2-3,4+6"),
        ("", "one entry per host"),
    ] {
        let err = refused(&["lab", "up", "--name", "x", "--cores", list]);
        assert!(err.contains("--cores") && err.contains(why), "{err}");
    }
}

/// Returns the queue of an interface inside a namespace, as shown by `tc`.
fn queue(namespace: &str, interface: &str) -> serde_json::Value {
    let show = [
        "-n", namespace, "-j", "-r", "qdisc", "show", "dev", interface, "root",
    ];
    let shown = Command::new("tc").args(show).output().unwrap();
    serde_json::from_slice::<serde_json::Value>(&shown.stdout).unwrap()[0].clone()
}

/// Bytes per second of a gigabit, the unit in which `tc` reports a rate.
const GIGABIT: u64 = 125_000_000;

#[test]
fn two_hosts_have_a_cable_of_the_rate() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("cable", &["--hosts", "2", "--link", "1g,queue=128k"]);
    for host in ["h0", "h1"] {
        let namespace = format!("{}-{host}", lab.0);
        let queue = queue(&namespace, "eth0");
        assert_eq!(queue["kind"], "tbf");
        assert_eq!(queue["options"]["rate"], GIGABIT);
        assert_eq!(queue["options"]["limit"], 128 << 10);
        // The burst after a pause is less than the longest burst of segments, and more than a
        // frame.
        let burst = queue["options"]["burst"].as_u64().unwrap();
        assert!((1538..=32_768).contains(&burst), "{queue}");
        let shown = lab
            .exec(host, &["ip", "-d", "link", "show", "dev", "eth0"])
            .out;
        assert!(shown.contains("gso_max_size 12500 "), "{shown}");
    }
    assert!(namespaces_of(&lab.0).len() == 2, "a cable needs no switch");
    let listed = run(&["lab", "list"]).out;
    assert!(listed.contains(" link rate=1g,queue=128k"), "{listed}");
    let ended = run_ranks(2, "meet", &["--lab", &lab.0, "--path", "udp"]);
    assert_eq!(ended.out.matches("met").count(), 2, "{}", ended.out);
}

#[test]
fn ports_of_a_switch_have_the_rate_and_its_queue() {
    if !can_make_labs() {
        return;
    }
    let lab = Lab::up("ports", &["--hosts", "3", "--link", "10g"]);
    let switch = format!("{}-sw", lab.0);
    for index in 0..3 {
        let port = queue(&switch, &format!("p{index}"));
        assert_eq!(port["options"]["rate"], 10 * GIGABIT);
        assert_eq!(port["options"]["limit"], 1 << 20);
        let host = queue(&format!("{}-h{index}", lab.0), "eth0");
        assert_eq!(host["options"]["rate"], 10 * GIGABIT);
        assert_eq!(host["options"]["limit"], 1000 * 1514);
    }
}

/// Sends datagrams from h0 to h1, a share of which is lost, and returns the number that arrives. At
/// most a few are in flight, so that no queue is full.
fn survivors(lab: &Lab, count: u32) -> u32 {
    let receive = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
                   s.bind(('0.0.0.0', 7))\nprint('ready', flush=True)\ngot = 0\nwhile True:\n \
                   data, at = s.recvfrom(100)\n if data == b'end': break\n \
                   if data[:4] == b'look': s.sendto(data[4:] + b' %d' % got, at)\n else: got += 1\n";
    let send = format!(
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n\
         s.connect(('10.77.0.2', 7))\ns.settimeout(0.05)\n\
         asked = 0\ndef look():\n global asked\n asked += 1\n while True:\n  s.send(b'look%d' % asked)\n  \
         try:\n   to, got = s.recv(100).split()\n   if int(to) == asked: return int(got)\n  \
         except TimeoutError: pass\n\
         for at in range({count}):\n s.send(b'x')\n if at % 50 == 49: look()\n\
         print(look())\nfor again in range(50): s.send(b'end')\n"
    );
    let mut receiver = portolan(&["lab", "exec", "--name", &lab.0, "h1", "--", "python3", "-c"]);
    let receiver = receiver.arg(receive).stdout(Stdio::piped()).spawn();
    let mut receiver = KillOnDrop(receiver.unwrap());
    let out = receiver.0.stdout.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(out));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let sent = lab.exec("h0", &["python3", "-c", &send]);
    sent.out.trim().parse().expect(&sent.err)
}

#[test]
fn a_lossy_wire_loses_its_share() {
    if !can_make_labs() {
        return;
    }
    if Command::new("python3").arg("-V").output().is_err() {
        return eprintln!("SKIPPED: python3, which sends the datagrams, is not installed");
    }
    const COUNT: u32 = 20_000;
    let lab = Lab::up("lossy", &["--hosts", "2", "--link", "rate=1g,loss=10%"]);
    let lost = COUNT - survivors(&lab, COUNT);
    // Six standard deviations of 42 to either side.
    assert!((1746..=2254).contains(&lost), "{lost} of {COUNT} were lost");
    let whole = Lab::up("whole", &["--hosts", "2", "--link", "1g"]);
    assert_eq!(survivors(&whole, COUNT / 10), COUNT / 10);
}

#[test]
fn impossible_wire_is_refused_and_the_lab_is_removed() {
    if !can_make_labs() {
        return;
    }
    let name = labs::unique_name("nowire");
    for (link, key) in [
        ("1g,delay=50", "delay=50 "),
        ("1g,delay=5us,by=line", "delay=5us"),
        ("rate=100g,delay=1s,by=line", "256 MiB"),
        ("rate=fast", "rate=fast"),
        ("1g,queue=1k", "queue=1024 "),
        ("loss=5", "loss=5"),
        ("wifi", "wifi"),
    ] {
        let err = refused(&["lab", "up", "--name", &name, "--link", link]);
        assert!(err.contains("--link") && err.contains(key), "{err}");
    }
    assert_eq!(namespaces_of(&name), Vec::<String>::new());
}
