//! What the requests of one service may have in them, as JSON Schema.
//!
//! Invariant: a body that fits is not refused for what is in it. More may be accepted than fits: pictures,
//! other spellings of the same JSON.

use serde_json::{Value, json};

use crate::account::PredictConfig;
use crate::service::{Device, Kind, MethodDescription, Service, Takes, TakesInput, TakesTexts};
use crate::tensor::DType;
use crate::tensor::input::Extent;

/// Most methods that are described, each with what it takes.
const METHODS: usize = 64;

/// Most elements of a request that are written out in the pattern of a text.
const WRITTEN: u64 = 512;

/// Most texts, and letters of a text after its first, that are described; many more are taken.
const MOST_TEXTS: usize = 8;
const MOST_LETTERS: usize = 200;

/// Tokens that a tokenizer may add to a text; those that are known add at most three.
const ADDED: usize = 8;

/// A row of what there may be any number of: taken for an input whose rank is not known.
const ANY: Extent = Extent::Between {
    least: 1,
    most: None,
};

/// What the bodies of a service are.
pub(super) struct Bodies {
    /// Of a raw predict.
    pub(super) raw: Value,
    /// Of data and config.
    pub(super) whole: Value,
    /// Of both as texts.
    pub(super) texts: Value,
    /// Predict configs.
    pub(super) config: Value,
    /// Stored configs that a raw predict may name, by their ids.
    pub(super) config_ids: Vec<i64>,
}

/// A predict config and what is taken with it.
struct Choice<'d> {
    /// `None` for a request without one.
    config: Option<Value>,
    takes: &'d Takes,
}

/// What a service takes; `None` if it is not known (another service has a form of its own) or nothing here
/// runs it.
pub(super) fn bodies(service: &Service, stored: &[PredictConfig]) -> Option<Bodies> {
    let Kind::Device(device) = &service.kind else {
        return None;
    };
    let default = stored.iter().find(|config| config.is_default);
    let default = default.map(|config| config.config.as_str());
    let without = takes(device, default);
    let mut choices = Vec::new();
    choices.extend(without.map(|takes| Choice {
        config: None,
        takes,
    }));
    choices.extend(takes(device, None).map(|takes| Choice {
        config: Some(json!({})),
        takes,
    }));
    let methods = &device.description().signatures;
    let methods = methods.iter().take(METHODS).map(config_of);
    choices.extend(methods.clone().filter_map(|config| {
        let takes = takes(device, Some(&config.to_string()))?;
        Some(Choice {
            config: Some(config),
            takes,
        })
    }));
    if choices.is_empty() {
        return None;
    }
    let same = stored
        .iter()
        .filter(|config| without.is_some() && takes(device, Some(&config.config)) == without);
    let configs: Vec<Value> = methods
        .filter(|config| device.check_config(&config.to_string()).is_ok())
        .chain(device.meant(None).is_ok().then(|| json!({})))
        .collect();
    Some(Bodies {
        raw: without.map_or_else(|| json!(false), data),
        whole: any_of(choices.iter().map(whole).collect()),
        texts: any_of(choices.iter().map(texts).collect()),
        config: json!({"enum": configs}),
        config_ids: same.map(|config| config.id).collect(),
    })
}

/// What is taken with a config, if something here runs it.
fn takes<'d>(device: &'d Device, config: Option<&str>) -> Option<&'d Takes> {
    device.takes(device.meant(config).ok()?)
}

/// The config that means a method.
fn config_of(method: &MethodDescription) -> Value {
    let mut config = json!({
        "backend": method.backend,
        "precision": method.precision,
        "method": method.method,
    });
    if let Some(component) = &method.component {
        config["component"] = json!(component);
    }
    config
}

fn any_of(mut schemas: Vec<Value>) -> Value {
    if schemas.len() == 1 {
        return schemas.remove(0);
    }
    json!({"anyOf": schemas})
}

/// The body of data and config.
fn whole(choice: &Choice<'_>) -> Value {
    let (config, required) = match &choice.config {
        None => (json!({"type": "null"}), json!(["data"])),
        Some(config) => (json!({"const": config}), json!(["data", "config"])),
    };
    object(&data(choice.takes), &config, &required)
}

