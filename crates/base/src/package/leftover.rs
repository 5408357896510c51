//! Leftovers in configs: placeholders of generators and fields of earlier revisions of the format.

use crate::source::JsonPath;
use crate::source::json::Step;

/// Fields of a variant in an earlier revision of the format.
pub const LEGACY_VARIANT_FIELDS: [&str; 2] = ["quantized", "default"];

/// Returns whether a text is a generator's placeholder: `TODO` or `TODO_…`.
pub fn is_placeholder(text: &str) -> bool {
    text == "TODO" || text.starts_with("TODO_")
}

/// Returns whether `key` of the object at `object` is a former field of variants.
pub fn is_legacy_field(object: &JsonPath, key: &str) -> bool {
    let is_variant = matches!(
        object.steps(),
        [Step::Key(list), Step::Index(_)] if &**list == "variants"
    );
    is_variant && LEGACY_VARIANT_FIELDS.contains(&key)
}
