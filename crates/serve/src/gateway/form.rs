//! Extractors for the three forms of a predict request: a raw body, data and config as JSON, and
//! both as strings.
//!
//! Invariant: report missing credentials, permission and service access first, then a malformed
//! head. Only then is the body read.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request as HttpRequest};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, header};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::Gateway;
use super::auth::Caller;
use super::body::{DeclaredLength, ReceivedBody, read_body, receive_task_body};
use super::error::GatewayError;
use super::extract::{InPath, InQuery, digits};
use super::observe::RequestFacts;
use crate::account::{AccountId, Permission};
use crate::database::Timestamp;
use crate::service::meter::ServiceOperation;
use crate::service::{Request, Service, ServiceKind};
use crate::task::{StoredContent, TaskId};
use pkgtool_media::MediaKind;

/// The header by which a client marks retries of the same request.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Starts of the media types that a body may have besides JSON.
const MEDIA_TYPES: [&str; 4] = ["image/", "audio/", "video/", "multipart/form-data"];

/// Maximum length of an idempotency key, in bytes.
const MAX_IDEMPOTENCY_KEY_BYTES: usize = 255;

/// The service in a path.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct ServicePath {
    /// Owner of the service: its name or number
    pub(super) account: String,
    /// Name or number of the service
    pub(super) model: String,
}

/// Parameters of a request with a raw body.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct RawParameters {
    /// Id of a predict config of the service; the service's default if omitted.
    #[param(nullable = false)]
    #[serde(default, deserialize_with = "digits")]
    config_id: Option<i64>,
    /// Data type of the body.
    #[param(nullable = false)]
    data_type: Option<String>,
}

/// Predict data and config.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PredictRequestData<'a> {
    /// Predict input in the service's own format: see `/openapi.json?service=ACCOUNT/NAME`.
    #[serde(borrow)]
    #[schema(value_type = Object)]
    data: &'a RawValue,
    /// Predict config; the service's default if omitted.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>)]
    config: Option<&'a RawValue>,
    /// Data type of the request.
    data_type: Option<String>,
}

/// Predict data and config, each as a string.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Predict2RequestData {
    /// Predict input as a string: JSON for models of a package.
    data: String,
    /// Predict config as a string; the service's default if omitted.
    config: Option<String>,
    /// Data type of the request.
    data_type: Option<String>,
}

/// An authorized predict request.
pub(super) struct PredictCall {
    pub(super) service: Arc<Service>,
    pub(super) caller: AccountId,
    pub(super) request: Request,
}

/// Extracts a synchronous predict request of one form.
pub(super) struct PredictRequest<F> {
    pub(super) call: PredictCall,
    form: PhantomData<F>,
}

/// Extracts a request that creates a task, which the client may retry.
pub(super) struct TaskRequest<F> {
    pub(super) call: PredictCall,
    /// Values for the task to create.
    pub(super) coming: PendingTask,
    form: PhantomData<F>,
}

/// The values of a task that are known before its body is read.
pub(super) struct PendingTask {
    /// Id of the task.
    pub(super) id: TaskId,
    /// The `Idempotency-Key` of the request.
    pub(super) key: Option<String>,
    /// The request was already counted toward its account's rate limit.
    pub(super) is_counted: bool,
    /// The body, if it is in the blob store already. The request is empty then.
    pub(super) stored: Option<StoredContent>,
}

/// The context in which a form is read.
pub(super) struct FormContext<'a> {
    gateway: &'a Arc<Gateway>,
    service: &'a Service,
    caller: AccountId,
    /// The task under whose id a large raw body is stored while it arrives.
    store_for: Option<TaskId>,
}

/// A request, and its body if that is in the blob store already.
type FormRead = Result<(Request, Option<StoredContent>), GatewayError>;

/// A form in which requests carry data, config and data type.
pub(super) trait Form: Send {
    /// Reads the request, and the location of its body if it was stored.
    fn read(source: FormContext<'_>, request: HttpRequest)
    -> impl Future<Output = FormRead> + Send;
}

/// Raw form: the body is the data, the query names the config.
pub(super) struct RawForm;

/// JSON form: the body is an object with data and config.
pub(super) struct JsonForm;

/// String form: the body is an object with data and config as strings.
pub(super) struct StringForm;

impl<F: Form> FromRequest<Arc<Gateway>> for PredictRequest<F> {
    type Rejection = GatewayError;

