//! Parses a request body as JSON within limits.
//!
//! Invariant: no more values are built than [`RequestLimits`] allows. A list of zeros takes thirty times
//! the memory of its text.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::bounds::RequestLimits;
use super::fault::FieldError;

/// Parses a request body.
pub fn read_json(body: &[u8], bounds: &RequestLimits) -> Result<Value, FieldError> {
    if body.len() > bounds.bytes {
        let expected = format!("at most {} bytes", bounds.bytes);
        return Err(FieldError::at(
            "",
            expected,
            format!("{} bytes", body.len()),
        ));
    }
    let left = Cell::new(bounds.values);
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = CountedValue(&left).deserialize(&mut reader);
    let value = value.and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| {
        if error.is_data() && left.get() == 0 {
            let expected = format!("JSON of at most {} values", bounds.values);
            return FieldError::at("", expected, "more values");
        }
        FieldError::at("", "JSON", format!("invalid JSON: {error}"))
    })
}

/// Parses a value and decrements the remaining count.
#[derive(Clone, Copy)]
struct CountedValue<'c>(&'c Cell<usize>);

impl<'de> DeserializeSeed<'de> for CountedValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        match self.0.get().checked_sub(1) {
            Some(left) => self.0.set(left),
            None => return Err(D::Error::custom("too many values")),
        }
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for CountedValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            object.insert(key, members.next_value_seed(self)?);
        }
        Ok(object.into())
    }
}
