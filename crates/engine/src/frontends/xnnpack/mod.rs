//! Lowers graphs of the XNNPACK delegate.
//!
//! Quantised values are stored as bytes ([`bytes`], [`weighted`]). Operators without arithmetic on
//! bytes use the dequantised real numbers. Sizes in the file are upper bounds from the export, so
//! shapes follow from the inputs instead.

mod bytes;
mod constant;
mod convolve;
mod node;
mod packed;
mod ranges;
mod tabled;
mod weighted;
mod whole;

use std::collections::HashMap;

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math;

use super::payload::{PayloadCall, lower_nodes};
use crate::graph::builder::{Builder, Wire};
use crate::graph::frame::MethodFrame;
use crate::graph::guard::{LibraryFailure, guarded};
use crate::graph::kernel::Kernel;
use crate::graph::weights::ProgramWeights;
use crate::tensor::DType;
use pkgtool_kernels::bytes::Sign;
use pkgtool_kernels::bytes::elementwise::Grid;
use pkgtool_kernels::rows::RowQuantization;
use pkgtool_model::executorch::xnnpack::{Datatype, Quantization, XnnpackGraph, XnnpackValue};
use tabled::ByteFunction;

/// A graph being lowered.
struct XnnpackLowering<'g> {
    graph: &'g XnnpackGraph,
    weights: &'g ProgramWeights,
    builder: &'g mut Builder,
    held: HashMap<u32, Held>,
    /// Real numbers of values that are stored in another form.
    reals: HashMap<u32, OutletId>,
    /// Real values that are a function of bytes.
    functions: HashMap<u32, ByteFunction>,
}

/// Representation of a value.
#[derive(Debug, Clone, Copy)]
enum Held {
    /// Real numbers.
    Real(OutletId),
    /// Bytes on a grid.
    Bytes(OutletId),
    /// Integers, with a scale for each row.
    Rows {
        /// The rounded real numbers, if rows are the last dimension.
        real: Option<OutletId>,
        /// The integers.
        whole: OutletId,
        /// The scales; inner dimensions have size 1.
        steps: OutletId,
    },
}

/// Lowers the call of a payload's graph.
pub(crate) fn lower(
    frame: &mut MethodFrame<'_>,
    call: PayloadCall<'_>,
) -> Result<(), LibraryFailure> {
    let scope = call.scope;
    let graph = XnnpackGraph::read(frame.weights.program(), call.payload)
        .map_err(|error| LibraryFailure::new(error.to_string()))?;
    let graph = &ranges::fuse_clamps(graph);
    let (inputs, outputs) = call.split(frame, graph.inputs.len(), graph.outputs.len())?;
    let mut held = HashMap::new();
    for (id, &value) in graph.inputs.iter().zip(inputs) {
        let outlet = guarded(|| {
            let wire = frame.tensor(value)?;
            to_graph(frame, wire, value, &graph.values[id])
        })?;
        held.insert(*id, outlet);
    }
    let weights = frame.weights;
    let mut lowering = XnnpackLowering {
        graph,
        weights,
        builder: &mut frame.builder,
        held,
        reals: HashMap::new(),
        functions: HashMap::new(),
    };
    let nodes = graph.nodes.iter().map(|node| (node.name, node));
    lower_nodes(
        &mut lowering,
        |lowering| lowering.builder,
        (scope, "node"),
        nodes,
        XnnpackLowering::node,
    )?;
    lowering.builder.set_scope(scope.to_owned());
    let mut outlets = Vec::new();
    for id in &graph.outputs {
        outlets.push(guarded(|| {
            ensure!(
                lowering.held.contains_key(id),
                "output {id} is not computed by any node"
            );
            match lowering.held[id] {
                Held::Bytes(outlet) => Ok(outlet),
                _ => lowering.input(*id),
            }
        })?);
    }
    let given = graph.outputs.iter().zip(outlets);
    for ((id, outlet), &value) in given.zip(outputs) {
        guarded(|| write_output(frame, outlet, value, &graph.values[id]))?;
    }
    Ok(())
}

