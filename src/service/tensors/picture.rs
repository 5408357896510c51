//! Requests with a picture: `{"image_base64": "…", "mean"?, "std"?}` to the one input of a model.

use ::base64::Engine as _;
use serde_json::value::RawValue;

use super::super::Refusal;
use super::super::json::{self, kind, shown};
use super::data::BASE64;
use super::names;
use crate::tensor::input::{self, InputArgs, InputError};
use crate::tensor::{Signature, Tensor};

/// Most numbers in `mean` and `std`: no picture has more channels.
const MAX_CHANNELS: usize = 4;

/// Where the picture is.
const PLACE: &str = "$.image_base64";

/// Reads the picture into the model's only input.
pub(super) fn read<'a>(
    signature: &Signature,
    member: impl Fn(&str) -> Option<&'a RawValue>,
) -> Result<Vec<Tensor>, Refusal> {
    let [input] = input::picture_inputs(signature)[..] else {
        return Err(no_picture(signature));
    };
    if signature.inputs.len() > 1 {
        return Err(no_picture(signature));
    }
    let Some(value) = member("image_base64") else {
        return Err(Refusal::at("$", "there is no `image_base64`"));
    };
    let text = json::string(value, PLACE)?;
    let bytes = BASE64
        .decode(encoded(&text).as_bytes())
        .map_err(|error| Refusal::at(PLACE, format!("this is not base64: {error}")))?;
    let args = InputArgs {
        mean: numbers(member("mean"), "$.mean")?,
        std: numbers(member("std"), "$.std")?,
        ..InputArgs::default()
    };
    let tensor = input::picture(signature, input, &bytes, &args, "the picture");
    let tensors = vec![tensor.map_err(|error| refused(&error))?];
    match input::check(signature, &tensors) {
        Ok(()) => Ok(tensors),
        Err(error) => Err(refused(&error)),
    }
}

fn no_picture(signature: &Signature) -> Refusal {
    let names = names(signature);
    let message = format!(
        "the method does not take one picture and nothing else; give tensors in `inputs`; {names}"
    );
    Refusal::at(PLACE, message)
}

/// The base64 text, without the head of a `data:` URL.
fn encoded(text: &str) -> &str {
    let url = text.strip_prefix("data:");
    let content = url.and_then(|url| url.split_once(";base64,"));
    content.map_or(text, |(_, content)| content)
}

/// One number, or one for each channel.
fn numbers(value: Option<&RawValue>, place: &str) -> Result<Vec<f32>, Refusal> {
    let Some(value) = value else {
        return Ok(Vec::new());
    };
    let number = |text: &str, place: &str| {
        let read = serde_json::from_str::<f32>(text).ok();
        read.filter(|number| number.is_finite()).ok_or_else(|| {
            let message = format!("a number belongs here, not {}", shown(text));
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

/// The same fault in the words of a request: the reasons hold for any way of giving a picture, what to
/// do about them does not.
fn refused(error: &InputError) -> Refusal {
    match error {
        InputError::Argument { option, reason, .. } => {
            let name = option.trim_start_matches('-');
            Refusal::at(format!("$.{name}"), reason.clone())
        }
        InputError::Value { place, reason, .. } => {
            let message = format!(
                "{place}: {reason}; give another PNG or JPEG, or the tensor itself in `inputs`"
            );
            Refusal::at(PLACE, message)
        }
        other => Refusal::at(PLACE, other.to_string()),
    }
}
