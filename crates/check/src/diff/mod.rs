//! `pkgtool diff`: compares two versions of a package, or of a tree of packages, for users of the
//! packages.
//!
//! Each change has a kind, and each kind has a level. The level says whether it breaks callers who
//! rely on the older version. Invariant: only facts in configs and model files count as changes, so
//! a tree compared with itself has none. Models are never run.

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

pub use change::{Change, ChangeLocation, ChangeSummary, Difference};
pub use kinds::{ChangeKind, KINDS};
pub use level::ChangeLevel;
pub use packages::compare;
pub use revision::{RevisionError, WrittenTree, write_revision};
pub use tree::{ComparedTree, Reading};
