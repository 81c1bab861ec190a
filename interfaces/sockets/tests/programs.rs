// SPDX-License-Identifier: MIT OR Apache-2.0
//! Third-party programs with their own test suites, with the library at both ends. A program that
//! is not installed is reported and skipped.
//!
//! `SOCKETS_PYTHON=1` also runs Python's own network tests with and without the library, for a few
//! minutes, and compares their failures.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest start of a server, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest run of a client, in seconds, for `timeout`.
const CLIENT_S: &str = "120";

fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut dirs = test.ancestors().skip(1);
    let found = dirs.find_map(|dir| {
        let path = dir.join("libportolan_sockets.so");
        path.exists().then_some(path)
    });
    found.expect("cargo builds the library first")
}

/// Returns true if all programs are installed.
fn are_installed(programs: &[&str]) -> bool {
    for program in programs {
        let found = Command::new("which").arg(program).output();
        if !found.is_ok_and(|found| found.status.success()) {
            println!("SKIPPED: {program} is not installed");
            return false;
        }
    }
    true
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Returns a command with the library, which `timeout` ends.
fn preloaded(spin_ns: &str, words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["-k", "1", CLIENT_S, "env"])
        .arg(format!("LD_PRELOAD={}", library().display()))
        .args(words)
        .env("PORTOLAN_SOCKETS_SPIN_NS", spin_ns)
        .env("PORTOLAN_SOCKETS_CALLS", "2")
        .stdin(Stdio::null());
    command
}

/// A server that ends with the test.
struct Server(Child);

impl Server {
    /// Starts a server, and waits until it accepts connections.
    fn start(spin_ns: &str, words: &[&str], port: u16) -> Server {
        let mut command = preloaded(spin_ns, words);
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        let server = Server(quiet.spawn().unwrap());
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(start.elapsed() < PATIENCE, "{words:?} does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // `timeout` passes the signal on.
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").arg(pid).status();
        let _ = self.0.wait();
    }
}

fn run(spin_ns: &str, words: &[&str]) -> Output {
    let output = preloaded(spin_ns, words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    output
}

#[test]
fn redis_answers_what_was_stored() {
    if !are_installed(&["redis-server", "redis-cli", "redis-benchmark"]) {
        return;
    }
    for spin_ns in ["0", "20000"] {
        let port = free_port();
        let text = port.to_string();
        let server = [
            "redis-server",
            "--port",
            &text,
            "--save",
            "",
            "--dir",
            "/tmp",
        ];
        let _server = Server::start(spin_ns, &server, port);
        for (clients, pipeline) in [("1", "1"), ("20", "1"), ("4", "32")] {
            let load = [
                "redis-benchmark",
                "-p",
                &text,
                "-c",
                clients,
                "-P",
                pipeline,
            ];
            let more = [
                "-n",
                "2000",
                "-d",
                "3000",
                "-t",
                "set,get,lrange_100,mset",
                "-q",
            ];
            run(spin_ns, &[load.as_slice(), &more].concat());
        }
        let script = "for i=1,5000 do redis.call('set','k'..i,string.rep(i,9)) end \
                      local t={} for i=1,5000 do t[i]=redis.call('get','k'..i) end return t";
        let got = run(spin_ns, &["redis-cli", "-p", &text, "eval", script, "0"]);
        let wanted: String = (1..=5000).map(|i| i.to_string().repeat(9) + "\n").collect();
        assert!(
            String::from_utf8_lossy(&got.stdout) == wanted,
            "values differ"
        );
    }
}

fn nginx_configuration(dir: &Path, port: u16, sendfile: &str) -> PathBuf {
    let at = dir.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {at}/{name};\n"))
        .concat();
    let text = format!(
        "worker_processes 2; daemon off; pid {at}/pid; error_log {at}/error;\n\
         events {{ worker_connections 64; }}\n\
         http {{ access_log off; keepalive_requests 10000;\n{temporary}\
         server {{ listen 127.0.0.1:{port}; root {at}/html; sendfile {sendfile};\n\
         location /proxy/ {{ proxy_pass http://127.0.0.1:{port}/; }} }} }}\n"
    );
    let user = if is_root() { "user root;\n" } else { "" };
    let path = dir.join("nginx.conf");
    std::fs::write(&path, format!("{user}{text}")).unwrap();
    path
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout == b"0\n"
}

#[test]
fn nginx_serves_files_directly_and_by_proxy() {
    if !are_installed(&["nginx", "curl"]) {
        return;
    }
    let page: Vec<u8> = (0..=250_u8).cycle().take(3_000_000).collect();
    for sendfile in ["on", "off"] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("html")).unwrap();
        std::fs::write(dir.path().join("html/page"), &page).unwrap();
        let port = free_port();
        let path = nginx_configuration(dir.path(), port, sendfile);
        let _server = Server::start("0", &["nginx", "-c", path.to_str().unwrap()], port);
        let direct = format!("http://127.0.0.1:{port}/page");
        let proxied = format!("http://127.0.0.1:{port}/proxy/page");
        let mut words = vec!["curl", "-sS"];
        for _ in 0..10 {
            words.extend([direct.as_str(), &proxied]);
        }
        let got = run("0", &words);
        assert!(
            got.stdout == page.repeat(20),
            "{} bytes differ",
            got.stdout.len()
        );
    }
}

