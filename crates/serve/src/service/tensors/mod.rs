//! Tensors as JSON: decodes the requests for a model's method and encodes its answers.
//!
//! A request is `{"inputs": [{"name"?, "shape"?, "dtype"?, "data", "encoding"?}], "encoding"?}`.
//! `data` is a nested array, a flat one with `shape`, a number, or with `"encoding": "base64"` the
//! little-endian bytes. Non-finite numbers are written as `"NaN"`, `"Infinity"` and `"-Infinity"`.
//! Invariant: memory is bounded by the size of the request, and decoded tensors fit the signature.

mod data;
mod encode;
mod picture;

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::Refusal;
use super::json::{self, Object, listed, shown, unknown_key};
use pkgtool_base::source::suggest;
use pkgtool_engine::tensor::input::{self, InputError, InputLabel};
use pkgtool_engine::tensor::{DType, Signature, Tensor};

pub use encode::encode;
pub use picture::Picture;

pub(super) use picture::{undecoded, without_data_url};

/// Keys of a request with tensors.
const KEYS: &[&str] = &["inputs", "encoding"];

/// Keys of a request with a picture.
const PICTURE_KEYS: &[&str] = &["image_base64", "mean", "std", "encoding"];

/// Keys of an input.
const INPUT_KEYS: &[&str] = &["name", "shape", "dtype", "data", "encoding"];

/// Encoding of a tensor's elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Encoding {
    /// An array of numbers.
    #[default]
    Json,
    /// Little-endian bytes, row major, in base64.
    Base64,
}

/// A decoded request for a method.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// Its inputs in the signature's order, which fit the signature; empty if a picture is given.
    pub inputs: Vec<Tensor>,
    /// The picture that replaces the inputs, not decoded yet.
    pub picture: Option<Picture>,
    /// Encoding of the answer's tensors.
    pub encoding: Encoding,
}

/// Decodes a request for the method with this signature. `pictures` allows `image_base64` instead
/// of `inputs`. A body that is a JSON string containing an object is unwrapped once, because some
/// clients encode twice.
pub fn decode(body: &[u8], signature: &Signature, pictures: bool) -> Result<Decoded, Refusal> {
    let text = json::unwrapped(json::text(body)?)?;
    // The limit exceeds the number of inputs, so that the error can name the surplus ones.
    let limit = signature.inputs.len().saturating_add(64);
    let (members, list) = json::with_list(&text, "inputs", limit)?;
    let is_picture = pictures && members.iter().any(|(key, _)| key == "image_base64");
    let known = if is_picture { PICTURE_KEYS } else { KEYS };
    let inputs = list.iter().map(|_| "inputs");
    for key in members.iter().map(|(key, _)| key.as_str()).chain(inputs) {
        if !known.contains(&key) {
            return Err(stray_key(key, known, pictures));
        }
    }
    let member = |wanted: &str| {
        let found = members.iter().find(|(key, _)| key == wanted);
        found.map(|(_, value)| *value)
    };
    let encoding = match member("encoding") {
        Some(value) => Encoding::read(value, "$.encoding")?,
        None => Encoding::Json,
    };
    if is_picture {
        return Ok(Decoded {
            inputs: Vec::new(),
            picture: Some(picture::read(signature, member)?),
            encoding,
        });
    }
    let list = list.ok_or_else(|| missing_inputs(signature, pictures))?;
    Ok(Decoded {
        inputs: read_inputs(list, signature)?,
        picture: None,
        encoding,
    })
}

fn stray_key(key: &str, known: &[&str], pictures: bool) -> Refusal {
    if PICTURE_KEYS.contains(&key) && !pictures {
        return takes_no_pictures(format!("$.{key}"));
    }
    unknown_key("$", key, known)
}

/// Returns the refusal of a picture by a service that takes none.
pub(super) fn takes_no_pictures(place: impl Into<String>) -> Refusal {
    let message = "this service does not take pictures: it lacks a capability for images; \
                   give tensors in `inputs`";
    Refusal::at(place, message)
}

fn missing_inputs(signature: &Signature, pictures: bool) -> Refusal {
    let picture = if pictures && !input::picture_inputs(signature).is_empty() {
        ", or a picture in `image_base64`"
    } else {
        ""
    };
    let names = names(signature);
    let message = format!("missing `inputs`; provide one tensor for each input{picture}; {names}");
    Refusal::at("$", message)
}

/// An input of a request whose data is not decoded yet.
struct InputRequest<'a> {
    /// `$.inputs[0]`
    place: String,
    name: Option<Cow<'a, str>>,
    shape: Option<Vec<u64>>,
    dtype: Option<DType>,
    data: &'a RawValue,
    encoding: Encoding,
}

