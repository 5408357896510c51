//! A client of the gateway's HTTP API: every operation that the command line needs, with retries.
//!
//! Invariant: a request that may have been accepted is sent again only if the server can recognise
//! the repetition. The client works with any gateway of the specification and knows nothing of this
//! crate's server.

mod error;
mod retry;

use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, StatusCode, Url};
use serde::{Deserialize, Serialize};

pub use error::ClientError;
use retry::{RetrySafety, RetryState};

/// The header with the API key.
const API_KEY: HeaderName = HeaderName::from_static("mlp-api-key");

/// The header with a waiting task's place in the queue; some gateways omit it.
const QUEUE_POSITION: &str = "x-queue-position";

/// Makes a repeated request recognisable; gateways without support ignore it.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// How long the gateway may delay the answer to one status request (long polling), in seconds.
const LONG_POLL_SECONDS: u64 = 20;

/// Shortest and longest pause between status requests, for gateways without long polling.
const FIRST_POLL_PAUSE: Duration = Duration::from_millis(200);
const MAX_POLL_PAUSE: Duration = Duration::from_secs(5);

/// A gateway, and the API key for it.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    key: Option<HeaderValue>,
}

/// A service, as URL paths name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceName {
    /// The account that owns it.
    pub account: String,
    /// Its name or number.
    pub model: String,
}

/// A service as its gateway lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceState {
    /// Its name.
    pub model_name: String,
    /// Is `true` if the service answers requests. Gateways that omit it list only active services.
    #[serde(default = "active")]
    pub is_active: bool,
    /// Reason for being inactive, if the gateway states it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactive_reason: Option<String>,
}

/// A worker as its gateway lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttachedWorker {
    /// Its number.
    pub id: u64,
    /// Its machine and number.
    pub name: String,
    /// Its service.
    pub service: String,
    /// Name of its token.
    pub token: String,
    /// `serving` or `draining`.
    pub state: String,
    /// The program that it runs.
    pub image: Option<String>,
    /// The address that it calls from.
    pub address: Option<String>,
    /// Seconds since it attached.
    pub attached_s: u64,
    /// Milliseconds since its last message.
    pub silent_ms: u64,
    /// Requests in flight.
    pub in_flight: usize,
    /// Maximum number of requests in flight.
    pub capacity: usize,
    /// Requests that it answered.
    pub answered: u64,
}

fn active() -> bool {
    true
}

/// A predict request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Predict {
    /// The data to predict from.
    pub body: Bytes,
    /// Predict config, as JSON text.
    pub config: Option<String>,
    /// The ID of a stored config.
    pub config_id: Option<i64>,
    /// The data type.
    pub data_type: Option<String>,
}

/// A task's state (the specification's `AsyncTaskData`).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskStatus {
    /// Task identifier.
    pub task_id: String,
    /// Number of the account on whose behalf it was created.
    pub caller_id: i64,
    /// `QUEUED`, `PROCESSING`, `COMPLETED`, `CANCELED`.
    pub status: String,
    /// Unix timestamp in milliseconds.
    pub created_at: i64,
    /// Unix timestamp in milliseconds.
    pub completed_at: Option<i64>,
    /// Its place in its account's queue, from 1, if the gateway states it.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u64>,
}

/// A task's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskResult {
    /// The task has not ended.
    Pending,
    /// The service's answer.
    Ready(Bytes),
}

/// An answer of the gateway.
struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl TaskStatus {
    /// Returns `true` if the state is final.
    pub fn is_final(&self) -> bool {
        matches!(self.status.as_str(), "COMPLETED" | "CANCELED")
    }
}

impl Client {
    /// Creates a client of the gateway at this address.
    pub fn new(url: &str, key: Option<&str>) -> Result<Self, ClientError> {
        let wrong = |reason: String| ClientError::Usage(format!("`{url}`: {reason}"));
        let base = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
        if !matches!(base.scheme(), "http" | "https") || base.cannot_be_a_base() {
            return Err(wrong(
                "expected a gateway address with http:// or https://".to_owned(),
            ));
        }
        let secret = |key: &str| {
            let mut value = HeaderValue::from_str(key.trim()).map_err(|_| {
                ClientError::Usage("the API key contains invalid characters".to_owned())
            })?;
            value.set_sensitive(true);
            Ok(value)
        };
        // Another part of the process may have installed a provider; any provider will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .user_agent(concat!("pkgtool/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| wrong(error.to_string()))?;
        Ok(Self {
            http,
            base,
            key: key.map(secret).transpose()?,
        })
    }

