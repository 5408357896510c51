//! Summarises the payload of a Vulkan delegate: operators, computation types and weights.

use std::collections::{BTreeMap, BTreeSet};

use super::super::content::{PayloadSummary, QuantizationScheme, WeightStorage};
use super::super::storage::ByteRange;
use super::{VulkanGraph, VulkanTensor, VulkanValue};
use crate::FormatError;
use pkgtool_base::source::ReadAt;

/// The argument positions of an operator with quantised weights.
struct QuantisedOperator {
    name: &'static str,
    weights_arg: usize,
    bits: u32,
    /// Position of the group size; without one, each channel has a scale.
    group_size_arg: Option<usize>,
    /// Positions of the parameters of the weights: scales, zero points, sums.
    parameter_args: &'static [usize],
}

const fn quantised_operator(
    name: &'static str,
    bits: u32,
    (weights, group): (usize, Option<usize>),
    beside: &'static [usize],
) -> QuantisedOperator {
    QuantisedOperator {
        name,
        weights_arg: weights,
        bits,
        group_size_arg: group,
        parameter_args: beside,
    }
}

/// All such operators, by the beginning of their names (`custom_ops_lib.py` of ExecuTorch 1.5).
static QUANTISED_OPERATORS: &[QuantisedOperator] = &[
    quantised_operator("et_vk.linear_q4gsw", 4, (1, Some(3)), &[2]),
    quantised_operator("et_vk.linear_dq8ca_q4gsw", 4, (3, Some(6)), &[4, 5]),
    quantised_operator("et_vk.embedding_q4gsw", 4, (0, Some(2)), &[1]),
    quantised_operator("et_vk.linear_qcs4w", 4, (1, None), &[2]),
    quantised_operator("et_vk.linear_q8ta_q8csw", 8, (3, None), &[4, 5]),
    quantised_operator("et_vk.q8ta_linear", 8, (3, None), &[4, 5]),
    quantised_operator("et_vk.q8ta_conv2d", 8, (3, None), &[4, 5]),
    quantised_operator("aten._weight_int8pack_mm", 8, (1, None), &[2]),
    quantised_operator(
        "quantized_decomposed.dequantize_per_channel",
        8,
        (0, None),
        &[1, 2],
    ),
];

/// Returns the contents of a delegate's payload.
pub(in super::super) fn content(
    source: &dyn ReadAt,
    payload: ByteRange,
) -> Result<PayloadSummary, FormatError> {
    let graph = VulkanGraph::read(source, payload)?;
    let mut content = PayloadSummary::begin(source, |pages| Ok(super::find(pages, payload)))?;
    let weights = QuantisedValues::of(&graph);
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
            // A byte holds two 4-bit codes.
            let codes = if stored.bits == 4 { 2 } else { 1 };
            content.weight(stored.clone(), elements.saturating_mul(codes));
        } else if !weights.beside.contains(&at) {
            content.weight(WeightStorage::plain(element), elements);
        }
    }
    Ok(content)
}

/// Values with quantised weights, as the operators use them.
struct QuantisedValues {
    /// Values with quantised codes, and their storage form.
    stored: BTreeMap<usize, WeightStorage>,
    /// Values with scales and other parameters of the quantisation.
    beside: BTreeSet<usize>,
    /// Values that hold a constant in another layout, and that constant.
    packed: BTreeMap<usize, usize>,
}

impl QuantisedValues {
    fn of(graph: &VulkanGraph) -> Self {
        let packs = graph.calls.iter().filter_map(|call| {
            let is_pack = call.name.starts_with("et_vk.prepack");
            is_pack.then_some((*call.args.last()?, *call.args.first()?))
        });
        let packed: BTreeMap<usize, usize> = packs.collect();
        let constant = |value: usize| packed.get(&value).copied().unwrap_or(value);
        let (mut stored, mut beside) = (BTreeMap::new(), BTreeSet::new());
        for call in &graph.calls {
            let mut rows = QUANTISED_OPERATORS.iter();
            let Some(row) = rows.find(|row| call.name.starts_with(row.name)) else {
                continue;
            };
            let group = row
                .group_size_arg
                .and_then(|at| int_at(graph, *call.args.get(at)?));
            let scheme = group.map_or(QuantizationScheme::Channel, QuantizationScheme::Groups);
            let element = format!("int{}", row.bits);
            if let Some(&weights) = call.args.get(row.weights_arg) {
                stored.insert(
                    constant(weights),
                    WeightStorage::new_quantised(&element, scheme),
                );
            }
            let found = row
                .parameter_args
                .iter()
                .filter_map(|&at| call.args.get(at));
            beside.extend(found.map(|&value| constant(value)));
        }
        Self {
            stored,
            beside,
            packed,
        }
    }
}

fn tensor(graph: &VulkanGraph, at: usize) -> Option<&VulkanTensor> {
    match graph.values.get(at)? {
        VulkanValue::Tensor(tensor) => Some(tensor),
        _ => None,
    }
}

fn int_at(graph: &VulkanGraph, at: usize) -> Option<u64> {
    match graph.values.get(at)? {
        VulkanValue::Int(int) => u64::try_from(*int).ok(),
        _ => None,
    }
}
