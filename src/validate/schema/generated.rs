//! Validators generated from the schemas when this crate is compiled: nothing to build at start.

/// Checks configs.
#[jsonschema::validator(path = "schemas/config.schema.json", validate_formats = true)]
pub(super) struct Config;

/// Checks precision lists.
#[jsonschema::validator(path = "schemas/precisions.schema.json", validate_formats = true)]
pub(super) struct Precisions;
