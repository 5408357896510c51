//! Constrained output: computes which tokens may come next so that the output is JSON, or JSON that
//! follows a schema.
//!
//! Only this module uses the grammar library (llguidance). Invariant: a complete output matches the
//! requested grammar. For any schema of a client, compilation and every step end within limits.
//! Sampling and HTTP are handled elsewhere.

mod constrainer;
mod error;
mod grammar;
mod schema;

pub use constrainer::{Constrainer, Constraint, VocabularyBytes};
pub use error::ConstraintError;
pub use grammar::{CallChoice, Callable, Grammar};
