//! Iterates over the outer fields of a Core ML model file without reading their contents.
//!
//! The weights of neural networks are deeply nested, so only tags and lengths are read. The
//! iteration uses [`Walk`], the same walker as for ExecuTorch payloads.

use crate::FormatError;

use crate::executorch::body::ByteRange;
use crate::executorch::coreml::Walk;
use pkgtool_base::source::Pages;

/// A field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NumberedField {
    /// Its number.
    pub(super) number: u64,
    /// Its value, if it is a number.
    pub(super) value: Option<u64>,
    /// Byte range of its content, if it is length-delimited.
    pub(super) bytes: Option<ByteRange>,
}

/// Calls a function for each field of the message in `range`, in file order.
pub(super) fn each_field<E: From<FormatError>>(
    pages: &Pages<'_>,
    range: ByteRange,
    name: &'static str,
    mut each: impl FnMut(NumberedField) -> Result<(), E>,
) -> Result<(), E> {
    let walk = Walk::new(pages);
    for field in walk.message(range, name).fields() {
        let field = field?;
        each(NumberedField {
            number: field.number,
            value: field.value(),
            bytes: field.inside(),
        })?;
    }
    Ok(())
}
