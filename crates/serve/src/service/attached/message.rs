//! Conversion between requests and answers of services and messages of the gate protocol, in both directions.
//!
//! Invariant: the bytes of data, configs and answers pass unchanged.

use std::collections::HashMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::super::away::is_small;
use super::super::{CallError, Refusal, Request, SERVICE_UNAVAILABLE};
use pkgtool_gate::host::RemoteInstance;
use pkgtool_gate::instance::Asks;
use pkgtool_gate::protocol::{
    ApiErrorProto, PartialPredictRequestProto, PayloadProto, PredictRequestProto,
    SimpleStatusProto, payload_proto,
};

/// The message for an answer that does not belong to its request.
pub(super) const OTHER_KIND: &str = "the worker's answer is of another kind than the request";

/// The media type of JSON.
const JSON: &str = "application/json";
/// The media type of bytes of an unknown kind.
const BYTES: &str = "application/octet-stream";
/// The config of a request without one.
const NO_CONFIG: &str = "{}";
/// The header with the media types that a client accepts.
const ACCEPT: &str = "Accept";
/// The code of an instance's error without a code.
const SERVICE_ERROR: &str = "mlp-action.common.service-error";
/// Maximum length of an error's code and message, in characters.
const MAX_CODE_CHARS: usize = 200;
const MAX_MESSAGE_CHARS: usize = 10_000;
/// Maximum number of an error's arguments, and the length of each, in characters.
const MAX_ARGUMENTS: usize = 32;
const MAX_ARGUMENT_CHARS: usize = 10_000;

/// The content of a request.
#[derive(Debug)]
pub(super) struct RequestContent {
    pub(super) body: Bytes,
    pub(super) config: Option<String>,
    pub(super) data_type: Option<String>,
    pub(super) accept: Option<String>,
}

/// The content of an answer.
pub(super) struct AnsweredPayload {
    pub(super) content_type: String,
    pub(super) body: Bytes,
}

/// Returns whether a body asks for an answer in parts.
pub(super) async fn is_streamed(body: &Bytes) -> Result<bool, CallError> {
    #[derive(Deserialize)]
    struct Flags<'f> {
        #[serde(borrow, default)]
        stream: Option<&'f RawValue>,
    }
    let read = |body: &[u8]| {
        let flags = serde_json::from_slice::<Flags<'_>>(body);
        flags.is_ok_and(|flags| flags.stream.is_some_and(|stream| stream.get() == "true"))
    };
    if is_small(body) {
        return Ok(read(body));
    }
    let body = body.clone();
    let read = tokio::task::spawn_blocking(move || read(&body));
    read.await
        .map_err(|error| CallError::Failed(error.to_string()))
}

/// Returns the message of a request to an instance, and its headers.
pub(super) fn asks(
    content: &RequestContent,
    is_streamed: bool,
    instance: &RemoteInstance,
) -> (Asks, HashMap<String, String>) {
    let data = Some(payload(content.body.clone(), content.data_type.clone()));
    // The platform's SDKs parse a config in every request.
    let default = instance.is_of_platform().then_some(NO_CONFIG);
    let config = content.config.as_deref().or(default);
    let config = config.map(|config| payload(config.to_owned().into(), None));
    let asks = if is_streamed {
        Asks::PartialPredict(PartialPredictRequestProto {
            data,
            config,
            start: Some(true),
            finish: Some(true),
        })
    } else {
        Asks::Predict(PredictRequestProto { data, config })
    };
    let accept = content.accept.as_ref().filter(|accept| *accept != "*/*");
    let headers = accept.map(|accept| (ACCEPT.to_owned(), accept.clone()));
    (asks, headers.into_iter().collect())
}

/// Returns a payload of text as `json`, of everything else as bytes.
pub(crate) fn payload(body: Bytes, data_type: Option<String>) -> PayloadProto {
    PayloadProto {
        data_type,
        body: Some(payload_body(body)),
    }
}

/// Text goes as `json`, everything else as bytes.
fn payload_body(body: Bytes) -> payload_proto::Body {
    match String::from_utf8(body.into()) {
        Ok(text) => payload_proto::Body::Json(text),
        Err(error) => payload_proto::Body::Protobuf(error.into_bytes()),
    }
}

/// Returns the content of an answer.
pub(super) fn answered(
    payload: Option<PayloadProto>,
    worker: &str,
) -> Result<AnsweredPayload, CallError> {
    let none = || bad_answer("the worker's answer has no data".to_owned(), worker);
    let payload = payload.ok_or_else(none)?;
    let media = payload.data_type.filter(|name| is_media_type(name));
    Ok(match payload.body.ok_or_else(none)? {
        payload_proto::Body::Json(text) => AnsweredPayload {
            content_type: media.unwrap_or_else(|| JSON.to_owned()),
            body: text.into(),
        },
        payload_proto::Body::Protobuf(bytes) => AnsweredPayload {
            content_type: media.unwrap_or_else(|| BYTES.to_owned()),
            body: bytes.into(),
        },
    })
}

/// Returns the error for an answer that cannot be passed on.
pub(super) fn bad_answer(message: String, worker: &str) -> CallError {
    CallError::Instance {
        status: 502,
        code: SERVICE_UNAVAILABLE.to_owned(),
        message,
        args: Vec::new(),
        worker: worker.to_owned(),
    }
}

/// Returns whether a data type is a media type that can stand in a header.
fn is_media_type(name: &str) -> bool {
    let is_address = name.contains("://");
    name.contains('/')
        && !is_address
        && name.len() <= 256
        && name.bytes().all(|it| (b' '..=b'~').contains(&it))
}

