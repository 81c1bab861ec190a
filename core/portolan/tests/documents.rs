// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that documents name only source files that exist, and that every public method of the calls
//! that programs make has an example. A change that moves a file must update the documents.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

/// Directories of the repository that have sources or documents.
const ROOTS: [&str; 9] = [
    "bench",
    "core",
    "docs",
    "examples",
    "heritage",
    "interfaces",
    "scripts",
    "tools",
    "verify",
];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files_below(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files_below(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Returns the text in code quotes in a document, without code blocks.
fn quoted(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| !line.starts_with("```"));
    lines
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

fn is_source(name: &str) -> bool {
    let ends = [".rs", ".sh", ".c", ".h"];
    ends.iter().any(|end| name.ends_with(end)) && !name.contains([' ', '*', '…'])
}

#[test]
fn every_documented_source_file_exists() {
    let mut files = Vec::new();
    for root in ROOTS {
        files_below(&workspace().join(root), &mut files);
    }
    let is_document = |file: &&PathBuf| file.extension().is_some_and(|ext| ext == "md");
    let mut documents: Vec<_> = files.iter().filter(is_document).cloned().collect();
    for name in ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"] {
        documents.push(workspace().join(name));
    }
    let mut named = 0;
    for document in documents {
        let text = fs::read_to_string(&document).unwrap();
        // A document may name the end of a path. A name without a directory may belong to another
        // project.
        for name in quoted(&text).into_iter().filter(|name| is_source(name)) {
            let is_there = files.iter().any(|file| file.ends_with(name));
            assert!(
                is_there || !name.contains('/'),
                "{}: there is no {name}",
                document.display()
            );
            named += 1;
        }
    }
    assert!(named >= 100, "only {named} names were looked for");
}

/// Returns the public methods of a source file without an example in their comments.
fn without_example(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let is_comment = |line: &&&str| {
        let line = line.trim_start();
        line.starts_with("///") || line.starts_with("#[")
    };
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let Some(name) = line.strip_prefix("    pub fn ") else {
            continue;
        };
        let mut comment = lines[..index].iter().rev().take_while(is_comment);
        if !comment.any(|line| line.contains("# Examples")) {
            found.push(format!("{}: {name}", path.display()));
        }
    }
    found
}

#[test]
fn every_public_method_has_an_example() {
    let sources = workspace().join("core/portolan/src");
    let mut files = Vec::new();
    files_below(&sources.join("node"), &mut files);
    // `simulated.rs` is for the simulator, not for programs.
    let others = ["tests.rs", "simulated.rs"];
    files.retain(|file| !others.iter().any(|name| file.ends_with(name)));
    for name in [
        "node.rs",
        "buffer.rs",
        "ops.rs",
        "port.rs",
        "region.rs",
        "engine/handler.rs",
    ] {
        files.push(sources.join(name));
    }
    assert!(files.len() > 30, "{files:?}");
    let missing: Vec<String> = files
        .iter()
        .flat_map(|file| without_example(file))
        .collect();
    assert_eq!(missing, Vec::<String>::new());
}
