//! A payload as an executor needs it: the function that a delegate calls, and its weight file.
//!
//! Several methods may share one package: their payloads then name it (`CMJR`) and the function in it.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::super::error::{Error, Place};
use super::super::storage::ByteRange;
use super::blob::Blob;
use super::files::Files;
use super::program::{Function, functions};
use super::proto::Message;
use crate::source::pages::DEFAULT_BUDGET;
use crate::source::{Pages, ReadAt};

/// The largest model description without its weights.
const MAX_MODEL: u64 = 64 << 20;
/// The largest of the small files.
pub(super) const MAX_SMALL: u64 = 1 << 20;
/// The field of `Model` that an ML Program is.
const ML_PROGRAM: u64 = 502;
/// What a payload begins with that names another.
const REFERENCE: &[u8] = b"CMJR";

/// A function of a package.
#[derive(Debug, Clone, PartialEq)]
pub struct Package {
    /// The function.
    pub function: Function,
    /// Names of its inputs in the order of a call's arguments.
    pub inputs: Vec<String>,
    /// Names of its outputs in the order of a call's arguments.
    pub outputs: Vec<String>,
    weights: Option<ByteRange>,
}

/// What `metadata.json` says.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata {
    #[serde(flatten)]
    names: Option<Names>,
    #[serde(default)]
    methods: BTreeMap<String, Names>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Names {
    /// Of inputs, in the order of a call's arguments.
    pub(super) input_names: Vec<String>,
    /// Of outputs, likewise.
    pub(super) output_names: Vec<String>,
}

impl Metadata {
    /// The names of a function, or of the only one.
    pub(super) fn of(self, function: Option<&str>) -> Option<Names> {
        match (function, self.names) {
            (Some(wanted), _) => self.methods.get(wanted).cloned(),
            (None, Some(found)) => Some(found),
            (None, None) => self.methods.into_values().next(),
        }
    }
}

/// What a payload says that names another.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reference {
    /// What the other is stored under.
    pub(super) key: String,
    /// The function in it.
    pub(super) function_name: String,
}

pub(super) fn place(path: &str, offset: u64) -> Place {
    Place {
        path: format!("Core ML {path}"),
        offset,
    }
}

impl Package {
    /// Reads the package in a payload, or the one that it names among the program's named data.
    ///
    /// # Errors
    ///
    /// Where the payload is broken, with the file in it and the offset; where it is compiled or no ML Program.
    pub fn read(
        source: &dyn ReadAt,
        payload: ByteRange,
        named: &dyn Fn(&str) -> Option<ByteRange>,
    ) -> Result<Self, Error> {
        let pages = Pages::with_budget(source, DEFAULT_BUDGET);
        let (payload, wanted) = match reference(&pages, payload)? {
            None => (payload, None),
            Some(reference) => {
                let found = named(&reference.key).ok_or_else(|| Error::Listing {
                    place: place("payload", payload.offset),
                    found: format!("`{}`, which the program does not hold", reference.key),
                })?;
                (found, Some(reference.function_name))
            }
        };
        let files = Files::read(&pages, payload)?;
        let missing = |what: &str| Error::Listing {
            place: place("payload", payload.offset),
            found: what.to_owned(),
        };
        if files.has(&["model.mlmodelc"]) {
            return Err(missing(
                "a compiled model (model.mlmodelc), which only Core ML itself reads",
            ));
        }
        let folder = ["model.mlpackage", "Data", "com.apple.CoreML"];
        let [a, b, c] = folder;
        let model = files.find(&[a, b, c, "model.mlmodel"]);
        let model = model.ok_or_else(|| missing("no model.mlmodel"))?;
        let metadata = files.find(&["metadata.json"]);
        let metadata = metadata.ok_or_else(|| missing("no metadata.json"))?;
        let said: Metadata = json(&bytes(&pages, metadata, MAX_SMALL)?, metadata.offset)?;
        let bytes = bytes(&pages, model, MAX_MODEL)?;
        let mut program = None;
        for field in Message::new(&bytes, model.offset, "model").fields() {
            let field = field?;
            if field.number == ML_PROGRAM {
                program = Some(functions(field.message("program")?)?);
            }
        }
        let mut program = program.ok_or_else(|| missing("a model that is no ML Program"))?;
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

    /// A function that stands by itself, with the names of its inputs and outputs, and where its weights are.
    pub(in crate::model) fn new(
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

    /// The record at an offset of the weight file.
    ///
    /// # Errors
    ///
    /// Where there is none, or it reaches past the file's end.
    pub fn blob(&self, source: &dyn ReadAt, offset: u64) -> Result<Blob, Error> {
        let pages = Pages::with_budget(source, DEFAULT_BUDGET);
        let file = self.weights.ok_or_else(|| Error::MissingField {
            place: place("weights/weight.bin", 0),
        })?;
        Blob::read(&pages, file, offset)
    }
}

/// What a payload says, if it names another.
pub(super) fn reference(pages: &Pages<'_>, payload: ByteRange) -> Result<Option<Reference>, Error> {
    let size = payload.size.min(4096);
    let found = bytes(pages, ByteRange { size, ..payload }, size)?;
    let Some(text) = found.strip_prefix(REFERENCE) else {
        return Ok(None);
    };
    json(text, payload.offset).map(Some)
}

pub(super) fn bytes(pages: &Pages<'_>, range: ByteRange, most: u64) -> Result<Vec<u8>, Error> {
    let here = || place("payload file", range.offset);
    if range.size > most {
        return Err(Error::TooMuch {
            place: here(),
            most,
        });
    }
    let size = usize::try_from(range.size).expect("bounded");
    let mut bytes = vec![0; size];
    let read = pages.read(range.offset, &mut bytes);
    read.map_err(|error| Error::Read {
        place: here(),
        error,
    })?;
    Ok(bytes)
}

pub(super) fn json<'a, T: Deserialize<'a>>(bytes: &'a [u8], offset: u64) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|error| Error::Listing {
        place: place("JSON", offset),
        found: error.to_string(),
    })
}
