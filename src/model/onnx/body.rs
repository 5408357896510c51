//! What a graph is made of: its nodes with their subgraphs, and its stored tensors.
//!
//! Counts and measures; keeps operator names and external files, nothing per node or tensor.

use std::collections::BTreeMap;

use super::external::Locations;
use super::interface::Sought;
use super::tensor::Tensor;
use super::wire::Field;
use super::{Error, context, schema, tensor, value};

/// Most graphs within each other.
const MAX_DEPTH: u32 = 32;
/// What an operator's entry costs beyond its name, roughly.
const OPERATOR_SIZE: u64 = 64;

/// What was found in all graphs and functions so far.
#[derive(Default)]
pub(super) struct Body {
    /// Nodes by operator: `Conv`, `com.microsoft::QLinearConv`.
    pub(super) operators: BTreeMap<String, u64>,
    /// Bytes of tensors inside the file: initializers and constants in attributes.
    pub(super) weight_bytes: u64,
    /// Elements of tensors, here or in other files, by the number of their type.
    pub(super) weight_types: BTreeMap<i64, u64>,
    /// Files that tensors keep their data in.
    pub(super) external: Locations,
}

impl Body {
    /// Walks a `GraphProto` and ticks off what is sought in it.
    pub(super) fn graph(
        &mut self,
        graph: &Field<'_>,
        depth: u32,
        sought: &mut Sought,
    ) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::TooDeep {
                place: graph.place().to_string(),
                offset: graph.offset(),
                limit: MAX_DEPTH,
            });
        }
        let mut message = graph.message(schema::GRAPH)?;
        while let Some(field) = message.next()? {
            match field.name() {
                "node" => self.node(&field, depth, sought)?,
                "initializer" | "sparse_initializer" => {
                    if let Some(name) = self.tensor(&field)?.name {
                        sought.initialized(&name);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Walks a `FunctionProto`: the name under which nodes call it. Its own nodes count once,
    /// however often it is called.
    pub(super) fn function(&mut self, function: &Field<'_>) -> Result<String, Error> {
        let (mut domain, mut name) = (String::new(), String::new());
        let mut message = function.message(schema::FUNCTION)?;
        while let Some(field) = message.next()? {
            match field.name() {
                "domain" => domain = field.kept_text()?,
                "name" => name = field.kept_text()?,
                "node" => self.node(&field, 1, &mut Sought::default())?,
                "attribute_proto" => self.attribute(&field, 1)?,
                _ => {}
            }
        }
        Ok(qualified(&domain, name))
    }

    fn node(&mut self, node: &Field<'_>, depth: u32, sought: &mut Sought) -> Result<(), Error> {
        let (mut domain, mut op_type) = (String::new(), String::new());
        let mut message = node.message(schema::NODE)?;
        while let Some(field) = message.next()? {
            match field.name() {
                "domain" => domain = field.text()?,
                "op_type" => op_type = field.text()?,
                "output" if sought.seeks_outputs() => {
                    if let Some(name) = field.name_bytes()? {
                        sought.made(&name);
                    }
                }
                "attribute" => self.attribute(&field, depth)?,
                _ => {}
            }
        }
        if op_type.is_empty() {
            return Err(Error::Missing {
                place: node.place().field("op_type").to_string(),
                offset: Some(node.offset()),
            });
        }
        let operator = qualified(&domain, op_type);
        if operator == context::OPERATOR
            && let Some(location) = context::location(node)?
        {
            self.external.add_context(node, location)?;
        }
        self.count(node, operator)
    }

    fn count(&mut self, node: &Field<'_>, operator: String) -> Result<(), Error> {
        if let Some(count) = self.operators.get_mut(&operator) {
            *count += 1;
        } else {
            node.keep(operator.len() as u64 + OPERATOR_SIZE)?;
            self.operators.insert(operator, 1);
        }
        Ok(())
    }

    /// Subgraphs and tensors; anything else in an attribute is skipped.
    fn attribute(&mut self, attribute: &Field<'_>, depth: u32) -> Result<(), Error> {
        let mut message = attribute.message(schema::ATTRIBUTE)?;
        while let Some(field) = message.next()? {
            match field.name() {
                "g" | "graphs" => self.graph(&field, depth + 1, &mut Sought::default())?,
                "t" | "tensors" | "sparse_tensor" | "sparse_tensors" => {
                    self.tensor(&field)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Elements of tensors by the name of their type.
    pub(super) fn weight_types(&self) -> BTreeMap<String, u64> {
        let types = self.weight_types.iter();
        types
            .map(|(number, count)| (value::element_type(*number).name().to_owned(), *count))
            .collect()
    }

    fn tensor(&mut self, field: &Field<'_>) -> Result<Tensor, Error> {
        let tensor = match field.name() {
            "sparse_initializer" | "sparse_tensor" | "sparse_tensors" => {
                tensor::read_sparse(field, &mut self.external)?
            }
            _ => tensor::read(field, &mut self.external)?,
        };
        self.weight_bytes = self.weight_bytes.saturating_add(tensor.bytes);
        // There are few known types, so this stays small.
        if value::element_bits(tensor.data_type).is_some() {
            let count = self.weight_types.entry(tensor.data_type).or_default();
            *count = count.saturating_add(tensor.elements);
        }
        Ok(tensor)
    }
}

/// The name of an operator, with its domain unless that is ONNX's own.
pub(super) fn qualified(domain: &str, name: String) -> String {
    match domain {
        "" | "ai.onnx" => name,
        _ => format!("{domain}::{name}"),
    }
}
