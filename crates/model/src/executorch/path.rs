//! Paths of fields in a FlatBuffer for error messages.
//!
//! A path is a shared chain of steps. Naming a table costs one small allocation; the text is
//! created only for an error.

use crate::FieldPosition;
use std::fmt;
use std::rc::Rc;

/// One step of a path.
#[derive(Debug, Clone, Copy)]
pub(super) enum PathStep {
    /// The path itself.
    Here,
    /// A field of a table.
    Field(&'static str),
    /// An element of a vector.
    Index(u64),
}

/// The path from the root to a table or vector.
#[derive(Debug, Clone)]
pub(super) struct Path(Rc<PathNode>);

#[derive(Debug)]
struct PathNode {
    parent: Option<Path>,
    step: PathStep,
}

impl Path {
    /// Creates the path of a root table.
    pub(super) fn root(name: &'static str) -> Self {
        Self(Rc::new(PathNode {
            parent: None,
            step: PathStep::Field(name),
        }))
    }

    /// Returns the path with one more step.
    pub(super) fn then(&self, step: PathStep) -> Self {
        Self(Rc::new(PathNode {
            parent: Some(self.clone()),
            step,
        }))
    }

    /// Returns the position one step further, for a message.
    pub(super) fn place(&self, step: PathStep, offset: u64) -> FieldPosition {
        match step {
            PathStep::Here => FieldPosition::new(self, offset),
            _ => FieldPosition::new(self.then(step), offset),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = &self.0.parent {
            parent.fmt(f)?;
        }
        match self.0.step {
            PathStep::Here => Ok(()),
            PathStep::Field(name) if self.0.parent.is_none() => f.write_str(name),
            PathStep::Field(name) => write!(f, ".{name}"),
            PathStep::Index(index) => write!(f, "[{index}]"),
        }
    }
}
