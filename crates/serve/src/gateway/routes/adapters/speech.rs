//! Speech for clients of the common interface for sounds: a text in, a sound out.

use std::sync::Arc;

use axum::extract::Request as HttpRequest;
use axum::response::Response;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Map, json};
use utoipa::ToSchema;

use super::super::super::Gateway;
use super::super::super::error::GatewayError;
use super::super::predict::answered;
use super::call::{self, AdmittedRequest};
use super::failed::call_error;
use super::media;
use crate::service::{Refusal, Request};
use pkgtool_media::sound::SoundFormat;

/// The capability of services that speak.
pub(super) const CAPABILITY: &str = "text-to-speech";

/// Maximum number of letters of a text.
const MAX_LETTERS: usize = 4096;

/// A request for speech.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SpeechBody {
    /// `author/service`.
    model: String,
    /// The text, in English.
    #[schema(max_length = 4096)]
    input: Option<String>,
    /// The phonemes (IPA) in place of a text.
    #[schema(max_length = 4096)]
    phonemes: Option<String>,
    /// A voice of the package; `{"id": "af_heart"}` means the same.
    #[schema(value_type = Option<String>)]
    voice: Option<SpokenVoice>,
    /// The format of the sound; WAV if it is missing.
    #[schema(value_type = Option<String>, pattern = "^(wav|flac|opus|pcm)$")]
    response_format: Option<String>,
    /// The speed, from 0.25 to 4.
    #[schema(minimum = 0.25, maximum = 4)]
    speed: Option<f64>,
    /// Has no effect.
    #[expect(dead_code, reason = "clients send it")]
    instructions: Option<String>,
    /// `audio`: the sound is sent as a whole.
    stream_format: Option<String>,
}

/// A voice, as clients name it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum SpokenVoice {
    Name(String),
    Id { id: String },
}

/// Answers a request for speech.
pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    request: HttpRequest,
) -> Result<Response, GatewayError> {
    let AdmittedRequest {
        caller,
        known,
        body: (body, memory),
        ..
    } = call::admitted(gateway, request).await?;
    let asked: SpeechBody = serde_json::from_slice(&body)
        .map_err(|error| Refusal::at("$", format!("invalid request: {error}")))?;
    drop(body);
    let service = (Some(&*asked.model), CAPABILITY);
    let service = media::service(gateway, caller, &known, service)?;
    let format = asked.format()?;
    let mut config = Map::new();
    if let Some(speed) = asked.speed {
        config.insert("speed".to_owned(), json!(speed));
    }
    if let Some(voice) = &asked.voice {
        let (SpokenVoice::Name(name) | SpokenVoice::Id { id: name }) = voice;
        config.insert("voice".to_owned(), json!(name));
    }
    let request = Request {
        body: asked.text()?,
        config: Some(media::config(gateway, &service, config).await?),
        data_type: Some("application/json".to_owned()),
        accept: Some(format.media_type().to_owned()),
        memory: Some(memory),
        in_background: false,
    };
    let answer = media::predicted(&service, caller, request).await?;
    let body = answer.body.whole().await.map_err(call_error)?;
    Ok(answered(answer.status, answer.content_type, body))
}

impl SpeechBody {
    fn format(&self) -> Result<SoundFormat, Refusal> {
        if let Some(other) = self.stream_format.as_deref().filter(|it| *it != "audio") {
            let message = format!("`{other}` is not supported: expected `audio`");
            return Err(Refusal::at("stream_format", message));
        }
        let Some(name) = &self.response_format else {
            return Ok(SoundFormat::Wav);
        };
        let mut formats = SoundFormat::ALL.into_iter();
        formats.find(|format| format.name() == name).ok_or_else(|| {
            let names = SoundFormat::ALL.map(SoundFormat::name).join(", ");
            let found = crate::service::json::shown(name);
            let message = format!("no `response_format` {found}: expected one of {names}");
            Refusal::at("response_format", message)
        })
    }

    /// Returns the body of the request to the service.
    fn text(&self) -> Result<Bytes, Refusal> {
        let (key, text) = match (&self.input, &self.phonemes) {
            (Some(text), None) => ("text", text),
            // The official clients always send a text.
            (_, Some(phonemes)) => ("phonemes", phonemes),
            (None, None) => return Err(Refusal::at("input", "expected a text")),
        };
        let letters = text.chars().count();
        if letters > MAX_LETTERS {
            let message = format!("expected at most {MAX_LETTERS} letters, got {letters}");
            return Err(Refusal::at("input", message));
        }
        Ok(Bytes::from(json!({ key: text }).to_string()))
    }
}