/// Returns the dimensions in memory order, which is the order that a delegate uses.
fn memory_order(frame: &MethodFrame<'_>, value: usize) -> Vec<usize> {
    let tensor = frame.method.values[value].tensor();
    tensor.map_or_else(Vec::new, |tensor| tensor.dim_order.clone())
}

/// Converts a value of the method to the graph's representation.
fn to_graph(
    frame: &mut MethodFrame<'_>,
    wire: Wire,
    value: usize,
    to: &XnnpackValue,
) -> TractResult<Held> {
    let order = memory_order(frame, value);
    if let Some(grid) = grid(to)? {
        let bytes = bytes::to_grid_bytes(&mut frame.builder, wire, &order, grid)?;
        return Ok(Held::Bytes(bytes));
    }
    let real = frame.builder.cast(wire, DType::Float32)?;
    let outlet = frame.builder.transpose(real.outlet, &order)?;
    Ok(Held::Real(outlet))
}

/// Writes a value of the graph to the method; bytes become integers.
fn write_output(
    frame: &mut MethodFrame<'_>,
    outlet: OutletId,
    value: usize,
    from: &XnnpackValue,
) -> TractResult<()> {
    let order = memory_order(frame, value);
    let mut places = vec![0; order.len()];
    for (place, &dim) in order.iter().enumerate() {
        places[dim] = place;
    }
    let outlet = frame.builder.transpose(outlet, &places)?;
    let wire = match grid(from)? {
        Some(grid) => bytes::given(&mut frame.builder, outlet, grid)?,
        None => Wire::float(outlet),
    };
    frame.set_tensor(value, wire)
}

/// Returns the range to which a node's result is clamped, if it has an effect.
fn effective_clamp(clamp: Option<(f32, f32)>) -> Option<(f32, f32)> {
    clamp.filter(|(least, most)| *least > f32::MIN || *most < f32::MAX)
}

/// Returns the grid of a value that is quantised as a whole.
fn grid(value: &XnnpackValue) -> TractResult<Option<Grid>> {
    let Some(Quantization::PerTensor { scale, zero_point }) = value.quantization else {
        return Ok(None);
    };
    let sign = match value.datatype {
        Datatype::Qint8 | Datatype::Qpint8 => Sign::Signed,
        Datatype::Quint8 => Sign::Unsigned,
        Datatype::Qint32 => return Ok(None),
        other => bail!("invalid datatype with a single scale: {other:?}"),
    };
    ensure!(scale.is_normal() && scale > 0.0, "invalid scale {scale}");
    let (least, most) = sign.range();
    ensure!(
        (least..=most).contains(&zero_point),
        "invalid zero point {zero_point}: expected {least} to {most}"
    );
    Ok(Some(Grid {
        sign,
        scale,
        zero_point,
    }))
}

