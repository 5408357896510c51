//! Checks whether a fix in one document may rename a file. A code action can only change this
//! document, so no other config may name the file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::document::Documents;
use super::text::Text;
use pkgtool_base::diagnostic::Fix;
use pkgtool_base::package::{ReferenceSearch, Roots};
use pkgtool_base::source::edit::apply;

/// Maximum number of directory entries that are read. The user is waiting for the menu.
const MAX_ENTRIES: usize = 50_000;

/// Returns whether nothing names the file any more after `fix` is applied to the document at
/// `path`.
pub(super) fn breaks_nothing(path: &Path, text: &Text, fix: &Fix, documents: &Documents) -> bool {
    let Some(rename) = &fix.rename else {
        return true;
    };
    let roots = Roots::new();
    let mut surroundings = ReferenceSearch::new(MAX_ENTRIES);
    for place in [path, &rename.from] {
        surroundings.add_around(place.parent().unwrap_or(Path::new("")), &roots);
    }
    // Unsaved texts may name files, too.
    let open = documents.iter().filter_map(|(_, document)| {
        let text = document.text()?.as_str().to_owned();
        Some((document.path.canonicalize().ok()?, text))
    });
    let mut texts: HashMap<PathBuf, String> = open.collect();
    let (Ok(own), Some(after)) = (path.canonicalize(), apply(text.as_str(), &fix.edits)) else {
        return false;
    };
    texts.insert(own, after);
    let file = roots.absolute(&rename.from);
    let mention = surroundings.mention(&file, &roots, &|real| texts.get(real).cloned());
    mention.is_none()
}
