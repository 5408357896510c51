//! Whether a program's methods run on any machine, and what is missing if not.

use std::path::Path;

use crate::engine::{gaps_everywhere, gaps_inside_everywhere};
use crate::model::{Method, ModelInfo};

/// What keeps a program's method from running on any machine: operators and delegates by name, and why
/// in words, which are empty where nothing is missing. `None` if the question does not arise: only programs
/// name methods of their own.
pub(super) fn missing(
    model: &Path,
    info: &ModelInfo,
    method: &Method,
) -> Option<(Vec<String>, String)> {
    if info.format != "executorch" || method.constant {
        return None;
    }
    let gaps = gaps_everywhere(info.format, method)
        .or_else(|| gaps_inside_everywhere(model, info.format, &method.name));
    let gaps = gaps.map(|gaps| (gaps.names.into_iter().collect(), gaps.reason));
    Some(gaps.unwrap_or_default())
}
