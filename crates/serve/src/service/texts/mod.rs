//! Embedding requests as JSON: parses texts, writes vectors, and parses the predict config's keys
//! for embedding.
//!
//! A request is `{"texts": ["…", …]}`, an answer `{"embedded_texts": [{"vector": [0.1, …]}, …]}` in
//! the same order. Invariant: number and length of the texts are checked before any text is
//! processed.

use serde::Serialize;
use serde_json::Value;

use super::Refusal;
use super::json::{self, Object, shown, unknown_key};
use pkgtool_text::embedding::{
    EmbeddingError, EmbeddingOptions, MAX_TEXT_BYTES, MAX_TEXTS, Pooling,
};

/// The key of the texts.
const TEXTS_KEY: &str = "texts";

/// Keys of a request.
const KEYS: &[&str] = &[TEXTS_KEY];

/// JSON path of a config in refusals.
const CONFIG_PATH: &str = "$.config";

/// Returns the texts of a request, if its body contains texts.
pub fn decode(body: &[u8]) -> Result<Option<Vec<String>>, Refusal> {
    let text = json::text(body)?;
    // This avoids parsing large tensors twice.
    if !text.contains(TEXTS_KEY) {
        return Ok(None);
    }
    let text = json::unwrapped(text)?;
    let Ok(members) = json::members(&text, "$") else {
        // The parser of tensors reports the fault.
        return Ok(None);
    };
    let Some((_, texts)) = members.iter().find(|(key, _)| key == TEXTS_KEY) else {
        return Ok(None);
    };
    if let Some((key, _)) = members.iter().find(|(key, _)| key != TEXTS_KEY) {
        return Err(unknown_key("$", key, KEYS));
    }
    let place = format!("$.{TEXTS_KEY}");
    let texts = json::elements(texts.get(), MAX_TEXTS, &place)?.into_iter();
    let text = |(at, text): (usize, &serde_json::value::RawValue)| {
        let place = format!("{place}[{at}]");
        let text = json::string(text, &place)?;
        if text.len() > MAX_TEXT_BYTES {
            let bytes = text.len();
            let message =
                format!("the text has {bytes} bytes, more than the limit of {MAX_TEXT_BYTES}");
            return Err(Refusal::at(place, message));
        }
        Ok(text.into_owned())
    };
    texts
        .enumerate()
        .map(text)
        .collect::<Result<_, _>>()
        .map(Some)
}

/// Returns the refusal of texts by a service that does not embed.
pub fn not_taken() -> Refusal {
    Refusal::at(
        format!("$.{TEXTS_KEY}"),
        "this service does not take texts: its package needs the capability `text-embedding`, a \
         `tokenizer`, and a model that takes ids of tokens; give tensors in `inputs`",
    )
}

/// Writes vectors as an answer.
#[expect(
    clippy::missing_panics_doc,
    reason = "numbers and lists always serialize"
)]
pub fn encode(vectors: &[Vec<f32>]) -> Vec<u8> {
    #[derive(Serialize)]
    struct EmbeddedText<'v> {
        vector: &'v [f32],
    }
    #[derive(Serialize)]
    struct EmbeddingAnswer<'v> {
        embedded_texts: Vec<EmbeddedText<'v>>,
    }
    let embedded_texts = vectors.iter().map(|vector| EmbeddedText { vector });
    let answer = EmbeddingAnswer {
        embedded_texts: embedded_texts.collect(),
    };
    serde_json::to_vec(&answer).expect("numbers and lists serialize")
}

/// Parses the embedding options among a predict config's members, which must be from
/// [`EmbeddingOptions::KEYS`].
pub fn options(members: &Object<'_>) -> Result<EmbeddingOptions, Refusal> {
    let mut options = EmbeddingOptions::default();
    for (key, value) in members {
        let value: Value = serde_json::from_str(value.get()).unwrap_or_default();
        let wrong = |expected: &str| {
            let message = format!("expected {expected}, got `{}`", shown_value(&value));
            Refusal::at(format!("{CONFIG_PATH}.{key}"), message)
        };
        if value.is_null() {
            continue;
        }
        match key.as_str() {
            "truncate" => {
                options.truncate = value.as_bool().ok_or_else(|| wrong("true or false"))?;
            }
            "normalize" => {
                let normalize = value.as_bool().ok_or_else(|| wrong("true or false"))?;
                options.normalize = Some(normalize);
            }
            "max_length" => {
                let length = value
                    .as_u64()
                    .and_then(|length| usize::try_from(length).ok());
                let length = length.filter(|length| *length > 0);
                options.max_length = Some(length.ok_or_else(|| wrong("a whole number above 0"))?);
            }
            _ => options.pooling = Some(pooling(&value).ok_or_else(|| wrong(&pooling_names()))?),
        }
    }
    Ok(options)
}

