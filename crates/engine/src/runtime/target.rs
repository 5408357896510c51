//! Selects the engine and provider for a model, and starts it.
//!
//! The backend of the package is preferred, as far as this machine supports it; otherwise a
//! portable engine is used. The first run proves that the choice works.
//!
//! Invariant: reports name the engine and provider that actually ran. Every fallback is reported,
//! and `strict` forbids all fallbacks.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cores::CoreChoice;
use super::process::sandbox::Sandbox;
use super::restart::Restart;
use super::worker::{Launcher, Worker};
use crate::tensor::{Signature, Tensor};
use crate::{
    Carrying, ENGINES, Engine, EngineError, LoadOptions, LoadRequest, OrtOption, Placement,
    PortableReading, Profile, Provider, Rounding, RunAnswer, Session,
};
use pkgtool_base::package::Backend;
use pkgtool_model::ModelInfo;

/// Number of runs before a profile, in which engines plan and measure.
const PROFILE_WARM_UP_RUNS: u64 = 3;

/// An engine and provider that may run a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the engine.
    pub engine: &'static str,
    /// Its provider.
    pub provider: Provider,
    /// `true` if it is not the requested backend.
    pub fallback: bool,
}

/// The model to run, and the user's options.
#[derive(Debug, Clone)]
pub struct StartRequest {
    /// The model file.
    pub model: PathBuf,
    /// Its format, as in [`pkgtool_model::ModelInfo::format`].
    pub format: &'static str,
    /// The method.
    pub signature: Signature,
    /// The backend that the package targets or the user requests.
    pub backend: Option<Backend>,
    /// The engine, if the user named one.
    pub engine: Option<String>,
    /// Forbid fallbacks.
    pub strict: bool,
    /// Number of threads of a run.
    pub threads: Option<usize>,
    /// Record where nodes run.
    pub observe: bool,
    /// Path of ONNX Runtime's library, if the user named one.
    pub library: Option<PathBuf>,
    /// The inputs and outputs that stay in the session between runs.
    pub carrying: Carrying,
    /// Rounding in portable readings of programs in half precision.
    pub rounding: Rounding,
    /// Configuration entries for ONNX Runtime's session.
    pub ort_options: Vec<OrtOption>,
    /// Instruction sets that engines may use, if the user named them.
    pub cpu_features: Option<String>,
    /// The cores on which it runs; `None` leaves them to the system.
    pub cores: Option<CoreChoice>,
}

/// A model that is loaded and has run once.
#[derive(Debug)]
pub struct Started {
    /// Its session.
    pub worker: Worker,
    /// How the model was loaded.
    pub request: LoadRequest,
    /// The requested backend.
    pub backend: Option<Backend>,
    /// The engine and provider that run it.
    pub candidate: Candidate,
    /// Candidates that were tried before and failed, with their errors.
    pub failed_candidates: Vec<(Candidate, EngineError)>,
    /// Answer of the first run.
    pub first_answer: RunAnswer,
    /// Time to load the model.
    pub load_time: Duration,
    /// Placement of nodes, as far as the engine reports it.
    pub placement: Placement,
    /// Sandbox of its process, if the process reports it.
    pub sandbox: Option<Sandbox>,
    /// The cores to which its process is pinned, if the user chose them.
    pub pinned_cores: Option<Vec<u32>>,
    /// The user's choice of cores.
    core_choice: Option<CoreChoice>,
    /// `true` if the requested provider took no part of the model.
    idle: bool,
}

/// The model did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No engine of this build supports the format.
    #[error("{0}")]
    Format(String),
    /// The engine that the user named does not support the format.
    #[error("{0}")]
    Engine(String),
    /// All candidates failed, listed in the order of the attempts.
    #[error("{}", failures(.0))]
    Failed(Vec<(Candidate, EngineError)>),
    /// Only a fallback could run it, and `strict` forbids fallbacks.
    #[error("--strict: {reason}")]
    Strict {
        /// The fallback and the reason for it.
        reason: String,
    },
}

/// Returns the candidates for a format and backend, best first; empty if no engine supports the
/// format. Without a backend, all portable engines are candidates.
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

