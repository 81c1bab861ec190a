// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that the installed files suffice to build and run a program outside of the source tree.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{exported, here, library_dir, run_job, succeed};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Installs this build's libraries below a fresh directory.
fn installed() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (libraries, prefix) = (dir.path().join("built"), dir.path().join("prefix"));
    std::fs::create_dir(&libraries).unwrap();
    for (file, name) in [
        ("libportolan_c.so", "libportolan.so.0"),
        ("libgamma.so", "libgamma.so.0"),
        ("libbip.so", "libbip.so.0"),
        ("libgm.so", "libgm.so.0"),
        ("libvipl.so", "libvipl.so.0"),
        ("libtmk.so", "libtmk.so.0"),
    ] {
        std::os::unix::fs::symlink(library_dir().join(file), libraries.join(name)).unwrap();
    }
    let mut install = Command::new(here().join("../../scripts/install-libraries.sh"));
    succeed(install.arg(&prefix).env("LIBRARIES", libraries));
    (dir, prefix)
}

#[test]
fn program_builds_with_pkg_config_only() {
    if Command::new("pkg-config")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("SKIPPED: pkg-config is not installed");
        return;
    }
    let (dir, prefix) = installed();
    let source = dir.path().join("program.c");
    std::fs::write(&source, example_of_the_manual()).unwrap();
    let mut compile = Command::new("sh");
    compile.args([
        "-ec",
        "cc program.c -o program $(pkg-config --cflags --libs portolan)",
    ]);
    compile.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    succeed(compile.current_dir(dir.path()));
    let path = format!("LD_LIBRARY_PATH={}", prefix.join("lib").display());
    let program = dir.path().join("program");
    let mut out: Vec<String> = run_job(2, &["--env", &path], &program, &[])
        .lines()
        .map(str::to_owned)
        .collect();
    out.sort();
    assert_eq!(out, ["ahoy from 0", "ahoy from 1"]);
}

/// Returns the example program of portolan(7), to test that it works.
fn example_of_the_manual() -> String {
    let page = std::fs::read_to_string(here().join("man/portolan.7")).unwrap();
    let (_, example) = page.split_once(".SH EXAMPLE\n.nf\n").unwrap();
    let (example, _) = example.split_once(".fi\n").unwrap();
    example.replace(".PP\n", "\n").replace("\\e", "\\")
}

fn page(prefix: &Path, name: &str) -> String {
    let path = prefix.join(format!("share/man/man3/{name}.3"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn every_function_has_a_manual_page() {
    let (_dir, prefix) = installed();
    let send = page(&prefix, "portolan_send");
    for part in [
        ".SH NAME\nportolan_send \\- Sends `len` bytes to `port` of process `rank`\n",
        "int portolan_send(",
        ".SH RETURN VALUE\nSuccess is 0",
        ".SH ERRORS\nPORTOLAN_ERR_NO_SUCH_RANK",
        ".TP\n.B PORTOLAN_ERR_NO_SUCH_RANK\nThe rank does not exist.",
    ] {
        assert!(send.contains(part), "{part:?} is missing in\n{send}");
    }
    let mut names = exported("libportolan_c.so");
    names.append(&mut exported("libgamma.so"));
    names.append(&mut exported("libbip.so"));
    names.append(&mut exported("libgm.so"));
    names.append(&mut exported("libvipl.so"));
    names.append(&mut exported("libtmk.so"));
    assert!(names.len() > 60, "{names:?}");
    // Variables, which gamma(7), bip(7) and tmk(7) describe.
    let variables = [
        "gamma_active_port",
        "gamma_msglen",
        "bip_mynode",
        "bip_numnodes",
        "Tmk_proc_id",
        "Tmk_nprocs",
        "Tmk_page_size",
    ];
    names.retain(|name| !variables.contains(&name.as_str()));
    for name in names {
        let page = page(&prefix, &name);
        for section in ["SYNOPSIS", "RETURN VALUE", "ERRORS"] {
            assert!(
                page.contains(&format!(".SH {section}")),
                "{section} of {name}"
            );
        }
        let has_example = !name.starts_with("portolan_") || page.contains(".SH EXAMPLE");
        assert!(has_example, "no example calls {name}");
    }
}

#[test]
fn manual_pages_have_no_errors() {
    if Command::new("man").arg("--version").output().is_err() {
        eprintln!("SKIPPED: man is not installed");
        return;
    }
    let (_dir, prefix) = installed();
    let mut man = Command::new("man");
    man.args(["--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]);
    for section in ["man3", "man7"] {
        let pages = std::fs::read_dir(prefix.join("share/man").join(section)).unwrap();
        man.args(pages.map(|page| page.unwrap().path()));
    }
    let output = man.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
}
