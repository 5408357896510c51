//! A model's description as JSON, version 1. Later versions only add fields.

use serde_json::{Map, Value as Json, json};

use super::{ExtraFacts, payloads, portable};
use pkgtool_model::{
    Allowed, Dim, Dynamism, Method, ModelInfo, ModelValue, NamedData, TensorInfo, ValueKind,
};

/// Returns the document.
pub(super) fn document(info: &ModelInfo, file_size: u64, beside: &ExtraFacts) -> Json {
    let methods: Map<String, Json> = info
        .methods
        .iter()
        .map(|method| (method.name.clone(), method_json(info, method, beside)))
        .collect();
    let segments: Vec<Json> = info
        .segments
        .iter()
        .map(|s| json!({ "name": s.name, "offset": s.offset, "size_bytes": s.size }))
        .collect();
    let external: Vec<Json> = info
        .external
        .iter()
        .map(|e| {
            json!({ "location": e.location, "needs_bytes": e.needs_bytes, "tensors": e.tensors,
            "names": e.named.iter().map(|named| &named.name).collect::<Vec<_>>() })
        })
        .collect();
    let metadata: Map<String, Json> = info
        .metadata
        .iter()
        .map(|(key, value)| (key.clone(), json!(value)))
        .collect();
    let mut document = json!({
        "version": 1,
        "format": info.format,
        "format_version": info.format_version,
        "producer": info.producer,
        "size_bytes": file_size,
        "weight_bytes": info.weight_bytes,
        "methods": methods,
        "segments": segments,
        "external": external,
        "metadata": metadata,
    });
    if let Some(named_as) = info.format_by_name {
        document["named_as"] = json!(named_as);
    }
    if !info.named.is_empty() {
        let named = info.named.iter().map(named_json);
        document["data"] = named.collect();
    }
    document
}

/// Renders a named entry of a data file.
fn named_json(named: &NamedData) -> Json {
    let mut json = named
        .tensor
        .as_ref()
        .map_or(json!({}), |info| tensor_json(info, None));
    put_first(&mut json, "name", &named.name);
    json
}

fn method_json(info: &ModelInfo, method: &Method, beside: &ExtraFacts) -> Json {
    let ids: Vec<&str> = method.delegates.iter().map(|d| d.id.as_str()).collect();
    let sizes: Vec<Option<u64>> = method.delegates.iter().map(|d| d.payload_bytes).collect();
    let mut json = json!({
        "inputs": method.inputs.iter().map(value_json).collect::<Vec<_>>(),
        "outputs": method.outputs.iter().map(value_json).collect::<Vec<_>>(),
        "constant": method.constant,
        "delegates": ids,
        "delegate_payload_bytes": sizes,
        "operators": method.operators,
    });
    if let Some((missing, why)) = portable::missing(&beside.path, info, method) {
        json["portable"] = json!(why.is_empty());
        json["missing"] = json!(missing);
    }
    let payloads = beside.payloads(method);
    if !payloads.is_empty() {
        let payloads = payloads.iter();
        json["payloads"] = payloads
            .map(|payload| payloads::document(payload.as_ref()))
            .collect();
    }
    let wrong = beside.wrong(method);
    if !wrong.is_empty() {
        let wrong = wrong.iter();
        let wrong = wrong.map(|known| json!({ "operator": known.operator, "what": known.what }));
        json["wrong_in_executorch"] = wrong.collect();
    }
    json
}

fn value_json(value: &ModelValue) -> Json {
    let mut json = match &value.kind {
        ValueKind::Tensor { info, data } => tensor_json(info, data.as_deref()),
        ValueKind::Int(number) => json!({ "kind": "int", "value": number }),
        // JSON cannot represent infinities and NaN, so they are written as text.
        ValueKind::Double(number) if !number.is_finite() => {
            json!({ "kind": "double", "value": number.to_string() })
        }
        ValueKind::Double(number) => json!({ "kind": "double", "value": number }),
        ValueKind::Bool(truth) => json!({ "kind": "bool", "value": truth }),
        ValueKind::String(text) => json!({ "kind": "string", "value": text }),
        ValueKind::None
        | ValueKind::Other(_)
        | ValueKind::ClassLabel(_)
        | ValueKind::ClassScores { .. } => json!({ "kind": value.kind.name() }),
    };
    if let Some(name) = &value.name {
        put_first(&mut json, "name", name);
    }
    json
}

/// Inserts a field at the beginning of an object, where readers expect it.
fn put_first(object: &mut Json, key: &str, value: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.shift_insert(0, key.to_owned(), json!(value));
    }
}

fn tensor_json(info: &TensorInfo, data: Option<&[Json]>) -> Json {
    let mut json = json!({ "dtype": info.element.name(), "shape": info.config_shape() });
    if info.dynamism != Dynamism::Static {
        json["dynamism"] = json!(match info.dynamism {
            Dynamism::Static => "static",
            Dynamism::Bounded => "bounded",
            Dynamism::Unbounded => "unbounded",
            Dynamism::Symbolic => "symbolic",
        });
        if let Some(dims) = &info.dims {
            json["dims"] = dims.iter().map(dim_json).collect();
        }
    }
    if let Some(data) = data {
        json["data"] = json!(data);
    }
    json
}

/// Renders a dimension: whether the file marks it as dynamic, its maximum size, its symbol.
fn dim_json(dim: &Dim) -> Json {
    match dim {
        Dim::Fixed(size) => json!({ "dynamic": false, "size": size }),
        Dim::Dynamic {
            bound,
            name,
            allowed,
        } => {
            let mut json = json!({ "dynamic": true, "bound": bound, "name": name });
            match allowed {
                Some(Allowed::Range { least, step, .. }) => {
                    json["least"] = json!(least);
                    json["step"] = json!(step);
                }
                Some(Allowed::Choices(sizes)) => json["choices"] = json!(sizes),
                None => {}
            }
            json
        }
        Dim::Maybe { bound, .. } => json!({ "dynamic": null, "bound": bound }),
    }
}
