// SPDX-License-Identifier: MIT OR Apache-2.0
//! The shape of the sources: folders import one another in one direction, and state is private to
//! the file or folder that owns it.
//!
//! A folder is a first-level module of a crate: `path.rs` and what lies in `path/`. Test modules are
//! left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Fields, Item, UseTree, Visibility};

/// A crate that keeps the rules.
struct Rules {
    /// Its folder among the crates.
    name: &'static str,
    /// Its folders: each imports only those before it, so there is no circle.
    floors: &'static [&'static str],
    /// Imports that run the other way; to become none.
    known_back: &'static [(&'static str, &'static str)],
    /// Plain records of parameters and results, which keep no rule of their own; `Shared` is one of
    /// owners. `None` where state is not private yet.
    records: Option<&'static [&'static str]>,
}

const CRATES: &[Rules] = &[PROTO, LINK, PORTOLAN];

const PROTO: Rules = Rules {
    name: "proto",
    floors: &[
        "base", "mem", "session", "matching", "path", "bulk", "rma", "shared", "lane", "peer",
        "dispatch",
    ],
    known_back: &[],
    records: Some(&[
        "Admitted",
        "Announcement",
        "Answer",
        "Arrived",
        "Asked",
        "ClaimId",
        "Discarded",
        "Env",
        "FinishedRx",
        "FragmentPart",
        "HeldId",
        "HelloIds",
        "Host",
        "LostFrame",
        "Many",
        "Moved",
        "OpenFrame",
        "Outgoing",
        "Parts",
        "Posted",
        "PutNotice",
        "Remains",
        "Request",
        "Run",
        "Served",
        "Shared",
        "TimerOutcome",
        "Times",
    ]),
};

const LINK: Rules = Rules {
    name: "link",
    floors: &[
        "addr",
        "caps",
        "frame",
        "place",
        "notice",
        "peers",
        "ethernet",
        "cut",
        "host",
        "boxed",
        "conformance",
        "shm",
        "udp",
        "packet",
        "xdp",
        "stream",
        "sim",
        "die",
        "fault",
        "pcap",
    ],
    known_back: &[],
    records: None,
};

const PORTOLAN: Rules = Rules {
    name: "portolan",
    floors: &[
        "clock",
        "address",
        "atomic",
        "collective",
        "settings",
        "launch",
        "error",
        "region",
        "buffer",
        "checksum",
        "seal",
        "model",
        "raw",
        "ops",
        "unexpected",
        "liveness",
        "streams",
        "links",
        "directory",
        "table",
        "port",
        "engine",
        "start",
        "node",
        "remote",
        "tagged",
        "event",
        "group",
        "reduce",
        "endpoint",
    ],
    known_back: &[("node", "group"), ("settings", "launch")],
    records: None,
};

#[test]
fn folders_import_one_another_in_one_direction() {
    for rules in CRATES {
        let arrows = Sources::read(rules.name).arrows();
        let floor_of = |folder: &str| {
            let floor = rules.floors.iter().position(|name| *name == folder);
            floor.unwrap_or_else(|| panic!("{}: on which floor is {folder}?", rules.name))
        };
        let mut known: BTreeSet<_> = rules.known_back.iter().copied().collect();
        let back: Vec<_> = arrows
            .iter()
            .filter(|((from, to), _)| floor_of(from) <= floor_of(to))
            .filter(|((from, to), _)| !known.remove(&(from.as_str(), to.as_str())))
            .map(|((from, to), example)| format!("{from} imports {to}: {example}"))
            .collect();
        assert!(back.is_empty(), "{}:\n{}", rules.name, back.join("\n"));
        assert!(known.is_empty(), "{}: gone: {known:?}", rules.name);
    }
}

#[test]
fn state_is_private_to_its_owner() {
    for rules in CRATES {
        let Some(records) = rules.records else {
            continue;
        };
        let sources = Sources::read(rules.name);
        let open: BTreeMap<_, _> = sources
            .open_fields()
            .into_iter()
            .filter(|(name, _)| !records.contains(&name.as_str()))
            .collect();
        assert!(open.is_empty(), "{}: others reach {open:?}", rules.name);
    }
}

/// One file: its folder, how many modules below the folder's own, its contents.
struct Source {
    folder: String,
    depth: usize,
    file: PathBuf,
    tree: syn::File,
}

/// All files of a crate, test modules left out.
struct Sources {
    files: Vec<Source>,
    /// Names that the crate's root exports, and the folder that each comes from.
    exports: BTreeMap<String, String>,
}

impl Sources {
    fn read(name: &str) -> Sources {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("..")
            .join(name)
            .join("src");
        let mut sources = Sources {
            files: Vec::new(),
            exports: BTreeMap::new(),
        };
        let lib = parse(&root.join("lib.rs"));
        let mut modules = Vec::new();
        for item in &lib.items {
            match item {
                Item::Use(used) => {
                    for path in use_paths(&used.tree) {
                        let folder = usize::from(path[0] == "crate");
                        let last = path.last().expect("a path has a name").clone();
                        sources.exports.insert(last, path[folder].clone());
                    }
                }
                Item::Mod(module) if !is_test(&module.attrs) => {
                    modules.push(module.ident.to_string());
                }
                _ => {}
            }
        }
        for module in modules {
            sources.read_module((&module, 0), &root, &module);
        }
        sources
    }

