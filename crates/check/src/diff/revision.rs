//! Writes a Git revision to a private directory as a tree: the configs and the files that they
//! reference.
//!
//! Invariant: the size of everything that is written is checked first. Of all other files only the
//! size is recorded.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{ComparedTree, Reading};
use pkgtool_base::git::{self, GitBlobs, GitEntry, GitListing, Repository};
use pkgtool_base::package::reference::{normalize, resolve};
use pkgtool_base::package::{Config, LoadedFile, config, load, model_file, precision, roots};
use pkgtool_base::source::lfs;

/// Maximum number of configs in one revision.
const MAX_CONFIGS: usize = 20_000;
/// Maximum size of a file that is written, in bytes.
const MAX_FILE_BYTES: u64 = 8 * 1024 * 1024 * 1024;
/// Maximum number of bytes written for one revision.
const MAX_TOTAL_BYTES: u64 = 32 * 1024 * 1024 * 1024;
/// Maximum size of a file other than a model that is written, in bytes; enough for a tokenizer.
const MAX_OTHER_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// Maximum length of a link's target, in bytes.
const MAX_TARGET_BYTES: u64 = 4096;

/// The tree of a revision; its directory is deleted on drop.
#[derive(Debug)]
pub struct WrittenTree {
    /// The tree to read.
    pub tree: ComparedTree,
    _directory: tempfile::TempDir,
}

/// The reason why a revision could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RevisionError {
    /// A Git command failed.
    #[error("{0}")]
    Git(#[from] git::GitError),
    /// The path does not exist in the revision.
    #[error("revision `{revision}` has neither a file nor a directory `{path}`")]
    NoPath {
        /// The revision.
        revision: String,
        /// The path relative to the root of the repository.
        path: String,
    },
    /// The revision exceeds the limit on configs.
    #[error("revision `{0}` holds more than {MAX_CONFIGS} configs; name a directory: `REV:DIR`")]
    TooMany(String),
    /// The private directory cannot be written to.
    #[error("cannot write to {path}: {error}", path = path.display())]
    Io {
        /// The directory.
        path: PathBuf,
        /// The I/O error.
        error: io::Error,
    },
}

/// Writes the configs at `path`, relative to the root of the repository, in `revision`, and the
/// files that they reference.
pub fn write_revision(
    repository: &Repository,
    revision: &str,
    path: &Path,
    reading: Reading,
) -> Result<WrittenTree, RevisionError> {
    let commit = repository.commit(revision)?;
    let listing = repository.tree(&commit)?;
    let path = normalize(path);
    let is_file = listing.get(&path).is_some();
    if !is_file && !listing.has_directory(&path) {
        return Err(RevisionError::NoPath {
            revision: revision.to_owned(),
            path: path.display().to_string(),
        });
    }
    let failed = |error| RevisionError::Io {
        path: std::env::temp_dir(),
        error,
    };
    let directory = tempfile::Builder::new()
        .prefix("pkgtool-")
        .tempdir()
        .map_err(failed)?;
    // Links in the directory's own path would make file paths and resolved references differ.
    let root = directory.path().canonicalize().map_err(failed)?;
    let mut writer = RevisionWriter {
        listing: &listing,
        blobs: repository.blobs()?,
        root: &root,
        written: 0,
        unread: BTreeMap::new(),
        reading,
    };
    let named: Vec<&Path> = if is_file {
        vec![&path]
    } else {
        let below = listing.below(&path).map(|(path, _)| path);
        below.filter(|path| is_named(path)).collect()
    };
    if named.len() > MAX_CONFIGS {
        return Err(RevisionError::TooMany(revision.to_owned()));
    }
    fs::create_dir_all(root.join(&path).parent().unwrap_or(&root)).map_err(failed)?;
    if !is_file {
        fs::create_dir_all(root.join(&path)).map_err(failed)?;
    }
    for config in named {
        writer.config(config)?;
    }
    Ok(WrittenTree {
        tree: ComparedTree {
            target: root.join(&path),
            border: Some(root.clone()),
            unread: writer.unread,
        },
        _directory: directory,
    })
}

