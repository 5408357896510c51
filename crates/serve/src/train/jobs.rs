//! Scheduler of training jobs: runs waiting jobs in the order of their arrival, one at a time by
//! default, and serves the results.
//!
//! Invariant: a job in the state `SUCCESS` is being served. A job that was running when the server
//! stopped restarts from the beginning, and nothing of its interrupted run is visible.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::away::{AwayTraining, JobTokens};
use super::dataset::DatasetLimits;
use super::derived::DerivedServices;
use super::error::TrainError;
use super::jobs_options::{JobsOptions, MAX_SERVE_WAIT, MAX_TRAINING_ATTEMPTS};
use super::options::FitOptions;
use super::package::model_token;
use super::progress::TrainingProgress;
use super::record::{Dataset, Derived, Job, JobId, JobState};
use super::store::TrainingStore;
use super::trainer::{Trained, Training};
use crate::account::AccountId;
use crate::database::{DatabaseResult, Timestamp, make_directory};
use crate::service::{
    CallError, Device, PackageDirectory, Service, ServiceKind, strip_directories,
};

/// Interval between checks for waiting jobs when no wakeup arrives.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Interval between updates of a job's stored progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

/// Directory of packages in progress.
pub(crate) const IN_PROGRESS_DIRECTORY: &str = "making";

/// The training jobs of a server.
pub struct Jobs {
    shared: Arc<SharedJobs>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

struct SharedJobs {
    options: JobsOptions,
    wake: Notify,
    stop: watch::Sender<bool>,
    /// Cancellation signals of the running jobs.
    running: Mutex<HashMap<JobId, Arc<Notify>>>,
}

/// How the run of a job ended.
enum JobRunEnd {
    Done(Result<String, String>),
    Canceled,
    /// The server stops.
    Stopped,
}

/// Returns the directory of the results of all accounts in a data directory.
pub fn results_directory(data: &Path) -> PathBuf {
    data.join("trained")
}

/// Returns the directory of an account's results.
pub fn directory_of(all: &Path, account: AccountId) -> PathBuf {
    all.join(account.0.to_string())
}

/// Returns the same as a directory of a catalog, creating it if it is missing.
pub fn package_directory(
    all: &Path,
    owner: AccountId,
    owner_name: &str,
) -> DatabaseResult<PackageDirectory> {
    let path = directory_of(all, owner);
    make_directory(&path)?;
    Ok(PackageDirectory {
        path,
        owner,
        owner_name: owner_name.to_owned(),
        named_by_folders: true,
        left_out: Vec::new(),
    })
}

impl Jobs {
    /// Returns interrupted jobs to the queue and starts to run waiting ones. Must be called on a
    /// tokio runtime.
    pub async fn start(options: JobsOptions) -> DatabaseResult<Arc<Self>> {
        let cut = if options.dispatches {
            let now = Timestamp::now();
            options.store.recover_jobs(options.attempts, now).await?
        } else {
            0
        };
        if cut > 0 {
            tracing::warn!(
                jobs = cut,
                "recovered training jobs that were running when the server stopped"
            );
        }
        let making = options.directory.join(IN_PROGRESS_DIRECTORY);
        // Packages in progress from an earlier server process.
        if making.exists()
            && let Err(error) = std::fs::remove_dir_all(&making)
        {
            tracing::warn!(%error, path = %making.display(), "cannot remove the files of an interrupted training");
        }
        make_directory(&making)?;
        let shared = Arc::new(SharedJobs {
            options,
            wake: Notify::new(),
            stop: watch::channel(false).0,
            running: Mutex::default(),
        });
        let worker = tokio::spawn(work(Arc::clone(&shared)));
        Ok(Arc::new(Self {
            shared,
            worker: Mutex::new(Some(worker)),
        }))
    }

    /// Returns the store of jobs.
    pub fn store(&self) -> &Arc<dyn TrainingStore> {
        &self.shared.options.store
    }

    /// Returns the table of derived services.
    pub fn derived(&self) -> &DerivedServices {
        &self.shared.options.derived
    }

    /// Returns the directories of an account's packages and of its cached vectors.
    pub fn directories_of(&self, account: AccountId) -> (PathBuf, PathBuf) {
        let options = &self.shared.options;
        let caches = directory_of(&options.cache.path, account);
        (directory_of(&options.directory, account), caches)
    }

    /// Returns the limits on datasets.
    pub fn bounds(&self) -> DatasetLimits {
        self.shared.options.bounds
    }

