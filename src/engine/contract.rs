//! The seam between what wants to run a model and what can: [`Engine`] loads, [`Session`] runs.
//!
//! Invariant: no type of an inference library is visible here. Everything but the two traits can be
//! sent to another process. Knows nothing of packages and of how an engine was chosen.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::carrying::{Begins, Carrying};
use super::error::EngineError;
use super::library::{Installations, NativeBackend};
use super::offer::Offer;
use super::ort_option::OrtOption;
use super::provider::{Placement, Provider};
use super::reading::{Reading, Rounding};
use crate::model::Method;
use crate::package::Backend;
use crate::tensor::{Signature, Tensor};

/// Something that can load models. It tells itself what it offers, what it lacks and what of it is here:
/// who chooses among engines holds a list of them and knows none by name.
pub trait Engine: Sync {
    /// Lower-case name, as `--engine` takes it.
    fn name(&self) -> &'static str;

    /// Its name in a text for people, and which models it runs: `ONNX Runtime` and `ONNX models`.
    fn title(&self) -> [&'static str; 2];

    /// Whether this build has it, not only its name.
    fn is_built(&self) -> bool {
        true
    }

    /// Whether it needs nothing but this build.
    fn is_everywhere(&self) -> bool {
        false
    }

    /// The providers that could run models of a format, best first; none if it does not run the format.
    /// A model without a backend runs on whatever is portable.
    fn offers(&self, format: &str, backend: Option<Backend>) -> Vec<Offer>;

    /// Full names of what it lowers of programs by code of its own, sorted: operators, then delegates.
    fn lowers(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// What it lacks for a method of a model of a format, as far as the header tells.
    fn gaps(&self, _format: &str, _method: &Method) -> Option<Gaps> {
        None
    }

    /// What it lacks for a method as its file holds it, beyond what the header tells: of the payloads of
    /// delegates that it reads itself. Reads no weights; what cannot be read at all is for loading to tell.
    fn gaps_inside(&self, _model: &Path, _format: &str, _method: &Method) -> Option<Gaps> {
        None
    }

    /// The backend whose program it reads in its own way, so that an answer is what the program says and not
    /// what the backend's hardware rounds; nothing where it computes what the backend does.
    fn reading(&self, _format: &str, _method: &Method) -> Option<Reading> {
        None
    }

    /// What of it is on this machine. `library` is the one that the user named. Loads nothing.
    fn installed(&self, _library: Option<&Path>) -> Installations {
        Installations::default()
    }

    /// Whether what ran there ran, at least in part, on the backend that it was offered for, as far as
    /// the engine tells.
    fn reached(
        &self,
        placement: &Placement,
        provider: Provider,
        _backend: Option<Backend>,
    ) -> bool {
        provider == Provider::Cpu || placement.shares.is_empty() || placement.has(provider)
    }

    /// Looks for its libraries while every folder can still be read, and tells what loading a model with these
    /// options will read of them.
    fn prepare(&self, _options: &LoadOptions) -> Needs {
        Needs::default()
    }

    /// Whether it writes files of its own when it loads a model with these options.
    fn writes_files(&self, _options: &LoadOptions) -> bool {
        false
    }

    /// Loads a model for one method, with what its session is to carry from run to run. Nothing of the
    /// model runs yet.
    fn load(&self, request: &LoadRequest) -> Result<Box<dyn Session>, EngineError>;

    /// What its library has for parts of models, where model files name such. Loads the library, and so
    /// is for a process of its own.
    fn backends(&self) -> Result<Vec<NativeBackend>, EngineError> {
        Ok(Vec::new())
    }
}

/// The files that an engine reads beside models and beside those that every process reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Files, and folders that are read from.
    pub read: Vec<PathBuf>,
    /// Folders of which only the names are read.
    pub list: Vec<PathBuf>,
}

/// What an engine lacks for a method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gaps {
    /// Operators and delegates, by their full names.
    pub names: BTreeSet<String>,
    /// Why they do not run, and what would run them.
    pub reason: String,
}

/// A loaded model, owned by one thread at a time.
pub trait Session: Send {
    /// Runs the method once. `inputs` are in the order of the signature and fit it: callers check
    /// with [`crate::tensor::input::check`]. Sessions stay usable after an error. What is carried is
    /// neither among the inputs nor among the outputs, and changes only if the run succeeds.
    ///
    /// What a program keeps from run to run (a cache of keys and values, a counter) is kept here too: a
    /// run begins with what the last one left, or anew after [`Session::forget`].
    fn run(&mut self, inputs: &[Tensor]) -> Result<Answer, EngineError>;

    /// Forgets what runs have left: the next one begins as the first did. Costs nothing where nothing
    /// was kept.
    fn forget(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Keeps the first `length` positions of what is carried ([`LoadOptions::carrying`]) and forgets the
    /// rest. What a program keeps by itself stays: it is told the position with its inputs.
    fn cut(&mut self, _length: u64) -> Result<(), EngineError> {
        Ok(())
    }

    /// Lets the next run begin so.
    fn begin(&mut self, begins: Begins) -> Result<(), EngineError> {
        match begins {
            Begins::Anew => self.forget(),
            Begins::AsLeft => Ok(()),
            Begins::Cut(length) => self.cut(length),
            Begins::Lanes(_) => Err(EngineError::Run {
                engine: "the session".to_owned(),
                operator: None,
                reason: "it keeps nothing that has lanes".to_owned(),
            }),
        }
    }

    /// What the engine tells about where the model's nodes run. Complete only after the first run.
    fn placement(&mut self) -> Placement;
}

/// What a run gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Outputs in the signature's order.
    pub outputs: Vec<Tensor>,
    /// Time of the engine's own work: from inputs in memory to outputs in memory.
    pub time: Duration,
}

/// What to load and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadRequest {
    /// The model file. Its header was read: it exists and is of a format the engine may know.
    pub model: PathBuf,
    /// What the method takes and gives.
    pub signature: Signature,
    /// How.
    pub options: LoadOptions,
}

/// How to load a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadOptions {
    /// Threads for a run; `None` leaves it to the engine (all cores).
    pub threads: Option<usize>,
    /// The execution provider to run on.
    pub provider: Provider,
    /// Refuse to run any node elsewhere than on the provider.
    pub strict: bool,
    /// Observe which provider runs what, for [`Session::placement`]. Only the first run is slowed
    /// down by it.
    pub observe: bool,
    /// The engine's native library, if the user named one.
    pub library: Option<PathBuf>,
    /// What of the method's inputs and outputs stays with the session.
    #[serde(default)]
    pub carrying: Carrying,
    /// How portable readings of delegates' graphs in half precision are computed.
    #[serde(default)]
    pub rounding: Rounding,
    /// Entries of the configuration of ONNX Runtime's session, which go over those of this engine.
    #[serde(default)]
    pub ort_options: Vec<OrtOption>,
    /// The instructions that engines compute with, by their name ([`super::cpu_features`]). ONNX Runtime
    /// takes those that the processor has, and is told to sum as on a processor of these. `None` leaves it to the variable `PKGTOOL_CPU_FEATURES`, and without that to the processor.
    #[serde(default)]
    pub cpu_features: Option<String>,
}
