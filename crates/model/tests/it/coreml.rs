//! Tests of the Core ML reader: fixtures of `tests/fixtures/coreml` (made by
//! `tests/programs/standalone.py`), hand-broken models and random ones.

mod broken;
mod fixtures;
mod random;

use pkgtool_model::{FORMATS, ModelError, ModelFormat, ModelInfo};

fn format() -> &'static dyn ModelFormat {
    let found = FORMATS.iter().find(|format| format.name() == "coreml");
    *found.expect("a format")
}

#[expect(
    clippy::ptr_arg,
    reason = "a vector implements the byte source trait, a slice does not"
)]
fn inspect(bytes: &Vec<u8>) -> Result<ModelInfo, ModelError> {
    format().inspect(bytes)
}
