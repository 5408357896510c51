//! Precompiled graphs in an ONNX model: ONNX Runtime's operator `EPContext` and its external file.
//!
//! Specification: <https://onnxruntime.ai/docs/execution-providers/EP-Context-Design.html>. With
//! `embed_mode` 1, the default, `ep_cache_context` holds the compiled graph; otherwise it is the
//! path of a file beside the model. Nodes with `main_context` 0 use the graph that another node
//! loads.

use super::schema;
use super::wire::WireField;
use crate::FormatError;

/// Qualified name of the operator, as in the operator counts.
pub(super) const OPERATOR: &str = "com.microsoft::EPContext";

/// Returns the file that a node of this operator references; `None` if its graph is embedded or
/// loaded elsewhere.
pub(super) fn location(node: &WireField<'_>) -> Result<Option<String>, FormatError> {
    let (mut embedded, mut is_main, mut location) = (1, 1, None);
    let mut message = node.message(schema::NODE)?;
    while let Some(field) = message.next()? {
        if field.name() != "attribute" {
            continue;
        }
        let attribute = ContextAttribute::read(&field)?;
        match (attribute.name.as_str(), attribute.int) {
            ("embed_mode", Some(int)) => embedded = int,
            ("main_context", Some(int)) => is_main = int,
            ("ep_cache_context", _) => location = attribute.text,
            _ => {}
        }
    }
    let location: Option<String> = location.filter(|location: &String| !location.is_empty());
    Ok(location.filter(|_| embedded == 0 && is_main != 0))
}

/// An attribute that holds a number or a text up to the length of a name.
#[derive(Default)]
struct ContextAttribute {
    name: String,
    int: Option<i64>,
    text: Option<String>,
}

impl ContextAttribute {
    fn read(attribute: &WireField<'_>) -> Result<Self, FormatError> {
        let mut found = Self::default();
        let mut message = attribute.message(schema::ATTRIBUTE)?;
        while let Some(field) = message.next()? {
            match field.name() {
                "name" => found.name = field.text()?,
                "i" => found.int = Some(field.int()?),
                "s" => {
                    let bytes = field.name_bytes()?;
                    found.text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
                }
                _ => {}
            }
        }
        Ok(found)
    }
}
