//! Runs every model and program of the repository that has dynamic dimensions at many sizes.
//!
//! The sizes are the smallest and the next one, the largest, and those around powers of two.
//! `pkgtool compare --sizes` runs tract beside a reference engine where the test environment has
//! one, and otherwise beside a second tract session. So the test also covers that command.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pkgtool_engine::tensor::Signature;
use pkgtool_model::{self as model, Dim};

use crate::support::environment::{EnvironmentPiece, say};
use crate::support::run::pkgtool;

/// The folders searched for models.
const FOLDERS: [&str; 2] = ["tests/fixtures", "packages-examples"];
/// Folder of fixtures that are broken on purpose.
const BROKEN: &str = "tests/fixtures/rules";
/// Programs that do not declare which of their dimensions are dynamic. Some of the tried sizes are
/// invalid for them.
const VAGUE: [&str; 3] = ["dynamic_image", "dynamic_image_xnnpack", "dynamic_sizes"];
/// Folders of decoders, which run at a few sizes only. Their two dynamic dimensions would take
/// minutes at all sizes.
const DECODERS: [&str; 2] = ["tests/fixtures/decoders", "packages-examples/jackdaw"];
/// The sizes used for decoders.
const FEW: &str = "2,3";
/// Minimum number of models with dynamic dimensions.
const LEAST: usize = 30;

/// Collects all models below a folder: files, and folders that are Core ML models.
fn collect(folder: &Path, models: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("the folder can be read");
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        let extension = path.extension().and_then(|it| it.to_str());
        let is_model = matches!(extension, Some("onnx" | "pte" | "bpte" | "mlpackage"));
        if is_model {
            models.push(path);
        } else if path.is_dir() && !path.ends_with(BROKEN) {
            collect(&path, models);
        }
    }
}

/// Returns the methods with an input that has a dynamic dimension.
fn dynamic(path: &Path) -> Vec<String> {
    let Ok((info, _)) = model::open(path) else {
        return Vec::new();
    };
    let is_dynamic = |method: &&model::Method| {
        let Ok(signature) = Signature::of(method, None) else {
            return false;
        };
        let mut dims = signature
            .inputs
            .iter()
            .flat_map(|it| it.dims.iter().flatten());
        dims.any(|dim| matches!(dim, Dim::Dynamic { .. }))
    };
    let methods = info.methods.iter().filter(is_dynamic);
    methods.map(|method| method.name.clone()).collect()
}

/// Returns the engine with which tract is compared.
fn reference(path: &Path) -> &'static str {
    match path.extension().and_then(|it| it.to_str()) {
        Some("onnx") if EnvironmentPiece::Ort.path().is_some() => "ort",
        _ => "tract",
    }
}

/// Returns the failures at individual sizes, one line each; `None` if tract rejects the model.
fn sweep(path: &Path, method: &str) -> Option<Vec<String>> {
    let name = path.display().to_string();
    let engines = format!("{},tract", reference(path));
    let arguments = ["compare", &name, "--method", method, "--engine", &engines];
    let is_decoder = DECODERS.iter().any(|folder| name.contains(folder));
    let sizes = is_decoder.then_some(FEW).into_iter();
    let arguments = arguments
        .into_iter()
        .chain(["--json", "--sizes"])
        .chain(sizes);
    let ran = pkgtool(arguments).run();
    if ran.code == 2 {
        say(&format!(
            "{name} ({method}) is skipped: {}",
            ran.stderr.trim()
        ));
        return None;
    }
    let report = ran.json();
    let cases = report["cases"].as_array().expect("cases");
    assert!(!cases.is_empty(), "{name}: no sizes");
    // An ONNX model does not declare its valid sizes. A size that neither engine runs is invalid.
    let stem = path
        .file_stem()
        .and_then(|it| it.to_str())
        .unwrap_or_default();
    let is_open = path.extension().is_some_and(|it| it == "onnx") || VAGUE.contains(&stem);
    let mut told = Vec::new();
    for case in cases {
        let label = case["label"].as_str().unwrap_or_default();
        let skipped = case["skipped"].as_str().filter(|_| !is_open);
        let problem = case["failure"].as_str().or(skipped);
        let outputs = case["outputs"].as_array().into_iter().flatten();
        let differ = outputs.filter(|it| {
            it["violations"].as_array().is_some_and(|it| !it.is_empty())
                || it["incomparable"].is_string()
        });
        let differ = differ.map(|it| format!("output {} differs", it["name"]));
        let problems = problem.map(str::to_owned).into_iter().chain(differ);
        told.extend(problems.map(|it| format!("{name} ({method}) at {label}: {it}")));
    }
    Some(told)
}

#[test]
fn dynamic_models_run_at_all_their_sizes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut models = Vec::new();
    for folder in FOLDERS {
        collect(&root.join(folder), &mut models);
    }
    models.sort();
    let (mut swept, mut wrong) = (BTreeSet::new(), Vec::new());
    for path in &models {
        for method in dynamic(path) {
            if let Some(told) = sweep(path, &method) {
                swept.insert((path, method));
                wrong.extend(told);
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(swept.len() >= LEAST, "{} methods", swept.len());
}