    async fn from_request(
        request: HttpRequest,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, GatewayError> {
        let (mut parts, body) = request.into_parts();
        let (service, caller) = target(&mut parts, gateway, ServiceOperation::Predict).await?;
        let limit = gateway.limit(caller)?;
        gateway.admit(caller, limit, Timestamp::now()).await?;
        let request = HttpRequest::from_parts(parts, body);
        let (call, _) = call::<F>(gateway, (service, caller), None, request).await?;
        let form = PhantomData;
        Ok(Self { call, form })
    }
}

impl<F: Form> FromRequest<Arc<Gateway>> for TaskRequest<F> {
    type Rejection = GatewayError;

    async fn from_request(
        request: HttpRequest,
        gateway: &Arc<Gateway>,
    ) -> Result<Self, GatewayError> {
        let (mut parts, body) = request.into_parts();
        let (service, caller) = target(&mut parts, gateway, ServiceOperation::Create).await?;
        let key = idempotency_key(&parts.headers)?;
        let now = Timestamp::now();
        // A small body costs no more than its rejection. Its limits are checked exactly after it is
        // read.
        let is_counted = DeclaredLength::of(&parts.headers).may_be_large();
        if is_counted {
            let limit = gateway.limit(caller)?;
            let foreseen = gateway.store.foresee(caller, limit, key.as_deref()).await;
            foreseen.map_err(|error| gateway.refusal(caller, error))?;
            gateway.admit(caller, limit, now).await?;
        }
        let id = gateway.ids.next(now);
        let request = HttpRequest::from_parts(parts, body);
        let (call, stored) = call::<F>(gateway, (service, caller), Some(id), request).await?;
        Ok(Self {
            call,
            coming: PendingTask {
                id,
                key,
                is_counted,
                stored,
            },
            form: PhantomData,
        })
    }
}

/// Returns the service in the path, and the caller's account.
async fn target(
    parts: &mut Parts,
    gateway: &Arc<Gateway>,
    operation: ServiceOperation,
) -> Result<(Arc<Service>, AccountId), GatewayError> {
    let caller = Caller::from_request_parts(parts, gateway).await?;
    let InPath(path) = InPath::<ServicePath>::from_request_parts(parts, gateway).await?;
    let caller = caller.require(Permission::Predict)?;
    let service = gateway.service_for(caller, &path.account, &path.model)?;
    if let Some(known) = parts.extensions.get::<Arc<RequestFacts>>() {
        // It is set once per request.
        let _ = known.asked.set((Arc::clone(&service), operation));
    }
    Ok((service, caller))
}

/// Reads a request of a form.
async fn call<F: Form>(
    gateway: &Arc<Gateway>,
    (service, caller): (Arc<Service>, AccountId),
    store_for: Option<TaskId>,
    request: HttpRequest,
) -> Result<(PredictCall, Option<StoredContent>), GatewayError> {
    let source = FormContext {
        gateway,
        service: &service,
        caller,
        store_for,
    };
    let accept = header(request.headers(), &header::ACCEPT);
    let (mut request, stored) = F::read(source, request).await?;
    request.accept = accept;
    let call = PredictCall {
        service,
        caller,
        request,
    };
    Ok((call, stored))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, GatewayError> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(key) if (1..=MAX_IDEMPOTENCY_KEY_BYTES).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => {
            let message = format!(
                "the Idempotency-Key must have 1 to {MAX_IDEMPOTENCY_KEY_BYTES} visible ASCII \
                 characters"
            );
            Err(GatewayError::bad_request(message).with("place", "Idempotency-Key"))
        }
    }
}

impl Form for RawForm {
    async fn read(source: FormContext<'_>, request: HttpRequest) -> FormRead {
        let gateway = source.gateway;
        let (mut parts, body) = request.into_parts();
        let query = InQuery::<RawParameters>::from_request_parts(&mut parts, gateway).await;
        let InQuery(parameters) = query?;
        let config = match parameters.config_id {
            Some(id) => Some(source.stored_config(id).await?),
            None => None,
        };
        let mut read = Request {
            config: source.config(config).await?,
            data_type: parameters.data_type.or_else(|| source.media_type(&parts)),
            ..Request::default()
        };
        let request = HttpRequest::from_parts(parts, body);
        let taken = if let Some(task) = source.store_for {
            receive_task_body(gateway, source.caller, request, task).await?
        } else {
            let (body, memory) = read_body(gateway, source.caller, request).await?;
            ReceivedBody::Memory(body, memory)
        };
        match taken {
            ReceivedBody::Stored(content) => Ok((read, Some(content))),
            ReceivedBody::Memory(body, memory) => {
                (read.body, read.memory) = (body, Some(memory));
                Ok((read, None))
            }
        }
    }
}

impl Form for JsonForm {
    async fn read(source: FormContext<'_>, request: HttpRequest) -> FormRead {
        let (body, memory) = read_body(source.gateway, source.caller, request).await?;
        let parsed: PredictRequestData<'_> = parse(&body)?;
        require_object(parsed.data, "$.data")?;
        let given = parsed.config.filter(|config| config.get() != "null");
        if let Some(config) = given {
            require_object(config, "$.config")?;
        }
        let read = Request {
            body: body.slice_ref(parsed.data.get().as_bytes()),
            config: source.config(given.map(|it| it.get().to_owned())).await?,
            data_type: parsed.data_type,
            memory: Some(memory),
            ..Request::default()
        };
        Ok((read, None))
    }
}

impl Form for StringForm {
    async fn read(source: FormContext<'_>, request: HttpRequest) -> FormRead {
        let (body, memory) = read_body(source.gateway, source.caller, request).await?;
        let parsed: Predict2RequestData = parse(&body)?;
        drop(body);
        let given = parsed.config.filter(|config| !config.trim().is_empty());
        let read = Request {
            body: memory.keep(parsed.data.into_bytes()),
            config: source.config(given).await?,
            data_type: parsed.data_type,
            memory: Some(memory),
            ..Request::default()
        };
        Ok((read, None))
    }
}

impl FormContext<'_> {
    /// Returns the config of a request: the given one, else the service's default.
    async fn config(&self, given: Option<String>) -> Result<Option<String>, GatewayError> {
        if given.is_some() {
            return Ok(given);
        }
        let default = self.gateway.configs.default_of(self.service.id).await?;
        Ok(default.map(|config| config.config.clone()))
    }

