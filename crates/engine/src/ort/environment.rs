//! The one ONNX Runtime environment of a process: its library, and the plug-in providers loaded
//! into it.
//!
//! Invariant: a library that the user named is used or is an error; it is never skipped. No library
//! sends telemetry. Knows nothing of models.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use ort::environment::Environment;
use ort::logging::LogLevel;

use super::installation::{self, too_old, version_by_name};
use super::search::{self, FoundLibrary};
use super::{NAME, provider};
use crate::library::{LibraryOrigin, Plugin};
use crate::surroundings::Surroundings;
use crate::{EngineError, LoadOptions, Provider, RequiredFiles};

/// The environment for creating a session.
#[derive(Debug)]
pub(super) struct ReadyEnvironment {
    pub(super) environment: Environment,
    /// The plug-in with the provider, unless the provider is built into the library.
    pub(super) plugin: Option<Plugin>,
}

#[derive(Debug)]
struct Loaded {
    environment: Environment,
    path: PathBuf,
    plugins: Vec<PathBuf>,
}

static LOADED: Mutex<Option<Loaded>> = Mutex::new(None);

/// The libraries and plug-ins on this machine.
#[derive(Debug)]
struct OrtSearch {
    libraries: Vec<FoundLibrary>,
    plugins: Vec<Plugin>,
}

/// The result of the search before this process was sandboxed. A sandboxed process cannot search.
static SEARCH_RESULT: OnceLock<OrtSearch> = OnceLock::new();

impl OrtSearch {
    fn look(library: Option<&Path>) -> Self {
        let surroundings = Surroundings::of_this_process();
        Self {
            libraries: search::libraries(&surroundings, library),
            plugins: search::plugins(&surroundings),
        }
    }

    fn libraries(library: Option<&Path>) -> Vec<FoundLibrary> {
        let look = || search::libraries(&Surroundings::of_this_process(), library);
        SEARCH_RESULT
            .get()
            .map_or_else(look, |it| it.libraries.clone())
    }

    fn plugins() -> Vec<Plugin> {
        let look = || search::plugins(&Surroundings::of_this_process());
        SEARCH_RESULT
            .get()
            .map_or_else(look, |it| it.plugins.clone())
    }
}

/// Searches for libraries and plug-ins, and returns the files that loading them reads.
pub(super) fn prepare(options: &LoadOptions) -> RequiredFiles {
    let search = SEARCH_RESULT.get_or_init(|| OrtSearch::look(options.library.as_deref()));
    let libraries = search.libraries.iter().map(|found| &found.path);
    let plugins = search.plugins.iter();
    let plugins = plugins.filter(|plugin| plugin.provider == options.provider);
    let plugins = plugins.map(|plugin| &plugin.path);
    let folders = libraries.chain(plugins).filter_map(|path| path.parent());
    Surroundings::of_this_process().needs(folders)
}

/// Loads a library that has the provider, unless one is loaded, and the provider's plug-in.
pub(super) fn ready(options: &LoadOptions) -> Result<ReadyEnvironment, EngineError> {
    let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    let loaded = match &mut *loaded {
        Some(loaded) => {
            check_same(loaded, options.library.as_deref())?;
            loaded
        }
        none => none.insert(load(options)?),
    };
    let plugin = if provider::is_built_in(options.provider) {
        None
    } else {
        Some(plug_in(loaded, options.provider)?)
    };
    Ok(ReadyEnvironment {
        environment: loaded.environment.clone(),
        plugin,
    })
}

fn check_same(loaded: &Loaded, named: Option<&Path>) -> Result<(), EngineError> {
    let Some(named) = named else { return Ok(()) };
    let named = named.canonicalize().unwrap_or_else(|_| named.to_owned());
    if named == loaded.path {
        return Ok(());
    }
    Err(EngineError::Load {
        engine: NAME.to_owned(),
        reason: format!(
            "this process already uses {} and cannot also use {}",
            loaded.path.display(),
            named.display()
        ),
    })
}

