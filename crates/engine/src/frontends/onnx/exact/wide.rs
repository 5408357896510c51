//! Operators that add up many float16 numbers, computed in float32.
//!
//! The library adds float16 numbers in float16. The mean of a picture becomes infinite once its sum
//! exceeds 65504, and a convolution of a thousand taps is off by some percent. The reference
//! implementations compute such operators in float32 and round the result.

use std::collections::HashMap;

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_hir::internal::*;

use super::wrapped::{self, Evaluated, Translation, Wrapping, has_builder};
use crate::frontends::onnx::node_operator::{Built, Wired};

/// Operators that add up numbers, or multiply a growing number of them.
const SUMMING_OPERATORS: [&str; 19] = [
    "AveragePool",
    "BatchNormalization",
    "Conv",
    "ConvTranspose",
    "CumSum",
    "GlobalAveragePool",
    "GlobalLpPool",
    "GroupNormalization",
    "InstanceNormalization",
    "LRN",
    "LpNormalization",
    "LpPool",
    "MeanVarianceNormalization",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceMean",
    "ReduceSum",
    "ReduceSumSquare",
];

/// Returns the operators with an implementation.
pub(crate) fn summing_operators() -> impl Iterator<Item = &'static str> {
    SUMMING_OPERATORS
        .into_iter()
        .filter(|name| has_builder(name))
}

/// Builds an operator of [`SUMMING_OPERATORS`].
pub(crate) fn build(context: &ParsingContext<'_>, node: &NodeProto) -> Built {
    wrapped::build(context, node, Wide)
}

/// Converts float16 inputs of an operator to float32, and its outputs back to float16.
#[derive(Debug, Clone)]
struct Wide;

impl Wrapping for Wide {
    fn eval(&self, inner: &dyn InferenceOp, inputs: TVec<TValue>) -> Evaluated {
        // Known float16 inputs are computed by the plan.
        if inputs.iter().any(|input| is_half(input.datum_type())) {
            return Ok(None);
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
        let mut wide = HashMap::new();
        let mut has_half = false;
        for (slot, input) in node.inputs.iter().enumerate() {
            let mut outlet = mapping[input];
            if is_half(target.outlet_fact(outlet)?.datum_type) {
                let name = format!("{}.wide.{slot}", node.name);
                outlet = target.wire_node(name, cast(f32::datum_type()), &[outlet])?[0];
                has_half = true;
            }
            wide.insert(*input, outlet);
        }
        if !has_half {
            return inner.to_typed(source, node, target, mapping);
        }
        // The facts of its outputs refer to float16.
        let mut open = node.clone();
        for output in &mut open.outputs {
            output.fact = InferenceFact::default();
        }
        let outlets = inner.to_typed(source, &open, target, &wide)?;
        let halves = outlets.into_iter().enumerate().map(|(slot, outlet)| {
            if target.outlet_fact(outlet)?.datum_type != f32::datum_type() {
                return Ok(outlet);
            }
            let name = format!("{}.half.{slot}", node.name);
            Ok(target.wire_node(name, cast(DatumType::F16), &[outlet])?[0])
        });
        halves.collect()
    }
}

fn is_half(dtype: DatumType) -> bool {
    dtype == DatumType::F16
}
