//! A field of a request together with its path.
//!
//! Invariant: an absent field and a `null` field are treated alike.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use super::fault::{FieldError, described};

/// A value and its path.
#[derive(Debug, Clone)]
pub(super) struct RequestField<'v> {
    pub(super) path: String,
    pub(super) value: &'v Value,
}

impl<'v> RequestField<'v> {
    /// Wraps a whole request.
    pub(super) fn root(value: &'v Value) -> Self {
        Self {
            path: String::new(),
            value,
        }
    }

    /// Returns a member of an object.
    pub(super) fn get(&self, key: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self {
            path: format!("{}{dot}{key}", self.path),
            value: self.value.get(key).unwrap_or(&Value::Null),
        }
    }

    /// Returns whether the field is present and not `null`.
    pub(super) fn is_present(&self) -> bool {
        !self.value.is_null()
    }

    /// Returns the field if it is present.
    pub(super) fn there(self) -> Option<Self> {
        self.is_present().then_some(self)
    }

    /// Creates an error of this field.
    pub(super) fn fault(&self, expected: impl Into<String>) -> FieldError {
        FieldError::at(&self.path, expected, described(self.value))
    }

    pub(super) fn object(&self) -> Result<&'v Map<String, Value>, FieldError> {
        self.value
            .as_object()
            .ok_or_else(|| self.fault("an object"))
    }

    /// Returns the items of a list with `least` to `most` items.
    pub(super) fn items(
        &self,
        of: &str,
        least: usize,
        most: usize,
    ) -> Result<impl ExactSizeIterator<Item = RequestField<'v>> + use<'v>, FieldError> {
        let items = self.value.as_array();
        let items = items.ok_or_else(|| self.fault(format!("a list of {of}")))?;
        if items.len() < least {
            return Err(self.fault(format!("at least one of {of}")));
        }
        if items.len() > most {
            return Err(self.fault(format!("at most {most} {of}")));
        }
        let path = self.path.clone();
        Ok(items
            .iter()
            .enumerate()
            .map(move |(place, value)| RequestField {
                path: format!("{path}[{place}]"),
                value,
            }))
    }

    pub(super) fn text(&self) -> Result<&'v str, FieldError> {
        self.value.as_str().ok_or_else(|| self.fault("a string"))
    }

    /// Returns the string, if present.
    pub(super) fn optional_text(self) -> Result<Option<String>, FieldError> {
        self.there()
            .map(|field| field.text().map(str::to_owned))
            .transpose()
    }

    /// Returns the boolean; `false` if absent.
    pub(super) fn flag(&self) -> Result<bool, FieldError> {
        match self.value {
            Value::Null => Ok(false),
            Value::Bool(flag) => Ok(*flag),
            _ => Err(self.fault("true or false")),
        }
    }

    /// Returns the whole number, if present.
    pub(super) fn count(&self, bounds: RangeInclusive<u32>) -> Result<Option<u32>, FieldError> {
        if !self.is_present() {
            return Ok(None);
        }
        let whole = whole_number(self.value).and_then(|number| u32::try_from(number).ok());
        let within = whole.filter(|number| bounds.contains(number));
        within.map(Some).ok_or_else(|| {
            let (least, most) = bounds.into_inner();
            self.fault(format!("a whole number from {least} to {most}"))
        })
    }
}

/// Returns a whole number, even if it is written with a decimal point.
fn whole_number(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| {
        let number = value.as_f64()?;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the value is a small whole number"
        )]
        let whole = number as i64;
        (number.fract() == 0.0 && number.abs() < 1e15).then_some(whole)
    })
}
