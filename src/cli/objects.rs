//! Opens the blobs of a data directory: its files, or the objects of its bucket.

use std::path::Path;

use super::exit::Failure;
use pkgtool_serve::gateway::settings::ObjectsSettings;
use pkgtool_serve::task::{Blobs, BucketRecord, ObjectStorage, ObjectsError, ObjectsUrl};

/// Opens the blobs of a server, and records their bucket in the data directory.
pub(super) async fn open_for_server(
    data: &Path,
    settings: &ObjectsSettings,
) -> Result<Blobs, Failure> {
    let record = BucketRecord::of(data);
    let url = settings.url.0.as_ref();
    record.check(url)?;
    let Some(url) = url else {
        return Ok(Blobs::open(&data.join("blobs"))?);
    };
    let blobs = open_bucket(url, settings.allow_public).await?;
    record.write(url)?;
    if settings.allow_public {
        tracing::warn!(objects = %url, "`objects.allow_public` is set: the public may read all bodies and results");
    }
    Ok(blobs)
}

/// Opens the blobs of a data directory for a command; the bucket is the given one, or the recorded
/// one.
pub(super) async fn open_for_command(
    data: &Path,
    url: Option<&ObjectsUrl>,
) -> Result<Blobs, Failure> {
    let record = BucketRecord::of(data);
    let url = match url {
        Some(url) => {
            record.check(Some(url))?;
            Some(url.clone())
        }
        None => record.read()?,
    };
    match url {
        Some(url) => open_bucket(&url, true).await,
        None => Ok(Blobs::open(&data.join("blobs"))?),
    }
}

async fn open_bucket(url: &ObjectsUrl, allow_public: bool) -> Result<Blobs, Failure> {
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let storage = ObjectStorage::new(url, variables)?;
    storage.check(allow_public).await?;
    Ok(Blobs::in_bucket(storage))
}

impl From<ObjectsError> for Failure {
    fn from(error: ObjectsError) -> Self {
        Self::Other(error.to_string())
    }
}
