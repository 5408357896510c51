//! Errors of preparing inputs. Each names the input, the expected and the found value, and a
//! remedy.
//!
//! Invariant: text from files is shown without terminal control characters.

use std::fmt;

use crate::tensor::limit::{RunLimit, format_bytes};
use crate::tensor::{DType, Signature};
use pkgtool_base::source::text::defuse_line;

/// An input in error messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputLabel {
    /// Its index in the signature, from 0.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its expected dtype and shape, such as `float32[1, -1 (batch)]`.
    pub expected: String,
}

/// Inputs that cannot be prepared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// An option is invalid.
    #[error("`{option} {}`: {}; {}", defuse_line(.text), defuse_line(.reason), defuse_line(.help))]
    Argument {
        /// The option.
        option: &'static str,
        /// Its value.
        text: String,
        /// The problem.
        reason: String,
        /// The remedy.
        help: String,
    },
    /// An input has two values.
    #[error("{place} is given twice: by `{}` and by `{}`; give it once", defuse_line(.first), defuse_line(.second))]
    Repeated {
        /// The input.
        place: Box<InputLabel>,
        /// One value.
        first: String,
        /// The other.
        second: String,
    },
    /// Some inputs have no value.
    #[error("no value for {}; give one to each, for example `{}`", list(.places), defuse_line(.example))]
    Missing {
        /// The inputs.
        places: Vec<InputLabel>,
        /// Example options that give them values.
        example: String,
    },
    /// The number of tensors differs from the number of inputs.
    #[error("`{}` has the wrong number of inputs: expected {expected}, got {found}; give one tensor to each input", defuse_line(.method))]
    Count {
        /// The method.
        method: String,
        /// Number of its inputs.
        expected: usize,
        /// Number of given tensors.
        found: usize,
    },
    /// A tensor has the wrong dtype.
    #[error("{place}: {} has dtype {found}; {}", defuse_line(.origin), defuse_line(.help))]
    DType {
        /// The input.
        place: Box<InputLabel>,
        /// The source of the tensor.
        origin: String,
        /// Its dtype.
        found: DType,
        /// The remedy.
        help: String,
    },
    /// A tensor has the wrong shape.
    #[error("{place}: {} has shape {found:?}: {}; {}", defuse_line(.origin), defuse_line(.reason), defuse_line(.help))]
    Shape {
        /// The input.
        place: Box<InputLabel>,
        /// The source of the tensor.
        origin: String,
        /// Its shape.
        found: Vec<u64>,
        /// The mismatch.
        reason: String,
        /// The remedy.
        help: String,
    },
    /// A dimension has two different sizes.
    #[error(
        "dimension `{}` is {first_size} by {} and {second_size} by {}; give it one size everywhere",
        defuse_line(.dim), defuse_line(.first), defuse_line(.second)
    )]
    Conflict {
        /// The dimension.
        dim: String,
        /// The source of the first size.
        first: String,
        /// The first size.
        first_size: u64,
        /// The source of the second size.
        second: String,
        /// The second size.
        second_size: u64,
    },
    /// A value cannot be converted to a tensor for this input.
    #[error("{place}: {}: {}; {}", defuse_line(.origin), defuse_line(.reason), defuse_line(.help))]
    Value {
        /// The input.
        place: Box<InputLabel>,
        /// The source of the value.
        origin: String,
        /// The problem.
        reason: String,
        /// The remedy.
        help: String,
    },
    /// A file for all inputs is invalid.
    #[error("{}: {}; {}", defuse_line(.origin), defuse_line(.reason), defuse_line(.help))]
    Source {
        /// The file.
        origin: String,
        /// The problem.
        reason: String,
        /// The remedy.
        help: String,
    },
    /// The inputs need too much memory.
    #[error("{}", shortage(*.needed, *.available, *.limit))]
    Memory {
        /// Required memory, in bytes.
        needed: u64,
        /// Available memory, in bytes.
        available: u64,
        /// The exceeded limit; `None` if the machine's memory is exhausted.
        limit: Option<RunLimit>,
    },
}

impl InputLabel {
    /// Describes the input at this index.
    pub fn of(signature: &Signature, index: usize) -> Self {
        let spec = &signature.inputs[index];
        Self {
            index,
            name: spec.name.clone(),
            expected: spec.to_string(),
        }
    }

    /// Creates an error about the input's value.
    pub(super) fn value(&self, origin: &str, reason: impl fmt::Display, help: &str) -> InputError {
        InputError::Value {
            place: Box::new(self.clone()),
            origin: origin.to_owned(),
            reason: reason.to_string(),
            help: help.to_owned(),
        }
    }
}

/// `input 0 "tokens" (expects int64[1, -1])`.
impl fmt::Display for InputLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, .. } = self;
        let name = defuse_line(&self.name);
        let expected = defuse_line(&self.expected);
        write!(f, "input {index} `{name}` (expects {expected})")
    }
}

/// Lists the names of all inputs, for a help text.
pub(super) fn names(signature: &Signature) -> String {
    if signature.inputs.is_empty() {
        return "the model has no inputs".to_owned();
    }
    let inputs = signature.inputs.iter().enumerate();
    let names: Vec<String> = inputs
        .map(|(index, input)| format!("{index} `{}`", input.name))
        .collect();
    format!("the inputs are {}", names.join(", "))
}

fn list(places: &[InputLabel]) -> String {
    let texts: Vec<String> = places.iter().map(InputLabel::to_string).collect();
    texts.join(", ")
}

fn shortage(needed: u64, available: u64, limit: Option<RunLimit>) -> String {
    let needed = format_bytes(needed);
    match limit {
        Some(limit) => format!(
            "the inputs need {needed}, more than {limit}; {}",
            limit.help()
        ),
        None => format!(
            "the inputs need {needed}, but {} are available; give smaller sizes with `--dim`, or free \
             memory",
            format_bytes(available)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_a_file_do_nothing_to_a_terminal() {
        let place = InputLabel {
            index: 0,
            name: "a\u{1b}[31m\n".to_owned(),
            expected: "float32[1]".to_owned(),
        };
        assert_eq!(place.to_string(), "input 0 `a?[31m?` (expects float32[1])");
    }
}