    /// Sends a synchronous predict request and returns the service's answer.
    pub async fn predict(
        &self,
        service: &ServiceName,
        request: &Predict,
    ) -> Result<Bytes, ClientError> {
        let call = self.predict_call(service, &[], request)?;
        let reply = self.send(&call, RetrySafety::IfNotAccepted).await?;
        Ok(reply.body)
    }

    /// Creates a task and returns its ID.
    pub async fn create(
        &self,
        service: &ServiceName,
        request: &Predict,
    ) -> Result<String, ClientError> {
        let mut call = self.predict_call(service, &["async"], request)?;
        let once = uuid::Uuid::now_v7().to_string();
        let once = HeaderValue::from_str(&once).map_err(|_| ClientError::Usage(once))?;
        call.headers.insert(IDEMPOTENCY_KEY, once);
        let reply = self.send(&call, RetrySafety::IfNotAccepted).await?;
        parse(&reply.body, "a task id")
    }

    /// Returns a task's state. With `hold`, the gateway may wait for the task's end before it
    /// answers.
    pub async fn status(
        &self,
        account: &str,
        task: &str,
        hold: bool,
    ) -> Result<TaskStatus, ClientError> {
        let mut call = self.task_call(Method::GET, account, &[task])?;
        if hold {
            call.url
                .query_pairs_mut()
                .append_pair("wait", &LONG_POLL_SECONDS.to_string());
        }
        let reply = self.send(&call, RetrySafety::Always).await?;
        let mut status: TaskStatus = parse(&reply.body, "a task's state")?;
        let position = reply.headers.get(QUEUE_POSITION);
        let position = position.and_then(|value| value.to_str().ok());
        status.queue_position = position.and_then(|text| text.parse().ok());
        Ok(status)
    }

    /// Returns a task's result. The error of a failed task is returned as an error.
    pub async fn result(&self, account: &str, task: &str) -> Result<TaskResult, ClientError> {
        let call = self.task_call(Method::GET, account, &[task, "response"])?;
        // A stored failure has the status that the service returned, so a retry would return the
        // same.
        let reply = self.send(&call, RetrySafety::IfUnreachable).await?;
        Ok(if reply.status == StatusCode::NO_CONTENT {
            TaskResult::Pending
        } else {
            TaskResult::Ready(reply.body)
        })
    }

    /// Cancels a task.
    pub async fn cancel(&self, account: &str, task: &str) -> Result<(), ClientError> {
        let call = self.task_call(Method::POST, account, &[task, "cancel"])?;
        self.send(&call, RetrySafety::Always).await?;
        Ok(())
    }

    /// Deletes a task that has ended. Some gateways lack this operation.
    pub async fn delete(&self, account: &str, task: &str) -> Result<(), ClientError> {
        let call = self.task_call(Method::DELETE, account, &[task])?;
        self.send(&call, RetrySafety::Always).await?;
        Ok(())
    }

    /// Lists an account's tasks, the newest first. Some gateways lack this operation.
    pub async fn list(
        &self,
        account: &str,
        status: Option<&str>,
        limit: usize,
    ) -> Result<Vec<TaskStatus>, ClientError> {
        let mut call = self.task_call(Method::GET, account, &[])?;
        call.url
            .query_pairs_mut()
            .append_pair("limit", &limit.to_string())
            .extend_pairs(status.map(|status| ("status", status)));
        let reply = self.send(&call, RetrySafety::Always).await?;
        parse(&reply.body, "a list of tasks")
    }

    /// Waits for a task's end and calls `progress` with each state on the way.
    pub async fn wait(
        &self,
        account: &str,
        task: &str,
        mut progress: impl FnMut(&TaskStatus),
    ) -> Result<TaskStatus, ClientError> {
        let mut pause = FIRST_POLL_PAUSE;
        // The first request is answered at once, so that its state can be shown.
        let mut hold = false;
        loop {
            let asked = Instant::now();
            let status = self.status(account, task, hold).await?;
            progress(&status);
            if status.is_final() {
                return Ok(status);
            }
            // After a long poll no pause is needed.
            if hold && asked.elapsed() < Duration::from_secs(LONG_POLL_SECONDS) / 2 {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(MAX_POLL_PAUSE);
            }
            hold = true;
        }
    }

    /// Lists the services of an account that the key may use. Some gateways lack this operation.
    pub async fn services(&self, account: &str) -> Result<Vec<ServiceState>, ClientError> {
        let call = self.call(Method::GET, &["account", account, "model"])?;
        let reply = self.send(&call, RetrySafety::Always).await?;
        parse(&reply.body, "a list of services")
    }

