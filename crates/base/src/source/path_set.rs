//! A set of paths with queries for the paths above and below a path.
//!
//! Invariant: no query takes time proportional to the size of the set.

use std::collections::BTreeSet;

use super::JsonPath;
use super::json::Step;

/// A set of paths.
#[derive(Debug, Clone, Default)]
pub struct PathSet(BTreeSet<JsonPath>);

impl PathSet {
    /// Returns whether the set contains `path` or a path below it.
    pub fn reaches_into(&self, path: &JsonPath) -> bool {
        // A path sorts directly before those below it.
        let next = self.0.range::<JsonPath, _>(path..).next();
        next.is_some_and(|next| next.is_within(path))
    }

    /// Returns whether the set contains `path` or a path above it.
    pub fn covers(&self, path: &JsonPath) -> bool {
        let steps = path.steps();
        !self.0.is_empty() && (0..=steps.len()).any(|depth| self.0.contains(&steps[..depth]))
    }
}

impl FromIterator<JsonPath> for PathSet {
    fn from_iter<T: IntoIterator<Item = JsonPath>>(paths: T) -> Self {
        Self(paths.into_iter().collect())
    }
}

impl std::borrow::Borrow<[Step]> for JsonPath {
    fn borrow(&self) -> &[Step] {
        self.steps()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_for_what_lies_above_and_below() {
        let at = |steps: &[&str]| steps.iter().fold(JsonPath::root(), |at, key| at.key(key));
        let set: PathSet = [at(&["a", "b"]), at(&["a-"]), at(&["c"]).index(10)]
            .into_iter()
            .collect();
        for (path, reached, covered) in [
            (JsonPath::root(), true, false),
            (at(&["a"]), true, false),
            (at(&["a", "b"]), true, true),
            (at(&["a", "b", "c"]), false, true),
            (at(&["a", "bb"]), false, false),
            (at(&["c"]), true, false),
            (at(&["c"]).index(1), false, false),
            (at(&["c"]).index(10).index(0), false, true),
        ] {
            assert_eq!(set.reaches_into(&path), reached, "{path:?}");
            assert_eq!(set.covers(&path), covered, "{path:?}");
        }
        assert!(!PathSet::default().reaches_into(&JsonPath::root()));
        assert!(!PathSet::default().covers(&JsonPath::root()));
    }
}