fn read_inputs(list: Vec<Object<'_>>, signature: &Signature) -> Result<Vec<Tensor>, Refusal> {
    let count = signature.inputs.len();
    let mut slots: Vec<Option<(InputRequest<'_>, Tensor)>> = (0..count).map(|_| None).collect();
    for (position, element) in list.into_iter().enumerate() {
        let given = InputRequest::read(element, format!("$.inputs[{position}]"))?;
        let index = input_index(&given, position, signature)?;
        if let Some((first, _)) = &slots[index] {
            let message = format!(
                "{} already has a value from {}",
                name_of(signature, index),
                first.place
            );
            return Err(Refusal::at(given.place, message));
        }
        let tensor = given.tensor(signature, index)?;
        slots[index] = Some((given, tensor));
    }
    let missing: Vec<usize> = (0..count).filter(|index| slots[*index].is_none()).collect();
    if !missing.is_empty() {
        let places: Vec<String> = missing
            .iter()
            .map(|index| InputLabel::of(signature, *index).to_string())
            .collect();
        let message = format!(
            "missing values for {}; provide one for each",
            places.join(", ")
        );
        return Err(Refusal::at("$.inputs", message));
    }
    let (given, tensors): (Vec<_>, Vec<_>) = slots.into_iter().flatten().unzip();
    match input::check(signature, &tensors) {
        Ok(()) => Ok(tensors),
        Err(error) => Err(misfit_refusal(&error, &given)),
    }
}

/// Returns the index of the input that is meant: by name, or by position if the name is missing.
fn input_index(
    given: &InputRequest<'_>,
    position: usize,
    signature: &Signature,
) -> Result<usize, Refusal> {
    let inputs = &signature.inputs;
    let Some(name) = &given.name else {
        if position < inputs.len() {
            return Ok(position);
        }
        let message = format!("too many inputs; {}", names(signature));
        return Err(Refusal::at(&given.place, message));
    };
    let found = inputs.iter().position(|input| input.name == **name);
    found.ok_or_else(|| {
        let meant = suggest::nearest(name, inputs.iter().map(|input| input.name.as_str()));
        let meant = meant.map(|meant| format!(", did you mean `{meant}`?"));
        let (shown, meant) = (shown(name), meant.unwrap_or_default());
        let message = format!("unknown input {shown}{meant}; {}", names(signature));
        Refusal::at(format!("{}.name", given.place), message)
    })
}

/// Returns the refusal of tensors that do not fit the signature; `given` has the signature's order.
fn misfit_refusal(error: &InputError, given: &[InputRequest<'_>]) -> Refusal {
    let place = match &error {
        InputError::Shape { place, .. } => given.get(place.index).map(|given| {
            let key = if given.shape.is_some() {
                "shape"
            } else {
                "data"
            };
            format!("{}.{key}", given.place)
        }),
        InputError::DType { place, .. } | InputError::Value { place, .. } => {
            given.get(place.index).map(|given| given.place.clone())
        }
        _ => None,
    };
    let place = place.unwrap_or_else(|| "$.inputs".to_owned());
    Refusal::at(place, error.to_string())
}

impl<'a> InputRequest<'a> {
    fn read(object: Object<'a>, place: String) -> Result<Self, Refusal> {
        let (mut name, mut shape, mut dtype, mut data) = (None, None, None, None);
        let mut encoding = Encoding::Json;
        for (key, value) in object {
            let at = format!("{place}.{key}");
            match key.as_str() {
                "name" => name = Some(json::string(value, &at)?),
                "shape" => shape = Some(data::shape(value, &at)?),
                "dtype" => dtype = Some(read_dtype(value, &at)?),
                "data" => data = Some(value),
                "encoding" => encoding = Encoding::read(value, &at)?,
                _ => return Err(unknown_key(&place, &key, INPUT_KEYS)),
            }
        }
        let Some(data) = data else {
            return Err(Refusal::at(place, "missing `data`; provide the elements"));
        };
        Ok(Self {
            place,
            name,
            shape,
            dtype,
            data,
            encoding,
        })
    }

    fn tensor(&self, signature: &Signature, index: usize) -> Result<Tensor, Refusal> {
        let spec = &signature.inputs[index];
        if let Some(found) = self.dtype
            && found != spec.dtype
        {
            let input = InputLabel::of(signature, index);
            let message = format!("{input}: expected dtype {}, got {found}", spec.dtype);
            return Err(Refusal::at(format!("{}.dtype", self.place), message));
        }
        let shape = self.shape.as_deref();
        match self.encoding {
            Encoding::Json => data::json(self.data, spec.dtype, shape, &self.place),
            Encoding::Base64 => data::base64(self.data, spec, shape, &self.place),
        }
    }
}

impl Encoding {
    fn read(value: &RawValue, place: &str) -> Result<Self, Refusal> {
        match &*json::string(value, place)? {
            "json" => Ok(Self::Json),
            "base64" => Ok(Self::Base64),
            other => {
                let message = format!(
                    "unknown encoding {}; expected `json` or `base64`",
                    shown(other)
                );
                Err(Refusal::at(place, message))
            }
        }
    }
}

fn read_dtype(value: &RawValue, place: &str) -> Result<DType, Refusal> {
    let name = json::string(value, place)?;
    DType::from_name(&name).ok_or_else(|| {
        let known = DType::ALL.map(DType::name);
        let message = format!(
            "unknown dtype {}; supported: {}",
            shown(&name),
            listed(&known)
        );
        Refusal::at(place, message)
    })
}

fn name_of(signature: &Signature, index: usize) -> String {
    format!("input {index} `{}`", signature.inputs[index].name)
}

fn names(signature: &Signature) -> String {
    if signature.inputs.is_empty() {
        return "the method takes no inputs".to_owned();
    }
    let inputs = signature.inputs.iter().map(|input| input.name.as_str());
    format!("the inputs are {}", listed(&inputs.collect::<Vec<_>>()))
}
