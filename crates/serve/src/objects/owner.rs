//! The owner of a prefix: the database whose tasks the objects belong to.
//!
//! Invariant: a prefix has one owner, because sweeps delete objects whose tasks are not in the
//! database. Gateways that share a database share the prefix.

use object_store::path::Path as Name;
use object_store::{ObjectStore as _, ObjectStoreExt as _, PutMode};

use super::ObjectStorage;
use super::error::{ObjectAction, ObjectsError, ObjectsFault, is_missing};
use crate::database::Timestamp;

/// Name of the object that names the owner.
const OWNER: &str = "owner";

impl ObjectStorage {
    /// Claims the prefix for a database, unless another one has it. A database is known by the
    /// moment when its first account was created.
    pub async fn claim(&self, database: Timestamp) -> Result<(), ObjectsError> {
        let name = Name::from(OWNER);
        let own = database.to_iso();
        if let Some(owner) = self.owner(&name).await? {
            return self.check_owner(owner, own);
        }
        let content = own.clone().into();
        let put = self.store.put_opts(&name, content, PutMode::Create.into());
        match put.await {
            // Another gateway was faster.
            Err(
                object_store::Error::AlreadyExists { .. }
                | object_store::Error::Precondition { .. },
            ) => {
                let owner = self.owner(&name).await?.unwrap_or_default();
                self.check_owner(owner, own)
            }
            Err(error) => Err(self.failed(ObjectAction::Write, &error)),
            Ok(_) => Ok(()),
        }
    }

    async fn owner(&self, name: &Name) -> Result<Option<String>, ObjectsError> {
        let read = async { self.store.get(name).await?.bytes().await };
        match read.await {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned())),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(self.failed(ObjectAction::Read, &error)),
        }
    }

    fn check_owner(&self, owner: String, own: String) -> Result<(), ObjectsError> {
        if owner == own {
            return Ok(());
        }
        Err(self.error(ObjectsFault::Owned { owner, own }))
    }
}
