//! Values of SQL statements.

/// A value: a number, a text, or bytes; each may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SqlValue {
    Integer(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
}

/// Lists the values of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        [$($crate::database::sql::SqlValue::from($value)),*]
    };
}
pub(crate) use values;

macro_rules! integers {
    ($($type:ty),*) => {
        $(
            impl From<$type> for SqlValue {
                fn from(value: $type) -> Self {
                    Self::Integer(Some(value.into()))
                }
            }

            impl From<Option<$type>> for SqlValue {
                fn from(value: Option<$type>) -> Self {
                    Self::Integer(value.map(Into::into))
                }
            }
        )*
    };
}
integers!(i64, u32, u16, u8, bool);

impl From<String> for SqlValue {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<&String> for SqlValue {
    fn from(text: &String) -> Self {
        Self::Text(Some(text.clone()))
    }
}

impl From<&str> for SqlValue {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<Option<String>> for SqlValue {
    fn from(text: Option<String>) -> Self {
        Self::Text(text)
    }
}

impl From<Option<&str>> for SqlValue {
    fn from(text: Option<&str>) -> Self {
        Self::Text(text.map(str::to_owned))
    }
}

impl From<[u8; 32]> for SqlValue {
    fn from(bytes: [u8; 32]) -> Self {
        Self::Bytes(Some(bytes.to_vec()))
    }
}

impl From<&Vec<u8>> for SqlValue {
    fn from(bytes: &Vec<u8>) -> Self {
        Self::Bytes(Some(bytes.clone()))
    }
}
