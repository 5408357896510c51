//! An in-memory training store: the reference model for other stores in tests.

use std::sync::{Mutex, MutexGuard};

use pkgtool_serve::account::AccountId;
use pkgtool_serve::database::{DatabaseError, Timestamp};
use pkgtool_serve::train::{
    Dataset, DatasetDeletion, DatasetId, Derived, FitConfig, Job, JobCreation, JobId, JobState,
    NewDataset, NewDerived, NewFitConfig, NewJob, TrainingStore,
};

/// A training store that keeps its records in memory.
#[derive(Default)]
pub(super) struct MemoryTraining(Mutex<Records>);

#[derive(Default)]
struct Records {
    datasets: Vec<Dataset>,
    last_dataset: i64,
    fit_configs: Vec<FitConfig>,
    derived: Vec<Derived>,
    jobs: Vec<Job>,
}

impl MemoryTraining {
    fn records(&self) -> MutexGuard<'_, Records> {
        self.0.lock().expect("no test panics with it")
    }
}

impl Records {
    fn running(&mut self, id: JobId, attempt: u32) -> Option<&mut Job> {
        let job = self.jobs.iter_mut().find(|job| job.id == id)?;
        (job.state == JobState::Running && job.attempt == attempt).then_some(job)
    }
}

#[async_trait::async_trait]
impl TrainingStore for MemoryTraining {
    async fn create_dataset(
        &self,
        new: NewDataset,
        now: Timestamp,
    ) -> Result<Dataset, DatabaseError> {
        let mut records = self.records();
        records.last_dataset += 1;
        let dataset = Dataset {
            id: DatasetId(records.last_dataset),
            is: new,
            created_at: now,
        };
        records.datasets.push(dataset.clone());
        Ok(dataset)
    }

    async fn datasets(&self, account: Option<AccountId>) -> Result<Vec<Dataset>, DatabaseError> {
        let records = self.records();
        let of = |it: &&Dataset| account.is_none_or(|account| it.is.account == account);
        Ok(records.datasets.iter().filter(of).cloned().collect())
    }

    async fn dataset(&self, id: DatasetId) -> Result<Option<Dataset>, DatabaseError> {
        Ok(self
            .records()
            .datasets
            .iter()
            .find(|it| it.id == id)
            .cloned())
    }

    async fn delete_dataset(&self, id: DatasetId) -> Result<DatasetDeletion, DatabaseError> {
        let mut records = self.records();
        let Some(place) = records.datasets.iter().position(|it| it.id == id) else {
            return Ok(DatasetDeletion::Unknown);
        };
        let mut jobs = records.jobs.iter();
        if let Some(job) = jobs.find(|job| job.is.dataset == id && !job.state.is_final()) {
            return Ok(DatasetDeletion::Needed(job.id));
        }
        Ok(DatasetDeletion::Done(Box::new(
            records.datasets.remove(place),
        )))
    }

    async fn create_fit_config(
        &self,
        new: NewFitConfig,
        now: Timestamp,
    ) -> Result<FitConfig, DatabaseError> {
        let mut records = self.records();
        if new.is_default {
            let same = records.fit_configs.iter_mut();
            for config in same.filter(|it| it.is.service == new.service) {
                config.is.is_default = false;
            }
        }
        let config = FitConfig {
            id: i64::try_from(records.fit_configs.len()).expect("a few") + 1,
            is: new,
            created_at: now,
        };
        records.fit_configs.push(config.clone());
        Ok(config)
    }

    async fn fit_configs(&self, service: i64) -> Result<Vec<FitConfig>, DatabaseError> {
        let records = self.records();
        let of = records
            .fit_configs
            .iter()
            .filter(|it| it.is.service == service);
        Ok(of.cloned().collect())
    }

    async fn create_derived(
        &self,
        new: NewDerived,
        now: Timestamp,
    ) -> Result<Option<Derived>, DatabaseError> {
        let mut records = self.records();
        if records
            .derived
            .iter()
            .any(|it| it.is.service == new.service)
        {
            return Ok(None);
        }
        let derived = Derived {
            is: new,
            created_at: now,
        };
        records.derived.push(derived.clone());
        Ok(Some(derived))
    }

    async fn derived(&self) -> Result<Vec<Derived>, DatabaseError> {
        Ok(self.records().derived.clone())
    }

