//! Describes a Core ML model file: its kind, its description and its parts.
//!
//! The description is read first, the rest within limits. A program larger than any real one is
//! described without its operations.

use std::collections::BTreeMap;

use super::description::{FunctionDescription, ModelDescription};
use super::feature::{DICTIONARY, Feature, NUMBER, TEXT};
use super::layers::{count_parts, model_kind};
use super::operations::{Operations, WeightRecord};
use super::parts::each_field;
use super::place::{is_zip, relative_weight_path};
use crate::executorch::body::ByteRange;
use crate::executorch::coreml::{Argument, Operation, ProtoMessage, ValueContent, read_functions};
use crate::{
    ExternalData, FieldPosition, FormatError, Method, ModelInfo, ModelValue, Segment, ValueKind,
};
use pkgtool_base::source::{Pages, ReadAt};

/// Maximum size of a description, in bytes.
const MAX_DESCRIPTION_BYTES: u64 = 4 << 20;
/// Maximum size of a program whose operations are counted, in bytes.
pub(super) const MAX_PROGRAM_BYTES: u64 = 64 << 20;
/// Name of the only function of a program.
const MAIN: &str = "main";
/// The operation that a classifier ends with.
const CLASSIFY: &str = "classify";
/// Kind name of an ML Program.
const ML_PROGRAM: &str = "mlProgram";

/// The outer structure of a model file.
#[derive(Debug)]
pub(super) struct ModelOutline {
    version: u64,
    /// The kind of model.
    pub(super) kind: String,
    /// Byte range of the kind-specific message in the file.
    pub(super) body: ByteRange,
    /// Functions and metadata.
    pub(super) description: ModelDescription,
    updatable: bool,
    part_counts: BTreeMap<String, u64>,
    operations: Operations,
    operations_skipped: bool,
    /// Labels of classifiers, by function.
    class_labels: BTreeMap<String, Vec<String>>,
}

impl ModelOutline {
    /// Reads a model file.
    pub(super) fn read(source: &dyn ReadAt) -> Result<Self, FormatError> {
        let pages = Pages::new(source);
        let whole = ByteRange {
            offset: 0,
            size: pages.len(),
        };
        if is_zip(source) {
            return Err(FormatError::new(
                "the `.mlpackage` is a zip archive: expected a folder; unpack the archive",
            ));
        }
        let (mut version, mut updatable) = (0, false);
        let (mut description, mut kind) = (None, None);
        each_field(&pages, whole, "model", |part| {
            match (part.number, part.value, part.bytes) {
                (1, Some(value), _) => version = value,
                (10, Some(value), _) => updatable = value != 0,
                (2, _, Some(bytes)) => description = Some(bytes),
                (number, _, Some(bytes)) if number >= 200 => {
                    let name = model_kind(number);
                    let name = name.map_or_else(|| format!("model {number}"), str::to_owned);
                    kind = Some((name, bytes));
                }
                _ => {}
            }
            Ok::<_, FormatError>(())
        })?;
        let missing = |expected| {
            FormatError::new(format_args!(
                "expected {expected}, found none in {} bytes",
                pages.len()
            ))
        };
        let description = description.ok_or_else(|| missing("a description"))?;
        let (kind, body) = kind.ok_or_else(|| missing("a kind of model"))?;
        let bytes = read_bytes(&pages, description, MAX_DESCRIPTION_BYTES, "description")?;
        let message = ProtoMessage::new(&bytes, description.offset, "description");
        let mut outline = Self {
            version,
            body,
            description: ModelDescription::read(message)?,
            updatable,
            part_counts: BTreeMap::new(),
            operations: Operations::default(),
            class_labels: BTreeMap::new(),
            operations_skipped: kind == ML_PROGRAM && body.size > MAX_PROGRAM_BYTES,
            kind,
        };
        if !outline.is_program() {
            outline.part_counts = count_parts(&pages, &outline.kind, body)?;
        } else if !outline.operations_skipped {
            let bytes = read_bytes(&pages, body, MAX_PROGRAM_BYTES, "program")?;
            let program = ProtoMessage::new(&bytes, body.offset, "program");
            outline.operations = Operations::read(program)?;
            let mut counts = outline.operations.functions.values();
            if counts.any(|counts| counts.contains_key(CLASSIFY)) {
                outline.class_labels = class_labels(program)?;
            }
        }
        Ok(outline)
    }

