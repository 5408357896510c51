//! Runs one test case on one engine and classifies the outcome: pass, wrong, unsupported, crash, …

use std::fmt;

use pkgtool_engine::runtime::selection::{SelectionCriteria, SelectionError, select};
use pkgtool_engine::runtime::worker::Launcher;
use pkgtool_engine::tensor::limit::RunLimit;
use pkgtool_engine::tensor::{DType, Signature, Tensor};
use pkgtool_engine::{EngineError, LoadOptions, LoadRequest, Session};

use super::case::{Case, Values};
use crate::support::other_inputs::disturbed;

/// The kinds of outcome, from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::engine) enum Outcome {
    /// The expected answer.
    Pass,
    /// A different answer, without an error.
    Wrong,
    /// The engine reports that it does not support the model.
    Unsupported,
    /// Any other error.
    Failed,
    /// The worker process crashed.
    Crash,
    /// The worker process timed out.
    Hang,
    /// A caught panic.
    Panic,
    /// The case uses values that are not tensors of numbers or booleans.
    NotTensors,
    /// The engine is not installed on this machine.
    Unavailable,
}

impl Outcome {
    /// All outcomes that can be recorded.
    pub(in crate::engine) const ALL: [Self; 8] = [
        Self::Pass,
        Self::Wrong,
        Self::Unsupported,
        Self::Failed,
        Self::Crash,
        Self::Hang,
        Self::Panic,
        Self::NotTensors,
    ];

    /// Returns the name used in lists and tables.
    pub(in crate::engine) fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Wrong => "wrong",
            Self::Unsupported => "unsupported",
            Self::Failed => "failed",
            Self::Crash => "crash",
            Self::Hang => "hang",
            Self::Panic => "panic",
            Self::NotTensors => "not-tensors",
            Self::Unavailable => "unavailable",
        }
    }

    /// Returns the outcome with this name.
    pub(in crate::engine) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.name() == name)
    }

    /// Returns true if the outcome is allowed only with a known cause.
    pub(in crate::engine) fn needs_a_cause(self) -> bool {
        matches!(self, Self::Wrong | Self::Crash | Self::Hang)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An outcome with the engine's message or a description of the wrong answer.
pub(in crate::engine) type Told = (Outcome, String);

/// Configuration for running cases.
pub(in crate::engine) struct Setting<'a> {
    pub(in crate::engine) engine: &'a str,
    /// The type in which the engine computes float32.
    pub(in crate::engine) precision: DType,
    pub(in crate::engine) options: LoadOptions,
    pub(in crate::engine) launcher: Launcher,
}

/// Runs a case in its own worker process.
pub(in crate::engine) fn of(case: &Case, setting: &Setting<'_>) -> Told {
    if let Some(what) = case.not_tensors() {
        return (Outcome::NotTensors, what.to_owned());
    }
    let selection = match select(&case.model(), &SelectionCriteria::default()) {
        Ok(selection) => selection,
        Err(error @ SelectionError::Signature { .. }) => {
            return (Outcome::NotTensors, error.to_string());
        }
        Err(error) => return (Outcome::Failed, error.to_string()),
    };
    let request = LoadRequest {
        model: selection.model,
        signature: selection.signature,
        options: setting.options.clone(),
    };
    match setting.launcher.load(setting.engine, &request) {
        Ok(mut worker) => of_runs(case, &request.signature, setting.precision, &mut worker),
        Err(error) => of_error(&error),
    }
}

/// Number of runs of each data set in one session.
const ROUNDS: usize = 3;

/// Runs all data sets of a case repeatedly in one session, with other inputs in between. State that
/// a session keeps from one run must not affect another run.
fn of_runs(
    case: &Case,
    signature: &Signature,
    precision: DType,
    session: &mut dyn Session,
) -> Told {
    let sets = case.sets();
    for round in 1..=ROUNDS {
        for (inputs, expected) in &sets {
            let Some(inputs) = in_order(signature, inputs) else {
                let told = "the inputs are not those of the signature";
                return (Outcome::Failed, told.to_owned());
            };
            let answer = match session.run(&inputs) {
                Ok(answer) => answer,
                Err(error) => return of_error(&error),
            };
            if let Some(fault) = case.fault(signature, precision, expected, &answer.outputs) {
                return (Outcome::Wrong, format!("in round {round}: {fault}"));
            }
            if round == ROUNDS {
                continue;
            }
            // The engine may reject these inputs, but the session must survive.
            if let Err(error @ EngineError::Died { .. }) = session.run(&disturbed(&inputs)) {
                return of_error(&error);
            }
        }
    }
    (Outcome::Pass, String::new())
}

pub(super) fn in_order(signature: &Signature, values: &Values) -> Option<Vec<Tensor>> {
    if values.len() != signature.inputs.len() {
        return None;
    }
    let tensor = |name: &str| values.iter().find(|(other, _)| other == name);
    let inputs = signature.inputs.iter().map(|spec| tensor(&spec.name));
    inputs
        .map(|found| found.map(|(_, tensor)| tensor.clone()))
        .collect()
}

