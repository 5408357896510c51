//! The house rules that a compiler does not check: which layer may use which, what every source
//! file begins with, where features may be asked for, how large a file may grow.

mod imports;
mod names;
mod prose;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::support::files;
use imports::Imports;

/// The crates, and the crates of this workspace that each may use. The binary uses them all.
const CRATES: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("model", &["base"]),
    ("kernels", &[]),
    ("check", &["base", "model"]),
    ("remote", &["base", "model"]),
    ("engine", &["base", "model", "kernels"]),
    ("media", &["base", "model", "engine"]),
    ("eval", &["media"]),
    ("text", &["base", "model", "engine"]),
    ("gate", &["base"]),
    (
        "serve",
        &["base", "model", "check", "engine", "gate", "media", "text"],
    ),
];

/// Folders of crates, and the folders of the same crate each may use: `engine/graph` is
/// `crates/engine/src/graph`, and `cli` is `src/cli`. The folders above are not listed: a folder may
/// use the files beside it, unless these use the folder.
const FOLDERS: &[(&str, &[&str])] = &[
    ("base/diagnostic", &["base/source"]),
    ("base/diagnostic/render", &[]),
    ("base/git", &["base/source", "base/package"]),
    ("base/package", &["base/source", "base/diagnostic"]),
    ("base/source", &[]),
    ("check/author", &["check/validate", "check/policy"]),
    ("check/author/init", &[]),
    ("check/diff", &[]),
    ("check/diff/render", &[]),
    ("check/fix", &["check/validate", "check/policy"]),
    ("check/lsp", &["check/validate", "check/policy"]),
    ("check/lsp/completion", &[]),
    ("check/policy", &["check/validate"]),
    ("check/policy/read", &[]),
    ("check/validate", &[]),
    ("check/validate/rules", &["check/validate/signature"]),
    ("check/validate/schema", &[]),
    ("check/validate/signature", &[]),
    ("cli", &[]),
    ("cli/admin", &["cli/directory"]),
    ("cli/directory", &[]),
    ("cli/execute", &[]),
    ("cli/execute/answering", &[]),
    ("cli/execute/backends", &[]),
    ("cli/execute/bench", &["cli/execute/profile"]),
    ("cli/execute/chat", &["cli/execute/answering"]),
    ("cli/execute/compare", &["cli/execute/answering"]),
    ("cli/execute/compare/all", &[]),
    ("cli/execute/eval", &["cli/execute/answering"]),
    ("cli/execute/profile", &[]),
    (
        "cli/execute/run",
        &["cli/execute/answering", "cli/execute/profile"],
    ),
    ("cli/execute/run/answer", &[]),
    ("cli/fix", &[]),
    ("cli/init", &[]),
    ("cli/inspect", &[]),
    ("cli/remote", &["cli/directory"]),
    ("cli/serve", &[]),
    ("cli/serve/log", &[]),
    ("cli/validate", &["cli/fix"]),
    (
        "engine/executorch",
        &["engine/surroundings", "engine/tensor"],
    ),
    ("engine/frontends", &["engine/graph", "engine/tensor"]),
    ("engine/frontends/coreml", &[]),
    ("engine/frontends/mlx", &[]),
    ("engine/frontends/onnx", &[]),
    ("engine/frontends/onnx/attention", &[]),
    ("engine/frontends/onnx/exact", &[]),
    (
        "engine/frontends/onnx/fused",
        &["engine/frontends/onnx/attention"],
    ),
    ("engine/frontends/onnx/narrow", &[]),
    (
        "engine/frontends/onnx/operators",
        &[
            "engine/frontends/onnx/attention",
            "engine/frontends/onnx/narrow",
            "engine/frontends/onnx/recurrent",
        ],
    ),
    (
        "engine/frontends/onnx/quantised",
        &["engine/frontends/onnx/narrow"],
    ),
    ("engine/frontends/onnx/recurrent", &[]),
    (
        "engine/frontends/onnx/repair",
        &["engine/frontends/onnx/exact"],
    ),
    (
        "engine/frontends/portable",
        &[
            "engine/frontends/coreml",
            "engine/frontends/mlx",
            "engine/frontends/vulkan",
            "engine/frontends/xnnpack",
        ],
    ),
    ("engine/frontends/vulkan", &[]),
    ("engine/frontends/xnnpack", &[]),
    ("engine/graph", &["engine/tensor"]),
    ("engine/graph/corrections", &[]),
    ("engine/graph/fast", &[]),
    ("engine/graph/operators", &[]),
    ("engine/graph/recurrent", &["engine/graph/fast"]),
    ("engine/ort", &["engine/surroundings", "engine/tensor"]),
    ("engine/ort/known_wrong", &[]),
    ("engine/runtime", &["engine/surroundings", "engine/tensor"]),
    (
        "engine/runtime/device",
        &[
            "engine/runtime/device/describe",
            "engine/runtime/process",
            "engine/surroundings",
        ],
    ),
    ("engine/runtime/device/describe", &[]),
    (
        "engine/runtime/parsers",
        &["engine/runtime/process", "engine/runtime/process/sandbox"],
    ),
    (
        "engine/runtime/process",
        &["engine/runtime/process/sandbox"],
    ),
    ("engine/runtime/process/sandbox", &[]),
    (
        "engine/runtime/worker",
        &[
            "engine/runtime/device",
            "engine/runtime/process",
            "engine/runtime/process/sandbox",
        ],
    ),
    ("engine/surroundings", &[]),
    ("engine/tensor", &[]),
    ("engine/tensor/input", &["engine/tensor/npy"]),
    ("engine/tensor/npy", &[]),
    (
        "engine/tract",
        &["engine/frontends", "engine/graph", "engine/tensor"],
    ),
    ("eval/dataset", &[]),
    ("eval/measure", &["eval/dataset"]),
    ("gate/host", &["gate/instance"]),
    ("gate/instance", &[]),
    ("kernels/bytes", &[]),
    ("kernels/float", &[]),
    ("kernels/float/attention", &[]),
    ("kernels/rows", &[]),
    ("media/answer", &["media/picture", "media/sound"]),
    ("media/diffusion", &["media/answer"]),
    ("media/draw", &["media/answer"]),
    (
        "media/operators",
        &[
            "media/answer",
            "media/diffusion",
            "media/picture",
            "media/sound",
            "media/voice",
        ],
    ),
    ("media/picture", &[]),
    (
        "media/recipe",
        &[
            "media/answer",
            "media/diffusion",
            "media/operators",
            "media/picture",
            "media/sound",
            "media/speech",
            "media/voice",
        ],
    ),
    ("media/sound", &[]),
    ("media/speech", &["media/answer", "media/sound"]),
    ("media/voice", &[]),
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
    ("remote/pull", &[]),
    (
        "serve/attach",
        &[
            "serve/service",
            "serve/task",
            "serve/train",
            "serve/account",
            "serve/database",
            "serve/package",
        ],
    ),
    ("serve/account", &["serve/database"]),
    ("serve/batch", &["serve/database", "serve/account"]),
    ("serve/client", &[]),
    ("serve/database", &[]),
    ("serve/database/postgres", &["serve/database/sql"]),
    ("serve/database/sql", &[]),
    ("serve/database/sqlite", &["serve/database/sql"]),
    (
        "serve/gateway",
        &[
            "serve/metric",
            "serve/database",
            "serve/account",
            "serve/service",
            "serve/train",
            "serve/batch",
            "serve/webhook",
            "serve/task",
            "serve/worker",
            "serve/objects",
        ],
    ),
    ("serve/gateway/batches", &["serve/gateway/routes"]),
    ("serve/gateway/metrics", &[]),
    ("serve/gateway/routes", &["serve/gateway/metrics"]),
    ("serve/gateway/routes/adapters", &[]),
    ("serve/gateway/routes/adapters/responses", &[]),
    (
        "serve/gateway/routes/console",
        &["serve/gateway/routes/tasks"],
    ),
    ("serve/gateway/routes/tasks", &[]),
    ("serve/gateway/settings", &[]),
    ("serve/metric", &[]),
    ("serve/objects", &["serve/database"]),
    (
        "serve/package",
        &[
            "serve/database",
            "serve/account",
            "serve/objects",
            "serve/service",
        ],
    ),
    (
        "serve/service",
        &["serve/metric", "serve/database", "serve/account"],
    ),
    ("serve/service/attached", &[]),
    (
        "serve/service/catalog",
        &[
            "serve/service/attached",
            "serve/service/device",
            "serve/service/engine",
        ],
    ),
    (
        "serve/service/device",
        &[
            "serve/service/attached",
            "serve/service/engine",
            "serve/service/media",
            "serve/service/tensors",
            "serve/service/text",
            "serve/service/texts",
        ],
    ),
    ("serve/service/engine", &[]),
    ("serve/service/media", &["serve/service/tensors"]),
    ("serve/service/tensors", &[]),
    (
        "serve/service/text",
        &["serve/service/engine", "serve/service/media"],
    ),
    ("serve/service/texts", &[]),
    ("serve/service/upstream", &[]),
    (
        "serve/task",
        &[
            "serve/metric",
            "serve/database",
            "serve/account",
            "serve/service",
            "serve/train",
            "serve/batch",
            "serve/webhook",
            "serve/objects",
            "serve/package",
        ],
    ),
    ("serve/task/postgres", &[]),
    ("serve/task/queue", &[]),
    ("serve/task/sqlite", &[]),
    (
        "serve/train",
        &[
            "serve/database",
            "serve/account",
            "serve/package",
            "serve/service",
        ],
    ),
    ("serve/train/classifier", &[]),
    ("serve/train/dataset", &[]),
    ("serve/train/package", &["serve/train/classifier"]),
    ("serve/train/store", &["serve/train/dataset"]),
    ("serve/webhook", &["serve/database", "serve/account"]),
    (
        "serve/worker",
        &[
            "serve/database",
            "serve/account",
            "serve/package",
            "serve/service",
        ],
    ),
    ("text/answer", &[]),
    ("text/chat", &["text/template"]),
    ("text/constraint", &[]),
    ("text/decoder", &[]),
    ("text/embedding", &["text/tokenizer"]),
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
    ("text/template", &[]),
    ("text/tokenizer", &[]),
];

