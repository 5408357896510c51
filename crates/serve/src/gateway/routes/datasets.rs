//! Routes for datasets: upload, list, read, delete.

use std::io;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{self, FromRequestParts as _, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;
use utoipa::openapi::Required;
use utoipa::{IntoParams, ToSchema};

use super::super::Gateway;
use super::super::auth::Caller;
use super::super::body::{IncomingBody, receive_file};
use super::super::error::GatewayError;
use super::super::extract::{InPath, InQuery};
use super::super::file_form::{boundary, disposition, form_of, malformed, plain_name};
use super::operation::{BodySchema, RouteOperation};
use super::path::Routes;
use crate::account::{AccountId, Permission, number};
use crate::database::Timestamp;
use crate::task::{FileKind, StoredContent, Upload};
use crate::train::dataset::{DatasetError, DatasetFault, DatasetSummary, check, pieces};
use crate::train::{Dataset, DatasetDeletion, DatasetId, NewDataset};

/// Maximum length of a name or description, in characters.
const MAX_TEXT_LENGTH: usize = 1000;

/// Name of the form part that holds a dataset.
const FILE_PART: &str = "file";

/// Maximum overhead of a form around its file, in bytes.
const MAX_FORM_OVERHEAD_BYTES: u64 = 64 << 10;

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    let text = BodySchema::plain::<String>;
    let operations = [
        RouteOperation::post("/account/{account}/dataset/raw", "uploadDataset", upload)
            .about(
                "Upload a dataset, as the part `file` of a form or as the body itself. It is \
                 checked while it\narrives; errors name their line.",
            )
            .named::<String>("account", "The dataset's account: its name or number")
            .with::<UploadParameters>()
            .takes_any_of(
                Some(Required::True),
                Some(
                    "JSON lines of `{\"text\": …, \"label\": …}` or `{\"image_base64\": …, \
                     \"label\": …}`, or CSV with such columns",
                ),
                [
                    ("multipart/form-data", BodySchema::of::<DatasetForm>()),
                    ("application/jsonl", text()),
                    ("text/csv", text()),
                ],
            )
            .answers("The dataset", BodySchema::of::<DatasetData>())
            .refuses("The dataset was refused: `args.faults` lists its errors")
            .breaks("The dataset could not be stored"),
        RouteOperation::get("/account/{account}/dataset", "listDatasets", list)
            .about("List the datasets of an account.")
            .named::<String>("account", "The datasets' account: its name or number")
            .answers("Datasets, oldest first", BodySchema::list::<DatasetData>())
            .fails("The datasets could not be read"),
        RouteOperation::get("/account/{account}/dataset/{dataset}", "readDataset", read)
            .about("Read a dataset.")
            .with::<DatasetPath>()
            .answers("The dataset", BodySchema::of::<DatasetData>())
            .fails("The dataset could not be read"),
        RouteOperation::delete(
            "/account/{account}/dataset/{dataset}",
            "deleteDataset",
            delete,
        )
        .about("Delete a dataset.")
        .with::<DatasetPath>()
        .succeeds("The dataset is deleted")
        .refuses("The request was refused: 409 while a job needs the dataset")
        .breaks("The dataset could not be deleted"),
        RouteOperation::get(
            "/account/{account}/dataset/{dataset}/content",
            "datasetContent",
            content,
        )
        .about("Download the content of a dataset, as it was uploaded.")
        .with::<DatasetPath>()
        .responds(
            "200",
            "The content; the file's name is in the header Content-Disposition",
            [
                ("application/jsonl", text()),
                ("text/csv; charset=utf-8", text()),
            ],
        )
        .fails("The dataset could not be read"),
    ];
    Routes::new("training", &["key"]).add_all(operations)
}

/// Properties of a new dataset.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
struct UploadParameters {
    /// Name of the dataset; default: the file's name.
    #[param(nullable = false, max_length = 1000)]
    name: Option<String>,
    /// Description of the dataset.
    #[param(nullable = false, max_length = 1000)]
    description: Option<String>,
    /// Data type, as the owner calls it.
    #[param(nullable = false, max_length = 1000)]
    data_type: Option<String>,
    /// Access mode, as the owner calls it. Only the owner's account has access, whatever its value.
    #[param(nullable = false, max_length = 1000)]
    access_mode: Option<String>,
}

