//! Walks the graphs and functions of an ONNX model: nodes with their subgraphs, and stored tensors.
//!
//! The walk counts operators and measures weights; it keeps operator names and external files, but
//! nothing per node or tensor. It passes every node and value to the checks in `load`.

use std::collections::BTreeMap;

use super::external::ExternalFiles;
use super::function::FunctionHeader;
use super::interface::UnresolvedNames;
use super::load::{self, AttributeHeader, GraphRole, LoadChecks, NodeHeader, Use, WalkedGraph};
use super::tensor::TensorHeader;
use super::wire::WireField;
use super::{context, schema, tensor, value};
use crate::FormatError;

/// Maximum nesting depth of graphs.
const MAX_DEPTH: u32 = 32;
/// Approximate memory of an operator's entry beyond its name, in bytes.
const OPERATOR_COST: u64 = 64;

/// Statistics of all graphs and functions walked so far.
pub(super) struct BodyWalk {
    /// Number of nodes by operator: `Conv`, `com.microsoft::QLinearConv`.
    pub(super) operators: BTreeMap<String, u64>,
    /// Size in bytes of tensors inside the file: initializers and constants in attributes.
    pub(super) weight_bytes: u64,
    /// Number of elements by type number, for tensors in this and in other files.
    pub(super) weight_types: BTreeMap<i64, u64>,
    /// External files that hold tensor data.
    pub(super) external: ExternalFiles,
    load: LoadChecks,
}

impl BodyWalk {
    /// Starts a walk of a model that `load` checks.
    pub(super) fn new(load: LoadChecks) -> Self {
        Self {
            operators: BTreeMap::new(),
            weight_bytes: 0,
            weight_types: BTreeMap::new(),
            external: ExternalFiles::default(),
            load,
        }
    }

    /// Walks the main graph and records in `sought` the names that it defines.
    pub(super) fn graph(
        &mut self,
        graph: &WireField<'_>,
        sought: &mut UnresolvedNames,
    ) -> Result<(), FormatError> {
        self.walk(graph, 1, GraphRole::Main, sought).map(|_| ())
    }

    /// Walks a `GraphProto`; returns its interface to the enclosing graphs.
    fn walk(
        &mut self,
        graph: &WireField<'_>,
        depth: u32,
        kind: GraphRole,
        sought: &mut UnresolvedNames,
    ) -> Result<WalkedGraph, FormatError> {
        if depth > MAX_DEPTH {
            return Err(graph
                .position()
                .violates(format_args!("more than {MAX_DEPTH} nested graphs")));
        }
        self.load.enter(kind);
        // Nodes precede the initializers that they use, so values are read first.
        let mut message = graph.message(schema::GRAPH)?;
        while let Some(field) = message.next()? {
            match field.name() {
                "initializer" | "sparse_initializer" => self.initializer(&field, sought)?,
                "input" => self.load.input(&field)?,
                "output" => self.load.output(&field)?,
                "value_info" => self.load.value_info(&field)?,
                _ => {}
            }
        }
        let mut message = graph.message(schema::GRAPH)?;
        while let Some(field) = message.next()? {
            if field.name() == "node" {
                self.node(&field, depth, sought)?;
            }
        }
        self.load.leave(graph)
    }

    fn initializer(
        &mut self,
        field: &WireField<'_>,
        sought: &mut UnresolvedNames,
    ) -> Result<(), FormatError> {
        let tensor = self.tensor(field)?;
        let Some(name) = tensor.name else {
            return Ok(());
        };
        sought.mark_initialized(&name);
        self.load.initializer(field, &name, tensor.data_type)
    }