impl XnnpackLowering<'_> {
    fn value(&self, id: u32) -> &XnnpackValue {
        &self.graph.values[&id]
    }

    /// Returns a value as float32 numbers.
    fn input(&mut self, id: u32) -> TractResult<OutletId> {
        if let Some(outlet) = self.reals.get(&id) {
            return Ok(*outlet);
        }
        let outlet = match self.held.get(&id).copied() {
            Some(Held::Real(outlet)) => outlet,
            Some(Held::Bytes(outlet)) => {
                let Some(grid) = grid(self.value(id))? else {
                    bail!("value {id} is not quantised");
                };
                bytes::real(self.builder, outlet, grid)?
            }
            Some(Held::Rows { whole, steps, .. }) => {
                self.builder.binary(Box::new(math::Mul), whole, steps)?
            }
            None => {
                let value = self.value(id).clone();
                ensure!(
                    value.data.is_some(),
                    "value {id} is read before it is computed"
                );
                let tensor = constant::read(self.weights, &value)?;
                self.builder.constant(tensor, DType::Float32)?.outlet
            }
        };
        self.reals.insert(id, outlet);
        Ok(outlet)
    }

    /// Writes a value, clamped to the node's range and rounded to its datatype.
    fn output(&mut self, id: u32, outlet: OutletId, clamp: Option<(f32, f32)>) -> TractResult<()> {
        let value = self.value(id).clone();
        if let Some(grid) = grid(&value)? {
            let to = (grid, bytes::clamp_range(grid, clamp));
            let rounded = bytes::rounded(self.builder, outlet, to)?;
            self.held.insert(id, Held::Bytes(rounded));
            return Ok(());
        }
        let mut outlet = outlet;
        if let Some((least, most)) = effective_clamp(clamp) {
            ensure!(
                !least.is_nan() && !most.is_nan(),
                "invalid clamp range {least} to {most}"
            );
            outlet = self.clamp(outlet, least, most)?;
        }
        let held = match (value.datatype, &value.quantization) {
            (Datatype::Fp16, _) => Held::Real(self.builder.rounded(outlet, DType::Float16)?.outlet),
            (Datatype::Bf16, _) => {
                Held::Real(self.builder.rounded(outlet, DType::Bfloat16)?.outlet)
            }
            (Datatype::Qdint8, quantization) => {
                let inner = match quantization {
                    Some(Quantization::PerToken { nonbatch_dims }) => (*nonbatch_dims).max(1),
                    _ => 1,
                };
                self.quantise_rows(outlet, inner)?
            }
            _ => Held::Real(outlet),
        };
        self.held.insert(id, held);
        Ok(())
    }

    /// Clamps a value with operators that tract fuses into the one before.
    fn clamp(&mut self, outlet: OutletId, least: f32, most: f32) -> TractResult<OutletId> {
        let rank = self.builder.rank(outlet)?;
        let mut outlet = outlet;
        if least > f32::MIN {
            let least = self.builder.float(least, rank)?;
            outlet = self.builder.binary(Box::new(math::Max), outlet, least)?;
        }
        if most < f32::MAX {
            let most = self.builder.float(most, rank)?;
            outlet = self.builder.binary(Box::new(math::Min), outlet, most)?;
        }
        Ok(outlet)
    }

    /// Rounds each row of the last `inner` dimensions to 255 steps between its minimum and maximum.
    fn quantise_rows(&mut self, outlet: OutletId, inner: usize) -> TractResult<Held> {
        let shape = self.builder.shape(outlet)?;
        let lead = shape.len().saturating_sub(inner);
        let mut of_steps = shape.clone();
        of_steps[lead..].fill(TDim::Val(1));
        let facts = tvec!(f32::fact(&shape), f32::fact(&of_steps));
        let kernel = Kernel::new("RoundRows", facts, move |inputs| {
            let shape = inputs[0].shape();
            let row: usize = shape[lead..].iter().product();
            let mut of_steps = shape.to_vec();
            of_steps[lead..].fill(1);
            let mut rounded = Tensor::clone(&inputs[0]);
            let mut view = rounded.try_as_plain_ram_mut()?;
            let rows = view.as_slice_mut::<f32>()?.chunks_exact_mut(row.max(1));
            let steps: Vec<f32> = rows.map(round_row).collect();
            let steps = Tensor::from_shape(&of_steps, &steps)?;
            Ok(tvec!(rounded, steps))
        });
        let outlets = self.builder.wire_all(kernel, &[outlet])?;
        Ok(Held::Rows {
            real: (inner == 1).then_some(outlet),
            whole: outlets[0],
            steps: outlets[1],
        })
    }
}

/// Rounds a row as XNNPACK's dynamic quantisation does, and returns the scale.
fn round_row(row: &mut [f32]) -> f32 {
    let steps = RowQuantization::of(row);
    for x in row {
        *x = steps.steps_from_zero(*x);
    }
    steps.step_size()
}
