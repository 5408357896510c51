//! On-disk cache of embedding vectors, keyed by content, so that a model embeds the same content
//! only once.
//!
//! Each model has one file. Its records consist of the key (SHA-256 of the content), the vector
//! (little-endian binary32) and the first eight bytes of the SHA-256 of both. Invariant: a record
//! with a wrong checksum is ignored, and so are all records behind it.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::service::{ContentKind, EncoderFiles};
use pkgtool_base::source::text::hexadecimal;

const MAGIC: &[u8; 8] = b"pkgvec1\n";
const HEADER_BYTES: u64 = 12;
const KEY_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 8;

/// Maximum length of a cached vector, in numbers.
const MAX_VECTOR_LEN: usize = 1 << 16;

/// Location and size limit of the cache.
#[derive(Debug, Clone)]
pub struct CacheDirectory {
    /// The directory.
    pub path: PathBuf,
    /// Maximum total size of all files, in bytes.
    pub bytes: u64,
}

/// Hash of the content that a vector was computed from.
pub(super) type VectorKey = [u8; KEY_BYTES];

/// The cached vectors of one model.
#[derive(Debug)]
pub(super) struct VectorCache {
    file: File,
    width: Option<usize>,
    /// File offset of each key's record.
    places: HashMap<VectorKey, u64>,
    end: u64,
    max_bytes: u64,
}

/// Returns the key of a text or a picture.
pub(super) fn key(content: &str) -> VectorKey {
    Sha256::digest(content.as_bytes()).into()
}

/// Returns the file name for a model. The name depends on the model's files and on how the model is
/// used.
pub(super) fn name(encoder: &EncoderFiles, holds: ContentKind, truncate: bool) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: String| {
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    };
    add(format!("{holds:?} {truncate} {:?}", encoder.component));
    let text = encoder.tokenizer.iter();
    let text = text
        .flat_map(|it| [Some(&it.tokenizer), it.config.as_ref()])
        .flatten();
    let models = [&encoder.model, &encoder.package.path];
    for path in models.into_iter().chain(&encoder.external).chain(text) {
        let found = fs::metadata(path).ok();
        let changed = found.as_ref().and_then(|it| it.modified().ok());
        let size = found.map(|it| it.len());
        add(format!("{} {size:?} {changed:?}", path.display()));
    }
    let sum: [u8; 32] = hash.finalize().into();
    hexadecimal(&sum[..16])
}

impl CacheDirectory {
    /// Opens the file of this name; `None` if another training has it open. The oldest files are
    /// removed if the cache is full.
    pub(super) fn open(&self, name: &str) -> io::Result<Option<VectorCache>> {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().unwrap_or(&self.path))?;
        self.make_room(&path)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false);
        let file = file.open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The modification time orders eviction: the file used last is removed last.
        file.set_modified(SystemTime::now())?;
        VectorCache::read(file, self.bytes).map(Some)
    }

    fn make_room(&self, keep: &Path) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in walkdir::WalkDir::new(&self.path) {
            let entry = entry.map_err(io::Error::from)?;
            let found = entry.metadata().map_err(io::Error::from)?;
            if found.is_file() {
                files.push((found.modified()?, found.len(), entry.into_path()));
            }
        }
        files.sort();
        let mut all: u64 = files.iter().map(|(_, size, _)| size).sum();
        for (_, size, path) in files {
            if all > self.bytes && path != keep {
                fs::remove_file(&path)?;
                all = all.saturating_sub(size);
            }
        }
        Ok(())
    }
}

impl VectorCache {
    fn read(mut file: File, most: u64) -> io::Result<Self> {
        let mut cache = Self {
            width: None,
            places: HashMap::new(),
            end: 0,
            max_bytes: most,
            file: file.try_clone()?,
        };
        file.seek(SeekFrom::Start(0))?;
        let mut reader = BufReader::with_capacity(1 << 20, file);
        let mut header = [0; 12];
        let is_whole = reader.read_exact(&mut header).is_ok() && header.starts_with(MAGIC);
        let width = u32::from_le_bytes(header[8..].try_into().unwrap_or_default()) as usize;
        if !is_whole || width == 0 || width > MAX_VECTOR_LEN {
            cache.file.set_len(0)?;
            return Ok(cache);
        }
        cache.width = Some(width);
        cache.end = HEADER_BYTES;
        let mut record = vec![0; record_size(width)];
        while reader.read_exact(&mut record).is_ok() && has_valid_checksum(&record) {
            let mut key = VectorKey::default();
            key.copy_from_slice(&record[..KEY_BYTES]);
            cache.places.insert(key, cache.end);
            cache.end += record.len() as u64;
        }
        cache.file.set_len(cache.end)?;
        Ok(cache)
    }

