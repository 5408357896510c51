//! Reads the packages of one version of a tree.
//!
//! Invariant: only the header of a model is read, and references do not leave the package's root.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::part::FileVersion;
use super::reference::References;
use pkgtool_base::package::reference::normalize;
use pkgtool_base::package::{
    Backend, Config, Discovery, FoundFile, FoundKind, LoadedFile, PrecisionList, Roots, roots,
};
use pkgtool_base::source::Document;

/// A directory or a config that is one side of a comparison.
#[derive(Debug, Clone, Default)]
pub struct ComparedTree {
    /// The directory to search, or the config.
    pub target: PathBuf,
    /// The directory that references may not leave; `None` to use the package root.
    pub border: Option<PathBuf>,
    /// Files that are not on the disk but whose size in bytes is known, by absolute path.
    pub unread: BTreeMap<PathBuf, u64>,
}

/// Options for reading a tree.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// Open model files, and compare their bytes if the sizes are equal.
    pub open_models: bool,
}

/// The packages of one version.
#[derive(Debug, Default)]
pub(super) struct Packages {
    pub(super) readable: Vec<Package>,
    /// Unreadable configs: path relative to the target, and the reason.
    pub(super) broken: BTreeMap<String, String>,
    /// Precision lists by their path relative to the target.
    pub(super) lists: BTreeMap<String, PrecisionList>,
    /// Skipped files and directories.
    pub(super) notes: Vec<String>,
}

/// A config with its files.
#[derive(Debug)]
pub(super) struct Package {
    /// Path of the config relative to the target.
    pub(super) path: String,
    pub(super) text: String,
    pub(super) document: Document,
    pub(super) config: Config,
    pub(super) tokenizers: Vec<FileVersion>,
    /// The files of each variant.
    pub(super) variants: Vec<Vec<FileVersion>>,
}

/// The result of reading one file.
enum ReadResult {
    Package(Box<Package>),
    Broken(String, String),
    List(String, PrecisionList),
    Skipped,
}

impl ComparedTree {
    /// Creates a tree for a directory or config on the disk.
    pub fn at(path: &Path) -> Self {
        Self {
            target: path.to_owned(),
            ..Self::default()
        }
    }

    /// Reads all packages of the tree.
    pub(super) fn read(&self, reading: Reading) -> Packages {
        // A deleted target is an empty tree: the caller named it because it existed in the other
        // version.
        if self.target.symlink_metadata().is_err() {
            return Packages::default();
        }
        let discovery = Discovery::walk(std::slice::from_ref(&self.target));
        let roots = Roots::new();
        let found = discovery.found.par_iter();
        let read: Vec<ReadResult> = found
            .map(|found| self.read_file(found, &roots, reading))
            .collect();
        let mut packages = Packages::default();
        for one in read {
            match one {
                ReadResult::Package(package) => packages.readable.push(*package),
                ReadResult::Broken(path, reason) => {
                    packages.broken.insert(path, reason);
                }
                ReadResult::List(path, list) => {
                    packages.lists.insert(path, list);
                }
                ReadResult::Skipped => {}
            }
        }
        for (path, reason) in &discovery.unreadable {
            let path = path.display();
            packages.notes.push(format!("{path}: not read: {reason}"));
        }
        packages
    }

    fn read_file(&self, found: &FoundFile, roots: &Roots, reading: Reading) -> ReadResult {
        let loaded = LoadedFile::read(&found.path);
        let path = self.below(&found.path);
        if found.kind == FoundKind::PrecisionList {
            return match &loaded.document {
                Ok(document) => ReadResult::List(path, PrecisionList::from_document(document)),
                Err(fault) => ReadResult::Broken(path, fault.to_string()),
            };
        }
        if !found.is_config(&loaded) {
            return ReadResult::Skipped;
        }
        let document = match loaded.document {
            Ok(document) if document.root.is_object() => document,
            Ok(_) => return ReadResult::Broken(path, "the file is not a JSON object".to_owned()),
            Err(fault) => return ReadResult::Broken(path, fault.to_string()),
        };
        let config = Config::from_document(&document);
        let directory = roots.absolute(found.path.parent().unwrap_or(Path::new("")));
        let border = match &self.border {
            Some(border) => normalize(border),
            None => roots.package_root(&directory),
        };
        let place = References {
            depth: roots::depth_below(&directory, &border),
            directory,
            unread: &self.unread,
            opens_models: reading.open_models,
        };
        let variants = config.variants.iter();
        ReadResult::Package(Box::new(Package {
            tokenizers: FileVersion::tokenizers(&config, &place),
            variants: variants
                .map(|variant| FileVersion::of_variant(variant, &place))
                .collect(),
            path,
            text: loaded.text,
            document,
            config,
        }))
    }

    fn below(&self, path: &Path) -> String {
        let below = path.strip_prefix(&self.target).unwrap_or(path);
        let below = if below.as_os_str().is_empty() {
            path.file_name().map_or(path, Path::new)
        } else {
            below
        };
        below.to_string_lossy().replace('\\', "/")
    }
}

impl Package {
    /// Returns a name like `spotter s xnnpack`, or the path of a config without an identity.
    pub(super) fn name(&self) -> String {
        let backend = self.config.backend.map(Backend::name);
        let parts = [
            self.config.model.as_deref(),
            self.config.size.as_deref(),
            backend,
        ];
        let parts: Vec<&str> = parts.into_iter().flatten().collect();
        if self.config.model.is_none() {
            self.path.clone()
        } else {
            parts.join(" ")
        }
    }

    /// Returns the identity of the package: model, size and backend.
    pub(super) fn key(&self) -> (Option<&str>, Option<&str>, Option<&str>) {
        (
            self.config.model.as_deref(),
            self.config.size.as_deref(),
            self.config.backend.map(Backend::name),
        )
    }
}
