//! Synchronous predict, and what its requests have in common with those of tasks.

use std::sync::Arc;

use axum::extract::{self, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::{IntoParams, ToSchema};

use super::super::Gateway;
use super::super::auth::Caller;
use super::super::error::{Error, ErrorBody};
use super::super::extract::{InPath, InQuery, read_body};
use crate::account::{AccountId, Permission};
use crate::database::Timestamp;
use crate::service::{Request, Service};

/// Parameters of a request with a raw body.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(in super::super) struct RawParameters {
    /// A predict config of the service, by its id; the default one without it.
    #[param(nullable = false)]
    pub(super) config_id: Option<i64>,
    /// Data type of the body.
    #[param(nullable = false)]
    pub(super) data_type: Option<String>,
}

/// Predict data and config.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(in super::super) struct PredictRequestData<'a> {
    /// Predict input; its shape depends on the service.
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
pub(in super::super) struct Predict2RequestData {
    /// Predict input, normally JSON as a string.
    data: String,
    /// Predict config as a string; the service's default without it.
    config: Option<String>,
    /// Data type of the request.
    data_type: Option<String>,
}

/// A checked path: the service, and who calls it.
pub(super) struct Call {
    pub(super) service: Arc<Service>,
    pub(super) caller: AccountId,
}

impl Call {
    pub(super) fn new(
        gateway: &Gateway,
        caller: Caller,
        (account, model): &(String, String),
    ) -> Result<Self, Error> {
        let caller = caller.require(Permission::Predict)?;
        let service = gateway.service_for(caller, account, model)?;
        Ok(Self { service, caller })
    }

    /// A request with a raw body.
    pub(super) async fn raw(
        &self,
        gateway: &Gateway,
        InQuery(parameters): InQuery<RawParameters>,
        request: extract::Request,
    ) -> Result<Request, Error> {
        let config = match parameters.config_id {
            Some(id) => Some(config_text(gateway, &self.service, id)?),
            None => self.default_config(gateway)?,
        };
        Ok(Request {
            body: read_body(gateway, request).await?,
            config,
            data_type: parameters.data_type,
        })
    }

    /// A request whose body is an object of data and config.
    pub(super) async fn with_config(
        &self,
        gateway: &Gateway,
        request: extract::Request,
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
                None => self.default_config(gateway)?,
            },
            data_type: parsed.data_type,
        })
    }

    /// A request whose body is an object of texts.
    pub(super) async fn with_config_v2(
        &self,
        gateway: &Gateway,
        request: extract::Request,
    ) -> Result<Request, Error> {
        let body = read_body(gateway, request).await?;
        let parsed: Predict2RequestData =
            serde_json::from_str(text(&body)?).map_err(|error| malformed(&error))?;
        let given = parsed.config.filter(|config| !config.trim().is_empty());
        Ok(Request {
            body: parsed.data.into(),
            config: match given {
                Some(config) => Some(config),
                None => self.default_config(gateway)?,
            },
            data_type: parsed.data_type,
        })
    }

    fn default_config(&self, gateway: &Gateway) -> Result<Option<String>, Error> {
        let default = gateway.configs.default_of(self.service.id)?;
        Ok(default.map(|config| config.config.clone()))
    }

    async fn answer(self, gateway: &Gateway, request: Request) -> Result<Response, Error> {
        gateway.store.admit(self.caller, Timestamp::now()).await?;
        let prepared = self.service.prepare(&request)?;
        drop(request);
        let limit = self.service.settings.predict_timeout();
        let answer = self.service.predict(prepared, self.caller, Some(limit));
        let answer = answer.await?;
        Ok(([(header::CONTENT_TYPE, answer.content_type)], answer.body).into_response())
    }
}

fn config_text(gateway: &Gateway, service: &Service, id: i64) -> Result<String, Error> {
    let found = gateway.configs.get(service.id, id)?;
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

/// Predict with a raw body.
#[utoipa::path(
    post,
    path = "/api/mlpgateway/account/{account}/model/{model}/predict",
    tag = "predict",
    operation_id = "predict",
    params(
        ("account" = String, Path, description = "The service's owner: its name or number"),
        ("model" = String, Path, description = "The service: its name or number"),
        RawParameters,
    ),
    request_body(content = Option<serde_json::Value>, content_type = "application/json", description = "Predict data in the service's own format"),
    responses(
        (status = 200, description = "The service's answer", body = serde_json::Value, content_type = "application/json"),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The service did not answer", body = ErrorBody),
    ),
    security(("key" = [])),
)]
pub(in super::super) async fn raw(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<(String, String)>,
    parameters: Result<InQuery<RawParameters>, Error>,
    request: extract::Request,
) -> Result<Response, Error> {
    let call = Call::new(&gateway, caller, &path)?;
    let request = call.raw(&gateway, parameters?, request).await?;
    call.answer(&gateway, request).await
}

/// Predict with data and config.
#[utoipa::path(
    post,
    path = "/api/mlpgateway/account/{account}/model/{model}/predict-with-config",
    tag = "predict",
    operation_id = "predictWithConfig",
    params(
        ("account" = String, Path, description = "The service's owner: its name or number"),
        ("model" = String, Path, description = "The service: its name or number"),
    ),
    request_body(content = PredictRequestData<'static>, content_type = "application/json"),
    responses(
        (status = 200, description = "The service's answer", body = serde_json::Value, content_type = "application/json"),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The service did not answer", body = ErrorBody),
    ),
    security(("key" = [])),
)]
pub(in super::super) async fn with_config(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<(String, String)>,
    request: extract::Request,
) -> Result<Response, Error> {
    let call = Call::new(&gateway, caller, &path)?;
    let request = call.with_config(&gateway, request).await?;
    call.answer(&gateway, request).await
}

/// Predict with data and config as texts.
#[utoipa::path(
    post,
    path = "/api/mlpgateway/account/{account}/model/{model}/predict-with-config-v2",
    tag = "predict",
    operation_id = "predictWithConfigV2",
    params(
        ("account" = String, Path, description = "The service's owner: its name or number"),
        ("model" = String, Path, description = "The service: its name or number"),
    ),
    request_body(content = Predict2RequestData, content_type = "application/json"),
    responses(
        (status = 200, description = "The service's answer", body = serde_json::Value, content_type = "application/json"),
        (status = "4XX", description = "The request was refused", body = ErrorBody),
        (status = "5XX", description = "The service did not answer", body = ErrorBody),
    ),
    security(("key" = [])),
)]
pub(in super::super) async fn with_config_v2(
    State(gateway): State<Arc<Gateway>>,
    caller: Caller,
    InPath(path): InPath<(String, String)>,
    request: extract::Request,
) -> Result<Response, Error> {
    let call = Call::new(&gateway, caller, &path)?;
    let request = call.with_config_v2(&gateway, request).await?;
    call.answer(&gateway, request).await
}
