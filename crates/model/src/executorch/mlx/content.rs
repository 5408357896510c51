//! Summarises the payload of an MLX delegate: operators, weights, states, inputs and outputs.

use std::collections::{BTreeMap, BTreeSet};

use super::super::content::{PayloadSummary, Port, QuantizationScheme, StateTensor, WeightStorage};
use super::super::element::element_of;
use super::super::storage::ByteRange;
use super::{InstructionField, MlxGraph, MlxInstruction, MlxSlot, MlxTensor, Number};
use crate::{Dim, Dynamism, FormatError, TensorInfo};
use pkgtool_base::source::ReadAt;

/// Returns the contents of a delegate's payload.
pub(in super::super) fn content(
    source: &dyn ReadAt,
    payload: ByteRange,
) -> Result<PayloadSummary, FormatError> {
    let graph = MlxGraph::read(source, payload)?;
    let mut content = PayloadSummary::begin(source, |pages| Ok(super::find(pages, payload)))?;
    let weights = QuantisedSlots::of(&graph);
    for instruction in graph.init.iter().chain(&graph.main) {
        content.operator(instruction.kind);
        // Temporary slots lack a type; an instruction that writes one may state it.
        let code = int_field(instruction, "scalar_type").and_then(|code| i8::try_from(code).ok());
        if let Some(code) = code {
            content.computed(element_of(code).0.name());
        }
    }
    for (slot, tensor) in (0..).zip(&graph.tensors) {
        let element = tensor.element.name();
        if slot >= graph.constant_count {
            content.computed(element);
            continue;
        }
        if weights.beside.contains(&slot) {
            continue;
        }
        let dims = tensor.dims.iter().map(|dim| dim.unwrap_or(0));
        let elements = dims.fold(1_u64, u64::saturating_mul);
        if let Some(stored) = weights.stored.get(&slot) {
            let codes = 32 / u64::from(stored.bits.clamp(1, 32));
            content.weight(stored.clone(), elements.saturating_mul(codes));
        } else {
            content.weight(WeightStorage::plain(element), elements);
            if elements > 1 {
                content.computed(element);
            }
        }
    }
    content.states = graph
        .persistent_slots
        .iter()
        .map(|slot| describe_state(&graph, *slot))
        .collect();
    content.inputs = graph
        .inputs
        .iter()
        .map(|slot| describe_port(&graph, *slot))
        .collect();
    content.outputs = graph
        .outputs
        .iter()
        .map(|slot| describe_port(&graph, *slot))
        .collect();
    Ok(content)
}

/// Slots with quantised weights, as the instructions use them.
struct QuantisedSlots {
    /// Slots with quantised codes, and their storage form.
    stored: BTreeMap<u32, WeightStorage>,
    /// Slots with scales and other parameters of the quantisation.
    beside: BTreeSet<u32>,
}

impl QuantisedSlots {
    fn of(graph: &MlxGraph) -> Self {
        let (mut stored, mut beside) = (BTreeMap::new(), BTreeSet::new());
        // Packed codes may pass through other instructions first.
        let mut from: BTreeMap<u32, u32> = BTreeMap::new();
        for instruction in graph.init.iter().chain(&graph.main) {
            let source = |name| {
                tensor_field(instruction, name).map(|at| from.get(&at).copied().unwrap_or(at))
            };
            if let Some(bits) = int_field(instruction, "bits") {
                let group = int_field(instruction, "group_size").unwrap_or(0);
                let scheme = if group > 0 {
                    QuantizationScheme::Groups(group)
                } else {
                    QuantizationScheme::UnknownGrouping
                };
                let float = matches!(text(instruction, "mode"), Some("mxfp4" | "nvfp4" | "mxfp8"));
                let element = format!("{}{bits}", if float { "float" } else { "int" });
                if let Some(words) = source("w") {
                    stored.insert(words, WeightStorage::new_quantised(&element, scheme));
                }
                let found = ["scales", "biases", "global_scale"]
                    .into_iter()
                    .filter_map(source);
                beside.extend(found);
            } else if let (Some(taken), Some(out)) = (source("x"), tensor_field(instruction, "out"))
            {
                from.insert(out, taken);
            }
        }
        Self { stored, beside }
    }
}

fn describe_state(graph: &MlxGraph, slot: u32) -> StateTensor {
    let tensor = tensor(graph, slot);
    StateTensor {
        name: graph.names.get(&slot).cloned(),
        element: tensor
            .map_or("unknown", |tensor| tensor.element.name())
            .to_owned(),
        dims: tensor.map_or(Vec::new(), dims),
    }
}

/// Describes an input or output slot. Slots lack names, and value slots lack types.
fn describe_port(graph: &MlxGraph, slot: MlxSlot) -> Port {
    let MlxSlot::Tensor(slot) = slot else {
        return Port {
            name: None,
            tensor: None,
        };
    };
    let tensor = tensor(graph, slot);
    let tensor = tensor.map(|tensor| TensorInfo {
        element: tensor.element.clone(),
        dims: Some(dims(tensor)),
        dynamism: if tensor.dims.contains(&None) {
            Dynamism::Symbolic
        } else {
            Dynamism::Static
        },
    });
    Port {
        name: graph.names.get(&slot).cloned(),
        tensor,
    }
}

fn tensor(graph: &MlxGraph, slot: u32) -> Option<&MlxTensor> {
    graph.tensors.get(usize::try_from(slot).ok()?)
}

fn dims(tensor: &MlxTensor) -> Vec<Dim> {
    let dim = |dim: &Option<u64>| dim.map_or(Dim::ANY, Dim::Fixed);
    tensor.dims.iter().map(dim).collect()
}

fn tensor_field(instruction: &MlxInstruction, name: &str) -> Option<u32> {
    match instruction.fields.get(name)? {
        InstructionField::Tensor(slot) => Some(*slot),
        _ => None,
    }
}

fn int_field(instruction: &MlxInstruction, name: &str) -> Option<u64> {
    match instruction.fields.get(name)? {
        InstructionField::Number(Number::Int(int)) => u64::try_from(*int).ok(),
        _ => None,
    }
}

fn text<'a>(instruction: &'a MlxInstruction, name: &str) -> Option<&'a str> {
    match instruction.fields.get(name)? {
        InstructionField::Text(text) => Some(text),
        _ => None,
    }
}