    /// Returns whether the model is an ML Program.
    pub(super) fn is_program(&self) -> bool {
        self.kind == ML_PROGRAM
    }

    /// Returns the names of the layers or sub-models; empty for an ML Program.
    pub(super) fn part_names(&self) -> impl Iterator<Item = &str> {
        self.part_counts.keys().map(String::as_str)
    }

    /// Returns the weight files that the program references, with the records in each.
    pub(super) fn weight_files(&self) -> impl Iterator<Item = (&str, Vec<WeightRecord>)> {
        let files = self.operations.records.iter();
        files.map(|(file, records)| (file.as_str(), records.clone()))
    }

    /// Returns the format-neutral description. `files` lists the package's files with their sizes;
    /// empty for a standalone file.
    pub(super) fn info(&self, files: &[(String, u64)]) -> ModelInfo {
        let mut weight_types = BTreeMap::new();
        let mut weights = 0_u64;
        let mut external = Vec::new();
        for (file, records) in self.weight_files() {
            for record in &records {
                let count = record.count.unwrap_or(0);
                let name = record.kind.name().to_owned();
                let sum = weight_types.entry(name).or_insert(0_u64);
                *sum = sum.saturating_add(count);
                weights = weights.saturating_add(record.bytes().unwrap_or(0));
            }
            external.push(ExternalData {
                location: Some(relative_weight_path(file).to_owned()),
                needs_bytes: records.iter().map(WeightRecord::end).max(),
                tensors: records.len() as u64,
                named: Vec::new(),
            });
        }
        // Weights inside the package belong to the model; for a standalone file they are external.
        let in_folder = !files.is_empty();
        let segments = files.iter().map(|(name, size)| Segment {
            name: name.clone(),
            offset: 0,
            size: *size,
        });
        ModelInfo {
            format: super::NAME,
            format_by_name: None,
            format_version: format!("specification {}, {}", self.version, self.kind),
            producer: self.description.producer.clone(),
            names_methods: self.has_functions(),
            methods: self.methods(),
            segments: segments.collect(),
            weight_bytes: match (self.is_program(), in_folder) {
                (true, true) => weights,
                (true, false) => 0,
                (false, _) => self.body.size,
            },
            weight_types,
            external: if in_folder { Vec::new() } else { external },
            named: Vec::new(),
            metadata: self.metadata(),
        }
    }

    fn has_functions(&self) -> bool {
        let mut functions = self.description.functions.iter();
        functions.any(|function| function.name.is_some())
    }

    fn methods(&self) -> Vec<Method> {
        let mut methods: Vec<Method> = Vec::new();
        for function in &self.description.functions {
            let name = function.name.clone();
            let name = name.unwrap_or_else(|| "forward".to_owned());
            if methods.iter().any(|known| known.name == name) {
                continue;
            }
            let values = |features: &[Feature]| -> Vec<ModelValue> {
                features.iter().map(|found| found.value.clone()).collect()
            };
            let inputs = function.inputs.iter().enumerate();
            let optional = inputs.filter(|(_, input)| input.optional);
            methods.push(Method {
                optional: optional.map(|(at, _)| at).collect(),
                inputs: values(&function.inputs),
                outputs: self.outputs(function),
                operators: self.operators(function),
                name,
                ..Method::default()
            });
        }
        methods
    }

    /// Returns the outputs of a function. A classifier's are the most likely label, and the labels' probabilities.
    fn outputs(&self, function: &FunctionDescription) -> Vec<ModelValue> {
        let values = function.outputs.iter().map(|found| found.value.clone());
        let mut values: Vec<ModelValue> = values.collect();
        let Some(labels) = self.labels_of(function) else {
            return values;
        };
        for value in &mut values {
            value.kind = match &value.kind {
                ValueKind::Other(name) if name == DICTIONARY => ValueKind::ClassScores {
                    name: name.clone(),
                    count: labels.len() as u64,
                },
                ValueKind::Other(name) if [TEXT, NUMBER].contains(&&**name) => {
                    ValueKind::ClassLabel(name.clone())
                }
                other => other.clone(),
            };
        }
        values
    }

