//! The header of a `FunctionProto`: the signature seen by its callers, and its imported operator
//! sets.
//!
//! It is read before the nodes of the function are walked.

use super::load::FunctionSignature;
use super::schema;
use super::wire::WireField;
use crate::FormatError;

/// Approximate memory of an entry beyond its text, in bytes.
const ENTRY_SIZE: u64 = 64;

/// The header of a function.
pub(super) struct FunctionHeader<'a> {
    pub(super) field: WireField<'a>,
    pub(super) domain: String,
    pub(super) name: String,
    overload: String,
    inputs: usize,
    outputs: usize,
    pub(super) imports: Vec<(String, i64)>,
}

impl<'a> FunctionHeader<'a> {
    /// Reads the header of the function in `field`.
    pub(super) fn read(field: WireField<'a>) -> Result<Self, FormatError> {
        field.keep(ENTRY_SIZE)?;
        let mut function = Self {
            field,
            domain: String::new(),
            name: String::new(),
            overload: String::new(),
            inputs: 0,
            outputs: 0,
            imports: Vec::new(),
        };
        let mut message = field.message(schema::FUNCTION)?;
        while let Some(field) = message.next()? {
            match field.name() {
                "domain" => function.domain = field.kept_text()?,
                "name" => function.name = field.kept_text()?,
                "overload" => function.overload = field.kept_text()?,
                "input" => function.inputs += 1,
                "output" => function.outputs += 1,
                "opset_import" => function.imports.push(import(&field)?),
                _ => {}
            }
        }
        Ok(function)
    }

    /// Returns the signature seen by its callers.
    pub(super) fn signature(&self) -> FunctionSignature {
        FunctionSignature {
            domain: self.domain.clone(),
            name: self.name.clone(),
            overload: self.overload.clone(),
            inputs: self.inputs,
            outputs: self.outputs,
        }
    }
}

/// Reads domain and version of an `OperatorSetIdProto`.
pub(super) fn import(field: &WireField<'_>) -> Result<(String, i64), FormatError> {
    field.keep(ENTRY_SIZE)?;
    let mut import = (String::new(), 0);
    let mut message = field.message(schema::OPSET)?;
    while let Some(field) = message.next()? {
        match field.name() {
            "domain" => import.0 = field.excerpt()?,
            "version" => import.1 = field.int()?,
            _ => {}
        }
    }
    Ok(import)
}
