//! One version: the packages of a tree, read.
//!
//! Invariant: of a model only its header is read; references do not leave the package's root.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::part::Part;
use super::reference::References;
use crate::package::reference::normalize;
use crate::package::{
    Backend, Config, Discovery, Found, FoundKind, Loaded, PrecisionList, Roots, roots,
};
use crate::source::Document;

/// A directory or a config that is one side of a comparison.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// What is looked at: a directory, which is walked, or a config.
    pub target: PathBuf,
    /// What references may not leave, if that is known; else the package's root is looked for.
    pub border: Option<PathBuf>,
    /// Files that are not on the disk and of which the size in bytes is known, by absolute paths.
    pub unread: BTreeMap<PathBuf, u64>,
}

/// How a tree is read.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// Whether model files are opened, and their bytes compared where their sizes are equal.
    pub open_models: bool,
}

/// The packages of one version.
#[derive(Debug, Default)]
pub(super) struct Packages {
    pub(super) readable: Vec<Package>,
    /// Configs that cannot be read: path below the target, and why.
    pub(super) broken: BTreeMap<String, String>,
    /// Precision lists by their path below the target.
    pub(super) lists: BTreeMap<String, PrecisionList>,
    /// What was passed over.
    pub(super) notes: Vec<String>,
}

/// A config with its files.
#[derive(Debug)]
pub(super) struct Package {
    /// Path of the config below the target.
    pub(super) path: String,
    pub(super) text: String,
    pub(super) document: Document,
    pub(super) config: Config,
    pub(super) tokenizers: Vec<Part>,
    /// The files of each variant.
    pub(super) variants: Vec<Vec<Part>>,
}

/// What became of one file.
enum Read {
    Package(Box<Package>),
    Broken(String, String),
    List(String, PrecisionList),
    Skipped,
}

impl Tree {
    /// A directory or config on the disk.
    pub fn at(path: &Path) -> Self {
        Self {
            target: path.to_owned(),
            ..Self::default()
        }
    }

    /// Reads what is there.
    pub(super) fn read(&self, reading: Reading) -> Packages {
        // Of what is gone nothing is left: it was named for what it had been.
        if self.target.symlink_metadata().is_err() {
            return Packages::default();
        }
        let discovery = Discovery::walk(std::slice::from_ref(&self.target));
        let roots = Roots::new();
        let found = discovery.found.par_iter();
        let read: Vec<Read> = found
            .map(|found| self.read_file(found, &roots, reading))
            .collect();
        let mut packages = Packages::default();
        for one in read {
            match one {
                Read::Package(package) => packages.readable.push(*package),
                Read::Broken(path, reason) => {
                    packages.broken.insert(path, reason);
                }
                Read::List(path, list) => {
                    packages.lists.insert(path, list);
                }
                Read::Skipped => {}
            }
        }
        for (path, reason) in &discovery.unreadable {
            let path = path.display();
            packages.notes.push(format!("{path}: not read: {reason}"));
        }
        packages
    }

    fn read_file(&self, found: &Found, roots: &Roots, reading: Reading) -> Read {
        let loaded = Loaded::read(&found.path);
        let path = self.below(&found.path);
        if found.kind == FoundKind::PrecisionList {
            return match &loaded.document {
                Ok(document) => Read::List(path, PrecisionList::from_document(document)),
                Err(fault) => Read::Broken(path, fault.to_string()),
            };
        }
        if !found.is_config(&loaded) {
            return Read::Skipped;
        }
        let document = match loaded.document {
            Ok(document) if document.root.is_object() => document,
            Ok(_) => return Read::Broken(path, "it is no JSON object".to_owned()),
            Err(fault) => return Read::Broken(path, fault.to_string()),
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
        Read::Package(Box::new(Package {
            tokenizers: Part::tokenizers(&config, &place),
            variants: variants
                .map(|variant| Part::of_variant(variant, &place))
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
    /// `spotter s xnnpack`; the path of a config that does not say.
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

    /// What tells it from others.
    pub(super) fn key(&self) -> (Option<&str>, Option<&str>, Option<&str>) {
        (
            self.config.model.as_deref(),
            self.config.size.as_deref(),
            self.config.backend.map(Backend::name),
        )
    }
}
