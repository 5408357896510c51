//! Opens the blobs of a data directory: its files, or the objects of its bucket.

use std::path::Path;

use super::exit::Failure;
use pkgtool_serve::account::AccountStore;
use pkgtool_serve::gateway::settings::{LOCAL_ACCOUNT, ObjectsSettings};
use pkgtool_serve::objects::{ObjectStorage, ObjectsError, ObjectsUrl};
use pkgtool_serve::task::{Blobs, BucketRecord};

/// Opens the blobs of a server, and records their bucket in the data directory. The accounts are
/// those of the server's database.
pub(super) async fn open_for_server(
    data: &Path,
    settings: &ObjectsSettings,
    accounts: &dyn AccountStore,
) -> Result<Blobs, Failure> {
    let record = BucketRecord::of(data);
    let url = settings.url.0.as_ref();
    record.check(url)?;
    let Some(url) = url else {
        return Ok(Blobs::open(&data.join("blobs"))?);
    };
    let blobs = open_bucket(url, settings.allow_public, accounts).await?;
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
    accounts: &dyn AccountStore,
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
        Some(url) => open_bucket(&url, true, accounts).await,
        None => Ok(Blobs::open(&data.join("blobs"))?),
    }
}

/// Opens a place to copy objects into.
pub(super) async fn open_target(
    url: &ObjectsUrl,
    accounts: &dyn AccountStore,
) -> Result<Blobs, Failure> {
    open_bucket(url, false, accounts).await
}

async fn open_bucket(
    url: &ObjectsUrl,
    allow_public: bool,
    accounts: &dyn AccountStore,
) -> Result<Blobs, Failure> {
    let storage = open_storage(url, allow_public, accounts).await?;
    Ok(Blobs::in_bucket(storage))
}

/// Opens the objects of the database with these accounts.
pub(super) async fn open_storage(
    url: &ObjectsUrl,
    allow_public: bool,
    accounts: &dyn AccountStore,
) -> Result<ObjectStorage, Failure> {
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let storage = ObjectStorage::new(url, variables)?;
    storage.check(allow_public).await?;
    let accounts = accounts.accounts().await?;
    if let Some(first) = accounts.iter().find(|it| it.name == LOCAL_ACCOUNT) {
        storage.claim(first.created_at).await?;
    }
    Ok(storage)
}

impl From<ObjectsError> for Failure {
    fn from(error: ObjectsError) -> Self {
        Self::Other(error.to_string())
    }
}
