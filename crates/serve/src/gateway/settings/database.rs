//! The database: the one of the data directory, or one that several servers share.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{CONFIG_FILE, SettingsError, read_file};
use crate::database::{DatabaseUrl, DatabaseUrlError};
use pkgtool_base::source::redact::{MASK, redact_address};

/// The database.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum DatabaseSetting {
    /// In the data directory.
    #[default]
    Own,
    /// A PostgreSQL database, by its URL.
    Shared(String),
}

/// The text is not the URL of a database to share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidDatabase {
    /// It is not the URL of a database.
    #[error(transparent)]
    Url(#[from] DatabaseUrlError),
    /// It is a file.
    #[error(
        "`{0}` is a file, and the database of one server is always in its data directory; choose that with \
         --data-dir, or set the URL of a PostgreSQL database: postgres://USER:PASSWORD@HOST/DATABASE"
    )]
    File(String),
    /// It was printed without its credentials.
    #[error(
        "the user and the password are hidden (`***`), as `--print-config` prints them; put them back"
    )]
    Hidden,
}

/// The part of the settings that names the database.
#[derive(Default, Deserialize)]
#[serde(default)]
struct DatabasePart {
    database: DatabaseSetting,
}

impl DatabaseSetting {
    /// Reads the setting from the settings file of a data directory, if there is one.
    pub fn of_directory(directory: &Path) -> Result<Self, SettingsError> {
        let file = directory.join(CONFIG_FILE);
        if !file.is_file() {
            return Ok(Self::Own);
        }
        read_file::<DatabasePart>(&file).map(|part| part.database)
    }

    /// Returns the URL of the database of a server with this data directory.
    pub fn url(&self, data_directory: &Path) -> DatabaseUrl {
        match self {
            Self::Own => DatabaseUrl::in_directory(data_directory),
            Self::Shared(url) => DatabaseUrl::Postgres(url.clone()),
        }
    }

    /// Returns the setting without credentials.
    pub(super) fn redacted(&self) -> Self {
        match self {
            Self::Own => Self::Own,
            Self::Shared(url) => Self::Shared(redact_address(url)),
        }
    }
}

impl FromStr for DatabaseSetting {
    type Err = InvalidDatabase;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.is_empty() {
            return Ok(Self::Own);
        }
        match text.parse()? {
            DatabaseUrl::Postgres(url) if url.contains(MASK) => Err(InvalidDatabase::Hidden),
            DatabaseUrl::Postgres(url) => Ok(Self::Shared(url)),
            DatabaseUrl::Sqlite(_) => Err(InvalidDatabase::File(text.to_owned())),
        }
    }
}

impl fmt::Debug for DatabaseSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from(self.redacted()))
    }
}

impl TryFrom<String> for DatabaseSetting {
    type Error = InvalidDatabase;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<DatabaseSetting> for String {
    fn from(setting: DatabaseSetting) -> Self {
        match setting {
            DatabaseSetting::Own => Self::new(),
            DatabaseSetting::Shared(url) => url,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_and_not_taken_for_real() {
        for url in [
            "postgres://user:se@cret@db:5433/a?sslmode=require",
            "postgres:///a?host=/run&password=secret",
        ] {
            let setting: DatabaseSetting = url.parse().expect(url);
            let hidden = String::from(setting.redacted());
            assert!(!hidden.contains("cret"), "{hidden}");
            assert!(!format!("{setting:?}").contains("cret"));
            let again = hidden.parse::<DatabaseSetting>();
            assert_eq!(again, Err(InvalidDatabase::Hidden));
            assert_eq!(String::from(setting), url);
        }
    }

    #[test]
    fn only_databases_to_share_are_taken() {
        assert_eq!("".parse(), Ok(DatabaseSetting::Own));
        for file in ["sqlite:a.db", "/var/lib/a.db"] {
            let refused = file.parse::<DatabaseSetting>();
            assert_eq!(refused, Err(InvalidDatabase::File(file.to_owned())));
        }
        let other = "mysql://user:secret@db/a".parse::<DatabaseSetting>();
        let other = other.expect_err("it is refused").to_string();
        assert!(
            other.contains("postgres://") && !other.contains("secret"),
            "{other}"
        );
    }
}
