// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks the structure of the sources: folders import one another in one direction, and state is
//! private to the file or folder that owns it.
//!
//! A folder is a first-level module of a crate: `path.rs` and the contents of `path/`. Test modules
//! are left out.

#[path = "architecture/groups.rs"]
mod groups;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree, Visibility};

/// Crate that must follow the rules.
struct Rules {
    /// Its folder, relative to the root of the repository.
    name: &'static str,
    /// Its folders. Each imports only those before it, so there is no cycle.
    floors: &'static [&'static str],
    /// Permitted visibility of fields.
    reach: Reach,
    /// Structures that may have open fields: plain records of parameters and results, without
    /// invariants. `Structure.field` opens one field of a structure that only groups owners.
    records: &'static [&'static str],
}

/// Visibility of the fields of state.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// The file that defines them, and the modules below it.
    File,
    Folder,
}

const CRATES: &[Rules] = &[PROTO, LINK, PORTOLAN, FABRIC];

const PROTO: Rules = Rules {
    name: "core/proto",
    floors: &[
        "base", "liveness", "mem", "session", "matching", "path", "bulk", "rma", "shared", "lane",
        "peer", "dispatch",
    ],
    reach: Reach::File,
    // `Shared` only groups owners.
    records: &[
        "Admitted",
        "Announcement",
        "Reply",
        "Arrived",
        "Announced",
        "ClaimId",
        "FragmentLayout",
        "Discarded",
        "Env",
        "FinishedRx",
        "FragmentPart",
        "HeldId",
        "HelloIds",
        "Host",
        "LateMessage",
        "LostFrame",
        "MultiRecv",
        "Moved",
        "OpenFrame",
        "Outgoing",
        "Parts",
        "Posted",
        "PutNotice",
        "Remains",
        "Request",
        "Run",
        "ServedRequest",
        "Shared",
        "TakenHeld",
        "TimerOutcome",
        "Times",
    ],
};

const LINK: Rules = Rules {
    name: "core/link",
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
    reach: Reach::Folder,
    // Each belongs to one part: a sink as a receiver, a kind of link that has errors.
    records: &["Errors", "Unplanned"],
};

const PORTOLAN: Rules = Rules {
    name: "core/portolan",
    floors: &[
        "canary",
        "clock",
        "address",
        "admission",
        "atomic",
        "collective",
        "settings",
        "launch",
        "error",
        "region",
        "status",
        "pool",
        "buffer",
        "checksum",
        "seal",
        "model",
        "raw",
        "ops",
        "unexpected",
        "fragments",
        "liveness",
        "streams",
        "links",
        "directory",
        "meeting",
        "table",
        "port",
        "multicast",
        "engine",
        "start",
        "simulated",
        "node",
        "endpoint",
        "binding",
    ],
    reach: Reach::Folder,
    records: &[
        // The engine's calls operate on these; both keep their own state private.
        "Engine.inner",
        "Inner.core",
        "Inner.ops",
        "Answer",
        "Call",
        "Candidate",
        "Ended",
        "Fresh",
        "Head",
        "Id",
        "Message",
        "Network",
        "Pair",
        "PlainRecv",
        "RawClaim",
        "RawOp",
        "Request",
        "Taken",
        "Usable",
    ],
};

const FABRIC: Rules = Rules {
    name: "interfaces/fabric",
    floors: &[
        "abi",
        "errno",
        "unsupported",
        "lock",
        "idle",
        "sockaddr",
        "wake",
        "offer",
        "provider_info",
        "cm",
        "state",
        "object",
        "av",
        "cntr",
        "cq",
        "eq",
        "mr",
        "pep",
        "ep",
        "domain",
        "fabric",
        "getinfo",
        "provider",
    ],
    reach: Reach::File,
    records: &[
        "Buffer", "Entry", "Errno", "Failure", "Frame", "Hints", "List", "Lookup", "Mismatch",
        "Offer",
    ],
};

#[test]
fn module_imports_point_in_one_direction() {
    for rules in CRATES {
        let back = rules.imports_back(&Sources::read(rules.name));
        assert!(back.is_empty(), "{}:\n{}", rules.name, back.join("\n"));
    }
}

#[test]
fn state_is_private_to_its_owner() {
    for rules in CRATES {
        let open = rules.open_state(&Sources::read(rules.name));
        assert!(open.is_empty(), "{}: others reach {open:?}", rules.name);
    }
}

#[test]
fn listed_exceptions_exist() {
    for rules in CRATES {
        let open = Sources::read(rules.name).open_fields(rules.reach);
        let is_there = |listed: &&str| {
            open.iter()
                .any(|(name, field)| match listed.split_once('.') {
                    Some(listed) => listed == (name, field),
                    None => listed == name,
                })
        };
        let gone: Vec<_> = rules
            .records
            .iter()
            .filter(|name| !is_there(name))
            .collect();
        assert!(gone.is_empty(), "{}: gone: {gone:?}", rules.name);
    }
}

impl Rules {
    /// Returns a sentence for each import in the wrong direction.
    fn imports_back(&self, sources: &Sources) -> Vec<String> {
        let floor_of = |folder: &str| {
            let floor = self.floors.iter().position(|name| *name == folder);
            floor.unwrap_or_else(|| panic!("{}: on which floor is {folder}?", self.name))
        };
        let arrows = sources.arrows().into_iter();
        arrows
            .filter(|((from, to), _)| floor_of(from) <= floor_of(to))
            .map(|((from, to), example)| format!("{from} imports {to}: {example}"))
            .collect()
    }

