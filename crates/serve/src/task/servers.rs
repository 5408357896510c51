//! The servers that share a database.

use std::sync::Arc;

use super::ObjectsUrl;
use super::postgres::PostgresTasks;
pub use super::postgres::ServerInfo;
use crate::database::{DatabaseResult, Timestamp};

/// The servers that share a database.
#[derive(Debug)]
pub struct SharedServers(pub(super) Arc<PostgresTasks>);

impl SharedServers {
    /// Agrees with the other servers on where objects are: at this address, or else in the files of this server. Returns
    /// the place of the others if it is another one.
    pub async fn agree_on_objects(
        &self,
        url: Option<&ObjectsUrl>,
    ) -> DatabaseResult<Option<String>> {
        let own = match url {
            Some(url) => url.to_string(),
            None => format!("the files of the server {}", self.0.name()),
        };
        self.0.agree_on_objects(own).await
    }

    /// Lists them, the one that started first first.
    pub async fn list(&self) -> DatabaseResult<Vec<ServerInfo>> {
        self.0.servers().await
    }

    /// Lets a server, by its name, claim no more tasks. Returns `false` if there is none of this name.
    pub async fn drain(&self, name: &str) -> DatabaseResult<bool> {
        Ok(self.0.drain(name.to_owned()).await? > 0)
    }

    /// Returns the running tasks of a server, by its name, to the queue, as after a crash. Returns their number.
    pub async fn requeue(&self, name: &str, attempts: u32) -> DatabaseResult<u64> {
        let now = Timestamp::now();
        self.0.requeue(name.to_owned(), attempts, now).await
    }
}
