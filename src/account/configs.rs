//! What accounts own beside keys: the numbers of their services, and stored predict configs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rusqlite::{Connection, Row, params};

use super::AccountId;
use crate::database::{Database, DatabaseError, Timestamp};

/// Gives services numbers that last.
#[derive(Debug, Clone)]
pub struct ServiceNumbers {
    database: Database,
    connection: Arc<Mutex<Connection>>,
}

/// Stored predict configs. They are changed only here, so what was read is kept.
#[derive(Debug)]
pub struct PredictConfigs {
    database: Database,
    connection: Mutex<Connection>,
    kept: RwLock<HashMap<i64, Arc<Vec<PredictConfig>>>>,
}

/// A stored predict config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredictConfig {
    /// Its number.
    pub id: i64,
    /// Its service's number.
    pub service: i64,
    /// Its name.
    pub name: String,
    /// The config, JSON text.
    pub config: String,
    /// Whether it is taken where a request names none.
    pub is_default: bool,
    /// When it was stored.
    pub created_at: Timestamp,
}

impl ServiceNumbers {
    /// The numbers of a database.
    pub fn open(database: &Database) -> Result<Self, DatabaseError> {
        Ok(Self {
            connection: Arc::new(Mutex::new(database.connect()?)),
            database: database.clone(),
        })
    }

    /// The number of a service: a new one if it has none yet.
    pub fn number(&self, owner: AccountId, name: &str) -> Result<i64, DatabaseError> {
        let connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let find = "SELECT id FROM service WHERE owner = ?1 AND name = ?2";
        let insert = "INSERT INTO service (owner, name) VALUES (?1, ?2)
            ON CONFLICT (owner, name) DO NOTHING";
        let number = || {
            let known = connection.query_row(find, params![owner.0, name], |row| row.get(0));
            if known != Err(rusqlite::Error::QueryReturnedNoRows) {
                return known;
            }
            connection.execute(insert, params![owner.0, name])?;
            connection.query_row(find, params![owner.0, name], |row| row.get(0))
        };
        number().map_err(|error| self.database.error(&error))
    }
}

impl PredictConfigs {
    /// The configs of a database.
    pub fn open(database: &Database) -> Result<Self, DatabaseError> {
        Ok(Self {
            connection: Mutex::new(database.connect()?),
            database: database.clone(),
            kept: RwLock::default(),
        })
    }

    /// The configs of a service, the oldest first.
    pub fn list(&self, service: i64) -> Result<Arc<Vec<PredictConfig>>, DatabaseError> {
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(configs) = kept.get(&service) {
            return Ok(Arc::clone(configs));
        }
        drop(kept);
        // Under the connection's lock, so that no older list is kept after a change.
        self.with(|connection| {
            let configs = Arc::new(read(connection, service)?);
            let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
            kept.insert(service, Arc::clone(&configs));
            Ok(configs)
        })
    }

    /// A config of a service.
    pub fn get(&self, service: i64, id: i64) -> Result<Option<PredictConfig>, DatabaseError> {
        let all = self.list(service)?;
        Ok(all.iter().find(|config| config.id == id).cloned())
    }

    /// The config that is taken where a request names none.
    pub fn default_of(&self, service: i64) -> Result<Option<PredictConfig>, DatabaseError> {
        let all = self.list(service)?;
        Ok(all.iter().find(|config| config.is_default).cloned())
    }

    /// Stores a config. A new default takes the place of the old.
    pub fn create(
        &self,
        service: i64,
        name: &str,
        config: &str,
        is_default: bool,
        now: Timestamp,
    ) -> Result<PredictConfig, DatabaseError> {
        let id = self.change(service, |connection| {
            if is_default {
                let clear = "UPDATE predict_config SET is_default = 0 WHERE service = ?1";
                connection.execute(clear, [service])?;
            }
            let insert = "INSERT INTO predict_config
                (service, name, config, is_default, created_at) VALUES (?1, ?2, ?3, ?4, ?5)";
            connection.execute(insert, params![service, name, config, is_default, now.0])?;
            Ok(connection.last_insert_rowid())
        })?;
        Ok(PredictConfig {
            id,
            service,
            name: name.to_owned(),
            config: config.to_owned(),
            is_default,
            created_at: now,
        })
    }

    /// Deletes a config; `false` if there is none.
    pub fn delete(&self, service: i64, id: i64) -> Result<bool, DatabaseError> {
        self.change(service, |connection| {
            let sql = "DELETE FROM predict_config WHERE service = ?1 AND id = ?2";
            Ok(connection.execute(sql, params![service, id])? > 0)
        })
    }

    fn change<T>(
        &self,
        service: i64,
        call: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, DatabaseError> {
        self.with(|connection| {
            let transaction = connection.unchecked_transaction()?;
            let result = call(&transaction)?;
            transaction.commit()?;
            let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
            kept.remove(&service);
            Ok(result)
        })
    }

    fn with<T>(
        &self,
        call: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
    ) -> Result<T, DatabaseError> {
        let connection = self
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        call(&connection).map_err(|error| self.database.error(&error))
    }
}

fn read(connection: &Connection, service: i64) -> Result<Vec<PredictConfig>, rusqlite::Error> {
    let sql = "SELECT id, service, name, config, is_default, created_at FROM predict_config
        WHERE service = ?1 ORDER BY id";
    let mut read = connection.prepare_cached(sql)?;
    let config = |row: &Row<'_>| {
        Ok(PredictConfig {
            id: row.get(0)?,
            service: row.get(1)?,
            name: row.get(2)?,
            config: row.get(3)?,
            is_default: row.get(4)?,
            created_at: Timestamp(row.get(5)?),
        })
    };
    read.query_map([service], config)?.collect()
}
