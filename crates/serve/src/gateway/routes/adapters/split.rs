//! Splits a client's body into what a service gets: data and config, or the body with its model
//! replaced.
//!
//! Invariant: keys, numbers and escapes are passed on byte for byte. Only the value of `model` is
//! replaced, or the member is removed. Bodies are never parsed into a tree.

use std::ops::Range;

use serde_json::value::RawValue;

use crate::service::json::{self, Object};
use crate::service::{AdapterMethod, Refusal};

/// The service and model that a body names: `author/service[/model]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ModelId {
    /// The account that owns the service.
    pub(super) author: String,
    /// The service.
    pub(super) service: String,
    /// The value of `model` that is passed on to the service.
    pub(super) model: Option<String>,
}

/// The members of a body, with their positions.
pub(super) struct BodyFields<'a> {
    text: &'a str,
    members: Vec<BodyMember<'a>>,
}

struct BodyMember<'a> {
    key: String,
    value: &'a RawValue,
    /// From the first character of the key to the last of the value.
    whole: Range<usize>,
}

/// The parts of a body for a service, in standard mode.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SplitBody {
    /// `model`, `stream` and the method's own field.
    pub(super) data: String,
    /// All other fields, which override the service's default config.
    pub(super) config: String,
}

impl ModelId {
    /// Parses an id; returns `None` if it names no service. The model may contain slashes.
    pub(super) fn read(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        let (author, service) = (parts.next()?, parts.next()?);
        let model = parts.next().filter(|model| !model.is_empty());
        (!author.is_empty() && !service.is_empty()).then(|| Self {
            author: author.to_owned(),
            service: service.to_owned(),
            model: model.map(str::to_owned),
        })
    }
}

impl<'a> BodyFields<'a> {
    /// Parses the members of a body. Duplicate keys are an error.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Refusal> {
        let text = json::text(body)?;
        let members = located(text, json::members(text, "$")?);
        Ok(Self { text, members })
    }

    /// Returns the field `model`.
    pub(super) fn model(&self) -> Result<String, Refusal> {
        const PLACE: &str = "$.model";
        let expected = "expected the id of a model (author/service or author/service/model)";
        let Some(member) = self.member("model") else {
            return Err(Refusal::at(PLACE, format!("{expected}, got nothing")));
        };
        json::string(member.value, PLACE)
            .map(std::borrow::Cow::into_owned)
            .map_err(|_| {
                let found = json::kind(member.value.get());
                Refusal::at(PLACE, format!("{expected}, got {found}"))
            })
    }

    /// Returns `true` if the client asked for a streamed answer.
    pub(super) fn stream(&self) -> Result<bool, Refusal> {
        match self.member("stream").map(|member| member.value.get()) {
            Some("true") => Ok(true),
            None | Some("false" | "null") => Ok(false),
            Some(other) => {
                let found = json::kind(other);
                let message = format!("expected true or false, got {found}");
                Err(Refusal::at("$.stream", message))
            }
        }
    }

    /// Returns data and config. The config in the body overrides the service's default.
    pub(super) fn split(
        &self,
        method: AdapterMethod,
        model: Option<&str>,
        default: Option<&str>,
    ) -> Result<SplitBody, Refusal> {
        let own = method.field();
        self.require(method)?;
        let is_data = |key: &str| key == "model" || key == "stream" || key == own;
        let mut data = Vec::new();
        for member in self.members.iter().filter(|member| is_data(&member.key)) {
            match (member.key.as_str(), model) {
                ("model", None) => {}
                ("model", Some(model)) => {
                    let key = &self.text[member.whole.start..start(self.text, member.value)];
                    data.push(format!("{key}{}", quoted(model)));
                }
                _ => data.push(self.text[member.whole.clone()].to_owned()),
            }
        }
        let default = default.unwrap_or("{}");
        let before = located(default, json::members(default, "$.config")?);
        let mut config: Vec<&str> = Vec::new();
        let given = |key: &str| self.members.iter().any(|member| member.key == key);
        let kept = before.iter().filter(|member| !given(&member.key));
        config.extend(kept.map(|member| &default[member.whole.clone()]));
        let rest = self.members.iter().filter(|member| !is_data(&member.key));
        config.extend(rest.map(|member| &self.text[member.whole.clone()]));
        Ok(SplitBody {
            data: format!("{{{}}}", data.join(",")),
            config: format!("{{{}}}", config.join(",")),
        })
    }

    /// Returns the body with its model replaced or removed.
    pub(super) fn with_model(&self, model: Option<&str>) -> String {
        let Some(at) = self.members.iter().position(|it| it.key == "model") else {
            return self.text.to_owned();
        };
        let member = &self.members[at];
        let (cut, instead) = match model {
            Some(model) => {
                let start = start(self.text, member.value);
                (start..member.whole.end, quoted(model))
            }
            None => (self.without(at), String::new()),
        };
        let (before, after) = (&self.text[..cut.start], &self.text[cut.end..]);
        [before, &instead, after].concat()
    }

    /// Returns the range of a member including its comma.
    fn without(&self, at: usize) -> Range<usize> {
        let whole = &self.members[at].whole;
        match (self.members.get(at + 1), at.checked_sub(1)) {
            (Some(next), _) => whole.start..next.whole.start,
            (None, Some(before)) => self.members[before].whole.end..whole.end,
            (None, None) => whole.clone(),
        }
    }

    fn require(&self, method: AdapterMethod) -> Result<(), Refusal> {
        let field = method.field();
        let place = format!("$.{field}");
        let value = self.member(field).map(|member| member.value.get());
        let found = value.map_or("nothing", json::kind);
        let (fits, expected) = match method {
            AdapterMethod::Chat => (found == "an array", "an array of messages"),
            AdapterMethod::Completion | AdapterMethod::Embeddings => (
                ["a string", "an array"].contains(&found),
                "a text, or an array of texts or of tokens",
            ),
        };
        if fits {
            return Ok(());
        }
        let message = format!("expected {expected}, got {found}");
        Err(Refusal::at(place, message))
    }

    fn member(&self, key: &str) -> Option<&BodyMember<'a>> {
        self.members.iter().find(|member| member.key == key)
    }
}

