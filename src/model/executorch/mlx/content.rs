//! What a graph of `MLXBackend` holds.

use std::collections::{BTreeMap, BTreeSet};

use super::super::content::{Content, Port, Scheme, State, Stored};
use super::super::element::element_of;
use super::super::error::Error;
use super::super::storage::ByteRange;
use super::{Field, Graph, Instruction, Number, Slot, Tensor};
use crate::model::{Dim, Dynamism, TensorInfo};
use crate::source::{Pages, ReadAt};

/// Reads that finding the graph may take.
const BUDGET: u64 = 1000;

/// What stands in a delegate's payload.
pub(in super::super) fn content(source: &dyn ReadAt, payload: ByteRange) -> Result<Content, Error> {
    let graph = Graph::read(source, payload)?;
    let mut content = Content::default();
    let pages = Pages::with_budget(source, BUDGET);
    content.version(source, super::find(&pages, payload))?;
    let weights = Weights::of(&graph);
    for instruction in graph.init.iter().chain(&graph.main) {
        content.operator(instruction.kind);
        // Temporary slots have no type of their own; what writes one may say it.
        let code = int(instruction, "scalar_type").and_then(|code| i8::try_from(code).ok());
        if let Some(code) = code {
            content.computed(element_of(code).0.name());
        }
    }
    for (slot, tensor) in (0..).zip(&graph.tensors) {
        let element = tensor.element.name();
        if slot >= graph.constants {
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
            content.weight(Stored::plain(element), elements);
            if elements > 1 {
                content.computed(element);
            }
        }
    }
    content.states = graph.kept.iter().map(|slot| state(&graph, *slot)).collect();
    content.inputs = graph
        .inputs
        .iter()
        .map(|slot| port(&graph, *slot))
        .collect();
    content.outputs = graph
        .outputs
        .iter()
        .map(|slot| port(&graph, *slot))
        .collect();
    Ok(content)
}

/// Slots that instructions with codes take.
struct Weights {
    /// Codes, and what they are.
    stored: BTreeMap<u32, Stored>,
    /// Scales and the like.
    beside: BTreeSet<u32>,
}

impl Weights {
    fn of(graph: &Graph) -> Self {
        let (mut stored, mut beside) = (BTreeMap::new(), BTreeSet::new());
        // Words of codes may pass through other instructions on their way.
        let mut from: BTreeMap<u32, u32> = BTreeMap::new();
        for instruction in graph.init.iter().chain(&graph.main) {
            let source =
                |name| slot(instruction, name).map(|at| from.get(&at).copied().unwrap_or(at));
            if let Some(bits) = int(instruction, "bits") {
                let group = int(instruction, "group_size").unwrap_or(0);
                let scheme = if group > 0 {
                    Scheme::Groups(group)
                } else {
                    Scheme::Steps
                };
                let float = matches!(text(instruction, "mode"), Some("mxfp4" | "nvfp4" | "mxfp8"));
                let element = format!("{}{bits}", if float { "float" } else { "int" });
                if let Some(words) = source("w") {
                    stored.insert(words, Stored::steps(&element, scheme));
                }
                let found = ["scales", "biases", "global_scale"]
                    .into_iter()
                    .filter_map(source);
                beside.extend(found);
            } else if let (Some(taken), Some(out)) = (source("x"), slot(instruction, "out")) {
                from.insert(out, taken);
            }
        }
        Self { stored, beside }
    }
}

fn state(graph: &Graph, slot: u32) -> State {
    let tensor = tensor(graph, slot);
    State {
        name: graph.names.get(&slot).cloned(),
        element: tensor
            .map_or("unknown", |tensor| tensor.element.name())
            .to_owned(),
        dims: tensor.map_or(Vec::new(), dims),
    }
}

/// What a slot of a call is. Values have no types here, and no names.
fn port(graph: &Graph, slot: Slot) -> Port {
    let Slot::Tensor(slot) = slot else {
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

fn tensor(graph: &Graph, slot: u32) -> Option<&Tensor> {
    graph.tensors.get(usize::try_from(slot).ok()?)
}

fn dims(tensor: &Tensor) -> Vec<Dim> {
    let dim = |dim: &Option<u64>| match dim {
        Some(size) => Dim::Fixed(*size),
        None => Dim::Dynamic {
            bound: None,
            name: None,
            allowed: None,
        },
    };
    tensor.dims.iter().map(dim).collect()
}

fn slot(instruction: &Instruction, name: &str) -> Option<u32> {
    match instruction.fields.get(name)? {
        Field::Tensor(slot) => Some(*slot),
        _ => None,
    }
}

fn int(instruction: &Instruction, name: &str) -> Option<u64> {
    match instruction.fields.get(name)? {
        Field::Number(Number::Int(int)) => u64::try_from(*int).ok(),
        _ => None,
    }
}

fn text<'a>(instruction: &'a Instruction, name: &str) -> Option<&'a str> {
    match instruction.fields.get(name)? {
        Field::Text(text) => Some(text),
        _ => None,
    }
}
