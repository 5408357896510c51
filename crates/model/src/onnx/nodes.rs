//! Iterates over the nodes of an ONNX model, with the details that rules about single nodes need.
//!
//! Memory does not grow with the number of nodes. Lists and texts in attributes are read up to a
//! limit. Tensors are read as
//! [`StoredTensor`]: shape and a few values.

use super::place::FieldPath;
use super::schema;
use super::stored::{self, StoredTensor};
use super::wire::{WireField, WireMessage, WireReader};
use crate::FormatError;
use pkgtool_base::source::Pages;

/// Maximum nesting depth of graphs.
const MAX_DEPTH: u32 = 32;
/// Maximum number of integers read from a list; longer lists are truncated.
const MAX_INTS: usize = 64;

/// A node of a graph or function.
#[derive(Debug, Default)]
pub struct OnnxNode {
    /// Its operator, prefixed with the domain unless that is ONNX's own.
    pub operator: String,
    /// Names of its inputs; empty for an omitted optional input.
    pub inputs: Vec<String>,
    /// Names of its outputs; empty for an omitted optional output.
    pub outputs: Vec<String>,
    /// Its attributes.
    pub attributes: Vec<Attribute>,
    /// True for a node of a subgraph.
    pub is_nested: bool,
}

/// An attribute of a node.
#[derive(Debug, Default)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its value, if it is an integer.
    pub int: Option<i64>,
    /// Its value, if it is a text.
    pub text: Option<String>,
    /// Its value, if it is a list of integers: at most the first 64.
    pub ints: Vec<i64>,
    /// Its value, if it is a tensor.
    pub tensor: Option<StoredTensor>,
}

impl OnnxNode {
    /// Returns whether the optional input at this position is present.
    pub fn has_input(&self, place: usize) -> bool {
        self.inputs.get(place).is_some_and(|name| !name.is_empty())
    }

    /// Returns whether the optional output at this position is present.
    pub fn has_output(&self, place: usize) -> bool {
        self.outputs.get(place).is_some_and(|name| !name.is_empty())
    }

    /// Returns the attribute of this name.
    pub fn attribute(&self, name: &str) -> Option<&Attribute> {
        self.attributes.iter().find(|one| one.name == name)
    }

    /// Returns the integer attribute of this name; 0 if it is absent.
    pub fn int(&self, name: &str) -> i64 {
        self.attribute(name).and_then(|one| one.int).unwrap_or(0)
    }

    /// Returns whether the text attribute of this name equals `text`.
    pub fn is(&self, name: &str, text: &str) -> bool {
        let value = self.attribute(name).and_then(|one| one.text.as_deref());
        value == Some(text)
    }
}

/// An item that [`each_item`] passes to its callback, in file order.
#[derive(Debug)]
pub enum ModelItem<'a> {
    /// A node, including those of subgraphs and functions.
    Node(&'a OnnxNode),
    /// An initializer of any graph, with its name.
    Stored(String, StoredTensor),
    /// The name of an output of any graph or function.
    Output(String),
    /// The name of an input of the main graph, or of a function.
    Input(String),
    /// The IR version of the file.
    Ir(i64),
    /// The imported version of ONNX's own operator set.
    Opset(i64),
}

/// Calls `visit` for every node of the model in `pages`, including those of subgraphs and
/// functions.
pub fn each_node(pages: &Pages<'_>, visit: &mut dyn FnMut(&OnnxNode)) -> Result<(), FormatError> {
    let mut only_nodes = |part: ModelItem<'_>| {
        if let ModelItem::Node(node) = part {
            visit(node);
        }
    };
    walk(pages, &mut Visit(&["node"], &mut only_nodes))
}

/// The fields that [`each_item`] visits.
const ALL_ITEM_FIELDS: &[&str] = &["node", "initializer", "input", "output", "opset_import"];

