//! Requests with a picture, `{"image_base64": "…", "mean"?, "std"?}`, for a model with a single
//! input.

use ::base64::Engine as _;
use bytes::Bytes;
use serde_json::value::RawValue;

use super::super::away::call_error;
use super::super::json::{self, kind, shown};
use super::super::{CallError, Refusal};
use super::names;
use pkgtool_engine::runtime::parsers::{ParserClient, ParserError};
use pkgtool_engine::runtime::picture::{self, PictureError, PictureFault};
use pkgtool_engine::tensor::input;
use pkgtool_engine::tensor::{Signature, Tensor};
use pkgtool_text::chat::BASE64;

/// Maximum number of values in `mean` and `std`, which is the maximum number of channels.
const MAX_CHANNELS: usize = 4;

/// JSON path of the picture.
const PICTURE_PATH: &str = "$.image_base64";

/// A picture for the only input of a method, not decoded yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    signature: Signature,
    input: usize,
    /// The place of the picture in the request.
    place: String,
    bytes: Bytes,
    mean: Vec<f32>,
    std: Vec<f32>,
}

/// Reads a request with a picture for the model's only input.
pub(super) fn read<'a>(
    signature: &Signature,
    member: impl Fn(&str) -> Option<&'a RawValue>,
) -> Result<Picture, Refusal> {
    let input = picture_input(signature, PICTURE_PATH)?;
    let Some(value) = member("image_base64") else {
        return Err(Refusal::at("$", "missing `image_base64`"));
    };
    let text = json::string(value, PICTURE_PATH)?;
    let bytes = BASE64
        .decode(without_data_url(&text).as_bytes())
        .map_err(|error| Refusal::at(PICTURE_PATH, format!("invalid base64: {error}")))?;
    Ok(Picture {
        signature: signature.clone(),
        input,
        place: PICTURE_PATH.to_owned(),
        bytes: bytes.into(),
        mean: numbers(member("mean"), "$.mean")?,
        std: numbers(member("std"), "$.std")?,
    })
}

impl Picture {
    /// Creates a picture for the only input of a method.
    pub fn of(signature: &Signature, bytes: Bytes, place: &str) -> Result<Self, Refusal> {
        Ok(Self {
            signature: signature.clone(),
            input: picture_input(signature, place)?,
            place: place.to_owned(),
            bytes,
            mean: Vec::new(),
            std: Vec::new(),
        })
    }

    /// Returns the place of the picture in the request.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Decodes the picture in a parser process. Blocks until it is done.
    pub fn tensor(self, client: &ParserClient) -> Result<Tensor, CallError> {
        let input = (&self.signature, self.input);
        let scale = (self.mean, self.std);
        picture::read(client, input, &self.bytes, scale).map_err(|error| match error {
            PictureError::Fault(fault) => refused(fault, &self.place).into(),
            PictureError::Parser(error) => undecoded(&error, "picture", &self.place),
        })
    }
}

/// Converts an error of the process that decodes what is at `place`; `noun` is the word for it.
pub(in crate::service) fn undecoded(error: &ParserError, noun: &str, place: &str) -> CallError {
    if let ParserError::Limit(limit) = error {
        let message = format!("decoding the {noun} reached {limit}; use a smaller one");
        return Refusal::at(place, message).into();
    }
    call_error(&format!("decoding the {noun} failed"), error)
}

/// Returns the index of the only input, if it takes a picture.
fn picture_input(signature: &Signature, place: &str) -> Result<usize, Refusal> {
    if let ([input], [_]) = (&input::picture_inputs(signature)[..], &signature.inputs[..]) {
        return Ok(*input);
    }
    let names = names(signature);
    let message = format!(
        "the method does not take a single picture as its only input; provide tensors in `inputs`; {names}"
    );
    Err(Refusal::at(place, message))
}

/// Returns the base64 text without the prefix of a `data:` URL.
pub(in crate::service) fn without_data_url(text: &str) -> &str {
    let url = text.strip_prefix("data:");
    let content = url.and_then(|url| url.split_once(";base64,"));
    content.map_or(text, |(_, content)| content)
}

/// Parses one number, or one per channel.
fn numbers(value: Option<&RawValue>, place: &str) -> Result<Vec<f32>, Refusal> {
    let Some(value) = value else {
        return Ok(Vec::new());
    };
    let number = |text: &str, place: &str| {
        let read = serde_json::from_str::<f32>(text).ok();
        read.filter(|number| number.is_finite()).ok_or_else(|| {
            let message = format!("expected a number, got {}", shown(text));
            Refusal::at(place, message)
        })
    };
    if kind(value.get()) != "an array" {
        return Ok(vec![number(value.get(), place)?]);
    }
    let elements = json::elements(value.get(), MAX_CHANNELS, place)?;
    let numbers = elements.iter().enumerate();
    numbers
        .map(|(at, element)| number(element.get(), &format!("{place}[{at}]")))
        .collect()
}

/// Converts a fault for a request: the reason is the same for all sources of a picture, but the
/// remedy differs.
fn refused(fault: PictureFault, place: &str) -> Refusal {
    match fault {
        PictureFault::Option { name, reason } => Refusal::at(format!("$.{name}"), reason),
        PictureFault::Picture { input, reason } => {
            let message = format!(
                "{input}: {reason}; use another PNG, JPEG, WebP or GIF, or the tensor itself in `inputs`"
            );
            Refusal::at(place, message)
        }
        PictureFault::Other(message) => Refusal::at(place, message),
    }
}
