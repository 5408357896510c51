//! Routes for files of batches: upload, list, read, delete.

use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequestParts as _, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use multer::Field;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::openapi::Required;
use utoipa::{IntoParams, ToSchema};

use super::super::super::Gateway;
use super::super::super::auth::AdapterCaller;
use super::super::super::body::receive_file;
use super::super::super::error::GatewayError;
use super::super::super::extract::{InPath, InQuery, digits};
use super::super::super::file_form::{boundary, disposition, form_of, malformed, plain_name};
use super::super::operation::{BodySchema, RouteOperation};
use super::super::path::Routes;
use super::listed::{batch_id, cut, file_id, page, read_file_id, seconds};
use crate::account::{AccountId, Permission, number};
use crate::batch::{FileDeletion, FilePurpose, NewFile, StoredFile};
use crate::database::Timestamp;
use crate::task::{FileKind, StoredContent, Upload};

/// Maximum overhead of a form around its file, in bytes.
const MAX_FORM_OVERHEAD_BYTES: u64 = 64 << 10;

/// Maximum length of a form's short parts, in bytes.
const MAX_PART_BYTES: usize = 1024;

/// Returns the routes, without a prefix.
pub(super) fn routes() -> Routes {
    let id = |operation: RouteOperation| operation.named::<String>("file", "The file's id");
    let form = BodySchema::of::<FileForm>();
    let operations = [
        RouteOperation::post("/files", "uploadFile", upload)
            .about("Upload the requests of a batch.")
            .takes_any_of(Some(Required::True), None, [("multipart/form-data", form)])
            .answers("The file", BodySchema::of::<FileData>())
            .fails("The file could not be stored"),
        RouteOperation::get("/files", "listFiles", list)
            .about("List files.")
            .with::<FileParameters>()
            .answers("Files", BodySchema::of::<FileList>())
            .fails("The files could not be read"),
        id(RouteOperation::get("/files/{file}", "readFile", read))
            .about("Read a file's properties.")
            .answers("The file", BodySchema::of::<FileData>())
            .fails("The file could not be read"),
        id(RouteOperation::delete(
            "/files/{file}",
            "deleteFile",
            delete,
        ))
        .about("Delete a file.")
        .answers("The file is deleted", BodySchema::plain::<Value>())
        .refuses("The request was refused: 409 while a batch needs the file")
        .breaks("The file could not be deleted"),
        id(RouteOperation::get(
            "/files/{file}/content",
            "fileContent",
            content,
        ))
        .about("Download a file.")
        .responds(
            "200",
            "The content",
            [("application/jsonl", BodySchema::plain::<String>())],
        )
        .fails("The file could not be read"),
    ];
    Routes::new("adapters", &["bearer", "key"]).add_all(operations)
}

/// A form with a file.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "it only describes the document; the form is parsed part by part"
)]
struct FileForm {
    #[schema(inline)]
    purpose: UploadPurpose,
    /// One request per line: `{"custom_id": …, "method": "POST", "url": "/v1/chat/completions",
    /// "body": {…}}`.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
    /// Seconds until the file is deleted.
    #[serde(rename = "expires_after[seconds]")]
    #[schema(minimum = 1, nullable = false)]
    expires_after: Option<u32>,
}

/// Parameters of a list of files.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FileParameters {
    /// Only files of this purpose.
    #[param(nullable = false, inline)]
    purpose: Option<ListedPurpose>,
    /// Files after this one.
    #[param(nullable = false)]
    after: Option<String>,
    /// Maximum number of files.
    #[param(nullable = false, minimum = 1, maximum = 10_000)]
    #[serde(default, deserialize_with = "digits")]
    limit: Option<usize>,
    /// Newest first (`desc`, the default) or oldest first.
    #[param(nullable = false, inline)]
    order: Option<ListOrder>,
}

/// The purpose of an upload.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum UploadPurpose {
    Batch,
}

/// The purpose of listed files.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ListedPurpose {
    Batch,
    BatchOutput,
}

/// The order of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ListOrder {
    Asc,
    Desc,
}

/// A file.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = File)]
struct FileData {
    id: String,
    /// `file`.
    object: &'static str,
    /// Size, in bytes.
    bytes: u64,
    /// Unix timestamp in seconds.
    created_at: i64,
    /// Time when the file is deleted, Unix timestamp in seconds.
    expires_at: i64,
    filename: String,
    /// `batch` or `batch_output`.
    purpose: &'static str,
    /// `processed`.
    status: &'static str,
}

/// A list of files.
#[derive(Debug, Serialize, ToSchema)]
struct FileList {
    /// `list`.
    object: &'static str,
    data: Vec<FileData>,
    first_id: Option<String>,
    last_id: Option<String>,
    has_more: bool,
}