/// The body of data and config as texts.
fn texts(choice: &Choice<'_>) -> Value {
    let (config, required) = match &choice.config {
        None => (json!({"type": "null"}), json!(["data"])),
        Some(config) => (
            json!({"const": config.to_string()}),
            json!(["data", "config"]),
        ),
    };
    let data = match pattern(choice.takes) {
        Some(pattern) => json!({"type": "string", "pattern": pattern}),
        None => json!({
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": data(choice.takes),
        }),
    };
    object(&data, &config, &required)
}

fn object(data: &Value, config: &Value, required: &Value) -> Value {
    json!({
        "type": "object",
        "required": required,
        "properties": {
            "data": data,
            "config": config,
            "dataType": {"type": ["string", "null"]},
        },
    })
}

/// The data that a method takes.
fn data(takes: &Takes) -> Value {
    let tensors = tensors(takes);
    match takes.texts.and_then(texts_of) {
        Some(texts) => json!({"anyOf": [tensors, texts]}),
        None => tensors,
    }
}

/// Texts in place of tensors, of at most so many tokens. A letter is no more than a token, and few are
/// added to a text.
fn texts_of(takes: TakesTexts) -> Option<Value> {
    let letters = takes
        .tokens
        .checked_sub(ADDED)
        .filter(|letters| *letters > 0)?;
    let more = (letters - 1).min(MOST_LETTERS);
    Some(json!({
        "type": "object",
        "description": "Texts that are embedded: the answer has a vector for each, in their order. \
            Any text will do that has no more tokens than the model takes",
        "required": ["texts"],
        "properties": {
            "texts": {
                "type": "array",
                "maxItems": MOST_TEXTS,
                "items": {"type": "string", "pattern": format!("^[a-z]{{1,{}}}$", more + 1)},
            },
        },
        "additionalProperties": false,
    }))
}

/// One tensor for each input.
fn tensors(takes: &Takes) -> Value {
    let count = takes.inputs.len();
    let mut schemas: Vec<Value> = takes.inputs.iter().map(input).collect();
    let mut inputs = json!({"type": "array", "minItems": count, "maxItems": count});
    if count == 1 {
        inputs["items"] = schemas.remove(0);
    } else if count > 1 {
        inputs["prefixItems"] = Value::Array(schemas);
    }
    json!({
        "type": "object",
        "description": "One tensor for each input. Elements may also be flat with a `shape`, or \
            little-endian bytes in base64 (`\"encoding\": \"base64\"`); a model of images also takes \
            `{\"image_base64\": …}`",
        "required": ["inputs"],
        "properties": {
            "inputs": inputs,
            "encoding": {"enum": ["json", "base64"], "description": "How the answer is written"},
        },
        "additionalProperties": false,
    })
}

fn input(input: &TakesInput) -> Value {
    let shape = input.extents.as_ref().map(|extents| {
        let sizes = extents.iter().map(|extent| match extent {
            Extent::Exactly(size) => Some(*size),
            Extent::Between { .. } => None,
        });
        sizes.collect::<Option<Vec<u64>>>()
    });
    let mut properties = json!({
        "name": {"const": input.name},
        "dtype": {"const": input.dtype.name()},
        "encoding": {"const": "json"},
        "data": elements(input),
    });
    if let Some(Some(shape)) = shape {
        properties["shape"] = json!({"const": shape});
    }
    json!({
        "type": "object",
        "required": ["data"],
        "properties": properties,
        "additionalProperties": false,
    })
}

/// The elements of an input, nested as its sizes are.
fn elements(input: &TakesInput) -> Value {
    if let Some(fixed) = &input.fixed {
        let value: Value = serde_json::from_str(fixed).unwrap_or(Value::Null);
        return json!({"const": value});
    }
    // Without a rank any will do: a row.
    let row = [ANY];
    let extents = input.extents.as_deref().unwrap_or(&row);
    extents.iter().rev().fold(element(input), |inner, extent| {
        let mut array = json!({"type": "array", "items": inner});
        let (least, most) = match extent {
            Extent::Exactly(size) => (*size, Some(*size)),
            Extent::Between { least, most } => (*least, *most),
        };
        array["minItems"] = json!(least);
        if let Some(most) = most {
            array["maxItems"] = json!(most);
        }
        array
    })
}