    /// Returns the media type of a picture, a sound or a form for a model of a package. An upstream gets the type that
    /// the client names with the data.
    fn media_type(&self, parts: &Parts) -> Option<String> {
        let named = header(&parts.headers, &header::CONTENT_TYPE)?;
        let start = named.to_ascii_lowercase();
        let ServiceKind::Device(device) = &self.service.kind else {
            return None;
        };
        let speaks = device.description().takes == Some(MediaKind::Text);
        let is_media = MEDIA_TYPES.iter().any(|media| start.starts_with(media))
            || speaks && start.starts_with(MediaKind::Text.media_range());
        is_media.then_some(named)
    }

    async fn stored_config(&self, id: i64) -> Result<String, GatewayError> {
        let found = self.gateway.configs.get(self.service.id, id).await?;
        found.map(|config| config.config.clone()).ok_or_else(|| {
            let message = format!("`{}` has no predict config {id}", self.service.name);
            GatewayError::bad_request(message).with("place", "configId")
        })
    }
}

/// Returns a header of a request, if it is text.
fn header(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

fn parse<'b, T: Deserialize<'b>>(body: &'b Bytes) -> Result<T, GatewayError> {
    serde_json::from_str(text(body)?).map_err(|error| malformed(&error))
}

fn text(body: &Bytes) -> Result<&str, GatewayError> {
    std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        GatewayError::bad_request(format!("the body is invalid UTF-8 at byte {at}"))
            .with("place", "$")
    })
}

fn malformed(error: &serde_json::Error) -> GatewayError {
    GatewayError::bad_request(format!("invalid body: {error}"))
        .with("line", error.line())
        .with("column", error.column())
        .with("place", "$")
}

fn require_object(value: &RawValue, place: &str) -> Result<(), GatewayError> {
    if value.get().starts_with('{') {
        return Ok(());
    }
    Err(GatewayError::bad_request("expected an object").with("place", place))
}
