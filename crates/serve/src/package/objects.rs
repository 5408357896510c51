//! The manifests and files of published packages in object storage.
//!
//! Invariant: objects are named by their content, and a manifest appears after all its files.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use bytes::BytesMut;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path as Name;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt as _};
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt as _;

use super::cache::{FileBytes, PackageSource};
use super::error::PublishError;
use super::manifest::{PackageFile, PackageManifest};
use crate::objects::{OBJECT_PART_BYTES, ObjectParts, ObjectStorage, is_missing, storage_reason};
use pkgtool_base::source::text::hexadecimal;

/// Folders of the objects.
const FILES: &str = "package/file";
const MANIFESTS: &str = "package/manifest";
/// Maximum size of a manifest, in bytes.
const MAX_MANIFEST_BYTES: u64 = 16 << 20;

/// The objects of published packages.
#[derive(Debug, Clone)]
pub struct PackageObjects {
    store: Arc<dyn ObjectStore>,
}

impl PackageObjects {
    /// Returns the objects of packages in a storage.
    pub fn in_storage(storage: &ObjectStorage) -> Self {
        Self {
            store: Arc::clone(storage.store()),
        }
    }

    /// Writes a file, unless an object has its content already. Returns whether it was written.
    pub(super) async fn put_file(
        &self,
        path: &Path,
        file: &PackageFile,
    ) -> Result<bool, PublishError> {
        let name = file_name(&file.sha256);
        match self.store.head(&name).await {
            Ok(found) if found.size == file.size => return Ok(false),
            Err(error) if !is_missing(&error) => return Err(failed(&name, &error)),
            _ => {}
        }
        let local = |reason: String| PublishError::Local {
            path: path.to_owned(),
            reason,
        };
        let opened = tokio::fs::File::open(path).await;
        let mut opened = opened.map_err(|error| local(error.to_string()))?;
        let mut parts = ObjectParts::begin(&*self.store, &name)
            .await
            .map_err(|error| failed(&name, &error))?;
        let (mut hash, mut size) = (Sha256::new(), 0);
        loop {
            let mut part = BytesMut::with_capacity(OBJECT_PART_BYTES);
            while part.len() < OBJECT_PART_BYTES {
                let mut limited = (&mut opened).take((OBJECT_PART_BYTES - part.len()) as u64);
                let read = limited.read_buf(&mut part).await;
                if read.map_err(|error| local(error.to_string()))? == 0 {
                    break;
                }
            }
            let is_last = part.len() < OBJECT_PART_BYTES;
            hash.update(&part);
            size += part.len() as u64;
            if !part.is_empty() || size == 0 {
                let put = parts.put(part.freeze()).await;
                put.map_err(|error| failed(&name, &error))?;
            }
            if is_last {
                break;
            }
        }
        if size != file.size || hexadecimal(&hash.finalize()) != file.sha256 {
            return Err(local(
                "the file changed while it was published; publish it again".to_owned(),
            ));
        }
        let completed = parts.complete().await;
        completed.map_err(|error| failed(&name, &error))?;
        Ok(true)
    }

    /// Writes a manifest whose files are there.
    pub(super) async fn put_manifest(
        &self,
        manifest: &PackageManifest,
    ) -> Result<(), PublishError> {
        let name = manifest_name(&manifest.version);
        let text = serde_json::to_vec(manifest).unwrap_or_default();
        let put = self.store.put(&name, text.into()).await;
        put.map(drop).map_err(|error| failed(&name, &error))
    }

    /// Reads a manifest.
    pub(super) async fn manifest(&self, version: &str) -> Result<PackageManifest, PublishError> {
        let name = manifest_name(version);
        let wrong = |reason: &str| PublishError::Object {
            name: name.to_string(),
            reason: format!("{reason}; publish the package again"),
        };
        let found = self.store.get(&name).await;
        let found = found.map_err(|error| failed(&name, &error))?;
        if found.meta.size > MAX_MANIFEST_BYTES {
            return Err(wrong("it is too long for a manifest"));
        }
        let text = found.bytes().await;
        let text = text.map_err(|error| failed(&name, &error))?;
        let manifest: PackageManifest =
            serde_json::from_slice(&text).map_err(|_| wrong("it is not a manifest"))?;
        let checked = manifest.check(u64::MAX);
        checked.map_err(|reason| wrong(&format!("it is not a valid manifest: {reason}")))?;
        if manifest.version != version || !manifest.is_consistent() {
            return Err(wrong("it has another content than was written"));
        }
        Ok(manifest)
    }

    /// Removes the manifests other than these, and the files that none of these has. Returns how many objects it removed.
    pub(super) async fn keep(&self, versions: &BTreeSet<String>) -> Result<u64, PublishError> {
        let mut needed = BTreeSet::new();
        for version in versions {
            needed.insert(manifest_name(version));
            let manifest = self.manifest(version).await?;
            needed.extend(manifest.files.iter().map(|file| file_name(&file.sha256)));
        }
        let mut removed = 0;
        // A manifest leaves before its files.
        for folder in [MANIFESTS, FILES] {
            let folder = Name::from(folder);
            let mut listed = self.store.list(Some(&folder));
            while let Some(found) = listed.next().await {
                let name = found.map_err(|error| failed(&folder, &error))?.location;
                if !needed.contains(&name) {
                    let deleted = self.store.delete(&name).await;
                    deleted.map_err(|error| failed(&name, &error))?;
                    removed += 1;
                }
            }
        }
        Ok(removed)
    }
}

#[async_trait::async_trait]
impl PackageSource for PackageObjects {
    async fn content(&self, file: &PackageFile, offset: u64) -> Result<FileBytes, String> {
        if offset >= file.size {
            return Ok(futures_util::stream::empty().boxed());
        }
        let name = file_name(&file.sha256);
        let options = GetOptions {
            range: Some(GetRange::Offset(offset)),
            ..GetOptions::default()
        };
        let found = self.store.get_opts(&name, options).await;
        let found = found.map_err(|error| storage_reason(&error))?;
        let pieces = found.into_stream();
        Ok(pieces.map_err(|error| storage_reason(&error)).boxed())
    }
}

fn file_name(sha256: &str) -> Name {
    Name::from(format!("{FILES}/{sha256}"))
}

fn manifest_name(version: &str) -> Name {
    Name::from(format!("{MANIFESTS}/{version}"))
}

fn failed(name: &Name, error: &object_store::Error) -> PublishError {
    PublishError::Object {
        name: name.to_string(),
        reason: storage_reason(error),
    }
}
