//! Conformance cases through a served endpoint, with concurrent callers of which some send other
//! inputs.
//!
//! Concurrent requests share runs if the endpoint has detected that the first dimension is a batch.
//! Every caller must get the answer of the case.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use pkgtool_engine::Carrying;
use pkgtool_engine::runtime::selection::{SelectionCriteria, select};
use pkgtool_engine::tensor::{DType, Signature, Tensor};
use pkgtool_model as model;
use pkgtool_serve::account::AccountId;
use pkgtool_serve::service::ServiceSettings;
use pkgtool_serve::service::engine::{Endpoint, EndpointModel, Engines};
use tempfile::TempDir;

use super::case::{Case, Values};
use super::outcome::{Outcome, in_order};
use super::record::Results;
use crate::support::environment::{EnvironmentPiece, say};
use crate::support::other_inputs::disturbed;

/// Maximum time of an answer.
const LIMIT: Duration = Duration::from_mins(1);

/// Total memory limit of all sessions, in bytes.
const BUDGET: u64 = 8 << 30;

/// Number of requests of each caller.
const ROUNDS: usize = 3;

/// Number of concurrent callers; one of them sends other inputs.
const CALLERS: usize = 3;

/// Minimum number of shared runs; with fewer the test would prove nothing.
const LEAST_SHARED: u64 = 300;

/// The result of serving one case.
#[derive(Debug, Default)]
struct Served {
    answers: u64,
    /// Number of answers that came from a run shared by several requests.
    shared: u64,
    /// Reasons why models of the case were not served.
    refused: Vec<String>,
    problem: Option<String>,
}

#[test]
fn served_cases_are_answered_alike_for_everybody() {
    let Some(cases) = EnvironmentPiece::Cases.or_skip("served ONNX conformance") else {
        return;
    };
    let cases = Case::all(&cases);
    let program = PathBuf::from(env!("CARGO_BIN_EXE_pkgtool"));
    let test = "served ONNX conformance of ort";
    if let Some(library) = EnvironmentPiece::Ort.or_skip(test) {
        let engines = Engines::new(program.clone(), BUDGET, Some(library));
        // Requests for models of one size share no runs. The embedded engine serves those, too.
        let batched = cases.iter().filter(|case| case.batched_model().is_some());
        serve_all(batched, "ort", &engines);
    }
    let directory = TempDir::new().expect("a directory");
    let alone = without_surroundings(directory.path(), &program);
    serve_all(cases.iter(), "tract", &Engines::new(alone, BUDGET, None));
}

/// Creates a wrapper that starts `program` without the environment variables that locate ONNX
/// Runtime.
fn without_surroundings(directory: &Path, program: &Path) -> PathBuf {
    let path = directory.join("pkgtool");
    let text = format!("#!/bin/sh\nexec env -i '{}' \"$@\"\n", program.display());
    fs::write(&path, text).expect("a script");
    let permissions = fs::Permissions::from_mode(0o755);
    fs::set_permissions(&path, permissions).expect("the mode is set");
    path
}

/// Serves each case that the engine is known to pass.
fn serve_all<'c>(cases: impl Iterator<Item = &'c Case>, name: &str, engines: &Arc<Engines>) {
    let results = Results::committed(name).expect("results are committed");
    // This process may know a library of ONNX Runtime by its environment and try it first. What
    // that accepts and fails at is not tried again with the embedded engine.
    let runtime = Results::committed("ort").expect("results are committed");
    let outcome = |of: &Results, case: &Case| of.cases.get(&case.name).map(|(_, it)| *it);
    let passes = |case: &&Case| {
        outcome(&results, case) == Some(Outcome::Pass)
            && outcome(&runtime, case) != Some(Outcome::Failed)
    };
    let cases: Vec<&Case> = cases.filter(passes).collect();
    let (next, told) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread();
                let runtime = { runtime }.enable_all().build().expect("a runtime");
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let served = runtime.block_on(serve(case, engines));
                    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                    told.push(served);
                }
            });
        }
    });
    let told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
    let sum = |of: fn(&Served) -> u64| told.iter().map(of).sum::<u64>();
    let (answers, shared) = (sum(|it| it.answers), sum(|it| it.shared));
    say(&format!(
        "served ONNX conformance of {name}: {} cases, {answers} answers, {shared} of them from shared runs",
        told.len()
    ));
    let problems: Vec<&String> = told.iter().filter_map(|it| it.problem.as_ref()).collect();
    assert!(problems.is_empty(), "{name}: {problems:#?}");
    let refused: Vec<&String> = told.iter().flat_map(|it| &it.refused).take(5).collect();
    assert!(
        shared >= LEAST_SHARED,
        "{name}: {shared} shared runs; {refused:#?}"
    );
}

