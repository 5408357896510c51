//! The files of this repository that tests read: sources and pages.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use walkdir::WalkDir;

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        here.ancestors()
            .nth(2)
            .expect("this crate is in a folder of the repository")
            .to_owned()
    })
}

/// Returns the files below a folder that have this extension, sorted by path.
pub fn below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = WalkDir::new(folder).sort_by_file_name().into_iter();
    entries
        .map(|entry| entry.expect("a readable folder").into_path())
        .filter(|path| path.is_file() && path.extension().is_some_and(|it| it == extension))
        .collect()
}

/// Returns the pages at the root of the repository and every page of the book.
pub fn pages() -> Vec<PathBuf> {
    let mut pages = below(&root().join("docs"), "md");
    let names = [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
    ];
    pages.extend(names.map(|name| root().join(name)));
    pages
}
