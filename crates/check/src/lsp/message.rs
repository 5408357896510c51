//! JSON-RPC 2.0 messages: parses those of the client, and builds responses and notifications.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::lost::UnknownTexts;

/// Error codes of JSON-RPC and LSP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ErrorCode {
    Parse = -32700,
    InvalidRequest = -32600,
    MethodNotFound = -32601,
    InvalidParams = -32602,
    Internal = -32603,
    NotInitialized = -32002,
    Cancelled = -32800,
    /// The client may send the request again.
    ServerCancelled = -32802,
}

/// The error of a failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestError {
    pub(super) code: ErrorCode,
    pub(super) message: String,
}

/// A message from the client.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Incoming {
    Request {
        id: Value,
        method: String,
        params: Value,
    },
    Notification {
        method: String,
        params: Value,
    },
    /// A response to a request of this server. Its content does not matter.
    Response,
    /// An invalid message, which gets an error response.
    Invalid {
        id: Value,
        fault: RequestError,
        lost: UnknownTexts,
    },
}

impl RequestError {
    pub(super) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl Incoming {
    /// Parses a message.
    pub(super) fn read(body: &[u8]) -> Self {
        let invalid = |id, code, message: &str, lost| Self::Invalid {
            id,
            fault: RequestError::new(code, message),
            lost,
        };
        let mut message = match serde_json::from_slice::<Value>(body) {
            Ok(message) => message,
            Err(error) => {
                let reason = format!("invalid JSON: {error}");
                let lost = UnknownTexts::with(body);
                return invalid(Value::Null, ErrorCode::Parse, &reason, lost);
            }
        };
        let id = message.get("id").cloned();
        if !message.is_object() {
            let reason = "invalid message: expected a JSON object";
            return invalid(
                Value::Null,
                ErrorCode::InvalidRequest,
                reason,
                UnknownTexts::Nothing,
            );
        }
        let params = message.get_mut("params").map_or(Value::Null, Value::take);
        match (id, message.get("method").and_then(Value::as_str)) {
            (Some(id), Some(method)) if id.is_string() || id.is_i64() || id.is_u64() => {
                Self::Request {
                    id,
                    method: method.to_owned(),
                    params,
                }
            }
            (None, Some(method)) => Self::Notification {
                method: method.to_owned(),
                params,
            },
            (_, Some(method)) => {
                let reason = "invalid `id`: expected a string or an integer";
                let lost = UnknownTexts::from_params(Some(method), &params);
                invalid(Value::Null, ErrorCode::InvalidRequest, reason, lost)
            }
            (Some(_), None) if has_answer(&message) => Self::Response,
            (id, None) => invalid(
                id.unwrap_or_default(),
                ErrorCode::InvalidRequest,
                "invalid message: expected a `method`, or an `id` with `result` or `error`",
                UnknownTexts::Nothing,
            ),
        }
    }
}

fn has_answer(message: &Value) -> bool {
    message.get("result").is_some() || message.get("error").is_some()
}

/// Converts the parameters of a request to their type.
pub(super) fn params<T: DeserializeOwned>(params: Value) -> Result<T, RequestError> {
    serde_json::from_value(params)
        .map_err(|error| RequestError::new(ErrorCode::InvalidParams, error.to_string()))
}

/// Builds the response to a request.
pub(super) fn response(id: &Value, outcome: Result<Value, RequestError>) -> Value {
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(fault) => json!({
            "jsonrpc": "2.0",
            "id": id,
            "error": { "code": fault.code as i32, "message": fault.message },
        }),
    }
}

/// Builds a notification to the client.
pub(super) fn notification(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

/// Builds a request to the client. Null parameters are omitted.
pub(super) fn request(id: &str, method: &str, params: &Value) -> Value {
    let mut request = json!({ "jsonrpc": "2.0", "id": id, "method": method });
    if !params.is_null() {
        request["params"] = params.clone();
    }
    request
}

#[cfg(test)]
mod tests {
    use super::{ErrorCode, Incoming};

    #[test]
    fn what_is_no_message_is_told_apart() {
        let read = |text: &str| Incoming::read(text.as_bytes());
        let code = |text: &str| match read(text) {
            Incoming::Invalid { fault, .. } => Some(fault.code),
            _ => None,
        };
        for text in ["", "{", "nul", "{\"a\":1}x", "\u{1}"] {
            assert_eq!(code(text), Some(ErrorCode::Parse), "{text}");
        }
        for text in [
            "[]",
            "1",
            "{}",
            r#"{"id":1}"#,
            r#"{"id":{},"method":"a"}"#,
            r#"{"id":1.5,"method":"a"}"#,
            r#"{"id":null,"method":"a"}"#,
            r#"{"id":1,"method":7}"#,
        ] {
            assert_eq!(code(text), Some(ErrorCode::InvalidRequest), "{text}");
        }
        assert_eq!(read(r#"{"id":1,"result":null}"#), Incoming::Response);
        assert!(matches!(
            read(r#"{"id":"a","method":"m"}"#),
            Incoming::Request { .. }
        ));
        assert!(matches!(
            read(r#"{"method":"m"}"#),
            Incoming::Notification { .. }
        ));
    }
}
