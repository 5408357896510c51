//! Training at the request of a gate: an attached package learns from a dataset, and its result is written to a folder.
//!
//! A gate that knows the addition `training` gets an instance of the trained service, too.
//!
//! Invariant: nothing outside the folder is written. What is attached is recorded on disk, and attached again after a
//! restart.

use std::collections::{BTreeMap, HashMap};
use std::io::{Cursor, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;

use super::package::{AttachedPackage, InstancePlace, PackageOptions};
use super::{call_error, failed, refused};
use crate::database::{DataLock, DatabaseError, make_directory};
use crate::service::attached::request_of;
use crate::service::{CallError, Device, Refusal, Service, strip_directories};
use crate::task::TaskFailure;
use crate::train::dataset::{DatasetError, DatasetLimits, DatasetSummary, check};
use crate::train::{FitOptions, TrainError, Trained, Training, TrainingProgress, model_token};
use pkgtool_base::source::bounds;
use pkgtool_gate::instance::AnswerParts;
use pkgtool_gate::protocol::service_to_gate_proto::Body;
use pkgtool_gate::protocol::{
    ApiErrorProto, FitRequestProto, FitResponseProto, FitStatusProto, PayloadProto,
};

/// Name of the file with the attached services.
const RECORD_FILE: &str = ".attached.json";
/// Folder of packages in progress.
const IN_PROGRESS_FOLDER: &str = ".making";
/// Interval between reports of progress.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);
/// Maximum memory of a dataset's vectors, in bytes.
const MAX_VECTOR_BYTES: u64 = 2 << 30;
/// Maximum number of parts of a model's folder, and the length of each, in bytes.
const MAX_FOLDERS: usize = 8;
const MAX_FOLDER_BYTES: usize = 100;
/// Maximum number of trained services.
const MAX_SERVICES: usize = 1000;

/// The services that the packages of this process trained.
pub struct TrainedServices {
    packages: PackageOptions,
    folder: PathBuf,
    attached: Mutex<TrainedInstances>,
    /// One training runs at a time.
    turn: Semaphore,
    /// Keeps other processes out of the folder.
    _lock: DataLock,
}

#[derive(Default)]
struct TrainedInstances {
    all: BTreeMap<TrainedKey, (AttachedPackage, AttachedRecord)>,
    /// Instances that finish their requests.
    endings: JoinSet<()>,
}

/// The numbers of an account and of its service at the gates.
type TrainedKey = (i64, i64);

/// A trained service, as it is recorded on disk.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct AttachedRecord {
    account: i64,
    model: i64,
    token: String,
    folder: String,
}

