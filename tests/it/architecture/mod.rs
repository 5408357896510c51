//! The house rules that a compiler does not check: which layer may use which, what every source
//! file begins with, where features may be asked for, how large a file may grow.

mod imports;
mod prose;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::support::files;
use imports::Imports;

/// Layers and the layers each may use. A layer that is not built yet has no folder and no row.
const ARROWS: &[(&str, &[&str])] = &[
    ("source", &[]),
    ("diagnostic", &["source"]),
    ("package", &["source", "diagnostic"]),
    ("model", &["source", "diagnostic", "package"]),
    ("validate", &["source", "diagnostic", "package", "model"]),
    (
        "author",
        &[
            "source",
            "diagnostic",
            "package",
            "model",
            "validate",
            "policy",
        ],
    ),
    (
        "fix",
        &[
            "source",
            "diagnostic",
            "package",
            "model",
            "validate",
            "policy",
        ],
    ),
    ("git", &["source", "package"]),
    ("diff", &["source", "package", "model", "git"]),
    ("remote", &["source", "package", "model"]),
    (
        "policy",
        &[
            "source",
            "diagnostic",
            "package",
            "model",
            "validate",
            "git",
        ],
    ),
    (
        "lsp",
        &[
            "source",
            "diagnostic",
            "package",
            "model",
            "validate",
            "policy",
        ],
    ),
    ("tensor", &["source", "diagnostic", "package", "model"]),
    ("kernels", &[]),
    (
        "engine",
        &[
            "source",
            "diagnostic",
            "package",
            "model",
            "tensor",
            "kernels",
        ],
    ),
    (
        "runtime",
        &[
            "source",
            "diagnostic",
            "package",
            "model",
            "tensor",
            "engine",
        ],
    ),
    (
        "text",
        &[
            "source",
            "diagnostic",
            "package",
            "model",
            "tensor",
            "engine",
            "runtime",
        ],
    ),
    ("metric", &[]),
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
            "policy",
            "tensor",
            "engine",
            "runtime",
            "text",
            "metric",
            "database",
            "account",
        ],
    ),
    (
        "train",
        &[
            "source", "package", "model", "text", "database", "account", "service",
        ],
    ),
    ("task", &["database", "account", "service", "train"]),
    (
        "gateway",
        &[
            "source", "tensor", "engine", "runtime", "text", "metric", "database", "account",
            "service", "train", "task",
        ],
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
            "fix",
            "author",
            "git",
            "diff",
            "remote",
            "lsp",
            "policy",
            "tensor",
            "engine",
            "runtime",
            "text",
            "database",
            "account",
            "service",
            "train",
            "task",
            "gateway",
            "client",
        ],
    ),
];

