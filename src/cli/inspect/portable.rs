//! Finds out whether a program's methods run on any machine, and what is missing otherwise.

use std::path::Path;

use pkgtool_engine::tensor::Signature;
use pkgtool_engine::{
    gaps_without_library, graph_gaps_without_library, payload_gaps_without_library,
};
use pkgtool_model::{Method, ModelInfo};

/// Returns the names of the operators, delegates and values that keep a method from running on any
/// machine, and the reason. Both are empty if nothing is missing. Returns `None` if this is
/// unknown: it is known for ONNX models, ExecuTorch programs and Core ML models.
pub(super) fn missing(
    model: &Path,
    info: &ModelInfo,
    method: &Method,
) -> Option<(Vec<String>, String)> {
    if info.format == "onnx" {
        let gaps = graph_gaps_without_library(model, info.format)?;
        return Some((gaps.names.into_iter().collect(), gaps.reason));
    }
    let is_known = ["executorch", "coreml"].contains(&info.format);
    if !is_known || method.constant {
        return None;
    }
    if info.format == "coreml"
        && let Err(error) = Signature::of(method, None)
    {
        return Some((vec![error.found.clone()], error.to_string()));
    }
    let gaps = gaps_without_library(info.format, method)
        .or_else(|| payload_gaps_without_library(model, info.format, method));
    let gaps = gaps.map(|gaps| (gaps.names.into_iter().collect(), gaps.reason));
    Some(gaps.unwrap_or_default())
}
