//! A cache of packages from servers that persists between runs, for `pkgtool serve`. Its copies are
//! updated at each start, and served if their server is unreachable.
//!
//! Each copy has a folder named after its source. The folder contains two directories, `a` and `b`,
//! and the record `source.json`, which names the complete one. An update is downloaded to the other
//! directory. Then the record is replaced, and then the old directory is deleted. A copy is
//! therefore never partly updated, even if the process crashes.
//!
//! Invariant: only complete directories are returned, and nothing outside the cache's folder is
//! written or removed. The caller must hold a lock of the folder.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::pull::{self, PullOptions, PullProgress, Source};
use super::{Address, RemoteError, RemoteSettings, record};

/// Name of the record in a copy's folder.
const RECORD_FILE: &str = "source.json";
/// Time after which an unused copy is removed.
const UNUSED_COPY_TTL: Duration = Duration::from_hours(30 * 24);
/// Maximum number of downloads if the source keeps changing meanwhile.
const MAX_ROUNDS: u32 = 3;
/// Maximum length of the source's name in a folder's name, in bytes.
const MAX_NAME_BYTES: usize = 60;

/// Copies of sources below a folder.
pub struct Cache {
    folder: PathBuf,
    settings: RemoteSettings,
    wish: PullOptions,
    /// The copies that were requested in this run, by folder name.
    asked: BTreeMap<String, CachedCopy>,
}

/// A complete copy.
#[derive(Debug, Clone)]
pub struct CachedCopy {
    /// Directory of the copy.
    pub directory: PathBuf,
    /// Variants that were filtered out: the config's path in the directory, and the indices in
    /// `variants`.
    pub left_out: Vec<(PathBuf, Vec<usize>)>,
    /// State of the copy relative to its source.
    pub state: CopyState,
}

/// The state of a copy relative to its source.
#[derive(Debug, Clone)]
pub enum CopyState {
    /// Downloaded just now.
    Fetched {
        /// Number of downloaded files.
        files: usize,
        /// Size of the downloaded files, in bytes.
        bytes: u64,
    },
    /// Identical to the source.
    Same,
    /// Possibly outdated, because the source could not be read for this reason.
    Earlier(RemoteError),
}

/// The record of a copy on disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct CopyRecord {
    /// Address of the source for display.
    source: String,
    /// Digest that all revisions of the source share.
    family: String,
    /// The filters of the download.
    backends: Vec<String>,
    precisions: Vec<String>,
    /// The complete directory.
    whole: Option<CopySide>,
    left_out: Vec<(PathBuf, Vec<usize>)>,
    /// Time of the last request, in seconds since 1970.
    asked: u64,
}

/// One of the two directories of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CopySide {
    A,
    B,
}

impl Cache {
    /// Creates a cache in a folder, which is created when it is needed.
    pub fn new(folder: PathBuf, settings: RemoteSettings, wish: PullOptions) -> Self {
        Self {
            folder,
            settings,
            // The source alone determines the content of a copy.
            wish: PullOptions {
                force: true,
                ..wish.sorted()
            },
            asked: BTreeMap::new(),
        }
    }

    /// Returns the folder of a source's copy.
    pub fn place(&self, address: &Address) -> PathBuf {
        self.folder.join(self.name(address))
    }

    /// Updates the copy of a source and returns it. If the source cannot be read, returns the
    /// existing copy. Fails without a complete copy; the next call resumes the download.
    pub fn renew(
        &mut self,
        address: &Address,
        now: SystemTime,
        progress: PullProgress<'_>,
    ) -> Result<CachedCopy, RemoteError> {
        let name = self.name(address);
        if let Some(kept) = self.asked.get(&name) {
            return Ok(kept.clone());
        }
        let place = self.folder.join(&name);
        fs::create_dir_all(&place).map_err(|error| RemoteError::disk(&place, &error))?;
        let mut record = self.record(address, &place);
        record.asked = seconds(now);
        // The record is written before the first file, so that the folder can be identified and
        // expires.
        record.write(&place)?;
        let state = match self.update(address, &place, &mut record, progress) {
            Ok(state) => state,
            Err(error) if self.is_served_by(&record, &place, &error)? => CopyState::Earlier(error),
            Err(error) => return Err(error),
        };
        let kept = CachedCopy {
            directory: place.join(record.whole.unwrap_or(CopySide::A).name()),
            left_out: record.left_out,
            state,
        };
        self.asked.insert(name, kept.clone());
        Ok(kept)
    }

    /// Removes copies of other revisions of the requested sources, and copies that were not
    /// requested for thirty days. Returns the sources of the removed copies.
    pub fn sweep(&self, now: SystemTime) -> Result<Vec<String>, RemoteError> {
        let fail = |error: io::Error| RemoteError::disk(&self.folder, &error);
        let (mut others, mut families, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let is_folder = entry.file_type().map_err(fail)?.is_dir();
            // A folder without a record does not belong to the cache.
            let record: Option<CopyRecord> = record::read(&entry.path().join(RECORD_FILE));
            let Some(record) = record.filter(|_| is_folder) else {
                continue;
            };
            let name = entry.file_name();
            if name
                .to_str()
                .is_some_and(|name| self.asked.contains_key(name))
            {
                families.push(record.family);
            } else {
                others.push((entry.path(), record));
            }
        }
        for (path, record) in others {
            let age = seconds(now).saturating_sub(record.asked);
            if families.contains(&record.family) || age > UNUSED_COPY_TTL.as_secs() {
                remove(&path)?;
                removed.push(record.source);
            }
        }
        Ok(removed)
    }