#[test]
fn iperf3_counts_the_same_bytes_at_both_ends() {
    if !are_installed(&["iperf3"]) {
        return;
    }
    for direction in ["-i0", "-R", "--bidir"] {
        let port = free_port().to_string();
        let mut server = preloaded("0", &["iperf3", "-s", "-1", "-p", &port]);
        let mut server = server.stdout(Stdio::null()).spawn().unwrap();
        let load = [
            "iperf3",
            "-c",
            "127.0.0.1",
            "-p",
            &port,
            "-n",
            "100M",
            "-P",
            "2",
            direction,
        ];
        let start = Instant::now();
        loop {
            let output = preloaded("0", &load).output().unwrap();
            if output.status.success() {
                break;
            }
            // The server may not listen yet.
            assert!(start.elapsed() < PATIENCE, "{output:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(server.wait().unwrap().success());
    }
}

#[test]
fn memcached_answers_what_was_stored() {
    if !are_installed(&["memcached", "python3"]) {
        return;
    }
    let port = free_port();
    let text = port.to_string();
    let user: &[&str] = if is_root() { &["-u", "root"] } else { &[] };
    let server = [
        &["memcached", "-l", "127.0.0.1", "-p", &text, "-t", "3"],
        user,
    ]
    .concat();
    let _server = Server::start("0", &server, port);
    let script = "import socket,sys\n\
        s=socket.create_connection(('127.0.0.1',int(sys.argv[1])))\n\
        f=lambda i:bytes((i*j)&255 for j in range(i*37%90000))\n\
        def until(e):\n\
        \x20b=b''\n\
        \x20while not b.endswith(e): b+=s.recv(65536)\n\
        \x20return b\n\
        for i in range(300):\n\
        \x20v=f(i); s.sendall(b'set k%d 0 0 %d\\r\\n'%(i,len(v))+v+b'\\r\\n')\n\
        \x20assert until(b'\\r\\n')==b'STORED\\r\\n'\n\
        for i in range(300):\n\
        \x20v=f(i); s.sendall(b'get k%d\\r\\n'%i)\n\
        \x20w=b'VALUE k%d 0 %d\\r\\n'%(i,len(v))+v+b'\\r\\nEND\\r\\n'\n\
        \x20g=b''\n\
        \x20while len(g)<len(w): g+=s.recv(65536)\n\
        \x20assert g==w\n";
    run("0", &["python3", "-c", script, &text]);
}

#[test]
fn node_echoes_every_byte() {
    if !are_installed(&["node"]) {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/echo.js");
    let script = script.to_str().unwrap();
    for (spin_ns, uses_io_uring) in [("0", "0"), ("20000", "0"), ("20000", "1")] {
        let variable = format!("UV_USE_IO_URING={uses_io_uring}");
        let port = free_port();
        let text = port.to_string();
        let _server = Server::start(spin_ns, &[&variable, "node", script, "server", &text], port);
        run(spin_ns, &[&variable, "node", script, "client", &text]);
    }
}

#[test]
fn java_selectors_echo_every_byte() {
    if !are_installed(&["javac", "java"]) {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/Echo.java");
    let dir = tempfile::tempdir().unwrap();
    let compiled = Command::new("javac")
        .arg("-d")
        .arg(dir.path())
        .arg(source)
        .output()
        .unwrap();
    assert!(compiled.status.success(), "{compiled:?}");
    let classes = dir.path().to_str().unwrap();
    for spin_ns in ["0", "20000"] {
        let port = free_port();
        let text = port.to_string();
        let java = ["java", "-cp", classes, "Echo"];
        let _server = Server::start(spin_ns, &[&java[..], &["server", &text]].concat(), port);
        run(spin_ns, &[&java[..], &["client", &text]].concat());
    }
}

/// Without an acknowledgement, the client's kernel holds back each request for 40 ms.
#[test]
fn replies_by_memory_acknowledge_requests_by_the_kernel() {
    if !are_installed(&["python3", "unshare", "ip"]) {
        return;
    }
    let mut unshare = vec!["unshare", "--net"];
    if !is_root() {
        unshare.insert(1, "--map-root-user");
    }
    let probe = Command::new(unshare[0])
        .args(&unshare[1..])
        .arg("true")
        .output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        println!("SKIPPED: this user cannot make a network namespace");
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/acknowledge.py");
    let mut command = Command::new("timeout");
    command.args(["-k", "1", CLIENT_S]).args(&unshare);
    let output = command
        .args(["python3", "-B"])
        .arg(script)
        .arg(library())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let delayed: u64 = String::from_utf8_lossy(&output.stdout)
        .trim()
        .parse()
        .unwrap();
    // A busy machine may delay some of the 400.
    assert!(delayed < 80, "{delayed} acknowledgements were delayed");
}

/// Writes a stand-in for `portolan` with only `sockets OPTIONS -- PROGRAM ARGS`, because the command
/// belongs to another crate. The statistics are appended to a file beside it.
fn stand_in(dir: &Path) -> PathBuf {
    let path = dir.join("portolan");
    let text = format!(
        "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done; shift\n\
         export LD_PRELOAD={} PORTOLAN_SOCKETS_STATS={}/stats PORTOLAN_SOCKETS_SPIN_NS=20000\n\
         exec \"$@\"\n",
        library().display(),
        dir.display()
    );
    std::fs::write(&path, text).unwrap();
    std::fs::write(dir.join("stats"), "").unwrap();
    // PostgreSQL runs as another user than root.
    for (path, mode) in [(dir, 0o755), (&path, 0o755), (&dir.join("stats"), 0o666)] {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    path
}

/// Returns the bytes that connections of one end (`accepted` or `connected`) sent and received by
/// memory.
fn bytes_by_memory(stats: &str, end: &str) -> u64 {
    let lines = stats.lines().map(|line| line.split(' '));
    let of_end = lines.filter_map(|words| {
        let words: Vec<&str> = words.collect();
        (words[1] == end)
            .then(|| words[4].parse::<u64>().unwrap() + words[6].parse::<u64>().unwrap())
    });
    of_end.sum()
}

/// PostgreSQL forks a process for each connection. The example fails if a result of the distributed
/// database differs from that of a single server, or if pgbench's balances do not agree.
#[test]
fn distributed_postgresql_answers_as_a_single_server_does() {
    if !are_installed(&["python3", "setpriv"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/sql/sql.py");
    let output = Command::new("timeout")
        .args(["-k", "1", "500", "python3", "-B"])
        .arg(example)
        .arg("--portolan")
        .arg(stand_in(dir.path()))
        .args(["--scale", "0.001", "--repeats", "2", "--pgbench", "100"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{output:?}");
    println!("{text}");
    if text.starts_with("SKIPPED") {
        return;
    }
    assert_eq!(text.matches(" rows, equal").count(), 5, "{text}");
    let stats = std::fs::read_to_string(dir.path().join("stats")).unwrap();
    for end in ["accepted", "connected"] {
        let by_memory = bytes_by_memory(&stats, end);
        assert!(
            by_memory > 10_000,
            "{end}: {by_memory} bytes by memory: {stats}"
        );
    }
}

/// Bytes of a ring return to the kernel, also in front of bytes that it already has.
#[test]
fn program_without_the_library_reads_the_unread_bytes_of_a_passed_connection() {
    if !are_installed(&["python3"]) {
        return;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/give_back.py");
    let script = script.to_str().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut by_memory = 0;
    for how in ["message", "exec", "spawn"] {
        for (writer, len, buffer) in [
            ("waits", "100", "0"),
            ("waits", "200000", "0"),
            ("waits", "200000", "8192"),
            ("waits", "600000", "0"),
            ("shuts", "50000", "0"),
            ("closes", "50000", "0"),
            ("blocks", "50000000", "0"),
        ] {
            if how == "exec" && writer == "blocks" {
                // The program that could read the bytes no longer exists.
                continue;
            }
            let file = dir.path().join(format!("{how}-{writer}-{len}-{buffer}"));
            let words = ["python3", script, how, writer, len, buffer];
            let mut command = preloaded("20000", &words);
            command.env("PORTOLAN_SOCKETS_STATS", &file);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{words:?}: {output:?}");
            by_memory += bytes_by_memory(&std::fs::read_to_string(file).unwrap(), "connected");
        }
    }
    // Each run wrote a part to the ring.
    assert!(by_memory > 1_000_000, "{by_memory}");
}

/// Returns the names of the failed tests of a module of Python's test suite.
fn python_failures(module: &str, with_library: bool) -> BTreeSet<String> {
    // VSOCK needs a hypervisor's device and may hang without it.
    let words = ["python3", "-m", "test", "-v", module, "-i", "*VSOCK*"];
    let mut command = if with_library {
        preloaded("0", &words)
    } else {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command
    };
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(text.contains("Ran "), "{module} did not run: {text}");
    let failed = text
        .lines()
        .filter(|line| line.starts_with("FAIL:") || line.starts_with("ERROR:"));
    failed.map(str::to_owned).collect()
}

#[test]
fn python_network_tests_fail_only_where_they_fail_without_the_library() {
    if std::env::var("SOCKETS_PYTHON").is_err() {
        println!("SKIPPED: set SOCKETS_PYTHON=1 for Python's network tests, which take minutes");
        return;
    }
    for module in ["test_socket", "test_selectors", "test_ssl", "test_asyncio"] {
        let plain = python_failures(module, false);
        let own = python_failures(module, true);
        let new: Vec<_> = own.difference(&plain).collect();
        assert!(new.is_empty(), "{module}: {new:?}");
    }
}
