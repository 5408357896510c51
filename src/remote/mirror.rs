//! A source as a directory: names and sizes are on disk, bytes come when they are read.
//!
//! Invariant: the directory is this process's own and goes with the mirror; its files take no room,
//! whatever sizes a server claims, and nothing outside it is written.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::Url;
use tempfile::TempDir;

use super::address::{Address, endpoint};
use super::listing::{Entry, Tree};
use super::ranged::RangedFile;
use super::store::Files;
use super::web::{Traffic, Web};
use super::{RemoteError, Settings, crawl, hub};
use crate::source::elsewhere::{self, Mounted};

/// Largest size that a file of a mirror may have, in bytes: beyond any model, within any file system.
const MAX_SIZE: u64 = 1 << 42;

/// A source as a directory, until it is dropped.
pub struct Mirror {
    // The order matters: what is mounted goes before the directory.
    _mounted: Mounted,
    _directory: TempDir,
    root: PathBuf,
    tree: Tree,
    web: Arc<Web>,
    files: Arc<Files>,
    unsettled: bool,
}

impl Mirror {
    /// What is to be given to whatever takes a path: the directory or file that the user named.
    pub fn path(&self) -> PathBuf {
        self.local(&self.tree.start)
    }

    /// A text with paths in this mirror as addresses.
    pub fn shown(&self, text: &str) -> String {
        let root = self.root.to_string_lossy();
        text.replace(&*root, &self.tree.shown)
    }

    /// Whether the server told all files. Where it did not, a file that no config names may be there all
    /// the same.
    pub fn is_listed(&self) -> bool {
        self.tree.is_listed
    }

    /// What was fetched so far.
    pub fn traffic(&self) -> Traffic {
        self.web.traffic()
    }

    /// The first thing that could not be fetched. What was found of the files is not to be trusted then.
    pub fn fault(&self) -> Option<RemoteError> {
        self.web.fault()
    }

    pub(super) fn web(&self) -> &Arc<Web> {
        &self.web
    }

    pub(super) fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Where a file of the source is in the mirror.
    pub(super) fn local(&self, path: &str) -> PathBuf {
        if path.is_empty() {
            self.root.clone()
        } else {
            self.root.join(path)
        }
    }

    /// Where a path in the mirror is in the source.
    pub(super) fn below(&self, path: &Path) -> Option<String> {
        let below = path.strip_prefix(&self.root).ok()?;
        let parts: Option<Vec<&str>> = below.iter().map(|part| part.to_str()).collect();
        Some(parts?.join("/"))
    }

    pub(super) fn of(address: &Address, settings: &Settings) -> Result<Self, RemoteError> {
        let (web, tree) = match address {
            Address::Hub(address) => {
                let endpoint = endpoint(&settings.hub_endpoint)?;
                let web = Web::new(settings, &endpoint)?;
                let tree = hub::list(&web, &endpoint, address)?;
                (web, tree)
            }
            Address::Web(url) => {
                let web = Web::new(settings, url)?;
                let tree = crawl::tree(&web, url)?;
                (web, tree)
            }
        };
        let directory = tempfile::Builder::new().prefix("pkgtool-").tempdir();
        let temporary = std::env::temp_dir();
        let fail = |error| RemoteError::disk(&temporary, &error);
        let directory = directory.map_err(fail)?;
        let root = directory
            .path()
            .canonicalize()
            .map_err(fail)?
            .join("source");
        let border = root.join(&tree.border);
        fs::create_dir_all(&border).map_err(|error| RemoteError::disk(&border, &error))?;
        // Where a repository begins: references may go up to it.
        let mark = border.join(".git");
        File::create(&mark).map_err(|error| RemoteError::disk(&mark, &error))?;
        let files = Arc::new(Files::new());
        let store: Arc<dyn elsewhere::Store> = Arc::clone(&files) as _;
        let mirror = Self {
            _mounted: elsewhere::mount(&root, store),
            _directory: directory,
            root,
            tree,
            web: Arc::new(web),
            files,
            unsettled: false,
        };
        mirror.place_listed()
    }

    fn place_listed(mut self) -> Result<Self, RemoteError> {
        for entry in &self.tree.entries {
            // A size that is not told is asked for if anything depends on it.
            self.place(&entry.path, entry.size.unwrap_or(1))?;
            match entry.size {
                Some(size) => self.files.add_listed(&self.web, entry, size),
                None => self.unsettled = true,
            }
        }
        self.unsettled |= !self.tree.is_listed;
        Ok(self)
    }

    /// Whether sizes are to be asked for.
    pub(super) fn is_unsettled(&self) -> bool {
        self.unsettled
    }

    /// Takes a file as it was found on the server.
    pub(super) fn found(
        &mut self,
        path: &str,
        url: Url,
        far: RangedFile,
    ) -> Result<(), RemoteError> {
        let (size, mark) = (far.size(), far.mark());
        self.place(path, size)?;
        self.files.add(path, far, None);
        if let Some(entry) = self
            .tree
            .entries
            .iter_mut()
            .find(|entry| entry.path == path)
        {
            entry.size = Some(size);
            entry.mark = mark;
            return Ok(());
        }
        self.tree.add(Entry {
            path: path.to_owned(),
            size: Some(size),
            sha256: None,
            mark,
            url,
        })
    }

    /// Takes a file that a listing names and the server does not have.
    pub(super) fn lost(&mut self, path: &str) -> Result<(), RemoteError> {
        let local = self.local(path);
        self.tree.entries.retain(|entry| entry.path != path);
        fs::remove_file(&local).map_err(|error| RemoteError::disk(&local, &error))
    }

    fn place(&self, path: &str, size: u64) -> Result<(), RemoteError> {
        let local = self.local(path);
        if size > MAX_SIZE {
            let reason = format!("`{path}` of {size} bytes, more than any file has");
            return Err(RemoteError::lie(&self.tree.shown, reason));
        }
        let fail = |error: std::io::Error| RemoteError::Listing {
            url: self.tree.shown.clone(),
            reason: format!("`{path}` cannot be a file here: {error}"),
        };
        if let Some(parent) = local.parent() {
            fs::create_dir_all(parent).map_err(fail)?;
        }
        let file = File::create(&local).map_err(fail)?;
        file.set_len(size).map_err(fail)
    }
}
