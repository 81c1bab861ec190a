// SPDX-License-Identifier: MIT OR Apache-2.0
//! The groups of packages depend on each other in one direction, as ARCHITECTURE.md lists them.

use std::fs;
use std::path::{Path, PathBuf};

/// Each group of packages, with the other groups that provide the packages it may use.
const GROUPS: [(&str, &[&str]); 5] = [
    ("core", &[]),
    ("interfaces", &["core"]),
    ("heritage", &["core", "interfaces"]),
    ("tools", &["core", "heritage"]),
    ("verify", &["core", "interfaces"]),
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the group of a package of the workspace.
fn group_of(package: &str) -> &'static str {
    let folder = package.strip_prefix("portolan-").unwrap_or(package);
    let has_it = |group: &str| workspace().join(group).join(folder).is_dir();
    let found = GROUPS.iter().find(|(group, _)| has_it(group));
    found.unwrap_or_else(|| panic!("no group has {package}")).0
}

/// Returns the packages of the workspace that a manifest depends on.
fn dependencies(manifest: &str) -> Vec<&str> {
    let names = manifest.lines().filter_map(|line| {
        let (name, _) = line.split_once(['.', ' '])?;
        let is_ours = name == "portolan" || name.starts_with("portolan-");
        is_ours.then_some(name)
    });
    names.collect()
}

/// Returns the dependencies of a manifest of `group` that the group may not have.
fn forbidden(group: &str, allowed: &[&str], manifest: &str) -> Vec<String> {
    let used = dependencies(manifest).into_iter();
    let used = used.map(|package| (package, group_of(package)));
    let wrong = used.filter(|(_, other)| *other != group && !allowed.contains(other));
    wrong
        .map(|(package, other)| format!("{group} uses {package} of {other}"))
        .collect()
}

#[test]
fn group_dependencies_point_in_one_direction() {
    let mut read = 0;
    for (group, allowed) in GROUPS {
        for entry in fs::read_dir(workspace().join(group)).unwrap().flatten() {
            let manifest = fs::read_to_string(entry.path().join("Cargo.toml")).unwrap();
            let wrong = forbidden(group, allowed, &manifest);
            assert!(wrong.is_empty(), "{}: {wrong:?}", entry.path().display());
            read += dependencies(&manifest).len();
        }
    }
    assert!(read > 40, "only {read} dependencies were read");
}

#[test]
fn backward_dependency_is_found() {
    let manifest = "name = \"portolan-x\"\nportolan.workspace = true\n\
                    portolan-cli = { path = \"../../tools/cli\" }\nlibc.workspace = true\n";
    assert_eq!(
        forbidden("interfaces", &["core"], manifest),
        ["interfaces uses portolan-cli of tools"]
    );
}