/// Folders inside layers, and the folders of the same layer each may use. What stands above it is not
/// named here: a folder may use the files beside it, unless these use the folder.
const INSIDE: &[(&str, &[&str])] = &[
    ("author/init", &[]),
    ("cli/admin", &["cli/directory"]),
    ("cli/directory", &[]),
    ("cli/execute", &[]),
    ("cli/execute/backends", &[]),
    ("cli/execute/bench", &[]),
    ("cli/execute/chat", &[]),
    ("cli/execute/compare", &[]),
    ("cli/execute/compare/all", &[]),
    ("cli/execute/run", &[]),
    ("cli/fix", &[]),
    ("cli/init", &[]),
    ("cli/inspect", &[]),
    ("cli/remote", &[]),
    ("cli/serve", &[]),
    ("cli/serve/log", &[]),
    ("cli/validate", &["cli/fix"]),
    ("database/sqlite", &[]),
    ("diagnostic/render", &[]),
    ("diff/render", &[]),
    ("engine/executorch", &["engine/surroundings"]),
    ("engine/ort", &["engine/surroundings"]),
    ("engine/ort/known_wrong", &[]),
    ("engine/surroundings", &[]),
    ("engine/tract", &[]),
    ("engine/tract/exact", &[]),
    ("engine/tract/fast", &[]),
    (
        "engine/tract/operators",
        &["engine/tract/exact", "engine/tract/recurrent"],
    ),
    ("engine/tract/program", &["engine/tract/exact"]),
    ("engine/tract/program/operators", &[]),
    (
        "engine/tract/program/coreml",
        &["engine/tract/program/operators"],
    ),
    (
        "engine/tract/program/mlx",
        &["engine/tract/program/operators"],
    ),
    (
        "engine/tract/program/vulkan",
        &["engine/tract/program/operators"],
    ),
    (
        "engine/tract/program/xnnpack",
        &["engine/tract/program/operators"],
    ),
    ("engine/tract/quantised", &["engine/tract/operators"]),
    ("engine/tract/recurrent", &["engine/tract/fast"]),
    ("engine/tract/repair", &["engine/tract/exact"]),
    ("gateway/metrics", &[]),
    ("gateway/routes", &["gateway/metrics"]),
    ("gateway/routes/adapters", &[]),
    ("gateway/routes/tasks", &[]),
    ("gateway/settings", &[]),
    ("kernels/bytes", &[]),
    ("kernels/float", &[]),
    ("kernels/rows", &[]),
    ("lsp/completion", &[]),
    ("model/coreml", &["model/executorch"]),
    ("model/executorch", &[]),
    ("model/executorch/body", &["model/executorch/xnnpack"]),
    ("model/executorch/coreml", &[]),
    (
        "model/executorch/delegate",
        &[
            "model/executorch/coreml",
            "model/executorch/mlx",
            "model/executorch/vulkan",
            "model/executorch/xnnpack",
        ],
    ),
    ("model/executorch/load", &["model/executorch/delegate"]),
    ("model/executorch/mlx", &[]),
    ("model/executorch/qnn", &[]),
    ("model/executorch/vulkan", &[]),
    ("model/executorch/xnnpack", &[]),
    ("model/gguf", &[]),
    ("model/onnx", &[]),
    ("model/onnx/load", &[]),
    ("model/qnn", &["model/executorch"]),
    ("model/safetensors", &[]),
    ("model/tflite", &["model/executorch"]),
    ("policy/read", &[]),
    (
        "runtime/parsers",
        &["runtime/process", "runtime/process/sandbox"],
    ),
    ("runtime/process", &["runtime/process/sandbox"]),
    ("runtime/process/sandbox", &[]),
    (
        "runtime/worker",
        &["runtime/process", "runtime/process/sandbox"],
    ),
    ("remote/pull", &[]),
    ("service/catalog", &["service/device", "service/engine"]),
    (
        "service/device",
        &[
            "service/engine",
            "service/tensors",
            "service/text",
            "service/texts",
        ],
    ),
    ("service/engine", &[]),
    ("service/text", &["service/engine"]),
    ("service/tensors", &[]),
    ("service/texts", &[]),
    ("service/upstream", &[]),
    ("task/queue", &[]),
    ("task/sqlite", &[]),
    ("tensor/input", &["tensor/npy"]),
    ("tensor/npy", &[]),
    ("text/embedding", &["text/tokenizer"]),
    ("text/tokenizer", &[]),
    ("text/answer", &[]),
    ("text/constraint", &[]),
    ("text/decoder", &[]),
    (
        "text/generation",
        &[
            "text/answer",
            "text/constraint",
            "text/decoder",
            "text/sampling",
        ],
    ),
    (
        "text/model",
        &[
            "text/answer",
            "text/chat",
            "text/constraint",
            "text/decoder",
            "text/generation",
            "text/sampling",
            "text/template",
            "text/tokenizer",
        ],
    ),
    ("text/sampling", &[]),
    ("text/chat", &["text/template"]),
    ("text/template", &[]),
    ("train/classifier", &[]),
    ("train/dataset", &[]),
    ("train/package", &["train/classifier"]),
    ("train/store", &["train/dataset"]),
    ("validate/rules", &["validate/signature"]),
    ("validate/schema", &[]),
    ("validate/signature", &[]),
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
    let root = files::root().join("src");
    let source = |path: PathBuf| {
        let below = path.strip_prefix(&root).expect("it is below src");
        let first = below.components().next().expect("it has a name");
        SourceFile {
            layer: first.as_os_str().to_string_lossy().into_owned(),
            text: fs::read_to_string(&path).expect("a source file is text"),
            path: below.to_owned(),
        }
    };
    let files: Vec<SourceFile> = files::below(&root, "rs").into_iter().map(source).collect();
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

/// Those of this crate, read once.
fn imports() -> &'static Imports {
    static IMPORTS: OnceLock<Imports> = OnceLock::new();
    IMPORTS.get_or_init(|| Imports::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")))
}

/// Two files as what stands for them in the folder where their paths part.
fn parted<'p>(from: &'p Path, to: &'p Path) -> (PathBuf, PathBuf, PathBuf) {
    let mut folder = PathBuf::new();
    let mut pairs = from.components().zip(to.components());
    loop {
        match pairs.next() {
            Some((a, b)) if a == b => folder.push(a),
            Some((a, b)) => return (folder.clone(), folder.join(a), folder.join(b)),
            None => panic!("{} is {}", from.display(), to.display()),
        }
    }
}

