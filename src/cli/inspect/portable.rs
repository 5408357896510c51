//! Whether a program's methods run on any machine, and what is missing if not.

use crate::engine::tract;
use crate::model::{Method, ModelInfo};

/// What keeps a program's method from running on any machine: operators and delegates by name, and why
/// in words. `None` if the question does not arise: only programs name methods of their own.
pub(super) fn missing(info: &ModelInfo, method: &Method) -> Option<(Vec<String>, String)> {
    if info.format != "executorch" || method.constant {
        return None;
    }
    let names = tract::missing(
        method.operators.keys().map(String::as_str),
        method.delegates.iter().map(|delegate| delegate.id.as_str()),
    );
    let why = tract::refusal_of(&names);
    Some((names.into_iter().collect(), why))
}
