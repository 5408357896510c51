//! Compares the ExecuTorch reader with ExecuTorch itself on mutated programs.
//!
//! Each mutant is a valid program with one changed field. `tests/mutants/judge_pte.cpp` loads and
//! runs it with ExecuTorch. The reader must reject each mutant that ExecuTorch does not load,
//! unless the reason is listed in [`BEYOND`]. It must accept each mutant that ExecuTorch runs.

mod flat;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pkgtool_model as model;
use tempfile::TempDir;

use super::{fixtures, is_there};
use crate::support::environment::say;
use flat::{Flat, Numbers};

/// Programs of every kind. A data file with the same name belongs to its program.
const SEEDS: [&str; 14] = [
    "../models/add_linear_portable.pte",
    "../models/add_linear_xnnpack_fp32.pte",
    "../models/dtypes_portable.pte",
    "../models/nontensor_io_portable.pte",
    "../models/state_counter_portable.pte",
    "../programs/branches.pte",
    "../programs/selections.pte",
    "../programs/norms.pte",
    "../programs/quantize_and_back.pte",
    "../programs/xnn_many_delegates.pte",
    "aliases_portable.pte",
    "changes_portable.pte",
    "external_portable.pte",
    "optional_portable.pte",
];

/// Mutants per change and program; `PKGTOOL_TEST_MUTATIONS` raises the number.
const TRIES: usize = 4;

/// Parts of the messages with which ExecuTorch fails to load programs that the reader rightly
/// accepts.
const BEYOND: [&str; 5] = [
    // An application may register kernels and backends.
    "instructions don't have corresponding operator registered",
    "is not registered",
    // Only the backend can judge the contents of a delegate's payload.
    "XNNCompiler::compileModel failed",
    // The memory of this machine is too small.
    "allocation failed",
    "of memory for its tensors",
];

/// The error for programs that ExecuTorch runs and the reader rejects: a jump beyond the end, which
/// no exporter writes.
const STRICTER: &str = "destination_instruction";

/// A mutated program.
struct Mutant {
    seed: &'static str,
    change: &'static str,
    file: PathBuf,
    data: Option<PathBuf>,
}

/// The verdicts of ExecuTorch and the reader on a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    BothAccept,
    BothRefuse,
    /// The reader accepts it; ExecuTorch loads it and fails when it runs the method.
    FailsLater,
    /// The reader accepts it; ExecuTorch does not load it, for a reason of [`BEYOND`].
    Beyond,
    /// The reader rejects it because of [`STRICTER`]; ExecuTorch runs it.
    Stricter,
    /// The reader wrongly accepts it; ExecuTorch does not load it.
    Missed,
    /// The reader wrongly rejects it; ExecuTorch runs it.
    Wrong,
}

#[test]
fn the_reader_refuses_what_executorch_does_not_load() {
    if !is_there("the_reader_refuses_what_executorch_does_not_load") {
        return;
    }
    let folder = TempDir::new().expect("a directory");
    let mutants = make(folder.path());
    let verdicts = judge(folder.path(), &mutants);
    let mut counts: BTreeMap<Outcome, usize> = BTreeMap::new();
    let mut problems = String::new();
    for (mutant, verdict) in mutants.iter().zip(&verdicts) {
        let ours = refusal(mutant);
        let is_strict = |text: &str| text.contains(STRICTER);
        let outcome = match compare(ours.as_deref(), verdict) {
            Outcome::Wrong if ours.as_deref().is_some_and(is_strict) => Outcome::Stricter,
            outcome => outcome,
        };
        *counts.entry(outcome).or_default() += 1;
        if !matches!(outcome, Outcome::Missed | Outcome::Wrong) {
            continue;
        }
        let Mutant {
            seed, change, file, ..
        } = mutant;
        let name = file.file_name().unwrap_or_default().display();
        let _ = writeln!(
            problems,
            "{seed} {change} {name}\n    ExecuTorch: {verdict}\n    here: {ours:?}"
        );
    }
    say(&format!(
        "broken ExecuTorch programs: {} in all, {counts:?}",
        mutants.len()
    ));
    assert!(problems.is_empty(), "{problems}\n{counts:?}");
    let count = |outcome| counts.get(&outcome).copied().unwrap_or(0);
    assert!(
        count(Outcome::BothRefuse) > 500 && count(Outcome::BothAccept) > 100,
        "{counts:?}"
    );
}

