//! Transcripts for clients of the common interface for sounds: a form with a file in, text or subtitles out.

use std::sync::Arc;

use axum::extract::Request as HttpRequest;
use axum::http::{Uri, header};
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::super::super::Gateway;
use super::super::super::error::GatewayError;
use super::super::predict::answered;
use super::call::{self, AdmittedRequest};
use super::failed::call_error;
use super::media;
use crate::service::{CallError, FormFields, Refusal, Request};

/// End of the path that translates to English.
const TRANSLATIONS: &str = "/translations";

/// The capability of services that transcribe.
pub(super) const CAPABILITY: &str = "speech-to-text";

/// Fields that clients send, which have no effect.
const WITHOUT_EFFECT: [&str; 6] = [
    "prompt",
    "stream",
    "chunking_strategy",
    "include[]",
    "logprobs",
    "user",
];

/// A transcript request.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "it only describes the document; the form is parsed part by part"
)]
pub(super) struct TranscriptionBody {
    /// The sound: WAV, FLAC, MP3, OGG, Opus, M4A, AAC, `WebM` or AIFF.
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
    /// `author/service`.
    model: String,
    /// The language, such as `en`; found if it is missing.
    language: Option<String>,
    /// The form of the answer.
    response_format: Option<TranscriptFormat>,
    /// The temperature of the first attempt, from 0 to 1.
    temperature: Option<f64>,
}

/// The form of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum TranscriptFormat {
    /// The text alone, as JSON.
    Json,
    /// The segments as well.
    VerboseJson,
    /// The text alone.
    Text,
    /// `SubRip`.
    Srt,
    /// `WebVTT`.
    Vtt,
}

impl TranscriptFormat {
    fn named(name: &str) -> Result<Self, Refusal> {
        serde_json::from_value(json!(name))
            .map_err(|error| Refusal::at("response_format", format!("`response_format`: {error}")))
    }

    /// Returns the media type that the service gives.
    fn media_type(self) -> &'static str {
        match self {
            Self::Json | Self::VerboseJson | Self::Text => "application/json",
            Self::Srt => "application/x-subrip",
            Self::Vtt => "text/vtt",
        }
    }
}

/// The fields of a request.
struct TranscriptForm {
    file: Bytes,
    model: Option<String>,
    /// Values for the recipe.
    config: Map<String, Value>,
    format: TranscriptFormat,
    /// The times of words are wanted.
    words: bool,
}

/// The answer of the service.
#[derive(Deserialize)]
struct HeardWords {
    text: String,
    language: String,
    duration: f64,
    segments: Vec<Map<String, Value>>,
}

/// Answers a transcript request.
pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    request: HttpRequest,
) -> Result<Response, GatewayError> {
    let translates = is_translation(request.uri());
    let media_type = request.headers().get(header::CONTENT_TYPE);
    let media_type = media_type
        .and_then(|it| it.to_str().ok())
        .unwrap_or_default();
    let media_type = media_type.to_owned();
    let AdmittedRequest {
        caller,
        known,
        body: (body, memory),
        ..
    } = call::admitted(gateway, request).await?;
    let form = TranscriptForm::read(&body, &media_type)?;
    drop(body);
    let service = (form.model.as_deref(), CAPABILITY);
    let service = media::service(gateway, caller, &known, service)?;
    let mut config = form.config;
    if translates {
        config.insert("translate".to_owned(), json!(true));
    }
    let request = Request {
        body: form.file,
        config: Some(media::config(gateway, &service, config).await?),
        data_type: Some("audio/*".to_owned()),
        accept: Some(form.format.media_type().to_owned()),
        memory: Some(memory),
        in_background: false,
    };
    let answer = media::predicted(&service, caller, request).await?;
    let body = answer.body.whole().await.map_err(call_error)?;
    let (media_type, body) = match form.format {
        TranscriptFormat::Srt | TranscriptFormat::Vtt => {
            (format!("{}; charset=utf-8", form.format.media_type()), body)
        }
        format => {
            let found: HeardWords = serde_json::from_slice(&body)
                .map_err(|error| call_error(CallError::Failed(error.to_string())))?;
            found.shown(format, translates, form.words)
        }
    };
    Ok(answered(answer.status, media_type, body))
}

