//! Runs components, or methods of one program, in sequence: outputs of one become inputs of the
//! next.

use super::{CompletedRun, RunArgs};
use crate::cli::execute::sizes::{TrialModel, with_sizes};
use crate::cli::execute::target_args::GENERATING_INPUTS;
use crate::cli::exit::Failure;
use pkgtool_engine::runtime::selection::Selection;
use pkgtool_engine::tensor::input::{self, Generator, InitialValue, InputArgs};
use pkgtool_engine::tensor::{Signature, Tensor, TensorSpec};

/// Runs the model of the arguments: one method, or a chain of components or methods.
pub(super) fn run(args: &RunArgs) -> Result<Vec<CompletedRun>, Failure> {
    let which = args.variant.which();
    if args.chain.is_empty() {
        let selection = super::super::select_method(&args.target, &args.path, which)?;
        let given = args.target.limit_memory(args.inputs.to_args());
        let model = TrialModel {
            target: &args.target,
            which,
            selection: &selection,
        };
        let stage = with_sizes(&model, &given, |given| {
            let inputs = assemble(args, &selection.signature, given, &[])?;
            CompletedRun::run(args, selection.clone(), inputs)
        })?;
        return Ok(vec![stage]);
    }
    // All are selected before any runs, so that a misspelt name is reported at once.
    let mut selections = Vec::new();
    for name in &args.chain {
        let link = args.target.select_link(&args.path, which, name);
        selections.push(link.map_err(|error| super::super::selection_failure(&error))?);
    }
    let given = args.target.limit_memory(args.inputs.to_args());
    let mut given = ChainInputs::new(&given, &selections)?;
    let mut stages: Vec<CompletedRun> = Vec::new();
    for (place, selection) in selections.into_iter().enumerate() {
        let arguments = given.for_stage(place, &selection.signature);
        let inputs = gather_inputs(args, &selection.signature, &arguments, &stages)?;
        stages.push(CompletedRun::run(args, selection, inputs)?);
    }
    Ok(stages)
}

fn assemble(
    args: &RunArgs,
    signature: &Signature,
    given: &InputArgs,
    held: &[Option<InitialValue>],
) -> Result<Vec<Tensor>, Failure> {
    let inputs = args.target.within(GENERATING_INPUTS, || {
        input::assemble_around(signature, given, held)
    });
    inputs.map_err(|error| Failure::Other(error.to_string()))
}

/// The input arguments of a chain.
///
/// A named argument goes to each component that has an input of this name. An unnamed generator
/// fills the inputs that no earlier component feeds, in every component. All other unnamed
/// arguments go to the first component.
struct ChainInputs {
    arguments: InputArgs,
}

impl ChainInputs {
    fn new(arguments: &InputArgs, selections: &[Selection]) -> Result<Self, Failure> {
        for argument in &arguments.inputs {
            let Some(name) = name_of(argument) else {
                continue;
            };
            let specs = selections.iter().flat_map(|one| &one.signature.inputs);
            let known: Vec<&str> = specs.map(|spec| spec.name.as_str()).collect();
            if !known.contains(&name) && !is_existing_file(argument) {
                return Err(Failure::Other(format!(
                    "no component of the chain has an input `{name}`; available: {}",
                    known.join(", ")
                )));
            }
        }
        Ok(Self {
            arguments: arguments.clone(),
        })
    }

    /// Returns the arguments for the component at index `place`.
    fn for_stage(&mut self, place: usize, signature: &Signature) -> InputArgs {
        let has = |name: &str| signature.inputs.iter().any(|spec| spec.name == name);
        let mut own = self.arguments.clone();
        own.inputs.retain(|argument| match name_of(argument) {
            Some(name) if has(name) => true,
            Some(_) => place == 0 && is_existing_file(argument),
            None => place == 0 || is_generator(argument),
        });
        own
    }
}

/// Returns whether an argument generates values for any input: `zeros`, `random:7`.
fn is_generator(argument: &str) -> bool {
    argument.parse::<Generator>().is_ok()
}

/// Returns the part before the first `=`.
fn name_of(argument: &str) -> Option<&str> {
    argument.split_once('=').map(|(name, _)| name)
}

/// Returns whether an argument with a `=` is the path of a file.
fn is_existing_file(argument: &str) -> bool {
    std::path::Path::new(argument).exists()
}

/// Returns the inputs of a component: outputs of earlier components, then values of the arguments
/// in matching sizes.
fn gather_inputs(
    args: &RunArgs,
    signature: &Signature,
    arguments: &InputArgs,
    earlier: &[CompletedRun],
) -> Result<Vec<Tensor>, Failure> {
    let fed = earlier_outputs(signature, arguments, earlier).into_iter();
    let held: Vec<Option<InitialValue>> = fed
        .map(|tensor| {
            Some(InitialValue {
                tensor: Some(tensor?),
                origin: "an output of an earlier component".to_owned(),
                empty: Vec::new(),
            })
        })
        .collect();
    assemble(args, signature, arguments, &held)
}

/// Returns an earlier output for each input, if any. Outputs are matched by name first, the latest
/// component first. The unmatched outputs of the previous component are then matched in order, if
/// dtype and shape fit.
fn earlier_outputs(
    signature: &Signature,
    arguments: &InputArgs,
    earlier: &[CompletedRun],
) -> Vec<Option<Tensor>> {
    let mut fed: Vec<Option<Tensor>> = vec![None; signature.inputs.len()];
    let named = |spec: &TensorSpec| {
        let names = arguments.inputs.iter().filter_map(|one| name_of(one));
        names.into_iter().any(|name| name == spec.name)
    };
    let mut taken = Vec::new();
    for (slot, spec) in fed.iter_mut().zip(&signature.inputs) {
        if named(spec) {
            continue;
        }
        let source = earlier.iter().enumerate().rev().find_map(|(stage, one)| {
            let outputs = &one.selection.signature.outputs;
            let output = outputs.iter().position(|output| output.name == spec.name)?;
            Some((stage, output))
        });
        if let Some((stage, output)) = source {
            *slot = earlier[stage]
                .started
                .first_answer
                .outputs
                .get(output)
                .cloned();
            if stage + 1 == earlier.len() {
                taken.push(output);
            }
        }
    }
    let Some(before) = earlier.last() else {
        return fed;
    };
    let outputs = before.started.first_answer.outputs.iter().enumerate();
    let mut free = outputs.filter(|(output, _)| !taken.contains(output));
    for (slot, spec) in fed.iter_mut().zip(&signature.inputs) {
        if slot.is_none() && !named(spec) {
            *slot = free
                .by_ref()
                .find(|(_, tensor)| fits(spec, tensor))
                .map(|(_, tensor)| tensor.clone());
        }
    }
    fed
}

fn fits(spec: &TensorSpec, tensor: &Tensor) -> bool {
    let alone = Signature {
        method: String::new(),
        inputs: vec![spec.clone()],
        outputs: Vec::new(),
    };
    input::check(&alone, std::slice::from_ref(tensor)).is_ok()
}
