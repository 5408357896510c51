//! Training by a worker: an attached instance trains its own service, or one that is derived from it.
//!
//! Invariant: at most one worker has a job. The token of a job that fails is revoked.

use std::fmt::Write as _;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::dataset::{ContentKind, DatasetLimits, RowError, Rows};
use super::embed::DatasetReader;
use super::jobs_options::{JobsOptions, MAX_SERVE_WAIT, MAX_TRAINING_ATTEMPTS};
use super::progress::TrainingProgress;
use super::record::{Dataset, Job, JobState};
use crate::account::{AccountError, Accounts, WorkerToken};
use crate::database::Timestamp;
use crate::service::attached::payload;
use crate::service::{Attached, CallError, FittedAway, Service};
use pkgtool_gate::host::RemoteInstance;
use pkgtool_gate::protocol::{
    DatasetInfoProto, FitRequestProto, MAX_MESSAGE_BYTES, PayloadProto, ServiceInfoProto,
};

/// Maximum size of a dataset. Other parts of its message need little.
const MAX_CONTENT_BYTES: u64 = (MAX_MESSAGE_BYTES - (1 << 20)) as u64;
/// Maximum size of what a worker says of a training.
const MAX_METRICS_BYTES: usize = 1 << 20;
/// Pause before another worker is asked, after one that left.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Time for the requests of a service that was trained before to end.
const DRAIN_TIME: Duration = Duration::from_secs(30);
/// Names of the tokens for trained services. One is that of the last training, the other that of the running one.
const TOKEN_NAMES: [&str; 2] = ["training", "next-training"];
/// Maximum number of earlier jobs among which the last successful one is searched.
const MAX_EARLIER_JOBS: usize = 100;
/// Interval between checks whether the trained service is attached.
const ATTACHED_INTERVAL: Duration = Duration::from_millis(100);

/// A job for a worker.
pub(super) struct AwayTraining<'a> {
    pub(super) options: &'a JobsOptions,
    pub(super) job: &'a Job,
    pub(super) dataset: &'a Dataset,
    /// The trained service is derived from the one that trains. Otherwise an instance trains its own.
    pub(super) is_derived: bool,
    pub(super) progress: &'a TrainingProgress,
}

/// A dataset in the forms that workers take.
struct SentDataset {
    /// The bytes that its owner uploaded.
    uploaded: PayloadProto,
    /// Texts and labels, as the platform's SDKs define them.
    collections: Option<(PayloadProto, PayloadProto)>,
}