impl TrainedServices {
    /// Opens a folder, and attaches the services that were trained there. Returns `None` if another process has opened
    /// it.
    pub async fn open(
        folder: PathBuf,
        packages: PackageOptions,
    ) -> Result<Option<Arc<Self>>, String> {
        make_directory(&folder).map_err(|error| error.to_string())?;
        // The operator chose it, whatever links lead there.
        bounds::choose(&folder);
        let making = folder.join(IN_PROGRESS_FOLDER);
        let lock = match DataLock::take(&making) {
            Ok(lock) => lock,
            Err(DatabaseError::InUse { .. }) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let entries = std::fs::read_dir(&making).map_err(|error| disk(&making, &error))?;
        for entry in entries.flatten().filter(|entry| entry.path().is_dir()) {
            // A package in progress from an earlier process.
            remove(&entry.path());
        }
        let trained = Self {
            packages,
            folder,
            attached: Mutex::default(),
            turn: Semaphore::new(1),
            _lock: lock,
        };
        for record in trained.records()? {
            let folder = record.folder.clone();
            if let Err(reason) = trained.attach_again(record).await {
                tracing::warn!(folder, reason, "cannot attach a trained service");
            }
        }
        Ok(Some(Arc::new(trained)))
    }

    /// Lets the requests of all services end.
    pub async fn stop(&self) {
        let mut attached = self.attached.lock().await;
        let all = std::mem::take(&mut attached.all);
        for (package, _) in all.into_values() {
            attached.endings.spawn(package.end());
        }
        while attached.endings.join_next().await.is_some() {}
    }

    /// Trains at the request of a gate. Returns the last answer.
    pub(super) async fn fit(
        &self,
        service: &Service,
        asked: FitRequestProto,
        parts: &AnswerParts,
    ) -> Result<Body, ApiErrorProto> {
        let device = service.device().filter(|device| device.is_trainable());
        let device = device.ok_or_else(|| {
            refused(format!(
                "`{}` cannot be trained: it embeds neither texts nor images",
                service.name
            ))
        })?;
        let folder = model_folder(&asked.model_dir).map_err(refused)?;
        let (dataset, config) = content(asked.train_data, asked.targets_data, asked.config)?;
        let options = FitOptions::read_text(&config);
        let options = options.map_err(|refusal| call_error(refusal.into()))?;
        let held = self
            .packages
            .memory
            .take(self.packages.owner, dataset.len());
        let _held = held.map_err(|error| call_error(CallError::OutOfMemory(error)))?;
        let target = asked.target_service_info.unwrap_or_default();
        // The semaphore is never closed.
        let _turn = self.turn.acquire().await.ok();
        let trained = self
            .train(device, (dataset, &options), &target.model_name, parts)
            .await?;
        let place = self.folder.join(&folder);
        self.publish(&trained, &place)
            .map_err(|reason| self.broken(reason))?;
        if parts.may_attach_trained() && !target.auth_token.is_empty() {
            let record = AttachedRecord {
                account: target.account_id,
                model: target.model_id,
                token: target.auth_token,
                folder,
            };
            let attached = self.attach(record).await;
            attached.map_err(|reason| self.broken(reason))?;
        }
        Ok(Body::Fit(FitResponseProto {
            metrics: trained.metrics.to_string(),
        }))
    }

    async fn train(
        &self,
        device: &Device,
        (dataset, options): (Bytes, &FitOptions),
        name: &str,
        parts: &AnswerParts,
    ) -> Result<Trained, ApiErrorProto> {
        let limits = DatasetLimits::default();
        let reading = dataset.clone();
        let summary = tokio::task::spawn_blocking(move || check(&reading[..], limits));
        let summary: DatasetSummary = summary
            .await
            .map_err(|error| self.broken(error.to_string()))?
            .map_err(|error: DatasetError| refused(error.to_string()))?;
        let progress = TrainingProgress::default();
        let training = Training {
            device,
            caller: self.packages.owner,
            name: &model_token(name),
            summary: &summary,
            bounds: limits,
            options,
            cache: None,
            memory: MAX_VECTOR_BYTES,
            progress: &progress,
            output_directory: self.making(),
        };
        let run = training.run(Box::new(Cursor::new(dataset)));
        tokio::pin!(run);
        let mut told = 0;
        loop {
            tokio::select! {
                trained = &mut run => return trained.map_err(|error| self.training_error(error)),
                () = tokio::time::sleep(PROGRESS_INTERVAL) => {
                    let percentage = i32::from(progress.percentage());
                    if percentage != told {
                        told = percentage;
                        parts.send(Body::FitStatus(FitStatusProto { percentage })).await;
                    }
                }
            }
        }
    }

    fn training_error(&self, error: TrainError) -> ApiErrorProto {
        match error {
            TrainError::Model(error) => call_error(error),
            TrainError::Package(_) | TrainError::Other(_) => self.broken(error.to_string()),
            error => refused(error.to_string()),
        }
    }

    /// Returns an error without the paths of this machine.
    fn broken(&self, reason: String) -> ApiErrorProto {
        tracing::error!(reason, "a training failed");
        let message = strip_directories(reason, &self.folder);
        failed(TaskFailure::new(500, "INTERNAL_ERROR", message), None)
    }

    /// Returns a folder that no other training of this process has.
    fn making(&self) -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.folder
            .join(IN_PROGRESS_FOLDER)
            .join(number.to_string())
    }

    /// Attaches a trained service in place of what its gate had before, and records it.
    async fn attach(&self, record: AttachedRecord) -> Result<(), String> {
        let mut attached = self.attached.lock().await;
        let (key, package) = self.load(&record).await?;
        if attached.all.len() >= MAX_SERVICES && !attached.all.contains_key(&key) {
            package.end().await;
            return Err(format!(
                "{MAX_SERVICES} trained services are attached, as many as may be"
            ));
        }
        let attachment = package.attachment();
        let folder = record.folder.clone();
        if let Some((old, before)) = attached.all.insert(key, (package, record)) {
            let unused = (before.folder != folder).then(|| self.folder.join(before.folder));
            attached.endings.spawn(async move {
                old.end_after(attachment).await;
                if let Some(unused) = unused {
                    remove(&unused);
                }
            });
        }
        while attached.endings.try_join_next().is_some() {}
        self.record(&attached.all)
    }

    async fn attach_again(&self, record: AttachedRecord) -> Result<(), String> {
        model_folder(&record.folder)?;
        let (key, package) = self.load(&record).await?;
        self.attached
            .lock()
            .await
            .all
            .insert(key, (package, record));
        Ok(())
    }

    async fn load(&self, record: &AttachedRecord) -> Result<(TrainedKey, AttachedPackage), String> {
        let folder = self.folder.join(&record.folder);
        let catalog = self.packages.load(&folder, None).await?;
        let service = self.packages.found(&catalog, None)?;
        let gates = self.packages.settings.gates.clone();
        let place = InstancePlace {
            gates,
            token: record.token.clone(),
        };
        let package = self.packages.attach(catalog, &service, place);
        Ok(((record.account, record.model), package))
    }

