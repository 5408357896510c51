//! `pkgtool run --bundled`: runs the test cases in a bundled program (.bpte), and compares the
//! outputs with the expected ones.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

use super::super::super::exit::{Exit, Failure};
use super::super::super::report::{self, CommandReport};
use super::super::target_args::VariantChoice;
use super::RunArgs;
use pkgtool_engine::runtime::precision::Precision;
use pkgtool_engine::runtime::target::Candidate;
use pkgtool_engine::tensor::agreement::{Agreement, Comparison, Tolerances};
use pkgtool_engine::tensor::bundled::{self, TestCase};
use pkgtool_engine::tensor::{DType, Tensor};

/// The outcome of a test case.
struct CaseOutcome {
    method: String,
    index: usize,
    candidate: Candidate,
    /// Agreement with the expected outputs; `None` if the case expects none.
    agreement: Option<Agreement>,
    /// One message per wrong output.
    faults: Vec<String>,
}

/// Runs all test cases, or those of the given method.
pub(super) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let path = args.path.display();
    let other = |error: &dyn std::fmt::Display| Failure::Other(format!("{path} {error}"));
    let cases = args
        .target
        .within("reading the test cases", || bundled::read_cases(&args.path));
    let mut cases = cases.map_err(|error| other(&error))?;
    if let Some(method) = &args.target.method {
        cases.retain(|case| case.method == *method);
        if cases.is_empty() {
            return Err(other(&format!("has no test cases for method `{method}`")));
        }
    }
    let outcomes = cases.into_iter().map(|case| run_case(args, case));
    let outcomes: Vec<CaseOutcome> = outcomes.collect::<Result<_, _>>()?;
    let outcomes = CaseOutcomes(outcomes);
    report::print(&outcomes, args.json)?;
    let agree = outcomes.0.iter().all(|outcome| outcome.faults.is_empty());
    Ok(if agree { Exit::Clean } else { Exit::Findings })
}

/// Runs a test case in a new session, so that the program's state is fresh.
fn run_case(args: &RunArgs, case: TestCase) -> Result<CaseOutcome, Failure> {
    let mut target = args.target.clone();
    target.method = Some(case.method.clone());
    let which = args.variant.which();
    let open = VariantChoice {
        precision: None,
        ..which
    };
    let selection = super::super::select_method(&target, &args.path, open)?;
    pkgtool_engine::tensor::input::check(&selection.signature, &case.inputs).map_err(|error| {
        let path = args.path.display();
        Failure::Other(format!(
            "{path}, case {} of `{}`: {error}",
            case.index, case.method
        ))
    })?;
    let wish = target.start_request(&selection, which);
    let started = super::super::start_with_notes(&wish, &case.inputs, &target.launcher()?)?;
    let outputs = &started.first_answer.outputs;
    let mut faults = Vec::new();
    let mut agreement = None;
    if !case.expected.is_empty() {
        if outputs.len() != case.expected.len() {
            faults.push(format!(
                "got {} outputs, expected {}",
                outputs.len(),
                case.expected.len()
            ));
        }
        let specs = &selection.signature.outputs;
        let precision = Precision::of(&selection);
        let mut all = Comparison::default();
        for ((expected, found), spec) in case.expected.iter().zip(outputs).zip(specs) {
            if let Some(fault) = output_fault(expected, found, &precision) {
                faults.push(format!("output `{}` {fault}", spec.name));
            }
            // An output that cannot be compared is already in `faults`.
            let _ = all.add(expected, found);
        }
        agreement = Some(all.agreement());
    }
    Ok(CaseOutcome {
        method: case.method,
        index: case.index,
        candidate: started.candidate,
        agreement,
        faults,
    })
}

/// Returns what is wrong with an output, if anything. Floats may differ by the rounding of their
/// type, or of the program's weights. All other types must be equal.
fn output_fault(expected: &Tensor, found: &Tensor, held: &Precision) -> Option<String> {
    let mut one = Comparison::default();
    if let Err(error) = one.add(expected, found) {
        return Some(format!("cannot be compared: {error}"));
    }
    let agreement = one.agreement();
    let precision = match expected.dtype() {
        DType::Float16 => "fp16",
        DType::Bfloat16 => "bf16",
        _ => "fp32",
    };
    let own = Precision::of_floats(precision);
    let tolerances = if expected.dtype().is_float() {
        if held.is_below(&own) { held } else { &own }.tolerances()
    } else {
        Tolerances {
            max_abs: Some(0.0),
            ..Tolerances::default()
        }
    };
    let violation = tolerances.violations(&agreement).into_iter().next()?;
    Some(format!(
        "differs: {} is {:.3e}, limit is {:.0e}",
        violation.figure, violation.value, violation.limit
    ))
}

/// The outcomes of all test cases.
struct CaseOutcomes(Vec<CaseOutcome>);

impl CommandReport for CaseOutcomes {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        for outcome in &self.0 {
            let verdict = match (&outcome.agreement, outcome.faults.as_slice()) {
                (None, _) => "runs; no expected outputs".to_owned(),
                (Some(agreement), []) => format!("agrees, max-rel {:.1e}", agreement.max_rel),
                (_, faults) => faults.join("; "),
            };
            writeln!(
                text,
                "{} case {} on {}: {verdict}",
                outcome.method, outcome.index, outcome.candidate
            )?;
        }
        let agree = self.0.iter().filter(|outcome| outcome.faults.is_empty());
        writeln!(text, "{} of {} cases agree", agree.count(), self.0.len())
    }

    fn document(&self) -> impl Serialize {
        let cases = self.0.iter().map(|outcome| {
            json!({
                "method": outcome.method,
                "case": outcome.index,
                "engine": outcome.candidate.engine,
                "provider": outcome.candidate.provider.name(),
                "agrees": outcome.faults.is_empty(),
                "agreement": outcome.agreement,
                "faults": outcome.faults,
            })
        });
        json!({ "version": 1, "cases": cases.collect::<Vec<_>>() })
    }
}
