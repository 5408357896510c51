//! Runs the backend test cases of the `onnx` package through every engine and compares the results
//! with committed ones.
//!
//! A test fails on a panic, on a wrong answer without a known cause, and on an outcome that differs
//! from the committed one. Each case runs in a worker process, so that a crash of the engine is the
//! outcome of one case only. Each case runs several times in one session, with other inputs in
//! between. Of the cases that a device's provider refuses, some run again. A served endpoint also answers each case for several concurrent callers.
//!
//! `CONFORMANCE_UPDATE=1` rewrites `tests/conformance/results` and `table.md`. The messages of an
//! engine for each case are written to `target/test-environment/conformance-<engine>.log`.

pub(super) mod case;
pub(super) mod outcome;
mod record;
#[cfg(all(feature = "serve", unix))]
mod served;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use pkgtool_engine::runtime::worker::Launcher;
use pkgtool_engine::tensor::DType;
use pkgtool_engine::{LoadOptions, Provider};

use self::case::Case;
use self::outcome::{Outcome, Setting, Told};
use self::record::Results;
use crate::support::environment::{EnvironmentPiece, say};

/// Maximum time of a load or a run. The cases are tiny, but the engine may be a debug build.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Of the cases that a device's provider of the same version refused, one of this many runs again.
const REFUSED_AGAIN: usize = 4;

/// A tested engine with its configuration.
struct Target {
    /// Name in files and tables.
    name: &'static str,
    /// The engine's name in `pkgtool`.
    engine: &'static str,
    /// The execution provider. Providers other than the CPU must run the whole model.
    provider: Provider,
    /// The type in which the engine computes float32.
    precision: DType,
    /// The required piece of the test environment, and the piece that contains the engine's
    /// library.
    needs: Option<(EnvironmentPiece, EnvironmentPiece)>,
}

static TARGETS: &[Target] = &[
    Target {
        name: "tract",
        engine: "tract",
        provider: Provider::Cpu,
        precision: DType::Float32,
        needs: None,
    },
    Target {
        name: "ort",
        engine: "ort",
        provider: Provider::Cpu,
        precision: DType::Float32,
        needs: Some((EnvironmentPiece::Ort, EnvironmentPiece::Ort)),
    },
    Target {
        name: "ort-qnn",
        engine: "ort",
        provider: Provider::Qnn,
        precision: DType::Float16,
        needs: Some((EnvironmentPiece::Qnn, EnvironmentPiece::Ort)),
    },
    Target {
        name: "ort-webgpu",
        engine: "ort",
        provider: Provider::WebGpu,
        precision: DType::Float32,
        needs: Some((EnvironmentPiece::WebGpu, EnvironmentPiece::WebGpu)),
    },
];

fn names() -> Vec<&'static str> {
    TARGETS.iter().map(|target| target.name).collect()
}

fn is_update() -> bool {
    env::var_os("CONFORMANCE_UPDATE").is_some()
}

/// Returns true if the target is selected: `CONFORMANCE_ONLY` is a list of targets, all by default.
fn is_chosen(name: &str) -> bool {
    env::var("CONFORMANCE_ONLY").map_or(true, |list| list.split(',').any(|chosen| chosen == name))
}

