//! Lowers graphs of the Vulkan delegate: calls of operators by name, through the operator table.
//!
//! GPU memory layouts are ignored. Sizes in the file are those of the export, so shapes follow from
//! the inputs instead. float16 values are computed in float32, or rounded wherever the graph rounds
//! ([`Rounding`]).

mod args;
mod fused;
mod language;
mod names;
mod quantized;
mod rotary;
mod weights;

use std::collections::{BTreeSet, HashMap};

use tract_onnx::tract_core::internal::*;

use super::payload::{PayloadCall, lower_nodes};
use crate::Rounding;
use crate::graph::builder::{Builder, Wire};
use crate::graph::calling::{CallArg, CallContext, CallResult};
use crate::graph::frame::{FrameSlot, MethodFrame, dtype_of_element};
use crate::graph::guard::{LibraryFailure, guarded};
use crate::graph::weights::ProgramWeights;
use crate::tensor::DType;
use pkgtool_model::executorch::body::ByteRange;
use pkgtool_model::executorch::vulkan::{VulkanCall, VulkanGraph, VulkanValue};

/// The result of lowering a call, which writes the call's results itself.
type WrittenResult = TractResult<()>;

/// A graph being lowered.
struct VulkanLowering<'g> {
    graph: &'g VulkanGraph,
    weights: &'g ProgramWeights,
    builder: &'g mut Builder,
    rounding: Rounding,
    slots: HashMap<usize, FrameSlot>,
}

/// Returns the names of a payload's unsupported operators.
pub(crate) fn missing(
    weights: &ProgramWeights,
    payload: ByteRange,
) -> Result<BTreeSet<String>, LibraryFailure> {
    let graph = read(weights, payload)?;
    let names = graph.calls.iter().map(|call| call.name.as_str());
    Ok(names
        .filter(|name| !is_supported(name))
        .map(str::to_owned)
        .collect())
}

fn read(weights: &ProgramWeights, payload: ByteRange) -> Result<VulkanGraph, LibraryFailure> {
    VulkanGraph::read(weights.program(), payload)
        .map_err(|error| LibraryFailure::new(error.to_string()))
}

fn is_supported(name: &str) -> bool {
    fused::find(name).is_some() || names::table_name(name).is_some()
}

/// Lowers the call of a payload's graph.
pub(crate) fn lower(
    frame: &mut MethodFrame<'_>,
    call: PayloadCall<'_>,
) -> Result<(), LibraryFailure> {
    let scope = call.scope;
    let graph = read(frame.weights, call.payload)?;
    let (inputs, outputs) = call.split(frame, graph.inputs.len(), graph.outputs.len())?;
    let mut slots = HashMap::new();
    for (id, &value) in graph.inputs.iter().zip(inputs) {
        let slot = guarded(|| frame.slot(value))?;
        slots.insert(*id, slot);
    }
    let caches = guarded(|| overwritten_constants(frame, scope, &graph))?;
    slots.extend(
        caches
            .iter()
            .map(|cache| (cache.value, FrameSlot::Tensor(cache.wire))),
    );
    let mut lowering = VulkanLowering {
        graph: &graph,
        weights: frame.weights,
        rounding: frame.rounding,
        builder: &mut frame.builder,
        slots,
    };
    guarded(|| lowering.inputs())?;
    let calls = graph.calls.iter().map(|call| (call.name.as_str(), call));
    lower_nodes(
        &mut lowering,
        |lowering| lowering.builder,
        (scope, "call"),
        calls,
        VulkanLowering::call,
    )?;
    let given = graph
        .outputs
        .iter()
        .map(|id| guarded(|| lowering.slot(*id)));
    let given: Vec<FrameSlot> = given.collect::<Result<_, _>>()?;
    let updated = caches.into_iter().map(|cache| {
        let slot = guarded(|| lowering.slot(cache.value))?;
        Ok((cache.place, slot))
    });
    let updated: Vec<(usize, FrameSlot)> = updated.collect::<Result<_, LibraryFailure>>()?;
    frame.now.slots.extend(updated);
    for (slot, &value) in given.into_iter().zip(outputs) {
        guarded(|| match slot {
            FrameSlot::Tensor(wire) => frame.set_tensor(value, wire),
            other => {
                frame.write(value, other);
                Ok(())
            }
        })?;
    }
    Ok(())
}

/// A constant that calls write to, and that is kept between runs.
struct CallCache {
    value: usize,
    /// Its index among the method's values and states.
    place: usize,
    /// Its content before this run.
    wire: Wire,
}

