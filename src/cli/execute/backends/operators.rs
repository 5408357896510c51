//! The output of `pkgtool backends --operators`: the operators of ExecuTorch programs that engines
//! lower with their own code.

use std::fmt::Write as _;

use serde_json::{Map, Value as Json, json};

use pkgtool_engine::ENGINES;

/// Renders the list as text or as one JSON document.
pub(super) fn list(as_json: bool) -> String {
    let engines = ENGINES
        .iter()
        .map(|engine| (engine.name(), engine.lowered_operators()));
    let engines: Vec<_> = engines.filter(|(_, names)| !names.is_empty()).collect();
    if as_json {
        let lowered = engines
            .iter()
            .map(|(name, names)| ((*name).to_owned(), json!(names)));
        let lowered: Map<String, Json> = lowered.collect();
        let document = json!({ "version": 1, "lowered": lowered });
        return format!("{document:#}\n");
    }
    let mut text = String::new();
    for (name, names) in engines {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} lowers {} of ExecuTorch programs", names.len());
        for name in names {
            let _ = writeln!(text, "  {name}");
        }
    }
    text
}
