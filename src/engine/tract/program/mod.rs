//! ExecuTorch programs as graphs of the library.
//!
//! A method's instructions, portable operators and XNNPACK graphs become one graph, which the library
//! then optimises across what were borders between delegates. Invariant: what has no meaning here is
//! refused by its name before anything runs; nothing is approximated.

mod attention;
mod builder;
mod calling;
mod convolution;
mod coreml;
mod delegates;
mod frame;
mod mlx;
mod operators;
mod pointwise;
mod product;
mod resize;
mod session;
mod standalone;
mod vulkan;
mod walk;
mod weights;
mod xnnpack;

use std::collections::BTreeSet;
use std::path::Path;

use tract_onnx::tract_core::internal::{DatumType, TypedModel};

pub(super) use session::ProgramSession;
pub(super) use standalone::missing as missing_of_core_ml;

use walk::lower;

use weights::Weights;

use super::guard::Failure;
use crate::model::executorch::body::ProgramBody;
use crate::package::Backend;
use crate::source::FileSource;
use crate::tensor::{DType, Tensor};

/// A method as a graph.
pub(super) struct Lowered {
    /// Inputs: the method's tensors, then its states. Outputs: the method's, then new states.
    pub(super) model: TypedModel,
    /// The method's inputs that are inputs of the graph; others are numbers the program fixed.
    pub(super) given: Vec<usize>,
    /// dtypes of the outputs.
    pub(super) outputs: Vec<DType>,
    /// What the method keeps from run to run.
    pub(super) states: Vec<State>,
}

/// Something a method keeps from run to run.
pub(super) struct State {
    /// The value's place in the method.
    pub(super) value: usize,
    /// What it is before the first run.
    pub(super) initial: std::sync::Arc<tract_onnx::prelude::Tensor>,
}

/// What a lowering is made for: sizes of each input.
pub(super) type Shapes = Vec<Vec<Size>>;

/// A size of an input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Size {
    /// This one.
    Known(u64),
    /// Any up to a bound; sizes with one name are equal.
    Any {
        /// A name.
        name: String,
        /// The bound.
        most: u64,
    },
}

/// The datum type that stands for a dtype here.
pub(super) fn datum_type(dtype: DType) -> DatumType {
    super::elements::datum_type(dtype)
        .filter(|found| *found != DatumType::F16)
        .unwrap_or(DatumType::F32)
}

/// The full names of all operators and delegates that can be lowered.
pub(super) fn known() -> Vec<&'static str> {
    operators::names().chain(delegates::names()).collect()
}

/// What keeps a method with these operators and delegates from being lowered, by their full names.
pub(super) fn missing<'a>(
    operators: impl Iterator<Item = &'a str>,
    delegates: impl Iterator<Item = &'a str>,
) -> BTreeSet<String> {
    let operators = operators.filter(|name| !operators::is_known(name));
    let delegates = delegates.filter(|id| !delegates::is_known(id));
    operators.chain(delegates).map(str::to_owned).collect()
}

/// Whether payloads of a delegate may hold what cannot be lowered.
pub(super) fn may_miss(id: &str) -> bool {
    delegates::may_miss(id)
}

/// What of the payloads of a method's delegates cannot be lowered, and why, of the first that has such;
/// nothing of a file that cannot be read.
pub(super) fn missing_inside(model: &Path, method: &str) -> Option<(BTreeSet<String>, String)> {
    let source = FileSource::open(model).ok()?;
    let body = ProgramBody::read(&source).ok()?;
    let weights = Weights::open(model, body.named).ok()?;
    let method = body
        .methods
        .into_iter()
        .find(|found| found.name == method)?;
    delegates::first_missing(&method.delegates, &weights)
        .unwrap_or_else(|failure| Some((BTreeSet::new(), failure.reason)))
}

/// The backend whose graphs a delegate of this id has, if they are read in half precision otherwise than
/// its hardware computes them.
pub(super) fn reading(id: &str) -> Option<Backend> {
    delegates::reading(id)
}

/// Why these names cannot be lowered, and what would run them.
pub(super) fn refusal(missing: &BTreeSet<String>) -> String {
    let (operators, delegates): (Vec<_>, Vec<_>) =
        missing.iter().partition(|name| name.contains("::"));
    let mut reasons = Vec::new();
    if !operators.is_empty() {
        let names: Vec<String> = operators.iter().map(|name| format!("`{name}`")).collect();
        let names = names.join(", ");
        reasons.push(format!(
            "there is no code for {names}; ExecuTorch itself runs it"
        ));
    }
    for id in delegates {
        let runtime = delegates::runner(id);
        reasons.push(format!(
            "what is in {id} has no portable form; {runtime} runs it"
        ));
    }
    reasons.join("; ")
}

/// A tensor of ours as one that stands for it in a graph.
pub(super) fn give(tensor: &Tensor) -> Result<tract_onnx::prelude::Tensor, Failure> {
    let widened = matches!(tensor.dtype(), DType::Float16 | DType::Bfloat16);
    if !widened {
        return super::elements::give(tensor);
    }
    let (halves, _) = tensor.bytes().as_chunks::<2>();
    let values = halves
        .iter()
        .map(|half| weights::widen(tensor.dtype(), *half));
    let values: Vec<f32> = values.collect();
    let shape = super::elements::sizes(tensor.shape())?;
    super::guard::guarded(|| tract_onnx::prelude::Tensor::from_shape(&shape, &values))
}
