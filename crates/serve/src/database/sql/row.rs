//! Rows of SQL queries.

use super::value::SqlValue;
use crate::database::{DatabaseError, DatabaseResult};

/// A row.
#[derive(Debug)]
pub(crate) struct SqlRow(Vec<SqlValue>);

/// A type of which a column holds values.
pub(crate) trait ColumnType: Sized {
    /// Reads a value; `None` if it is of another type.
    fn of(value: &SqlValue) -> Option<Self>;
}

impl SqlRow {
    pub(crate) fn new(values: Vec<SqlValue>) -> Self {
        Self(values)
    }

    /// Reads the value of a column.
    pub(crate) fn get<T: ColumnType>(&self, column: usize) -> DatabaseResult<T> {
        let value = self.0.get(column);
        value.and_then(T::of).ok_or_else(|| {
            let found = value.map_or("no column", SqlValue::kind);
            fault(format!("column {column} has an unexpected value: {found}"))
        })
    }
}

/// Reports a value in the database that this release does not know.
pub(crate) fn unknown_value(text: &str) -> DatabaseError {
    fault(format!("unknown value `{text}`"))
}

pub(super) fn fault(reason: String) -> DatabaseError {
    DatabaseError::Other {
        path: "the database".to_owned(),
        reason,
    }
}

impl SqlValue {
    fn kind(&self) -> &'static str {
        match self {
            Self::Integer(_) => "an integer",
            Self::Text(_) => "a text",
            Self::Bytes(_) => "bytes",
        }
    }

    /// Returns whether the value is missing. SQLite returns missing values without a type.
    fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::Integer(None) | Self::Text(None) | Self::Bytes(None)
        )
    }
}

impl<T: ColumnType> ColumnType for Option<T> {
    fn of(value: &SqlValue) -> Option<Self> {
        if value.is_missing() {
            return Some(None);
        }
        T::of(value).map(Some)
    }
}

impl ColumnType for i64 {
    fn of(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Integer(number) => *number,
            _ => None,
        }
    }
}

macro_rules! small_integers {
    ($($type:ty),*) => {
        $(
            impl ColumnType for $type {
                fn of(value: &SqlValue) -> Option<Self> {
                    i64::of(value)?.try_into().ok()
                }
            }
        )*
    };
}
small_integers!(u32, u16, u8);

impl ColumnType for bool {
    fn of(value: &SqlValue) -> Option<Self> {
        i64::of(value).map(|number| number != 0)
    }
}

impl ColumnType for String {
    fn of(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Text(text) => text.clone(),
            _ => None,
        }
    }
}

impl ColumnType for Vec<u8> {
    fn of(value: &SqlValue) -> Option<Self> {
        match value {
            SqlValue::Bytes(bytes) => bytes.clone(),
            _ => None,
        }
    }
}

impl ColumnType for [u8; 32] {
    fn of(value: &SqlValue) -> Option<Self> {
        Vec::<u8>::of(value)?.try_into().ok()
    }
}