fn load(options: &LoadOptions) -> Result<Loaded, EngineError> {
    let mut found = OrtSearch::libraries(options.library.as_deref());
    if found.iter().any(|it| it.origin == LibraryOrigin::Named) {
        found.retain(|it| it.origin == LibraryOrigin::Named);
    }
    check_user_choices(&found)?;
    providers_first(&mut found, options.provider);
    let mut rejected = Vec::new();
    for candidate in found {
        match open(&candidate.path) {
            Ok(environment) => {
                return Ok(Loaded {
                    environment,
                    path: candidate.path,
                    plugins: Vec::new(),
                });
            }
            Err(problem) if candidate.origin.is_user_choice() => {
                return Err(unusable(&candidate, &problem));
            }
            Err(problem) => rejected.push(format!("{}: {problem}", candidate.path.display())),
        }
    }
    Err(EngineError::Unavailable {
        what: "ONNX Runtime".to_owned(),
        reason: if rejected.is_empty() {
            "its library is missing".to_owned()
        } else {
            format!("all its libraries are unusable ({})", rejected.join("; "))
        },
        help: "install it with `pip install onnxruntime`, or name its library with --ort-lib"
            .to_owned(),
    })
}

/// Fails if a library that the user named is missing, even if another one would be preferred.
fn check_user_choices(found: &[FoundLibrary]) -> Result<(), EngineError> {
    let absent = found
        .iter()
        .find(|it| it.origin.is_user_choice() && !it.path.is_file());
    absent.map_or(Ok(()), |it| {
        let problem = if it.path.is_dir() {
            "this directory contains no ONNX Runtime library"
        } else {
            "file not found"
        };
        Err(unusable(it, problem))
    })
}

fn unusable(found: &FoundLibrary, problem: &str) -> EngineError {
    EngineError::Load {
        engine: NAME.to_owned(),
        reason: format!(
            "its library {} (named by {}) is unusable: {problem}",
            found.path.display(),
            found.origin.describe()
        ),
    }
}

/// Moves libraries with the provider to the front. Otherwise the order of the search stays.
fn providers_first(found: &mut [FoundLibrary], provider: Provider) {
    if provider != Provider::Cpu && found.len() > 1 {
        found.sort_by_cached_key(|it| !installation::inspect(it).providers.contains(&provider));
    }
}

fn open(path: &Path) -> Result<Environment, String> {
    if let Some(problem) = version_by_name(path).as_deref().and_then(too_old) {
        return Err(problem);
    }
    let builder =
        ort::init_from(path).map_err(|error| match error {
            // The loader's own message is the source of the crate's error.
            ort::LoadDynamicError::Dlopen { error, .. } => std::error::Error::source(&error)
                .map_or_else(|| error.to_string(), ToString::to_string),
            ort::LoadDynamicError::MissingApi { .. } => "not an ONNX Runtime library".to_owned(),
            ort::LoadDynamicError::BadVersion { version_str, .. } => too_old(&version_str)
                .unwrap_or_else(|| format!("unsupported version {version_str}")),
            other @ ort::LoadDynamicError::InvalidVersionString => other.to_string(),
        })?;
    let environment = builder
        .with_name("pkgtool")
        .with_telemetry(false)
        .build()
        .map_err(|error| error.to_string())?;
    // Every failure is returned as an error as well. `ORT_LOG` is for debugging the library.
    if env::var_os("ORT_LOG").is_none() {
        environment.set_log_level(LogLevel::Fatal);
    }
    Ok(environment)
}

fn plug_in(loaded: &mut Loaded, provider: Provider) -> Result<Plugin, EngineError> {
    let plugins = OrtSearch::plugins();
    let plugin = plugins.into_iter().find(|it| it.provider == provider);
    let Some(plugin) = plugin else {
        return Err(provider::absent(
            provider,
            &format!("{} lacks it", loaded.path.display()),
        ));
    };
    if !loaded.plugins.contains(&plugin.path) {
        loaded
            .environment
            // Plug-ins name their devices after the name under which they are registered.
            .register_ep_library(provider::full_name(provider), &plugin.path)
            .map_err(|error| {
                let path = plugin.path.display();
                provider::unusable(provider, &format!("{path} cannot be loaded: {error}"))
            })?;
        loaded.plugins.push(plugin.path.clone());
    }
    Ok(plugin)
}
