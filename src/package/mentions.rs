//! Who else names a file: configs and links around it, wherever a reference to it may stand.
//!
//! Invariant: more is looked at than a walk for packages looks at. What settings leave out, hidden directories and
//! configs that do not parse name files all the same. Reads are bounded, and so is the number of entries.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::reference::{normalize, resolve};
use super::walked::strip_current_dir;
use super::{Loaded, Roots, config, roots, steps};
use crate::source::json::{Kind, Node};

/// How many directories without a repository a reference may go up, and so how far from there down again.
const REACH: usize = 2;

/// Configs and links around files.
#[derive(Debug)]
pub struct Surroundings {
    /// Directories that were looked through.
    tops: Vec<PathBuf>,
    /// Those that were as far as references reach.
    near: BTreeSet<PathBuf>,
    configs: BTreeSet<PathBuf>,
    /// Links, and where they lead by one step.
    links: BTreeSet<(PathBuf, PathBuf)>,
    /// Entries that may still be looked at.
    left: usize,
    /// The directory in which it were too many.
    unfinished: Option<PathBuf>,
}

/// What names a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mention {
    /// This config.
    Config(PathBuf),
    /// This config's text, which does not parse.
    Broken(PathBuf),
    /// This symbolic link leads to it.
    Link(PathBuf),
    /// It is not known: there is more below this directory than is looked at.
    Unknown(PathBuf),
}

impl Surroundings {
    /// Nothing looked at yet; at most so many entries of directories will be.
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

    /// Looks through all from which a reference may lead into `directory`: the repository and those around it, of
    /// which it is a part (a submodule), or where there is none as far as references may go up and down again.
    pub fn add_around(&mut self, directory: &Path, roots: &Roots) {
        let directory = roots.absolute(directory);
        let around = |inner: &PathBuf| roots.checkout(steps::above(inner)?);
        let repositories = std::iter::successors(roots.repository(&directory), around);
        if let Some(outermost) = repositories.last() {
            self.add(&outermost, usize::MAX);
            return;
        }
        for above in steps::upwards(&directory).take(REACH + 1) {
            self.add(above, REACH + 1);
        }
    }

    /// Looks through a directory that the caller named.
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
            // What cannot be listed names nothing that can be read.
            let Ok(entry) = entry else { continue };
            if self.left == 0 {
                self.unfinished.get_or_insert_with(|| top.to_owned());
                return;
            }
            self.left -= 1;
            let (name, kind) = (entry.file_name(), entry.file_type());
            if kind.is_dir() && entry.depth() > 0 && is_others(name) {
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

    /// The first that names `file`, which is absolute. `text_of` has the texts that configs will have, by their real
    /// paths; others are read.
    pub fn mention(
        &self,
        file: &Path,
        roots: &Roots,
        text_of: &dyn Fn(&Path) -> Option<String>,
    ) -> Option<Mention> {
        let sought = Sought::new(file)?;
        let link = self.links.iter().find(|(_, target)| sought.is(target));
        if let Some((link, _)) = link {
            return Some(Mention::Link(link.clone()));
        }
        let mentions = self.configs.iter().find_map(|path| {
            let given = path.canonicalize().ok().and_then(|real| text_of(&real));
            let loaded = match given {
                Some(text) => Loaded::from_bytes(text.into_bytes()),
                None => Loaded::read(path),
            };
            sought.in_config(path, &loaded, roots)
        });
        mentions.or_else(|| self.unfinished.clone().map(Mention::Unknown))
    }
}

/// Directories that hold no packages, and many files.
fn is_others(name: &OsStr) -> bool {
    name == ".git" || name == "node_modules"
}

/// A file that is looked for.
struct Sought {
    /// Its name.
    name: String,
    /// Its place, links on the way to it resolved; it may be one itself.
    place: PathBuf,
}

impl Sought {
    fn new(file: &Path) -> Option<Self> {
        Some(Self {
            name: file.file_name()?.to_str()?.to_owned(),
            place: place(file)?,
        })
    }

    /// Whether a path leads to the file, or into it where it is a folder.
    fn is(&self, path: &Path) -> bool {
        let path = normalize(path);
        // To ask the disk costs more than to look for the name.
        let names = path
            .components()
            .any(|one| one.as_os_str() == self.name.as_str());
        names
            && path.ancestors().any(|above| {
                above.file_name() == Some(OsStr::new(&self.name))
                    && place(above).is_some_and(|place| place == self.place)
            })
    }

    fn in_config(&self, path: &Path, loaded: &Loaded, roots: &Roots) -> Option<Mention> {
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

/// Where a file is, links to its directory resolved.
fn place(file: &Path) -> Option<PathBuf> {
    let directory = file.parent().filter(|it| !it.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new(".")).canonicalize().ok()?;
    Some(directory.join(file.file_name()?))
}

/// Whether a text anywhere in a value is meant, under whatever key: an author's mistake in the key is no reason to
/// break what it names.
fn has_text(node: &Node, is_meant: &dyn Fn(&str) -> bool) -> bool {
    match &node.kind {
        Kind::String(text) => is_meant(text),
        Kind::Array(elements) => elements.iter().any(|it| has_text(it, is_meant)),
        Kind::Object(_) => {
            let mut members = node.members().iter();
            members.any(|member| has_text(&member.value, is_meant))
        }
        _ => false,
    }
}
