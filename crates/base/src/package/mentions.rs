//! Finds configs and symbolic links that refer to a file, so that `pkgtool fix` does not rename a
//! file in use.
//!
//! Invariant: the search covers more than a walk for packages. Files excluded by settings, hidden
//! directories and configs that do not parse are included. Reads and the number of entries are
//! bounded.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::reference::{normalize, resolve};
use super::walked::strip_current_dir;
use super::{LoadedFile, Roots, config, roots, steps};
use crate::source::json::{JsonValue, Node};

/// Number of levels that a reference may go up, and down again, outside a repository.
const MAX_REFERENCE_LEVELS: usize = 2;

/// The configs and links in the directories from which files may be referenced.
#[derive(Debug)]
pub struct ReferenceSearch {
    /// Directories that were searched.
    tops: Vec<PathBuf>,
    /// Directories that were searched only as deep as references reach.
    near: BTreeSet<PathBuf>,
    configs: BTreeSet<PathBuf>,
    /// Links, with their direct targets.
    links: BTreeSet<(PathBuf, PathBuf)>,
    /// Remaining number of entries that may be inspected.
    left: usize,
    /// The directory in which the limit was reached.
    unfinished: Option<PathBuf>,
}

/// A reference to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mention {
    /// A config that references it.
    Config(PathBuf),
    /// A config that does not parse, but contains the name.
    Broken(PathBuf),
    /// A symbolic link that leads to it.
    Link(PathBuf),
    /// Unknown: the limit was reached below this directory.
    Unknown(PathBuf),
}

impl ReferenceSearch {
    /// Creates an empty set. At most `most` directory entries will be inspected.
    pub fn new(most: usize) -> Self {
        Self {
            tops: Vec::new(),
            near: BTreeSet::new(),
            configs: BTreeSet::new(),
            links: BTreeSet::new(),
            left: most,
            unfinished: None,
        }
    }

    /// Searches every directory from which a reference may lead into `directory`: its repository,
    /// and the repositories that contain it as a submodule. Without a repository, the levels that a
    /// reference may go up and down again.
    pub fn add_around(&mut self, directory: &Path, roots: &Roots) {
        let directory = roots.absolute(directory);
        let around = |inner: &PathBuf| roots.checkout(steps::above(inner)?);
        let repositories = std::iter::successors(roots.repository(&directory), around);
        if let Some(outermost) = repositories.last() {
            self.add(&outermost, usize::MAX);
            return;
        }
        for above in steps::upwards(&directory).take(MAX_REFERENCE_LEVELS + 1) {
            self.add(above, MAX_REFERENCE_LEVELS + 1);
        }
    }

    /// Searches an explicitly given directory.
    pub fn add_named(&mut self, directory: &Path, roots: &Roots) {
        self.add(&roots.absolute(directory), usize::MAX);
    }

    fn add(&mut self, top: &Path, depth: usize) {
        let is_known = self.tops.iter().any(|known| top.starts_with(known));
        if is_known || depth < usize::MAX && !self.near.insert(top.to_owned()) {
            return;
        }
        if depth == usize::MAX {
            self.tops.push(top.to_owned());
        }
        let mut walk = WalkDir::new(top).max_depth(depth).into_iter();
        while let Some(entry) = walk.next() {
            // An unreadable directory contains no readable references.
            let Ok(entry) = entry else { continue };
            if self.left == 0 {
                self.unfinished.get_or_insert_with(|| top.to_owned());
                return;
            }
            self.left -= 1;
            let (name, kind) = (entry.file_name(), entry.file_type());
            if kind.is_dir() && entry.depth() > 0 && is_skipped_directory(name) {
                walk.skip_current_dir();
            }
            if kind.is_symlink()
                && let Ok(target) = entry.path().read_link()
            {
                let target = entry.path().with_file_name("").join(target);
                self.links.insert((entry.path().to_owned(), target));
            }
            if name == config::FILE_NAME && !kind.is_dir() {
                self.configs.insert(strip_current_dir(entry.path()));
            }
        }
    }

    /// Returns the first reference to `file`, an absolute path. `text_of` returns the planned new
    /// text of a config by its real path; other configs are read.
    pub fn mention(
        &self,
        file: &Path,
        roots: &Roots,
        text_of: &dyn Fn(&Path) -> Option<String>,
    ) -> Option<Mention> {
        let sought = SoughtFile::new(file)?;
        let link = self.links.iter().find(|(_, target)| sought.is(target));
        if let Some((link, _)) = link {
            return Some(Mention::Link(link.clone()));
        }
        let mentions = self.configs.iter().find_map(|path| {
            let given = path.canonicalize().ok().and_then(|real| text_of(&real));
            let loaded = match given {
                Some(text) => LoadedFile::from_bytes(text.into_bytes()),
                None => LoadedFile::read(path),
            };
            sought.in_config(path, &loaded, roots)
        });
        mentions.or_else(|| self.unfinished.clone().map(Mention::Unknown))
    }
}

/// Returns whether a directory contains no packages but many files.
fn is_skipped_directory(name: &OsStr) -> bool {
    name == ".git" || name == "node_modules"
}

/// The file that is searched for.
struct SoughtFile {
    /// Its name.
    name: String,
    /// Its path with links in the parent directories resolved; the file itself may be a link.
    place: PathBuf,
}

impl SoughtFile {
    fn new(file: &Path) -> Option<Self> {
        Some(Self {
            name: file.file_name()?.to_str()?.to_owned(),
            place: place(file)?,
        })
    }

    /// Returns whether a path leads to the file, or into it if it is a directory.
    fn is(&self, path: &Path) -> bool {
        let path = normalize(path);
        // Comparing names is cheaper than asking the file system.
        let names = path
            .components()
            .any(|one| one.as_os_str() == self.name.as_str());
        names
            && path.ancestors().any(|above| {
                above.file_name() == Some(OsStr::new(&self.name))
                    && place(above).is_some_and(|place| place == self.place)
            })
    }

    fn in_config(&self, path: &Path, loaded: &LoadedFile, roots: &Roots) -> Option<Mention> {
        match &loaded.document {
            Ok(document) => {
                let directory = roots.absolute(path.parent().unwrap_or(Path::new("")));
                let depth = roots::depth_below(&directory, &roots.package_root(&directory));
                let leads = |text: &str| {
                    text.contains(&self.name)
                        && resolve(&directory, depth, text).is_ok_and(|path| self.is(&path))
                };
                has_text(&document.root, &leads).then(|| Mention::Config(path.to_owned()))
            }
            Err(_) => (loaded.text.contains(&self.name)).then(|| Mention::Broken(path.to_owned())),
        }
    }
}

/// Returns the path of a file with links in its parent directories resolved.
fn place(file: &Path) -> Option<PathBuf> {
    let directory = file.parent().filter(|it| !it.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(directory.join(file.file_name()?))
}

/// Returns whether any string in a value matches, under any key. A reference under a mistyped key
/// counts too.
fn has_text(node: &Node, is_meant: &dyn Fn(&str) -> bool) -> bool {
    match &node.kind {
        JsonValue::String(text) => is_meant(text),
        JsonValue::Array(elements) => elements.iter().any(|it| has_text(it, is_meant)),
        JsonValue::Object(_) => {
            let mut members = node.members().iter();
            members.any(|member| has_text(&member.value, is_meant))
        }
        _ => false,
    }
}
