//! `Pad` with pads that may be negative: negative pads crop first, then the rest is padded.

use tract_onnx::model::{ParsingContext, optional_inputs};
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::ops::array::{Pad as Padding, PadMode, Slice, TypedConcat};
use tract_onnx::tract_core::ops::identity::Identity;
use tract_onnx::tract_hir::internal::*;

use super::super::graph::{attribute, text};
use crate::frontends::onnx::node_operator::{
    Built, NodeOperator, Tensors, Wired, counted_from_start, integers_of, operator, stored,
};

/// A `Pad` node of the model.
#[derive(Debug, Clone)]
struct Pad {
    mode: OnnxPadMode,
    /// The pads, if they are an attribute.
    pads: Option<Vec<i64>>,
    /// The value, if it is an attribute.
    value: f32,
    /// Indices of the inputs with the value and the axes.
    inputs: [Option<usize>; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnnxPadMode {
    Constant,
    Reflect,
    Edge,
    Wrap,
}

/// Builds the operator of a node.
pub(super) fn build(_: &ParsingContext, node: &NodeProto) -> Built {
    let mode = match text(node, "mode") {
        b"" | b"constant" => OnnxPadMode::Constant,
        b"reflect" => OnnxPadMode::Reflect,
        b"edge" => OnnxPadMode::Edge,
        b"wrap" => OnnxPadMode::Wrap,
        other => bail!(
            "the mode `{}` is not supported",
            String::from_utf8_lossy(other)
        ),
    };
    let given: Vec<Option<usize>> = optional_inputs(node).take(4).collect();
    let pad = Pad {
        mode,
        pads: attribute(node, "pads").map(|pads| pads.ints.clone()),
        value: attribute(node, "value").map_or(0.0, |value| value.f),
        inputs: [given[2], given[3]],
    };
    let given = 1 + usize::from(pad.pads.is_none()) + pad.inputs.iter().flatten().count();
    operator("Pad", given, pad)
}

impl Pad {
    /// Returns the pads at the start and the end of each dimension.
    fn of_dimensions(
        &self,
        rank: usize,
        pads: Option<&Tensor>,
        axes: Option<&Tensor>,
    ) -> TractResult<Vec<[i64; 2]>> {
        let pads = match (&self.pads, pads) {
            (Some(pads), _) => pads.clone(),
            (None, Some(pads)) => integers_of(pads)?,
            (None, None) => bail!("computed pads are not supported"),
        };
        let axes = match axes {
            Some(axes) => integers_of(axes)?,
            None => (0..i64::try_from(rank)?).collect(),
        };
        ensure!(
            pads.len() == 2 * axes.len(),
            "{} pads are given for {} dimensions",
            pads.len(),
            axes.len()
        );
        let mut all = vec![[0; 2]; rank];
        for (at, axis) in axes.iter().enumerate() {
            let dimension = counted_from_start(*axis, rank)?;
            let dimension =
                dimension.with_context(|| format!("axis {axis} to pad does not exist"))?;
            all[dimension] = [pads[at], pads[at + axes.len()]];
        }
        Ok(all)
    }
}

impl NodeOperator for Pad {
    fn rules<'r>(&'r self, s: &mut Solver<'r>, [inputs, outputs]: Tensors<'r>) -> InferenceResult {
        s.equals(&inputs[0].datum_type, &outputs[0].datum_type)?;
        s.equals(&inputs[0].rank, &outputs[0].rank)?;
        let mut values: Vec<&'r TensorProxy> = Vec::new();
        if self.pads.is_none() {
            values.push(&inputs[1]);
        }
        values.extend(self.inputs[1].map(|at| &inputs[at]));
        s.given(&inputs[0].rank, move |s, rank| {
            let rank = usize::try_from(rank)?;
            let values: Vec<_> = values.iter().map(|proxy| (&proxy.value).bex()).collect();
            s.given_all(values, move |s, values: Vec<Arc<Tensor>>| {
                let has_pads = usize::from(self.pads.is_none());
                let pads = values.first().filter(|_| has_pads == 1);
                let axes = values.get(has_pads);
                let all = self.of_dimensions(rank, pads.map(|it| &**it), axes.map(|it| &**it))?;
                for (axis, [start, end]) in all.into_iter().enumerate() {
                    s.equals(
                        &outputs[0].shape[axis],
                        inputs[0].shape[axis].bex() + start.to_dim() + end.to_dim(),
                    )?;
                }
                Ok(())
            })
        })
    }

    fn wire(&self, prefix: &str, model: &mut TypedModel, inputs: &[OutletId]) -> Wired {
        let stored = |at: usize, what| stored(model, inputs[at], what);
        let pads = self.pads.is_none().then(|| stored(1, "pads")).transpose()?;
        let [value, axes] = self.inputs;
        let axes = axes.map(|at| stored(at, "axes")).transpose()?;
        let value = value
            .map(|at| stored(at, "values to pad with"))
            .transpose()?;
        let (shape, dtype) = {
            let fact = model.outlet_fact(inputs[0])?;
            (fact.shape.to_tvec(), fact.datum_type)
        };
        let all = self.of_dimensions(shape.len(), pads.as_deref(), axes.as_deref())?;
        let mut outlet = inputs[0];
        let mut added = Vec::new();
        for (axis, [start, end]) in all.into_iter().enumerate() {
            if start < 0 || end < 0 {
                let from = (-start).max(0);
                let to = shape[axis].clone() + end.min(0);
                let slice = Slice::new(axis, from, to);
                let name = format!("{prefix}.crop.{axis}");
                outlet = model.wire_node(name, slice, &[outlet])?[0];
            }
            let size = shape[axis].clone() + start.min(0) + end.min(0);
            let (start, end) = (start.max(0), end.max(0));
            if let Ok(size) = size.to_i64() {
                let most = start.max(end);
                match self.mode {
                    OnnxPadMode::Reflect if most >= size.max(1) => {
                        bail!("cannot reflect {most} elements on a dimension of {size}")
                    }
                    OnnxPadMode::Wrap if most > size => {
                        bail!("cannot wrap {most} elements around a dimension of {size}")
                    }
                    _ => {}
                }
            }
            if self.mode == OnnxPadMode::Wrap {
                outlet = wrapped(
                    &format!("{prefix}.{axis}"),
                    model,
                    outlet,
                    axis,
                    [start, end],
                )?;
                continue;
            }
            added.push((usize::try_from(start)?, usize::try_from(end)?));
        }
        let mode = match self.mode {
            OnnxPadMode::Wrap => return model.wire_node(prefix, Identity, &[outlet]),
            OnnxPadMode::Reflect => PadMode::Reflect,
            OnnxPadMode::Edge => PadMode::Edge,
            OnnxPadMode::Constant => {
                let value = value.map_or_else(|| tensor0(self.value), Arc::unwrap_or_clone);
                ensure!(
                    value.len() == 1,
                    "padding needs one value, got {}",
                    value.len()
                );
                let mut value = value.cast_to_dt(dtype)?.into_owned();
                value.set_shape(&[])?;
                PadMode::Constant(value.into_arc_tensor())
            }
        };
        model.wire_node(prefix, Padding { pads: added, mode }, &[outlet])
    }
}

/// Puts the last elements of a dimension before it, and its first elements behind it.
fn wrapped(
    name: &str,
    model: &mut TypedModel,
    input: OutletId,
    axis: usize,
    [start, end]: [i64; 2],
) -> TractResult<OutletId> {
    let size = model.outlet_fact(input)?.shape[axis].clone();
    let mut parts = vec![input];
    if start > 0 {
        let last = Slice::new(axis, size.clone() - start, size);
        parts.insert(
            0,
            model.wire_node(format!("{name}.last"), last, &[input])?[0],
        );
    }
    if end > 0 {
        let first = Slice::new(axis, 0, end);
        parts.extend(model.wire_node(format!("{name}.first"), first, &[input])?);
    }
    Ok(model.wire_node(format!("{name}.wrapped"), TypedConcat::new(axis), &parts)?[0])
}
