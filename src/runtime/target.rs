//! Which engine and provider run a model: the backend a package was made for, as far as this
//! machine has it, else something portable; and the first run, which proves the choice.
//!
//! Invariant: what ran is told as it was. Nothing falls back silently, and with `strict` nothing
//! falls back at all.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::process::sandbox::Sandbox;
use super::worker::{Launcher, Worker};
use crate::engine::{
    self, Answer, Carrying, ENGINES, Engine, EngineError, LoadOptions, LoadRequest, OrtOption,
    Placement, Provider, Reading, Rounding, Session,
};
use crate::model::ModelInfo;
use crate::package::Backend;
use crate::tensor::{Signature, Tensor};

/// An engine with a provider that could run a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the engine.
    pub engine: &'static str,
    /// Its provider.
    pub provider: Provider,
    /// Whether it is something else than the backend that was asked for.
    pub fallback: bool,
}

/// What is to be run, and on what.
#[derive(Debug, Clone)]
pub struct Wish {
    /// The model file.
    pub model: PathBuf,
    /// Its format, as in [`crate::model::ModelInfo::format`].
    pub format: &'static str,
    /// The method.
    pub signature: Signature,
    /// The backend it was made for, or that the user asks for.
    pub backend: Option<Backend>,
    /// The engine, if the user named one.
    pub engine: Option<String>,
    /// No fallback.
    pub strict: bool,
    /// Threads of a run.
    pub threads: Option<usize>,
    /// Observe the placement of nodes.
    pub observe: bool,
    /// ONNX Runtime's library, if the user named one.
    pub library: Option<PathBuf>,
    /// What of the method's inputs and outputs stays with the session.
    pub carrying: Carrying,
    /// How portable readings of programs in half precision are computed.
    pub rounding: Rounding,
    /// Entries of the configuration of ONNX Runtime's session.
    pub ort_options: Vec<OrtOption>,
    /// The instructions that engines compute with, if they were named.
    pub cpu_features: Option<String>,
}

/// A model that is loaded and has run once.
#[derive(Debug)]
pub struct Started {
    /// Its session.
    pub worker: Worker,
    /// The backend that was asked for.
    pub backend: Option<Backend>,
    /// What runs it.
    pub candidate: Candidate,
    /// Candidates before it that did not work, and why.
    pub passed_over: Vec<(Candidate, EngineError)>,
    /// What the first run gave.
    pub first: Answer,
    /// Time to load.
    pub load_time: Duration,
    /// Where nodes ran, as far as the engine tells.
    pub placement: Placement,
    /// The sandbox of its process, if the process could be asked.
    pub sandbox: Option<Sandbox>,
    /// Whether it was to run on the backend, and took nothing of the model there.
    idle: bool,
}

/// Why a model did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Nothing in this build runs the format.
    #[error("{0}")]
    Format(String),
    /// The engine that the user named does not run the format.
    #[error("{0}")]
    Engine(String),
    /// Every candidate that was tried failed, in the order in which they were tried.
    #[error("{}", failures(.0))]
    Failed(Vec<(Candidate, EngineError)>),
    /// `strict`, and only a fallback would run it.
    #[error("--strict: {reason}")]
    Strict {
        /// What would have happened.
        reason: String,
    },
}

/// The candidates for a model of a format and a backend, best first; none if nothing runs the format.
/// A model without a backend runs on whatever is portable.
pub fn candidates(format: &str, backend: Option<Backend>) -> Vec<Candidate> {
    let of = |engine: &'static dyn Engine| {
        let offers = engine.offers(format, backend).into_iter();
        offers.map(|offer| Candidate {
            engine: engine.name(),
            provider: offer.provider,
            fallback: offer.fallback,
        })
    };
    ENGINES.iter().copied().flat_map(of).collect()
}

/// Fails if no engine of this build runs models of this format, and says what to do.
pub fn require_runnable(format: &str) -> Result<(), StartError> {
    if !candidates(format, None).is_empty() {
        return Ok(());
    }
    Err(StartError::Format(format!(
        "it is of format {format}; the engines of this build run ONNX models, ExecuTorch programs and Core ML's ML Programs"
    )))
}

/// Fails if no engine of this build runs this method of a model, as far as its header and the payloads of its
/// delegates tell, and says what would.
pub fn require_method_runnable(
    model: &Path,
    info: &ModelInfo,
    method: &str,
) -> Result<(), StartError> {
    require_runnable(info.format)?;
    // A model that does not name its methods has one, whatever a config calls it.
    let found = if info.names_methods {
        info.method(method)
    } else {
        info.methods.first()
    };
    let Some(found) = found else { return Ok(()) };
    let gaps = engine::gaps_everywhere(info.format, found)
        .or_else(|| engine::gaps_inside_everywhere(model, info.format, found));
    match gaps {
        Some(gaps) => Err(StartError::Format(gaps.reason)),
        None => Ok(()),
    }
}

