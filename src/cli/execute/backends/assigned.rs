//! The output of `pkgtool backends --operators FILE`: which engine and provider runs each operator of an ONNX model.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::columns;
use crate::cli::exit::Failure;
use crate::cli::output::times;
use crate::cli::report::CommandReport;
use pkgtool_base::package::Backend;
use pkgtool_engine::runtime::target::{self, Candidate};
use pkgtool_engine::runtime::worker::Launcher;
use pkgtool_engine::tensor::Signature;
use pkgtool_engine::{
    self as engine, AssignedOperators, Engine, LoadOptions, LoadRequest, Provider, Session as _,
};
use pkgtool_model::{self as model, ModelInfo};

/// Providers that arrange the graph for themselves. ONNX Runtime lists only some of the operators that they take, but
/// all others.
const LISTED_IN_PART: [Provider; 2] = [Provider::WebGpu, Provider::Xnnpack];

/// A model's operators, and what each engine and provider does with them.
pub(super) struct ModelOperators {
    path: String,
    operators: BTreeMap<String, u64>,
    engines: Vec<EngineAnswer>,
}

struct EngineAnswer {
    candidate: Candidate,
    answer: Result<Vec<AssignedOperators>, String>,
}

impl ModelOperators {
    /// Loads a model with each engine and provider of this machine. Nothing of it runs.
    pub(super) fn of(
        path: &Path,
        library: Option<&Path>,
        launcher: &Launcher,
    ) -> Result<Self, Failure> {
        let shown = path.display().to_string();
        let failed = |reason: String| Failure::Other(format!("{shown}: {reason}"));
        let (info, _) = model::open(path).map_err(|error| failed(error.to_string()))?;
        if info.format != "onnx" {
            return Err(failed(format!(
                "expected an ONNX model, got the format {}: `pkgtool inspect` shows which delegates and engines run the operators of a program",
                info.format
            )));
        }
        let signature = Signature::of(&info.methods[0], None);
        let signature = signature.map_err(|error| failed(error.to_string()))?;
        let request = |provider| LoadRequest {
            model: path.to_owned(),
            signature: signature.clone(),
            options: LoadOptions {
                provider,
                observe: true,
                library: library.map(Path::to_owned),
                ..LoadOptions::default()
            },
        };
        let engines = candidates().into_iter().map(|candidate| EngineAnswer {
            candidate,
            answer: match engine::engine(candidate.engine) {
                Some(engine) if engine.needs_no_library() => own_operators(engine, path, &info),
                _ => assigned(candidate, &request(candidate.provider), launcher),
            },
        });
        Ok(Self {
            path: shown,
            engines: engines.collect(),
            operators: info.methods[0].operators.clone(),
        })
    }
}

/// Returns the engines and providers for ONNX models of any backend, each once.
fn candidates() -> Vec<Candidate> {
    let mut found: Vec<Candidate> = Vec::new();
    for backend in [None].into_iter().chain(Backend::ALL.map(Some)) {
        for candidate in target::candidates("onnx", backend) {
            let is_known = |other: &Candidate| {
                (other.engine, other.provider) == (candidate.engine, candidate.provider)
            };
            if !found.iter().any(is_known) {
                found.push(candidate);
            }
        }
    }
    found
}

/// Returns the operators of a model that an engine runs by its own code: all, or the reason against it.
fn own_operators(
    engine: &dyn Engine,
    path: &Path,
    info: &ModelInfo,
) -> Result<Vec<AssignedOperators>, String> {
    match engine.graph_gaps(path, info.format) {
        Some(gaps) if !gaps.reason.is_empty() => {
            let names: Vec<String> = gaps.names.iter().map(|name| format!("`{name}`")).collect();
            Err(format!("{}: {}", names.join(", "), gaps.reason))
        }
        _ => Ok(vec![AssignedOperators {
            provider: engine.name().to_owned(),
            operators: info.methods[0].operators.clone(),
        }]),
    }
}

fn assigned(
    candidate: Candidate,
    request: &LoadRequest,
    launcher: &Launcher,
) -> Result<Vec<AssignedOperators>, String> {
    let mut worker = launcher
        .load(candidate.engine, request)
        .map_err(|error| error.to_string())?;
    Ok(worker.assigned())
}

/// Returns operators with their number of nodes.
fn counted(operators: &BTreeMap<String, u64>) -> String {
    operators.iter().map(times).collect::<Vec<_>>().join(", ")
}

impl EngineAnswer {
    /// Returns the lines for people. Operators off the provider come last.
    fn lines(&self) -> Vec<String> {
        let provider = self.candidate.provider;
        let parts = match &self.answer {
            Ok(parts) => parts,
            Err(reason) => return vec![format!("no: {reason}")],
        };
        let is_off = |part: &AssignedOperators| {
            provider != Provider::Cpu && !provider.is_named(&part.provider)
        };
        let (off, on): (Vec<_>, Vec<_>) = parts.iter().partition(|part| is_off(part));
        let on = on.into_iter().map(|part| counted(&part.operators));
        let off = off.into_iter().map(|part| {
            let (name, operators) = (&part.provider, counted(&part.operators));
            format!("falls back to {name}, as {provider} does not take them: {operators}")
        });
        let mut lines: Vec<String> = on.collect();
        if LISTED_IN_PART.contains(&provider) {
            lines = vec!["takes all operators that do not fall back".to_owned()];
        }
        lines.extend(off);
        lines
    }
}

impl CommandReport for ModelOperators {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let mut lines = String::new();
        writeln!(lines, "operators of {}", self.path)?;
        writeln!(lines, "  file           {}", counted(&self.operators))?;
        for answer in &self.engines {
            let candidate = answer.candidate.to_string();
            for (at, line) in answer.lines().iter().enumerate() {
                let name = if at == 0 { &*candidate } else { "" };
                writeln!(lines, "  {name:<13}  {line}")?;
            }
        }
        text.push_str(&columns::wrap_lines(&lines));
        Ok(())
    }

    fn document(&self) -> impl Serialize {
        let engines = self.engines.iter().map(|answer| {
            let Candidate {
                engine, provider, ..
            } = answer.candidate;
            let mut document = json!({ "engine": engine, "provider": provider.name() });
            match &answer.answer {
                Ok(parts) => {
                    document["assigned"] = json!(parts);
                    document["complete"] = json!(!LISTED_IN_PART.contains(&provider));
                }
                Err(reason) => document["error"] = json!(reason),
            }
            document
        });
        json!({
            "version": 1,
            "model": self.path,
            "operators": self.operators,
            "engines": engines.collect::<Vec<Json>>(),
        })
    }
}
