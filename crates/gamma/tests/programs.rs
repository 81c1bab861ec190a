// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs for GAMMA, as processes that a launcher has started and as one that spawns the others;
//! and the committed header.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../capi/tests/common/mod.rs"]
mod common;

use common::{STRICT, Workshop, here, launcher, library_dir, run_job, succeed};
use std::path::PathBuf;
use std::process::Command;

/// Set to write the header instead of comparing it.
const UPDATE: &str = "GAMMA_UPDATE_HEADER";

/// The sources that hold what C sees, in the header's order.
const SOURCES: &[&str] = &[
    "code",
    "init",
    "port",
    "send",
    "semaphore",
    "group",
    "memory",
    "time",
];

fn workshop() -> Workshop {
    Workshop::new("gamma", "libgamma.so")
}

/// A test program, with every check that the compiler can build in.
fn checked(shop: &Workshop, name: &str) -> PathBuf {
    let flags = [
        "-std=c11",
        "-g",
        "-D_GNU_SOURCE",
        "-pthread",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        "-Wno-vla",
    ];
    let source = here().join("tests/c").join(name);
    shop.build("cc", &source, &[&flags, STRICT].concat())
}

#[test]
fn ports_semaphores_and_collectives_work() {
    let shop = workshop();
    let program = checked(&shop, "ports.c");
    for (count, path) in [(2, "shm"), (3, "udp")] {
        let nodes = format!("NODES={count}");
        let options = ["--path", path, "--env", &nodes];
        let out = run_job(count, &options, &program, &["argument"]);
        for node in 0..count {
            let line = format!("node {node} of {count} is done");
            assert!(out.contains(&line), "{line} is missing in\n{out}");
        }
    }
}

#[test]
fn a_process_that_is_alone_spawns_its_group() {
    let shop = workshop();
    let program = checked(&shop, "ports.c");
    let run = format!("{} run --timeout 100 --env NODES=2", launcher().display());
    let mut alone = Command::new(&program);
    let out = succeed(
        alone
            .arg("argument")
            .env("NODES", "2")
            .env("GAMMA_RUN", run),
    );
    assert!(out.contains("node 0 of 2 is done"), "{out}");
    assert!(out.contains("node 1 of 2 is done"), "{out}");
}

#[test]
fn the_figures_of_gamma_are_printed() {
    let shop = workshop();
    let source = here().join("../../examples/c/gamma_pingpong.c");
    let program = shop.build("cc", &source, &[&["-std=c11", "-O1"], STRICT].concat());
    let out = run_job(2, &["--path", "shm"], &program, &["2"]);
    let words: Vec<&str> = out.split_whitespace().collect();
    let [
        "latency",
        latency,
        "µs,",
        "asymptotic",
        "bandwidth",
        bandwidth,
        _,
        _,
        _,
        half,
        "bytes",
    ] = words[..]
    else {
        panic!("{out}");
    };
    assert!(latency.parse::<f64>().unwrap() > 0.0, "{out}");
    assert!(bandwidth.parse::<f64>().is_ok(), "{out}");
    assert!(half.parse::<u64>().unwrap() > 0, "{out}");
}

#[test]
fn a_missing_launcher_is_named() {
    let shop = workshop();
    let source = shop.path().join("alone.c");
    let text = "#include <gamma.h>\n#include <stdio.h>\nint main(int argc, char **argv) {\n\
                int code = gamma_init(2, argc, argv);\n\
                printf(\"%d %s\", code == GAMMA_ERR_LAUNCH, gamma_last_error()); return 0; }\n";
    std::fs::write(&source, text).unwrap();
    let program = shop.build("cc", &source, STRICT);
    let out = succeed(Command::new(program).env("GAMMA_RUN", "/nowhere/portolan run"));
    assert!(
        out.starts_with("1 cannot start 2 processes with `/nowhere/portolan run`"),
        "{out}"
    );
}

#[test]
fn the_committed_header_is_what_the_sources_say() {
    let config = cbindgen::Config::from_file(here().join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in SOURCES {
        builder = builder.with_src(here().join(format!("src/{name}.rs")));
    }
    let mut new = Vec::new();
    builder.generate().unwrap().write(&mut new);
    let path = here().join("include/gamma.h");
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &new).unwrap();
    }
    assert!(
        std::fs::read(&path).unwrap() == new,
        "gamma.h is not what the sources say; run `{UPDATE}=1 cargo test -p portolan-gamma` and \
         commit it"
    );
}

#[test]
fn the_library_exports_the_functions_of_gamma_and_nothing_else() {
    let mut nm = Command::new("nm");
    nm.args(["--dynamic", "--defined-only"]);
    let out = succeed(nm.arg(library_dir().join("libgamma.so")));
    let names: Vec<&str> = out
        .lines()
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    let foreign: Vec<_> = names
        .iter()
        .filter(|name| !name.starts_with("gamma_"))
        .collect();
    assert!(foreign.is_empty(), "{foreign:?}");
    for needed in [
        "init",
        "exit",
        "abort",
        "set_active_port",
        "set_passive_port",
        "post_recv",
        "send",
        "send_flowctl",
        "send_2p",
        "send_2p_flowctl",
        "isend",
        "isend_flowctl",
        "isend_2p",
        "isend_2p_flowctl",
        "wsend",
        "tsend",
        "signal",
        "sigerr",
        "wait",
        "test",
        "atomic",
        "sync",
        "broadcast",
        "my_node",
        "how_many_nodes",
        "my_par_pid",
        "mlock",
        "munlock",
        "munlockall",
        "time",
        "time_diff",
        "active_port",
        "msglen",
    ] {
        assert!(
            names.contains(&format!("gamma_{needed}").as_str()),
            "gamma_{needed}"
        );
    }
}
