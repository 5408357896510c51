//! The path to a node during a walk, as a linked list on the stack. It becomes a [`JsonPath`] only
//! on demand.
//!
//! Walks visit every value of every file and report almost none of them, so they must not allocate
//! a path for each.

use super::JsonPath;

/// The path from the root of a document to a node.
#[derive(Debug, Clone, Copy)]
pub struct Trail<'a> {
    last: Option<(&'a Trail<'a>, TrailStep<'a>)>,
}

#[derive(Debug, Clone, Copy)]
enum TrailStep<'a> {
    Key(&'a str),
    Index(usize),
}

impl<'a> Trail<'a> {
    /// Returns the path to the root.
    pub fn root() -> Self {
        Self { last: None }
    }

    /// Returns this path extended by a member's key.
    #[must_use]
    pub fn key(&'a self, key: &'a str) -> Self {
        let last = Some((self, TrailStep::Key(key)));
        Self { last }
    }

    /// Returns this path extended by an element's index.
    #[must_use]
    pub fn index(&'a self, index: usize) -> Self {
        let last = Some((self, TrailStep::Index(index)));
        Self { last }
    }

    /// Converts the trail to a path.
    pub fn to_path(&self) -> JsonPath {
        match self.last {
            None => JsonPath::root(),
            Some((parent, TrailStep::Key(key))) => parent.to_path().key(key),
            Some((parent, TrailStep::Index(index))) => parent.to_path().index(index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Trail;

    #[test]
    fn a_trail_becomes_its_path() {
        let root = Trail::root();
        let a = root.key("a");
        assert_eq!(a.index(3).key("b").to_path().to_pointer(), "/a/3/b");
        assert_eq!(root.to_path().to_pointer(), "");
    }
}
