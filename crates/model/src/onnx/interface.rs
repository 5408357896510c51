//! The interface of the main graph: its name, inputs and outputs.
//!
//! The interface is read before the body. The body then only marks the names in [`UnresolvedNames`] that it
//! defines.

use std::collections::{HashMap, HashSet};

use super::place::FieldPath;
use super::wire::WireField;
use super::{schema, value};
use crate::{FieldPosition, FormatError, ModelValue};

/// Maximum length of a name in an error, in characters.
const MAX_SHOWN_CHARS: usize = 80;

/// Name, inputs and outputs of the graph.
#[derive(Default)]
pub(super) struct Interface {
    pub(super) name: String,
    inputs: Vec<ModelValue>,
    outputs: Vec<InterfaceOutput>,
}

struct InterfaceOutput {
    value: ModelValue,
    offset: u64,
}

/// Names of inputs and outputs that the body of the graph may define.
#[derive(Default)]
pub(super) struct UnresolvedNames {
    /// Each input, with a flag that is true if an initializer supplies its value.
    inputs: HashMap<Vec<u8>, bool>,
    /// Outputs that are still undefined.
    outputs: HashSet<Vec<u8>>,
}

/// Reads the interface of a `GraphProto`.
pub(super) fn read(graph: &WireField<'_>) -> Result<Interface, FormatError> {
    let mut interface = Interface::default();
    let mut message = graph.message(schema::GRAPH)?;
    while let Some(field) = message.next()? {
        match field.name() {
            "name" => interface.name = field.excerpt()?,
            "input" => interface.inputs.push(value::read(&field)?),
            "output" => interface.outputs.push(InterfaceOutput {
                value: value::read(&field)?,
                offset: field.offset(),
            }),
            _ => {}
        }
    }
    Ok(interface)
}

impl Interface {
    /// Returns the names that the body resolves: inputs with initializers, and outputs.
    pub(super) fn unresolved_names(&self) -> UnresolvedNames {
        let inputs: HashMap<_, _> = self
            .inputs
            .iter()
            .map(|input| (name_of(input), false))
            .filter(|(name, _)| !name.is_empty())
            .collect();
        let outputs = self.outputs.iter().map(|output| name_of(&output.value));
        UnresolvedNames {
            outputs: outputs.filter(|name| !inputs.contains_key(name)).collect(),
            inputs,
        }
    }

    /// Returns the inputs that a caller must pass, and the outputs. Fails if an output is still
    /// undefined.
    pub(super) fn finish(
        self,
        graph: &FieldPath<'_>,
        sought: &UnresolvedNames,
    ) -> Result<(Vec<ModelValue>, Vec<ModelValue>), FormatError> {
        for (index, InterfaceOutput { value, offset }) in self.outputs.iter().enumerate() {
            let name = name_of(value);
            if sought.outputs.contains(&name) {
                return Err(
                    FieldPosition::new(format_args!("{graph}.output[{index}]"), *offset).violates(
                        format_args!(
                            "nothing in the graph defines the output {:?}",
                            name_shown(value)
                        ),
                    ),
                );
            }
        }
        let mut inputs = self.inputs;
        inputs.retain(|input| sought.inputs.get(&name_of(input)) != Some(&true));
        let outputs = self.outputs.into_iter().map(|output| output.value);
        Ok((inputs, outputs.collect()))
    }
}

impl UnresolvedNames {
    /// Records that a node defines this value. An empty name marks an omitted output.
    pub(super) fn mark_defined(&mut self, name: &[u8]) {
        if !name.is_empty() {
            self.outputs.remove(name);
        }
    }

    /// Records that an initializer defines this value.
    pub(super) fn mark_initialized(&mut self, name: &[u8]) {
        self.mark_defined(name);
        if let Some(initialized) = self.inputs.get_mut(name) {
            *initialized = true;
        }
    }
}

fn name_of(value: &ModelValue) -> Vec<u8> {
    value.name.clone().unwrap_or_default().into_bytes()
}

fn name_shown(value: &ModelValue) -> String {
    let name = value.name.as_deref().unwrap_or_default();
    name.chars().take(MAX_SHOWN_CHARS).collect()
}