/// Locates the members of an object in its text.
fn located<'a>(text: &'a str, members: Object<'a>) -> Vec<BodyMember<'a>> {
    let mut from = 0;
    let members = members.into_iter().map(|(key, value)| {
        // Only space and a comma separate two members, so the next quote begins a key.
        let key_at = text[from..].find('"').map_or(from, |at| from + at);
        let end = start(text, value) + value.get().len();
        from = end;
        BodyMember {
            key,
            value,
            whole: key_at..end,
        }
    });
    members.collect()
}

/// Returns the offset of a value in the text from which it was parsed.
fn start(text: &str, value: &RawValue) -> usize {
    value.get().as_ptr().addr() - text.as_ptr().addr()
}

fn quoted(text: &str) -> String {
    // Serializing a string does not fail.
    serde_json::to_string(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(body: &str) -> BodyFields<'_> {
        BodyFields::read(body.as_bytes()).expect("it is an object")
    }

    #[test]
    fn ids_have_two_or_three_parts() {
        let id = |text: &str| {
            let id = ModelId::read(text)?;
            Some((id.author, id.service, id.model))
        };
        let parts = |a: &str, b: &str, c: Option<&str>| {
            Some((a.to_owned(), b.to_owned(), c.map(str::to_owned)))
        };
        assert_eq!(id("a/b"), parts("a", "b", None));
        assert_eq!(id("a/b/"), parts("a", "b", None));
        assert_eq!(id("a/b/c"), parts("a", "b", Some("c")));
        assert_eq!(id("a/b/c/d"), parts("a", "b", Some("c/d")));
        for wrong in ["", "a", "/", "a/", "/b", "//c"] {
            assert_eq!(id(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_passed_on_has_the_same_bytes() {
        let body = r#" { "top_p" : 1.0e-0 ,"m\u0065ssages":[ {"content":"\u00e9 \/ é"} ], "stream":true,
            "model":"a/b/c", "seed":12345678901234567890123, "z":{"b":1,"a":-0} } "#;
        let split = fields(body).split(AdapterMethod::Chat, Some("c\"d"), None);
        let split = split.expect("it is right");
        assert_eq!(
            split.data,
            r#"{"m\u0065ssages":[ {"content":"\u00e9 \/ é"} ],"stream":true,"model":"c\"d"}"#
        );
        assert_eq!(
            split.config,
            r#"{"top_p" : 1.0e-0,"seed":12345678901234567890123,"z":{"b":1,"a":-0}}"#
        );
        let split = fields(body).split(AdapterMethod::Chat, None, None);
        assert!(!split.expect("it is right").data.contains("model"));
    }

    #[test]
    fn a_default_config_gives_way() {
        let default = r#"{"temperature":0.10,"backend":"xnnpack","top_k":5}"#;
        let body = r#"{"model":"a/b","messages":[],"temperature":null,"n":1}"#;
        let split = fields(body).split(AdapterMethod::Chat, None, Some(default));
        let config = split.expect("it is right").config;
        assert_eq!(
            config,
            r#"{"backend":"xnnpack","top_k":5,"temperature":null,"n":1}"#
        );
        let nothing = fields(r#"{"model":"a/b","input":"x"}"#);
        let split = nothing.split(AdapterMethod::Embeddings, None, None);
        assert_eq!(split.expect("it is right").config, "{}");
    }

    #[test]
    fn the_model_of_a_body_is_replaced_or_left_out() {
        for (body, without, with) in [
            (r#"{"model":"a/b"}"#, "{}", r#"{"model":"m"}"#),
            (
                r#"{ "model" : "a/b" , "x":1 }"#,
                r#"{ "x":1 }"#,
                r#"{ "model" : "m" , "x":1 }"#,
            ),
            (
                "{\"x\":\"\\u0041\" ,\n\"model\":\"a/b\"\n}",
                "{\"x\":\"\\u0041\"\n}",
                "{\"x\":\"\\u0041\" ,\n\"model\":\"m\"\n}",
            ),
            (
                r#"{"a":1,"model":"a/b","b":{"model":"stays"}}"#,
                r#"{"a":1,"b":{"model":"stays"}}"#,
                r#"{"a":1,"model":"m","b":{"model":"stays"}}"#,
            ),
        ] {
            assert_eq!(fields(body).with_model(None), without);
            assert_eq!(fields(body).with_model(Some("m")), with);
        }
    }

    #[test]
    fn what_is_wrong_has_its_field() {
        let place = |result: Result<_, Refusal>| result.map(drop).expect_err("wrong").place;
        for body in ["[]", "", "{", "{\"a\":1,\"a\":2}", "\"{}\""] {
            let read = BodyFields::read(body.as_bytes());
            assert_eq!(place(read.map(drop)).as_deref(), Some("$"), "{body}");
        }
        assert!(BodyFields::read(b"{\"model\":\"\xff\"}").is_err());
        for body in [
            "{}",
            r#"{"model":1}"#,
            r#"{"model":null}"#,
            r#"{"model":"\ud800"}"#,
        ] {
            let place = place(fields(body).model().map(drop));
            assert_eq!(place.as_deref(), Some("$.model"), "{body}");
        }
        let stream = fields(r#"{"stream":"yes"}"#).stream();
        assert_eq!(place(stream.map(drop)).as_deref(), Some("$.stream"));
        for (body, method, at) in [
            ("{}", AdapterMethod::Chat, "$.messages"),
            (r#"{"messages":"hello"}"#, AdapterMethod::Chat, "$.messages"),
            (r#"{"messages":[]}"#, AdapterMethod::Completion, "$.prompt"),
            (r#"{"input":{}}"#, AdapterMethod::Embeddings, "$.input"),
        ] {
            let split = fields(body).split(method, None, None);
            assert_eq!(place(split.map(drop)).as_deref(), Some(at), "{body}");
        }
    }
}
