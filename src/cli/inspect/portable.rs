//! Whether a program's methods run on any machine, and what is missing if not.

use std::path::Path;

use crate::engine::{gaps_everywhere, gaps_inside_everywhere};
use crate::model::{Method, ModelInfo};
use crate::tensor::Signature;

/// What keeps a method from running on any machine: operators, delegates and values by name, and why in
/// words, which are empty where nothing is missing. `None` if the question does not arise: only of programs and
/// Core ML's models is it known.
pub(super) fn missing(
    model: &Path,
    info: &ModelInfo,
    method: &Method,
) -> Option<(Vec<String>, String)> {
    let is_known = ["executorch", "coreml"].contains(&info.format);
    if !is_known || method.constant {
        return None;
    }
    if info.format == "coreml"
        && let Err(error) = Signature::of(method, None)
    {
        return Some((vec![error.found.clone()], error.to_string()));
    }
    let gaps = gaps_everywhere(info.format, method)
        .or_else(|| gaps_inside_everywhere(model, info.format, method));
    let gaps = gaps.map(|gaps| (gaps.names.into_iter().collect(), gaps.reason));
    Some(gaps.unwrap_or_default())
}