fn is_translation(uri: &Uri) -> bool {
    uri.path().ends_with(TRANSLATIONS)
}

impl TranscriptForm {
    fn read(body: &Bytes, media_type: &str) -> Result<Self, Refusal> {
        let mut fields = FormFields::read(body, media_type)?;
        let mut form = Self {
            file: fields.one_file()?.1,
            model: None,
            config: Map::new(),
            format: TranscriptFormat::Json,
            words: false,
        };
        for (name, text) in fields.texts {
            match name.as_str() {
                "model" => form.model = Some(text),
                // Some clients send a field without a value.
                _ if text.is_empty() || text == "null" => {}
                "language" => drop(form.config.insert(name, json!(text))),
                "response_format" => form.format = TranscriptFormat::named(&text)?,
                "temperature" => {
                    let number: Option<f64> = text.parse().ok();
                    let number = number.ok_or_else(|| {
                        Refusal::at("temperature", "expected a number from 0 to 1")
                    })?;
                    form.config.insert(name, json!(number));
                }
                "timestamp_granularities[]" | "timestamp_granularities" => {
                    form.words |= text == "word";
                }
                known if WITHOUT_EFFECT.contains(&known) => {}
                _ => return Err(Refusal::at(name, "unknown field")),
            }
        }
        Ok(form)
    }
}

impl HeardWords {
    /// Returns the media type and the bytes of a format.
    fn shown(self, format: TranscriptFormat, translates: bool, words: bool) -> (String, Bytes) {
        let json = |value: Value| {
            (
                "application/json".to_owned(),
                Bytes::from(value.to_string()),
            )
        };
        match format {
            TranscriptFormat::Text => (
                "text/plain; charset=utf-8".to_owned(),
                Bytes::from(self.text + "\n"),
            ),
            TranscriptFormat::VerboseJson => {
                let mut whole = json!({
                    "task": if translates { "translate" } else { "transcribe" },
                    "language": self.language,
                    "duration": self.duration,
                    "text": self.text,
                });
                if words {
                    let words = self.segments.iter().flat_map(words_of);
                    whole["words"] = Value::Array(words.collect());
                }
                let segments = self.segments.into_iter().enumerate();
                let segments = segments.map(|(id, mut segment)| {
                    segment.insert("id".to_owned(), json!(id));
                    segment.insert("seek".to_owned(), json!(0));
                    Value::Object(segment)
                });
                whole["segments"] = Value::Array(segments.collect());
                json(whole)
            }
            _ => json(json!({ "text": self.text })),
        }
    }
}

/// Returns the words of a segment. Their letters share its time equally.
#[expect(clippy::cast_precision_loss, reason = "a segment has few letters")]
fn words_of(segment: &Map<String, Value>) -> Vec<Value> {
    let number = |name: &str| {
        segment
            .get(name)
            .and_then(Value::as_f64)
            .unwrap_or_default()
    };
    let text = segment
        .get("text")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let (start, end) = (number("start"), number("end"));
    let words: Vec<&str> = text.split_whitespace().collect();
    let lengths = words.iter().map(|word| word.chars().count());
    let count: usize = lengths.sum();
    let mut said = 0;
    let words = words.into_iter().map(|word| {
        let at = |said: usize| start + (end - start) * said as f64 / count.max(1) as f64;
        let from = at(said);
        said += word.chars().count();
        json!({"word": word, "start": from, "end": at(said)})
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_of_a_segment_share_its_time() {
        let segment = json!({"start": 1.0, "end": 3.0, "text": " one three"});
        let words = words_of(segment.as_object().expect("an object"));
        let expected = [
            json!({"word": "one", "start": 1.0, "end": 1.75}),
            json!({"word": "three", "start": 1.75, "end": 3.0}),
        ];
        assert_eq!(words, expected);
    }
}