impl AwayTraining<'_> {
    /// Lets a worker train, and waits until it attaches the result. Returns what it measured, as JSON.
    pub(super) async fn run(
        &self,
        trainer: &Service,
        workers: &Arc<Attached>,
    ) -> Result<String, String> {
        let source = (self.options.open)(self.dataset.clone()).await?;
        let (bounds, holds) = (self.options.bounds, self.dataset.is.content_kind());
        let in_collections = workers.fits_like_platform();
        let read =
            tokio::task::spawn_blocking(move || read(source, bounds, (holds, in_collections)));
        let sent = read.await.map_err(|error| error.to_string())??;
        let last = self.last_success().await?;
        let previous = last.as_ref().map(model_directory).unwrap_or_default();
        let other = |error: AccountError| error.to_string();
        if !self.is_derived {
            let fitted = self.train(trainer, workers, (&sent, &previous, "")).await?;
            return Ok(self.metrics(&fitted));
        }
        let tokens = JobTokens::new(&self.options.accounts, self.job);
        let secret = tokens.create(last.as_ref()).await.map_err(other)?;
        let before = self.instances();
        let sent = (&sent, &*previous, &*secret);
        let fitted = self.train(trainer, workers, sent).await?;
        if !fitted.attaches {
            tokens.revoke().await.map_err(other)?;
            return Ok(self.metrics(&fitted));
        }
        let attached = tokio::time::timeout(MAX_SERVE_WAIT, self.attached(&before));
        attached.await.map_err(|_| {
            let worker = &fitted.worker;
            format!("the worker `{worker}` trained the service, but did not attach it")
        })?;
        // Those of the last training finish their requests.
        for instance in &before {
            instance.drain(true);
        }
        let (accounts, job) = (Arc::clone(&self.options.accounts), self.job.clone());
        tokio::spawn(async move {
            tokio::time::sleep(DRAIN_TIME).await;
            if let Err(error) = JobTokens::new(&accounts, &job).revoke_earlier().await {
                tracing::error!(job = job.id.0, %error, "cannot revoke the tokens of earlier trainings");
            }
        });
        Ok(self.metrics(&fitted))
    }

    /// Returns the last job of the service that succeeded.
    async fn last_success(&self) -> Result<Option<Job>, String> {
        let (of, store) = (&self.job.is, &self.options.store);
        let jobs = store.jobs(
            of.account,
            Some(of.service),
            Some(self.job.id),
            MAX_EARLIER_JOBS,
        );
        let mut jobs = jobs.await.map_err(|error| error.to_string())?.into_iter();
        Ok(jobs.find(|job| job.state == JobState::Success))
    }

    /// Returns the instances of the trained service.
    fn instances(&self) -> Vec<Arc<RemoteInstance>> {
        let service = (self.options.find)(self.job.is.account, &self.job.is.service.to_string());
        let service = service.as_deref();
        let workers = service.and_then(Service::workers);
        workers.map(|workers| workers.all()).unwrap_or_default()
    }

    /// Waits until the trained service has another instance.
    async fn attached(&self, before: &[Arc<RemoteInstance>]) {
        let is_new = |it: &Arc<RemoteInstance>| before.iter().all(|old| old.number != it.number);
        while !self.instances().iter().any(is_new) {
            tokio::time::sleep(ATTACHED_INTERVAL).await;
        }
    }

    async fn train(
        &self,
        trainer: &Service,
        workers: &Arc<Attached>,
        sent: (&SentDataset, &str, &str),
    ) -> Result<FittedAway, String> {
        let mut times = 0;
        let queue = (self.job.is.account, trainer.settings.queue);
        loop {
            times += 1;
            let request = |instance: &RemoteInstance| self.request(sent, instance);
            let progress = |percentage: i32| self.progress.set(percentage);
            match workers.fit(queue, request, progress).await {
                Ok(fitted) => return Ok(fitted),
                Err(CallError::Lost) if times < MAX_TRAINING_ATTEMPTS => {
                    tracing::info!(
                        job = self.job.id.0,
                        "the worker left; restarting the training"
                    );
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                Err(error) => return Err(reason(&error)),
            }
        }
    }

    /// Returns the message to a worker.
    fn request(
        &self,
        (sent, previous, secret): (&SentDataset, &str, &str),
        instance: &RemoteInstance,
    ) -> FitRequestProto {
        let (job, dataset) = (&self.job.is, &self.dataset.is);
        let attaches = instance.attaches_trained();
        let (train_data, targets_data) = match &sent.collections {
            Some((texts, labels)) if !attaches => (texts.clone(), Some(labels.clone())),
            _ => (sent.uploaded.clone(), None),
        };
        FitRequestProto {
            train_data: Some(train_data),
            targets_data,
            config: Some(payload(job.config.clone().into(), None)),
            model_dir: model_directory(self.job),
            previous_model_dir: Some(previous.to_owned()).filter(|it| !it.is_empty()),
            target_service_info: Some(ServiceInfoProto {
                account_id: job.account.0,
                model_id: job.service,
                model_name: job.service_name.clone(),
                auth_token: if attaches {
                    secret.to_owned()
                } else {
                    String::new()
                },
                ..ServiceInfoProto::default()
            }),
            dataset_info: Some(DatasetInfoProto {
                account_id: dataset.account.0,
                dataset_id: self.dataset.id.0,
                name: filled(&dataset.name, &dataset.file_name),
                r#type: filled(&dataset.data_type, dataset.format.name()),
            }),
        }
    }

    /// Returns what the worker measured, with its name and the folder of the result.
    fn metrics(&self, fitted: &FittedAway) -> String {
        let said = &fitted.metrics;
        let said = Some(said).filter(|said| said.len() <= MAX_METRICS_BYTES);
        let said = said.and_then(|said| serde_json::from_str(said).ok());
        let mut metrics: serde_json::Map<String, Value> = said.unwrap_or_default();
        metrics.insert("worker".to_owned(), json!(fitted.worker));
        metrics.insert("modelDir".to_owned(), json!(model_directory(self.job)));
        Value::Object(metrics).to_string()
    }
}

/// Returns the first of two texts that is not empty. The platform's SDKs demand one.
fn filled(text: &str, other: &str) -> String {
    let texts = [text, other, "dataset"].into_iter();
    let mut filled = texts.filter(|text| !text.is_empty());
    filled.next().unwrap_or_default().to_owned()
}

/// Returns the reason of a failure, with what a worker adds to its message.
fn reason(error: &CallError) -> String {
    let mut reason = error.to_string();
    if let CallError::Instance { args, .. } = error {
        for (name, value) in args {
            // Writing to a string cannot fail.
            let _ = write!(reason, "; {name}: {value}");
        }
    }
    reason
}

/// Returns the folder of a job's result, in the storage of the worker.
fn model_directory(job: &Job) -> String {
    let of = &job.is;
    format!("{}/{}/{}", of.account.0, of.service_name, job.id.0)
}

fn start_of(job: &Job) -> Timestamp {
    job.started_at.unwrap_or(job.created_at)
}

