//! The training store in a database of either kind.
//!
//! Invariant: reads never wait for writes; every write is one transaction.

use super::super::dataset::{DatasetFormat, DatasetSummary};
use super::{DatasetDeletion, JobCreation, TrainingStore};
use crate::account::AccountId;
use crate::database::sql::{SqlConnection, SqlRow, unknown_value, values};
use crate::database::tables::SqlDatabase;
use crate::database::{DatabaseResult, Timestamp};
use crate::train::record::{
    Dataset, DatasetId, Derived, FitConfig, Job, JobId, JobState, NewDataset, NewDerived,
    NewFitConfig, NewJob,
};

const DATASET_COLUMNS: &str =
    "id, account, name, description, data_type, access_mode, file_name, format,
    summary, blob, size, sha256, created_at";
const FIT_CONFIG_COLUMNS: &str = "id, service, name, config, is_default, created_at";
const DERIVED_COLUMNS: &str = "service, owner, owner_name, name, base_owner, base_owner_name, base, base_name, hidden, created_at";
const JOB_COLUMNS: &str =
    "id, account, service, service_name, dataset, config, state, percentage, attempt,
    error, metrics, created_at, started_at, ended_at";

/// The training store of a database.
#[derive(Debug)]
pub(crate) struct SqlTraining(pub(crate) SqlDatabase);