/// Writes all mutants to a folder.
fn make(folder: &Path) -> Vec<Mutant> {
    let tries = std::env::var("PKGTOOL_TEST_MUTATIONS").ok();
    let tries = tries.map_or(TRIES, |text| text.parse().expect("a number"));
    let mut mutants = Vec::new();
    let mut numbers = Numbers(2026);
    for seed in SEEDS {
        let path = fixtures().join(seed);
        let bytes = fs::read(&path).expect("a fixture");
        let data = Some(path.with_extension("ptd")).filter(|path| path.is_file());
        for &(change, apply) in flat::CHANGES {
            let mut seen = vec![bytes.clone()];
            for attempt in 0..tries {
                let mut flat = Flat::new(bytes.clone());
                if apply(&mut flat, &mut numbers).is_none() || seen.contains(&flat.bytes) {
                    continue;
                }
                seen.push(flat.bytes.clone());
                let home = folder.join(format!("{}-{attempt}", mutants.len()));
                fs::create_dir(&home).expect("a directory");
                let file = home.join("program.pte");
                fs::write(&file, flat.bytes).expect("a file");
                let copy = data.as_ref().map(|data| copy_of(data, &home));
                mutants.push(Mutant {
                    seed,
                    change,
                    file,
                    data: copy,
                });
            }
        }
        if let Some(data) = data {
            mutants.extend(without_data(seed, &bytes, &data, folder));
        }
    }
    mutants
}

/// Creates mutants whose data file is missing or contains tensors with other names.
fn without_data(seed: &'static str, bytes: &[u8], data: &Path, folder: &Path) -> Vec<Mutant> {
    let make = |change: &'static str| {
        let home = folder.join(change);
        fs::create_dir(&home).expect("a directory");
        let file = home.join("program.pte");
        fs::write(&file, bytes).expect("a file");
        Mutant {
            seed,
            change,
            file,
            data: None,
        }
    };
    let missing = make("no_data_file");
    let mut other = make("other_names_in_data_file");
    let data = copy_of(data, other.file.parent().expect("a directory"));
    let mut renamed = fs::read(&data).expect("a file");
    let name = b"weight";
    let places: Vec<usize> = (0..renamed.len() - name.len())
        .filter(|at| renamed[*at..].starts_with(name))
        .collect();
    assert!(!places.is_empty(), "the tensors must be weights");
    for at in places {
        renamed[at] = b'W';
    }
    fs::write(&data, renamed).expect("a file");
    other.data = Some(data);
    vec![missing, other]
}

fn copy_of(data: &Path, home: &Path) -> PathBuf {
    let copy = home.join("program.ptd");
    fs::copy(data, &copy).expect("a copy");
    copy
}

/// Runs ExecuTorch on all mutants and returns its verdicts, one line each.
fn judge(folder: &Path, mutants: &[Mutant]) -> Vec<String> {
    let mut asked = Command::new(judge_program(folder))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the process starts");
    let mut input = asked.stdin.take().expect("a pipe");
    let lines: String = mutants.iter().fold(String::new(), |mut lines, mutant| {
        let _ = write!(lines, "{}", mutant.file.display());
        if let Some(data) = &mutant.data {
            let _ = write!(lines, "\t{}", data.display());
        }
        lines.push('\n');
        lines
    });
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = asked.wait_with_output().expect("the judge program ends");
    writer.join().expect("a thread").expect("a pipe");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), mutants.len());
    lines
}

/// Builds the judge program.
fn judge_program(folder: &Path) -> PathBuf {
    let package =
        PathBuf::from(std::env::var_os("PKGTOOL_EXECUTORCH_DIR").expect("the variable is set"));
    let (include, libraries) = (package.join("include"), package.join("lib"));
    let program = folder.join("judge");
    let built = Command::new("c++")
        .args(["-std=c++20", "-w", "-DC10_USING_CUSTOM_GENERATED_MACROS"])
        .args(["-DET_EVENT_TRACER_ENABLED", "-DET_USE_THREADPOOL"])
        .arg("-isystem")
        .arg(&include)
        .arg("-isystem")
        .arg(include.join("executorch/runtime/core/portable_type/c10"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutants/judge_pte.cpp"))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&libraries)
        .arg(format!("-Wl,-rpath,{}", libraries.display()))
        .args([
            "-Wl,--no-as-needed",
            "-lexecutorch",
            "-lexecutorch_threadpool",
        ])
        .args([
            "-lexecutorch_kernels_quantized",
            "-lexecutorch_kernels_optimized",
        ])
        .arg("-lexecutorch_backend_xnnpack")
        .output()
        .expect("a C++ compiler");
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    program
}

/// Returns the error of the reader or of the check of data files, if there is one.
fn refusal(mutant: &Mutant) -> Option<String> {
    let (info, _) = match model::open(&mutant.file) {
        Ok(opened) => opened,
        Err(error) => return Some(error.to_string()),
    };
    let folder = mutant.file.parent().expect("a directory");
    let faults = info.external.iter().map(|data| data.locate(folder));
    faults
        .filter_map(Result::err)
        .map(|fault| fault.to_string())
        .next()
}

fn compare(ours: Option<&str>, theirs: &str) -> Outcome {
    let (step, text) = theirs.split_once('\t').unwrap_or((theirs, ""));
    match (step, ours) {
        ("ok", None) => Outcome::BothAccept,
        ("ok", Some(_)) => Outcome::Wrong,
        (_, Some(_)) => Outcome::BothRefuse,
        ("load", None) if BEYOND.iter().any(|part| text.contains(part)) => Outcome::Beyond,
        ("load", None) => Outcome::Missed,
        _ => Outcome::FailsLater,
    }
}
