//! The record of the bucket in a data directory: commands find the objects by it, and a server does
//! not start with another place than its tasks need.
//!
//! Invariant: a data directory with a record has no blobs in files, and its blobs are in the
//! recorded bucket.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::database::{DatabaseError, DatabaseResult, FileStats};
use crate::objects::ObjectsUrl;

/// Name of the record in the data directory.
pub(super) const BUCKET_RECORD: &str = "objects.url";

/// Directory of the blobs in the data directory.
pub(super) const BLOBS_DIRECTORY: &str = "blobs";

/// The record of a data directory.
#[derive(Debug)]
pub struct BucketRecord {
    file: PathBuf,
    blobs: PathBuf,
}

impl BucketRecord {
    /// Returns the record of a data directory.
    pub fn of(data: &Path) -> Self {
        Self {
            file: data.join(BUCKET_RECORD),
            blobs: data.join(BLOBS_DIRECTORY),
        }
    }

    /// Reads the address of the bucket; `None` if blobs are files.
    pub fn read(&self) -> DatabaseResult<Option<ObjectsUrl>> {
        let text = match fs::read_to_string(&self.file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Self::fault(&self.file, error.to_string())),
        };
        let url = text.trim().parse();
        let url = url.map_err(|error| Self::fault(&self.file, format!("{error}")))?;
        Ok(Some(url))
    }

    /// Checks that the blobs of this data directory are at this place.
    pub fn check(&self, wanted: Option<&ObjectsUrl>) -> DatabaseResult<()> {
        let recorded = self.read()?;
        match (&recorded, wanted) {
            (Some(recorded), wanted) if Some(recorded) != wanted => {
                let wanted = wanted.map_or_else(|| "local files".to_owned(), ToString::to_string);
                let reason = format!(
                    "the objects of this data directory are in {recorded}, not in {wanted}; serve with --objects \
                     {recorded}, or copy all objects to another bucket and write its address to this file"
                );
                Err(Self::fault(&self.file, reason))
            }
            (None, Some(wanted)) => {
                let found = FileStats::below(&self.blobs).count;
                if found == 0 {
                    return Ok(());
                }
                let reason = format!(
                    "expected no stored files before the first use of {wanted}, found {found}; use a new data \
                     directory, or serve without --objects"
                );
                Err(Self::fault(&self.blobs, reason))
            }
            _ => Ok(()),
        }
    }

    /// Records the bucket.
    pub fn write(&self, url: &ObjectsUrl) -> DatabaseResult<()> {
        let temporary = self.file.with_extension("url.new");
        let written = fs::write(&temporary, format!("{url}\n"));
        let written = written.and_then(|()| fs::rename(&temporary, &self.file));
        written.map_err(|error| Self::fault(&self.file, error.to_string()))
    }

    fn fault(path: &Path, reason: String) -> DatabaseError {
        DatabaseError::Other {
            path: path.display().to_string(),
            reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_directory_keeps_its_bucket() {
        let data = tempfile::tempdir().expect("a directory");
        let record = BucketRecord::of(data.path());
        let [one, other] = ["s3://one/a", "s3://other"].map(|url| url.parse().expect("it is one"));
        record.check(None).expect("nothing is recorded");
        record.check(Some(&one)).expect("nothing is stored");
        record.write(&one).expect("it is written");
        assert_eq!(record.read().expect("it is there").as_ref(), Some(&one));
        record.check(Some(&one)).expect("it is the same");
        for wrong in [None, Some(&other)] {
            let error = record.check(wrong).expect_err("it differs").to_string();
            assert!(error.contains("--objects s3://one/a"), "{error}");
        }
        fs::write(data.path().join(BUCKET_RECORD), "").expect("it is ours");
        record.read().expect_err("it is empty");
    }

    #[test]
    fn stored_files_are_not_left_behind() {
        let data = tempfile::tempdir().expect("a directory");
        let shard = data.path().join(BLOBS_DIRECTORY).join("body/00");
        fs::create_dir_all(&shard).expect("a directory");
        let record = BucketRecord::of(data.path());
        let url = "s3://bucket".parse().expect("it is one");
        record.check(Some(&url)).expect("no file is stored");
        fs::write(shard.join("x"), "body").expect("a file");
        let error = record.check(Some(&url)).expect_err("a file is stored");
        assert!(error.to_string().contains("found 1"), "{error}");
        record.check(None).expect("files stay files");
    }
}