/// Returns the constants of a graph that are kept between runs.
fn overwritten_constants(
    frame: &mut MethodFrame<'_>,
    scope: &str,
    graph: &VulkanGraph,
) -> TractResult<Vec<CallCache>> {
    let mut caches: Vec<CallCache> = Vec::new();
    for call in &graph.calls {
        for &at in fused::overwritten_args(&call.name) {
            let value = args::at(&call.args, at)?;
            if caches.iter().any(|cache| cache.value == value) {
                continue;
            }
            let VulkanValue::Tensor(tensor) = &graph.values[value] else {
                bail!("value {value} is not a tensor");
            };
            // A cache that is passed in belongs to the caller, who decides whether it is kept.
            let Some(data) = &tensor.data else {
                bail!("unsupported cache outside of the graph");
            };
            let stored = tensor
                .element
                .dtype()
                .context("invalid dtype of a tensor")?;
            let dtype = frame.rounding.computed_dtype(stored);
            let initial = frame.weights.constant(data, stored, &tensor.dims);
            let initial = initial?;
            let name = format!("{scope} {value}");
            let (place, wire) =
                frame.delegate_state(&name, (dtype, &tensor.dims), Some(initial))?;
            caches.push(CallCache { value, place, wire });
        }
    }
    Ok(caches)
}

