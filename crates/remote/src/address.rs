//! The address of a package: a URL, or the short form for a repository of a hub
//! (`hf:owner/repo@revision/path`).

use reqwest::Url;

use super::RemoteError;
use super::name;

/// Prefix of the short form.
const HUB_PREFIX: &str = "hf:";
/// Default revision of a repository.
const DEFAULT_REVISION: &str = "main";

/// The address of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A URL of a directory, a config or a model.
    Web(Url),
    /// A repository of a hub, or a path in it.
    Hub(HubAddress),
}

/// A repository of a hub, or a path in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HubAddress {
    /// Name of the repository: `owner/name`.
    pub repository: String,
    /// Branch, tag or commit.
    pub revision: String,
    /// Path of a file or folder in the repository; empty for the whole repository.
    pub path: String,
}

impl Address {
    /// Returns whether a text is an address and not a path.
    pub fn is_one(text: &str) -> bool {
        let begins = |prefix: &str| {
            text.get(..prefix.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
        };
        text.starts_with(HUB_PREFIX) || begins("https://") || begins("http://")
    }

    /// Parses a text for which [`Self::is_one`] is true.
    pub fn parse(text: &str) -> Result<Self, RemoteError> {
        let wrong = |reason: &str| RemoteError::Address {
            address: text.to_owned(),
            reason: reason.to_owned(),
        };
        if let Some(rest) = text.strip_prefix(HUB_PREFIX) {
            return HubAddress::parse(rest).map(Self::Hub).map_err(wrong);
        }
        let mut url = Url::parse(text).map_err(|error| wrong(&error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(RemoteError::Address {
                address: format!(
                    "{}://…@{}",
                    url.scheme(),
                    url.host_str().unwrap_or_default()
                ),
                reason: "addresses with a user name or password are not supported: remove them"
                    .to_owned(),
            });
        }
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong("expected http:// or https:// and a host"));
        }
        url.set_fragment(None);
        Ok(Self::Web(url))
    }

    /// Returns the address for display, without its query, which may be a secret.
    pub fn shown(&self) -> String {
        match self {
            Self::Web(url) => {
                let mut url = url.clone();
                url.set_query(None);
                url.into()
            }
            Self::Hub(hub) if hub.path.is_empty() => hub.shown(),
            Self::Hub(hub) => format!("{}/{}", hub.shown(), hub.path),
        }
    }
}

impl HubAddress {
    fn parse(rest: &str) -> Result<Self, &'static str> {
        const FORM: &str = "expected hf:OWNER/REPOSITORY[@REVISION][/PATH]";
        let (owner, rest) = rest.split_once('/').ok_or(FORM)?;
        let (repository, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (repository, revision) = match repository.split_once('@') {
            Some((repository, revision)) => (repository, name::decoded(revision).ok_or(FORM)?),
            None => (repository, DEFAULT_REVISION.to_owned()),
        };
        let is_name = |name: &str| {
            name::is_safe_segment(name)
                && name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        let path = path.trim_end_matches('/');
        if !is_name(owner) || !is_name(repository) || !name::is_safe(&revision) {
            return Err(FORM);
        }
        if !path.is_empty() && !name::is_safe(path) {
            return Err(
                "invalid path in the repository: expected a plain path without `..` and empty segments",
            );
        }
        Ok(Self {
            repository: format!("{owner}/{repository}"),
            revision,
            path: path.to_owned(),
        })
    }

    /// Returns the repository in the short form, without a path.
    pub(super) fn shown(&self) -> String {
        let revision = self.revision.replace('/', "%2F");
        if revision == DEFAULT_REVISION {
            format!("{HUB_PREFIX}{}", self.repository)
        } else {
            format!("{HUB_PREFIX}{}@{revision}", self.repository)
        }
    }
}

/// Parses the URL of a hub, so that paths can be appended to it.
pub(super) fn endpoint(text: &str) -> Result<Url, RemoteError> {
    let wrong = |reason: String| RemoteError::Address {
        address: text.to_owned(),
        reason: format!("{reason}; expected the address of a hub, such as https://huggingface.co"),
    };
    let url = Url::parse(text.trim()).map_err(|error| wrong(error.to_string()))?;
    let is_one = matches!(url.scheme(), "http" | "https") && url.host_str().is_some();
    if is_one && url.query().is_none() && url.fragment().is_none() && url.username().is_empty() {
        Ok(url)
    } else {
        Err(wrong("not a plain http(s) address".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_paths() {
        for text in ["https://a/b", "HTTP://a", "hf:a/b"] {
            assert!(Address::is_one(text), "{text}");
        }
        for text in ["a/b", "./https:", "C:\\x", "-", "https", "hf", "ü"] {
            assert!(!Address::is_one(text), "{text}");
        }
        let Ok(Address::Hub(hub)) = Address::parse("hf:a/b.c@refs%2Fpr%2F1/1b/xnnpack/") else {
            panic!("a hub's");
        };
        assert_eq!(
            (
                hub.repository.as_str(),
                hub.revision.as_str(),
                hub.path.as_str()
            ),
            ("a/b.c", "refs/pr/1", "1b/xnnpack")
        );
        assert_eq!(hub.shown(), "hf:a/b.c@refs%2Fpr%2F1");
        for wrong in [
            "hf:",
            "hf:a",
            "hf:a/",
            "hf:../b",
            "hf:a/b@",
            "hf:a/b/../c",
            "hf:a/b@../x",
            "hf:a b/c",
            "http://",
            "https://user:word@host/",
        ] {
            assert!(Address::parse(wrong).is_err(), "{wrong}");
        }
    }
}