fn of_error(error: &EngineError) -> Told {
    let outcome = match error {
        EngineError::Unavailable { .. } => Outcome::Unavailable,
        EngineError::Unsupported { .. } => Outcome::Unsupported,
        EngineError::Load { reason, .. } | EngineError::Run { reason, .. }
            if reason.contains("internal error") || reason.contains("panicked") =>
        {
            Outcome::Panic
        }
        EngineError::Load { .. }
        | EngineError::Corrupt { .. }
        | EngineError::Run { .. }
        | EngineError::Input { .. } => Outcome::Failed,
        EngineError::Limit {
            limit: RunLimit::Time(_),
            ..
        } => Outcome::Hang,
        EngineError::Died { .. } | EngineError::Limit { .. } | EngineError::Device { .. } => {
            Outcome::Crash
        }
    };
    (outcome, error.to_string())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use pkgtool_engine::{Placement, RunAnswer};
    use pkgtool_model::Dim;
    use serde_json::json;
    use tempfile::TempDir;

    use super::*;
    use crate::support::inputs::spec;

    /// A fake engine that returns a preset result.
    struct Fake(Result<Vec<Tensor>, EngineError>);

    impl Session for Fake {
        fn run(&mut self, inputs: &[Tensor]) -> Result<RunAnswer, EngineError> {
            assert_eq!(inputs[0].dtype(), DType::Bool, "inputs must be in order");
            let time = Duration::ZERO;
            self.0.clone().map(|outputs| RunAnswer { outputs, time })
        }

        fn placement(&mut self) -> Placement {
            Placement::default()
        }
    }

    /// A fake engine that adds its previous inputs to its answer, like an engine that leaks state.
    struct Leaking(u8);

    impl Session for Leaking {
        fn run(&mut self, inputs: &[Tensor]) -> Result<RunAnswer, EngineError> {
            let bytes = inputs[1].bytes();
            let bytes = bytes.iter().map(|byte| byte + self.0).collect();
            self.0 += inputs[1].bytes()[0];
            let output = Tensor::new(DType::Int8, vec![2], bytes).expect("two bytes");
            Ok(RunAnswer {
                outputs: vec![output],
                time: Duration::ZERO,
            })
        }

        fn placement(&mut self) -> Placement {
            Placement::default()
        }
    }

    fn signature() -> Signature {
        let spec = |name, dtype| spec(name, dtype, Some(vec![Dim::Fixed(2)]));
        Signature {
            method: "forward".to_owned(),
            inputs: vec![spec("b", DType::Bool), spec("a", DType::Int8)],
            outputs: vec![spec("y", DType::Int8)],
        }
    }

    /// A case that expects `y = a = [1, 2]`.
    fn case(directory: &TempDir) -> Case {
        let value =
            |name, dtype, file| json!({"name": name, "dtype": dtype, "shape": [2], "file": file});
        let description = json!({
            "opset": 13, "rtol": 1e-3, "atol": 1e-7, "random": false,
            "sets": [{
                "inputs": [value("a", "int8", "a.bin"), value("b", "bool", "a.bin")],
                "outputs": [value("y", "int8", "a.bin")],
            }],
        });
        let path = directory.path().join("test_fake");
        fs::create_dir(&path).expect("a directory");
        fs::write(path.join("a.bin"), [1, 2]).expect("a file");
        fs::write(path.join("case.json"), description.to_string()).expect("a file");
        Case::all(directory.path()).remove(0)
    }

    #[test]
    fn answers_are_passes_or_wrong() {
        let directory = TempDir::new().expect("a directory");
        let case = case(&directory);
        let outcome = |answer| of_runs(&case, &signature(), DType::Float32, &mut Fake(answer)).0;
        let int8 = |bytes| Tensor::new(DType::Int8, vec![2], bytes).expect("two bytes");
        assert_eq!(outcome(Ok(vec![int8(vec![1, 2])])), Outcome::Pass);
        assert_eq!(outcome(Ok(vec![int8(vec![1, 3])])), Outcome::Wrong);
        assert_eq!(outcome(Ok(Vec::new())), Outcome::Wrong);
    }

    #[test]
    fn what_leaks_from_run_to_run_is_wrong() {
        let directory = TempDir::new().expect("a directory");
        let case = case(&directory);
        let told = of_runs(&case, &signature(), DType::Float32, &mut Leaking(0));
        assert_eq!(told.0, Outcome::Wrong);
        assert!(told.1.starts_with("in round 2"), "{}", told.1);
    }

    #[test]
    fn errors_are_told_apart() {
        let engine = || "fake".to_owned();
        let died = |reason: &str| EngineError::Died {
            engine: engine(),
            doing: "running".to_owned(),
            reason: reason.to_owned(),
        };
        let run = |reason: &str| EngineError::Run {
            engine: engine(),
            operator: None,
            reason: reason.to_owned(),
        };
        let unsupported = EngineError::Unsupported {
            engine: engine(),
            operators: Vec::new(),
            reason: String::new(),
        };
        for (error, outcome) in [
            (died("signal: 11 (SIGSEGV)"), Outcome::Crash),
            (
                EngineError::Limit {
                    engine: engine(),
                    doing: "running".to_owned(),
                    limit: RunLimit::Time(Duration::from_mins(1)),
                },
                Outcome::Hang,
            ),
            (
                run("internal error of the library (index out of bounds)"),
                Outcome::Panic,
            ),
            (run("no kernel"), Outcome::Failed),
            (unsupported, Outcome::Unsupported),
        ] {
            assert_eq!(of_error(&error).0, outcome, "{error}");
        }
    }
}
