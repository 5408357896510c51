//! Recognises ONNX decoders whose KV cache is passed in and out: `past_key_values.N.key` and
//! `present.N.key`.
//!
//! Invariant: every past input has a present output of its dtype and rank; otherwise the model is
//! rejected.

use std::path::Path;

use super::heads;
use super::roles::accepts_size;
use super::siblings::DecoderSettings;
use pkgtool_engine::CarriedTensor;
use pkgtool_engine::tensor::{Signature, TensorSpec};
use pkgtool_model::Dim;

/// Name prefixes of cache inputs, and of the outputs that are passed into them.
const CACHE_NAME_PREFIXES: &[(&str, &[&str])] = &[
    ("past_key_values", &["present", "present_key_values"]),
    ("past_conv", &["present_conv"]),
    ("past_recurrent", &["present_recurrent"]),
    ("past_ssm", &["present_ssm"]),
    ("past", &["present"]),
];
/// The default position axis of a four-dimensional cache tensor: [batch, heads, positions, size].
const DEFAULT_POSITION_AXIS: usize = 2;

/// Returns the cache tensors that are carried between steps; empty if the model has none.
pub(super) fn cache_states(
    model: &Path,
    signature: &Signature,
    siblings: &DecoderSettings,
) -> Result<Vec<CarriedTensor>, String> {
    let mut states = Vec::new();
    let mut head_size = siblings.head_size;
    for (input, spec) in signature.inputs.iter().enumerate() {
        let Some(names) = present_names(&spec.name) else {
            continue;
        };
        if spec.name.contains(".encoder.") {
            return Err(format!(
                "its input `{}` comes from an encoder; encoder-decoder models are not supported",
                spec.name
            ));
        }
        let mut outputs = signature.outputs.iter();
        let output = outputs
            .position(|output| names.contains(&output.name))
            .ok_or_else(|| {
                format!(
                    "it has no output `{}` for its cache input `{}`",
                    names[0], spec.name
                )
            })?;
        let dims = spec.dims.as_deref().ok_or_else(|| {
            format!(
                "its input `{}` has an unknown number of dimensions",
                spec.name
            )
        })?;
        let axis = positions(spec, dims)?;
        let begin = initial_shape(spec, dims, axis, &mut || {
            if head_size.is_none() {
                head_size = heads::size(model);
            }
            head_size
        })?;
        states.push(CarriedTensor {
            input,
            output,
            axis,
            begin,
        });
    }
    Ok(states)
}

/// Returns the possible names of the output that is passed into this input.
fn present_names(name: &str) -> Option<Vec<String>> {
    let (rest, prefixes) = CACHE_NAME_PREFIXES.iter().find_map(|(past, presents)| {
        let rest = name.strip_prefix(past)?;
        rest.starts_with(['.', '_']).then_some((rest, presents))
    })?;
    let names = prefixes.iter().map(|present| format!("{present}{rest}"));
    Some(names.collect())
}

/// Returns the axis of positions, if there is one.
fn positions(spec: &TensorSpec, dims: &[Dim]) -> Result<Option<usize>, String> {
    let has_none = ["past_conv", "past_recurrent", "past_ssm"];
    if has_none.iter().any(|prefix| spec.name.starts_with(prefix)) {
        return Ok(None);
    }
    // Axis 0 is the batch.
    let open: Vec<usize> = (1..dims.len())
        .filter(|axis| matches!(dims[*axis], Dim::Dynamic { .. }))
        .collect();
    let tells = |axis: &&usize| match &dims[**axis] {
        Dim::Dynamic {
            name: Some(name), ..
        } => name.contains("past") || name.contains("seq"),
        _ => false,
    };
    let named = open.iter().find(tells).copied();
    match (open.as_slice(), named) {
        ([only], _) => Ok(Some(*only)),
        (_, Some(axis)) => Ok(Some(axis)),
        (open, None) if open.contains(&DEFAULT_POSITION_AXIS) => Ok(Some(DEFAULT_POSITION_AXIS)),
        _ => Err(format!(
            "its input `{}` is {spec}: it has no dynamic dimension for positions, so it cannot hold a KV \
             cache; export the model with a dynamic length of past_key_values",
            spec.name
        )),
    }
}

/// Returns the shape of the empty cache.
fn initial_shape(
    spec: &TensorSpec,
    dims: &[Dim],
    axis: Option<usize>,
    head_size: &mut dyn FnMut() -> Option<u64>,
) -> Result<Vec<u64>, String> {
    let last = dims.len().saturating_sub(1);
    let sizes = dims.iter().enumerate().map(|(place, dim)| match dim {
        Dim::Fixed(size) => Ok(*size),
        _ if Some(place) == axis => Ok(0),
        // In old exports this dimension is batch × heads, which is not 1.
        dim if place == 0 && accepts_size(dim, 1) => Ok(1),
        _ if place == last && last == 3 => head_size().ok_or_else(|| {
            format!(
                "its input `{}` is {spec}, and the head size is unknown: neither the model nor a \
                 genai_config.json beside it (model.decoder.head_size) states it",
                spec.name
            )
        }),
        _ => Err(format!(
            "its input `{}` is {spec}, and the size of dimension {place} is unknown",
            spec.name
        )),
    });
    sizes.collect()
}
