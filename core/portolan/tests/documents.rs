// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that documents name only source files that exist. A change that moves a file must update
//! the documents.

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