fn is_head(file: &Path) -> bool {
    ["mod.rs", "lib.rs"].iter().any(|name| file.ends_with(name))
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let circles = imports().circles();
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn a_circle_is_seen() {
    let files = ["a.rs", "b.rs", "c.rs", "d.rs"];
    let used: [&[usize]; 4] = [&[1], &[2], &[0, 3], &[]];
    let imports = Imports {
        files: files.map(PathBuf::from).to_vec(),
        used: used.map(|used| used.iter().copied().collect()).to_vec(),
    };
    assert_eq!(imports.circles(), [["a.rs", "b.rs", "c.rs"].map(Path::new)]);
}

/// What uses what among the files and folders of each folder, each folder as a whole.
fn neighbours(imports: &Imports) -> BTreeMap<PathBuf, BTreeSet<(PathBuf, PathBuf)>> {
    let mut neighbours: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (from, used) in imports.files.iter().zip(&imports.used) {
        for to in used.iter().map(|to| &imports.files[*to]) {
            let (folder, a, b) = parted(from, to);
            if !is_head(&a) && !is_head(&b) {
                neighbours.entry(folder).or_default().insert((a, b));
            }
        }
    }
    neighbours
}

#[test]
fn folders_inside_a_layer_only_look_down() {
    let imports = imports();
    for (folder, arrows) in neighbours(imports) {
        let names: BTreeSet<&PathBuf> = arrows.iter().flat_map(|(a, b)| [a, b]).collect();
        let names: Vec<&PathBuf> = names.into_iter().collect();
        let place = |name: &PathBuf| names.iter().position(|known| *known == name);
        let mut used = vec![BTreeSet::new(); names.len()];
        for (a, b) in &arrows {
            used[place(a).expect("it is named")].insert(place(b).expect("it is named"));
        }
        let whole = Imports {
            files: names.iter().map(|name| (*name).clone()).collect(),
            used,
        };
        let circles = whole.circles();
        assert!(circles.is_empty(), "{}: {circles:#?}", folder.display());
        if folder.as_os_str().is_empty() {
            continue;
        }
        for (a, b) in arrows.iter().filter(|(a, b)| is_folder(a) && is_folder(b)) {
            let row = INSIDE.iter().find(|(name, _)| Path::new(name) == a);
            let (_, allowed) = row.unwrap_or_else(|| panic!("{}: no row", a.display()));
            let is_allowed = allowed.iter().any(|name| Path::new(name) == b);
            assert!(is_allowed, "{} may not use {}", a.display(), b.display());
        }
    }
}

fn is_folder(name: &Path) -> bool {
    name.extension().is_none()
}

#[test]
fn every_folder_has_a_row_and_every_row_a_folder() {
    let imports = imports();
    let folders = imports.files.iter().filter_map(|file| file.parent());
    let inner: BTreeSet<&Path> = folders.filter(|it| it.components().count() > 1).collect();
    let rows: BTreeSet<&Path> = INSIDE.iter().map(|(name, _)| Path::new(name)).collect();
    assert_eq!(inner, rows);
}
