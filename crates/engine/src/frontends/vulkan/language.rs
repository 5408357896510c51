//! Vulkan operators of language models: attention over tensors, or over KV caches.

use tract_onnx::tract_core::internal::*;

use super::args::at;
use super::{VulkanLowering, VulkanValue, WrittenResult};
use crate::graph::attention::AttentionInputs;
use crate::graph::builder::Wire;
use crate::graph::calling::{CallArg, CallResult};
use crate::tensor::DType;

/// Lowers attention over keys and values `[batch, heads, positions, size]`; the mask is added.
pub(super) fn attention(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
) -> WrittenResult {
    let [queries, keys, values] = [0, 1, 2].map(|place| lowering.tensor(at(args, place)?));
    let mask = match lowering.arg(at(args, 3)?)? {
        CallArg::None => None,
        CallArg::Tensor(wire) => Some(lowering.builder.cast(wire, DType::Float32)?),
        _ => bail!("the mask is not a tensor"),
    };
    let scale = at(args, 4)?;
    let attention = AttentionInputs {
        queries: queries?,
        keys: keys?,
        values: values?,
        mask,
        scale: match lowering.graph.values[scale] {
            VulkanValue::Null => None,
            _ => Some(lowering.double(scale)?),
        },
    };
    let outlet = attention.wire(lowering.builder)?;
    lowering.set(out, Wire::float(outlet))
}

/// Writes a value into a cache, starting at a position. Arguments: value, cache, position.
pub(super) fn update(
    lowering: &mut VulkanLowering<'_>,
    [given, cache, place]: [usize; 3],
) -> TractResult<Wire> {
    let kept = lowering.tensor(cache)?;
    let given = lowering.tensor(given)?;
    let args = vec![given.into(), kept.into(), lowering.arg(place)?];
    let name = "llama::update_cache.out";
    let wire = lowering.aten(name, args, kept.dtype)?;
    lowering.set(cache, wire)?;
    Ok(wire)
}

/// Lowers attention over caches `[batch, positions, heads, size]`.
///
/// `places` are the argument positions of queries, keys, values, start position, mask, causal flag
/// and scale.
pub(super) fn cache_attention(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
    places: [usize; 7],
) -> TractResult<()> {
    let given = places.map(|place| lowering.arg(at(args, place)?));
    let given: Vec<CallArg> = given.into_iter().collect::<TractResult<_>>()?;
    let Ok([queries, keys, values, first, mask, causal, scale]) = <[CallArg; 7]>::try_from(given)
    else {
        bail!("missing arguments");
    };
    // A missing flag means causal, as on the device.
    let causal = match causal {
        CallArg::None => CallArg::Bool(true),
        other => other,
    };
    let args = vec![
        queries,
        keys,
        values,
        first,
        mask,
        CallArg::Double(0.0),
        causal,
        scale,
    ];
    let dtype = lowering.dtype(out)?;
    let name = "llama::custom_sdpa.out";
    let wire = lowering.aten(name, args, dtype)?;
    lowering.set(out, wire)
}

/// Reads one element of a tensor as a number.
pub(super) fn number(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
) -> WrittenResult {
    let x = lowering.tensor(at(args, 0)?)?;
    let given = vec![
        x.into(),
        lowering.arg(at(args, 1)?)?,
        lowering.arg(at(args, 2)?)?,
    ];
    let mut caller = lowering.caller();
    let chosen = caller.tensor("aten::select_copy.int_out", given, x.dtype)?;
    let args = vec![chosen.into()];
    let read = caller.call("aten::_local_scalar_dense", args, &[CallResult::Number])?;
    let slot = read
        .into_iter()
        .next()
        .context("reading the element returned nothing")?;
    lowering.slots.insert(out, slot);
    Ok(())
}