impl VulkanLowering<'_> {
    /// Reads the inputs, converted to the graph's integer dtypes, which are narrower than the
    /// method's.
    fn inputs(&mut self) -> TractResult<()> {
        for id in self.graph.inputs.clone() {
            if let Some(FrameSlot::Tensor(wire)) = self.slots.get(&id).cloned() {
                let wire = self.builder.cast(wire, self.dtype(id)?)?;
                self.slots.insert(id, FrameSlot::Tensor(wire));
            }
        }
        Ok(())
    }

    /// Returns the dtype in which a tensor is stored.
    fn dtype(&self, value: usize) -> TractResult<DType> {
        let VulkanValue::Tensor(tensor) = &self.graph.values[value] else {
            bail!("value {value} is not a tensor");
        };
        let dtype = dtype_of_element(&tensor.element)?;
        Ok(self.rounding.computed_dtype(dtype))
    }

    /// Returns the current content of a value.
    fn slot(&mut self, value: usize) -> TractResult<FrameSlot> {
        if let Some(slot) = self.slots.get(&value) {
            return Ok(slot.clone());
        }
        let graph = self.graph;
        let VulkanValue::Tensor(tensor) = &graph.values[value] else {
            bail!("value {value} is read before it is computed");
        };
        let Some(data) = &tensor.data else {
            bail!("value {value} is read before it is computed");
        };
        let stored = tensor
            .element
            .dtype()
            .context("invalid dtype of a tensor")?;
        let read = self.weights.constant(data, stored, &tensor.dims);
        let read = read?;
        let dtype = self.dtype(value)?;
        let slot = FrameSlot::Tensor(self.builder.constant(read, dtype)?);
        self.slots.insert(value, slot.clone());
        Ok(slot)
    }

    fn tensor(&mut self, value: usize) -> TractResult<Wire> {
        match self.slot(value)? {
            FrameSlot::Tensor(wire) => Ok(wire),
            _ => bail!("value {value} is not a tensor"),
        }
    }

    /// Returns the elements of a constant, also through operators that leave it unchanged.
    fn constant_elements(&mut self, value: usize) -> TractResult<Arc<Tensor>> {
        let wire = self.tensor(value)?;
        let known = self.builder.constant_value(wire.outlet)?;
        known.with_context(|| format!("value {value} is not a constant"))
    }

    /// Returns a value as an argument.
    fn arg(&mut self, value: usize) -> TractResult<CallArg> {
        Ok(match &self.graph.values[value] {
            VulkanValue::Null => CallArg::None,
            VulkanValue::Int(int) => CallArg::from(*int),
            VulkanValue::Double(double) => CallArg::Double(*double),
            VulkanValue::Bool(bool) => CallArg::Bool(*bool),
            VulkanValue::Text(text) => CallArg::Text(text.clone()),
            VulkanValue::Ints(ints) => CallArg::from(ints.as_slice()),
            VulkanValue::Doubles(doubles) => CallArg::Doubles(doubles.clone()),
            VulkanValue::Bools(bools) => {
                CallArg::Ints(bools.iter().map(|&bool| i64::from(bool).to_dim()).collect())
            }
            VulkanValue::Values(values) => self.list(values)?,
            VulkanValue::Tensor(_) | VulkanValue::Symbol(_) => match self.slot(value)? {
                FrameSlot::Tensor(wire) => CallArg::Tensor(wire),
                FrameSlot::Int(dim) => CallArg::Int(dim),
                FrameSlot::Number(number) => CallArg::Number(number),
                FrameSlot::Double(double) => CallArg::Double(double),
                FrameSlot::Bool(bool) => CallArg::Bool(bool),
                FrameSlot::Null | FrameSlot::Text(_) => bail!("value {value} is not a number"),
            },
        })
    }

    /// Returns a list of values: sizes, or tensors of which some may be absent.
    fn list(&mut self, values: &[usize]) -> TractResult<CallArg> {
        let graph = self.graph;
        let is_size = |value: &usize| {
            matches!(
                graph.values[*value],
                VulkanValue::Int(_) | VulkanValue::Symbol(_)
            )
        };
        if values.iter().all(is_size) {
            let sizes = values.iter().map(|&value| match &graph.values[value] {
                VulkanValue::Int(int) => Ok(int.to_dim()),
                _ => match self.slot(value)? {
                    FrameSlot::Int(dim) => Ok(dim),
                    _ => bail!("value {value} is known only at run time"),
                },
            });
            return Ok(CallArg::Ints(sizes.collect::<TractResult<_>>()?));
        }
        let tensors = values.iter().map(|&value| match graph.values[value] {
            VulkanValue::Null => Ok(None),
            _ => self.tensor(value).map(Some),
        });
        Ok(CallArg::Optional(tensors.collect::<TractResult<_>>()?))
    }

    /// Returns the context for calling operators of the table.
    fn caller(&mut self) -> CallContext<'_, '_> {
        CallContext {
            builder: self.builder,
            weights: self.weights,
        }
    }

    /// Calls an operator of the table that returns one tensor.
    fn aten(&mut self, name: &str, args: Vec<CallArg>, dtype: DType) -> TractResult<Wire> {
        self.caller().tensor(name, args, dtype)
    }

    /// Lowers one call.
    fn call(&mut self, call: &VulkanCall) -> TractResult<()> {
        let Some((&result, args)) = call.args.split_last() else {
            bail!("a call has no result");
        };
        if let Some(lower) = fused::find(&call.name) {
            return lower(self, args, result);
        }
        let Some((name, most)) = names::table_name(&call.name) else {
            bail!("unsupported operator");
        };
        let args = args.iter().take(most).map(|&arg| self.arg(arg));
        let args: Vec<CallArg> = args
            .map(|arg| arg.map(tensors))
            .collect::<TractResult<_>>()?;
        let results = match &self.graph.values[result] {
            VulkanValue::Values(values) => values.clone(),
            _ => vec![result],
        };
        let dtypes = results.iter().map(|&value| match self.graph.values[value] {
            VulkanValue::Tensor(_) => self.dtype(value).map(Some),
            _ => Ok(None),
        });
        let dtypes: Vec<Option<DType>> = dtypes.collect::<TractResult<_>>()?;
        let outs: Vec<CallResult> = if is_list(&name) {
            vec![CallResult::Tensors(dtypes.into_iter().flatten().collect())]
        } else {
            let outs = dtypes.into_iter();
            outs.map(|dtype| dtype.map_or(CallResult::Number, CallResult::Tensor))
                .collect()
        };
        let given = self.caller().call(&name, args, &outs)?;
        ensure!(
            given.len() == results.len(),
            "wrong number of results: got {}, expected {}",
            given.len(),
            results.len()
        );
        self.slots.extend(results.into_iter().zip(given));
        Ok(())
    }

    /// Writes a tensor, cast to its stored dtype.
    fn set(&mut self, value: usize, wire: Wire) -> TractResult<()> {
        let dtype = self.dtype(value)?;
        let wire = self.builder.cast(wire, dtype)?;
        self.slots.insert(value, FrameSlot::Tensor(wire));
        Ok(())
    }
}

/// Converts a list without absent tensors to a plain list.
fn tensors(arg: CallArg) -> CallArg {
    match arg {
        CallArg::Optional(wires) if wires.iter().all(Option::is_some) => {
            CallArg::Tensors(wires.into_iter().flatten().collect())
        }
        other => other,
    }
}

/// Returns whether an operator's result is one list of tensors, and not several tensors.
fn is_list(name: &str) -> bool {
    ["aten::split", "aten::unbind", "aten::chunk"]
        .iter()
        .any(|begin| name.starts_with(begin))
}

/// Returns the names of the operators with their own lowering.
#[cfg(test)]
pub(crate) fn names() -> Vec<&'static str> {
    fused::names()
}

/// Returns the names of a payload's operators.
#[cfg(test)]
pub(crate) fn met(weights: &ProgramWeights, payload: ByteRange) -> Vec<String> {
    let graph = read(weights, payload).expect("fixtures can be read");
    graph.calls.into_iter().map(|call| call.name).collect()
}
