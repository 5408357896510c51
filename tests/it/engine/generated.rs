//! Cases made by `tests/generated`: single operators and small graphs, each run three times in one
//! session with other inputs, often of other shapes.
//!
//! Without more, a fixed seed's cases are made and run through both portable engines. With
//! `GENERATED_CASES` naming a directory, its cases are run instead, on the engines of
//! `GENERATED_ENGINES`, by the binary `GENERATED_BINARY`, and what came of each is written to
//! `outcomes.json` there: `tests/generated/hunt.py` does that for an hour.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pkgtool::engine::LoadOptions;
use pkgtool::runtime::worker::Launcher;
use pkgtool::tensor::DType;
use serde_json::json;
use tempfile::TempDir;

use super::conformance::case::Case;
use super::conformance::outcome::{self, Outcome, Setting, Told};
use crate::support::environment::{Piece, say};

/// What CI runs.
const SEED: &str = "10";
const COUNT: &str = "500";
/// Longest time a load or a run may take.
const TIMEOUT: Duration = Duration::from_secs(20);

#[test]
fn generated_cases_are_answered_rightly() {
    if let Some(directory) = env::var_os("GENERATED_CASES") {
        hunt(Path::new(&directory));
        return;
    }
    if Piece::Cases.or_skip("generated cases").is_none() {
        return;
    }
    let directory = TempDir::new().expect("a directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/generated/generate.py");
    let made = Command::new("python3")
        .arg(script)
        .args(["--seed", SEED, "--count", COUNT])
        .arg(directory.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python runs");
    assert!(made.status.success(), "{made:?}");
    let cases = cases(directory.path());
    assert!(cases.len() > 400, "{} cases only", cases.len());
    let mut problems = Vec::new();
    for engine in ["tract", "ort"] {
        if engine == "ort" && Piece::Ort.or_skip("generated cases of ort").is_none() {
            continue;
        }
        let start = Instant::now();
        let told = run(&cases, engine, Path::new(env!("CARGO_BIN_EXE_pkgtool")));
        say(&format!(
            "generated cases of {engine}: {}, {} s",
            counts(&told),
            start.elapsed().as_secs()
        ));
        for (case, (outcome, reason)) in cases.iter().zip(&told) {
            if *outcome == Outcome::Wrong && case.is_known_of(engine) {
                continue;
            }
            let is_problem = outcome.needs_a_cause() || *outcome == Outcome::Panic;
            if is_problem {
                let what = format!("{engine}: {} ({})", case.name, case.label());
                problems.push(format!("{what}: {outcome}: {reason}"));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// Runs the cases of a directory and writes what came of them.
fn hunt(directory: &Path) {
    let engines = env::var("GENERATED_ENGINES").unwrap_or_else(|_| "tract,ort".to_owned());
    let binary = env::var_os("GENERATED_BINARY").map_or_else(
        || PathBuf::from(env!("CARGO_BIN_EXE_pkgtool")),
        PathBuf::from,
    );
    let cases = cases(directory);
    let mut outcomes = BTreeMap::new();
    for engine in engines.split(',') {
        let told = run(&cases, engine, &binary);
        say(&format!("{engine}: {}", counts(&told)));
        for (case, (outcome, reason)) in cases.iter().zip(&told) {
            let entry = outcomes
                .entry(&case.name)
                .or_insert_with(|| json!({"label": case.label()}));
            let is_known = *outcome == Outcome::Wrong && case.is_known_of(engine);
            let name = if is_known { "known" } else { outcome.name() };
            entry[engine] = json!([name, reason]);
        }
    }
    let text = serde_json::to_string(&outcomes).expect("it is JSON");
    fs::write(directory.join("outcomes.json"), text).expect("outcomes are written");
}

fn cases(directory: &Path) -> Vec<Case> {
    let mut cases = Case::all(directory);
    // Neighbours in the list are of one kind: a slow kind is not left to the end.
    cases.sort_by_key(|case| case.name.clone());
    cases
}

fn run(cases: &[Case], engine: &str, binary: &Path) -> Vec<Told> {
    let setting = Setting {
        engine,
        precision: DType::Float32,
        options: LoadOptions {
            threads: Some(1),
            library: (engine == "ort").then(|| Piece::Ort.path()).flatten(),
            ..LoadOptions::default()
        },
        launcher: Launcher {
            program: binary.to_owned(),
            timeout: Some(TIMEOUT),
            memory_limit: None,
        },
    };
    let next = AtomicUsize::new(0);
    let told = Mutex::new(vec![None; cases.len()]);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(case) = cases.get(index) else { break };
            let outcome = of(case, &setting);
            told.lock().expect("nobody panics with it")[index] = Some(outcome);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let told = told.into_inner().expect("nobody panics with it");
    let told = told.into_iter();
    told.map(|told| told.expect("every case was run")).collect()
}

/// What came of a case; where it is disputed what is right, either answer will do.
fn of(case: &Case, setting: &Setting<'_>) -> Told {
    let told = outcome::of(case, setting);
    match case.other() {
        Some(other) if told.0 == Outcome::Wrong => {
            let second = outcome::of(&other, setting);
            if second.0 == Outcome::Wrong {
                told
            } else {
                second
            }
        }
        _ => told,
    }
}

fn counts(told: &[Told]) -> String {
    let counts = Outcome::ALL.iter().filter_map(|outcome| {
        let count = told.iter().filter(|told| told.0 == *outcome).count();
        (count > 0).then(|| format!("{count} {outcome}"))
    });
    format!(
        "{} cases: {}",
        told.len(),
        counts.collect::<Vec<_>>().join(", ")
    )
}
