//! The forms that a predict request comes in: a raw body, data and config, both as texts.
//!
//! Invariant: of every form is told first what its caller lacks (a key, a permission, access to the
//! service), then what is wrong with the rest; only then is a body read.

use std::marker::PhantomData;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request as HttpRequest};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::Gateway;
use super::auth::Caller;
use super::error::Error;
use super::extract::{InPath, InQuery, read_body};
use super::observe::Known;
use crate::account::{AccountId, Permission};
use crate::service::meter::Operation;
use crate::service::{Request, Service};

/// A client's own name for a request that it may repeat.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// Longest such name, in bytes.
const LONGEST_IDEMPOTENCY_KEY: usize = 255;

/// The service that a path names.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(super) struct ServicePath {
    /// The service's owner: its name or number
    pub(super) account: String,
    /// The service: its name or number
    pub(super) model: String,
}

/// Parameters of a request with a raw body.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct RawParameters {
    /// A predict config of the service, by its id; the default one without it.
    #[param(nullable = false)]
    config_id: Option<i64>,
    /// Data type of the body.
    #[param(nullable = false)]
    data_type: Option<String>,
}

/// Predict data and config.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PredictRequestData<'a> {
    /// Predict input, in the service's own format: `/openapi.json?service=ACCOUNT/NAME` says which.
    #[serde(borrow)]
    #[schema(value_type = Object)]
    data: &'a RawValue,
    /// Predict config; the service's default without it.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Object>)]
    config: Option<&'a RawValue>,
    /// Data type of the request.
    data_type: Option<String>,
}

/// Predict data and config, each as a text.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Predict2RequestData {
    /// Predict input as a string: for a package's models JSON, which the service's own document says.
    data: String,
    /// Predict config as a string; the service's default without it.
    config: Option<String>,
    /// Data type of the request.
    data_type: Option<String>,
}

/// A predict request that may be made.
pub(super) struct Call {
    pub(super) service: Arc<Service>,
    pub(super) caller: AccountId,
    pub(super) request: Request,
}

/// A predict request of a form.
pub(super) struct Asked<F> {
    pub(super) call: Call,
    form: PhantomData<F>,
}

/// The same of a request that its client may repeat.
pub(super) struct Repeatable<F> {
    pub(super) call: Call,
    /// Its `Idempotency-Key`.
    pub(super) key: Option<String>,
    form: PhantomData<F>,
}

/// How a request says its data, config and data type.
pub(super) trait Form: Send {
    /// What is asked of a service.
    fn read(
        gateway: &Arc<Gateway>,
        service: &Service,
        request: HttpRequest,
    ) -> impl Future<Output = Result<Request, Error>> + Send;
}

/// The body is the data, the query names the config.
pub(super) struct Raw;

/// The body is an object of data and config.
pub(super) struct Whole;

/// The body is an object of texts.
pub(super) struct Texts;

impl<F: Form> FromRequest<Arc<Gateway>> for Asked<F> {
    type Rejection = Error;

    async fn from_request(request: HttpRequest, gateway: &Arc<Gateway>) -> Result<Self, Error> {
        let (mut parts, body) = request.into_parts();
        let (service, caller) = target(&mut parts, gateway, Operation::Predict).await?;
        let request = HttpRequest::from_parts(parts, body);
        let request = F::read(gateway, &service, request).await?;
        Ok(Self {
            call: Call {
                service,
                caller,
                request,
            },
            form: PhantomData,
        })
    }
}

impl<F: Form> FromRequest<Arc<Gateway>> for Repeatable<F> {
    type Rejection = Error;

    async fn from_request(request: HttpRequest, gateway: &Arc<Gateway>) -> Result<Self, Error> {
        let (mut parts, body) = request.into_parts();
        let (service, caller) = target(&mut parts, gateway, Operation::Create).await?;
        let key = idempotency_key(&parts.headers)?;
        let request = HttpRequest::from_parts(parts, body);
        let request = F::read(gateway, &service, request).await?;
        Ok(Self {
            call: Call {
                service,
                caller,
                request,
            },
            key,
            form: PhantomData,
        })
    }
}