/// Fails if no engine of this build supports the format; the error names a remedy.
pub fn require_runnable(format: &str) -> Result<(), StartError> {
    if !candidates(format, None).is_empty() {
        return Ok(());
    }
    Err(StartError::Format(format!(
        "unsupported format {format}: the engines of this build run ONNX models, ExecuTorch programs and Core ML's ML Programs"
    )))
}

/// Fails if no engine of this build supports a method, judging by the header and the payloads of
/// its delegates; the error names a remedy.
pub fn require_method_runnable(
    model: &Path,
    info: &ModelInfo,
    method: &str,
) -> Result<(), StartError> {
    require_runnable(info.format)?;
    // A model without method names has one method, whatever a config calls it.
    let found = if info.names_methods {
        info.method(method)
    } else {
        info.methods.first()
    };
    let Some(found) = found else { return Ok(()) };
    let gaps = crate::gaps_without_library(info.format, found)
        .or_else(|| crate::payload_gaps_without_library(model, info.format, found));
    match gaps {
        Some(gaps) => Err(StartError::Format(gaps.reason)),
        None => Ok(()),
    }
}

/// Loads the model with the best working candidate and runs it once. `inputs` exclude carried
/// tensors. State that this run leaves in the session stays until it is reset.
pub fn start(
    wish: &StartRequest,
    inputs: &[Tensor],
    launcher: &Launcher,
) -> Result<Started, StartError> {
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
                let goes_on = candidate.should_try_next(&error);
                passed_over.push((candidate, error));
                if !goes_on {
                    break;
                }
            }
        }
    }
    Err(StartError::Failed(passed_over))
}

/// Returns the candidates of the engine that the user named, or all.
fn wished(wish: &StartRequest) -> Result<Vec<Candidate>, StartError> {
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

/// Explains that an engine does not support a format, and names the engines that do.
fn other_format(engine: &str, format: &str) -> String {
    let runs = match crate::engine(engine).map(Engine::title) {
        Some([title, models]) => format!("{title} (`--engine {engine}`) runs {models}"),
        None => format!("the engine `{engine}` is unknown"),
    };
    let is = match format {
        "onnx" => "an ONNX model",
        "executorch" => "an ExecuTorch program",
        "coreml" => "a Core ML model",
        _ => "of a different format",
    };
    let mut others: Vec<String> = Vec::new();
    for candidate in candidates(format, None) {
        let text = format!("`--engine {}`", candidate.engine);
        if is_built(candidate.engine) && !others.contains(&text) {
            others.push(text);
        }
    }
    format!(
        "{runs}, and this is {is}: choose an engine that runs it ({}), or omit the option",
        others.join(", ")
    )
}

fn is_built(engine: &str) -> bool {
    crate::engine(engine).is_some_and(Engine::is_built)
}

fn attempt(
    wish: &StartRequest,
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
            profile: false,
            library: wish.library.clone(),
            carrying: wish.carrying.clone(),
            rounding: wish.rounding,
            ort_options: wish.ort_options.clone(),
            cpu_features: wish.cpu_features.clone(),
        },
    };
    let mut worker = launcher.start_on(wish.cores.as_ref(), candidate.engine, &request)?;
    worker.load(&request)?;
    let first = worker.run(inputs)?;
    let pinned_cores = match wish.cores {
        Some(_) => worker.process_facts()?.cores,
        None => None,
    };
    let placement = worker.placement();
    let sandbox = worker.sandbox();
    let load_time = worker.load_time();
    Ok(Started {
        worker,
        request,
        backend: wish.backend,
        candidate,
        failed_candidates: Vec::new(),
        first_answer: first,
        load_time,
        placement,
        sandbox,
        pinned_cores,
        core_choice: wish.cores.clone(),
        idle: false,
    })
}

/// Compares the placement of the first run with the requested backend.
fn finish(
    wish: &StartRequest,
    mut started: Started,
    passed_over: Vec<(Candidate, EngineError)>,
) -> Result<Started, StartError> {
    started.failed_candidates = passed_over;
    let Candidate {
        engine, provider, ..
    } = started.candidate;
    let reached =
        |engine: &dyn Engine| engine.ran_on_backend(&started.placement, provider, wish.backend);
    let idle = !started.candidate.fallback && !crate::engine(engine).is_none_or(reached);
    started.idle = idle;
    started.candidate.fallback |= idle;
    if idle && wish.strict {
        let reason = unused_backend_reason(&started);
        return Err(StartError::Strict { reason });
    }
    Ok(started)
}