/// The parts of a form.
#[derive(Default)]
struct UploadedForm {
    purpose: Option<String>,
    seconds: Option<String>,
    file: Option<UploadedFile>,
}

struct UploadedFile {
    name: Option<String>,
    blob: String,
    upload: Upload,
}

impl From<StoredFile> for FileData {
    fn from(file: StoredFile) -> Self {
        Self {
            id: file_id(file.id),
            object: "file",
            bytes: file.is.size,
            created_at: seconds(file.created_at),
            expires_at: seconds(file.is.expires_at),
            filename: file.is.name,
            purpose: file.is.purpose.name(),
            status: "processed",
        }
    }
}

async fn upload(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
) -> Result<Json<FileData>, GatewayError> {
    let (mut parts, body) = request.into_parts();
    let AdapterCaller(caller) = AdapterCaller::from_request_parts(&mut parts, &gateway).await?;
    let own = caller.require(Permission::Predict)?;
    let now = Timestamp::now();
    let limit = gateway.limit(own)?;
    gateway.admit(own, limit, now).await?;
    let settings = &gateway.settings.batches;
    if gateway.batches.totals(own).await?.files >= settings.files {
        let message = format!(
            "the account has reached its limit of {} files; delete one, or raise `batches.files`",
            settings.files
        );
        return Err(GatewayError::conflict("TOO_MANY_FILES", message));
    }
    let Some(boundary) = boundary(&parts.headers)? else {
        let message = "expected a form: multipart/form-data with the parts `purpose` and `file`";
        return Err(GatewayError::bad_request(message).with("place", "Content-Type"));
    };
    let room = gateway.room(own).await?.unwrap_or(u64::MAX);
    let most = room.min(settings.file_bytes);
    let bytes = usize::try_from(most.saturating_add(MAX_FORM_OVERHEAD_BYTES)).unwrap_or(usize::MAX);
    let arriving = receive_file(&gateway, Request::from_parts(parts, body), bytes)?;
    let form = read_form(&gateway, own, form_of(arriving, boundary)).await?;
    let expires_at = form.expires_at(&gateway, now)?;
    let missing = |part: &str| {
        let message = format!("the form has no part `{part}`");
        GatewayError::bad_request(message).with("place", format!("$.{part}"))
    };
    let purpose = form.purpose.ok_or_else(|| missing("purpose"))?;
    if purpose != FilePurpose::Batch.name() {
        let message = "expected `batch`; this server stores files only for batches";
        return Err(GatewayError::bad_request(message).with("place", "$.purpose"));
    }
    let UploadedFile { name, blob, upload } = form.file.ok_or_else(|| missing("file"))?;
    let StoredContent::Blob { size, sha256 } = upload.finish().await? else {
        return Err(GatewayError::unchecked(&"the upload is not a blob"));
    };
    let name = name.filter(|name| !name.is_empty());
    let new = NewFile {
        account: own,
        name: name.unwrap_or_else(|| "batch.jsonl".to_owned()),
        purpose: FilePurpose::Batch,
        blob: blob.clone(),
        size,
        sha256,
        expires_at,
    };
    let stored = match gateway.check_room_for(own, size).await {
        Ok(()) => gateway.batches.create_file(new, now).await,
        Err(error) => {
            gateway.blobs.delete_file(&blob).await;
            return Err(error);
        }
    };
    match stored {
        Ok(file) => {
            gateway.on_disk.forget(own);
            Ok(Json(file.into()))
        }
        Err(error) => {
            gateway.blobs.delete_file(&blob).await;
            Err(error.into())
        }
    }
}

/// Reads all parts of a form. The file is stored while it arrives.
async fn read_form(
    gateway: &Gateway,
    account: AccountId,
    mut form: multer::Multipart<'static>,
) -> Result<UploadedForm, GatewayError> {
    let mut read = UploadedForm::default();
    while let Some(mut part) = form.next_field().await.map_err(malformed)? {
        match part.name() {
            Some("purpose") => read.purpose = Some(short_text(part).await?),
            Some("expires_after[seconds]") => read.seconds = Some(short_text(part).await?),
            Some("file") if read.file.is_none() => {
                let name = part.file_name().map(plain_name);
                let id = gateway.ids.next(Timestamp::now());
                let blob = gateway.blobs.file_name(FileKind::Batch, id);
                let memory = gateway.upload_memory(account)?;
                let mut upload = gateway.blobs.upload_file(&blob, memory);
                while let Some(piece) = part.chunk().await.map_err(malformed)? {
                    upload.push(piece).await?;
                }
                read.file = Some(UploadedFile { name, blob, upload });
            }
            _ => {}
        }
    }
    Ok(read)
}

