//! Constant folding with the corrected operators. The library computes known tensors while it
//! builds a graph, with its own operators. This module computes them by a separate plan, with all
//! corrections.

use tract_linalg::multithread::Executor;
use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::dyn_clone;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::konst::Const;
use tract_onnx::tract_hir::internal::*;

use super::wrapped::{self, Evaluated, Translation, Wrapping};
use crate::frontends::onnx::node_operator::{Built, Wired};

/// Operators that are corrected or checked when a plan runs.
pub(crate) const CHECKED_OPERATORS: [&str; 23] = [
    "Acosh",
    "Asinh",
    "BiasGelu",
    "BitShift",
    "Clip",
    "Div",
    "Erf",
    "FastGelu",
    "Gelu",
    "HardSigmoid",
    "HardSwish",
    "Max",
    "MaxPool",
    "Mean",
    "Min",
    "Pow",
    "QuickGelu",
    "ReduceProd",
    "Relu",
    "Sigmoid",
    "Softsign",
    "Swish",
    "Tanh",
];
/// Operators whose integer inputs are checked, too.
const CHECKED_ON_INTEGERS: [&str; 1] = ["BitShift"];
/// Operators whose inputs are all data. For the others only the first one is.
const ALL_INPUTS_ARE_DATA: [&str; 4] = ["Div", "Max", "Mean", "Min"];
/// Maximum size of a tensor that is computed early, in bytes: the library's own limit.
const MAX_BYTES: usize = 4 << 20;

/// Builds an operator of [`CHECKED_OPERATORS`].
pub(crate) fn build(context: &ParsingContext<'_>, node: &NodeProto) -> Built {
    let name = node.op_type.as_str();
    let folded = Folded {
        whole: CHECKED_ON_INTEGERS.contains(&name),
        many: ALL_INPUTS_ARE_DATA.contains(&name),
    };
    wrapped::build(context, node, folded)
}

/// Computes an operator of the library in this module if all its inputs are known.
#[derive(Debug, Clone)]
struct Folded {
    whole: bool,
    many: bool,
}

impl Folded {
    /// Returns `true` if this module computes these inputs. The library treats the others as sizes.
    fn takes(&self, inputs: &[TValue]) -> bool {
        let is_data = |input: &TValue| {
            let dtype = input.datum_type();
            let is_number = dtype.is_float() || self.whole && dtype.is_integer();
            is_number && dtype != DatumType::TDim && input.is_plain_ram()
        };
        let bytes: usize = inputs
            .iter()
            .map(|input| input.len().saturating_mul(input.datum_type().size_of()))
            .fold(0, usize::saturating_add);
        inputs.first().is_some_and(is_data)
            && bytes <= MAX_BYTES
            && inputs.iter().all(|input| input.is_plain_ram())
    }

    /// Computes the result of known inputs by a plan that treats them as unknown.
    fn answer(&self, inner: &dyn InferenceOp, inputs: &[TValue]) -> TractResult<TVec<TValue>> {
        let mut graph = InferenceModel::default();
        let mut values = TVec::new();
        let mut wires = Vec::new();
        for (place, input) in inputs.iter().enumerate() {
            let name = format!("x{place}");
            let wire = if place == 0 || self.many {
                values.push(input.clone());
                let fact = InferenceFact::dt_shape(input.datum_type(), input.shape());
                graph.add_source(name, fact)?
            } else {
                let value = input.clone().into_arc_tensor();
                let fact = InferenceFact::try_from(&value)?;
                let node = graph.add_node(name, Const::new(value)?, tvec!(fact))?;
                node.into()
            };
            wires.push(wire);
        }
        let count = inner.nboutputs()?;
        let facts = (0..count).map(|_| InferenceFact::default()).collect();
        let node = graph.add_node("y", dyn_clone::clone_box(inner), facts)?;
        for (place, wire) in wires.into_iter().enumerate() {
            graph.add_edge(wire, InletId::new(node, place))?;
        }
        let outlets: Vec<OutletId> = (0..count).map(|slot| OutletId::new(node, slot)).collect();
        graph.select_output_outlets(&outlets)?;
        let build = || graph.into_typed();
        let runner = crate::graph::corrections::runner(&Executor::SingleThread, false, build);
        let runner = runner.map_err(|unplanned| TractError::msg(unplanned.failure.reason));
        let answer = runner?.run(values, count);
        answer.map_err(|failure| TractError::msg(failure.reason))
    }
}

impl Wrapping for Folded {
    fn eval(&self, inner: &dyn InferenceOp, inputs: TVec<TValue>) -> Evaluated {
        if self.takes(&inputs) {
            return self.answer(inner, &inputs).map(Some);
        }
        inner.eval_out_of_plan(inputs)
    }

    fn to_typed(&self, inner: &dyn InferenceOp, to: Translation<'_>) -> Wired {
        let Translation {
            source,
            node,
            target,
            mapping,
        } = to;
        let mut known = TVec::new();
        for input in &node.inputs {
            let value = target.outlet_fact(mapping[input])?.konst.clone();
            known.extend(value.map(IntoTValue::into_tvalue));
        }
        if known.len() < node.inputs.len() || !self.takes(&known) {
            return inner.to_typed(source, node, target, mapping);
        }
        let answers = self.answer(inner, &known)?.into_iter().enumerate();
        answers
            .map(|(slot, answer)| {
                let name = if slot == 0 {
                    node.name.clone()
                } else {
                    format!("{}.{slot}", node.name)
                };
                target.add_const(name, answer.into_arc_tensor())
            })
            .collect()
    }
}