/// Loads the model with the best candidate that works and runs it once. What is carried is not among the
/// inputs; what that run has left is there until it is forgotten.
pub fn start(wish: &Wish, inputs: &[Tensor], launcher: &Launcher) -> Result<Started, StartError> {
    require_runnable(wish.format)?;
    let mut passed_over: Vec<(Candidate, EngineError)> = Vec::new();
    for candidate in wished(wish)? {
        if wish.strict && candidate.fallback {
            return Err(StartError::Strict {
                reason: would_fall_back(wish, candidate, &passed_over),
            });
        }
        match attempt(wish, candidate, inputs, launcher) {
            Ok(started) => return finish(wish, started, passed_over),
            Err(error) => {
                let goes_on = candidate.is_passed_over_for(&error);
                passed_over.push((candidate, error));
                if !goes_on {
                    break;
                }
            }
        }
    }
    Err(StartError::Failed(passed_over))
}

/// The candidates that are left by the engine that the user named.
fn wished(wish: &Wish) -> Result<Vec<Candidate>, StartError> {
    let mut candidates = candidates(wish.format, wish.backend);
    let Some(engine) = wish.engine.as_deref() else {
        return Ok(candidates);
    };
    candidates.retain(|candidate| candidate.engine == engine);
    if candidates.is_empty() {
        return Err(StartError::Engine(other_format(engine, wish.format)));
    }
    Ok(candidates)
}

/// Why an engine runs nothing of a format, and what does.
fn other_format(engine: &str, format: &str) -> String {
    let runs = match engine::engine(engine).map(Engine::title) {
        Some([title, models]) => format!("{title} (`--engine {engine}`) runs {models}"),
        None => format!("there is no engine `{engine}`"),
    };
    let is = match format {
        "onnx" => "an ONNX model",
        "executorch" => "an ExecuTorch program",
        "coreml" => "a Core ML model",
        _ => "of another format",
    };
    let mut others: Vec<String> = Vec::new();
    for candidate in candidates(format, None) {
        let text = format!("`--engine {}`", candidate.engine);
        if is_built(candidate.engine) && !others.contains(&text) {
            others.push(text);
        }
    }
    format!(
        "{runs}, and this is {is}: name an engine that runs it ({}), or none",
        others.join(", ")
    )
}

fn is_built(engine: &str) -> bool {
    engine::engine(engine).is_some_and(Engine::is_built)
}

fn attempt(
    wish: &Wish,
    candidate: Candidate,
    inputs: &[Tensor],
    launcher: &Launcher,
) -> Result<Started, EngineError> {
    let request = LoadRequest {
        model: wish.model.clone(),
        signature: wish.signature.clone(),
        options: LoadOptions {
            threads: wish.threads,
            provider: candidate.provider,
            strict: wish.strict && candidate.provider != Provider::Cpu,
            observe: wish.observe || candidate.provider != Provider::Cpu,
            library: wish.library.clone(),
            carrying: wish.carrying.clone(),
            rounding: wish.rounding,
            ort_options: wish.ort_options.clone(),
            cpu_features: wish.cpu_features.clone(),
        },
    };
    let mut worker = launcher.load(candidate.engine, &request)?;
    let first = worker.run(inputs)?;
    let placement = worker.placement();
    let sandbox = worker.sandbox();
    let load_time = worker.load_time();
    Ok(Started {
        worker,
        backend: wish.backend,
        candidate,
        passed_over: Vec::new(),
        first,
        load_time,
        placement,
        sandbox,
        idle: false,
    })
}

/// Holds what really ran against what was asked for.
fn finish(
    wish: &Wish,
    mut started: Started,
    passed_over: Vec<(Candidate, EngineError)>,
) -> Result<Started, StartError> {
    started.passed_over = passed_over;
    let Candidate {
        engine, provider, ..
    } = started.candidate;
    let reached = |engine: &dyn Engine| engine.reached(&started.placement, provider, wish.backend);
    let idle = !started.candidate.fallback && !engine::engine(engine).is_none_or(reached);
    started.idle = idle;
    started.candidate.fallback |= idle;
    if idle && wish.strict {
        let reason = idleness(&started);
        return Err(StartError::Strict { reason });
    }
    Ok(started)
}

impl StartError {
    /// Whether it says that nothing here runs the model, and nothing of the model's own faults.
    pub fn is_want_of_an_engine(&self) -> bool {
        match self {
            Self::Format(_) | Self::Engine(_) | Self::Strict { .. } => true,
            Self::Failed(tried) => tried.iter().all(|(_, error)| error.is_about_the_engine()),
        }
    }
}

impl Started {
    /// Why it does not run on the backend that was asked for; `None` if it does.
    pub fn off_target(&self) -> Option<String> {
        if !self.candidate.fallback {
            return None;
        }
        let causes = causes_first(&self.passed_over);
        Some(match causes.first() {
            Some((tried, error)) => format!("{tried}: {error}"),
            None => idleness(self),
        })
    }
}

/// Why what runs is not the backend, though nothing failed.
fn idleness(started: &Started) -> String {
    let provider = started.candidate.provider;
    let backend = started.backend.map_or("", Backend::name);
    match provider {
        Provider::Cpu if started.idle => format!("no part of the program is for {backend}"),
        Provider::Cpu => format!("nothing on this machine runs {backend} itself"),
        _ => format!("the {provider} provider took no node of the model"),
    }
}