/// The crate of helpers for tests, which the sources do not use.
const TESTING: &str = "testing";

/// Longest source file, in lines.
const MAX_LINES: usize = 600;

/// Folder and file names that say nothing of what is in them.
const NO_NAMES: &[&str] = &["utils", "common", "helpers", "core", "types", "errors"];

struct SourceFile {
    path: PathBuf,
    text: String,
}

/// The folders of sources, with the file that each crate begins with. The binary's name is empty.
fn roots() -> Vec<(&'static str, PathBuf, &'static str)> {
    let of = |&(name, _): &(&'static str, _)| (name, crate_folder(name).join("src"), "lib.rs");
    let mut roots: Vec<_> = CRATES.iter().map(of).collect();
    roots.push(("", files::root().join("src"), "main.rs"));
    roots
}

fn crate_folder(name: &str) -> PathBuf {
    files::root().join("crates").join(name)
}

fn sources() -> Vec<SourceFile> {
    let mut files = Vec::new();
    for (name, root, _) in roots() {
        files.extend(
            files::below(&root, "rs")
                .into_iter()
                .map(|path| SourceFile {
                    text: fs::read_to_string(&path).expect("a source file is text"),
                    path: Path::new(name)
                        .join(path.strip_prefix(&root).expect("it is below the root")),
                }),
        );
    }
    assert!(files.len() > 50, "the walk finds the sources");
    files
}

/// Returns the crates of this workspace among the dependencies in a `Cargo.toml`, without those of
/// its tests.
fn own_dependencies(folder: &Path) -> BTreeSet<String> {
    let path = folder.join("Cargo.toml");
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let manifest: toml::Table = text.parse().expect("Cargo reads it");
    let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
    let names = dependencies.into_iter().flat_map(toml::Table::keys);
    names
        .filter_map(|name| name.strip_prefix("pkgtool-").map(str::to_owned))
        .collect()
}

#[test]
fn crates_only_look_down() {
    for (name, allowed) in CRATES {
        let used = own_dependencies(&crate_folder(name));
        let allowed: BTreeSet<String> = allowed.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(used, allowed, "crates/{name}/Cargo.toml");
    }
}

#[test]
fn every_crate_has_a_row() {
    let entries = fs::read_dir(files::root().join("crates")).expect("a folder");
    let found: BTreeSet<String> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("a name")
        })
        .filter(|name| name != TESTING)
        .collect();
    let rows: BTreeSet<String> = CRATES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, rows);
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
        .find(|file| file.path == Path::new("main.rs"))
        .expect("there is a main.rs");
    assert!(main.text.lines().count() <= 25);
}