    /// Returns the labels of the function of a method, if it classifies.
    pub(super) fn class_labels(&self, method: &str) -> Option<&[String]> {
        let mut functions = self.description.functions.iter();
        let is_meant = |it: &&FunctionDescription| it.name.as_deref().unwrap_or(method) == method;
        self.labels_of(functions.find(is_meant)?)
    }

    fn labels_of(&self, function: &FunctionDescription) -> Option<&[String]> {
        let name = function.name.as_deref().unwrap_or(MAIN);
        let labels = &self.class_labels;
        let only = labels.values().next().filter(|_| labels.len() == 1);
        labels.get(name).or(only).map(Vec::as_slice)
    }

    /// Returns the operator counts of a function.
    fn operators(&self, function: &FunctionDescription) -> BTreeMap<String, u64> {
        if !self.is_program() {
            return self.part_counts.clone();
        }
        let functions = &self.operations.functions;
        let name = function.name.as_deref().unwrap_or(MAIN);
        let found = functions.get(name);
        let only = functions.values().next().filter(|_| functions.len() == 1);
        found.or(only).cloned().unwrap_or_default()
    }

    fn metadata(&self) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        if let Some(name) = &self.description.default {
            rows.push(("default function".to_owned(), name.clone()));
        }
        for function in &self.description.functions {
            let of = |what: &str| match &function.name {
                Some(name) => format!("{what} of {name}"),
                None => what.to_owned(),
            };
            let optional = function.inputs.iter().filter(|input| input.optional);
            let optional: Vec<&str> = optional.map(Feature::name).collect();
            if !optional.is_empty() {
                rows.push((of("optional inputs"), optional.join(", ")));
            }
            if !function.states.is_empty() {
                let states: Vec<String> = function.states.iter().map(state).collect();
                rows.push((of("states"), states.join(", ")));
            }
        }
        if self.updatable {
            rows.push(("updatable".to_owned(), "yes".to_owned()));
        }
        if self.operations_skipped {
            let size = self.body.size;
            let said = format!("not counted: the program has {size} bytes");
            rows.push(("operations".to_owned(), said));
        }
        rows.extend(self.description.metadata.iter().cloned());
        rows
    }
}

/// Returns the labels of the classifiers in a program, by function.
fn class_labels(program: ProtoMessage<'_>) -> Result<BTreeMap<String, Vec<String>>, FormatError> {
    let mut found = BTreeMap::new();
    for (name, function) in read_functions(program)? {
        let operations = &function.block.operations;
        let Some(classify) = operations.iter().find(|it| it.kind == CLASSIFY) else {
            continue;
        };
        let value = match classify.inputs.get("classes").map(Vec::as_slice) {
            Some([Argument::Value(value)]) => Some(value),
            Some([Argument::Name(name)]) => {
                let is_meant = |it: &&Operation| it.outputs.iter().any(|(known, _)| known == name);
                let constant = operations.iter().find(is_meant);
                constant.and_then(|constant| constant.attributes.get("val"))
            }
            _ => None,
        };
        let labels = match value.map(|value| &value.content) {
            Some(ValueContent::Texts(labels)) => labels.clone(),
            Some(ValueContent::Ints(numbers)) => numbers.iter().map(i64::to_string).collect(),
            _ => continue,
        };
        found.insert(name, labels);
    }
    Ok(found)
}

/// Formats a state with its type: `cache: float16[1, 4]`.
fn state(feature: &Feature) -> String {
    let name = feature.name();
    match &feature.value.kind {
        ValueKind::Tensor { info, .. } => format!("{name}: {info}"),
        other => format!("{name}: {}", other.name()),
    }
}

/// Reads the bytes of a message, up to a limit.
pub(super) fn read_bytes(
    pages: &Pages<'_>,
    range: ByteRange,
    most: u64,
    name: &str,
) -> Result<Vec<u8>, FormatError> {
    let place = || FieldPosition::new(format_args!("Core ML {name}"), range.offset);
    if range.size > most {
        return Err(place().too_large(most));
    }
    let size = usize::try_from(range.size).expect("bounded");
    let bytes = pages.bytes(range.offset, size);
    bytes.map_err(|error| place().unreadable(&error))
}
