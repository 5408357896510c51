//! What changed between two versions of a package, or of a tree of packages, for those who use it.
//!
//! Two trees in, changes out, each with its kind, and each kind with its level: whether it breaks those who
//! call the models by what the older version said. Invariant: what neither a config nor a model file proves
//! is no change, and a tree has none against itself. Never runs a model.

mod align;
mod change;
mod content;
mod fields;
mod kinds;
mod level;
mod methods;
mod model;
mod packages;
mod part;
mod reference;
pub mod render;
mod revision;
mod side;
mod signature;
mod size;
mod tensors;
mod tokenizer;
mod tree;
mod variants;

pub use change::{Change, Difference, Place, Summary};
pub use kinds::{KINDS, Kind};
pub use level::Level;
pub use packages::compare;
pub use revision::{RevisionError, Written, write_revision};
pub use tree::{Reading, Tree};