/// The imports of each crate, read once. Paths begin with the crate's name.
fn imports() -> &'static [Imports] {
    static IMPORTS: OnceLock<Vec<Imports>> = OnceLock::new();
    IMPORTS.get_or_init(|| {
        let of = |(name, root, head): (&str, PathBuf, &str)| {
            let mut imports = Imports::of(&root, head);
            for file in &mut imports.files {
                *file = Path::new(name).join(&*file);
            }
            imports
        };
        roots().into_iter().map(of).collect()
    })
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
    ["mod.rs", "lib.rs", "main.rs"]
        .iter()
        .any(|name| file.ends_with(name))
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    for imports in imports() {
        let circles = imports.circles();
        assert!(circles.is_empty(), "{circles:#?}");
    }
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

#[test]
fn a_circle_through_macros_is_seen() {
    let by_path =
        "macro_rules! module { ($name:ident) => { pub mod $name { crate::a::make!(); } } }
                   module!(made);";
    let in_scope = "make!();";
    for (scope, b) in [("", by_path), ("#[macro_use]", in_scope)] {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name, text: String| fs::write(folder.path().join(name), text).expect("a file");
        write("lib.rs", format!("{scope} mod a;\nmod b;"));
        let a = "use super::b;\nmacro_rules! make { () => { pub fn of() {} } }\n\
                 pub(super) use make;\nfn user() { b::made::of() }";
        write("a.rs", a.to_owned());
        write("b.rs", b.to_owned());
        let imports = Imports::of(folder.path(), "lib.rs");
        assert_eq!(imports.circles(), [["a.rs", "b.rs"].map(Path::new)], "{b}");
    }
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
fn folders_inside_a_crate_only_look_down() {
    let mut wrong = BTreeSet::new();
    for (folder, arrows) in imports().iter().flat_map(neighbours) {
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
        for (a, b) in arrows.iter().filter(|(a, b)| is_folder(a) && is_folder(b)) {
            let row = FOLDERS.iter().find(|(name, _)| Path::new(name) == a);
            let (_, allowed) = row.unwrap_or_else(|| panic!("{}: no row", a.display()));
            if !allowed.iter().any(|name| Path::new(name) == b) {
                wrong.insert(format!("{} may not use {}", a.display(), b.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn is_folder(name: &Path) -> bool {
    name.extension().is_none()
}

#[test]
fn every_folder_has_a_row_and_every_row_a_folder() {
    let files = imports().iter().flat_map(|imports| &imports.files);
    let folders = files.filter_map(|file| file.parent());
    let is_crate = |folder: &Path| CRATES.iter().any(|(name, _)| Path::new(name) == folder);
    let inner = folders.filter(|it| !it.as_os_str().is_empty() && !is_crate(it));
    let inner: BTreeSet<&Path> = inner.collect();
    let rows: BTreeSet<&Path> = FOLDERS.iter().map(|(name, _)| Path::new(name)).collect();
    assert_eq!(inner, rows);
}