    /// Returns the vector of a key, if it is cached.
    pub(super) fn get(&mut self, key: &VectorKey) -> Option<Vec<f32>> {
        let (place, width) = (*self.places.get(key)?, self.width?);
        let mut record = vec![0; record_size(width)];
        self.file.seek(SeekFrom::Start(place)).ok()?;
        self.file.read_exact(&mut record).ok()?;
        if !has_valid_checksum(&record) || record[..KEY_BYTES] != key[..] {
            return None;
        }
        let numbers = record[KEY_BYTES..KEY_BYTES + 4 * width].chunks_exact(4);
        let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap_or_default());
        Some(numbers.map(number).collect())
    }

    /// Appends vectors, as far as there is room.
    pub(super) fn put(&mut self, vectors: &[(VectorKey, Vec<f32>)]) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut places = Vec::new();
        for (key, vector) in vectors {
            let width = *self.width.get_or_insert(vector.len());
            if self.end == 0 && bytes.is_empty() {
                bytes.extend_from_slice(MAGIC);
                bytes.extend_from_slice(&u32::try_from(width).unwrap_or(0).to_le_bytes());
            }
            let place = self.end + bytes.len() as u64;
            let has_room = place + record_size(width) as u64 <= self.max_bytes;
            if vector.len() != width || width > MAX_VECTOR_LEN || !has_room {
                continue;
            }
            let start = bytes.len();
            bytes.extend_from_slice(key);
            bytes.extend(vector.iter().flat_map(|number| number.to_le_bytes()));
            let sum = Sha256::digest(&bytes[start..]);
            bytes.extend_from_slice(&sum[..CHECKSUM_BYTES]);
            places.push((*key, place));
        }
        self.file.seek(SeekFrom::Start(self.end))?;
        self.file.write_all(&bytes)?;
        self.end += bytes.len() as u64;
        self.places.extend(places);
        Ok(())
    }
}

fn record_size(width: usize) -> usize {
    KEY_BYTES + 4 * width + CHECKSUM_BYTES
}

fn has_valid_checksum(record: &[u8]) -> bool {
    let (body, sum) = record.split_at(record.len() - CHECKSUM_BYTES);
    Sha256::digest(body)[..CHECKSUM_BYTES] == *sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(bytes: u64) -> (tempfile::TempDir, CacheDirectory) {
        let held = tempfile::tempdir().expect("a directory");
        let path = held.path().to_owned();
        (held, CacheDirectory { path, bytes })
    }

    fn open(directory: &CacheDirectory, name: &str) -> VectorCache {
        let opened = directory.open(name).expect("it opens");
        opened.expect("nobody else has it")
    }

    #[test]
    fn what_is_kept_is_there_the_third_time() {
        let (_held, directory) = directory(1 << 20);
        let vectors = [(key("a"), vec![1.0, -2.5]), (key("b"), vec![0.0, 4.0])];
        open(&directory, "m").put(&vectors).expect("it is written");
        open(&directory, "m")
            .put(&[(key("c"), vec![3.0, 3.0])])
            .expect("it is written");
        let mut third = open(&directory, "m");
        for (key, vector) in &vectors {
            assert_eq!(third.get(key).as_ref(), Some(vector));
        }
        assert_eq!(third.get(&key("c")), Some(vec![3.0, 3.0]));
        assert_eq!(third.get(&key("d")), None);
        let again = directory.open("m").expect("it opens");
        assert!(again.is_none(), "one at a time");
    }

    #[test]
    fn what_is_torn_or_altered_is_not_there() {
        let (held, directory) = directory(1 << 20);
        let vectors: Vec<_> = (0_u8..5)
            .map(|it| (key(&it.to_string()), vec![f32::from(it)]))
            .collect();
        open(&directory, "m").put(&vectors).expect("it is written");
        let path = held.path().join("m");
        let whole = fs::read(&path).expect("it is there");
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).expect("it is written");
            let mut cache = open(&directory, "m");
            let kept = cut.saturating_sub(12) / record_size(1);
            for (place, (key, vector)) in vectors.iter().enumerate() {
                let expected = (place < kept && cut >= 12).then_some(vector);
                assert_eq!(cache.get(key).as_ref(), expected);
            }
            cache.put(&vectors).expect("it is written");
            drop(cache);
            let after = open(&directory, "m").get(&vectors[4].0);
            assert_eq!(after, Some(vec![4.0]));
        }
        let mut altered = whole;
        altered[60] ^= 1;
        fs::write(&path, &altered).expect("it is written");
        let mut cache = open(&directory, "m");
        assert!(
            vectors
                .iter()
                .filter(|(key, _)| cache.get(key).is_some())
                .count()
                < 2
        );
    }

    #[test]
    fn older_files_go_first() {
        let (held, directory) = directory(200);
        for name in ["one", "two", "three", "four"] {
            open(&directory, name)
                .put(&[(key("a"), vec![0.5; 10])])
                .expect("it is written");
        }
        assert!(!held.path().join("one").exists());
        assert!(held.path().join("four").exists());
        let mut full = open(&directory, "full");
        let many: Vec<_> = (0..9)
            .map(|it| (key(&it.to_string()), vec![0.5; 10]))
            .collect();
        full.put(&many).expect("it is written");
        assert!(
            fs::metadata(held.path().join("full"))
                .expect("it is there")
                .len()
                <= 200
        );
    }
}
