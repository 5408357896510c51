//! JSON Schema of the request bodies that one service accepts, for `/openapi.json?service=…`.
//!
//! Invariant: a body that matches the schema is not rejected for its content. The service may
//! accept more than the schema describes: images, other spellings of the same JSON.

use serde_json::{Value, json};

use crate::account::PredictConfig;
use crate::service::{
    Device, InputDescription, MethodDescription, MethodTakes, Service, ServiceKind, TextLimits,
};
use pkgtool_engine::tensor::DType;
use pkgtool_engine::tensor::input::Extent;

/// Maximum number of methods that are described, each with its inputs.
const MAX_METHODS: usize = 64;

/// Maximum number of elements of a request that a pattern spells out.
const MAX_PATTERN_ELEMENTS: u64 = 512;

/// Maximum number of texts, and of letters of a text after its first, in the schema. The service
/// accepts more.
const MAX_TEXTS: usize = 8;
const MAX_EXTRA_LETTERS: usize = 200;

/// Allowance for the tokens that a tokenizer adds to a text; the known ones add at most three.
const MAX_ADDED_TOKENS: usize = 8;

/// A row of any length: used for an input of unknown rank.
const ANY_LENGTH: Extent = Extent::Between {
    least: 1,
    most: None,
};

/// Schemas of the bodies of a service.
pub(super) struct BodySchemas {
    /// The body of a raw predict.
    pub(super) raw: Value,
    /// The body with data and config as JSON.
    pub(super) whole: Value,
    /// The body with data and config as strings.
    pub(super) texts: Value,
    /// A predict config.
    pub(super) config: Value,
    /// Ids of stored configs that a raw predict may name.
    pub(super) config_ids: Vec<i64>,
}

/// A predict config and the inputs accepted with it.
struct ConfigInputs<'d> {
    /// `None` for a request without one.
    config: Option<Value>,
    takes: &'d MethodTakes,
}

/// Returns the schemas of a service's bodies. Returns `None` for a service with a format of its
/// own, or without an engine that runs it.
pub(super) fn body_schemas(service: &Service, stored: &[PredictConfig]) -> Option<BodySchemas> {
    let ServiceKind::Device(device) = &service.kind else {
        return None;
    };
    let default = stored.iter().find(|config| config.is_default);
    let default = default.map(|config| config.config.as_str());
    let without = takes(device, default);
    let mut choices = Vec::new();
    choices.extend(without.map(|takes| ConfigInputs {
        config: None,
        takes,
    }));
    choices.extend(takes(device, None).map(|takes| ConfigInputs {
        config: Some(json!({})),
        takes,
    }));
    let methods = &device.description().signatures;
    let methods = methods.iter().take(MAX_METHODS).map(config_of);
    choices.extend(methods.clone().filter_map(|config| {
        let takes = takes(device, Some(&config.to_string()))?;
        Some(ConfigInputs {
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
        .chain(device.method_index(None).is_ok().then(|| json!({})))
        .collect();
    Some(BodySchemas {
        raw: without.map_or_else(|| json!(false), data),
        whole: any_of(choices.iter().map(json_form_schema).collect()),
        texts: any_of(choices.iter().map(texts).collect()),
        config: json!({"enum": configs}),
        config_ids: same.map(|config| config.id).collect(),
    })
}

/// Returns the inputs accepted with a config, if an engine can run it.
fn takes<'d>(device: &'d Device, config: Option<&str>) -> Option<&'d MethodTakes> {
    device.takes(device.method_index(config).ok()?)
}

/// Returns the config that selects a method.
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

/// Returns the schema of a body with data and config as JSON.
fn json_form_schema(choice: &ConfigInputs<'_>) -> Value {
    let (config, required) = match &choice.config {
        None => (json!({"type": "null"}), json!(["data"])),
        Some(config) => (json!({"const": config}), json!(["data", "config"])),
    };
    object(&data(choice.takes), &config, &required)
}

/// Returns the schema of a body with data and config as strings.
fn texts(choice: &ConfigInputs<'_>) -> Value {
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

/// Returns the schema of a method's data.
fn data(takes: &MethodTakes) -> Value {
    let tensors = tensors(takes);
    match takes.texts.and_then(texts_of) {
        Some(texts) => json!({"anyOf": [tensors, texts]}),
        None => tensors,
    }
}

/// Returns the schema of texts in place of tensors. A letter is at most one token, so the number of
/// letters is limited to the number of tokens minus [`MAX_ADDED_TOKENS`].
fn texts_of(takes: TextLimits) -> Option<Value> {
    let letters = takes
        .tokens
        .checked_sub(MAX_ADDED_TOKENS)
        .filter(|letters| *letters > 0)?;
    let more = (letters - 1).min(MAX_EXTRA_LETTERS);
    Some(json!({
        "type": "object",
        "description": "Texts to embed: the answer has one vector per text, in their order. \
            Every text within the model's limit of tokens is accepted",
        "required": ["texts"],
        "properties": {
            "texts": {
                "type": "array",
                "maxItems": MAX_TEXTS,
                "items": {"type": "string", "pattern": format!("^[a-z]{{1,{}}}$", more + 1)},
            },
        },
        "additionalProperties": false,
    }))
}

/// Returns the schema of a list with one tensor per input.
fn tensors(takes: &MethodTakes) -> Value {
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
            little-endian bytes in base64 (`\"encoding\": \"base64\"`); a model of images also accepts \
            `{\"image_base64\": …}`",
        "required": ["inputs"],
        "properties": {
            "inputs": inputs,
            "encoding": {"enum": ["json", "base64"], "description": "Encoding of the answer"},
        },
        "additionalProperties": false,
    })
}

fn input(input: &InputDescription) -> Value {
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

/// Returns the schema of an input's elements, nested by its dimensions.
fn elements(input: &InputDescription) -> Value {
    if let Some(fixed) = &input.fixed {
        let value: Value = serde_json::from_str(fixed).unwrap_or(Value::Null);
        return json!({"const": value});
    }
    // An input of unknown rank is described as a row.
    let row = [ANY_LENGTH];
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

fn element(input: &InputDescription) -> Value {
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

/// Returns a regular expression for texts that are the data of a method; `None` if it would be too
/// long.
fn pattern(takes: &MethodTakes) -> Option<String> {
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

/// Returns a regular expression for an input's elements; `None` if it would be too long.
fn nested(input: &InputDescription) -> Option<String> {
    let row = [ANY_LENGTH];
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
    count.filter(|count| *count <= MAX_PATTERN_ELEMENTS)?;
    let array = |inner: String, extent: &Extent| match (extent, most(extent)) {
        (_, 0) => r"\[\]".to_owned(),
        (Extent::Exactly(_), size) => format!(r"\[{inner}(,{inner}){{{}}}\]", size - 1),
        (Extent::Between { least, .. }, size) => {
            format!(r"\[{inner}(,{inner}){{{},{}}}\]", least - 1, size - 1)
        }
    };
    Some(extents.iter().rev().fold(digits(input), array))
}

/// Returns a regular expression for some of the numbers that an element may be.
fn digits(input: &InputDescription) -> String {
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

/// Returns a regular expression that matches exactly this text.
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
