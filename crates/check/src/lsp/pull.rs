//! Requests for findings (`textDocument/diagnostic`), for clients that pull findings.
//!
//! Invariant: a request for a text that has not been checked yet waits for the check. Each request
//! is answered once: by the check, by an earlier event that ends the wait, or when too many
//! requests wait.

use std::hash::{DefaultHasher, Hasher};

use serde::Deserialize;
use serde_json::{Value, json};

use super::message::{self, RequestError};

/// Maximum number of requests that wait for checks.
const MAX_WAITING: usize = 1000;

/// A request for the findings of a document.
#[derive(Debug, PartialEq)]
pub(super) struct DiagnosticRequest {
    pub(super) id: Value,
    pub(super) uri: String,
    /// Id of the findings that the client already has.
    previous: Option<String>,
}

/// Waiting requests, oldest first.
#[derive(Debug, Default)]
pub(super) struct WaitingRequests(Vec<DiagnosticRequest>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params {
    text_document: Identifier,
    #[serde(default)]
    previous_result_id: Option<String>,
}

#[derive(Deserialize)]
struct Identifier {
    uri: String,
}

impl DiagnosticRequest {
    pub(super) fn read(id: Value, params: Value) -> Result<Self, (Value, RequestError)> {
        match message::params::<Params>(params) {
            Ok(params) => Ok(Self {
                id,
                uri: params.text_document.uri,
                previous: params.previous_result_id,
            }),
            Err(fault) => Err((id, fault)),
        }
    }

    /// Returns the answer: the findings, or that they are unchanged.
    pub(super) fn report(&self, findings: &[Value]) -> Value {
        let result = result_id(findings);
        if self.previous.as_ref() == Some(&result) {
            json!({ "kind": "unchanged", "resultId": result })
        } else {
            json!({ "kind": "full", "resultId": result, "items": findings })
        }
    }
}

impl WaitingRequests {
    /// Adds a waiting request. If there are too many, removes and returns the oldest one.
    pub(super) fn wait(&mut self, pull: DiagnosticRequest) -> Option<DiagnosticRequest> {
        self.0.push(pull);
        (self.0.len() > MAX_WAITING).then(|| self.0.remove(0))
    }

    /// Removes and returns the request with this id.
    pub(super) fn take(&mut self, id: &Value) -> Option<DiagnosticRequest> {
        let at = self.0.iter().position(|pull| pull.id == *id)?;
        Some(self.0.remove(at))
    }

    /// Removes and returns the requests for a document.
    pub(super) fn take_of(&mut self, uri: &str) -> Vec<DiagnosticRequest> {
        self.0.extract_if(.., |pull| pull.uri == uri).collect()
    }

    /// Removes and returns all requests.
    pub(super) fn take_all(&mut self) -> Vec<DiagnosticRequest> {
        std::mem::take(&mut self.0)
    }
}

/// Returns the id of findings. Equal findings have the same id, even in another session.
fn result_id(findings: &[Value]) -> String {
    let mut hasher = DefaultHasher::new();
    for finding in findings {
        hasher.write(finding.to_string().as_bytes());
    }
    format!("{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{DiagnosticRequest, MAX_WAITING, WaitingRequests};

    fn pull(id: usize, uri: &str, previous: Option<&str>) -> DiagnosticRequest {
        let params = json!({ "textDocument": { "uri": uri }, "previousResultId": previous, "identifier": "x" });
        DiagnosticRequest::read(json!(id), params).expect("a request")
    }

    #[test]
    fn what_the_client_has_is_not_told_again() {
        let findings = [json!({ "code": "PKG001" }), json!({ "code": "PKG002" })];
        let first = pull(1, "file:///a", None).report(&findings);
        assert_eq!(first["kind"], "full");
        assert_eq!(first["items"], json!(findings));
        let known = first["resultId"].as_str();
        let again = pull(2, "file:///a", known).report(&findings);
        assert_eq!(
            again,
            json!({ "kind": "unchanged", "resultId": first["resultId"] })
        );
        let fewer = pull(3, "file:///a", known).report(&findings[..1]);
        assert_eq!(fewer["kind"], "full");
        assert_ne!(fewer["resultId"], first["resultId"]);
        let none = pull(4, "file:///a", None).report(&[]);
        assert_eq!(
            (&none["kind"], &none["items"]),
            (&json!("full"), &json!([]))
        );
    }

    #[test]
    fn who_waits_is_answered_once() {
        let mut pulls = WaitingRequests::default();
        for id in 0..MAX_WAITING {
            assert_eq!(pulls.wait(pull(id, "file:///a", None)), None);
        }
        let crowded_out = pulls.wait(pull(MAX_WAITING, "file:///b", None));
        assert_eq!(crowded_out.map(|pull| pull.id), Some(json!(0)));
        assert_eq!(pulls.take(&json!(0)), None);
        assert_eq!(pulls.take(&json!(1)).map(|pull| pull.id), Some(json!(1)));
        let ids: Vec<Value> = pulls
            .take_of("file:///b")
            .into_iter()
            .map(|pull| pull.id)
            .collect();
        assert_eq!(ids, [json!(MAX_WAITING)]);
        assert_eq!(pulls.take_all().len(), MAX_WAITING - 2);
        assert!(pulls.take_all().is_empty());
    }

    #[test]
    fn a_request_without_a_document_is_none() {
        assert!(DiagnosticRequest::read(json!(1), json!({ "textDocument": {} })).is_err());
        assert!(DiagnosticRequest::read(json!(1), Value::Null).is_err());
    }
}
