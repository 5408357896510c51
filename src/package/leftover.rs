//! What older generators and revisions of the format leave in configs.

use crate::source::JsonPath;
use crate::source::json::Step;

/// Fields of a variant that the format had once.
pub const LEGACY_VARIANT_FIELDS: [&str; 2] = ["quantized", "default"];

/// Whether a text is a generator's placeholder: `TODO` or `TODO_…`.
pub fn is_placeholder(text: &str) -> bool {
    text == "TODO" || text.starts_with("TODO_")
}

/// Whether `key` of the object at `object` is a field that variants had once.
pub fn is_legacy_field(object: &JsonPath, key: &str) -> bool {
    let is_variant = matches!(
        object.steps(),
        [Step::Key(list), Step::Index(_)] if &**list == "variants"
    );
    is_variant && LEGACY_VARIANT_FIELDS.contains(&key)
}