/// A form with a dataset.
#[derive(ToSchema)]
#[expect(
    dead_code,
    reason = "it only describes the document; the form is parsed part by part"
)]
struct DatasetForm {
    /// The dataset: JSON lines or CSV, UTF-8.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

/// A dataset.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct DatasetData {
    id: DatasetIdData,
    name: String,
    description: String,
    data_type: String,
    access_mode: String,
    /// `jsonl` or `csv`.
    format: &'static str,
    /// `text` or `image`.
    holds: &'static str,
    rows: u64,
    /// Number of rows of each label.
    #[schema(value_type = Object)]
    labels: std::collections::BTreeMap<String, u64>,
    /// True if a row may have several labels.
    multi_label: bool,
    /// Size of the content, in bytes.
    size: u64,
    /// ISO 8601, UTC.
    #[schema(format = DateTime)]
    created_at: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = DatasetId)]
struct DatasetIdData {
    account_id: i64,
    dataset_id: i64,
}

/// The dataset in a path.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct DatasetPath {
    /// Account of the dataset: name or number
    account: String,
    /// Number of the dataset
    #[param(value_type = i64)]
    dataset: String,
}

impl From<Dataset> for DatasetData {
    fn from(dataset: Dataset) -> Self {
        let of = dataset.is;
        Self {
            id: DatasetIdData {
                account_id: of.account.0,
                dataset_id: dataset.id.0,
            },
            name: of.name,
            description: of.description,
            data_type: of.data_type,
            access_mode: of.access_mode,
            format: of.format.name(),
            holds: match of.summary.holds {
                crate::service::ContentKind::Text => "text",
                crate::service::ContentKind::Image => "image",
            },
            rows: of.summary.rows,
            labels: of.summary.labels,
            multi_label: of.summary.multi_label,
            size: of.size,
            created_at: dataset.created_at.to_iso(),
        }
    }
}

async fn upload(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(account): InPath<String>,
    request: extract::Request,
) -> Result<Json<DatasetData>, GatewayError> {
    let own = caller.require_own(Permission::Write, &gateway, &account)?;
    let (mut parts, body) = request.into_parts();
    let query = InQuery::<UploadParameters>::from_request_parts(&mut parts, &gateway).await;
    let InQuery(parameters) = query?;
    let texts = [
        ("name", &parameters.name),
        ("description", &parameters.description),
        ("dataType", &parameters.data_type),
        ("accessMode", &parameters.access_mode),
    ];
    for (place, text) in texts {
        if text
            .as_ref()
            .is_some_and(|text| text.chars().count() > MAX_TEXT_LENGTH)
        {
            let message = format!("expected at most {MAX_TEXT_LENGTH} characters");
            return Err(GatewayError::bad_request(message).with("place", place));
        }
    }
    let store = gateway.jobs.store();
    let most = gateway.settings.training.datasets;
    if store.datasets(Some(own)).await?.len() >= most {
        let message = format!("the account has reached its limit of {most} datasets; delete one");
        return Err(GatewayError::conflict("TOO_MANY_DATASETS", message));
    }
    let boundary = boundary(&parts.headers)?;
    let bounds = gateway.jobs.bounds();
    let room = gateway.room(own).await?.filter(|room| *room < bounds.bytes);
    let most = room.unwrap_or(bounds.bytes);
    let bytes = usize::try_from(most.saturating_add(MAX_FORM_OVERHEAD_BYTES)).unwrap_or(usize::MAX);
    let request = extract::Request::from_parts(parts, body);
    let stored = async {
        let arriving = receive_file(&gateway, request, bytes)?;
        match boundary {
            Some(boundary) => from_form(&gateway, own, arriving, boundary).await,
            None => from_body(&gateway, own, arriving).await,
        }
    };
    let stored = stored.await.map_err(|error| match room {
        Some(room) if error.status == StatusCode::PAYLOAD_TOO_LARGE => {
            let limit = gateway.settings.limits.stored_bytes;
            GatewayError::too_much_stored(limit - room, limit)
        }
        _ => error,
    })?;
    let blob = stored.blob.clone();
    if let Err(error) = gateway.check_room_for(own, stored.size).await {
        gateway.blobs.delete_file(&blob).await;
        return Err(error);
    }
    let new = stored.named(own, parameters);
    match store.create_dataset(new, Timestamp::now()).await {
        Ok(dataset) => {
            gateway.on_disk.forget(own);
            Ok(Json(dataset.into()))
        }
        Err(error) => {
            gateway.blobs.delete_file(&blob).await;
            Err(error.into())
        }
    }
}