async fn short_text(mut part: Field<'_>) -> Result<String, GatewayError> {
    let name = part.name().unwrap_or_default().to_owned();
    let mut text = Vec::new();
    while let Some(piece) = part.chunk().await.map_err(malformed)? {
        text.extend_from_slice(&piece);
        if text.len() > MAX_PART_BYTES {
            let message = format!("expected at most {MAX_PART_BYTES} bytes");
            return Err(GatewayError::bad_request(message).with("place", name));
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

impl UploadedForm {
    /// Returns the time when the file is deleted: the client's, but not after the server's.
    fn expires_at(&self, gateway: &Gateway, now: Timestamp) -> Result<Timestamp, GatewayError> {
        let latest = now.after(gateway.settings.batches.keep());
        let Some(text) = &self.seconds else {
            return Ok(latest);
        };
        let seconds = number(text).filter(|seconds| *seconds > 0).ok_or_else(|| {
            let error = GatewayError::bad_request("expected a number of seconds, at least 1");
            error.with("place", "$.expires_after.seconds")
        })?;
        Ok(Timestamp(now.0.saturating_add(seconds.saturating_mul(1000))).min(latest))
    }
}

async fn list(
    State(gateway): State<Arc<Gateway>>,
    AdapterCaller(caller): AdapterCaller,
    InQuery(query): InQuery<FileParameters>,
) -> Result<Json<FileList>, GatewayError> {
    let own = caller.require(Permission::Predict)?;
    let purpose = query.purpose.map(|purpose| match purpose {
        ListedPurpose::Batch => FilePurpose::Batch,
        ListedPurpose::BatchOutput => FilePurpose::BatchOutput,
    });
    let ascending = query.order == Some(ListOrder::Asc);
    let after = query.after.as_deref().map(read_file_id).transpose()?;
    let page = page(after.map(|after| after.0), query.limit, ascending)?;
    let mut files = gateway.batches.files(own, purpose, page).await?;
    let has_more = cut(&mut files, page);
    let data: Vec<FileData> = files.into_iter().map(FileData::from).collect();
    Ok(Json(FileList {
        object: "list",
        first_id: data.first().map(|file| file.id.clone()),
        last_id: data.last().map(|file| file.id.clone()),
        data,
        has_more,
    }))
}

async fn read(
    State(gateway): State<Arc<Gateway>>,
    AdapterCaller(caller): AdapterCaller,
    InPath(id): InPath<String>,
) -> Result<Json<FileData>, GatewayError> {
    let own = caller.require(Permission::Predict)?;
    Ok(Json(find(&gateway, own, &id).await?.into()))
}

async fn content(
    State(gateway): State<Arc<Gateway>>,
    AdapterCaller(caller): AdapterCaller,
    InPath(id): InPath<String>,
) -> Result<Response, GatewayError> {
    let own = caller.require(Permission::Predict)?;
    let file = find(&gateway, own, &id).await?.is;
    let content = gateway.blobs.stream_file(&file.blob, file.size).await?;
    let headers = [
        (header::CONTENT_TYPE, "application/jsonl".to_owned()),
        (header::CONTENT_LENGTH, file.size.to_string()),
        (header::CONTENT_DISPOSITION, disposition(&file.name)),
    ];
    Ok((StatusCode::OK, headers, Body::from_stream(content)).into_response())
}

async fn delete(
    State(gateway): State<Arc<Gateway>>,
    AdapterCaller(caller): AdapterCaller,
    InPath(id): InPath<String>,
) -> Result<Json<Value>, GatewayError> {
    let own = caller.require(Permission::Predict)?;
    let deletion = gateway.batches.delete_file(own, read_file_id(&id)?).await?;
    match deletion {
        FileDeletion::Done(file) => {
            gateway.blobs.delete_file(&file.is.blob).await;
            gateway.on_disk.forget(own);
            let deleted = serde_json::json!({"id": id, "object": "file", "deleted": true});
            Ok(Json(deleted))
        }
        FileDeletion::Unknown => Err(GatewayError::no_entity("file", &id)),
        FileDeletion::Needed(batch) => {
            let batch = batch_id(batch);
            let message = format!(
                "the batch {batch} needs the file; wait for its end or cancel it (POST batches/{batch}/cancel)"
            );
            Err(GatewayError::conflict("FILE_IS_NEEDED", message))
        }
    }
}

/// Finds an account's file by its id.
async fn find(gateway: &Gateway, own: AccountId, id: &str) -> Result<StoredFile, GatewayError> {
    let found = gateway.batches.file(own, read_file_id(id)?).await?;
    found.ok_or_else(|| GatewayError::no_entity("file", id))
}
