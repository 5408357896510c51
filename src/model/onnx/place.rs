//! Where in the model a reader is, for errors: `ModelProto.graph.input[2].type`.
//!
//! Places are linked on the stack and cost nothing until one is shown.

use std::fmt;

/// Longest path in an error message before its middle is left out.
const MAX_PARTS: usize = 12;

/// Where the reader is: a path of fields, rendered only for an error.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) parent: Option<&'a Place<'a>>,
    pub(super) name: Name,
    pub(super) index: Option<u64>,
}

/// The name of a field, or its number where the schema has none.
#[derive(Clone, Copy)]
pub(super) enum Name {
    Known(&'static str),
    Number(u64),
}

impl<'a> Place<'a> {
    /// A message that is a whole file.
    pub(super) fn root(name: &'static str) -> Self {
        Self {
            parent: None,
            name: Name::Known(name),
            index: None,
        }
    }

    /// A field by its name, as if it stood here.
    pub(super) fn field(&'a self, name: &'static str) -> Self {
        Self {
            parent: Some(self),
            name: Name::Known(name),
            index: None,
        }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts: Vec<&Place<'_>> =
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
                Name::Known(name) => f.write_str(name)?,
                Name::Number(number) => write!(f, "field {number}")?,
            }
            if let Some(index) = part.index {
                write!(f, "[{index}]")?;
            }
        }
        Ok(())
    }
}
