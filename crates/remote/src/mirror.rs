//! A source as a local directory: names and sizes are on disk, and content is fetched when it is
//! read.
//!
//! Invariant: the directory belongs to this process and is removed with the mirror. Its files are
//! sparse and take no disk space, whatever sizes a server claims. Nothing outside the directory is
//! written.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::Url;
use tempfile::TempDir;

use super::address::{Address, endpoint};
use super::listing::{SourceFile, SourceTree};
use super::ranged::RangedFile;
use super::store::MirrorStore;
use super::web::{HttpClient, Traffic};
use super::{RemoteError, RemoteSettings, crawl, hub};
use pkgtool_base::source::elsewhere::{self, MountedStore};

/// Maximum size of a file in a mirror, in bytes: larger than any model, and supported by every file
/// system.
const MAX_FILE_BYTES: u64 = 1 << 42;

/// A source as a directory, which is removed on drop.
pub struct Mirror {
    // Fields are dropped in this order: unmount before removing the directory.
    _mounted: MountedStore,
    _directory: TempDir,
    root: PathBuf,
    tree: SourceTree,
    web: Arc<HttpClient>,
    files: Arc<MirrorStore>,
    has_unknown: bool,
}

impl Mirror {
    /// Returns the local path of the directory or file that the user named.
    pub fn path(&self) -> PathBuf {
        self.local(&self.tree.start)
    }

    /// Replaces paths in this mirror by addresses in a text.
    pub fn shown(&self, text: &str) -> String {
        let root = self.root.to_string_lossy();
        text.replace(&*root, &self.tree.shown)
    }

    /// Returns whether the server lists all files. If not, files that no config names may exist as
    /// well.
    pub fn is_listed(&self) -> bool {
        self.tree.is_listed
    }

    /// Returns the traffic so far.
    pub fn traffic(&self) -> Traffic {
        self.web.traffic()
    }

    /// Returns the first error of fetching content. Findings about the files are unreliable then.
    pub fn fault(&self) -> Option<RemoteError> {
        self.web.fault()
    }

    pub(super) fn web(&self) -> &Arc<HttpClient> {
        &self.web
    }

    pub(super) fn tree(&self) -> &SourceTree {
        &self.tree
    }

    /// Returns the local path of a file of the source.
    pub(super) fn local(&self, path: &str) -> PathBuf {
        if path.is_empty() {
            self.root.clone()
        } else {
            self.root.join(path)
        }
    }

    /// Returns the path in the source of a local path.
    pub(super) fn below(&self, path: &Path) -> Option<String> {
        let below = path.strip_prefix(&self.root).ok()?;
        let parts: Option<Vec<&str>> = below.iter().map(|part| part.to_str()).collect();
        Some(parts?.join("/"))
    }

    pub(super) fn of(address: &Address, settings: &RemoteSettings) -> Result<Self, RemoteError> {
        let (web, tree) = match address {
            Address::Hub(address) => {
                let endpoint = endpoint(&settings.hub_endpoint)?;
                let web = HttpClient::new(settings, &endpoint)?;
                let tree = hub::list(&web, &endpoint, address)?;
                (web, tree)
            }
            Address::Web(url) => {
                let web = HttpClient::new(settings, url)?;
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
        // Mark the root of the repository, which references must not leave.
        let mark = border.join(".git");
        File::create(&mark).map_err(|error| RemoteError::disk(&mark, &error))?;
        let files = Arc::new(MirrorStore::new());
        let store: Arc<dyn elsewhere::RemoteStore> = Arc::clone(&files) as _;
        let mirror = Self {
            _mounted: elsewhere::mount(&root, store),
            _directory: directory,
            root,
            tree,
            web: Arc::new(web),
            files,
            has_unknown: false,
        };
        mirror.place_listed()
    }

    fn place_listed(mut self) -> Result<Self, RemoteError> {
        for entry in &self.tree.entries {
            // An unknown size is requested later if it is needed.
            self.place(&entry.path, entry.size.unwrap_or(1))?;
            match entry.size {
                Some(size) => self.files.add_listed(&self.web, entry, size),
                None => self.has_unknown = true,
            }
        }
        self.has_unknown |= !self.tree.is_listed;
        Ok(self)
    }

    /// Returns whether some sizes are unknown.
    pub(super) fn has_unknown_sizes(&self) -> bool {
        self.has_unknown
    }

    /// Adds a file that was found on the server.
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
            entry.version_marker = mark;
            return Ok(());
        }
        self.tree.add(SourceFile {
            path: path.to_owned(),
            size: Some(size),
            sha256: None,
            version_marker: mark,
            url,
        })
    }

    /// Removes a file that a listing names but the server lacks.
    pub(super) fn remove_missing(&mut self, path: &str) -> Result<(), RemoteError> {
        let local = self.local(path);
        self.tree.entries.retain(|entry| entry.path != path);
        fs::remove_file(&local).map_err(|error| RemoteError::disk(&local, &error))
    }

    fn place(&self, path: &str, size: u64) -> Result<(), RemoteError> {
        let local = self.local(path);
        if size > MAX_FILE_BYTES {
            let reason = format!("implausible size of `{path}`: {size} bytes");
            return Err(RemoteError::lie(&self.tree.shown, reason));
        }
        let fail = |error: std::io::Error| RemoteError::Listing {
            url: self.tree.shown.clone(),
            reason: format!("cannot create the file `{path}`: {error}"),
        };
        if let Some(parent) = local.parent() {
            fs::create_dir_all(parent).map_err(fail)?;
        }
        let file = File::create(&local).map_err(fail)?;
        file.set_len(size).map_err(fail)
    }
}