#[test]
fn engines_compute_what_the_cases_expect() {
    let Some(cases) = EnvironmentPiece::Cases.or_skip("ONNX conformance") else {
        return;
    };
    let cases = Case::all(&cases);
    let problems: Vec<String> = TARGETS
        .iter()
        .filter(|target| is_chosen(target.name))
        .flat_map(|target| target.problems(&cases))
        .collect();
    if is_update() {
        fs::write(record::table_path(), record::table(&names())).expect("a table is written");
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn the_table_is_that_of_the_results() {
    if !is_update() {
        let table = fs::read_to_string(record::table_path()).expect("table.md");
        assert_eq!(table, record::table(&names()), "CONFORMANCE_UPDATE=1");
    }
}

impl Target {
    /// Runs all cases and returns the problems found.
    fn problems(&self, cases: &[Case]) -> Vec<String> {
        let test = format!("ONNX conformance of {}", self.name);
        let mut library = None;
        if let Some((piece, holder)) = self.needs {
            if piece.or_skip(&test).is_none() {
                return Vec::new();
            }
            library = holder.path();
        }
        let start = Instant::now();
        let told = self.run(cases, library, self.before().as_ref());
        if let Some((_, reason)) = told.iter().find(|told| told.0 == Outcome::Unavailable) {
            if let Some((piece, _)) = self.needs {
                piece.skip(&test, reason);
            } else {
                let was_there = Results::committed(self.name).is_some();
                assert!(!was_there, "{test}: {reason}");
                say(&format!("SKIPPED {test}: {reason}"));
            }
            return Vec::new();
        }
        self.log(cases, &told);
        let outcomes = cases.iter().zip(&told);
        let results = Results {
            made_with: self.made_with(),
            cases: outcomes
                .map(|(case, (outcome, _))| (case.name.clone(), (case.opset(), *outcome)))
                .collect(),
        };
        let passes = told.iter().filter(|told| told.0 == Outcome::Pass).count();
        say(&format!(
            "{test}: {passes} of {} pass, {} s",
            told.len(),
            start.elapsed().as_secs()
        ));
        if is_update() {
            results.commit(self.name);
        }
        let problems = results.problems(
            &record::known(self.name),
            Results::committed(self.name).as_ref(),
        );
        problems
            .into_iter()
            .map(|problem| format!("{}: {problem}", self.name))
            .collect()
    }

    /// Returns the committed results whose refused cases need not run again.
    fn before(&self) -> Option<Results> {
        let committed = Results::committed(self.name)?;
        let is_same = committed.made_with == self.made_with();
        (is_same && self.provider != Provider::Cpu && !is_update()).then_some(committed)
    }

    fn run(&self, cases: &[Case], library: Option<PathBuf>, before: Option<&Results>) -> Vec<Told> {
        let setting = Setting {
            engine: self.engine,
            precision: self.precision,
            options: LoadOptions {
                threads: Some(1),
                provider: self.provider,
                strict: self.provider != Provider::Cpu,
                library,
                ..LoadOptions::default()
            },
            launcher: Launcher {
                program: PathBuf::from(env!("CARGO_BIN_EXE_pkgtool")),
                timeout: Some(TIMEOUT),
                memory_limit: None,
                in_background: false,
                device: None,
            },
        };
        let next = AtomicUsize::new(0);
        let told = Mutex::new(Vec::new());
        let work = || {
            while let Some((index, case)) = {
                let index = next.fetch_add(1, Ordering::Relaxed);
                cases.get(index).map(|case| (index, case))
            } {
                let known = before.and_then(|it| it.cases.get(&case.name));
                let is_refused = known.is_some_and(|it| it.1 == Outcome::Unsupported);
                let outcome = if is_refused && index % REFUSED_AGAIN != 0 {
                    (Outcome::Unsupported, "not run again".to_owned())
                } else {
                    outcome::of(case, &setting)
                };
                if outcome.0 == Outcome::Unavailable {
                    // The engine is unavailable for all cases, so the others are skipped.
                    next.store(cases.len(), Ordering::Relaxed);
                }
                let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                told.push((index, outcome));
            }
        };
        thread::scope(|scope| {
            for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(work);
            }
        });
        let mut told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
        told.sort_by_key(|(index, _)| *index);
        told.into_iter().map(|(_, told)| told).collect()
    }

    fn log(&self, cases: &[Case], told: &[Told]) {
        let mut text = String::new();
        for (case, (outcome, reason)) in cases.iter().zip(told) {
            let reason = reason.replace('\n', " | ");
            writeln!(text, "{outcome:<12} {} {reason}", case.name)
                .expect("writing to a string succeeds");
        }
        let file = format!("target/test-environment/conformance-{}.log", self.name);
        fs::write(root().join(file), text).expect("a log is written");
    }

    /// Describes the inputs of the results: the versions of cases and engine, and the kind of
    /// machine.
    fn made_with(&self) -> String {
        let requirements = root().join("tests/requirements.txt");
        let requirements = fs::read_to_string(requirements).expect("tests/requirements.txt");
        let onnx = requirements
            .lines()
            .find_map(|line| line.strip_prefix("onnx=="));
        let unknown = || "of unknown version".to_owned();
        let mut engine = match self.needs {
            Some((_, library)) => library.version(),
            None => locked_version("tract-onnx"),
        }
        .unwrap_or_else(unknown);
        if let Some((provider, library)) = self.needs
            && provider != library
        {
            let version = provider.version().unwrap_or_else(unknown);
            engine = format!("{engine} with {} {version}", provider.name());
        }
        format!(
            "onnx {} cases, {} {engine}, {} {}",
            onnx.expect("onnx is pinned"),
            self.engine,
            env::consts::OS,
            env::consts::ARCH
        )
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns the version of a crate in `Cargo.lock`.
fn locked_version(name: &str) -> Option<String> {
    let lock = fs::read_to_string(root().join("Cargo.lock")).expect("Cargo.lock");
    let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    rest.split('"').next().map(str::to_owned)
}