/// The tokens by which a worker attaches as the service that it trained.
pub(super) struct JobTokens<'a> {
    accounts: &'a Accounts,
    account: String,
    service: &'a str,
    /// When the job started.
    since: Timestamp,
}

impl<'a> JobTokens<'a> {
    pub(super) fn new(accounts: &'a Accounts, job: &'a Job) -> Self {
        Self {
            accounts,
            account: job.is.account.0.to_string(),
            service: &job.is.service_name,
            since: start_of(job),
        }
    }

    /// Creates the token of a running job. Only that of the last success stays valid beside it.
    async fn create(&self, last: Option<&Job>) -> Result<String, AccountError> {
        let is_of = |token: &WorkerToken, job: &Job| {
            token.created_at >= start_of(job)
                && job.ended_at.is_none_or(|end| token.created_at <= end)
        };
        let is_kept = |token: &WorkerToken| last.is_some_and(|last| is_of(token, last));
        let (kept, others): (Vec<_>, Vec<_>) = self.valid().await?.into_iter().partition(is_kept);
        self.revoke_all(others).await?;
        let is_free = |name: &&str| kept.iter().all(|token| token.name != *name);
        let name = TOKEN_NAMES.into_iter().find(is_free);
        let name = name.unwrap_or(TOKEN_NAMES[0]);
        let (account, now) = (&self.account, Timestamp::now());
        let created = self
            .accounts
            .create_worker_token(account, self.service, name, None, now);
        let (_, secret) = created.await?;
        Ok(secret.reveal().to_owned())
    }

    /// Revokes the token of the job.
    pub(super) async fn revoke(&self) -> Result<(), AccountError> {
        let valid = self.valid().await?.into_iter();
        self.revoke_all(valid.filter(|token| token.created_at >= self.since))
            .await
    }

    /// Revokes the tokens of earlier jobs.
    async fn revoke_earlier(&self) -> Result<(), AccountError> {
        let valid = self.valid().await?.into_iter();
        self.revoke_all(valid.filter(|token| token.created_at < self.since))
            .await
    }

    async fn revoke_all(
        &self,
        tokens: impl IntoIterator<Item = WorkerToken>,
    ) -> Result<(), AccountError> {
        for token in tokens {
            let revoked = self
                .accounts
                .revoke_worker_token(token.id, Timestamp::now());
            revoked.await?;
        }
        Ok(())
    }

    /// Returns the valid tokens, oldest first.
    async fn valid(&self) -> Result<Vec<WorkerToken>, AccountError> {
        let all = self.accounts.worker_tokens(Some(&self.account)).await?;
        let tokens = all.into_iter().map(|(token, _)| token);
        let of_it = tokens.filter(|token| {
            token.service == self.service
                && token.revoked_at.is_none()
                && TOKEN_NAMES.contains(&&*token.name)
        });
        Ok(of_it.collect())
    }
}

/// Reads a dataset, also as collections if this is asked for.
fn read(
    source: DatasetReader,
    bounds: DatasetLimits,
    (holds, in_collections): (ContentKind, bool),
) -> Result<SentDataset, String> {
    let mut bytes = Vec::new();
    let taken = source.take(MAX_CONTENT_BYTES + 1).read_to_end(&mut bytes);
    taken.map_err(|error| format!("cannot read the dataset: {error}"))?;
    if bytes.len() as u64 > MAX_CONTENT_BYTES {
        return Err(format!(
            "the dataset exceeds {MAX_CONTENT_BYTES} bytes, the most that is sent to a worker; remove rows"
        ));
    }
    let collections = in_collections.then(|| collections(&bytes, bounds, holds));
    Ok(SentDataset {
        collections: collections.transpose()?,
        uploaded: payload(Bytes::from(bytes), None),
    })
}

/// Returns texts and their labels in the types of the platform's SDKs: `TextsCollection` and `ItemsCollection`.
fn collections(
    bytes: &[u8],
    bounds: DatasetLimits,
    holds: ContentKind,
) -> Result<(PayloadProto, PayloadProto), String> {
    if holds != ContentKind::Text {
        let message = "the service's workers train on texts only, and the dataset has pictures";
        return Err(message.to_owned());
    }
    let changed = |error: RowError| match error {
        RowError::Row(fault) | RowError::End(fault) => fault.to_string(),
        RowError::Read(error) => error.to_string(),
    };
    let (mut texts, mut labels) = (Vec::new(), Vec::new());
    for row in Rows::new(bytes, bounds).map_err(changed)? {
        let row = row.map_err(changed)?;
        let items = row.labels.all().iter().map(|label| json!({"value": label}));
        labels.push(json!({"items": items.collect::<Vec<_>>()}));
        texts.push(row.content);
    }
    let json = |value: Value| payload(value.to_string().into(), None);
    Ok((
        json(json!({"texts": texts})),
        json(json!({"items_list": labels})),
    ))
}
