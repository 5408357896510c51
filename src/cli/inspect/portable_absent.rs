//! Replaces the module `portable` in builds without engines, which cannot find out whether methods
//! run on any machine.

use std::path::Path;

use pkgtool_model::{Method, ModelInfo};

/// Always returns `None`.
pub(super) fn missing(_: &Path, _: &ModelInfo, _: &Method) -> Option<(Vec<String>, String)> {
    None
}
