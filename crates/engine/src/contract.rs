//! The interface of engines: an [`Engine`] loads a model, a [`Session`] runs it.
//!
//! Callers choose an engine by its offers and gaps and fill in a [`LoadRequest`].
//!
//! Invariant: no type of an inference library appears here. All types but the two traits can be
//! sent to another process. This module knows neither packages nor how an engine is chosen.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::carrying::{Carrying, RunStart};
use super::error::EngineError;
use super::library::{Installations, NativeBackend};
use super::offer::Offer;
use super::ort_option::OrtOption;
use super::profile::Profile;
use super::provider::{AssignedOperators, Placement, Provider};
use super::reading::{PortableReading, Rounding};
use crate::tensor::{Signature, Tensor};
use pkgtool_base::package::Backend;
use pkgtool_model::Method;

/// Something that can load models. It describes itself: its offers, its gaps and its installed
/// libraries. The code that chooses an engine holds a list of them and knows none by name.
pub trait Engine: Sync {
    /// Lower-case name, as `--engine` takes it.
    fn name(&self) -> &'static str;

    /// Its name for people, and the models it runs: `ONNX Runtime` and `ONNX models`.
    fn title(&self) -> [&'static str; 2];

    /// Returns `true` if this build contains the engine, `false` if it only knows the name.
    fn is_built(&self) -> bool {
        true
    }

    /// Returns `true` if the engine runs without native libraries.
    fn needs_no_library(&self) -> bool {
        false
    }

    /// The providers that could run models of a format, best first; empty if the engine does not
    /// run the format. A model without a backend runs on any portable provider.
    fn offers(&self, format: &str, backend: Option<Backend>) -> Vec<Offer>;

    /// Full names of the operators, then of the delegates, that the engine runs in models of a
    /// format by its own code, each sorted.
    fn operators(&self, _format: &str) -> Vec<String> {
        Vec::new()
    }

    /// Returns the operators of a model's graph that the engine does not support, with their
    /// attributes. Reads no weights. Nothing is missing if the reason is empty. `None` if this is
    /// unknown.
    fn graph_gaps(&self, _model: &Path, _format: &str) -> Option<Gaps> {
        None
    }

    /// Returns the operators and delegates of a method that the engine does not support, judging by
    /// the model's header.
    fn gaps(&self, _format: &str, _method: &Method) -> Option<Gaps> {
        None
    }

    /// Returns further gaps that only the file's contents show: operators in the payloads of
    /// delegates that the engine reads itself. Reads no weights. An unreadable file is reported by
    /// loading.
    fn payload_gaps(&self, _model: &Path, _format: &str, _method: &Method) -> Option<Gaps> {
        None
    }

    /// Returns the backend whose program the engine reads portably: its answers follow the program,
    /// without the rounding of the backend's hardware. `None` if the engine computes the same as
    /// the backend.
    fn portable_reading(&self, _format: &str, _method: &Method) -> Option<PortableReading> {
        None
    }

    /// Finds the engine's libraries on this machine. `library` is the one that the user named.
    /// Loads nothing.
    fn installed(&self, _library: Option<&Path>) -> Installations {
        Installations::default()
    }

    /// Returns `true` if the engine reports that at least a part of the model ran on the backend of
    /// this offer.
    fn ran_on_backend(
        &self,
        placement: &Placement,
        provider: Provider,
        _backend: Option<Backend>,
    ) -> bool {
        provider == Provider::Cpu || placement.shares.is_empty() || placement.has(provider)
    }

    /// Searches for the engine's libraries while the process can still read every folder. Returns
    /// the files that loading a model with these options reads.
    fn prepare(&self, _options: &LoadOptions) -> RequiredFiles {
        RequiredFiles::default()
    }

    /// Returns `true` if loading a model with these options writes files.
    fn writes_files(&self, _options: &LoadOptions) -> bool {
        false
    }

    /// Loads a model for one method, with the state that its session carries from run to run.
    /// Nothing of the model runs yet.
    fn load(&self, request: &LoadRequest) -> Result<Box<dyn Session>, EngineError>;

    /// Lists the backends in the engine's library, for formats whose model files name backends.
    /// Loads the library, so it needs a process of its own.
    fn backends(&self) -> Result<Vec<NativeBackend>, EngineError> {
        Ok(Vec::new())
    }
}

/// The files that an engine reads, in addition to models and to the files that every process reads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredFiles {
    /// Files, and folders that are read from.
    pub read: Vec<PathBuf>,
    /// Folders of which only the names are read.
    pub list: Vec<PathBuf>,
}