/// Parses one or several pooling methods.
fn pooling(value: &Value) -> Option<Vec<Pooling>> {
    let names = value
        .as_array()
        .map_or(std::slice::from_ref(value), Vec::as_slice);
    let ways = names.iter().map(|name| Pooling::from_name(name.as_str()?));
    let is_bounded = (1..=Pooling::ALL.len()).contains(&names.len());
    if is_bounded { ways.collect() } else { None }
}

fn pooling_names() -> String {
    let names = Pooling::ALL.map(|(_, name)| name);
    format!("one or several of {}", json::listed(&names))
}

fn shown_value(value: &Value) -> String {
    let text = value.to_string();
    shown(&text).trim_matches('`').to_owned()
}

/// Converts an embedding error to a refusal; `None` if the request is not at fault.
pub fn refusal(error: &EmbeddingError) -> Option<Refusal> {
    if !error.is_by_request() {
        return None;
    }
    let place = match (error, error.text()) {
        (EmbeddingError::Option { key, .. }, _) => format!("{CONFIG_PATH}.{key}"),
        (_, Some(text)) => format!("$.{TEXTS_KEY}[{text}]"),
        _ => format!("$.{TEXTS_KEY}"),
    };
    Some(Refusal::at(place, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_all_else_is_left() {
        let of = |body: &str| decode(body.as_bytes());
        let texts = |texts: &[&str]| Ok(Some(texts.iter().map(|it| (*it).to_owned()).collect()));
        assert_eq!(
            of(r#"{"texts": ["a", "\u00e9", ""]}"#),
            texts(&["a", "é", ""])
        );
        assert_eq!(of(r#"{"texts": []}"#), texts(&[]));
        assert_eq!(
            of(r#""{\"texts\": [\"a\"]}""#),
            texts(&["a"]),
            "encoded twice"
        );
        assert_eq!(
            of(r#"{"inputs": [{"name": "texts", "data": 1}]}"#),
            Ok(None)
        );
        assert_eq!(of(r#"{"inputs": []}"#), Ok(None));
        assert_eq!(
            of(r#"{"texts": ["#),
            Ok(None),
            "tensors' reader says what is wrong"
        );
    }

    #[test]
    fn what_is_wrong_has_a_place() {
        let long = format!(
            r#"{{"texts": ["a", "{}"]}}"#,
            "x".repeat(MAX_TEXT_BYTES + 1)
        );
        let many = format!(r#"{{"texts": [{}""]}}"#, r#""","#.repeat(MAX_TEXTS));
        for (body, place) in [
            (r#"{"texts": "a"}"#, "$.texts"),
            (r#"{"texts": ["a", 1]}"#, "$.texts[1]"),
            (r#"{"texts": ["a", null]}"#, "$.texts[1]"),
            (r#"{"texts": ["a"], "inputs": []}"#, "$.inputs"),
            (r#"{"texts": ["\ud800"]}"#, "$.texts[0]"),
            (&long, "$.texts[1]"),
            (&many, "$.texts"),
        ] {
            let refusal = decode(body.as_bytes()).expect_err("it is refused");
            assert_eq!(refusal.place.as_deref(), Some(place), "{}", refusal.message);
        }
        assert!(decode(b"{\"texts\": [\"\xff\"]}").is_err());
    }

    #[test]
    fn options_are_checked() {
        let of = |config: &str| options(&json::members(config, CONFIG_PATH).expect("an object"));
        let read = of(r#"{"truncate": true, "max_length": 8, "normalize": null,
            "pooling": ["cls", "mean"]}"#);
        let expected = EmbeddingOptions {
            truncate: true,
            max_length: Some(8),
            pooling: Some(vec![Pooling::Cls, Pooling::Mean]),
            normalize: None,
        };
        assert_eq!(read, Ok(expected));
        for (config, key) in [
            (r#"{"truncate": 1}"#, "truncate"),
            (r#"{"normalize": "yes"}"#, "normalize"),
            (r#"{"max_length": 0}"#, "max_length"),
            (r#"{"max_length": 1.5}"#, "max_length"),
            (r#"{"pooling": "median"}"#, "pooling"),
            (r#"{"pooling": []}"#, "pooling"),
        ] {
            let refusal = of(config).expect_err(config);
            assert_eq!(refusal.place, Some(format!("$.config.{key}")));
        }
    }

    #[test]
    fn vectors_are_written_as_short_as_they_read_back() {
        let text = encode(&[vec![0.1, -1.0], vec![]]);
        let text = String::from_utf8(text).expect("JSON is UTF-8");
        let expected = r#"{"embedded_texts":[{"vector":[0.1,-1.0]},{"vector":[]}]}"#;
        assert_eq!(text, expected);
    }
}