    /// Reads the module `name` whose file lies in `dir`, and those below it.
    fn read_module(&mut self, (folder, depth): (&str, usize), dir: &Path, name: &str) {
        let mut file = dir.join(format!("{name}.rs"));
        if !file.exists() {
            file = dir.join(name).join("mod.rs");
        }
        let tree = parse(&file);
        let below = tree.items.iter().filter_map(|item| match item {
            Item::Mod(module) if module.content.is_none() && !is_test(&module.attrs) => {
                Some(module.ident.to_string())
            }
            _ => None,
        });
        for module in below.collect::<Vec<_>>() {
            self.read_module((folder, depth + 1), &dir.join(name), &module);
        }
        self.files.push(Source {
            folder: folder.to_string(),
            depth,
            file,
            tree,
        });
    }

    /// Which folder imports which, with an example of each.
    fn arrows(&self) -> BTreeMap<(String, String), String> {
        let folders: BTreeSet<&str> = self
            .files
            .iter()
            .map(|source| source.folder.as_str())
            .collect();
        let mut arrows = BTreeMap::new();
        for source in &self.files {
            let folder = &source.folder;
            let mut names = Names {
                depth: source.depth,
                of_crate: BTreeSet::new(),
            };
            names.visit_file(&source.tree);
            for name in names.of_crate {
                let to = match folders.get(name.as_str()) {
                    Some(_) => &name,
                    None => match self.exports.get(&name) {
                        Some(to) if folders.contains(to.as_str()) => to,
                        _ => continue,
                    },
                };
                if to != folder {
                    let file = source
                        .file
                        .file_name()
                        .expect("a file has a name")
                        .to_string_lossy();
                    let example = format!("{file} names crate::{name}");
                    arrows.insert((folder.clone(), to.clone()), example);
                }
            }
        }
        arrows
    }

    /// Structs with fields that are open to the crate or to a folder above, and how many.
    fn open_fields(&self) -> BTreeMap<String, usize> {
        let mut open = BTreeMap::new();
        for source in &self.files {
            for item in &source.tree.items {
                let Item::Struct(item) = item else { continue };
                let is_exported = matches!(item.vis, Visibility::Public(_));
                let fields = match &item.fields {
                    Fields::Named(fields) => fields.named.iter(),
                    Fields::Unnamed(fields) => fields.unnamed.iter(),
                    Fields::Unit => continue,
                };
                let count = fields
                    .filter(|field| match field.vis {
                        Visibility::Restricted(_) => true,
                        Visibility::Public(_) => !is_exported,
                        Visibility::Inherited => false,
                    })
                    .count();
                if count > 0 {
                    open.insert(item.ident.to_string(), count);
                }
            }
        }
        open
    }
}

fn parse(file: &Path) -> syn::File {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

fn is_test(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("cfg")
            && attr
                .meta
                .require_list()
                .is_ok_and(|list| list.tokens.to_string() == "test")
    })
}

/// Every path that a `use` names.
fn use_paths(tree: &UseTree) -> Vec<Vec<String>> {
    match tree {
        UseTree::Path(path) => {
            let mut paths = use_paths(&path.tree);
            for tail in &mut paths {
                tail.insert(0, path.ident.to_string());
            }
            paths
        }
        UseTree::Name(name) => vec![vec![name.ident.to_string()]],
        UseTree::Rename(rename) => vec![vec![rename.ident.to_string()]],
        UseTree::Glob(_) => vec![vec!["*".to_string()]],
        UseTree::Group(group) => group.items.iter().flat_map(use_paths).collect(),
    }
}

/// The first names behind `crate::`, or behind as many `super::`, wherever they stand.
struct Names {
    /// Modules between the crate's root and this one.
    depth: usize,
    of_crate: BTreeSet<String>,
}

impl Names {
    fn note(&mut self, path: &[String]) {
        let supers = path.iter().take_while(|name| *name == "super").count();
        let first = match path[0].as_str() {
            "crate" => path.get(1),
            _ if supers > self.depth => path.get(supers),
            _ => None,
        };
        self.of_crate.extend(first.cloned());
    }
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_use(&mut self, used: &'ast syn::ItemUse) {
        for path in use_paths(&used.tree) {
            self.note(&path);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path
            .segments
            .iter()
            .map(|one| one.ident.to_string())
            .collect();
        self.note(&names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let text = called.tokens.to_string().replace(' ', "");
        for (at, _) in text.match_indices("crate::") {
            let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            let path = text[at..].split(|c| !is_name(c)).next().unwrap_or("");
            self.note(&path.split("::").map(str::to_string).collect::<Vec<_>>());
        }
        visit::visit_macro(self, called);
    }
}

#[test]
fn imports_are_found_wherever_they_stand() {
    let source = "use crate::{d::Y, e}; use super::{f::Z, super::g}; \
                  fn f() { crate::b::g(); matches!(x, crate::c::X) }";
    let mut names = Names {
        depth: 1,
        of_crate: BTreeSet::new(),
    };
    names.visit_file(&syn::parse_str(source).unwrap());
    assert_eq!(Vec::from_iter(names.of_crate), ["b", "c", "d", "e", "g"]);
}
