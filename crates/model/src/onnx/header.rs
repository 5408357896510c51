//! Reads a `ModelProto`, the root message of an ONNX file, and describes it as a [`ModelInfo`].

use super::body::{self, BodyWalk};
use super::function::{self, FunctionHeader};
use super::load::{self, LoadChecks};
use super::place::FieldPath;
use super::wire::{WireField, WireMessage, WireReader};
use super::{interface, schema};
use crate::{FormatError, Method, ModelFormat, ModelInfo};
use pkgtool_base::source::Pages;

/// Method name for the single graph of an ONNX file.
const METHOD: &str = "forward";
/// Maximum length of a metadata property that is read as a whole, in bytes.
const MAX_PROPERTY_BYTES: u64 = 1 << 20;
/// Approximate memory of a metadata entry beyond its text, in bytes.
const ENTRY_SIZE: u64 = 64;

/// Fields of `ModelProto`; a later occurrence replaces an earlier one.
#[derive(Default)]
struct ModelHeader<'a> {
    ir_version: Option<i64>,
    producer_name: String,
    producer_version: String,
    domain: String,
    model_version: Option<i64>,
    doc_string_bytes: u64,
    graph: Option<WireField<'a>>,
    opsets: Vec<(String, i64)>,
    functions: Vec<FunctionHeader<'a>>,
    properties: Vec<(String, String)>,
}

/// Reads the whole file.
pub(super) fn read(pages: &Pages<'_>) -> Result<ModelInfo, FormatError> {
    let reader = WireReader::new(pages);
    let root = FieldPath::root("ModelProto");
    let mut header = ModelHeader::default();
    let mut message = WireMessage::whole_file(&reader, &root, schema::MODEL);
    while let Some(field) = message.next()? {
        header.field(field)?;
    }
    let graph = header.graph.ok_or_else(|| missing(&root, "graph"))?;
    header.describe(&root, &graph)
}

fn missing(root: &FieldPath<'_>, field: &'static str) -> FormatError {
    FormatError::new(format_args!("{} is missing", root.field(field)))
}

impl<'a> ModelHeader<'a> {
    fn field(&mut self, field: WireField<'a>) -> Result<(), FormatError> {
        match field.name() {
            "ir_version" => {
                let version = field.int()?;
                load::check_ir_version(version).map_err(|fault| load::rejected(&field, fault))?;
                self.ir_version = Some(version);
            }
            "producer_name" => self.producer_name = field.excerpt()?,
            "producer_version" => self.producer_version = field.excerpt()?,
            "domain" => self.domain = field.excerpt()?,
            "model_version" => self.model_version = Some(field.int()?),
            "doc_string" => self.doc_string_bytes = field.size(),
            "graph" => self.graph = Some(field),
            "opset_import" => {
                let (domain, version) = function::import(&field)?;
                load::check_import(&domain, version)
                    .map_err(|fault| load::rejected(&field, fault))?;
                self.opsets.push((domain, version));
            }
            "metadata_props" => self.properties.push(property(&field)?),
            "functions" => self.functions.push(FunctionHeader::read(field)?),
            _ => {}
        }
        Ok(())
    }

    fn describe(
        mut self,
        root: &FieldPath<'_>,
        graph: &WireField<'_>,
    ) -> Result<ModelInfo, FormatError> {
        let interface = interface::read(graph)?;
        let ir_version = self.ir_version.ok_or_else(|| missing(root, "ir_version"))?;
        if self.opsets.is_empty() {
            return Err(missing(root, "opset_import"));
        }
        let mut sought = interface.unresolved_names();
        let signatures = self
            .functions
            .iter()
            .map(FunctionHeader::signature)
            .collect();
        let load = LoadChecks::new(ir_version, &self.opsets, signatures)
            .map_err(|(index, fault)| load::rejected(&self.functions[index].field, fault))?;
        let mut body = BodyWalk::new(load);
        body.graph(graph, &mut sought)?;
        body.functions(&self.functions)?;
        let metadata = self.metadata(&interface.name);
        let weight_types = body.weight_types();
        let (inputs, outputs) = interface.finish(graph.place(), &sought)?;
        Ok(ModelInfo {
            format: super::Onnx.name(),
            format_by_name: None,
            format_version: self.format_version(),
            producer: self.producer(),
            names_methods: false,
            methods: vec![Method {
                name: METHOD.to_owned(),
                inputs,
                outputs,
                operators: body.operators,
                ..Method::default()
            }],
            // Tensors are scattered between the fields of the header.
            segments: Vec::new(),
            weight_bytes: body.weight_bytes,
            named: Vec::new(),
            weight_types,
            external: body.external.into_files(),
            metadata,
        })
    }

