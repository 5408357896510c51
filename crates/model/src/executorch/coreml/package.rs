//! Reads a Core ML payload for an engine: the function that a delegate calls, and its weight file.
//!
//! Several methods may share one package; their payloads then reference it by name (`CMJR`), with
//! the function in it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::storage::ByteRange;
use super::blob::Blob;
use super::files::PayloadFiles;
use super::program::{Function, read_functions};
use super::proto::ProtoMessage;
use crate::{FieldPosition, FormatError};
use pkgtool_base::source::pages::DEFAULT_BUDGET;
use pkgtool_base::source::{Pages, ReadAt};

/// Maximum size of a model message without its weights, in bytes.
const MAX_MODEL_BYTES: u64 = 64 << 20;
/// Maximum size of the other files, in bytes.
pub(super) const MAX_SMALL_FILE_BYTES: u64 = 1 << 20;
/// Field number of an ML Program in `Model`.
const ML_PROGRAM_FIELD: u64 = 502;
/// Magic bytes of a payload that references another package.
const REFERENCE_MAGIC: &[u8] = b"CMJR";

/// A function of a package.
#[derive(Debug, Clone, PartialEq)]
pub struct PackageFunction {
    /// The function.
    pub function: Function,
    /// Names of its inputs in the order of a call's arguments.
    pub inputs: Vec<String>,
    /// Names of its outputs in the order of a call's arguments.
    pub outputs: Vec<String>,
    weights: Option<ByteRange>,
}

/// The parsed `metadata.json`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    #[serde(flatten)]
    names: Option<PortNames>,
    #[serde(default)]
    methods: BTreeMap<String, PortNames>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PortNames {
    /// Input names in the order of a call's arguments.
    pub(super) input_names: Vec<String>,
    /// Output names in the order of a call's arguments.
    pub(super) output_names: Vec<String>,
}

impl Metadata {
    /// Returns the names of a function, or of the only one.
    pub(super) fn of(self, function: Option<&str>) -> Option<PortNames> {
        match (function, self.names) {
            (Some(wanted), _) => self.methods.get(wanted).cloned(),
            (None, Some(found)) => Some(found),
            (None, None) => self.methods.into_values().next(),
        }
    }
}

/// A reference from a payload to another package.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reference {
    /// The key of the other package in the program's named data.
    pub(super) key: String,
    /// The function in it.
    pub(super) function_name: String,
}

pub(super) fn place(path: &str, offset: u64) -> FieldPosition {
    FieldPosition::new(format_args!("Core ML {path}"), offset)
}

impl PackageFunction {
    /// Reads the package in a payload, or the package that it references in the program's named
    /// data.
    ///
    /// # Errors
    ///
    /// Fails if the payload is invalid, compiled or not an ML Program; names the file in it and the
    /// offset.
    pub fn read(
        source: &dyn ReadAt,
        payload: ByteRange,
        named: &dyn Fn(&str) -> Option<ByteRange>,
    ) -> Result<Self, FormatError> {
        let pages = Pages::with_budget(source, DEFAULT_BUDGET);
        let (payload, wanted) = match reference(&pages, payload)? {
            None => (payload, None),
            Some(reference) => {
                let found = named(&reference.key).ok_or_else(|| {
                    place("payload", payload.offset).listing(format_args!(
                        "`{}`, which the program does not contain",
                        reference.key
                    ))
                })?;
                (found, Some(reference.function_name))
            }
        };
        let files = PayloadFiles::read(&pages, payload)?;
        let missing = |what: &str| place("payload", payload.offset).listing(what);
        if files.has(&["model.mlmodelc"]) {
            return Err(missing(
                "a compiled model (model.mlmodelc), which only Core ML itself can read",
            ));
        }
        let folder = ["model.mlpackage", "Data", "com.apple.CoreML"];
        let [a, b, c] = folder;
        let model = files.find(&[a, b, c, "model.mlmodel"]);
        let model = model.ok_or_else(|| missing("no model.mlmodel"))?;
        let metadata = files.find(&["metadata.json"]);
        let metadata = metadata.ok_or_else(|| missing("no metadata.json"))?;
        let said: Metadata = json(
            &bytes(&pages, metadata, MAX_SMALL_FILE_BYTES)?,
            metadata.offset,
        )?;
        let bytes = bytes(&pages, model, MAX_MODEL_BYTES)?;
        let mut program = None;
        for field in ProtoMessage::new(&bytes, model.offset, "model").fields() {
            let field = field?;
            if field.number == ML_PROGRAM_FIELD {
                program = Some(read_functions(field.message("program")?)?);
            }
        }
        let mut program = program.ok_or_else(|| missing("a model that is not an ML Program"))?;
        let name = wanted.as_deref().unwrap_or("main");
        let function = match program.remove(name) {
            Some(function) => Some(function),
            None if wanted.is_none() && program.len() == 1 => program.pop_first().map(|(_, f)| f),
            None => None,
        };
        let function = function.ok_or_else(|| missing(&format!("no function `{name}`")))?;
        let found = said.of(wanted.as_deref());
        let found = found.ok_or_else(|| missing("no names of inputs and outputs"))?;
        Ok(Self {
            function,
            inputs: found.input_names,
            outputs: found.output_names,
            weights: files.find(&[a, b, c, "weights", "weight.bin"]),
        })
    }

    /// Creates a package for a standalone function, with the names of its inputs and outputs and
    /// the position of its weights.
    pub(crate) fn new(
        function: Function,
        inputs: Vec<String>,
        outputs: Vec<String>,
        weights: Option<ByteRange>,
    ) -> Self {
        Self {
            function,
            inputs,
            outputs,
            weights,
        }
    }

    /// Reads the record at an offset of the weight file.
    ///
    /// # Errors
    ///
    /// Fails if the record is missing or extends past the file's end.
    pub fn blob(&self, source: &dyn ReadAt, offset: u64) -> Result<Blob, FormatError> {
        let pages = Pages::with_budget(source, DEFAULT_BUDGET);
        let file = self
            .weights
            .ok_or_else(|| place("weights/weight.bin", 0).missing())?;
        Blob::read(&pages, file, offset)
    }
}

/// Returns the reference in a payload, if the payload is one.
pub(super) fn reference(
    pages: &Pages<'_>,
    payload: ByteRange,
) -> Result<Option<Reference>, FormatError> {
    let size = payload.size.min(4096);
    let found = bytes(pages, ByteRange { size, ..payload }, size)?;
    let Some(text) = found.strip_prefix(REFERENCE_MAGIC) else {
        return Ok(None);
    };
    json(text, payload.offset).map(Some)
}

pub(super) fn bytes(
    pages: &Pages<'_>,
    range: ByteRange,
    most: u64,
) -> Result<Vec<u8>, FormatError> {
    let here = || place("payload file", range.offset);
    if range.size > most {
        return Err(here().too_large(most));
    }
    let size = usize::try_from(range.size).expect("bounded");
    let mut bytes = vec![0; size];
    let read = pages.read(range.offset, &mut bytes);
    read.map_err(|error| here().unreadable(&error))?;
    Ok(bytes)
}

pub(super) fn json<'a, T: Deserialize<'a>>(bytes: &'a [u8], offset: u64) -> Result<T, FormatError> {
    serde_json::from_slice(bytes).map_err(|error| place("JSON", offset).listing(error))
}