async fn serve(case: &Case, engines: &Arc<Engines>) -> Served {
    let mut served = Served::default();
    for path in case.batched_model().into_iter().chain([case.model()]) {
        let Some(endpoint) = endpoint(engines, path) else {
            continue;
        };
        // An engine may be unable to run the model with a symbolic dimension.
        if let Err(error) = endpoint.warm().await {
            served.refused.push(error.to_string());
            continue;
        }
        if let Err(problem) = ask(case, &endpoint, &mut served).await {
            served.problem = Some(format!("{}: {problem}", case.name));
        }
        endpoint.drain().await;
        break;
    }
    served
}

fn endpoint(engines: &Arc<Engines>, path: PathBuf) -> Option<Arc<Endpoint>> {
    let selection = select(&path, &SelectionCriteria::default()).ok()?;
    let (info, _) = model::open(&path).ok()?;
    let model = EndpointModel {
        service: "case".to_owned(),
        format: info.format,
        signature: selection.signature,
        backend: None,
        weight_bytes: info.weight_bytes,
        carrying: Carrying::default(),
        first: Vec::new(),
        model: path,
    };
    let settings = ServiceSettings {
        batch_max_size: CALLERS,
        batch_max_wait_ms: 100_000,
        threads: 1,
        ..ServiceSettings::default()
    };
    Some(engines.endpoint(model, &settings))
}

/// Sends the inputs of every data set several times, from all callers concurrently.
async fn ask(case: &Case, endpoint: &Arc<Endpoint>, served: &mut Served) -> Result<(), String> {
    let signature = endpoint.signature().clone();
    for round in 1..=ROUNDS {
        for (inputs, expected) in case.sets() {
            let inputs = in_order(&signature, &inputs).ok_or("other inputs")?;
            let before = endpoint.activity().runs;
            let answers = ask_at_once(endpoint, &inputs).await;
            for (caller, answer) in answers {
                // The caller with other inputs gets either an answer or an error.
                if caller == 1 {
                    continue;
                }
                let outputs = answer.map_err(|error| format!("round {round}: {error}"))?;
                check(case, &signature, &expected, &outputs)
                    .map_err(|fault| format!("round {round}, caller {caller}: {fault}"))?;
                served.answers += 1;
            }
            let runs = endpoint.activity().runs - before;
            served.shared += (CALLERS as u64).saturating_sub(runs);
        }
    }
    Ok(())
}

type Answers = Vec<(usize, Result<Vec<Tensor>, String>)>;

async fn ask_at_once(endpoint: &Arc<Endpoint>, inputs: &[Tensor]) -> Answers {
    let mut requests = tokio::task::JoinSet::new();
    for (caller, account) in (0..CALLERS).zip(1..) {
        let endpoint = Arc::clone(endpoint);
        let inputs = match caller {
            1 => disturbed(inputs),
            _ => inputs.to_vec(),
        };
        requests.spawn(async move {
            let answer = endpoint.run(AccountId(account), inputs, Some(LIMIT)).await;
            (caller, answer.map_err(|error| error.to_string()))
        });
    }
    requests.join_all().await
}

fn check(
    case: &Case,
    signature: &Signature,
    expected: &Values,
    outputs: &[Tensor],
) -> Result<(), String> {
    match case.fault(signature, DType::Float32, expected, outputs) {
        Some(fault) => Err(fault),
        None => Ok(()),
    }
}
