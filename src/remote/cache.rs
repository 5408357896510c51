//! Copies of sources that outlive the process: made, renewed, and served from while no server is there.
//!
//! A copy has a folder of its own, named after its source: two sides `a` and `b`, and `source.json`, which
//! says which of them is whole. What is new is fetched into the other one; then the record changes, then the
//! old side goes. So a copy is never half new, whenever a process ends.
//! Invariant: only sides that the record calls whole are given away; nothing outside the cache's folder is
//! written or removed. Whoever holds a cache has a lock of its folder.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::pull::{self, Progress, Source, Wish};
use super::{Address, RemoteError, Settings, record};

/// The record in a copy's folder.
const RECORD: &str = "source.json";
/// How long a copy is kept that nobody asks for.
const KEPT: Duration = Duration::from_hours(30 * 24);
/// How often it is fetched anew if it changes while it is fetched.
const ROUNDS: u32 = 3;
/// Longest part of a folder's name that is taken from the source's, in bytes.
const MAX_NAME: usize = 60;

/// Copies of sources below a folder.
pub struct Cache {
    folder: PathBuf,
    settings: Settings,
    wish: Wish,
    /// What was asked for, by the names of folders.
    asked: BTreeMap<String, Kept>,
}

/// A copy that is whole.
#[derive(Debug, Clone)]
pub struct Kept {
    /// Where it is.
    pub directory: PathBuf,
    /// Variants that are not wanted and not there: the config's path in the directory, places in `variants`.
    pub left_out: Vec<(PathBuf, Vec<usize>)>,
    /// How it stands to its source.
    pub state: State,
}

/// How a copy stands to its source.
#[derive(Debug, Clone)]
pub enum State {
    /// It was fetched now.
    Fetched {
        /// Files that were fetched.
        files: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// It is what the source is.
    Same,
    /// It is what the source was: what it is cannot be had, for this reason.
    Earlier(RemoteError),
}

/// What is known of a copy.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    /// Its source, as it is shown.
    source: String,
    /// What it has in common with other revisions of the source.
    family: String,
    /// What of the source was wanted.
    backends: Vec<String>,
    precisions: Vec<String>,
    /// The side that is whole.
    whole: Option<Side>,
    left_out: Vec<(PathBuf, Vec<usize>)>,
    /// When it was asked for last, in seconds since 1970.
    asked: u64,
}

/// One of the two directories of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Side {
    A,
    B,
}

impl Cache {
    /// The copies below a folder, which is made when it is needed.
    pub fn new(folder: PathBuf, settings: Settings, wish: Wish) -> Self {
        Self {
            folder,
            settings,
            // What is to be there is decided by the source alone.
            wish: Wish {
                force: true,
                ..wish.sorted()
            },
            asked: BTreeMap::new(),
        }
    }

    /// Where the copy of a source is, or will be.
    pub fn place(&self, address: &Address) -> PathBuf {
        self.folder.join(self.name(address))
    }

    /// The whole copy of a source: as the source is now, or as it was if that cannot be told. An error if
    /// there is none; what was begun is gone on with next time.
    pub fn renew(
        &mut self,
        address: &Address,
        now: SystemTime,
        progress: Progress<'_>,
    ) -> Result<Kept, RemoteError> {
        let name = self.name(address);
        if let Some(kept) = self.asked.get(&name) {
            return Ok(kept.clone());
        }
        let place = self.folder.join(&name);
        fs::create_dir_all(&place).map_err(|error| RemoteError::disk(&place, &error))?;
        let mut record = self.record(address, &place);
        record.asked = seconds(now);
        // Before the first byte: whatever is here has a name and an end.
        record.write(&place)?;
        let state = match self.update(address, &place, &mut record, progress) {
            Ok(state) => state,
            Err(error) if self.is_served_by(&record, &place, &error)? => State::Earlier(error),
            Err(error) => return Err(error),
        };
        let kept = Kept {
            directory: place.join(record.whole.unwrap_or(Side::A).name()),
            left_out: record.left_out,
            state,
        };
        self.asked.insert(name, kept.clone());
        Ok(kept)
    }

    /// Removes copies of other revisions of the sources that were asked for, and what nobody has asked for
    /// in thirty days; gives the sources whose copies went.
    pub fn sweep(&self, now: SystemTime) -> Result<Vec<String>, RemoteError> {
        let fail = |error: io::Error| RemoteError::disk(&self.folder, &error);
        let (mut others, mut families, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.folder).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let is_folder = entry.file_type().map_err(fail)?.is_dir();
            // What has no record was not made here.
            let record: Option<Record> = record::read(&entry.path().join(RECORD));
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
            if families.contains(&record.family) || age > KEPT.as_secs() {
                remove(&path)?;
                removed.push(record.source);
            }
        }
        Ok(removed)
    }

    /// Fetches what is new, if anything is.
    fn update(
        &self,
        address: &Address,
        place: &Path,
        record: &mut Record,
        progress: Progress<'_>,
    ) -> Result<State, RemoteError> {
        let whole = record.whole.map(|side| place.join(side.name()));
        let other = record.whole.map_or(Side::A, Side::other);
        let directory = place.join(other.name());
        let mut source = Source::open(address, &self.settings, &self.wish)?;
        if let Some(whole) = &whole
            && source.is_in(whole)?
        {
            self.take_down(record, &source);
            record.write(place)?;
            remove(&directory)?;
            return Ok(State::Same);
        }
        let (mut files, mut bytes) = (0, 0);
        for _ in 0..ROUNDS {
            let pulled = source.renew(whole.as_deref(), &directory, &self.wish, progress)?;
            files += pulled.fetched;
            bytes += pulled.bytes;
            // What came is of one moment if the source is the same after it as before.
            source = Source::open(address, &self.settings, &self.wish)?;
            if !source.is_in(&directory)? {
                continue;
            }
            self.take_down(record, &source);
            record.whole = Some(other);
            record.write(place)?;
            if let Some(old) = whole {
                remove(&old)?;
            }
            return Ok(State::Fetched { files, bytes });
        }
        Err(RemoteError::Changed {
            url: address.shown(),
        })
    }

    /// Whether the copy is to be served although it could not be renewed: it is whole, of the same wish, and
    /// what failed is nothing that the user can put right here.
    fn is_served_by(
        &self,
        record: &Record,
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

    fn record(&self, address: &Address, place: &Path) -> Record {
        record::read(&place.join(RECORD)).unwrap_or_else(|| Record {
            source: address.shown(),
            family: family(address, &self.settings),
            backends: Vec::new(),
            precisions: Vec::new(),
            whole: None,
            left_out: Vec::new(),
            asked: 0,
        })
    }

    fn take_down(&self, record: &mut Record, source: &Source) {
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

    /// The name of a source's folder: what a reader knows it by, and what tells it from all others.
    fn name(&self, address: &Address) -> String {
        let shown = address.shown();
        let rest = shown.split_once("://").map_or(&*shown, |(_, rest)| rest);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let plain: String = rest
            .chars()
            .map(|c| if is_plain(c) { c } else { '-' })
            .take(MAX_NAME)
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

impl Record {
    fn write(&self, place: &Path) -> Result<(), RemoteError> {
        let path = place.join(RECORD);
        record::write(&path, self).map_err(|error| RemoteError::disk(&path, &error))?;
        // Before anything is removed that it no longer names. Not every system lets a folder be opened.
        let _ = File::open(place).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

impl Side {
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

/// What revisions of one source have in common. It may hold a query, which may be a secret: only its digest.
fn family(address: &Address, settings: &Settings) -> String {
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
