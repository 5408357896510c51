//! Finds out which documents an unreadable message was about. The server no longer knows their
//! texts.
//!
//! Invariant: the result includes every affected document. Editing a text that differs from the
//! client's would damage it.

use serde_json::Value;

/// Methods of messages that change the text of documents.
const TEXT_CHANGING_METHODS: [&str; 2] = ["textDocument/didChange", "textDocument/didOpen"];

/// The documents whose text is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum UnknownTexts {
    Nothing,
    /// The document with this URI.
    One(String),
    /// Any document.
    All,
}

impl UnknownTexts {
    /// Returns the documents affected by a message that is invalid JSON or truncated.
    pub(super) fn with(body: &[u8]) -> Self {
        let method = values_of("method", body).next();
        if method.is_some_and(|method| !TEXT_CHANGING_METHODS.contains(&method.as_str())) {
            return Self::Nothing;
        }
        let mut uris = values_of("uri", body);
        match uris.next() {
            Some(uri) if uris.all(|other| other == uri) => Self::One(uri),
            _ => Self::All,
        }
    }

    /// Returns the documents affected by a message with valid JSON but invalid parameters.
    pub(super) fn from_params(method: Option<&str>, params: &Value) -> Self {
        if method.is_none_or(|method| !TEXT_CHANGING_METHODS.contains(&method)) {
            return Self::Nothing;
        }
        let uri = params["textDocument"]["uri"].as_str();
        uri.map_or(Self::All, |uri| Self::One(uri.to_owned()))
    }

    /// Returns whether a document is affected.
    pub(super) fn has(&self, uri: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::One(one) => one == uri,
            Self::All => true,
        }
    }
}

/// Returns all strings that a key has anywhere in a text that resembles JSON. Keys inside of
/// strings do not match, because their quotes are escaped with backslashes.
fn values_of(key: &str, body: &[u8]) -> impl Iterator<Item = String> {
    let quoted = format!("\"{key}\"");
    (0..body.len()).filter_map(move |start| {
        let rest = body[start..].strip_prefix(quoted.as_bytes())?;
        let rest = rest.trim_ascii_start().strip_prefix(b":")?;
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<String>();
        values.next()?.ok()
    })
}

#[cfg(test)]
mod tests {
    use super::UnknownTexts;

    #[test]
    fn what_is_lost_is_never_too_little() {
        let change = r#"{"method":"textDocument/didChange","params":{"textDocument":{"uri": "file:///a"},"contentChanges":[{"text":"\"uri\":\"x\" \ud83d"}]}}"#;
        let one = UnknownTexts::One("file:///a".to_owned());
        assert_eq!(UnknownTexts::with(change.as_bytes()), one);
        assert_eq!(UnknownTexts::with(&change.as_bytes()[..90]), one);
        let hover = change.replace("didChange", "hover");
        assert_eq!(UnknownTexts::with(hover.as_bytes()), UnknownTexts::Nothing);
        for unclear in [
            "",
            "{",
            "{\"method\":\"textDocument/didChange\"",
            "{\"uri\":\"a\",\"uri\":\"b\"",
            "{\"uri\":\"a",
        ] {
            assert_eq!(
                UnknownTexts::with(unclear.as_bytes()),
                UnknownTexts::All,
                "{unclear}"
            );
        }
    }
}
