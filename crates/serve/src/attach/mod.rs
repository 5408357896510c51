//! Services as instances at gates: requests of the gate protocol become requests to a [`Service`], and its answers and
//! errors go back. A machine without packages serves those that its gates assign ([`machine`]).
//!
//! Invariant: the bytes of a request reach the service as they came, and the bytes of its answer the gate.

mod machine;
mod package;
mod training;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::TryStreamExt as _;
use tokio::sync::watch;

pub use machine::{MachineOptions, serve_assigned};
pub use package::{OpenFolder, PackageOptions};
pub use training::TrainedServices;

use crate::service::attached::{answer_payload, request_of};
use crate::service::events::{self, EventFramer};
use crate::service::{self, Answer, BodyMemory, CallError, Service, ServiceKind};
use crate::task::TaskFailure;
use pkgtool_gate::address::GateAddress;
use pkgtool_gate::instance::{AnswerParts, Asks, GateRequest, Handler, LastAnswer};
use pkgtool_gate::protocol::service_to_gate_proto::Body;
use pkgtool_gate::protocol::{
    ApiErrorProto, BatchPayloadResponseProto, BatchRequestProto, BatchResponseProto,
    FitRequestProto, MethodDescriptorProto, ParamDescriptorProto, PartialPredictRequestProto,
    PartialPredictResponseProto, PayloadProto, PredictResponseProto, ServiceDescriptorProto,
    SimpleStatusProto, batch_payload_response_proto, code, error,
};

/// The header with the time of an answer, in milliseconds.
const SERVER_TIME: &str = "Z-Server-Time";
/// The header with the id of a request, which its answer repeats.
const REQUEST_ID: &str = "Z-requestId";
/// The media type of JSON.
const JSON: &str = "application/json";

/// A service that answers the requests of gates.
pub struct AttachedService {
    /// Finds the service, which may be replaced while it is attached.
    find: FindAttached,
    /// Memory for the bodies of all requests.
    memory: Arc<BodyMemory>,
    /// Trains at the request of gates, if that is wanted.
    trained: Option<Arc<TrainedServices>>,
    /// Becomes true when a gate accepts the service.
    is_attached: watch::Sender<bool>,
}

/// Finds a service.
type FindAttached = Box<dyn Fn() -> Option<Arc<Service>> + Send + Sync>;

impl AttachedService {
    /// Attaches the service that this function finds. Requests are refused while their bodies would exceed the memory.
    pub fn new(
        find: impl Fn() -> Option<Arc<Service>> + Send + Sync + 'static,
        memory: Arc<BodyMemory>,
    ) -> Self {
        Self {
            find: Box::new(find),
            memory,
            trained: None,
            is_attached: watch::Sender::new(false),
        }
    }

    /// Lets gates train on the service.
    #[must_use]
    pub fn training(self, trained: Arc<TrainedServices>) -> Self {
        Self {
            trained: Some(trained),
            ..self
        }
    }

    /// Tells when a gate accepts the service.
    fn attachment(&self) -> watch::Receiver<bool> {
        self.is_attached.subscribe()
    }

    fn service(&self) -> Result<Arc<Service>, ApiErrorProto> {
        let gone = || TaskFailure::new(404, "SERVICE_NOT_FOUND", "the service was removed");
        (self.find)().ok_or_else(|| failed(gone(), None))
    }

    async fn fit(
        &self,
        asked: FitRequestProto,
        parts: &AnswerParts,
    ) -> Result<Body, ApiErrorProto> {
        let Some(trained) = &self.trained else {
            let message = "this worker does not train; packages of `pkgtool attach` do";
            return Err(refused(message.to_owned()));
        };
        trained.fit(&*self.service()?, asked, parts).await
    }

    /// Returns the answer of the service.
    async fn call(
        &self,
        data: Option<PayloadProto>,
        config: Option<PayloadProto>,
        headers: &HashMap<String, String>,
    ) -> Result<Answer, ApiErrorProto> {
        let service = self.service()?;
        let request = request_of(data, config, headers);
        let mut request = request.map_err(|refusal| call_error(refusal.into()))?;
        let held = self.memory.take(service.owner, request.body.len());
        let held = held.map_err(|error| call_error(CallError::OutOfMemory(error)))?;
        request.memory = Some(Arc::new(held));
        let prepared = service.prepare(&request).await.map_err(call_error)?;
        let limit = service.settings.predict_timeout();
        let answer = prepared.predict(service.owner, Some(limit)).await;
        answer.map_err(call_error)
    }

    async fn predict(
        &self,
        data: Option<PayloadProto>,
        config: Option<PayloadProto>,
        headers: &HashMap<String, String>,
    ) -> Result<PayloadProto, ApiErrorProto> {
        let answer = self.call(data, config, headers).await?;
        let body = answer.body.whole().await.map_err(call_error)?;
        Ok(answer_payload(&answer.content_type, body))
    }