impl StartError {
    /// Returns `true` if only engines are missing, and nothing is wrong with the model itself.
    pub fn lacks_engine(&self) -> bool {
        match self {
            Self::Format(_) | Self::Engine(_) | Self::Strict { .. } => true,
            Self::Failed(tried) => tried.iter().all(|(_, error)| error.is_about_the_engine()),
        }
    }
}

impl Started {
    /// Returns what starts the model in other processes. They do not observe where nodes run.
    pub fn restart(&self) -> Restart {
        let mut request = self.request.clone();
        request.options.observe = false;
        Restart {
            engine: self.candidate.engine,
            request,
            cores: self.core_choice.clone(),
        }
    }

    /// Runs the model `runs` times, or until `time` has passed, in another process that records the
    /// time of each node, after warm-up runs. `None` if the engine cannot record this model.
    pub fn profile(
        &self,
        inputs: &[Tensor],
        launcher: &Launcher,
        (runs, time): (u64, Duration),
    ) -> Result<Option<Profile>, EngineError> {
        let mut request = self.request.clone();
        request.options.profile = true;
        request.options.observe = false;
        let cores = self.core_choice.as_ref();
        let mut worker = launcher.start_on(cores, self.candidate.engine, &request)?;
        worker.load(&request)?;
        worker.set_inputs(inputs)?;
        worker.repeat(PROFILE_WARM_UP_RUNS, time)?;
        worker.reset_state()?;
        worker.profile(runs, time)
    }

    /// Returns why it does not run on the requested backend; `None` if it does.
    pub fn off_target(&self) -> Option<String> {
        if !self.candidate.fallback {
            return None;
        }
        let causes = causes_first(&self.failed_candidates);
        Some(match causes.first() {
            Some((tried, error)) => format!("{tried}: {error}"),
            None => unused_backend_reason(self),
        })
    }
}

/// Returns why the requested backend is not used, although nothing failed.
fn unused_backend_reason(started: &Started) -> String {
    let provider = started.candidate.provider;
    let backend = started.backend.map_or("", Backend::name);
    match provider {
        Provider::Cpu if started.idle => format!("no part of the program is for {backend}"),
        Provider::Cpu => format!("nothing on this machine runs {backend} itself"),
        _ => format!("the {provider} provider took no node of the model"),
    }
}

fn would_fall_back(
    wish: &StartRequest,
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
        [] => {
            "no engine of this name can run the model; `pkgtool backends` lists the available ones"
                .to_owned()
        }
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

/// Sorts errors: those about the model first, engines missing on this machine last.
fn causes_first(tried: &[(Candidate, EngineError)]) -> Vec<&(Candidate, EngineError)> {
    let mut tried: Vec<_> = tried.iter().collect();
    tried.sort_by_key(|(_, error)| matches!(error, EngineError::Unavailable { .. }));
    tried
}

impl Candidate {
    /// Returns the reading of a method's program that the engine uses, if it does not run the
    /// program itself.
    pub fn reading(self, info: &ModelInfo, method: &str) -> Option<PortableReading> {
        let method = info.method(method).or(info.methods.first())?;
        crate::engine(self.engine)?.portable_reading(info.format, method)
    }

    /// Returns `true` if its engine is part of this build and needs no library.
    pub fn is_built_in(self) -> bool {
        crate::engine(self.engine).is_some_and(Engine::needs_no_library)
    }

    /// Returns `true` if the next candidate should be tried after this error. A failure of a
    /// provider may be specific to it. A failure of a portable engine is probably caused by the
    /// model, and the next engine would fail with a worse message. Limits apply to all candidates.
    pub fn should_try_next(self, error: &EngineError) -> bool {
        let by_limit = matches!(error, EngineError::Limit { .. });
        if matches!(error, EngineError::Device { .. }) {
            return false;
        }
        let is_its_own = self.provider != Provider::Cpu && !by_limit;
        !error.is_about_the_model() && (is_its_own || error.is_about_the_engine())
    }
}

/// Format: `ort (qnn)`; `ort (cpu)` for an engine's own CPU code.
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
