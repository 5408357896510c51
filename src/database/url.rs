//! Which database: its kind and where it is, as a text.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The database's file in a data directory, where nothing else is said.
const FILE: &str = "pkgtool.db";

/// The kinds of databases there are, each as its URLs are written. A kind has a variant of
/// [`DatabaseUrl`], too.
const FORMS: [&str; 1] = ["sqlite:FILE"];

/// A kind of database and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// SQLite's file.
    Sqlite(PathBuf),
}

/// Why a text is no URL of a database. Of the text only the scheme is told: the rest may hold a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DatabaseUrlError {
    /// There is no such kind of database.
    #[error("`{scheme}:` is no kind of database that is known here; expected {}", FORMS.join(" or "))]
    Scheme {
        /// What was asked for.
        scheme: String,
    },
    /// It says nothing of where the database is.
    #[error("the URL of a database names no file; expected {}", FORMS.join(" or "))]
    NoFile,
    /// It has parameters.
    #[error("`sqlite:` takes no parameters after `?`; expected {}", FORMS[0])]
    Parameters,
}

impl DatabaseUrl {
    /// The database of a data directory.
    pub fn in_directory(directory: &Path) -> Self {
        Self::Sqlite(directory.join(FILE))
    }
}

/// `sqlite:FILE`, `sqlite://FILE`, or a path alone, which is SQLite's file.
impl FromStr for DatabaseUrl {
    type Err = DatabaseUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let file = match scheme(text) {
            None => text,
            Some(("sqlite", rest)) if rest.contains('?') => {
                return Err(DatabaseUrlError::Parameters);
            }
            Some(("sqlite", rest)) => rest.strip_prefix("//").unwrap_or(rest),
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
        }
    }
}

/// A text's scheme and what follows it. One letter is no scheme but a drive.
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
    fn what_is_not_known_is_refused_with_what_is() {
        for text in ["postgres://user:secret@host/a", "mysql:a", "sqlite3:a.db"] {
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