/// The service of the path, and who calls it.
async fn target(
    parts: &mut Parts,
    gateway: &Arc<Gateway>,
    operation: Operation,
) -> Result<(Arc<Service>, AccountId), Error> {
    let caller = Caller::from_request_parts(parts, gateway).await?;
    let InPath(path) = InPath::<ServicePath>::from_request_parts(parts, gateway).await?;
    let caller = caller.require(Permission::Predict)?;
    let service = gateway.service_for(caller, &path.account, &path.model)?;
    if let Some(known) = parts.extensions.get::<Arc<Known>>() {
        // It is set once for a request.
        let _ = known.asked.set((Arc::clone(&service), operation));
    }
    Ok((service, caller))
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Error> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(key) if (1..=LONGEST_IDEMPOTENCY_KEY).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => {
            let message = format!(
                "the Idempotency-Key must have 1 to {LONGEST_IDEMPOTENCY_KEY} visible ASCII \
                 characters"
            );
            Err(Error::bad_request(message).with("place", "Idempotency-Key"))
        }
    }
}

impl Form for Raw {
    async fn read(
        gateway: &Arc<Gateway>,
        service: &Service,
        request: HttpRequest,
    ) -> Result<Request, Error> {
        let (mut parts, body) = request.into_parts();
        let query = InQuery::<RawParameters>::from_request_parts(&mut parts, gateway).await;
        let InQuery(parameters) = query?;
        let config = match parameters.config_id {
            Some(id) => Some(config_text(gateway, service, id).await?),
            None => default_config(gateway, service).await?,
        };
        Ok(Request {
            body: read_body(gateway, HttpRequest::from_parts(parts, body)).await?,
            config,
            data_type: parameters.data_type,
        })
    }
}

impl Form for Whole {
    async fn read(
        gateway: &Arc<Gateway>,
        service: &Service,
        request: HttpRequest,
    ) -> Result<Request, Error> {
        let body = read_body(gateway, request).await?;
        let text = text(&body)?;
        let parsed: PredictRequestData<'_> =
            serde_json::from_str(text).map_err(|error| malformed(&error))?;
        require_object(parsed.data, "$.data")?;
        let given = parsed.config.filter(|config| config.get() != "null");
        if let Some(config) = given {
            require_object(config, "$.config")?;
        }
        Ok(Request {
            body: body.slice_ref(parsed.data.get().as_bytes()),
            config: match given {
                Some(config) => Some(config.get().to_owned()),
                None => default_config(gateway, service).await?,
            },
            data_type: parsed.data_type,
        })
    }
}

impl Form for Texts {
    async fn read(
        gateway: &Arc<Gateway>,
        service: &Service,
        request: HttpRequest,
    ) -> Result<Request, Error> {
        let body = read_body(gateway, request).await?;
        let parsed: Predict2RequestData =
            serde_json::from_str(text(&body)?).map_err(|error| malformed(&error))?;
        let given = parsed.config.filter(|config| !config.trim().is_empty());
        Ok(Request {
            body: parsed.data.into(),
            config: match given {
                Some(config) => Some(config),
                None => default_config(gateway, service).await?,
            },
            data_type: parsed.data_type,
        })
    }
}

async fn default_config(gateway: &Gateway, service: &Service) -> Result<Option<String>, Error> {
    let default = gateway.configs.default_of(service.id).await?;
    Ok(default.map(|config| config.config.clone()))
}

async fn config_text(gateway: &Gateway, service: &Service, id: i64) -> Result<String, Error> {
    let found = gateway.configs.get(service.id, id).await?;
    found.map(|config| config.config.clone()).ok_or_else(|| {
        let name = &service.name;
        Error::bad_request(format!("`{name}` has no predict config {id}")).with("place", "configId")
    })
}

fn text(body: &Bytes) -> Result<&str, Error> {
    std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        Error::bad_request(format!("the body is no UTF-8 at byte {at}")).with("place", "$")
    })
}

fn malformed(error: &serde_json::Error) -> Error {
    Error::bad_request(format!("the body is wrong: {error}"))
        .with("line", error.line())
        .with("column", error.column())
        .with("place", "$")
}

fn require_object(value: &RawValue, place: &str) -> Result<(), Error> {
    if value.get().starts_with('{') {
        return Ok(());
    }
    Err(Error::bad_request("expected an object").with("place", place))
}
