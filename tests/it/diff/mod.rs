//! Tests of `pkgtool diff`: the kinds of changes, and the sources of the two versions.

mod kinds;
mod models;
mod revisions;
mod usage;

use std::path::Path;

use pkgtool_check::diff::{ComparedTree, Difference, Reading, compare};

/// Returns the changes from one directory or config to another.
fn difference(old: &Path, new: &Path, open_models: bool) -> Difference {
    compare(
        &ComparedTree::at(old),
        &ComparedTree::at(new),
        Reading { open_models },
    )
}

/// Returns the kinds of changes, sorted.
fn kinds(difference: &Difference) -> Vec<&'static str> {
    let mut kinds: Vec<&str> = difference.changes.iter().map(|one| one.kind.name).collect();
    kinds.sort_unstable();
    kinds
}
