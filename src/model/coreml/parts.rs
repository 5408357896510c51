//! The outer levels of a model file: fields of messages between two offsets, stepped over, not read.
//!
//! Weights of neural networks are deep inside, so nothing is read but tags and lengths: the walk of payloads
//! ([`Walk`]), with what a level says of its fields and no more.

use crate::model::executorch::Error;
use crate::model::executorch::body::ByteRange;
use crate::model::executorch::coreml::Walk;
use crate::source::Pages;

/// A field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    /// Its number.
    pub(super) number: u64,
    /// Its value, if it is a number.
    pub(super) value: Option<u64>,
    /// Where its bytes are, if it has a length.
    pub(super) bytes: Option<ByteRange>,
}

/// Goes through the fields of the message in `range`, in their order.
pub(super) fn each_part<E: From<Error>>(
    pages: &Pages<'_>,
    range: ByteRange,
    name: &'static str,
    mut each: impl FnMut(Part) -> Result<(), E>,
) -> Result<(), E> {
    let walk = Walk::new(pages);
    for field in walk.message(range, name).fields() {
        let field = field?;
        each(Part {
            number: field.number,
            value: field.value(),
            bytes: field.inside(),
        })?;
    }
    Ok(())
}