/// Converts an error of an instance.
pub(super) fn failed(error: ApiErrorProto, worker: &str) -> CallError {
    let exact = error
        .args
        .get("status")
        .and_then(|status| status.parse().ok());
    let status = exact.filter(|status| (400..600).contains(status));
    let status = status.unwrap_or(match SimpleStatusProto::try_from(error.status) {
        Ok(SimpleStatusProto::BadRequest) => 400,
        Ok(SimpleStatusProto::NotFound) => 404,
        _ => 500,
    });
    let code = match &*error.code {
        "" => SERVICE_ERROR.to_owned(),
        code => short(code, MAX_CODE_CHARS),
    };
    CallError::Instance {
        status,
        code,
        message: short(&error.message, MAX_MESSAGE_CHARS),
        args: arguments(error.args),
        worker: worker.to_owned(),
    }
}

fn short(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// Returns the arguments of an error, without the status.
fn arguments(args: HashMap<String, String>) -> Vec<(String, String)> {
    let args = args.into_iter().filter(|(name, _)| name != "status");
    let args = args.map(|(name, value)| {
        (
            short(&name, MAX_CODE_CHARS),
            short(&value, MAX_ARGUMENT_CHARS),
        )
    });
    let mut args: Vec<_> = args.collect();
    args.sort();
    args.truncate(MAX_ARGUMENTS);
    args
}

/// Returns the request that a service is to answer.
pub(crate) fn request_of(
    data: Option<PayloadProto>,
    config: Option<PayloadProto>,
    headers: &HashMap<String, String>,
) -> Result<Request, Refusal> {
    let invalid = |message: &str| Refusal::at("$", message);
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
    let accept = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(ACCEPT));
    Ok(Request {
        body,
        config: config.filter(|text| !text.trim().is_empty()),
        data_type: data.data_type,
        accept: accept.map(|(_, accept)| accept.clone()),
        ..Request::default()
    })
}

/// Returns the payload of an answer. JSON goes as `json`, everything else as bytes with its media type.
pub(crate) fn answer_payload(content_type: &str, body: Bytes) -> PayloadProto {
    let essence = content_type.split(';').next().unwrap_or_default();
    let is_json = essence.trim().eq_ignore_ascii_case(JSON);
    match payload_body(body) {
        payload_proto::Body::Json(text) if is_json => payload(text.into(), None),
        other => PayloadProto {
            data_type: Some(content_type.to_owned()),
            body: Some(payload_proto::Body::Protobuf(match other {
                payload_proto::Body::Json(text) => text.into_bytes(),
                payload_proto::Body::Protobuf(bytes) => bytes,
            })),
        },
    }
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
        let request = |data, config| request_of(data, config, &HashMap::new());
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
            let refusal = request(data, config).expect_err("it is invalid");
            assert_eq!(refusal.place.as_deref(), Some("$"));
        }
    }

    #[test]
    fn answers_keep_their_bytes_and_their_type() {
        for (content_type, body, expected) in [
            ("application/json; charset=utf-8", &b"{\"a\": 1}"[..], JSON),
            ("audio/wav", b"RIFF", "audio/wav"),
            ("text/plain", b"a \xff", "text/plain"),
        ] {
            let sent = answer_payload(content_type, Bytes::from_static(body));
            let answer = answered(Some(sent), "desk/1").map_err(|error| error.to_string());
            let answer = answer.expect("it has data");
            assert_eq!((&*answer.content_type, &answer.body[..]), (expected, body));
        }
        let no_media = PayloadProto {
            data_type: Some("https://specs/common.yml#/Audio".to_owned()),
            body: Some(payload_proto::Body::Protobuf(vec![1])),
        };
        let answer = answered(Some(no_media), "desk/1").map_err(|error| error.to_string());
        assert_eq!(answer.expect("it has data").content_type, BYTES);
        assert!(answered(None, "desk/1").is_err());
    }

    #[tokio::test]
    async fn streams_are_asked_for_by_a_flag_of_the_body() {
        let large = format!("{{\"a\": \"{}\", \"stream\": true}}", "x".repeat(1 << 17));
        for (body, expected) in [
            ("{\"messages\": [], \"stream\": true}", true),
            ("{\"stream\":  false}", false),
            ("{\"messages\": [{\"stream\": true}]}", false),
            ("[{\"stream\": true}]", false),
            ("\"stream\": true", false),
            ("", false),
            (&large, true),
        ] {
            let body = Bytes::from(body.to_owned());
            assert_eq!(is_streamed(&body).await.ok(), Some(expected));
        }
    }

    #[test]
    fn errors_of_instances_are_passed_on_within_limits() {
        let failure = |error: &ApiErrorProto| match failed(error.clone(), "desk/1") {
            CallError::Instance {
                status,
                code,
                message,
                args,
                ..
            } => (status, code, message, args),
            other => panic!("expected an error of an instance, got {other:?}"),
        };
        let mut error = ApiErrorProto {
            code: String::new(),
            message: "x".repeat(20_000),
            status: SimpleStatusProto::NotFound.into(),
            args: (0..100)
                .map(|at| (at.to_string(), "y".repeat(20_000)))
                .collect(),
        };
        let (status, code, message, args) = failure(&error);
        assert_eq!((status, &*code), (404, SERVICE_ERROR));
        assert_eq!(message.len(), MAX_MESSAGE_CHARS);
        assert_eq!(args.len(), MAX_ARGUMENTS);
        assert!(
            args.iter()
                .all(|(_, value)| value.len() == MAX_ARGUMENT_CHARS)
        );
        error.args.clear();
        for (status, expected) in [("409", 409), ("200", 404), ("no", 404), ("99999", 404)] {
            error.args.insert("status".to_owned(), status.to_owned());
            let (status, _, _, args) = failure(&error);
            assert_eq!((status, args.len()), (expected, 0));
        }
    }
}
