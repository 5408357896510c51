//! What a graph of `VulkanBackend` holds.

use std::collections::{BTreeMap, BTreeSet};

use super::super::content::{Content, Scheme, Stored};
use super::super::error::Error;
use super::super::storage::ByteRange;
use super::{Graph, Tensor, Value};
use crate::source::{Pages, ReadAt};

/// Reads that finding the graph may take.
const BUDGET: u64 = 1000;

/// Where an operator with quantised weights has what among its arguments.
struct Quantised {
    name: &'static str,
    weights: usize,
    bits: u32,
    /// The size of a group; without one, each channel has a scale.
    group: Option<usize>,
    /// What belongs to the weights: scales, zero points, sums.
    beside: &'static [usize],
}

const fn row(
    name: &'static str,
    bits: u32,
    (weights, group): (usize, Option<usize>),
    beside: &'static [usize],
) -> Quantised {
    Quantised {
        name,
        weights,
        bits,
        group,
        beside,
    }
}

/// All of them, by how their names begin (`custom_ops_lib.py` of ExecuTorch 1.5).
static QUANTISED: &[Quantised] = &[
    row("et_vk.linear_q4gsw", 4, (1, Some(3)), &[2]),
    row("et_vk.linear_dq8ca_q4gsw", 4, (3, Some(6)), &[4, 5]),
    row("et_vk.embedding_q4gsw", 4, (0, Some(2)), &[1]),
    row("et_vk.linear_qcs4w", 4, (1, None), &[2]),
    row("et_vk.linear_q8ta_q8csw", 8, (3, None), &[4, 5]),
    row("et_vk.q8ta_linear", 8, (3, None), &[4, 5]),
    row("et_vk.q8ta_conv2d", 8, (3, None), &[4, 5]),
    row("aten._weight_int8pack_mm", 8, (1, None), &[2]),
    row(
        "quantized_decomposed.dequantize_per_channel",
        8,
        (0, None),
        &[1, 2],
    ),
];

/// What stands in a delegate's payload.
pub(in super::super) fn content(source: &dyn ReadAt, payload: ByteRange) -> Result<Content, Error> {
    let graph = Graph::read(source, payload)?;
    let mut content = Content::default();
    let pages = Pages::with_budget(source, BUDGET);
    content.version(source, super::find(&pages, payload))?;
    let weights = Weights::of(&graph);
    for call in &graph.calls {
        content.operator(&call.name);
        // Activations are rounded to eight bits.
        let rounds = call.name.contains(".q8ta_") || call.name.contains(".quantize_per_");
        let result = call.args.last().and_then(|&at| tensor(&graph, at));
        let result = result.filter(|result| rounds && result.element.name().contains("int8"));
        if let Some(result) = result {
            content.quantised(result.element.name());
        }
    }
    for at in 0..graph.values.len() {
        let Some(tensor) = tensor(&graph, at) else {
            continue;
        };
        let element = tensor.element.name();
        if tensor.data.is_none() {
            if !weights.packed.contains_key(&at) {
                content.computed(element);
            }
            continue;
        }
        let dims = tensor.dims.iter();
        let elements = dims.fold(1_u64, |product, dim| product.saturating_mul(*dim));
        if let Some(stored) = weights.stored.get(&at) {
            // A byte has two codes of four bits.
            let codes = if stored.bits == 4 { 2 } else { 1 };
            content.weight(stored.clone(), elements.saturating_mul(codes));
        } else if !weights.beside.contains(&at) {
            content.weight(Stored::plain(element), elements);
        }
    }
    Ok(content)
}

/// Values that quantised operators take.
struct Weights {
    /// Codes, and what they are.
    stored: BTreeMap<usize, Stored>,
    /// Scales and the like.
    beside: BTreeSet<usize>,
    /// What holds a constant in another layout, and that constant.
    packed: BTreeMap<usize, usize>,
}

impl Weights {
    fn of(graph: &Graph) -> Self {
        let packs = graph.calls.iter().filter_map(|call| {
            let is_pack = call.name.starts_with("et_vk.prepack");
            is_pack.then_some((*call.args.last()?, *call.args.first()?))
        });
        let packed: BTreeMap<usize, usize> = packs.collect();
        let constant = |value: usize| packed.get(&value).copied().unwrap_or(value);
        let (mut stored, mut beside) = (BTreeMap::new(), BTreeSet::new());
        for call in &graph.calls {
            let mut rows = QUANTISED.iter();
            let Some(row) = rows.find(|row| call.name.starts_with(row.name)) else {
                continue;
            };
            let group = row.group.and_then(|at| int(graph, *call.args.get(at)?));
            let scheme = group.map_or(Scheme::Channel, Scheme::Groups);
            let element = format!("int{}", row.bits);
            if let Some(&weights) = call.args.get(row.weights) {
                stored.insert(constant(weights), Stored::steps(&element, scheme));
            }
            let found = row.beside.iter().filter_map(|&at| call.args.get(at));
            beside.extend(found.map(|&value| constant(value)));
        }
        Self {
            stored,
            beside,
            packed,
        }
    }
}

fn tensor(graph: &Graph, at: usize) -> Option<&Tensor> {
    match graph.values.get(at)? {
        Value::Tensor(tensor) => Some(tensor),
        _ => None,
    }
}

fn int(graph: &Graph, at: usize) -> Option<u64> {
    match graph.values.get(at)? {
        Value::Int(int) => u64::try_from(*int).ok(),
        _ => None,
    }
}
