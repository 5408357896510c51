//! The output of `pkgtool backends --operators`: the operators of ExecuTorch programs that engines
//! lower with their own code.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use crate::cli::report::CommandReport;
use pkgtool_engine::ENGINES;

/// The engines that lower operators themselves, with the names of the operators.
pub(super) struct LoweredOperators(Vec<(&'static str, Vec<&'static str>)>);

impl LoweredOperators {
    /// Lists them.
    pub(super) fn list() -> Self {
        let engines = ENGINES
            .iter()
            .map(|engine| (engine.name(), engine.lowered_operators()));
        Self(engines.filter(|(_, names)| !names.is_empty()).collect())
    }
}

impl CommandReport for LoweredOperators {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        for (name, names) in &self.0 {
            writeln!(text, "{name} lowers {} of ExecuTorch programs", names.len())?;
            for name in names {
                writeln!(text, "  {name}")?;
            }
        }
        Ok(())
    }

    fn document(&self) -> impl Serialize {
        let lowered = self.0.iter();
        let lowered = lowered.map(|(name, names)| ((*name).to_owned(), json!(names)));
        let lowered: Map<String, Json> = lowered.collect();
        json!({ "version": 1, "lowered": lowered })
    }
}
