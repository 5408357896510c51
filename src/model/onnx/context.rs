//! Graphs that were compiled before: the operator `EPContext` of ONNX Runtime and the file that it refers to.
//!
//! <https://onnxruntime.ai/docs/execution-providers/EP-Context-Design.html>: with `embed_mode` 1, which is the
//! default, `ep_cache_context` is the compiled graph itself, else the path of a file beside the model. Nodes with
//! `main_context` 0 use what another node loads.

use super::wire::Field;
use super::{Error, schema};

/// The operator, as it is counted.
pub(super) const OPERATOR: &str = "com.microsoft::EPContext";

/// The file that a node of this operator refers to; `None` where it refers to none.
pub(super) fn location(node: &Field<'_>) -> Result<Option<String>, Error> {
    let (mut embedded, mut is_main, mut location) = (1, 1, None);
    let mut message = node.message(schema::NODE)?;
    while let Some(field) = message.next()? {
        if field.name() != "attribute" {
            continue;
        }
        let attribute = Attribute::read(&field)?;
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

/// An attribute of a number or of a text that is no longer than a name.
#[derive(Default)]
struct Attribute {
    name: String,
    int: Option<i64>,
    text: Option<String>,
}

impl Attribute {
    fn read(attribute: &Field<'_>) -> Result<Self, Error> {
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
