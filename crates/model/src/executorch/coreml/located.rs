//! Locates the parts of a Core ML package in a program's file, without reading the model itself.

use std::collections::BTreeMap;

use super::super::storage::ByteRange;
use super::files::PayloadFiles;
use super::package::{MAX_SMALL_FILE_BYTES, Metadata, PortNames, bytes, json, place, reference};
use super::walk::{Walk, WalkField};
use crate::FormatError;
use pkgtool_base::source::Pages;

/// Field number of an ML Program in `Model`.
const ML_PROGRAM_FIELD: u64 = 502;
/// Field number of the function map in `Program`.
const FUNCTIONS_FIELD: u64 = 2;

/// The parts of a package.
pub(super) struct LocatedPackage {
    /// Position of the model's protobuf message.
    pub(super) model: ByteRange,
    /// The function that the payload names, if any.
    pub(super) function: Option<String>,
    /// Names of the function's inputs and outputs.
    pub(super) ports: Option<PortNames>,
}

impl LocatedPackage {
    /// Locates the package in a payload, or the package that it references.
    pub(super) fn find(
        pages: &Pages<'_>,
        payload: ByteRange,
        named: &dyn Fn(&str) -> Option<ByteRange>,
    ) -> Result<Self, FormatError> {
        let missing = |what: &str| place("payload", payload.offset).listing(what);
        let (package, function) = match reference(pages, payload)? {
            None => (payload, None),
            Some(reference) => {
                let other = || format!("`{}`, which the program does not contain", reference.key);
                let found = named(&reference.key).ok_or_else(|| missing(&other()))?;
                (found, Some(reference.function_name))
            }
        };
        let files = PayloadFiles::read(pages, package)?;
        if files.has(&["model.mlmodelc"]) {
            return Err(missing(
                "a compiled model (model.mlmodelc), which only Core ML itself can read",
            ));
        }
        let path = [
            "model.mlpackage",
            "Data",
            "com.apple.CoreML",
            "model.mlmodel",
        ];
        let model = files
            .find(&path)
            .ok_or_else(|| missing("no model.mlmodel"))?;
        let said = match files.find(&["metadata.json"]) {
            Some(range) => {
                let said: Metadata =
                    json(&bytes(pages, range, MAX_SMALL_FILE_BYTES)?, range.offset)?;
                said.of(function.as_deref())
            }
            None => None,
        };
        Ok(Self {
            model,
            function,
            ports: said,
        })
    }

    /// Returns the called function with its name: the function that the payload names, `main`, or
    /// the only function.
    pub(super) fn choose<'f, 'a>(
        &self,
        functions: &'f BTreeMap<String, WalkField<'a>>,
    ) -> Option<(&'f String, &'f WalkField<'a>)> {
        match &self.function {
            Some(wanted) => functions.get_key_value(wanted),
            None if functions.len() == 1 => functions.first_key_value(),
            None => functions.get_key_value("main"),
        }
    }

    /// Iterates over the fields of the model. Functions of the program are separate items with
    /// their names.
    pub(super) fn walk<'a>(
        &self,
        walk: &'a Walk<'a>,
        each: &mut dyn FnMut(ModelPart<'a>) -> Result<(), FormatError>,
    ) -> Result<(), FormatError> {
        let mut is_program = false;
        for field in walk.message(self.model, "model").fields() {
            let field = field?;
            if field.number != ML_PROGRAM_FIELD {
                each(ModelPart::Other(field))?;
                continue;
            }
            is_program = true;
            for field in field.message("program")?.fields() {
                let field = field?;
                if field.number == FUNCTIONS_FIELD
                    && let (name, Some(function)) = field.entry()?
                {
                    each(ModelPart::Function(name, function))?;
                }
            }
        }
        if is_program {
            return Ok(());
        }
        Err(place("model", self.model.offset).listing("a model that is not an ML Program"))
    }
}

/// A part of a model.
pub(super) enum ModelPart<'a> {
    /// A function of its program.
    Function(String, WalkField<'a>),
    /// Another field.
    Other(WalkField<'a>),
}
