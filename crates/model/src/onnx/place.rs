//! The position of the reader as a field path for errors: `ModelProto.graph.input[2].type`.
//!
//! Positions are linked on the stack and are formatted only for an error.

use std::fmt;

/// Maximum number of path components in an error; longer paths lose their middle.
const MAX_PARTS: usize = 12;

/// The reader's position: a path of fields.
#[derive(Clone, Copy)]
pub(super) struct FieldPath<'a> {
    pub(super) parent: Option<&'a FieldPath<'a>>,
    pub(super) name: FieldName,
    pub(super) index: Option<u64>,
}

/// The name of a field, or its number if the schema lacks it.
#[derive(Clone, Copy)]
pub(super) enum FieldName {
    Known(&'static str),
    Number(u64),
}

impl<'a> FieldPath<'a> {
    /// Returns the position of the root message of a file.
    pub(super) fn root(name: &'static str) -> Self {
        Self {
            parent: None,
            name: FieldName::Known(name),
            index: None,
        }
    }

    /// Returns the position of the named field in this message.
    pub(super) fn field(&'a self, name: &'static str) -> Self {
        Self {
            parent: Some(self),
            name: FieldName::Known(name),
            index: None,
        }
    }
}

impl fmt::Display for FieldPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<&FieldPath<'_>> =
            std::iter::successors(Some(self), |place| place.parent).collect();
        parts.reverse();
        let left_out = parts.len().saturating_sub(MAX_PARTS);
        for (number, part) in parts.iter().enumerate() {
            if left_out > 0 && (MAX_PARTS / 2..MAX_PARTS / 2 + left_out).contains(&number) {
                if number == MAX_PARTS / 2 {
                    f.write_str(".…")?;
                }
                continue;
            }
            if number > 0 {
                f.write_str(".")?;
            }
            match part.name {
                FieldName::Known(name) => f.write_str(name)?,
                FieldName::Number(number) => write!(f, "field {number}")?,
            }
            if let Some(index) = part.index {
                write!(f, "[{index}]")?;
            }
        }
        Ok(())
    }
}
