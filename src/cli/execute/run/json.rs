//! The result of `run` as JSON. Later versions only add fields.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::{CompletedRun, RunView};
use pkgtool_engine::ByteSums;
use pkgtool_engine::runtime::selection::Selection;
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::tensor::{DType, Tensor};

/// Maximum number of elements that are printed of a tensor.
const MAX_PRINTED_ELEMENTS: usize = 65_536;

/// Returns the document with a final newline. For a chain, it describes the last component, and
/// `chain` has all of them.
pub(super) fn render(stages: &[CompletedRun]) -> String {
    let mut document = stages.last().map_or(Json::Null, stage);
    if stages.len() > 1 {
        document["chain"] = stages.iter().map(stage).collect();
    }
    format!("{document:#}\n")
}

/// Returns one document for several steps: the session, the inputs and outputs of the last step,
/// and all steps in `steps`.
pub(super) fn render_steps(
    stage: &CompletedRun,
    feeds: &[(String, String)],
    steps: Vec<Json>,
) -> String {
    let mut document = self::stage(stage);
    if let Some(last) = steps.last() {
        document["inputs"] = last["inputs"].clone();
        document["outputs"] = last["outputs"].clone();
    }
    let feeds = feeds.iter();
    let feeds = feeds.map(|(output, input)| json!({ "output": output, "input": input }));
    document["feeds"] = feeds.collect();
    document["steps"] = Json::Array(steps);
    format!("{document:#}\n")
}

/// Renders one step.
pub(super) fn step(shown: &RunView<'_>) -> Json {
    let (inputs, outputs) = tensors(shown);
    json!({ "inputs": inputs, "outputs": outputs, "time_ms": milliseconds(shown.time) })
}

/// Renders inputs and outputs.
fn tensors(shown: &RunView<'_>) -> (Vec<Json>, Vec<Json>) {
    let inputs = shown.signature.inputs.iter().zip(shown.inputs);
    let outputs = shown.signature.outputs.iter().zip(shown.outputs);
    let inputs = inputs.map(|(spec, tensor)| described(&spec.name, tensor));
    let outputs = outputs.enumerate();
    let outputs = outputs.map(|(i, (spec, tensor))| output(&spec.name, tensor, shown.files.get(i)));
    (inputs.collect(), outputs.collect())
}

fn stage(stage: &CompletedRun) -> Json {
    let mut document = head(&stage.selection, &stage.started);
    let (inputs, outputs) = tensors(&stage.shown());
    document["inputs"] = Json::Array(inputs);
    document["outputs"] = Json::Array(outputs);
    document["timings_ms"] = json!({
        "load": milliseconds(stage.started.load_time),
        "first": milliseconds(stage.started.first_answer.time),
        "run": stage.second_run_time.map(milliseconds),
    });
    if let Some(profile) = &stage.profile {
        document["profile"] = json!(profile.report(&stage.started));
    }
    document
}

/// Renders the model, and the engine and provider that ran it.
pub(super) fn head(selection: &Selection, started: &Started) -> Json {
    let variant = selection.variant.as_ref();
    let passed_over: Vec<Json> = started
        .failed_candidates
        .iter()
        .map(|(candidate, error)| {
            json!({
                "engine": candidate.engine,
                "provider": candidate.provider.name(),
                "reason": error.to_string(),
            })
        })
        .collect();
    let method = &selection.signature.method;
    let reading = started.candidate.reading(&selection.info, method);
    json!({
        "version": 1,
        "package": variant.map(|variant| &variant.package),
        "precision": variant.and_then(|variant| variant.precision.as_ref()),
        "backend": started.backend.map(pkgtool_base::package::Backend::name),
        "engine": started.candidate.engine,
        "provider": started.candidate.provider.name(),
        "fallback": started.candidate.fallback,
        "passed_over": passed_over,
        "placement": started.placement.shares,
        "byte_sums": started.placement.byte_sums.map(ByteSums::name),
        "sandbox": started.sandbox,
        "pinned_cores": started.pinned_cores,
        "device": started.worker.device().map(ToString::to_string),
        "reading": reading.map(|reading| reading.to_string()),
        "component": variant.and_then(|variant| variant.component.as_ref()),
        "method": selection.signature.method,
        "model": shown(&selection.model),
    })
}

fn described(name: &str, tensor: &Tensor) -> Json {
    json!({ "name": name, "dtype": tensor.dtype().name(), "shape": tensor.shape() })
}

fn output(name: &str, tensor: &Tensor, file: Option<&std::path::PathBuf>) -> Json {
    let mut json = described(name, tensor);
    if let Some(file) = file {
        json["file"] = json!(shown(file));
    } else if tensor.len() <= MAX_PRINTED_ELEMENTS {
        let elements = elements(tensor);
        json["data"] = nested(&mut elements.into_iter(), tensor.shape());
    } else {
        json["data_omitted"] = json!(format!(
            "{} elements, at most {MAX_PRINTED_ELEMENTS} are listed; --output-dir DIR writes them",
            tensor.len()
        ));
    }
    json
}

/// Nests the elements according to the shape.
fn nested(elements: &mut impl Iterator<Item = Json>, shape: &[u64]) -> Json {
    match shape {
        [] => elements.next().unwrap_or(Json::Null),
        [size, rest @ ..] => (0..*size).map(|_| nested(elements, rest)).collect(),
    }
}

fn elements(tensor: &Tensor) -> Vec<Json> {
    let bytes = tensor.bytes();
    match tensor.dtype() {
        DType::Bool => bytes.iter().map(|byte| json!(*byte != 0)).collect(),
        // A float64 would round integers above 2^53.
        DType::Int64 => wide(bytes, |element| json!(i64::from_le_bytes(element))),
        DType::Uint64 => wide(bytes, |element| json!(u64::from_le_bytes(element))),
        dtype if dtype.is_float() => tensor.to_f64().map(|value| float(dtype, value)).collect(),
        _ => tensor.to_f64().map(integer).collect(),
    }
}

fn wide(bytes: &[u8], value: impl Fn([u8; 8]) -> Json) -> Vec<Json> {
    let (elements, _) = bytes.as_chunks::<8>();
    elements.iter().map(|element| value(*element)).collect()
}

/// Returns the shortest number that parses to the same float. NaN and infinities become strings,
/// since JSON cannot represent them.
pub(super) fn float(dtype: DType, value: f64) -> Json {
    if value.is_nan() {
        return json!("NaN");
    }
    if value.is_infinite() {
        return json!(if value > 0.0 { "Infinity" } else { "-Infinity" });
    }
    if dtype == DType::Float64 {
        return json!(value);
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the value came from 32 bits or fewer"
    )]
    let short = value as f32;
    short
        .to_string()
        .parse::<f64>()
        .map_or(Json::Null, |value| json!(value))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the value came from an integer of 32 bits or fewer"
)]
fn integer(value: f64) -> Json {
    json!(value as i64)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

pub(super) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
