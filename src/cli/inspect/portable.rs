//! Whether a program's methods run on any machine, and what is missing if not.

use crate::engine::gaps_everywhere;
use crate::model::{Method, ModelInfo};

/// What keeps a program's method from running on any machine: operators and delegates by name, and why
/// in words. `None` if the question does not arise: only programs name methods of their own.
pub(super) fn missing(info: &ModelInfo, method: &Method) -> Option<(Vec<String>, String)> {
    if info.format != "executorch" || method.constant {
        return None;
    }
    let gaps = gaps_everywhere(info.format, method);
    let gaps = gaps.map(|gaps| (gaps.names.into_iter().collect(), gaps.reason));
    Some(gaps.unwrap_or_default())
}