    /// Walks the functions of the model, after its graph. Functions without a caller are not
    /// checked.
    pub(super) fn functions(
        &mut self,
        functions: &[FunctionHeader<'_>],
    ) -> Result<(), FormatError> {
        let mut walked = vec![false; functions.len()];
        let mut count = 0;
        while let Some(index) = self.load.called(count) {
            count += 1;
            walked[index] = true;
            self.load.enter_function(index, &functions[index].imports);
            self.function(&functions[index].field)?;
        }
        if let Some(index) = self.load.recursion() {
            return Err(load::rejected(
                &functions[index].field,
                "the function calls itself, directly or through others".to_owned(),
            ));
        }
        self.load.stop();
        let others = functions.iter().zip(walked).filter(|(_, walked)| !walked);
        for (function, _) in others {
            self.function(&function.field)?;
        }
        Ok(())
    }

    /// Walks a `FunctionProto`. Its nodes count once, regardless of the number of calls.
    fn function(&mut self, function: &WireField<'_>) -> Result<(), FormatError> {
        self.load.enter(GraphRole::Function);
        let mut message = function.message(schema::FUNCTION)?;
        while let Some(field) = message.next()? {
            match field.name() {
                "input" => self.load.function_input(&field)?,
                "output" => self.load.function_output(&field)?,
                _ => {}
            }
        }
        let mut message = function.message(schema::FUNCTION)?;
        while let Some(field) = message.next()? {
            match field.name() {
                "node" => self.node(&field, 1, &mut UnresolvedNames::default())?,
                "attribute_proto" => {
                    self.attribute(&field, 1, &mut Vec::new())?;
                }
                _ => {}
            }
        }
        self.load.leave(function).map(|_| ())
    }

    fn node(
        &mut self,
        field: &WireField<'_>,
        depth: u32,
        sought: &mut UnresolvedNames,
    ) -> Result<(), FormatError> {
        let mut node = NodeHeader::default();
        let mut inner = Vec::new();
        let mut message = field.message(schema::NODE)?;
        while let Some(field) = message.next()? {
            match field.name() {
                "domain" => node.domain = field.text()?,
                "op_type" => node.operator = field.text()?,
                "overload" => node.overload = field.text()?,
                "name" if node.takes_room(&field) => node.name = field.identifier()?,
                "input" if node.takes_room(&field) => node.inputs.push(field.identifier()?),
                "output" if node.takes_room(&field) => {
                    let name = field.identifier()?;
                    sought.mark_defined(&name);
                    node.outputs.push(name);
                }
                "attribute" => {
                    let attribute = self.attribute(&field, depth, &mut inner)?;
                    if node.takes_room(&field) {
                        node.attributes.push(attribute);
                    } else {
                        self.load.stop();
                    }
                }
                "name" | "input" | "output" => self.load.stop(),
                _ => {}
            }
        }
        if node.operator.is_empty() {
            return Err(FormatError::at(
                field.offset(),
                format_args!("{} is missing", field.place().field("op_type")),
            ));
        }
        self.load.node(field, &node, inner)?;
        let operator = qualified_name(&node.domain, node.operator);
        if operator == context::OPERATOR
            && let Some(location) = context::location(field)?
        {
            self.external.add_context(field, location)?;
        }
        self.count(field, operator)
    }

    fn count(&mut self, node: &WireField<'_>, operator: String) -> Result<(), FormatError> {
        if let Some(count) = self.operators.get_mut(&operator) {
            *count += 1;
        } else {
            node.keep(operator.len() as u64 + OPERATOR_COST)?;
            self.operators.insert(operator, 1);
        }
        Ok(())
    }

    /// Walks an attribute; adds to `inner` the outer values that its graphs use.
    fn attribute(
        &mut self,
        attribute: &WireField<'_>,
        depth: u32,
        inner: &mut Vec<Use>,
    ) -> Result<AttributeHeader, FormatError> {
        let mut found = AttributeHeader::default();
        let mut message = attribute.message(schema::ATTRIBUTE)?;
        while let Some(field) = message.next()? {
            let mut data_type = 0;
            match field.name() {
                "g" | "graphs" => {
                    let sought = &mut UnresolvedNames::default();
                    let left = self.walk(&field, depth + 1, GraphRole::Subgraph, sought)?;
                    inner.extend(left.open);
                    found.graph = left.interface;
                }
                "t" | "tensors" | "sparse_tensor" | "sparse_tensors" => {
                    data_type = self.tensor(&field)?.data_type;
                }
                _ => {}
            }
            found.field(&field, data_type)?;
        }
        Ok(found)
    }

    /// Returns the number of elements by type name.
    pub(super) fn weight_types(&self) -> BTreeMap<String, u64> {
        let types = self.weight_types.iter();
        types
            .map(|(number, count)| (value::element_type(*number).name().to_owned(), *count))
            .collect()
    }

    fn tensor(&mut self, field: &WireField<'_>) -> Result<TensorHeader, FormatError> {
        let tensor = match field.name() {
            "sparse_initializer" | "sparse_tensor" | "sparse_tensors" => {
                tensor::read_sparse(field, &mut self.external)?
            }
            _ => tensor::read(field, &mut self.external)?,
        };
        self.weight_bytes = self.weight_bytes.saturating_add(tensor.bytes);
        // The number of known types is small, so this map stays small.
        if value::element_bits(tensor.data_type).is_some() {
            let count = self.weight_types.entry(tensor.data_type).or_default();
            *count = count.saturating_add(tensor.elements);
        }
        Ok(tensor)
    }
}

/// Returns the name of an operator, prefixed with its domain unless that is ONNX's own.
pub(super) fn qualified_name(domain: &str, name: String) -> String {
    match domain {
        "" | "ai.onnx" => name,
        _ => format!("{domain}::{name}"),
    }
}
