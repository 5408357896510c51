//! The error of all readers: a rule of a format that a file violates.
//!
//! A message names the position, the expected and the actual content. Each format adds the wording of
//! rules that several of its parts check.

use std::error::Error;
use std::fmt::{self, Display};

use pkgtool_base::source::pages::PageError;

/// A violation of a format's rules.
#[derive(Debug)]
pub struct FormatError {
    message: String,
    offset: Option<u64>,
    class: ErrorClass,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ErrorClass {
    Violation,
    Unsupported,
    BudgetSpent,
}

impl FormatError {
    /// Creates an error without a file offset.
    pub(crate) fn new(message: impl Display) -> Self {
        Self {
            message: message.to_string(),
            offset: None,
            class: ErrorClass::Violation,
        }
    }

    /// Creates the error of a valid model that this reader does not support.
    pub(crate) fn unsupported(message: impl Display) -> Self {
        Self {
            class: ErrorClass::Unsupported,
            ..Self::new(message)
        }
    }

    /// Creates an error at a file offset.
    pub(crate) fn at(offset: u64, message: impl Display) -> Self {
        Self {
            offset: Some(offset),
            ..Self::new(message)
        }
    }

    /// Creates the error of a read that failed.
    pub(crate) fn unreadable(place: impl Display, error: &PageError) -> Self {
        Self {
            class: match error {
                PageError::BudgetSpent { .. } => ErrorClass::BudgetSpent,
                _ => ErrorClass::Violation,
            },
            ..Self::at(error.offset(), format_args!("{place}: {error}"))
        }
    }

    /// Creates the error of a list that is longer than any real one.
    pub(crate) fn too_many(most: usize, what: &str) -> Self {
        Self::new(format_args!("expected at most {most} {what}, found more"))
    }

    /// Adds the name of the file in a folder to an error that has an offset in it.
    pub(crate) fn within(mut self, file: &str) -> Self {
        if self.offset.is_some() {
            self.message = format!("`{file}`: {}", self.message);
        }
        self
    }

    /// Returns the file offset of the violation, if it has one.
    pub fn offset(&self) -> Option<u64> {
        self.offset
    }

    /// Returns whether the model is valid, but unsupported.
    pub fn is_unsupported(&self) -> bool {
        self.class == ErrorClass::Unsupported
    }

    /// Returns whether the reader has spent its budget of reads.
    pub(crate) fn is_budget_spent(&self) -> bool {
        self.class == ErrorClass::BudgetSpent
    }
}

impl Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for FormatError {}

/// A position in a file: the path of a field from the root, and its offset.
#[derive(Debug)]
pub(crate) struct FieldPosition {
    /// The field, as in `Program.execution_plan[0].values[3].sizes`.
    path: String,
    /// Offset from the beginning of the file.
    pub(crate) offset: u64,
}

impl Display for FieldPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.path, self.offset)
    }
}

impl FieldPosition {
    pub(crate) fn new(path: impl Display, offset: u64) -> Self {
        Self {
            path: path.to_string(),
            offset,
        }
    }

    /// Creates an error at this position.
    pub(crate) fn violates(&self, message: impl Display) -> FormatError {
        FormatError::at(self.offset, format_args!("{self}: {message}"))
    }

    /// Creates the error of other content than the format allows.
    pub(crate) fn expected(&self, expected: impl Display, found: impl Display) -> FormatError {
        self.violates(format_args!("expected {expected}, found {found}"))
    }

    /// Creates the error of a read that failed.
    pub(crate) fn unreadable(&self, error: &PageError) -> FormatError {
        FormatError::unreadable(self, error)
    }
}
