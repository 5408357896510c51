//! Output that is JSON, or JSON of a schema: which tokens may come next.
//!
//! Owns the only use of the library that works grammars out. Invariant: what it allows to be finished
//! is what was asked for; whatever a client's schema says, building and every step end within bounds.
//! Knows no sampling and no HTTP.

mod constrainer;
mod error;
mod grammar;
mod schema;

pub use constrainer::{Constrainer, Constraint, Words};
pub use error::ConstraintError;
pub use grammar::{CallChoice, Callable, Grammar};
