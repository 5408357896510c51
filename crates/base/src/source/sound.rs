//! Checks whether a text is valid JSON by the rules of `serde_json`, without building its value.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// Any valid JSON text. Unlike `serde`'s `IgnoredAny`, every part is checked: numbers must fit and
/// strings must be valid Unicode.
pub(super) struct ValidJson;

impl<'de> Deserialize<'de> for ValidJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

/// A key of an object.
struct ValidKey;

impl<'de> Deserialize<'de> for ValidKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(AnyValue).map(|ValidJson| Self)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = ValidJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<ValidJson, E> {
        Ok(ValidJson)
    }

    fn visit_i64<E>(self, _: i64) -> Result<ValidJson, E> {
        Ok(ValidJson)
    }

    fn visit_u64<E>(self, _: u64) -> Result<ValidJson, E> {
        Ok(ValidJson)
    }

    fn visit_f64<E>(self, _: f64) -> Result<ValidJson, E> {
        Ok(ValidJson)
    }

    fn visit_str<E>(self, _: &str) -> Result<ValidJson, E> {
        Ok(ValidJson)
    }

    fn visit_unit<E>(self) -> Result<ValidJson, E> {
        Ok(ValidJson)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<ValidJson, A::Error> {
        while let Some(ValidJson) = elements.next_element()? {}
        Ok(ValidJson)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<ValidJson, A::Error> {
        while let Some((ValidKey, ValidJson)) = members.next_entry()? {}
        Ok(ValidJson)
    }
}
