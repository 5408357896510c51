//! ONNX decoders that take what they gave before: `past_key_values.N.key` and `present.N.key`.
//!
//! Invariant: every past has a present of its dtype and rank, or the model is refused.

use std::path::Path;

use super::heads;
use super::roles::may_be;
use super::siblings::Siblings;
use crate::engine::Carried;
use crate::model::Dim;
use crate::tensor::{Signature, TensorSpec};

/// What begins the names of inputs that are carried, and of the outputs that are carried into them.
const PREFIXES: &[(&str, &[&str])] = &[
    ("past_key_values", &["present", "present_key_values"]),
    ("past_conv", &["present_conv"]),
    ("past_recurrent", &["present_recurrent"]),
    ("past_ssm", &["present_ssm"]),
    ("past", &["present"]),
];
/// The axis of positions where a tensor of four dimensions does not tell: [batch, heads, positions, size].
const AXIS: usize = 2;

/// What a model carries; empty if it is not of this kind.
pub(super) fn states(
    model: &Path,
    signature: &Signature,
    siblings: &Siblings,
) -> Result<Vec<Carried>, String> {
    let mut states = Vec::new();
    let mut head_size = siblings.head_size;
    for (input, spec) in signature.inputs.iter().enumerate() {
        let Some(names) = presents(&spec.name) else {
            continue;
        };
        if spec.name.contains(".encoder.") {
            return Err(format!(
                "its input `{}` is what an encoder gives; decoders of other models' outputs are not run",
                spec.name
            ));
        }
        let mut outputs = signature.outputs.iter();
        let output = outputs
            .position(|output| names.contains(&output.name))
            .ok_or_else(|| {
                format!(
                    "it has no output `{}`, which its input `{}` would be fed with",
                    names[0], spec.name
                )
            })?;
        let dims = spec.dims.as_deref().ok_or_else(|| {
            format!(
                "its input `{}` has no known number of dimensions",
                spec.name
            )
        })?;
        let axis = positions(spec, dims)?;
        let begin = begun(spec, dims, axis, &mut || {
            if head_size.is_none() {
                head_size = heads::size(model);
            }
            head_size
        })?;
        states.push(Carried {
            input,
            output,
            axis,
            begin,
        });
    }
    Ok(states)
}

/// The names that the output may have which is carried into this input.
fn presents(name: &str) -> Option<Vec<String>> {
    let (rest, prefixes) = PREFIXES.iter().find_map(|(past, presents)| {
        let rest = name.strip_prefix(past)?;
        rest.starts_with(['.', '_']).then_some((rest, presents))
    })?;
    let names = prefixes.iter().map(|present| format!("{present}{rest}"));
    Some(names.collect())
}

/// The axis along which positions are, if there is one.
fn positions(spec: &TensorSpec, dims: &[Dim]) -> Result<Option<usize>, String> {
    let has_none = ["past_conv", "past_recurrent", "past_ssm"];
    if has_none.iter().any(|prefix| spec.name.starts_with(prefix)) {
        return Ok(None);
    }
    // The first is the batch.
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
        (open, None) if open.contains(&AXIS) => Ok(Some(AXIS)),
        _ => Err(format!(
            "its input `{}` is {spec}: none of its dimensions is open for positions, so that nothing can be \
             carried in it; export the model with a dynamic length of past_key_values",
            spec.name
        )),
    }
}

/// The shape that it begins with.
fn begun(
    spec: &TensorSpec,
    dims: &[Dim],
    axis: Option<usize>,
    head_size: &mut dyn FnMut() -> Option<u64>,
) -> Result<Vec<u64>, String> {
    let last = dims.len().saturating_sub(1);
    let sizes = dims.iter().enumerate().map(|(place, dim)| match dim {
        Dim::Fixed(size) => Ok(*size),
        _ if Some(place) == axis => Ok(0),
        // [batch × heads, …] of old exports would not be 1.
        dim if place == 0 && may_be(dim, 1) => Ok(1),
        _ if place == last && last == 3 => head_size().ok_or_else(|| {
            format!(
                "its input `{}` is {spec}, and the size of a head is not known: neither the model nor a \
                 genai_config.json beside it (model.decoder.head_size) tells it",
                spec.name
            )
        }),
        _ => Err(format!(
            "its input `{}` is {spec}, and dimension {place} has no known size",
            spec.name
        )),
    });
    sizes.collect()
}