/// The parts of a method that an engine does not support.
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
    /// them with [`crate::tensor::input::check`]. A session stays usable after an error. Carried
    /// state is neither among the inputs nor among the outputs. It changes only if the run
    /// succeeds.
    ///
    /// State of the program itself (a KV cache, a counter) also lives in the session. A run starts
    /// from the state that the previous one left, or from the initial state after
    /// [`Session::reset_state`].
    fn run(&mut self, inputs: &[Tensor]) -> Result<RunAnswer, EngineError>;

    /// Resets the state that earlier runs left: the next run starts like the first one. Free if
    /// nothing was kept.
    fn reset_state(&mut self) -> Result<(), EngineError> {
        Ok(())
    }

    /// Keeps the first `length` positions of the carried state ([`LoadOptions::carrying`]) and
    /// drops the rest. State of the program itself stays, because such a program receives the
    /// position among its inputs.
    fn truncate_state(&mut self, _length: u64) -> Result<(), EngineError> {
        Ok(())
    }

    /// Sets the state from which the next run starts.
    fn begin(&mut self, begins: RunStart) -> Result<(), EngineError> {
        match begins {
            RunStart::Anew => self.reset_state(),
            RunStart::AsLeft => Ok(()),
            RunStart::Cut(length) => self.truncate_state(length),
            RunStart::Lanes(_) => Err(EngineError::Run {
                engine: "the session".to_owned(),
                operator: None,
                reason: "the session keeps no state with lanes".to_owned(),
            }),
        }
    }

    /// Returns the providers that ran the model's nodes, as the engine reports them. Complete only
    /// after the first run.
    fn placement(&mut self) -> Placement;

    /// Returns which provider will run which operators of the model's graph, as the engine assigned
    /// them while loading with [`LoadOptions::observe`]. Empty if the engine does not report it.
    fn assigned(&mut self) -> Vec<AssignedOperators> {
        Vec::new()
    }

    /// Starts to record each node of later runs. Called only if the session was loaded with
    /// [`LoadOptions::profile`].
    fn begin_profile(&mut self) {}

    /// Stops recording and returns the recorded runs. `None` if the engine cannot record this model.
    fn end_profile(&mut self) -> Option<Profile> {
        None
    }
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunAnswer {
    /// Outputs in the signature's order.
    pub outputs: Vec<Tensor>,
    /// Time of the engine's own work, from inputs in memory to outputs in memory.
    pub time: Duration,
}

/// A model to load, and the options for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadRequest {
    /// The model file. Its header was already read, so it exists and has a format that the engine
    /// may know.
    pub model: PathBuf,
    /// The inputs and outputs of the method.
    pub signature: Signature,
    /// The options.
    pub options: LoadOptions,
}

/// How to load a model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadOptions {
    /// Threads for a run; `None` leaves it to the engine (all cores).
    pub threads: Option<usize>,
    /// The execution provider to run on.
    pub provider: Provider,
    /// Fail instead of running any node outside the provider.
    pub strict: bool,
    /// Observe which provider runs each node, for [`Session::placement`]. Slows down only the first
    /// run.
    pub observe: bool,
    /// Prepare for [`Session::begin_profile`]. May slow down all runs.
    #[serde(default)]
    pub profile: bool,
    /// The engine's native library, if the user named one.
    pub library: Option<PathBuf>,
    /// The inputs and outputs of the method that stay in the session.
    #[serde(default)]
    pub carrying: Carrying,
    /// Precision of portable readings of delegate graphs in half precision.
    #[serde(default)]
    pub rounding: Rounding,
    /// Entries of ONNX Runtime's session configuration; they override those of the engine.
    #[serde(default)]
    pub ort_options: Vec<OrtOption>,
    /// The instruction set that engines compute with, by its name ([`super::cpu_features`]). ONNX
    /// Runtime always uses the instructions of the processor; it is only configured to add up like
    /// a processor of this set. `None` uses the variable `PKGTOOL_CPU_FEATURES`, and without that
    /// the instructions of the processor.
    #[serde(default)]
    pub cpu_features: Option<String>,
}