    /// Downloads the source if it has changed.
    fn update(
        &self,
        address: &Address,
        place: &Path,
        record: &mut CopyRecord,
        progress: PullProgress<'_>,
    ) -> Result<CopyState, RemoteError> {
        let whole = record.whole.map(|side| place.join(side.name()));
        let other = record.whole.map_or(CopySide::A, CopySide::other);
        let directory = place.join(other.name());
        let mut source = Source::open(address, &self.settings, &self.wish)?;
        if let Some(whole) = &whole
            && source.is_in(whole)?
        {
            self.update_record(record, &source);
            record.write(place)?;
            remove(&directory)?;
            return Ok(CopyState::Same);
        }
        let (mut files, mut bytes) = (0, 0);
        for _ in 0..MAX_ROUNDS {
            let pulled = source.renew(whole.as_deref(), &directory, &self.wish, progress)?;
            files += pulled.fetched;
            bytes += pulled.bytes;
            // The copy is consistent if the source is the same before and after the download.
            source = Source::open(address, &self.settings, &self.wish)?;
            if !source.is_in(&directory)? {
                continue;
            }
            self.update_record(record, &source);
            record.whole = Some(other);
            record.write(place)?;
            if let Some(old) = whole {
                remove(&old)?;
            }
            return Ok(CopyState::Fetched { files, bytes });
        }
        Err(RemoteError::Changed {
            url: address.shown(),
        })
    }

    /// Returns whether the copy can be served although updating it failed: it is complete, has the
    /// same filters, and the user cannot fix the error here.
    fn is_served_by(
        &self,
        record: &CopyRecord,
        place: &Path,
        error: &RemoteError,
    ) -> Result<bool, RemoteError> {
        let is_own = matches!(
            error,
            RemoteError::Address { .. } | RemoteError::Setting(_) | RemoteError::Busy(_)
        );
        let same = record.backends == self.backends() && record.precisions == self.wish.precisions;
        match record.whole {
            Some(side) if same && !is_own => pull::is_whole(&place.join(side.name())),
            _ => Ok(false),
        }
    }

    fn record(&self, address: &Address, place: &Path) -> CopyRecord {
        record::read(&place.join(RECORD_FILE)).unwrap_or_else(|| CopyRecord {
            source: address.shown(),
            family: family(address, &self.settings),
            backends: Vec::new(),
            precisions: Vec::new(),
            whole: None,
            left_out: Vec::new(),
            asked: 0,
        })
    }

    fn update_record(&self, record: &mut CopyRecord, source: &Source) {
        record.backends = self.backends();
        record.precisions.clone_from(&self.wish.precisions);
        let left_out = source.left_out().iter();
        record.left_out = left_out
            .map(|(config, places)| (PathBuf::from(config), places.clone()))
            .collect();
    }

    fn backends(&self) -> Vec<String> {
        let backends = self.wish.backends.iter();
        backends.map(|backend| backend.name().to_owned()).collect()
    }

    /// Returns the name of a source's folder: a readable part, and a digest that makes it unique.
    fn name(&self, address: &Address) -> String {
        let shown = address.shown();
        let rest = shown.split_once("://").map_or(&*shown, |(_, rest)| rest);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let plain: String = rest
            .chars()
            .map(|c| if is_plain(c) { c } else { '-' })
            .take(MAX_NAME_BYTES)
            .collect();
        let revision = match address {
            Address::Hub(hub) => hub.revision.as_str(),
            Address::Web(_) => "",
        };
        let family = family(address, &self.settings);
        let digest = digest(&format!("{family} {revision}"));
        format!("{}-{digest}", plain.trim_matches(['-', '.']))
    }
}

impl CopyRecord {
    fn write(&self, place: &Path) -> Result<(), RemoteError> {
        let path = place.join(RECORD_FILE);
        record::write(&path, self).map_err(|error| RemoteError::disk(&path, &error))?;
        // Flush the record before removing files that it no longer names. Some systems do not allow
        // opening a folder.
        let _ = File::open(place).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

impl CopySide {
    fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// Returns a digest that all revisions of a source share. The address may contain a query, which
/// may be a secret, so only its digest is stored.
fn family(address: &Address, settings: &RemoteSettings) -> String {
    digest(&match address {
        Address::Web(url) => url.to_string(),
        Address::Hub(hub) => {
            let hub_at = settings.hub_endpoint.trim().trim_end_matches('/');
            format!("{hub_at} {} {}", hub.repository, hub.path)
        }
    })
}

fn digest(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    let first = hash.first_chunk().copied();
    format!("{:016x}", first.map_or(0, u64::from_be_bytes))
}

fn remove(directory: &Path) -> Result<(), RemoteError> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(RemoteError::disk(directory, &error))
        }
        _ => Ok(()),
    }
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
