//! Poolers between this process and the database.

use super::Postgres;
use crate::database::DatabaseResult;

/// Number of tries. In one of them, another process may keep the pooler from giving both connections the same session.
const TRIES: usize = 3;

/// Returns an error if a pooler of transactions that keeps no prepared statements is in between.
///
/// Such a pooler gives a session that a client prepared a statement in to the client that asks next, and then another
/// one to the first client.
pub(super) async fn check(database: &Postgres) -> DatabaseResult<()> {
    let first = database.connection().await?;
    let mut second = database.connection().await?;
    let tried = async {
        for _ in 0..TRIES {
            let statement = first.prepare("SELECT 1").await?;
            let transaction = second.transaction().await?;
            transaction.batch_execute("SELECT 1").await?;
            first.query_one(&statement, &[]).await?;
            transaction.commit().await?;
        }
        Ok(())
    };
    let tried: Result<(), tokio_postgres::Error> = tried.await;
    tried.map_err(|error| database.0.driver.place.error(&error))
}