    async fn create_job(&self, new: NewJob, now: Timestamp) -> Result<JobCreation, DatabaseError> {
        let mut records = self.records();
        let dataset = records.datasets.iter().find(|it| it.id == new.dataset);
        if dataset.is_none_or(|it| it.is.account != new.account) {
            return Ok(JobCreation::NoDataset);
        }
        let mut jobs = records.jobs.iter();
        if let Some(busy) = jobs.find(|job| job.is.service == new.service && !job.state.is_final())
        {
            return Ok(JobCreation::Busy(busy.id));
        }
        let job = Job {
            id: JobId(i64::try_from(records.jobs.len()).expect("a few") + 1),
            is: new,
            state: JobState::Waiting,
            percentage: 0,
            attempt: 0,
            error: None,
            metrics: None,
            created_at: now,
            started_at: None,
            ended_at: None,
        };
        records.jobs.push(job.clone());
        Ok(JobCreation::Done(Box::new(job)))
    }

    async fn job(&self, id: JobId) -> Result<Option<Job>, DatabaseError> {
        Ok(self.records().jobs.iter().find(|it| it.id == id).cloned())
    }

    async fn jobs(
        &self,
        account: AccountId,
        service: Option<i64>,
        before: Option<JobId>,
        most: usize,
    ) -> Result<Vec<Job>, DatabaseError> {
        let records = self.records();
        let of = |job: &&Job| {
            job.is.account == account
                && service.is_none_or(|service| job.is.service == service)
                && before.is_none_or(|before| job.id.0 < before.0)
        };
        Ok(records
            .jobs
            .iter()
            .rev()
            .filter(of)
            .take(most)
            .cloned()
            .collect())
    }

    async fn claim_job(&self, now: Timestamp) -> Result<Option<Job>, DatabaseError> {
        let mut records = self.records();
        let mut jobs = records.jobs.iter_mut();
        let Some(job) = jobs.find(|job| job.state == JobState::Waiting) else {
            return Ok(None);
        };
        job.state = JobState::Running;
        job.percentage = 0;
        job.attempt += 1;
        job.started_at = Some(now);
        Ok(Some(job.clone()))
    }

    async fn progress(
        &self,
        id: JobId,
        attempt: u32,
        percentage: u8,
    ) -> Result<bool, DatabaseError> {
        let mut records = self.records();
        let job = records.running(id, attempt);
        Ok(job.map(|job| job.percentage = percentage).is_some())
    }

    async fn end_job(
        &self,
        id: JobId,
        attempt: u32,
        end: Result<String, String>,
        now: Timestamp,
    ) -> Result<bool, DatabaseError> {
        let mut records = self.records();
        let Some(job) = records.running(id, attempt) else {
            return Ok(false);
        };
        job.ended_at = Some(now);
        match end {
            Ok(metrics) => {
                job.state = JobState::Success;
                job.percentage = 100;
                job.metrics = Some(metrics);
            }
            Err(error) => {
                job.state = JobState::Failed;
                job.error = Some(error);
            }
        }
        Ok(true)
    }

    async fn cancel_job(&self, id: JobId, now: Timestamp) -> Result<Option<Job>, DatabaseError> {
        let mut records = self.records();
        let Some(job) = records.jobs.iter_mut().find(|it| it.id == id) else {
            return Ok(None);
        };
        if !job.state.is_final() {
            job.state = JobState::Canceled;
            job.ended_at = Some(now);
        }
        Ok(Some(job.clone()))
    }

    async fn put_back(&self, id: JobId, attempt: u32) -> Result<(), DatabaseError> {
        if let Some(job) = self.records().running(id, attempt) {
            job.state = JobState::Waiting;
            job.percentage = 0;
            job.attempt -= 1;
        }
        Ok(())
    }

    async fn recover_jobs(&self, attempts: u32, now: Timestamp) -> Result<u64, DatabaseError> {
        let mut records = self.records();
        let running = records.jobs.iter_mut();
        let mut count = 0;
        for job in running.filter(|job| job.state == JobState::Running) {
            count += 1;
            if job.attempt >= attempts {
                job.state = JobState::Failed;
                job.ended_at = Some(now);
                let times = job.attempt;
                job.error = Some(format!(
                    "the server ended each of the {times} times that the job ran"
                ));
            } else {
                job.state = JobState::Waiting;
                job.percentage = 0;
            }
        }
        Ok(count)
    }
}
