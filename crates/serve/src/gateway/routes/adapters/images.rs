//! Pictures for clients of the common interface for images: a text in, pictures out.

use std::sync::Arc;

use axum::extract::Request as HttpRequest;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
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
use crate::account::AccountId;
use crate::database::Timestamp;
use crate::service::{Refusal, Request, Service};

/// The capability of services that make pictures of texts.
pub(super) const CAPABILITY: &str = "image-generation";

/// Maximum number of pictures of a request.
const MAX_PICTURES: u32 = 10;

/// A request for pictures.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ImagesBody {
    /// `author/service`.
    model: String,
    /// What the pictures show.
    #[schema(max_length = 4096)]
    prompt: String,
    /// What the pictures do not show.
    #[schema(max_length = 4096)]
    negative_prompt: Option<String>,
    /// Number of pictures, from 1 to 10.
    #[schema(minimum = 1, maximum = 10)]
    n: Option<u32>,
    /// Width and height, such as `512x512`; the sides of the model if it is missing, or `auto`.
    size: Option<String>,
    /// `b64_json`, the only form.
    #[schema(pattern = "^b64_json$")]
    response_format: Option<String>,
    /// `png`, the only format.
    #[schema(pattern = "^png$")]
    output_format: Option<String>,
    /// Seed of the first picture; each further one has the next seed. Without it, the seed is random.
    seed: Option<u32>,
    /// Number of steps.
    #[schema(minimum = 1, maximum = 1000)]
    num_inference_steps: Option<u32>,
    /// Weight of the text.
    #[schema(minimum = 0, maximum = 100)]
    guidance_scale: Option<f64>,
    /// Has no effect.
    #[expect(dead_code, reason = "clients send it")]
    quality: Option<String>,
    /// Has no effect.
    #[expect(dead_code, reason = "clients send it")]
    style: Option<String>,
    /// Has no effect.
    #[expect(dead_code, reason = "clients send it")]
    user: Option<String>,
}

/// Answers a request for pictures.
pub(super) async fn answer(
    gateway: &Arc<Gateway>,
    request: HttpRequest,
) -> Result<Response, GatewayError> {
    let AdmittedRequest {
        caller,
        known,
        body: (body, _memory),
        ..
    } = call::admitted(gateway, request).await?;
    let asked: ImagesBody = serde_json::from_slice(&body)
        .map_err(|error| Refusal::at("$", format!("invalid request: {error}")))?;
    drop(body);
    let service = (Some(&*asked.model), CAPABILITY);
    let service = media::service(gateway, caller, &known, service)?;
    let (count, config) = (asked.count()?, asked.config()?);
    let config = media::config(gateway, &service, config).await?;
    let first = asked.seed.unwrap_or_else(random);
    let mut data = Vec::new();
    for number in 0..count {
        let seed = first.wrapping_add(number);
        let picture = asked.picture(&service, caller, (&config, seed)).await?;
        data.push(json!({ "b64_json": BASE64.encode(picture), "seed": seed }));
    }
    let created = Timestamp::now().0 / 1000;
    let answer = json!({ "created": created, "output_format": "png", "data": data });
    Ok(answered(
        200,
        "application/json".into(),
        Bytes::from(answer.to_string()),
    ))
}

/// Returns a random seed.
fn random() -> u32 {
    let mut bits = [0; 4];
    // Without a source of random bits, the seed is 0.
    let _ = getrandom::fill(&mut bits);
    u32::from_le_bytes(bits)
}

impl ImagesBody {
    fn count(&self) -> Result<u32, Refusal> {
        for (place, found, only) in [
            ("response_format", &self.response_format, "b64_json"),
            ("output_format", &self.output_format, "png"),
        ] {
            if let Some(other) = found.as_deref().filter(|found| *found != only) {
                let other = crate::service::json::shown(other);
                return Err(Refusal::at(
                    place,
                    format!("{other} is not supported: expected `{only}`"),
                ));
            }
        }
        match self.n.unwrap_or(1) {
            count @ 1..=MAX_PICTURES => Ok(count),
            count => {
                let message = format!("expected 1 to {MAX_PICTURES} pictures, got {count}");
                Err(Refusal::at("n", message))
            }
        }
    }

    /// Returns the values that the request sets.
    fn config(&self) -> Result<Map<String, Value>, Refusal> {
        let mut config = Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                config.insert(name.to_owned(), value);
            }
        };
        set(
            "negative",
            self.negative_prompt.as_ref().map(|text| json!(text)),
        );
        set("steps", self.num_inference_steps.map(|steps| json!(steps)));
        set("guidance", self.guidance_scale.map(|scale| json!(scale)));
        if let Some(size) = self.size.as_deref().filter(|size| *size != "auto") {
            let sides = size.split_once('x');
            let sides = sides.and_then(|(width, height)| {
                Some([width.parse::<u32>().ok()?, height.parse::<u32>().ok()?])
            });
            let [width, height] = sides.ok_or_else(|| {
                let found = crate::service::json::shown(size);
                Refusal::at(
                    "size",
                    format!("{found}: expected a size such as `512x512`"),
                )
            })?;
            set("width", Some(json!(width)));
            set("height", Some(json!(height)));
        }
        Ok(config)
    }

    /// Asks the service for a picture.
    async fn picture(
        &self,
        service: &Service,
        caller: AccountId,
        (config, seed): (&str, u32),
    ) -> Result<Bytes, GatewayError> {
        let mut config: Map<String, Value> = serde_json::from_str(config).unwrap_or_default();
        config.insert("seed".to_owned(), json!(seed));
        let request = Request {
            body: Bytes::from(json!({ "text": self.prompt }).to_string()),
            config: Some(Value::Object(config).to_string()),
            data_type: Some("application/json".to_owned()),
            accept: Some("image/png".to_owned()),
            memory: None,
            in_background: false,
        };
        let answer = media::predicted(service, caller, request).await?;
        answer.body.whole().await.map_err(call_error)
    }
}