    /// Formats as `IR 10, opset 18`, or the half that the file provides.
    fn format_version(&self) -> String {
        let own = self.opsets.iter().rev().find(|(domain, _)| is_own(domain));
        match (self.ir_version, own) {
            (Some(ir), Some((_, opset))) => format!("IR {ir}, opset {opset}"),
            (Some(ir), None) => format!("IR {ir}"),
            (None, Some((_, opset))) => format!("opset {opset}"),
            (None, None) => "unversioned".to_owned(),
        }
    }

    fn producer(&self) -> Option<String> {
        let producer = format!("{} {}", self.producer_name, self.producer_version);
        Some(producer.trim().to_owned()).filter(|producer| !producer.is_empty())
    }

    fn metadata(&mut self, graph_name: &str) -> Vec<(String, String)> {
        let mut list = Vec::new();
        if !graph_name.is_empty() {
            list.push(("graph".to_owned(), graph_name.to_owned()));
        }
        if !self.domain.is_empty() {
            list.push(("domain".to_owned(), self.domain.clone()));
        }
        if let Some(version) = self.model_version {
            list.push(("model_version".to_owned(), version.to_string()));
        }
        if self.doc_string_bytes > 0 {
            let size = format!("{} bytes", self.doc_string_bytes);
            list.push(("doc_string".to_owned(), size));
        }
        for (domain, version) in &self.opsets {
            let domain = if is_own(domain) { "ai.onnx" } else { domain };
            list.push((format!("opset {domain}"), version.to_string()));
        }
        for function in self.functions.drain(..) {
            let name = body::qualified_name(&function.domain, function.name);
            list.push(("function".to_owned(), name));
        }
        for (key, value) in self.properties.drain(..) {
            list.push((format!("property {key}"), value));
        }
        list
    }
}

/// Returns the whole value of a metadata property.
pub(super) fn whole_property(pages: &Pages<'_>, key: &str) -> Result<Option<String>, FormatError> {
    let reader = WireReader::new(pages);
    let root = FieldPath::root("ModelProto");
    let mut message = WireMessage::whole_file(&reader, &root, schema::MODEL);
    while let Some(field) = message.next()? {
        if field.name() != "metadata_props" {
            continue;
        }
        let (mut is_meant, mut value) = (false, None);
        let mut entry = field.message(schema::ENTRY)?;
        while let Some(field) = entry.next()? {
            match field.name() {
                "key" => is_meant = field.name_bytes()?.as_deref() == Some(key.as_bytes()),
                "value" => value = Some(field),
                _ => {}
            }
        }
        if let Some(value) = value.filter(|_| is_meant) {
            return value.long_text(MAX_PROPERTY_BYTES).map(Some);
        }
    }
    Ok(None)
}

/// Reads key and value of a `StringStringEntryProto`; long values, such as vocabularies, are
/// truncated.
fn property(field: &WireField<'_>) -> Result<(String, String), FormatError> {
    field.keep(ENTRY_SIZE)?;
    let mut property = (String::new(), String::new());
    let mut message = field.message(schema::ENTRY)?;
    while let Some(field) = message.next()? {
        match field.name() {
            "key" => property.0 = field.excerpt()?,
            "value" => property.1 = field.excerpt()?,
            _ => {}
        }
    }
    Ok(property)
}

/// Returns whether a domain is ONNX's own, which has two spellings.
pub(super) fn is_own(domain: &str) -> bool {
    matches!(domain, "" | "ai.onnx")
}