fn would_fall_back(
    wish: &Wish,
    candidate: Candidate,
    passed_over: &[(Candidate, EngineError)],
) -> String {
    let backend = wish.backend.map_or("", Backend::name);
    let why = match (passed_over, &wish.engine) {
        ([], Some(engine)) => format!("the {engine} engine does not run {backend} itself"),
        ([], None) => format!("nothing on this machine runs {backend} itself"),
        (tried, _) => failures(tried),
    };
    format!("{why}; only {candidate} would run the model, which is not {backend}")
}

fn failures(tried: &[(Candidate, EngineError)]) -> String {
    match tried {
        [] => "no engine of this name can run the model; `pkgtool backends` lists what there is"
            .to_owned(),
        [(_, error)] => error.to_string(),
        several => {
            let texts: Vec<String> = causes_first(several)
                .iter()
                .map(|(candidate, error)| format!("{candidate}: {error}"))
                .collect();
            texts.join("; ")
        }
    }
}

/// What says something of the model first; what is not on this machine last.
fn causes_first(tried: &[(Candidate, EngineError)]) -> Vec<&(Candidate, EngineError)> {
    let mut tried: Vec<_> = tried.iter().collect();
    tried.sort_by_key(|(_, error)| matches!(error, EngineError::Unavailable { .. }));
    tried
}

impl Candidate {
    /// What is to be told of its answers, where they are an engine's own reading of a method's program.
    pub fn reading(self, info: &ModelInfo, method: &str) -> Option<Reading> {
        let method = info.method(method).or(info.methods.first())?;
        engine::engine(self.engine)?.reading(info.format, method)
    }

    /// Whether its engine needs nothing but this build.
    pub fn is_everywhere(self) -> bool {
        engine::engine(self.engine).is_some_and(Engine::is_everywhere)
    }

    /// Whether the next candidate is to be tried after this one failed so. A provider's failure is its
    /// own. A portable engine's may be the model's fault: the next would only repeat it, with a worse
    /// message. A limit is one for all.
    pub fn is_passed_over_for(self, error: &EngineError) -> bool {
        let by_limit = matches!(error, EngineError::Limit { .. });
        let is_its_own = self.provider != Provider::Cpu && !by_limit;
        !error.is_about_the_model() && (is_its_own || error.is_about_the_engine())
    }
}

/// `ort on qnn`; an engine on its own CPU code is just `ort (cpu)`.
impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.engine, self.provider)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_backend_ends_with_what_is_portable() {
        for format in ["onnx", "executorch", "coreml"] {
            for backend in Backend::ALL.map(Some).into_iter().chain([None]) {
                let last = *candidates(format, backend).last().expect("there are some");
                let portable = (last.engine, last.provider, last.fallback);
                assert_eq!(portable, ("tract", Provider::Cpu, backend.is_some()));
            }
        }
        assert!(candidates("safetensors", None).is_empty());
    }

    #[test]
    fn what_says_something_of_the_model_comes_first() {
        let candidate = |engine, provider| Candidate {
            engine,
            provider,
            fallback: false,
        };
        let absent = EngineError::Unavailable {
            what: "ONNX Runtime".to_owned(),
            reason: "its library was not found".to_owned(),
            help: "install it".to_owned(),
        };
        let refused = EngineError::Unsupported {
            engine: "tract".to_owned(),
            operators: vec!["Unique".to_owned()],
            reason: "it has no code for it".to_owned(),
        };
        let tried = [
            (candidate("ort", Provider::Qnn), absent.clone()),
            (candidate("ort", Provider::Cpu), absent),
            (candidate("tract", Provider::Cpu), refused),
        ];
        let text = failures(&tried);
        let places = ["tract (cpu)", "ort (qnn)", "ort (cpu)"].map(|name| text.find(name));
        assert!(places.is_sorted() && places[0] == Some(0), "{text}");
    }

    #[test]
    fn an_engine_for_other_models_says_what_runs_this_one() {
        let text = other_format("ort", "executorch");
        assert!(
            text.starts_with("ONNX Runtime (`--engine ort`) runs ONNX models, and this is an"),
            "{text}"
        );
        assert!(text.contains("`--engine tract`"), "{text}");
        let text = other_format("executorch", "onnx");
        assert!(
            text.contains("runs its own programs, and this is an ONNX model"),
            "{text}"
        );
        assert!(!text.contains("(`--engine executorch`,"), "{text}");
    }

    #[test]
    fn a_backend_asks_for_its_provider_first() {
        let first = |format, backend| candidates(format, Some(backend))[0];
        assert_eq!(first("onnx", Backend::Qnn).provider, Provider::Qnn);
        assert_eq!(first("onnx", Backend::Vulkan).provider, Provider::WebGpu);
        assert!(!first("onnx", Backend::Xnnpack).fallback);
        let program = first("executorch", Backend::Xnnpack);
        assert_eq!(
            (program.engine, program.provider),
            ("executorch", Provider::Xnnpack)
        );
    }
}