    /// Adds an account's results to the served catalog.
    pub fn serve_results_of(&self, owner: AccountId, name: &str) -> Result<(), String> {
        self.shared.serve_results_of(owner, name)
    }

    /// Signals that a job was stored.
    pub fn wake(&self) {
        self.shared.wake.notify_one();
    }

    /// Cancels an unfinished job. Returns the job in its resulting state.
    pub async fn cancel(&self, id: JobId) -> DatabaseResult<Option<Job>> {
        let canceled = self.store().cancel_job(id, Timestamp::now()).await?;
        if canceled
            .as_ref()
            .is_some_and(|it| it.state == JobState::Canceled)
            && let Some(running) = self.shared.running().get(&id)
        {
            running.notify_one();
        }
        Ok(canceled)
    }

    /// Stops the scheduler. Running jobs return to the queue for the next start.
    pub async fn stop(&self) {
        self.shared.stop.send_replace(true);
        let worker = self
            .worker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(worker) = worker
            && let Err(error) = worker.await
        {
            tracing::error!(%error, "stopping the training jobs failed");
        }
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.shared.stop.send_replace(true);
    }
}

impl SharedJobs {
    fn running(&self) -> MutexGuard<'_, HashMap<JobId, Arc<Notify>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve_results_of(&self, owner: AccountId, name: &str) -> Result<(), String> {
        let directory = package_directory(&self.options.directory, owner, name);
        let directory = directory.map_err(|error| error.to_string())?;
        self.options.catalog.add_directory(directory)
    }
}