    /// Returns structures and fields with a state that is open to other modules.
    fn open_state(&self, sources: &Sources) -> Vec<(String, String)> {
        let is_listed = |name: &str, field: &str| {
            let field = format!("{name}.{field}");
            self.records
                .iter()
                .any(|listed| *listed == name || *listed == field)
        };
        let open = sources.open_fields(self.reach).into_iter();
        open.filter(|(name, field)| !is_listed(name, field))
            .collect()
    }
}

/// One file: its folder, the number of modules below the folder's own, its contents.
struct Source {
    folder: String,
    depth: usize,
    file: PathBuf,
    tree: syn::File,
}

/// All files of a crate, except test modules.
struct Sources {
    files: Vec<Source>,
    /// Names that the crate's root exports, and the folder that each comes from.
    exports: BTreeMap<String, String>,
}

impl Sources {
    fn read(name: &str) -> Sources {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
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

    /// Reads the module `name` with its file in `dir`, and the modules below it.
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

    /// Returns which folder imports which, with an example of each.
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

    /// Returns fields of structures that are more visible than `reach`. C layouts, in the folder
    /// `abi`, are left out: they are a contract with other programs.
    fn open_fields(&self, reach: Reach) -> Vec<(String, String)> {
        let mut open = Vec::new();
        for source in self.files.iter().filter(|source| source.folder != "abi") {
            for item in &source.tree.items {
                let Item::Struct(item) = item else { continue };
                let is_exported = matches!(item.vis, Visibility::Public(_));
                for (index, field) in item.fields.iter().enumerate() {
                    let is_open = match &field.vis {
                        Visibility::Restricted(to) => {
                            // The parent of a file in a folder is in the folder.
                            let is_within = source.depth > 0 && to.path.is_ident("super");
                            reach == Reach::File || !is_within
                        }
                        Visibility::Public(_) => !is_exported,
                        Visibility::Inherited => false,
                    };
                    if is_open {
                        let name = field
                            .ident
                            .as_ref()
                            .map_or(index.to_string(), ToString::to_string);
                        open.push((item.ident.to_string(), name));
                    }
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

/// Returns every path that a `use` contains.
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

/// Collects the first names after `crate::`, or after as many `super::`, wherever they occur.
struct Names {
    /// Number of modules between the crate's root and this one.
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
fn imports_are_found_in_any_position() {
    let source = "use crate::{d::Y, e}; use super::{f::Z, super::g}; \
                  fn f() { crate::b::g(); matches!(x, crate::c::X) }";
    let mut names = Names {
        depth: 1,
        of_crate: BTreeSet::new(),
    };
    names.visit_file(&syn::parse_str(source).unwrap());
    assert_eq!(Vec::from_iter(names.of_crate), ["b", "c", "d", "e", "g"]);
}

/// Returns a crate of two folders, `low` and `high`, to test the checker itself.
fn sample(low: &str, high: &str, deep: &str) -> Sources {
    let source = |folder: &str, depth: usize, text: &str| Source {
        folder: folder.to_string(),
        depth,
        file: PathBuf::from(format!("{folder}.rs")),
        tree: syn::parse_str(text).expect("a sample is Rust"),
    };
    Sources {
        files: vec![
            source("low", 0, low),
            source("high", 0, high),
            source("high", 1, deep),
        ],
        exports: BTreeMap::new(),
    }
}

const SAMPLE: Rules = Rules {
    name: "sample",
    floors: &["low", "high"],
    reach: Reach::Folder,
    records: &["Record", "Pair.owner"],
};

#[test]
fn backward_import_is_found() {
    let arrow = |low: &str| SAMPLE.imports_back(&sample(low, "use crate::low::X;", ""));
    assert_eq!(arrow("use std::fmt;"), Vec::<String>::new());
    let back = ["low imports high: low.rs names crate::high"];
    assert_eq!(arrow("use crate::high::Y;"), back);
    assert_eq!(arrow("fn f() -> crate::high::Y { g() }"), back);
    assert_eq!(
        arrow("#[cfg(test)] mod tests { use crate::high::Y; }").len(),
        0
    );
}

#[test]
fn public_state_is_found() {
    let open = |low: &str, deep: &str| {
        let found = SAMPLE.open_state(&sample(low, "", deep)).into_iter();
        found
            .map(|(name, field)| format!("{name}.{field}"))
            .collect::<Vec<_>>()
    };
    let empty = Vec::<String>::new();
    assert_eq!(open("pub(crate) struct Owner { count: u32 }", ""), empty);
    assert_eq!(
        open("struct Owner { pub(crate) count: u32, kept: u8 }", ""),
        ["Owner.count"]
    );
    assert_eq!(open("pub(crate) struct Owner(pub u32);", ""), ["Owner.0"]);
    assert_eq!(open("pub struct Config { pub count: u32 }", ""), empty);
    let in_abi = |folder: &str| {
        let mut sources = sample("struct Fid { pub(crate) count: u32 }", "", "");
        sources.files[0].folder = folder.to_string();
        SAMPLE.open_state(&sources).len()
    };
    assert_eq!((in_abi("abi"), in_abi("low")), (0, 1));
    assert_eq!(open("struct Record { pub(crate) count: u32 }", ""), empty);
    let pair = "struct Pair { pub(crate) owner: X, pub(crate) count: u32 }";
    assert_eq!(open(pair, ""), ["Pair.count"]);
    // Visible to the parent: within a folder, or outside of it.
    let parent = "struct Owner { pub(super) count: u32 }";
    assert_eq!(open("", parent), empty);
    assert_eq!(open(parent, ""), ["Owner.count"]);
    let strict = Rules {
        reach: Reach::File,
        ..SAMPLE
    };
    assert_eq!(strict.open_state(&sample("", "", parent)).len(), 1);
}