    fn publish(&self, trained: &Trained, place: &Path) -> Result<(), String> {
        let parent = place.parent().unwrap_or(&self.folder);
        std::fs::create_dir_all(parent).map_err(|error| disk(parent, &error))?;
        trained.move_to(place).map_err(|error| error.to_string())
    }

    fn records(&self) -> Result<Vec<AttachedRecord>, String> {
        let path = self.folder.join(RECORD_FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(disk(&path, &error)),
        };
        let records = serde_json::from_slice(&text);
        records.map_err(|error| format!("{}: {error}; remove the file", path.display()))
    }

    /// Writes the file that lists the attached services. It has secrets.
    fn record(
        &self,
        all: &BTreeMap<TrainedKey, (AttachedPackage, AttachedRecord)>,
    ) -> Result<(), String> {
        let path = self.folder.join(RECORD_FILE);
        let records: Vec<&AttachedRecord> = all.values().map(|(_, record)| record).collect();
        let text = serde_json::to_vec(&records).map_err(|error| error.to_string())?;
        let written = || -> std::io::Result<()> {
            let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
            file.write_all(&text)?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            Ok(())
        };
        written().map_err(|error| disk(&path, &error))
    }
}

/// Returns the dataset of a request, as JSON lines or CSV, and its config.
fn content(
    train_data: Option<PayloadProto>,
    targets_data: Option<PayloadProto>,
    config: Option<PayloadProto>,
) -> Result<(Bytes, String), ApiErrorProto> {
    let of = |data, config| {
        let request = request_of(data, config, &HashMap::new());
        request.map_err(|refusal| call_error(refusal.into()))
    };
    let request = of(train_data, config)?;
    let config = request.config.unwrap_or_else(|| "{}".to_owned());
    if targets_data.is_none() {
        return Ok((request.body, config));
    }
    let targets = of(targets_data, None)?.body;
    let rows = rows(&request.body, &targets).map_err(|refusal| call_error(refusal.into()))?;
    Ok((rows, config))
}

/// Returns the rows of texts and their labels in the types of the platform's SDKs.
fn rows(texts: &[u8], labels: &[u8]) -> Result<Bytes, Refusal> {
    #[derive(Deserialize)]
    struct TextsCollection {
        texts: Vec<String>,
    }
    #[derive(Deserialize)]
    struct ItemsCollection {
        items_list: Vec<Items>,
    }
    #[derive(Deserialize)]
    struct Items {
        items: Vec<Item>,
    }
    #[derive(Deserialize)]
    struct Item {
        value: String,
    }
    let invalid = |name: &str, form: &str, error: &dyn std::fmt::Display| {
        Refusal::at(name, format!("expected {form}: {error}"))
    };
    let texts: TextsCollection = serde_json::from_slice(texts)
        .map_err(|error| invalid("trainData", "{\"texts\": [\"…\"]}", &error))?;
    let form = "{\"items_list\": [{\"items\": [{\"value\": \"…\"}]}]}";
    let labels: ItemsCollection =
        serde_json::from_slice(labels).map_err(|error| invalid("targetsData", form, &error))?;
    let (texts, labels) = (texts.texts, labels.items_list);
    if texts.len() != labels.len() {
        let message = format!(
            "has labels of {} texts, and trainData has {} texts",
            labels.len(),
            texts.len()
        );
        return Err(Refusal::at("targetsData", message));
    }
    let has_one = labels.iter().all(|it| it.items.len() == 1);
    let mut rows = Vec::new();
    for (text, labels) in texts.into_iter().zip(labels) {
        let mut labels = labels.items.into_iter().map(|item| item.value);
        let row = match labels.next() {
            Some(label) if has_one => json!({"text": text, "label": label}),
            first => {
                json!({"text": text, "labels": first.into_iter().chain(labels).collect::<Vec<_>>()})
            }
        };
        rows.extend_from_slice(row.to_string().as_bytes());
        rows.push(b'\n');
    }
    Ok(rows.into())
}

/// Returns the folder of a result, which is below the folder of all.
fn model_folder(named: &str) -> Result<String, String> {
    let parts: Vec<&str> = named.split('/').filter(|part| !part.is_empty()).collect();
    let is_plain = |part: &&str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        part.len() <= MAX_FOLDER_BYTES && !part.starts_with('.') && part.bytes().all(plain)
    };
    if parts.is_empty() || parts.len() > MAX_FOLDERS || !parts.iter().all(is_plain) {
        return Err(format!(
            "modelDir is {}: expected 1 to {MAX_FOLDERS} names of letters, digits, `.`, `_` and `-`, separated by `/`",
            crate::service::json::shown(named)
        ));
    }
    Ok(parts.join("/"))
}

fn remove(folder: &Path) {
    if let Err(error) = std::fs::remove_dir_all(folder) {
        tracing::warn!(%error, folder = %folder.display(), "cannot remove the files of an earlier training");
    }
}

fn disk(path: &Path, error: &dyn std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}