/// Claims and runs jobs until the scheduler is stopped.
async fn work(shared: Arc<SharedJobs>) {
    let mut stop = shared.stop.subscribe();
    let mut running = JoinSet::new();
    loop {
        if shared.options.store.is_shared()
            && let Err(error) = follow_others(&shared).await
        {
            tracing::error!(%error, "cannot look for training jobs of other servers");
        }
        let places = if shared.options.dispatches {
            shared.options.running.max(1)
        } else {
            0
        };
        while running.len() < places {
            match shared.options.store.claim_job(Timestamp::now()).await {
                Ok(Some(job)) => {
                    running.spawn(run(Arc::clone(&shared), job));
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::error!(%error, "cannot claim training jobs");
                    break;
                }
            }
        }
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            Some(_) = running.join_next() => {}
            () = shared.wake.notified() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
    while running.join_next().await.is_some() {}
}

/// Takes over the jobs of servers that are gone, and learns what services others derived.
async fn follow_others(shared: &SharedJobs) -> DatabaseResult<()> {
    let options = &shared.options;
    if options.dispatches {
        let now = Timestamp::now();
        let jobs = options.store.recover_jobs(options.attempts, now).await?;
        if jobs > 0 {
            tracing::warn!(
                jobs,
                "training jobs of a server that is gone return to the queue"
            );
        }
    }
    options.derived.refresh(&*options.store).await
}

/// Runs a job until it is done, canceled or interrupted.
async fn run(shared: Arc<SharedJobs>, job: Job) {
    let canceled = Arc::new(Notify::new());
    shared.running().insert(job.id, Arc::clone(&canceled));
    let (number, service) = (job.id.0, &job.is.service_name);
    tracing::info!(job = number, service, attempt = job.attempt, "training");
    let end = run_until_end(&shared, &job, &canceled).await;
    shared.running().remove(&job.id);
    let is_trained = matches!(end, JobRunEnd::Done(Ok(_)));
    if !is_trained && let Err(error) = revoke_token(&shared, &job).await {
        tracing::error!(job = number, error, "cannot revoke the token of a training");
    }
    let store = &shared.options.store;
    let stored = match end {
        JobRunEnd::Done(end) => {
            match &end {
                Ok(_) => tracing::info!(job = number, service, "trained"),
                Err(error) => tracing::warn!(job = number, service, error, "training failed"),
            }
            let end = end.map_err(|error| without_paths(&shared, &job, error));
            store_end(&**store, &job, end).await
        }
        JobRunEnd::Canceled => {
            tracing::info!(job = number, service, "training canceled");
            Ok(())
        }
        JobRunEnd::Stopped => store.put_back(job.id, job.attempt).await,
    };
    if let Err(error) = stored {
        // The store still considers the job running, so the next start recovers it.
        tracing::error!(job = number, %error, "cannot store the outcome of a training job");
    }
}

/// Stores the outcome of a job, with retries for about 20 seconds.
async fn store_end(
    store: &dyn TrainingStore,
    job: &Job,
    end: Result<String, String>,
) -> DatabaseResult<()> {
    let mut pause = Duration::from_millis(100);
    loop {
        let stored = store.end_job(job.id, job.attempt, end.clone(), Timestamp::now());
        match stored.await {
            Err(error) if pause < Duration::from_secs(20) => {
                tracing::warn!(%error, "cannot store the outcome of a training job; retrying");
                tokio::time::sleep(pause).await;
                pause *= 2;
            }
            stored => return stored.map(drop),
        }
    }
}

/// Revokes the token by which a worker would attach the result of a job that did not succeed.
async fn revoke_token(shared: &SharedJobs, job: &Job) -> Result<(), String> {
    let options = &shared.options;
    let derived = options.derived.get(job.is.service);
    let Some(base) = derived.and_then(|it| base(shared, &it).ok()) else {
        return Ok(());
    };
    if !matches!(base.kind, ServiceKind::Attached(_)) {
        return Ok(());
    }
    let tokens = JobTokens::new(&options.accounts, job);
    tokens.revoke().await.map_err(|error| error.to_string())
}

async fn run_until_end(shared: &SharedJobs, job: &Job, canceled: &Notify) -> JobRunEnd {
    let progress = TrainingProgress::default();
    let mut stop = shared.stop.subscribe();
    let training = train_and_serve(shared, job, &progress);
    tokio::select! {
        done = training => JobRunEnd::Done(done),
        () = store_progress(shared, job, &progress) => JobRunEnd::Canceled,
        () = canceled.notified() => JobRunEnd::Canceled,
        _ = stop.wait_for(|stop| *stop) => JobRunEnd::Stopped,
    }
}

/// Removes the server's directories from an error that clients will read.
fn without_paths(shared: &SharedJobs, job: &Job, error: String) -> String {
    let own = shared.options.directory.join(IN_PROGRESS_DIRECTORY);
    let error = strip_directories(error, &own);
    let derived = shared.options.derived.get(job.is.service);
    match derived.and_then(|derived| base_model(shared, &derived).ok()) {
        Some(device) => device.relative(error),
        None => error,
    }
}

/// Stores the progress of a job. Returns when the job has stopped running.
async fn store_progress(shared: &SharedJobs, job: &Job, progress: &TrainingProgress) {
    let mut noted = 0;
    loop {
        tokio::time::sleep(PROGRESS_INTERVAL).await;
        let now = progress.percentage();
        let store = &shared.options.store;
        match store.progress(job.id, job.attempt, now.max(noted)).await {
            Ok(true) => noted = now,
            Ok(false) => return,
            Err(error) => tracing::warn!(%error, "cannot store the progress of a training job"),
        }
    }
}

/// Trains, publishes the package and waits until it is served. The error is for the user.
async fn train_and_serve(
    shared: &SharedJobs,
    job: &Job,
    progress: &TrainingProgress,
) -> Result<String, String> {
    let options = &shared.options;
    let dataset = options.store.dataset(job.is.dataset).await;
    let dataset = dataset.map_err(|error| error.to_string())?;
    let dataset = dataset.ok_or_else(|| format!("unknown dataset {}", job.is.dataset.0))?;
    let derived = options.derived.get(job.is.service);
    let trainer = match &derived {
        Some(derived) => Some(base(shared, derived)?),
        None => (options.find)(job.is.account, &job.is.service.to_string()),
    };
    if let Some(trainer) = trainer
        && let ServiceKind::Attached(workers) = &trainer.kind
    {
        let away = AwayTraining {
            options,
            job,
            dataset: &dataset,
            is_derived: derived.is_some(),
            progress,
        };
        return away.run(&trainer, workers).await;
    }
    let derived = derived.ok_or("the service is not a derived service")?;
    let made = train(shared, job, (&derived, &dataset), progress).await?;
    serve(shared, &derived, made).await
}

/// Trains on a model of this server.
async fn train(
    shared: &SharedJobs,
    job: &Job,
    (derived, dataset): (&Derived, &Dataset),
    progress: &TrainingProgress,
) -> Result<Trained, String> {
    let options = &shared.options;
    let fit = FitOptions::read_text(&job.is.config).map_err(|refusal| refusal.message)?;
    let aside = options
        .directory
        .join(IN_PROGRESS_DIRECTORY)
        .join(job.id.0.to_string());
    let mut times = 0;
    let name = model_token(&derived.is.name);
    loop {
        let device = base_model(shared, derived)?;
        // Files of an earlier attempt.
        let _ = std::fs::remove_dir_all(&aside);
        let source = (options.open)(dataset.clone()).await?;
        let training = Training {
            device: &device,
            caller: job.is.account,
            name: &name,
            summary: &dataset.is.summary,
            bounds: options.bounds,
            options: &fit,
            cache: Some(&options.cache),
            memory: options.memory,
            progress,
            output_directory: aside.clone(),
        };
        times += 1;
        match training.run(source).await {
            Ok(trained) => return Ok(trained),
            Err(TrainError::Model(CallError::Stopped)) if times < MAX_TRAINING_ATTEMPTS => {
                tracing::info!(
                    job = job.id.0,
                    "the base model was replaced; restarting the training"
                );
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Returns the base of a derived service.
fn base(shared: &SharedJobs, derived: &Derived) -> Result<Arc<Service>, String> {
    let of = &derived.is;
    let shown = base_label(derived);
    let found = (shared.options.find)(of.base_owner, &of.base.to_string());
    let found = found.ok_or_else(|| format!("`{shown}` is no longer served"))?;
    if found.owner != of.owner && !found.settings.public {
        return Err(format!("`{shown}` is no longer public"));
    }
    Ok(found)
}

fn base_label(derived: &Derived) -> String {
    format!("{}/{}", derived.is.base_owner_name, derived.is.base_name)
}

/// Returns the base model of a derived service.
fn base_model(shared: &SharedJobs, derived: &Derived) -> Result<Arc<Device>, String> {
    let device = base(shared, derived)?.device().cloned();
    device.ok_or_else(|| format!("`{}` has no local model to train on", base_label(derived)))
}

/// Publishes a package for the other servers of the database, if there are any. Returns its version.
async fn share(
    shared: &SharedJobs,
    derived: &Derived,
    trained: &Trained,
) -> Result<Option<String>, String> {
    let Some(mirror) = &shared.options.mirror else {
        return Ok(None);
    };
    let of = &derived.is;
    let owner = (of.owner, &*of.owner_name);
    let share = mirror.share(owner, &of.name, trained.directory());
    let version = share.await;
    version
        .map(Some)
        .map_err(|error| format!("cannot share the package with other servers: {error}"))
}

/// Publishes a package and waits until requests reach it.
async fn serve(shared: &SharedJobs, derived: &Derived, trained: Trained) -> Result<String, String> {
    let options = &shared.options;
    let of = &derived.is;
    let find = || (options.find)(of.owner, &of.service.to_string());
    let before = find();
    let place = directory_of(&options.directory, of.owner).join(&of.name);
    let version = share(shared, derived, &trained).await?;
    // Another server may have derived the service: this one has no directory yet.
    shared.serve_results_of(of.owner, &of.owner_name)?;
    let mut changes = options.catalog.changes();
    let metrics = trained.metrics.to_string();
    let (published, shown) = (place.clone(), place.display().to_string());
    let put = tokio::task::spawn_blocking(move || trained.move_to(&published));
    let put = put.await.map_err(|error| error.to_string())?;
    put.map_err(|error| format!("cannot publish the package: {error}"))?;
    if let (Some(mirror), Some(version)) = (&options.mirror, version)
        && let Err(error) = mirror.adopt(of.owner, &of.name, &version)
    {
        // The same package is fetched once.
        tracing::warn!(%error, "cannot record a trained package");
    }
    options.catalog.look_again();
    let is_new = || {
        let now = find().filter(|now| now.device().is_some());
        now.is_some_and(|now| {
            before
                .as_ref()
                .is_none_or(|before| !Arc::ptr_eq(before, &now))
        })
    };
    let served = async {
        while !is_new() {
            if changes.changed().await.is_err() {
                return Err("the server is stopping".to_owned());
            }
        }
        Ok(())
    };
    match tokio::time::timeout(MAX_SERVE_WAIT, served).await {
        Ok(Ok(())) => Ok(metrics),
        Ok(Err(error)) => Err(error),
        Err(_) => {
            let unserved = options.catalog.unserved();
            let reason = unserved
                .iter()
                .find(|it| place.starts_with(&it.path) || it.path == place);
            let reason = reason.map_or("", |it| it.reason.as_str());
            Err(format!("the package at {shown} cannot be served: {reason}"))
        }
    }
}
