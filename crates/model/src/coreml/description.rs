//! Reads a Core ML model description: functions with inputs, outputs and states, and metadata.
//!
//! Source: `ModelDescription` of coremltools 9. Invariant: the retained data is bounded, whatever
//! the size of the file.

use super::feature::Feature;
use crate::FormatError;
use crate::executorch::coreml::{ProtoField, ProtoMessage};

/// Maximum number of inputs, outputs and states of all functions together.
const MAX_FEATURES: usize = 1 << 14;
/// Maximum number of metadata entries.
const MAX_METADATA_ENTRIES: usize = 1 << 10;
/// Maximum length of a displayed text.
const MAX_SHOWN_TEXT: usize = 4096;

/// The parsed description.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ModelDescription {
    /// Functions; a model without named functions has a single unnamed one.
    pub(super) functions: Vec<FunctionDescription>,
    /// The default function of a model with several functions.
    pub(super) default: Option<String>,
    /// Metadata written by authors, in order.
    pub(super) metadata: Vec<(String, String)>,
    /// The program that wrote the file.
    pub(super) producer: Option<String>,
}

/// A function.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct FunctionDescription {
    /// Its name, if the model has several functions.
    pub(super) name: Option<String>,
    /// Inputs.
    pub(super) inputs: Vec<Feature>,
    /// Outputs.
    pub(super) outputs: Vec<Feature>,
    /// State kept from call to call.
    pub(super) states: Vec<Feature>,
}

impl ModelDescription {
    /// Reads a `ModelDescription`.
    pub(super) fn read(message: ProtoMessage<'_>) -> Result<Self, FormatError> {
        let mut description = Self::default();
        let (mut only, mut left) = (FunctionDescription::default(), MAX_FEATURES);
        for field in message.fields() {
            let field = field?;
            match field.number {
                1 => only.inputs.push(feature(&field, &mut left)?),
                10 => only.outputs.push(feature(&field, &mut left)?),
                13 => only.states.push(feature(&field, &mut left)?),
                20 => {
                    let function = function(field.message("function")?, &mut left)?;
                    description.functions.push(function);
                }
                21 => description.default = Some(field.text()?).filter(|name| !name.is_empty()),
                100 => description.read_metadata(field.message("metadata")?)?,
                _ => {}
            }
        }
        if description.functions.is_empty() {
            description.functions.push(only);
        }
        Ok(description)
    }

    fn read_metadata(&mut self, message: ProtoMessage<'_>) -> Result<(), FormatError> {
        for field in message.fields() {
            let field = field?;
            let key = match field.number {
                1 => "description",
                2 => "version",
                3 => "author",
                4 => "license",
                100 => {
                    let (key, value) = entry(field.message("metadata entry")?)?;
                    if key == "com.github.apple.coremltools.version" {
                        self.producer = Some(format!("coremltools {value}"));
                    }
                    self.add_metadata(key, value)?;
                    continue;
                }
                _ => continue,
            };
            let text = shown(&field)?;
            if !text.is_empty() {
                self.add_metadata(key.to_owned(), text)?;
            }
        }
        Ok(())
    }

    fn add_metadata(&mut self, key: String, value: String) -> Result<(), FormatError> {
        if self.metadata.len() >= MAX_METADATA_ENTRIES {
            return Err(FormatError::too_many(
                MAX_METADATA_ENTRIES,
                "entries of metadata",
            ));
        }
        self.metadata.push((key, value));
        Ok(())
    }
}

fn feature(field: &ProtoField<'_>, left: &mut usize) -> Result<Feature, FormatError> {
    count_feature(left)?;
    Feature::read(field.message("feature")?)
}

fn count_feature(left: &mut usize) -> Result<(), FormatError> {
    *left = left.checked_sub(1).ok_or(FormatError::too_many(
        MAX_FEATURES,
        "functions, inputs, outputs and states",
    ))?;
    Ok(())
}

fn function(
    message: ProtoMessage<'_>,
    left: &mut usize,
) -> Result<FunctionDescription, FormatError> {
    count_feature(left)?;
    let mut function = FunctionDescription::default();
    for field in message.fields() {
        let field = field?;
        match field.number {
            1 => function.name = Some(field.text()?),
            2 => function.inputs.push(feature(&field, left)?),
            3 => function.outputs.push(feature(&field, left)?),
            6 => function.states.push(feature(&field, left)?),
            _ => {}
        }
    }
    Ok(function)
}

fn entry(message: ProtoMessage<'_>) -> Result<(String, String), FormatError> {
    let (mut key, mut value) = (String::new(), String::new());
    for field in message.fields() {
        let field = field?;
        match field.number {
            1 => key = shown(&field)?,
            2 => value = shown(&field)?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// Reads the beginning of a text.
fn shown(field: &ProtoField<'_>) -> Result<String, FormatError> {
    let mut text = field.text()?;
    if text.len() > MAX_SHOWN_TEXT {
        let end = (0..=MAX_SHOWN_TEXT)
            .rev()
            .find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    Ok(text)
}
