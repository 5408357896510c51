//! Errors of object storage: which check failed, why, and what to do.

use std::error::Error;
use std::time::Duration;

use object_store::client::{HttpError, HttpErrorKind};

use super::url::ObjectsUrl;
use pkgtool_base::causes::with_causes;
use pkgtool_base::source::redact::redact;

/// An error of the storage as a whole.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{url} at {endpoint}: {fault}")]
pub struct ObjectsError {
    url: String,
    endpoint: String,
    fault: ObjectsFault,
}

/// A fault of the storage.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum ObjectsFault {
    /// The settings are incomplete or contradict each other.
    #[error("invalid settings: {0}; check the variables AWS_*")]
    Settings(String),
    /// The folder cannot be used.
    #[error("the folder cannot be used: {0}; mount it, and let this user write to it")]
    Folder(String),
    /// The endpoint has no TLS.
    #[error(
        "the endpoint has no TLS: expected https://, got http://; set AWS_ALLOW_HTTP=true if the network is \
         trusted"
    )]
    PlainHttp,
    /// The bucket is missing.
    #[error("the bucket does not exist; create it, or correct the address or AWS_ENDPOINT_URL")]
    NoBucket,
    /// The credentials are invalid.
    #[error(
        "the credentials are rejected ({0}); check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and \
         AWS_SESSION_TOKEN"
    )]
    Credentials(String),
    /// The bucket is in another region.
    #[error("the region is wrong ({0}); set AWS_REGION to the region of the bucket")]
    Region(String),
    /// The credentials lack a permission.
    #[error(
        "the credentials may not {} objects ({reason}); allow {} on the bucket", .action.verb(), .action.permission()
    )]
    Denied {
        /// The rejected action.
        action: ObjectAction,
        /// Code and message of the response.
        reason: String,
    },
    /// No connection to the endpoint.
    #[error("no connection: {reason}; check AWS_ENDPOINT_URL and the network{}", lack(*.has_credentials))]
    Unreachable {
        /// The reason.
        reason: String,
        /// False if the environment has no credentials.
        has_credentials: bool,
    },
    /// The endpoint is too slow.
    #[error(
        "no answer within {} seconds; check AWS_ENDPOINT_URL and the network{}", .limit.as_secs(), lack(*.has_credentials)
    )]
    Slow {
        /// The time limit.
        limit: Duration,
        /// False if the environment has no credentials.
        has_credentials: bool,
    },
    /// An object has other content than was written.
    #[error("an object was read with other content than was written; check what the endpoint is")]
    Altered,
    /// Everybody can read the objects.
    #[error(
        "the public can read the objects without credentials; block public access to the bucket, or set \
         `objects.allow_public`"
    )]
    Public,
    /// The prefix belongs to another database.
    #[error(
        "the objects belong to another database: expected one that was created at {own}, found {owner}; use \
         another prefix, or delete the object `owner` below the prefix if that database is gone"
    )]
    Owned {
        /// The database that has the prefix.
        owner: String,
        /// The database that wants it.
        own: String,
    },
    /// Any other error.
    #[error("cannot {} objects: {reason}", .action.verb())]
    Other {
        /// The failed action.
        action: ObjectAction,
        /// The reason.
        reason: String,
    },
}

/// An action on objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectAction {
    Write,
    Read,
    List,
    Delete,
}

impl ObjectsError {
    /// Creates the error for an address and its endpoint.
    pub(super) fn new(url: &ObjectsUrl, endpoint: &str, fault: ObjectsFault) -> Self {
        Self {
            url: url.to_string(),
            endpoint: redact(endpoint),
            fault,
        }
    }
}

impl ObjectsFault {
    /// Classifies the error of an action.
    pub(super) fn of(
        action: ObjectAction,
        error: &object_store::Error,
        has_credentials: bool,
    ) -> Self {
        if is_unreachable(error) {
            return Self::Unreachable {
                reason: storage_reason(error),
                has_credentials,
            };
        }
        let text = with_causes(error);
        let reason = response(&text).unwrap_or_else(|| storage_reason(error));
        match (element(&text, "Code"), error) {
            (Some("NoSuchBucket"), _) => Self::NoBucket,
            (Some("AuthorizationHeaderMalformed" | "IllegalLocationConstraintException"), _) => {
                Self::Region(reason)
            }
            (
                Some(
                    "InvalidAccessKeyId"
                    | "SignatureDoesNotMatch"
                    | "ExpiredToken"
                    | "InvalidToken"
                    | "InvalidClientTokenId"
                    | "RequestTimeTooSkewed",
                ),
                _,
            )
            | (None, object_store::Error::Unauthenticated { .. }) => Self::Credentials(reason),
            (_, object_store::Error::PermissionDenied { .. }) => Self::Denied { action, reason },
            // Some requests report it in another error.
            _ if text.contains("AccessDenied") => Self::Denied { action, reason },
            // Only a missing bucket is not found when an object is written.
            (None, object_store::Error::NotFound { .. }) if action == ObjectAction::Write => {
                Self::NoBucket
            }
            _ if text.contains("redirect without LOCATION") => Self::Region(reason),
            _ => Self::Other { action, reason },
        }
    }