#[async_trait::async_trait]
impl TrainingStore for SqlTraining {
    async fn create_dataset(&self, new: NewDataset, now: Timestamp) -> DatabaseResult<Dataset> {
        let sql =
            "INSERT INTO dataset (account, name, description, data_type, access_mode, file_name,
                format, summary, blob, size, sha256, created_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12) RETURNING id";
        let values = values![
            new.account.0,
            &new.name,
            &new.description,
            &new.data_type,
            &new.access_mode,
            &new.file_name,
            new.format.name(),
            new.summary.to_json(),
            &new.blob,
            i64::try_from(new.size).unwrap_or(i64::MAX),
            new.sha256,
            now.0,
        ];
        let id = self
            .0
            .write(|connection| connection.only_row(sql, &values, |row| row.get(0)))?;
        Ok(Dataset {
            id: DatasetId(id),
            is: new,
            created_at: now,
        })
    }

    async fn datasets(&self, account: Option<AccountId>) -> DatabaseResult<Vec<Dataset>> {
        let sql = format!(
            "SELECT {DATASET_COLUMNS} FROM dataset WHERE ?1 IS NULL OR account = ?1 ORDER BY id"
        );
        self.0
            .rows(&sql, &values![account.map(|account| account.0)], dataset)
    }

    async fn dataset(&self, id: DatasetId) -> DatabaseResult<Option<Dataset>> {
        self.0.read(|connection| dataset_of(connection, id))
    }

    async fn delete_dataset(&self, id: DatasetId) -> DatabaseResult<DatasetDeletion> {
        let needed = "SELECT id FROM job WHERE dataset = ?1 AND state IN ('WAITING', 'RUNNING')
            ORDER BY id LIMIT 1";
        self.0.write(|connection| {
            let Some(found) = dataset_of(connection, id)? else {
                return Ok(DatasetDeletion::Unknown);
            };
            if let Some(job) = connection.row(needed, &values![id.0], |row| row.get(0))? {
                return Ok(DatasetDeletion::Needed(JobId(job)));
            }
            connection.execute("DELETE FROM dataset WHERE id = ?1", &values![id.0])?;
            Ok(DatasetDeletion::Done(Box::new(found)))
        })
    }

    async fn create_fit_config(
        &self,
        new: NewFitConfig,
        now: Timestamp,
    ) -> DatabaseResult<FitConfig> {
        let clear = "UPDATE fit_config SET is_default = 0 WHERE service = ?1";
        let insert = format!(
            "INSERT INTO fit_config (service, name, config, is_default, created_at)
            VALUES (?1, ?2, ?3, ?4, ?5) RETURNING {FIT_CONFIG_COLUMNS}"
        );
        self.0.write(|connection| {
            if new.is_default {
                connection.execute(clear, &values![new.service])?;
            }
            let values = values![new.service, &new.name, &new.config, new.is_default, now.0];
            connection.only_row(&insert, &values, fit_config)
        })
    }

    async fn fit_configs(&self, service: i64) -> DatabaseResult<Vec<FitConfig>> {
        let sql =
            format!("SELECT {FIT_CONFIG_COLUMNS} FROM fit_config WHERE service = ?1 ORDER BY id");
        self.0.rows(&sql, &values![service], fit_config)
    }

    async fn create_derived(
        &self,
        new: NewDerived,
        now: Timestamp,
    ) -> DatabaseResult<Option<Derived>> {
        let sql = format!(
            "INSERT INTO derived ({DERIVED_COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
            ON CONFLICT (service) DO NOTHING RETURNING {DERIVED_COLUMNS}"
        );
        let values = values![
            new.service,
            new.owner.0,
            &new.owner_name,
            &new.name,
            new.base_owner.0,
            &new.base_owner_name,
            new.base,
            &new.base_name,
            new.hidden,
            now.0
        ];
        self.0.changed_row(&sql, &values, derived)
    }

    async fn derived(&self) -> DatabaseResult<Vec<Derived>> {
        let sql = format!("SELECT {DERIVED_COLUMNS} FROM derived ORDER BY created_at, service");
        self.0.rows(&sql, &[], derived)
    }

    async fn create_job(&self, new: NewJob, now: Timestamp) -> DatabaseResult<JobCreation> {
        let open = "SELECT id FROM job WHERE service = ?1 AND state IN ('WAITING', 'RUNNING')";
        let insert = format!(
            "INSERT INTO job (account, service, service_name, dataset, config, state, created_at)
            VALUES (?1, ?2, ?3, ?4, ?5, 'WAITING', ?6) RETURNING {JOB_COLUMNS}"
        );
        self.0.write(|connection| {
            let found = dataset_of(connection, new.dataset)?;
            if found.is_none_or(|found| found.is.account != new.account) {
                return Ok(JobCreation::NoDataset);
            }
            if let Some(busy) = connection.row(open, &values![new.service], |row| row.get(0))? {
                return Ok(JobCreation::Busy(JobId(busy)));
            }
            let values = values![
                new.account.0,
                new.service,
                &new.service_name,
                new.dataset.0,
                &new.config,
                now.0
            ];
            let made = connection.only_row(&insert, &values, job)?;
            Ok(JobCreation::Done(Box::new(made)))
        })
    }

    async fn job(&self, id: JobId) -> DatabaseResult<Option<Job>> {
        let sql = format!("SELECT {JOB_COLUMNS} FROM job WHERE id = ?1");
        self.0.row(&sql, &values![id.0], job)
    }

    async fn jobs(
        &self,
        account: AccountId,
        service: Option<i64>,
        before: Option<JobId>,
        most: usize,
    ) -> DatabaseResult<Vec<Job>> {
        let sql = format!(
            "SELECT {JOB_COLUMNS} FROM job
            WHERE account = ?1 AND id < ?2 AND (?3 IS NULL OR service = ?3)
            ORDER BY id DESC LIMIT ?4"
        );
        let before = before.map_or(i64::MAX, |before| before.0);
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let values = values![account.0, before, service, most];
        self.0.rows(&sql, &values, job)
    }

    async fn claim_job(&self, now: Timestamp) -> DatabaseResult<Option<Job>> {
        let held = self.0.server();
        let held = held.map_or_else(String::new, |server| format!(", node = {server}"));
        let sql = format!(
            "UPDATE job SET state = 'RUNNING', percentage = 0, attempt = attempt + 1, started_at = ?1{held}
            WHERE id = (SELECT min(id) FROM job WHERE state = 'WAITING') RETURNING {JOB_COLUMNS}"
        );
        self.0.changed_row(&sql, &values![now.0], job)
    }

    async fn progress(&self, id: JobId, attempt: u32, percentage: u8) -> DatabaseResult<bool> {
        let sql = "UPDATE job SET percentage = ?3
            WHERE id = ?1 AND attempt = ?2 AND state = 'RUNNING'";
        Ok(self.0.change(sql, &values![id.0, attempt, percentage])? > 0)
    }

    async fn end_job(
        &self,
        id: JobId,
        attempt: u32,
        end: Result<String, String>,
        now: Timestamp,
    ) -> DatabaseResult<bool> {
        let sql = "UPDATE job SET state = ?3, metrics = ?4, error = ?5, ended_at = ?6,
                percentage = CASE WHEN ?3 = 'SUCCESS' THEN 100 ELSE percentage END
            WHERE id = ?1 AND attempt = ?2 AND state = 'RUNNING'";
        let (state, metrics, error) = match end {
            Ok(metrics) => (JobState::Success, Some(metrics), None),
            Err(error) => (JobState::Failed, None, Some(error)),
        };
        let values = values![id.0, attempt, state.name(), metrics, error, now.0];
        Ok(self.0.change(sql, &values)? > 0)
    }

    async fn cancel_job(&self, id: JobId, now: Timestamp) -> DatabaseResult<Option<Job>> {
        let cancel = "UPDATE job SET state = 'CANCELED', ended_at = ?2
            WHERE id = ?1 AND state IN ('WAITING', 'RUNNING')";
        let read = format!("SELECT {JOB_COLUMNS} FROM job WHERE id = ?1");
        self.0.write(|connection| {
            connection.execute(cancel, &values![id.0, now.0])?;
            connection.row(&read, &values![id.0], job)
        })
    }

    async fn put_back(&self, id: JobId, attempt: u32) -> DatabaseResult<()> {
        let sql = "UPDATE job SET state = 'WAITING', percentage = 0, attempt = attempt - 1
            WHERE id = ?1 AND attempt = ?2 AND state = 'RUNNING'";
        self.0.change(sql, &values![id.0, attempt]).map(drop)
    }

    async fn recover_jobs(&self, attempts: u32, now: Timestamp) -> DatabaseResult<u64> {
        let lost = format!("state = 'RUNNING' AND {}", self.0.is_free());
        let fail = format!(
            "UPDATE job SET state = 'FAILED', ended_at = ?2,
                error = 'the server ended each of the ' || attempt || ' times that the job ran'
            WHERE {lost} AND attempt >= ?1"
        );
        let again = format!("UPDATE job SET state = 'WAITING', percentage = 0 WHERE {lost}");
        self.0.write(|connection| {
            let failed = connection.execute(&fail, &values![attempts, now.0])?;
            let waiting = connection.execute(&again, &[])?;
            Ok((failed + waiting) as u64)
        })
    }

    fn is_shared(&self) -> bool {
        self.0.server().is_some()
    }
}

