//! The house rules that a compiler does not check: which layer may use which, what every source
//! file begins with, where features may be asked for, how large a file may grow.

mod imports;

use std::fs;
use std::path::{Path, PathBuf};

use imports::Imports;

/// Layers and the layers each may use. A layer that is not built yet has no folder and no row.
const ARROWS: &[(&str, &[&str])] = &[
    ("source", &[]),
    ("diagnostic", &["source"]),
    ("package", &["source", "diagnostic"]),
    ("model", &["source", "diagnostic", "package"]),
    ("validate", &["source", "diagnostic", "package", "model"]),
    ("runtime", &["source", "diagnostic", "package", "model"]),
    ("database", &[]),
    ("account", &["database"]),
    (
        "service",
        &[
            "source",
            "diagnostic",
            "package",
            "model",
            "validate",
            "runtime",
            "database",
            "account",
        ],
    ),
    ("task", &["database", "account", "service"]),
    (
        "gateway",
        &["runtime", "database", "account", "service", "task"],
    ),
    ("client", &["package"]),
    (
        "cli",
        &[
            "source",
            "diagnostic",
            "package",
            "model",
            "validate",
            "runtime",
            "database",
            "account",
            "service",
            "task",
            "gateway",
            "client",
        ],
    ),
];

/// Longest source file, in lines.
const MAX_LINES: usize = 600;

/// Folder and file names that say nothing of what is in them.
const NO_NAMES: &[&str] = &["utils", "common", "helpers", "core", "types", "errors"];

struct SourceFile {
    path: PathBuf,
    layer: String,
    text: String,
}

fn sources() -> Vec<SourceFile> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    let mut directories = vec![root.clone()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("src can be listed") {
            let path = entry.expect("src can be listed").path();
            if path.is_dir() {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let below = path.strip_prefix(&root).expect("it is below src");
                let first = below.components().next().expect("it has a name");
                files.push(SourceFile {
                    layer: first.as_os_str().to_string_lossy().into_owned(),
                    text: fs::read_to_string(&path).expect("a source file is text"),
                    path: below.to_owned(),
                });
            }
        }
    }
    assert!(files.len() > 50, "the walk finds the sources");
    files
}

fn is_layer(file: &SourceFile) -> bool {
    !["lib.rs", "main.rs"].contains(&file.layer.as_str())
}

/// The top-level modules that a text names by `crate::…` or `pkgtool::…`.
fn used_layers(text: &str) -> Vec<String> {
    let mut used = Vec::new();
    for prefix in ["crate::", "pkgtool::"] {
        for (at, _) in text.match_indices(prefix) {
            let rest = &text[at + prefix.len()..];
            let names = match rest.strip_prefix('{') {
                Some(group) => group.split('}').next().unwrap_or_default(),
                None => rest,
            };
            for name in names.split(',') {
                let name = name.trim();
                let end = name
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .unwrap_or(name.len());
                used.push(name[..end].to_owned());
                if !rest.starts_with('{') {
                    break;
                }
            }
        }
    }
    used
}

#[test]
fn layers_only_look_down() {
    for file in sources().iter().filter(|file| is_layer(file)) {
        let path = file.path.display();
        let row = ARROWS.iter().find(|(layer, _)| *layer == file.layer);
        let (_, allowed) = row.unwrap_or_else(|| panic!("{path}: no row for its layer"));
        for used in used_layers(&file.text) {
            let is_layer = ARROWS.iter().any(|(layer, _)| *layer == used);
            assert!(
                !is_layer || used == file.layer || allowed.contains(&used.as_str()),
                "{path}: `{}` may not use `{used}`",
                file.layer
            );
        }
        let depth = file.path.components().count();
        let climbs = "super::".repeat(depth);
        assert!(
            !file.text.contains(&climbs),
            "{path}: `{climbs}` climbs out of its layer"
        );
    }
}

#[test]
fn the_arrow_test_sees_arrows() {
    assert_eq!(
        used_layers("use crate::model::X; use crate::{cli, source::Span};"),
        ["model", "cli", "source"]
    );
}

#[test]
fn every_file_says_what_it_owns() {
    for file in sources() {
        let path = file.path.display();
        let header = file.text.starts_with("//! ") || file.text.starts_with("#![doc = ");
        assert!(header, "{path}: no `//!` header");
        let lines = file.text.lines().count();
        assert!(lines <= MAX_LINES, "{path}: {lines} lines");
        for name in NO_NAMES {
            let mut parts = file.path.components();
            let says_nothing = parts.any(|part| {
                let part = part.as_os_str().to_string_lossy();
                part == *name || part == format!("{name}.rs")
            });
            assert!(!says_nothing, "{path}: `{name}` says nothing");
        }
    }
}

#[test]
fn features_switch_whole_modules() {
    for file in sources() {
        let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate() {
            if line.contains("cfg(") && line.contains("feature") {
                // A `#[path]` may stand between: what a module is without its feature.
                let mut below = lines[number + 1..].iter().copied();
                let next = below.find(|line| !line.starts_with("#[path"));
                let next = next.unwrap_or_default();
                let on_mod = next.starts_with("mod ") || next.starts_with("pub mod ");
                let path = file.path.display();
                assert!(on_mod, "{path}:{}: a feature inside a module", number + 1);
            }
        }
    }
}

#[test]
fn main_stays_small() {
    let main = sources()
        .into_iter()
        .find(|file| file.layer == "main.rs")
        .expect("there is a main.rs");
    assert!(main.text.lines().count() <= 25);
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let imports = Imports::of(&root);
    let circles = imports.circles();
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn debug_folders() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let imports = Imports::of(&root);
    let mut set = std::collections::BTreeSet::new();
    for (at, used) in imports.used.iter().enumerate() {
        for other in used {
            let (a, b) = (&imports.files[at], &imports.files[*other]);
            if a.ends_with("mod.rs") && b.starts_with(a.parent().unwrap()) {
                continue;
            }
            let key = |p: &Path| {
                let d = p.parent().unwrap().to_string_lossy().into_owned();
                d
            };
            let (da, db) = (key(a), key(b));
            let la = da.split('/').next().unwrap().to_owned();
            let lb = db.split('/').next().unwrap().to_owned();
            if la == lb && da != db {
                eprintln!("F {} -> {}", a.display(), b.display());
                set.insert((da, db));
            }
        }
    }
    for (a, b) in set {
        eprintln!("E {a} -> {b}");
    }
}