fn element(input: &TakesInput) -> Value {
    let number = |most: f64| json!({"type": "number", "minimum": -most, "maximum": most});
    let integer = |least: i64, most: u64| {
        let (least, most) = match input.rows {
            Some(rows) => (0, most.min(rows.saturating_sub(1))),
            None => (least, most),
        };
        json!({"type": "integer", "minimum": least, "maximum": most})
    };
    match input.dtype {
        DType::Bool => json!({"type": "boolean"}),
        DType::Int8 => integer(i64::from(i8::MIN), i8::MAX as u64),
        DType::Int16 => integer(i64::from(i16::MIN), i16::MAX as u64),
        DType::Int32 => integer(i64::from(i32::MIN), i32::MAX as u64),
        DType::Int64 => integer(i64::MIN, i64::MAX as u64),
        DType::Uint8 => integer(0, u64::from(u8::MAX)),
        DType::Uint16 => integer(0, u64::from(u16::MAX)),
        DType::Uint32 => integer(0, u64::from(u32::MAX)),
        DType::Uint64 => integer(0, u64::MAX),
        DType::Float16 => number(65504.0),
        DType::Bfloat16 => number(3.38e38),
        DType::Float32 => number(f64::from(f32::MAX)),
        DType::Float64 => number(f64::MAX),
    }
}

/// A regular expression of texts that are the data of a method; `None` where they would be long.
fn pattern(takes: &Takes) -> Option<String> {
    let inputs = takes.inputs.iter().map(|input| {
        let written = if let Some(fixed) = &input.fixed {
            literal(fixed)
        } else {
            nested(input)?
        };
        Some(format!(r#"\{{"data":{written}\}}"#))
    });
    let inputs: Vec<String> = inputs.collect::<Option<_>>()?;
    Some(format!(r#"^\{{"inputs":\[{}\]\}}$"#, inputs.join(",")))
}

/// The same of an input's elements.
fn nested(input: &TakesInput) -> Option<String> {
    let row = [ANY];
    let extents = input.extents.as_deref().unwrap_or(&row);
    let most = |extent: &Extent| match extent {
        Extent::Exactly(size) => *size,
        Extent::Between { least, most } => {
            let few = least.saturating_add(7);
            most.map_or(few, |most| most.min(few))
        }
    };
    let count = extents
        .iter()
        .try_fold(1_u64, |all, extent| all.checked_mul(most(extent)));
    count.filter(|count| *count <= WRITTEN)?;
    let array = |inner: String, extent: &Extent| match (extent, most(extent)) {
        (_, 0) => r"\[\]".to_owned(),
        (Extent::Exactly(_), size) => format!(r"\[{inner}(,{inner}){{{}}}\]", size - 1),
        (Extent::Between { least, .. }, size) => {
            format!(r"\[{inner}(,{inner}){{{},{}}}\]", least - 1, size - 1)
        }
    };
    Some(extents.iter().rev().fold(digits(input), array))
}

/// A few of the numbers that an element may be.
fn digits(input: &TakesInput) -> String {
    let few = match (input.dtype, input.rows) {
        (DType::Bool, _) => "(true|false)",
        (dtype, _) if dtype.is_float() => r"-?(0|[1-9][0-9]{0,2})(\.[0-9]{1,3})?",
        (_, Some(rows)) if rows < 10 => "0",
        (_, Some(rows)) if rows < 100 => "[0-9]",
        (_, Some(_)) | (DType::Uint8 | DType::Uint16 | DType::Uint32 | DType::Uint64, None) => {
            "(0|[1-9][0-9]?)"
        }
        _ => "-?(0|[1-9][0-9]?)",
    };
    few.to_owned()
}

/// A regular expression of one text.
fn literal(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if !character.is_ascii_alphanumeric() {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
