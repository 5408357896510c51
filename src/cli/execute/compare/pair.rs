//! Runs two sides on the same inputs and compares their outputs.

use super::super::sides::{self, ExecutionSide, GivenInput};
use super::super::sizes::{TrialModel, with_sizes};
use super::super::target_args::GENERATING_INPUTS;
use super::super::{note_wrong_operators, start_with_notes};
use super::CompareArgs;
use super::cases::{self, InputSet, InputSources};
use super::report::{CaseResult, ComparisonReport, OutputResult, SideInfo};
use crate::cli::exit::Failure;
use pkgtool_engine::runtime::target::{self, StartRequest, Started};
use pkgtool_engine::runtime::worker::{Launcher, Worker};
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::tensor::agreement::{Comparison, Tolerances};
use pkgtool_engine::tensor::input::{
    self, Generator, InputArgs, InputError, JointSignature, match_values,
};
use pkgtool_engine::{EngineError, RunAnswer, Session};

/// Compares two sides on the input sets of the arguments, with sizes that A accepts.
pub(super) fn compare_sides(
    args: &CompareArgs,
    sides: &[ExecutionSide; 2],
    loader: &mut SideStarter,
) -> Result<ComparisonReport, Failure> {
    let outputs = sides
        .each_ref()
        .map(|side| &side.selection.signature.outputs);
    let outputs = match_values(outputs[0], outputs[1]).ok_or_else(|| {
        Failure::Other(format!(
            "A and B give different numbers of outputs, {} and {}: they cannot be compared",
            outputs[0].len(),
            outputs[1].len()
        ))
    })?;
    let given = args.target.limit_memory(args.inputs.to_args());
    let declared = input::open_dims(&sides[0].selection.signature, &given).unwrap_or_default();
    let mut on = |given: &InputArgs| {
        let label = |place: usize, _: &ExecutionSide| ["A", "B"][place].to_owned();
        let (joint, given) = sides::joint_signature(sides, label, given)?;
        let sources = InputSources {
            given: &given,
            directory: args.inputs_dir.as_deref(),
            sizes: args.sizes.as_ref(),
            declared: &declared,
            seeds: args.first_seed..args.first_seed.saturating_add(args.seeds()),
        };
        let cases = args.target.within(GENERATING_INPUTS, || {
            cases::input_sets(joint.signature(), &sources)
        })?;
        let pair = Pair {
            sides,
            joint: &joint,
            outputs: &outputs,
        };
        pair.compare(args, &cases, loader)
    };
    if args.inputs_dir.is_some() || args.sizes.is_some() {
        return on(&given);
    }
    let [a, _] = sides;
    let model = TrialModel {
        target: &args.target,
        which: a.which(),
        selection: &a.selection,
    };
    let trial = InputArgs {
        default: Some(Generator::Random { seed: 0 }),
        ..given
    };
    with_sizes(&model, &trial, on)
}

/// Starts the sides of comparisons. In a series of comparisons, A is started only once.
pub(super) struct SideStarter {
    /// Set if fallbacks are reported as they happen.
    reports_fallbacks: bool,
    /// The running side A of the previous comparison, if A is the same in all of them.
    running_reference: Option<Started>,
    keeps_reference: bool,
    /// The side of the last comparison that did not start, and whether the reason is that no engine
    /// runs it.
    refused: Option<(usize, bool)>,
}

impl SideStarter {
    /// Creates a starter for one comparison.
    pub(super) fn for_one_comparison() -> Self {
        Self {
            reports_fallbacks: true,
            running_reference: None,
            keeps_reference: false,
            refused: None,
        }
    }

    /// Creates a starter for several comparisons with the same A. The caller reports which engines
    /// ran.
    pub(super) fn for_series() -> Self {
        Self {
            reports_fallbacks: false,
            keeps_reference: true,
            ..Self::for_one_comparison()
        }
    }

    /// Returns the side of the last comparison that did not start, and whether the reason is that
    /// no engine runs it.
    pub(super) fn refused(&mut self) -> Option<(usize, bool)> {
        self.refused.take()
    }

    fn start(
        &mut self,
        place: usize,
        (wish, launcher): (&StartRequest, &Launcher),
        inputs: &[Tensor],
    ) -> Result<Started, Failure> {
        self.refused = None;
        if place == 0
            && let Some(mut started) = self.running_reference.take()
        {
            let run = |worker: &mut Worker| {
                worker.reset_state()?;
                worker.run(inputs)
            };
            // If the session cannot run again, a new one is started, which reports the reason.
            if let Ok(first) = run(&mut started.worker) {
                started.first_answer = first;
                return Ok(started);
            }
        }
        if self.reports_fallbacks {
            return start_with_notes(wish, inputs, launcher);
        }
        target::start(wish, inputs, launcher).map_err(|error| {
            self.refused = Some((place, error.lacks_engine()));
            Failure::Other(format!("{}: {error}", wish.model.display()))
        })
    }

    fn keep(&mut self, started: Started) {
        self.running_reference = Some(started).filter(|_| self.keeps_reference);
    }
}

