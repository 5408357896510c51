//! The tract engine: a pure Rust engine that is part of every build. It runs ONNX models, and
//! ExecuTorch programs and Core ML's ML Programs, through their front ends
//! (`frontends`), as graphs of one vocabulary (`graph`).
//!
//! Invariant: neither types nor panics of the library leave this folder. Models that tract is known
//! to compute wrongly are rejected (`known_wrong`). Only another process can stop a model that
//! hangs or exhausts memory.

mod agreement;
mod plan;
mod program;
mod session;

use std::collections::BTreeSet;
use std::path::Path;

use program::ProgramSession;
use session::TractSession;

use super::{
    ByteSums, Engine, EngineError, Gaps, LoadRequest, Offer, PortableReading, Provider, Session,
};
use super::{feedback, processor};
use crate::frontends::onnx::source::ModelSource;
use crate::frontends::{onnx, portable};
use crate::graph::guard::LibraryFailure;
use crate::graph::{NAME, failed, unsupported};
use pkgtool_base::package::Backend;
use pkgtool_model::{Method, ModelInfo, inspect_at};

/// The engine.
#[derive(Debug)]
pub struct Tract;

impl Engine for Tract {
    fn name(&self) -> &'static str {
        NAME
    }

    fn title(&self) -> [&'static str; 2] {
        [
            "tract",
            "ONNX models, ExecuTorch programs and Core ML's ML Programs",
        ]
    }

    fn needs_no_library(&self) -> bool {
        true
    }

    fn offers(&self, format: &str, backend: Option<Backend>) -> Vec<Offer> {
        match format {
            "onnx" | "executorch" | "coreml" => vec![Offer::portable(backend)],
            _ => Vec::new(),
        }
    }

    fn operators(&self, format: &str) -> Vec<String> {
        match format {
            "executorch" => {
                let names = portable::supported_names().into_iter();
                names.map(str::to_owned).collect()
            }
            "onnx" => onnx::operator_names(),
            _ => Vec::new(),
        }
    }

    fn graph_gaps(&self, model: &Path, format: &str) -> Option<Gaps> {
        let (names, reason) = match format {
            "onnx" => onnx::source::gaps(model)?,
            _ => return None,
        };
        Some(Gaps { names, reason })
    }

    fn gaps(&self, format: &str, method: &Method) -> Option<Gaps> {
        if format == "coreml" {
            let operators = method.operators.keys().map(String::as_str);
            let (names, reason) = portable::missing_of_core_ml(operators)?;
            return Some(Gaps { names, reason });
        }
        if format != "executorch" {
            return None;
        }
        let names = portable::missing(
            method.operators.keys().map(String::as_str),
            method.delegates.iter().map(|delegate| delegate.id.as_str()),
        );
        let reason = portable::unsupported_reason(&names);
        (!names.is_empty()).then_some(Gaps { names, reason })
    }

    fn payload_gaps(&self, model: &Path, format: &str, method: &Method) -> Option<Gaps> {
        // A file is read again only if some of its delegates may be unsupported.
        let mut delegates = method.delegates.iter();
        if format != "executorch" || !delegates.any(|it| portable::may_be_unsupported(&it.id)) {
            return None;
        }
        let (names, reason) = portable::unsupported_in_payloads(model, &method.name)?;
        Some(Gaps { names, reason })
    }

    fn portable_reading(&self, format: &str, method: &Method) -> Option<PortableReading> {
        if format == "coreml" {
            let of = Backend::CoreMl;
            return Some(PortableReading { of });
        }
        let delegates = method.delegates.iter().filter(|_| format == "executorch");
        let mut read = delegates.filter_map(|delegate| portable::inexact_backend(&delegate.id));
        read.next().map(|of| PortableReading { of })
    }

    /// Reads the model and plans it if all its shapes are fixed.
    fn load(&self, request: &LoadRequest) -> Result<Box<dyn Session>, EngineError> {
        let provider = request.options.provider;
        if provider != Provider::Cpu {
            return Err(EngineError::Unavailable {
                what: format!("provider {provider}"),
                reason: "tract computes on the CPU only".to_owned(),
                help: "choose another engine or the provider cpu".to_owned(),
            });
        }
        processor::choose(request.options.cpu_features.as_deref())?;
        let info = header(&request.model)?;
        if info.format == "executorch" {
            let session = ProgramSession::new(request, !info.external.is_empty())?;
            return feedback::with_feedback(NAME, Box::new(session), request);
        }
        if info.format == "coreml" {
            let session = ProgramSession::of_core_ml(request, &info)?;
            return feedback::with_feedback(NAME, Box::new(session), request);
        }
        if info.format != "onnx" {
            let reason = format!("unsupported model format {}", info.format);
            return Err(unsupported(BTreeSet::new(), &reason));
        }
        let external = info.external.iter().filter_map(|data| data.needs_bytes);
        let external = external.fold(0_u64, u64::saturating_add);
        let source = ModelSource::open(&request.model, external)?;
        let mut session = TractSession::new(source, request.signature.clone(), &request.options)?;
        session.byte_sums = byte_sums(&info);
        feedback::with_feedback(NAME, Box::new(session), request)
    }
}

/// Returns how products of bytes are added up, if the model has any: as 32-bit integers.
fn byte_sums(info: &ModelInfo) -> Option<ByteSums> {
    let operators = info
        .methods
        .iter()
        .flat_map(|method| method.operators.keys());
    ByteSums::are_in(&operators.map(String::as_str)).then_some(ByteSums::Exact)
}

fn header(path: &Path) -> Result<ModelInfo, EngineError> {
    let fail = |reason: String| failed(&LibraryFailure::new(reason));
    inspect_at(path)
        .map_err(|error| fail(error.to_string()))?
        .ok_or_else(|| fail("unknown file format".to_owned()))
}