    /// Lists the workers of an account.
    pub async fn workers(&self, account: &str) -> Result<Vec<AttachedWorker>, ClientError> {
        let call = self.call(Method::GET, &["account", account, "worker"])?;
        let reply = self.send(&call, RetrySafety::Always).await?;
        parse(&reply.body, "a list of workers")
    }

    /// Sends a worker no more requests, or sends it requests again.
    pub async fn drain(
        &self,
        account: &str,
        worker: &str,
        drain: bool,
    ) -> Result<AttachedWorker, ClientError> {
        let order = if drain { "drain" } else { "resume" };
        let call = self.call(Method::POST, &["account", account, "worker", worker, order])?;
        let reply = self.send(&call, RetrySafety::Always).await?;
        parse(&reply.body, "a worker")
    }

    fn predict_call(
        &self,
        service: &ServiceName,
        before: &[&str],
        request: &Predict,
    ) -> Result<RepeatableCall, ClientError> {
        let mut path = vec!["account", &service.account, "model", &service.model];
        path.extend(before);
        let Some(config) = &request.config else {
            path.push("predict");
            let mut call = self.call(Method::POST, &path)?;
            if let Some(id) = request.config_id {
                call.url
                    .query_pairs_mut()
                    .append_pair("configId", &id.to_string());
            }
            if let Some(data_type) = &request.data_type {
                call.url
                    .query_pairs_mut()
                    .append_pair("dataType", data_type);
            }
            call.body = Some(request.body.clone());
            return Ok(call);
        };
        if request.config_id.is_some() {
            let message = "conflicting options: give either a config or the ID of a stored config";
            return Err(ClientError::Usage(message.to_owned()));
        }
        path.push("predict-with-config-v2");
        let mut call = self.call(Method::POST, &path)?;
        let data = std::str::from_utf8(&request.body)
            .map_err(|error| ClientError::Usage(format!("the data is not UTF-8 text: {error}")))?;
        let body = serde_json::json!({
            "data": data, "config": config, "dataType": request.data_type
        });
        call.body = Some(body.to_string().into());
        Ok(call)
    }

    fn task_call(
        &self,
        method: Method,
        account: &str,
        rest: &[&str],
    ) -> Result<RepeatableCall, ClientError> {
        let mut path = vec!["account", account, "async", "task"];
        path.extend(rest);
        self.call(method, &path)
    }

    fn call(&self, method: Method, path: &[&str]) -> Result<RepeatableCall, ClientError> {
        let mut url = self.base.clone();
        let no_base = || ClientError::Usage(format!("`{}` cannot be a base address", self.base));
        url.path_segments_mut()
            .map_err(|()| no_base())?
            .pop_if_empty()
            .extend(["api", "mlpgateway"])
            .extend(path);
        Ok(RepeatableCall {
            method,
            url,
            headers: HeaderMap::new(),
            body: None,
        })
    }

    /// Sends a call, with retries, until it succeeds or fails in a way that a retry cannot fix.
    async fn send(&self, call: &RepeatableCall, safe: RetrySafety) -> Result<Reply, ClientError> {
        let safe = if call.headers.contains_key(IDEMPOTENCY_KEY) {
            RetrySafety::Always
        } else {
            safe
        };
        let mut tries = RetryState::new(safe);
        loop {
            let error = match self.send_once(call).await {
                Ok(reply) => return Ok(reply),
                Err(error) => error,
            };
            match tries.pause(&error) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(error),
            }
        }
    }

    async fn send_once(&self, call: &RepeatableCall) -> Result<Reply, ClientError> {
        let fault = |error: reqwest::Error| ClientError::unreachable(&self.base, &error);
        let mut request = self.http.request(call.method.clone(), call.url.clone());
        request = request.headers(call.headers.clone());
        if let Some(key) = &self.key {
            request = request.header(API_KEY, key.clone());
        }
        if let Some(body) = &call.body {
            request = request
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone());
        }
        let response = request.send().await.map_err(fault)?;
        let reply = Reply {
            status: response.status(),
            headers: response.headers().clone(),
            body: response.bytes().await.map_err(fault)?,
        };
        if reply.status.is_success() {
            return Ok(reply);
        }
        Err(ClientError::of_reply(
            reply.status,
            &reply.headers,
            &reply.body,
        ))
    }
}

/// A request that can be sent more than once.
struct RepeatableCall {
    method: Method,
    url: Url,
    headers: HeaderMap,
    body: Option<Bytes>,
}

fn parse<T: serde::de::DeserializeOwned>(body: &[u8], what: &str) -> Result<T, ClientError> {
    serde_json::from_slice(body).map_err(|error| {
        let start: String = String::from_utf8_lossy(body).chars().take(200).collect();
        ClientError::Protocol(format!("expected {what}, got `{start}` ({error})"))
    })
}