/// Two sides and the pairing of their outputs.
struct Pair<'a> {
    sides: &'a [ExecutionSide; 2],
    joint: &'a JointSignature,
    /// For each output of A, the index of the same output of B.
    outputs: &'a [usize],
}

/// The outputs of both sides for one input set.
type Answers = [Result<RunAnswer, EngineError>; 2];

impl Pair<'_> {
    fn compare(
        &self,
        args: &CompareArgs,
        cases: &[InputSet],
        loader: &mut SideStarter,
    ) -> Result<ComparisonReport, Failure> {
        let [a, b] = self.sides;
        let mut load = |side: &ExecutionSide, place: usize| {
            let wish = side.wish(&args.target);
            let launcher = args.target.launcher_on(&side.device)?;
            let inputs = self.inputs_of(place, &cases[0])?;
            loader.start(place, (&wish, &launcher), &inputs)
        };
        let mut started = [load(a, 0)?, load(b, 1)?];
        if loader.reports_fallbacks && started[0].candidate.engine != started[1].candidate.engine {
            note_wrong_operators(&a.wish(&args.target), &started[0], true);
        }
        let (tolerances, judged) = args.tolerances.of(self.sides, &started);
        let specs = &a.selection.signature.outputs;
        let mut pooled = vec![Comparison::default(); specs.len()];
        let mut results = Vec::new();
        for (place, case) in cases.iter().enumerate() {
            if let Some(reason) = &case.generation_error {
                results.push(CaseResult::skipped(case, reason.clone()));
                continue;
            }
            let inputs = [self.inputs_of(0, case)?, self.inputs_of(1, case)?];
            let answers: Answers = if place == 0 {
                // This run has changed the state, so another run would not be the first one.
                started.each_ref().map(|side| Ok(side.first_answer.clone()))
            } else {
                let [one, other] = &mut started;
                let run = |side: &mut Started, place: usize| {
                    if !args.keep_state {
                        side.worker.reset_state()?;
                    }
                    side.worker.run(&inputs[place])
                };
                [run(one, 0), run(other, 1)]
            };
            let mut result = self.judge(args, case, answers, &tolerances, &mut pooled)?;
            let shown = |side: usize| {
                let specs = &self.sides[side].selection.signature.inputs;
                GivenInput::list(specs, &inputs[side])
            };
            result.inputs = [shown(0), shown(1)];
            results.push(result);
        }
        let names = specs.iter().map(|spec| spec.name.clone());
        let outputs = names
            .zip(pooled.iter().map(Comparison::agreement))
            .collect();
        let mut report = ComparisonReport::new(
            SideInfo::of(a, &started[0]),
            SideInfo::of(b, &started[1]),
            tolerances,
            outputs,
            results,
        );
        report.judged = judged;
        let [a, _] = started;
        loader.keep(a);
        Ok(report)
    }

    fn inputs_of(&self, side: usize, case: &InputSet) -> Result<Vec<Tensor>, Failure> {
        let inputs = self.joint.inputs_of(side, &case.inputs);
        inputs.map_err(|error: InputError| Failure::Other(format!("{}: {error}", case.label)))
    }

    fn judge(
        &self,
        args: &CompareArgs,
        case: &InputSet,
        answers: Answers,
        tolerances: &Tolerances,
        pooled: &mut [Comparison],
    ) -> Result<CaseResult, Failure> {
        let specs = &self.sides[0].selection.signature.outputs;
        match answers {
            [Ok(a), Ok(b)] => {
                let outputs = args.target.within("comparing the outputs", || {
                    let mut outputs = Vec::new();
                    for (place, spec) in specs.iter().enumerate() {
                        let pair = (&a.outputs[place], &b.outputs[self.outputs[place]]);
                        outputs.push(judge(&spec.name, pair, tolerances, &mut pooled[place]));
                    }
                    outputs
                });
                Ok(CaseResult::compared(case, outputs))
            }
            // If neither side runs at sizes that were chosen here, nothing is known about their
            // agreement.
            [Err(error), Err(_)] if case.has_chosen_sizes => {
                Ok(CaseResult::skipped(case, error.to_string()))
            }
            [Err(error), Ok(_)] if case.sizes.is_some() => Ok(CaseResult::failed(
                case,
                format!("B runs, A does not: {error}"),
            )),
            [Err(error), _] => Err(failed(case, "A", &error)),
            [_, Err(error)] if case.has_chosen_sizes => Ok(CaseResult::failed(
                case,
                format!("A runs, B does not: {error}"),
            )),
            [_, Err(error)] => Err(failed(case, "B", &error)),
        }
    }
}

fn judge(
    name: &str,
    (a, b): (&Tensor, &Tensor),
    tolerances: &Tolerances,
    pooled: &mut Comparison,
) -> OutputResult {
    let mut comparison = Comparison::default();
    let added = comparison.add(a, b).and_then(|()| pooled.add(a, b));
    if let Err(error) = added {
        return OutputResult::incomparable(name, a, error.to_string());
    }
    let agreement = comparison.agreement();
    let violations = tolerances.violations(&agreement);
    OutputResult::compared(name, a, agreement, violations)
}

fn failed(case: &InputSet, side: &str, error: &EngineError) -> Failure {
    Failure::Other(format!("{side} failed on {}: {error}", case.label))
}