    /// Returns the fault of settings that cannot be used.
    pub(super) fn settings(error: &object_store::Error) -> Self {
        Self::Settings(storage_reason(error))
    }
}

impl ObjectAction {
    fn verb(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::List => "list",
            Self::Delete => "delete",
        }
    }

    fn permission(self) -> &'static str {
        match self {
            Self::Write => "s3:PutObject and s3:AbortMultipartUpload",
            Self::Read => "s3:GetObject",
            Self::List => "s3:ListBucket",
            Self::Delete => "s3:DeleteObject",
        }
    }
}

/// Returns the reason of an error. A response is reduced to its code and message, because it may
/// quote the signed request.
pub(crate) fn storage_reason(error: &object_store::Error) -> String {
    let text = with_causes(error);
    let Some((start, _)) = text.split_once('<') else {
        return redact(&text);
    };
    let start = start.trim_end_matches([' ', ':']);
    let response = response(&text).unwrap_or_else(|| "the response has no code".to_owned());
    redact(&format!("{start}: {response}"))
}

/// Returns the code and the message of a response.
fn response(text: &str) -> Option<String> {
    let code = element(text, "Code")?;
    let message = element(text, "Message").unwrap_or("no message");
    Some(redact(&format!("{code}: {message}")))
}

/// Returns whether an object is missing, instead of its bucket.
pub(crate) fn is_missing(error: &object_store::Error) -> bool {
    let code = |text: &str| element(text, "Code").is_none_or(|code| code == "NoSuchKey");
    matches!(error, object_store::Error::NotFound { .. }) && code(&with_causes(error))
}

/// Returns the text of an element of a response.
fn element<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inside, _) = rest.split_once(&format!("</{name}>"))?;
    Some(inside)
}

/// Returns whether no response arrived.
fn is_unreachable(error: &object_store::Error) -> bool {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(http) = cause.downcast_ref::<HttpError>() {
            return matches!(
                http.kind(),
                HttpErrorKind::Connect
                    | HttpErrorKind::Request
                    | HttpErrorKind::Timeout
                    | HttpErrorKind::Interrupted
            );
        }
        source = cause.source();
    }
    false
}

/// Returns advice on credentials, if the environment has none.
fn lack(has_credentials: bool) -> &'static str {
    if has_credentials {
        ""
    } else {
        "; AWS_ACCESS_KEY_ID is not set, so credentials were requested from the metadata of this machine"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(body: &str) -> object_store::Error {
        object_store::Error::PermissionDenied {
            path: "body/x".to_owned(),
            source: format!("Server returned non-2xx status code: 403 Forbidden: {body}").into(),
        }
    }

    #[test]
    fn responses_are_reduced_to_code_and_message() {
        let error = denied(
            "<?xml version=\"1.0\"?><Error><Code>SignatureDoesNotMatch</Code><Message>It differs.</Message>\
             <AWSAccessKeyId>AKIDEXAMPLE</AWSAccessKeyId><StringToSign>AWS4</StringToSign></Error>",
        );
        let reason = storage_reason(&error);
        assert!(
            reason.ends_with("403 Forbidden: SignatureDoesNotMatch: It differs."),
            "{reason}"
        );
        let fault = ObjectsFault::of(ObjectAction::Write, &error, true).to_string();
        assert!(fault.contains("check AWS_ACCESS_KEY_ID"), "{fault}");
        assert!(!fault.contains("AKIDEXAMPLE"), "{fault}");
    }

    #[test]
    fn a_missing_bucket_does_not_count_as_a_missing_object() {
        let missing = |body: &str| object_store::Error::NotFound {
            path: "body/x".to_owned(),
            source: body.into(),
        };
        assert!(is_missing(&missing("No such file or directory")));
        assert!(is_missing(&missing("<Code>NoSuchKey</Code>")));
        assert!(!is_missing(&missing("<Code>NoSuchBucket</Code>")));
        assert!(!is_missing(&denied("")));
    }

    #[test]
    fn a_lacking_permission_is_named() {
        let error = denied("<Error><Code>AccessDenied</Code><Message>No.</Message></Error>");
        for (action, permission) in [
            (ObjectAction::Write, "s3:PutObject"),
            (ObjectAction::Read, "s3:GetObject"),
            (ObjectAction::List, "s3:ListBucket"),
            (ObjectAction::Delete, "s3:DeleteObject"),
        ] {
            let fault = ObjectsFault::of(action, &error, true).to_string();
            assert!(fault.contains(permission), "{fault}");
        }
    }
}
