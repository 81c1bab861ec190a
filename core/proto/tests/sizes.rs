// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that no source file of the workspace, and no function, is too long.

use proc_macro2::Span;
use std::fs;
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, Signature, TraitItemFn};

/// Maximum length of a function in lines, with its signature: what a reader follows without going
/// back.
const FUNCTION_LINES_MAX: usize = 70;
/// Maximum length of a file in lines; a longer file has more than one subject.
const FILE_LINES_MAX: usize = 800;

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder of the workspace") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// Functions of a file that are too long, as sentences.
#[derive(Default)]
struct Long(Vec<String>);

impl Long {
    fn look(&mut self, signature: &Signature, body: &Block) {
        let line = |span: Span| span.start().line;
        let lines = line(body.brace_token.span.close()) - line(signature.span()) + 1;
        if lines > FUNCTION_LINES_MAX {
            self.0
                .push(format!("`{}` has {lines} lines", signature.ident));
        }
    }
}

impl Visit<'_> for Long {
    fn visit_item_fn(&mut self, item: &ItemFn) {
        self.look(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &ImplItemFn) {
        self.look(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &TraitItemFn) {
        if let Some(body) = &item.default {
            self.look(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[test]
fn files_and_functions_are_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for dir in [
        "core",
        "examples",
        "heritage",
        "interfaces",
        "tools",
        "verify",
    ] {
        sources(&root.join(dir), &mut files);
    }
    assert!(files.len() > 100, "the sources are elsewhere");
    let mut long = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source is text");
        let count = text.lines().count();
        let mut found = Long::default();
        if count > FILE_LINES_MAX {
            found.0.push(format!("has {count} lines"));
        }
        let tree = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        found.visit_file(&tree);
        long.extend(
            found
                .0
                .iter()
                .map(|what| format!("{}: {what}", file.display())),
        );
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}