async fn list(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(account): InPath<String>,
) -> Result<Json<Vec<DatasetData>>, GatewayError> {
    let own = caller.require_own(Permission::Read, &gateway, &account)?;
    let datasets = gateway.jobs.store().datasets(Some(own)).await?;
    Ok(Json(datasets.into_iter().map(DatasetData::from).collect()))
}

async fn read(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<DatasetPath>,
) -> Result<Json<DatasetData>, GatewayError> {
    let own = caller.require_own(Permission::Read, &gateway, &path.account)?;
    Ok(Json(find(&gateway, own, &path.dataset).await?.into()))
}

async fn content(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<DatasetPath>,
) -> Result<Response, GatewayError> {
    let own = caller.require_own(Permission::Read, &gateway, &path.account)?;
    let dataset = find(&gateway, own, &path.dataset).await?;
    let of = &dataset.is;
    let content = gateway.blobs.stream_file(&of.blob, of.size).await?;
    let headers = [
        (header::CONTENT_TYPE, of.format.media_type().to_owned()),
        (header::CONTENT_LENGTH, of.size.to_string()),
        (header::CONTENT_DISPOSITION, disposition(&of.file_name)),
    ];
    Ok((headers, Body::from_stream(content)).into_response())
}

async fn delete(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<DatasetPath>,
) -> Result<StatusCode, GatewayError> {
    let own = caller.require_own(Permission::Write, &gateway, &path.account)?;
    let dataset = find(&gateway, own, &path.dataset).await?;
    match gateway.jobs.store().delete_dataset(dataset.id).await? {
        DatasetDeletion::Done(dataset) => {
            gateway.blobs.delete_file(&dataset.is.blob).await;
            gateway.on_disk.forget(own);
            Ok(StatusCode::OK)
        }
        DatasetDeletion::Unknown => Err(GatewayError::no_entity("dataset", &path.dataset)),
        DatasetDeletion::Needed(job) => {
            let message = format!(
                "job {} needs the dataset; wait for its end or cancel it (POST …/job/{}/cancel)",
                job.0, job.0
            );
            Err(GatewayError::conflict("DATASET_IS_NEEDED", message))
        }
    }
}

/// Finds an account's dataset by its number.
async fn find(gateway: &Gateway, own: AccountId, id: &str) -> Result<Dataset, GatewayError> {
    let found = match number(id) {
        Some(number) => gateway.jobs.store().dataset(DatasetId(number)).await?,
        None => None,
    };
    let found = found.filter(|found| found.is.account == own);
    found.ok_or_else(|| GatewayError::no_entity("dataset", id))
}

/// An uploaded dataset that has no record yet.
struct UploadedDataset {
    blob: String,
    size: u64,
    sha256: [u8; 32],
    summary: DatasetSummary,
    file_name: Option<String>,
}

impl UploadedDataset {
    fn named(self, account: AccountId, parameters: UploadParameters) -> NewDataset {
        let format = self.summary.format;
        let file_name = self.file_name.filter(|name| !name.is_empty());
        let name = parameters.name.filter(|name| !name.trim().is_empty());
        let name = name.or_else(|| file_name.clone());
        NewDataset {
            account,
            name: name.unwrap_or_else(|| "dataset".to_owned()),
            description: parameters.description.unwrap_or_default(),
            data_type: parameters.data_type.unwrap_or_default(),
            access_mode: parameters.access_mode.unwrap_or_default(),
            file_name: file_name.unwrap_or_else(|| format!("dataset.{}", format.name())),
            format,
            summary: self.summary,
            blob: self.blob,
            size: self.size,
            sha256: self.sha256,
        }
    }
}

