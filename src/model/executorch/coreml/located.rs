//! Where the parts of a package are in a program's file, without reading the model itself.

use std::collections::BTreeMap;

use super::super::error::Error;
use super::super::storage::ByteRange;
use super::files::Files;
use super::package::{MAX_SMALL, Metadata, Names, bytes, json, place, reference};
use super::walk::{Field, Walk};
use crate::source::Pages;

/// The field of `Model` that an ML Program is.
const ML_PROGRAM: u64 = 502;
/// The field of `Program` that holds functions by name.
const FUNCTIONS: u64 = 2;

/// A package.
pub(super) struct Located {
    /// The model's protobuf message.
    pub(super) model: ByteRange,
    /// The function that the payload names, where it names one.
    pub(super) function: Option<String>,
    /// Names of the function's inputs and outputs.
    pub(super) ports: Option<Names>,
}

impl Located {
    /// The package in a payload, or the one that it names.
    pub(super) fn find(
        pages: &Pages<'_>,
        payload: ByteRange,
        named: &dyn Fn(&str) -> Option<ByteRange>,
    ) -> Result<Self, Error> {
        let missing = |what: &str| Error::Listing {
            place: place("payload", payload.offset),
            found: what.to_owned(),
        };
        let (package, function) = match reference(pages, payload)? {
            None => (payload, None),
            Some(reference) => {
                let other = || format!("`{}`, which the program does not hold", reference.key);
                let found = named(&reference.key).ok_or_else(|| missing(&other()))?;
                (found, Some(reference.function_name))
            }
        };
        let files = Files::read(pages, package)?;
        if files.has(&["model.mlmodelc"]) {
            return Err(missing(
                "a compiled model (model.mlmodelc), which only Core ML itself reads",
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
                let said: Metadata = json(&bytes(pages, range, MAX_SMALL)?, range.offset)?;
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

    /// The function that is called, with its name: the one that the payload names, `main`, or the only one.
    pub(super) fn choose<'f, 'a>(
        &self,
        functions: &'f BTreeMap<String, Field<'a>>,
    ) -> Option<(&'f String, &'f Field<'a>)> {
        match &self.function {
            Some(wanted) => functions.get_key_value(wanted),
            None if functions.len() == 1 => functions.first_key_value(),
            None => functions.get_key_value("main"),
        }
    }

    /// The fields of the model; functions of the program by themselves, with their names.
    pub(super) fn walk<'a>(
        &self,
        walk: &'a Walk<'a>,
        each: &mut dyn FnMut(Part<'a>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut is_program = false;
        for field in walk.message(self.model, "model").fields() {
            let field = field?;
            if field.number != ML_PROGRAM {
                each(Part::Other(field))?;
                continue;
            }
            is_program = true;
            for field in field.message("program")?.fields() {
                let field = field?;
                if field.number == FUNCTIONS
                    && let (name, Some(function)) = field.entry()?
                {
                    each(Part::Function(name, function))?;
                }
            }
        }
        if is_program {
            return Ok(());
        }
        Err(Error::Listing {
            place: place("model", self.model.offset),
            found: "a model that is no ML Program".to_owned(),
        })
    }
}

/// A part of a model.
pub(super) enum Part<'a> {
    /// A function of its program.
    Function(String, Field<'a>),
    /// Another field.
    Other(Field<'a>),
}