fn is_named(path: &Path) -> bool {
    let name = path.file_name();
    name.is_some_and(|name| name == config::FILE_NAME || name == precision::FILE_NAME)
}

/// Writes files of one commit.
struct RevisionWriter<'a> {
    listing: &'a GitListing,
    blobs: GitBlobs,
    root: &'a Path,
    /// Number of bytes written so far.
    written: u64,
    unread: BTreeMap<PathBuf, u64>,
    reading: Reading,
}

impl RevisionWriter<'_> {
    /// Writes a config, or another explicitly given file, and the files that it references.
    fn config(&mut self, path: &Path) -> Result<(), RevisionError> {
        let Some(entry) = self.followed(path)? else {
            return Ok(());
        };
        // A file of one byte above the limit is later reported as too large.
        if entry.size > load::MAX_SIZE {
            return self.write_placeholder(path, load::MAX_SIZE + 1);
        }
        self.copy(path, &entry)?;
        let loaded = LoadedFile::read(&self.root.join(path));
        let Ok(document) = &loaded.document else {
            return Ok(());
        };
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        let depth = roots::depth_below(&directory, Path::new(""));
        for file in Config::from_document(document).files() {
            if let Ok(path) = resolve(&directory, depth, &file.reference) {
                self.referenced(&path)?;
            }
        }
        Ok(())
    }

    fn referenced(&mut self, path: &Path) -> Result<(), RevisionError> {
        if self.root.join(path).exists() {
            return Ok(());
        }
        if self.listing.get(path).is_none() && self.listing.has_directory(path) {
            let below: Vec<PathBuf> = self
                .listing
                .below(path)
                .map(|(path, _)| path.to_owned())
                .collect();
            return below.iter().try_for_each(|path| self.wanted(path, true));
        }
        let is_model = path.to_str().is_some_and(model_file::has_extension);
        self.wanted(path, is_model)
    }

    /// Writes a file, or records its size if its content is not needed.
    fn wanted(&mut self, path: &Path, is_model: bool) -> Result<(), RevisionError> {
        let Some(entry) = self.followed(path)? else {
            return Ok(());
        };
        let limit = match is_model {
            true if self.reading.open_models => MAX_FILE_BYTES,
            true => lfs::MAX_POINTER_SIZE,
            false => MAX_OTHER_FILE_BYTES,
        };
        if entry.size > limit || self.written + entry.size > MAX_TOTAL_BYTES {
            self.unread.insert(self.root.join(path), entry.size);
            return Ok(());
        }
        self.copy(path, &entry)
    }

    /// Returns the file that a path leads to, following links.
    fn followed(&mut self, path: &Path) -> Result<Option<GitEntry>, RevisionError> {
        let blobs = &mut self.blobs;
        let target = |entry: &GitEntry| -> Result<String, git::GitError> {
            let bytes = blobs
                .bytes(&entry.id, MAX_TARGET_BYTES)?
                .unwrap_or_default();
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        Ok(self.listing.file(path, target)?.cloned())
    }

    fn copy(&mut self, path: &Path, entry: &GitEntry) -> Result<(), RevisionError> {
        let mut file = BufWriter::new(self.create(path)?);
        self.written += self.blobs.copy(&entry.id, &mut file)?;
        file.flush().map_err(|error| self.failed(error))
    }

    /// Creates a file of this size that contains only zeros.
    fn write_placeholder(&mut self, path: &Path, size: u64) -> Result<(), RevisionError> {
        let file = self.create(path)?;
        file.set_len(size).map_err(|error| self.failed(error))
    }

    fn create(&self, path: &Path) -> Result<File, RevisionError> {
        let path = self.root.join(path);
        let parent = path.parent().unwrap_or(self.root);
        fs::create_dir_all(parent)
            .and_then(|()| File::create(&path))
            .map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> RevisionError {
        RevisionError::Io {
            path: self.root.to_owned(),
            error,
        }
    }
}
