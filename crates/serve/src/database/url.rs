//! Database URLs: the kind and location of a database.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Default file name of the database in a data directory.
const DEFAULT_FILE: &str = "pkgtool.db";

/// The supported forms of URLs. Each corresponds to a variant of [`DatabaseUrl`].
const SUPPORTED_FORMS: [&str; 2] = ["sqlite:FILE", "postgres://USER:PASSWORD@HOST/DATABASE"];

/// The kind and location of a database.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// The file of an SQLite database.
    Sqlite(PathBuf),
    /// The URL of a PostgreSQL database, which may contain a password.
    Postgres(String),
}

/// The text is not a database URL. Only the scheme is shown: the rest may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseUrlError {
    /// The kind of database is unsupported.
    #[error("unsupported kind of database `{scheme}:`; expected {}", SUPPORTED_FORMS.join(" or "))]
    Scheme {
        /// The scheme of the URL.
        scheme: String,
    },
    /// The location is missing.
    #[error("the database URL lacks a file; expected {}", SUPPORTED_FORMS.join(" or "))]
    NoFile,
    /// The URL has parameters.
    #[error("`sqlite:` URLs with parameters after `?` are unsupported; expected {}", SUPPORTED_FORMS[0])]
    Parameters,
}

impl DatabaseUrl {
    /// Returns the database of a data directory.
    pub fn in_directory(directory: &Path) -> Self {
        Self::Sqlite(Self::file_in(directory))
    }

    /// Returns the file of the database of a data directory.
    pub fn file_in(directory: &Path) -> PathBuf {
        directory.join(DEFAULT_FILE)
    }
}

/// Accepted: `sqlite:FILE`, `sqlite://FILE`, or a path, which is an SQLite file; `postgres://…` and `postgresql://…`.
impl FromStr for DatabaseUrl {
    type Err = DatabaseUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let file = match scheme(text) {
            None => text,
            Some(("sqlite", rest)) if rest.contains('?') => {
                return Err(DatabaseUrlError::Parameters);
            }
            Some(("sqlite", rest)) => rest.strip_prefix("//").unwrap_or(rest),
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                return Ok(Self::Postgres(text.to_owned()));
            }
            Some((other, _)) => {
                return Err(DatabaseUrlError::Scheme {
                    scheme: other.to_owned(),
                });
            }
        };
        if file.is_empty() {
            return Err(DatabaseUrlError::NoFile);
        }
        Ok(Self::Sqlite(file.into()))
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(file) => write!(f, "sqlite:{}", file.display()),
            Self::Postgres(url) => f.write_str(&without_password(url)),
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({self})")
    }
}

/// Returns the hosts and the name of a database.
pub(super) fn without_password(url: &str) -> String {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let rest = rest.split('?').next().unwrap_or_default();
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    format!("postgres://{place}")
}

/// Splits a text into its scheme and the rest. A single letter is a drive, not a scheme.
fn scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let begins = scheme.starts_with(|first: char| first.is_ascii_alphabetic());
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    (begins && scheme.len() > 1 && scheme.bytes().all(allowed)).then_some((scheme, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_kind_and_a_place() {
        for (text, file) in [
            ("sqlite:/var/lib/a.db", "/var/lib/a.db"),
            ("sqlite:///var/lib/a.db", "/var/lib/a.db"),
            ("sqlite:a.db", "a.db"),
            ("sqlite:a:b", "a:b"),
            ("/var/lib/a.db", "/var/lib/a.db"),
            ("./x:y", "./x:y"),
            ("C:\\a.db", "C:\\a.db"),
        ] {
            let url: DatabaseUrl = text.parse().expect(text);
            assert_eq!(url, DatabaseUrl::Sqlite(file.into()), "{text}");
            let again: DatabaseUrl = url.to_string().parse().expect(text);
            assert_eq!(again, url);
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        for (text, place) in [
            (
                "postgres://user:se@cret@db.example.org:5433/a?sslmode=require",
                "db.example.org:5433/a",
            ),
            ("postgresql://localhost/a", "localhost/a"),
            ("postgres:///a?host=/run&password=secret", "/a"),
        ] {
            let url: DatabaseUrl = text.parse().expect(text);
            assert_eq!(url, DatabaseUrl::Postgres(text.to_owned()));
            assert_eq!(url.to_string(), format!("postgres://{place}"));
            assert!(!format!("{url:?}").contains("secret"));
        }
    }

    #[test]
    fn what_is_not_known_is_refused_with_what_is() {
        for text in ["mysql://user:secret@host/a", "postgres:a", "sqlite3:a.db"] {
            let error = text.parse::<DatabaseUrl>().expect_err(text).to_string();
            let scheme = text.split(':').next().expect("it has one");
            assert!(error.contains(&format!("`{scheme}:`")), "{error}");
            assert!(error.contains("sqlite:FILE"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        for text in ["", "sqlite:", "sqlite://", "sqlite:a.db?mode=ro"] {
            let error = text.parse::<DatabaseUrl>().expect_err(text).to_string();
            assert!(error.contains("sqlite:FILE"), "{error}");
        }
    }
}
