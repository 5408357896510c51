//! The output of `pkgtool backends --operators`: the operators that engines run by their own code.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;

use crate::cli::report::CommandReport;
use pkgtool_engine::ENGINES;

/// The formats whose operators are listed, with their field in JSON and their name.
const FORMATS: [(&str, &str, &str); 2] = [
    ("executorch", "lowered", "ExecuTorch programs"),
    ("onnx", "onnx", "ONNX models"),
];

/// The operators that an engine runs by its own code.
struct EngineOperators {
    engine: &'static str,
    /// The field in JSON.
    field: &'static str,
    /// The models that have them.
    of: &'static str,
    names: Vec<String>,
}

/// The operators that engines run by their own code.
pub(super) struct OperatorList(Vec<EngineOperators>);

impl OperatorList {
    /// Lists them.
    pub(super) fn list() -> Self {
        let lists = FORMATS.iter().flat_map(|(format, field, of)| {
            ENGINES.iter().map(|engine| EngineOperators {
                engine: engine.name(),
                field,
                of,
                names: engine.operators(format),
            })
        });
        Self(lists.filter(|list| !list.names.is_empty()).collect())
    }
}

impl CommandReport for OperatorList {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        for list in &self.0 {
            let (engine, count, of) = (list.engine, list.names.len(), list.of);
            writeln!(text, "{engine} runs {count} operators of {of}")?;
            for name in &list.names {
                writeln!(text, "  {name}")?;
            }
        }
        Ok(())
    }

    fn document(&self) -> impl Serialize {
        let mut document = json!({ "version": 1 });
        for list in &self.0 {
            document[list.field][list.engine] = json!(list.names);
        }
        document
    }
}