fn dataset_of(
    connection: &mut dyn SqlConnection,
    id: DatasetId,
) -> DatabaseResult<Option<Dataset>> {
    let sql = format!("SELECT {DATASET_COLUMNS} FROM dataset WHERE id = ?1");
    connection.row(&sql, &values![id.0], dataset)
}

fn dataset(row: &SqlRow) -> DatabaseResult<Dataset> {
    let (format, summary): (String, String) = (row.get(7)?, row.get(8)?);
    Ok(Dataset {
        id: DatasetId(row.get(0)?),
        is: NewDataset {
            account: AccountId(row.get(1)?),
            name: row.get(2)?,
            description: row.get(3)?,
            data_type: row.get(4)?,
            access_mode: row.get(5)?,
            file_name: row.get(6)?,
            format: DatasetFormat::from_name(&format).ok_or_else(|| unknown_value(&format))?,
            summary: DatasetSummary::from_json(&summary).ok_or_else(|| unknown_value(&summary))?,
            blob: row.get(9)?,
            size: u64::try_from(row.get::<i64>(10)?).unwrap_or(0),
            sha256: row.get(11)?,
        },
        created_at: Timestamp(row.get(12)?),
    })
}

fn fit_config(row: &SqlRow) -> DatabaseResult<FitConfig> {
    Ok(FitConfig {
        id: row.get(0)?,
        is: NewFitConfig {
            service: row.get(1)?,
            name: row.get(2)?,
            config: row.get(3)?,
            is_default: row.get(4)?,
        },
        created_at: Timestamp(row.get(5)?),
    })
}

fn derived(row: &SqlRow) -> DatabaseResult<Derived> {
    Ok(Derived {
        is: NewDerived {
            service: row.get(0)?,
            owner: AccountId(row.get(1)?),
            owner_name: row.get(2)?,
            name: row.get(3)?,
            base_owner: AccountId(row.get(4)?),
            base_owner_name: row.get(5)?,
            base: row.get(6)?,
            base_name: row.get(7)?,
            hidden: row.get(8)?,
        },
        created_at: Timestamp(row.get(9)?),
    })
}

fn job(row: &SqlRow) -> DatabaseResult<Job> {
    let state: String = row.get(6)?;
    Ok(Job {
        id: JobId(row.get(0)?),
        is: NewJob {
            account: AccountId(row.get(1)?),
            service: row.get(2)?,
            service_name: row.get(3)?,
            dataset: DatasetId(row.get(4)?),
            config: row.get(5)?,
        },
        state: JobState::from_name(&state).ok_or_else(|| unknown_value(&state))?,
        percentage: row.get(7)?,
        attempt: row.get(8)?,
        error: row.get(9)?,
        metrics: row.get(10)?,
        created_at: Timestamp(row.get(11)?),
        started_at: row.get::<Option<i64>>(12)?.map(Timestamp),
        ended_at: row.get::<Option<i64>>(13)?.map(Timestamp),
    })
}