/// A dataset that is written to the blob store and checked at the same time.
struct DatasetUpload {
    blob: String,
    upload: Upload,
    sender: Sender<io::Result<Bytes>>,
    checked: JoinHandle<Result<DatasetSummary, DatasetError>>,
}

impl DatasetUpload {
    fn begin(gateway: &Gateway, account: AccountId) -> Result<Self, GatewayError> {
        let id = gateway.ids.next(Timestamp::now());
        let blob = gateway.blobs.file_name(FileKind::Dataset, id);
        let memory = gateway.upload_memory(account)?;
        let bounds = gateway.jobs.bounds();
        let (sender, reader) = pieces();
        Ok(Self {
            upload: gateway.blobs.upload_file(&blob, memory),
            blob,
            sender,
            checked: tokio::task::spawn_blocking(move || check(reader, bounds)),
        })
    }

    /// Adds a piece. Returns `false` if the dataset is already known to be invalid.
    async fn push(&mut self, piece: Bytes) -> Result<bool, GatewayError> {
        if self.sender.send(Ok(piece.clone())).await.is_err() {
            return Ok(false);
        }
        self.upload.push(piece).await?;
        Ok(true)
    }

    async fn finish(self, file_name: Option<String>) -> Result<UploadedDataset, GatewayError> {
        drop(self.sender);
        let checked = self.checked.await;
        let checked = checked.map_err(|error| {
            let error: &dyn std::fmt::Display = &error;
            internal(error)
        })?;
        let summary = checked.map_err(rejected)?;
        let StoredContent::Blob { size, sha256 } = self.upload.finish().await? else {
            return Err(internal(&"the upload is not a blob"));
        };
        Ok(UploadedDataset {
            blob: self.blob,
            size,
            sha256,
            summary,
            file_name,
        })
    }
}

fn internal(detail: &dyn std::fmt::Display) -> GatewayError {
    let status = StatusCode::INTERNAL_SERVER_ERROR;
    GatewayError::new(status, "INTERNAL_ERROR", "the dataset could not be checked").because(detail)
}

async fn from_body(
    gateway: &Gateway,
    account: AccountId,
    mut arriving: IncomingBody,
) -> Result<UploadedDataset, GatewayError> {
    let mut passing = DatasetUpload::begin(gateway, account)?;
    while let Some(piece) = arriving.next().await? {
        if !passing.push(piece).await? {
            break;
        }
    }
    passing.finish(None).await
}

/// Reads the part `file` of a form and skips the others.
async fn from_form(
    gateway: &Gateway,
    account: AccountId,
    arriving: IncomingBody,
    boundary: String,
) -> Result<UploadedDataset, GatewayError> {
    let mut form = form_of(arriving, boundary);
    while let Some(mut part) = form.next_field().await.map_err(malformed)? {
        if part.name() != Some(FILE_PART) {
            continue;
        }
        let file_name = part.file_name().map(plain_name);
        let mut passing = DatasetUpload::begin(gateway, account)?;
        while let Some(piece) = part.chunk().await.map_err(malformed)? {
            if !passing.push(piece).await? {
                break;
            }
        }
        return passing.finish(file_name).await;
    }
    let message = format!("the form has no part `{FILE_PART}`");
    Err(GatewayError::bad_request(message).with("place", FILE_PART))
}

fn rejected(rejected: DatasetError) -> GatewayError {
    let message = format!("invalid dataset: {rejected}");
    match rejected {
        DatasetError::Wrong { faults, .. } => {
            let told = |fault: &DatasetFault| json!({"line": fault.line, "reason": fault.reason});
            let faults: Vec<_> = faults.iter().map(told).collect();
            GatewayError::bad_request(message).with("faults", faults)
        }
        DatasetError::Read(_) => GatewayError::bad_request(message),
    }
}
