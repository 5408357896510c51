//! Why there are no inputs for a run: always which input, what it expects, what was found, what to do.
//!
//! Invariant: text from files is shown without what a terminal would obey.

use std::fmt;

use crate::source::text::defuse_line;
use crate::tensor::limit::{Limit, in_units};
use crate::tensor::{DType, Signature};

/// An input, as errors name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its place in the signature, from 0.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// dtype and shape that it expects, such as `float32[1, -1 (batch)]`.
    pub expected: String,
}

/// Why inputs cannot be given to a model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// An option's text cannot be understood.
    #[error("`{option} {}`: {}; {}", defuse_line(.text), defuse_line(.reason), defuse_line(.help))]
    Argument {
        /// The option.
        option: &'static str,
        /// Its value.
        text: String,
        /// What is wrong.
        reason: String,
        /// What to do.
        help: String,
    },
    /// An input has two values.
    #[error("{place} is given twice: by `{}` and by `{}`; give it once", defuse_line(.first), defuse_line(.second))]
    Repeated {
        /// The input.
        place: Box<Place>,
        /// One value.
        first: String,
        /// The other.
        second: String,
    },
    /// Inputs without a value.
    #[error("no value for {}; give one to each, for example `{}`", list(.places), defuse_line(.example))]
    Missing {
        /// The inputs.
        places: Vec<Place>,
        /// Options that give them values.
        example: String,
    },
    /// More or fewer tensors than inputs.
    #[error("`{}` takes {expected} inputs, and {found} are given; give one tensor to each input", defuse_line(.method))]
    Count {
        /// The method.
        method: String,
        /// How many inputs it has.
        expected: usize,
        /// How many tensors there are.
        found: usize,
    },
    /// A tensor of another dtype.
    #[error("{place}: {} has dtype {found}; {}", defuse_line(.origin), defuse_line(.help))]
    DType {
        /// The input.
        place: Box<Place>,
        /// Where the tensor comes from.
        origin: String,
        /// Its dtype.
        found: DType,
        /// What to do.
        help: String,
    },
    /// A tensor of another shape.
    #[error("{place}: {} has shape {found:?}: {}; {}", defuse_line(.origin), defuse_line(.reason), defuse_line(.help))]
    Shape {
        /// The input.
        place: Box<Place>,
        /// Where the tensor comes from.
        origin: String,
        /// Its shape.
        found: Vec<u64>,
        /// What does not fit.
        reason: String,
        /// What to do.
        help: String,
    },
    /// A dimension has two sizes.
    #[error(
        "dimension `{}` is {first_size} by {} and {second_size} by {}; give it one size everywhere",
        defuse_line(.dim), defuse_line(.first), defuse_line(.second)
    )]
    Conflict {
        /// The dimension.
        dim: String,
        /// What gave it a size first.
        first: String,
        /// That size.
        first_size: u64,
        /// What gave it another.
        second: String,
        /// The other.
        second_size: u64,
    },
    /// A value that cannot be made a tensor of this input.
    #[error("{place}: {}: {}; {}", defuse_line(.origin), defuse_line(.reason), defuse_line(.help))]
    Value {
        /// The input.
        place: Box<Place>,
        /// Where the value comes from.
        origin: String,
        /// What is wrong.
        reason: String,
        /// What to do.
        help: String,
    },
    /// A file for all inputs that cannot be used.
    #[error("{}: {}; {}", defuse_line(.origin), defuse_line(.reason), defuse_line(.help))]
    Source {
        /// The file.
        origin: String,
        /// What is wrong.
        reason: String,
        /// What to do.
        help: String,
    },
    /// More memory than there is.
    #[error("{}", shortage(*.needed, *.available, *.limit))]
    Memory {
        /// Bytes needed.
        needed: u64,
        /// Bytes that can be used.
        available: u64,
        /// The limit that says so, if it is one and not what the machine has.
        limit: Option<Limit>,
    },
}

impl Place {
    /// The input of this index.
    pub fn of(signature: &Signature, index: usize) -> Self {
        let spec = &signature.inputs[index];
        Self {
            index,
            name: spec.name.clone(),
            expected: spec.to_string(),
        }
    }

    /// An error about the input's value.
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
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, .. } = self;
        let name = defuse_line(&self.name);
        let expected = defuse_line(&self.expected);
        write!(f, "input {index} `{name}` (expects {expected})")
    }
}

/// The names of all inputs, for a help text.
pub(super) fn names(signature: &Signature) -> String {
    if signature.inputs.is_empty() {
        return "the model takes no inputs".to_owned();
    }
    let inputs = signature.inputs.iter().enumerate();
    let names: Vec<String> = inputs
        .map(|(index, input)| format!("{index} `{}`", input.name))
        .collect();
    format!("the inputs are {}", names.join(", "))
}

fn list(places: &[Place]) -> String {
    let texts: Vec<String> = places.iter().map(Place::to_string).collect();
    texts.join(", ")
}

fn shortage(needed: u64, available: u64, limit: Option<Limit>) -> String {
    let needed = in_units(needed);
    match limit {
        Some(limit) => format!(
            "the inputs need {needed}, more than {limit}; {}",
            limit.help()
        ),
        None => format!(
            "the inputs need {needed} and {} can be used; give smaller sizes with `--dim`, or free \
             memory",
            in_units(available)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_a_file_do_nothing_to_a_terminal() {
        let place = Place {
            index: 0,
            name: "a\u{1b}[31m\n".to_owned(),
            expected: "float32[1]".to_owned(),
        };
        assert_eq!(place.to_string(), "input 0 `a?[31m?` (expects float32[1])");
    }
}