/// Calls `visit` for every [`ModelItem`] of the model in `pages`.
pub fn each_item(
    pages: &Pages<'_>,
    visit: &mut dyn FnMut(ModelItem<'_>),
) -> Result<(), FormatError> {
    walk(pages, &mut Visit(ALL_ITEM_FIELDS, visit))
}

/// The fields to visit, and the callback.
struct Visit<'a>(&'static [&'static str], &'a mut dyn FnMut(ModelItem<'_>));

fn walk(pages: &Pages<'_>, visit: &mut Visit<'_>) -> Result<(), FormatError> {
    let reader = WireReader::new(pages);
    let root = FieldPath::root("ModelProto");
    let mut message = WireMessage::whole_file(&reader, &root, schema::MODEL);
    while let Some(field) = message.next()? {
        match field.name() {
            "graph" => graph(&field, schema::GRAPH, 1, visit)?,
            "functions" => graph(&field, schema::FUNCTION, 1, visit)?,
            "ir_version" => (visit.1)(ModelItem::Ir(field.int()?)),
            "opset_import" if visit.0.contains(&"opset_import") => opset(&field, visit)?,
            _ => {}
        }
    }
    Ok(())
}

fn graph(
    graph: &WireField<'_>,
    definition: &'static [schema::FieldDef],
    depth: u32,
    visit: &mut Visit<'_>,
) -> Result<(), FormatError> {
    if depth > MAX_DEPTH {
        return Err(graph
            .position()
            .violates(format_args!("more than {MAX_DEPTH} nested graphs")));
    }
    let is_function = std::ptr::eq(definition, schema::FUNCTION);
    let mut message = graph.message(definition)?;
    while let Some(field) = message.next()? {
        if !visit.0.contains(&field.name()) {
            continue;
        }
        match field.name() {
            "node" => node(&field, depth, visit)?,
            "initializer" => {
                let (name, stored) = stored::read(&field)?;
                (visit.1)(ModelItem::Stored(name, stored));
            }
            "input" if depth > 1 => {}
            "input" if is_function => (visit.1)(ModelItem::Input(field.text()?)),
            "input" => (visit.1)(ModelItem::Input(value_name(&field)?)),
            _ if is_function => (visit.1)(ModelItem::Output(field.text()?)),
            _ => (visit.1)(ModelItem::Output(value_name(&field)?)),
        }
    }
    Ok(())
}

/// Visits the version in an `OperatorSetIdProto` of ONNX's own operators.
fn opset(field: &WireField<'_>, visit: &mut Visit<'_>) -> Result<(), FormatError> {
    let (domain, version) = super::function::import(field)?;
    if super::header::is_own(&domain) {
        (visit.1)(ModelItem::Opset(version));
    }
    Ok(())
}

/// Returns the name of a `ValueInfoProto`.
fn value_name(field: &WireField<'_>) -> Result<String, FormatError> {
    let mut name = String::new();
    let mut message = field.message(schema::VALUE_INFO)?;
    while let Some(field) = message.next()? {
        if field.name() == "name" {
            name = field.text()?;
        }
    }
    Ok(name)
}

fn node(field: &WireField<'_>, depth: u32, visit: &mut Visit<'_>) -> Result<(), FormatError> {
    let mut node = OnnxNode {
        is_nested: depth > 1,
        ..OnnxNode::default()
    };
    let (mut domain, mut name) = (String::new(), String::new());
    let mut message = field.message(schema::NODE)?;
    while let Some(field) = message.next()? {
        match field.name() {
            "domain" => domain = field.text()?,
            "op_type" => name = field.text()?,
            "input" => node.inputs.push(field.text()?),
            "output" => node.outputs.push(field.text()?),
            "attribute" => node.attributes.push(attribute(&field, depth, visit)?),
            _ => {}
        }
    }
    node.operator = super::body::qualified_name(&domain, name);
    (visit.1)(ModelItem::Node(&node));
    Ok(())
}

fn attribute(
    field: &WireField<'_>,
    depth: u32,
    visit: &mut Visit<'_>,
) -> Result<Attribute, FormatError> {
    let mut attribute = Attribute::default();
    let mut message = field.message(schema::ATTRIBUTE)?;
    while let Some(field) = message.next()? {
        match field.name() {
            "name" => attribute.name = field.text()?,
            "i" => attribute.int = Some(field.int()?),
            // Texts may hold arbitrary bytes; mode names are short and ASCII.
            "s" => {
                let bytes = field.name_bytes()?;
                attribute.text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
            }
            "ints" => field.each_int(|value| {
                if attribute.ints.len() < MAX_INTS {
                    attribute.ints.push(value);
                }
            })?,
            "t" => attribute.tensor = Some(stored::read(&field)?.1),
            "g" | "graphs" => graph(&field, schema::GRAPH, depth + 1, visit)?,
            _ => {}
        }
    }
    Ok(attribute)
}