    /// Sends each event of a streamed answer as a part, and returns the last one.
    async fn streamed(
        &self,
        asked: PartialPredictRequestProto,
        headers: &HashMap<String, String>,
        parts: &AnswerParts,
    ) -> Result<Body, ApiErrorProto> {
        let answer = self.call(asked.data, asked.config, headers).await?;
        let mut chunks = match answer.body {
            service::Body::Stream(chunks) => chunks,
            service::Body::Whole(body) => {
                return Ok(part(
                    Some(answer_payload(&answer.content_type, body)),
                    true,
                    true,
                ));
            }
        };
        let mut framer = EventFramer::default();
        let (mut held, mut is_first): (Option<PayloadProto>, bool) = (None, true);
        loop {
            let chunk = chunks.try_next().await.map_err(call_error)?;
            let is_over = chunk.is_none();
            let events = match chunk {
                Some(chunk) => framer.push(chunk).unwrap_or_default(),
                None => framer.finish(),
            };
            for data in events::data(&events).filter(|data| *data != b"[DONE]") {
                let next = answer_payload(JSON, Bytes::copy_from_slice(data));
                if parts.may_end_without_data() {
                    parts.send(part(Some(next), is_first, false)).await;
                    is_first = false;
                    continue;
                }
                if let Some(before) = held.replace(next) {
                    parts.send(part(Some(before), is_first, false)).await;
                    is_first = false;
                }
            }
            if is_over {
                return Ok(part(held, is_first, true));
            }
        }
    }

    async fn batch(&self, batch: BatchRequestProto, headers: &HashMap<String, String>) -> Body {
        let BatchRequestProto { data, config } = batch;
        // Requests that run at the same time share a run, where the model allows it.
        let each = data.into_iter().map(|one| {
            let config = config.clone();
            async move {
                let body = match self.predict(one.data, config, headers).await {
                    Ok(data) => batch_payload_response_proto::Body::Predict(PredictResponseProto {
                        data: Some(data),
                    }),
                    Err(error) => batch_payload_response_proto::Body::Error(error),
                };
                BatchPayloadResponseProto {
                    request_id: one.request_id,
                    body: Some(body),
                    headers: HashMap::new(),
                }
            }
        });
        Body::Batch(BatchResponseProto {
            data: join_all(each).await,
        })
    }
}

impl Handler for AttachedService {
    async fn answer(&self, request: GateRequest, parts: AnswerParts) -> LastAnswer {
        let start = Instant::now();
        let of = |result: Result<Body, ApiErrorProto>| result.unwrap_or_else(Body::Error);
        let body = match request.asks {
            Asks::Predict(asked) => {
                let answer = self
                    .predict(asked.data, asked.config, &request.headers)
                    .await;
                of(answer.map(|data| Body::Predict(PredictResponseProto { data: Some(data) })))
            }
            Asks::PartialPredict(asked) => of(self.streamed(asked, &request.headers, &parts).await),
            Asks::Batch(batch) => self.batch(batch, &request.headers).await,
            Asks::Fit(asked) => of(self.fit(*asked, &parts).await),
            Asks::Ext(asked) => {
                let name = asked.method_name;
                unsupported(&format!("the service has no method `{name}` of its own"))
            }
        };
        let took = (
            SERVER_TIME.to_owned(),
            start.elapsed().as_millis().to_string(),
        );
        let mut headers = HashMap::from([took]);
        let id = request
            .headers
            .into_iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(REQUEST_ID));
        headers.extend(id);
        LastAnswer { body, headers }
    }

    fn attached(&self, _: &GateAddress) {
        self.is_attached.send_replace(true);
    }
}

/// Returns the name of this machine, if the system has one.
#[must_use]
pub fn hostname() -> Option<String> {
    sysinfo::System::host_name()
}

/// Describes a service to a gate, as one that is not trained.
#[must_use]
pub fn descriptor(service: &Service) -> ServiceDescriptorProto {
    let text = |name: &str| ParamDescriptorProto {
        r#type: name.to_owned(),
    };
    let predict = MethodDescriptorProto {
        input: HashMap::from([
            ("data".to_owned(), text("json")),
            ("config".to_owned(), text("json")),
        ]),
        output: Some(text("json")),
        fitted: None,
    };
    let mut schema_files = HashMap::new();
    if let ServiceKind::Device(device) = &service.kind {
        let description = device.description();
        let facts = serde_json::json!({
            "capabilities": description.capabilities,
            "backends": description.backends,
            "methods": description.methods,
        });
        schema_files.insert("package.json".to_owned(), facts.to_string());
    }
    ServiceDescriptorProto {
        name: service.name.clone(),
        fittable: false,
        methods: HashMap::from([("predict".to_owned(), predict)]),
        schema_files,
    }
}

fn part(data: Option<PayloadProto>, start: bool, finish: bool) -> Body {
    Body::PartialPredict(PartialPredictResponseProto {
        data,
        start: Some(start),
        finish: Some(finish),
    })
}

fn call_error(error: CallError) -> ApiErrorProto {
    let place = match &error {
        CallError::Refused(refusal) => refusal.place.clone(),
        _ => None,
    };
    failed(TaskFailure::of(error), place)
}

fn failed(failure: TaskFailure, place: Option<String>) -> ApiErrorProto {
    let status = match failure.status {
        404 => SimpleStatusProto::NotFound,
        400..500 => SimpleStatusProto::BadRequest,
        _ => SimpleStatusProto::InternalServerError,
    };
    let mut sent = error(&failure.code, status, failure.message);
    sent.args
        .insert("status".to_owned(), failure.status.to_string());
    sent.args
        .extend(place.map(|place| ("place".to_owned(), place)));
    sent
}

fn refused(message: String) -> ApiErrorProto {
    failed(TaskFailure::new(400, "BAD_REQUEST", message), None)
}

fn unsupported(message: &str) -> Body {
    let status = SimpleStatusProto::BadRequest;
    Body::Error(error(code::UNSUPPORTED, status, message.to_owned()))
}
