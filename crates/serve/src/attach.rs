//! Services as instances at gates: requests of the gate protocol become requests to a [`Service`], and its answers and
//! errors go back.
//!
//! Invariant: the bytes of a request reach the service as they came, and the bytes of its answer the gate.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::stream::TryStreamExt as _;

use crate::service::events::{self, EventFramer};
use crate::service::{self, Answer, BodyMemory, CallError, Request, Service, ServiceKind};
use crate::task::TaskFailure;
use pkgtool_gate::instance::{AnswerParts, Asks, GateRequest, Handler, LastAnswer};
use pkgtool_gate::protocol::service_to_gate_proto::Body;
use pkgtool_gate::protocol::{
    ApiErrorProto, BatchPayloadResponseProto, BatchRequestProto, BatchResponseProto,
    MethodDescriptorProto, ParamDescriptorProto, PartialPredictRequestProto,
    PartialPredictResponseProto, PayloadProto, PredictResponseProto, ServiceDescriptorProto,
    SimpleStatusProto, batch_payload_response_proto, code, error, payload_proto,
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
        }
    }

    /// Returns the answer of the service.
    async fn call(
        &self,
        data: Option<PayloadProto>,
        config: Option<PayloadProto>,
    ) -> Result<Answer, ApiErrorProto> {
        let gone = || TaskFailure::new(404, "SERVICE_NOT_FOUND", "the service was removed");
        let service = (self.find)().ok_or_else(|| failed(gone(), None))?;
        let mut request = request(data, config)?;
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
    ) -> Result<PayloadProto, ApiErrorProto> {
        let answer = self.call(data, config).await?;
        let body = answer.body.whole().await.map_err(call_error)?;
        Ok(payload(&answer.content_type, body))
    }

    /// Sends each event of a streamed answer as a part, and returns the last one.
    async fn streamed(
        &self,
        asked: PartialPredictRequestProto,
        parts: &AnswerParts,
    ) -> Result<Body, ApiErrorProto> {
        let answer = self.call(asked.data, asked.config).await?;
        let mut chunks = match answer.body {
            service::Body::Stream(chunks) => chunks,
            service::Body::Whole(body) => {
                return Ok(part(Some(payload(&answer.content_type, body)), true, true));
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
                let next = payload(JSON, Bytes::copy_from_slice(data));
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

    async fn batch(&self, batch: BatchRequestProto) -> Body {
        let BatchRequestProto { data, config } = batch;
        // Requests that run at the same time share a run, where the model allows it.
        let each = data.into_iter().map(|one| {
            let config = config.clone();
            async move {
                let body = match self.predict(one.data, config).await {
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
                let answer = self.predict(asked.data, asked.config).await;
                of(answer.map(|data| Body::Predict(PredictResponseProto { data: Some(data) })))
            }
            Asks::PartialPredict(asked) => of(self.streamed(asked, &parts).await),
            Asks::Batch(batch) => self.batch(batch).await,
            Asks::Fit(_) => unsupported("an attached package is not trained through its gate"),
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
}

/// Describes a service to a gate.
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

/// Returns the request that a service is to answer.
fn request(
    data: Option<PayloadProto>,
    config: Option<PayloadProto>,
) -> Result<Request, ApiErrorProto> {
    let invalid = |message: &str| {
        let failure = TaskFailure::new(400, crate::task::BAD_REQUEST, message);
        failed(failure, Some("$".to_owned()))
    };
    let data = data.ok_or_else(|| invalid("the request has no data: expected a payload"))?;
    let body = match data.body {
        Some(payload_proto::Body::Json(text)) => Bytes::from(text),
        Some(payload_proto::Body::Protobuf(bytes)) => Bytes::from(bytes),
        None => {
            return Err(invalid(
                "the data has no body: expected `json` or `protobuf`",
            ));
        }
    };
    let config = match config.and_then(|config| config.body) {
        Some(payload_proto::Body::Json(text)) => Some(text),
        Some(payload_proto::Body::Protobuf(_)) => {
            return Err(invalid("the config is `protobuf`: expected `json`"));
        }
        None => None,
    };
    Ok(Request {
        body,
        config: config.filter(|text| !text.trim().is_empty()),
        data_type: data.data_type,
        ..Request::default()
    })
}

/// Returns the payload of an answer. Text goes as `json`, everything else as bytes with its media type.
fn payload(content_type: &str, body: Bytes) -> PayloadProto {
    let is_json = content_type
        .split(';')
        .next()
        .is_some_and(|media| media.trim().eq_ignore_ascii_case(JSON));
    match String::from_utf8(body.into()) {
        Ok(text) if is_json => PayloadProto {
            data_type: None,
            body: Some(payload_proto::Body::Json(text)),
        },
        other => PayloadProto {
            data_type: Some(content_type.to_owned()),
            body: Some(payload_proto::Body::Protobuf(match other {
                Ok(text) => text.into_bytes(),
                Err(error) => error.into_bytes(),
            })),
        },
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

fn unsupported(message: &str) -> Body {
    let status = SimpleStatusProto::BadRequest;
    Body::Error(error(code::UNSUPPORTED, status, message.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_need_a_body() {
        let of = |body| PayloadProto {
            data_type: Some("text/plain".to_owned()),
            body,
        };
        let json = |text: &str| Some(payload_proto::Body::Json(text.to_owned()));
        let found = request(Some(of(json("[1]"))), Some(of(json(" ")))).expect("it is valid");
        assert_eq!((&found.body[..], found.config), (&b"[1]"[..], None));
        assert_eq!(found.data_type.as_deref(), Some("text/plain"));
        let bytes = Some(payload_proto::Body::Protobuf(vec![0xff]));
        let found = request(Some(of(bytes.clone())), Some(of(json("{}")))).expect("it is valid");
        assert_eq!(
            (&found.body[..], found.config.as_deref()),
            (&[0xff][..], Some("{}"))
        );
        for (data, config) in [
            (None, None),
            (Some(of(None)), None),
            (Some(of(json("1"))), Some(of(bytes))),
        ] {
            let error = request(data, config).expect_err("it is invalid");
            assert_eq!((error.status, &*error.args["status"]), (400, "400"));
        }
    }

    #[test]
    fn answers_keep_their_bytes_and_their_type() {
        let sent = payload("application/json; charset=utf-8", Bytes::from("{\"a\": 1}"));
        assert_eq!(
            sent.body,
            Some(payload_proto::Body::Json("{\"a\": 1}".to_owned()))
        );
        let sent = payload("audio/wav", Bytes::from_static(b"RIFF"));
        assert_eq!(sent.data_type.as_deref(), Some("audio/wav"));
        assert_eq!(
            sent.body,
            Some(payload_proto::Body::Protobuf(b"RIFF".to_vec()))
        );
    }
}
