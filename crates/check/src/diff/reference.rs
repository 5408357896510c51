//! Resolves the references of one config to file contents.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::content::PathContent;
use pkgtool_base::package::reference::resolve;

/// The context in which the references of a config are resolved.
pub(super) struct References<'a> {
    pub(super) directory: PathBuf,
    pub(super) depth: usize,
    pub(super) unread: &'a BTreeMap<PathBuf, u64>,
    pub(super) opens_models: bool,
}

impl References<'_> {
    /// Returns the content that a reference leads to.
    pub(super) fn content(&self, reference: &str) -> PathContent {
        let path = match resolve(&self.directory, self.depth, reference) {
            Ok(path) => path,
            Err(error) => return PathContent::Missing(format!("the reference {error}")),
        };
        match PathContent::look(&path) {
            PathContent::Missing(_) if self.unread.contains_key(&path) => {
                PathContent::Unread(self.unread[&path])
            }
            content => content,
        }
    }
}
