//! Options that `run`, `chat`, `bench` and `compare` share: the model to run, and the engines that
//! may run it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::super::byte_count::byte_count;
use super::super::device_args::DeviceArgs;
use super::super::exit::Failure;
use super::deadline;
use pkgtool_base::package::Backend;
use pkgtool_engine::runtime::cores::CoreChoice;
use pkgtool_engine::runtime::device::DeviceAddress;
use pkgtool_engine::runtime::process::sandbox::SandboxMode;
use pkgtool_engine::runtime::selection::{self, Selection, SelectionCriteria, SelectionError};
use pkgtool_engine::runtime::target::StartRequest;
use pkgtool_engine::runtime::worker::Launcher;
use pkgtool_engine::tensor::input::InputArgs;
use pkgtool_engine::tensor::limit::MemoryLimit;
use pkgtool_engine::{Carrying, ENGINES, OrtOption, Rounding, cpu_features};

/// The description of generating inputs in errors about the time limit.
pub(super) const GENERATING_INPUTS: &str = "generating the inputs";

/// Options for commands that run one variant: the variant of a package, and its engine.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct VariantArgs {
    /// Precision of the variant [default: the first in the config]
    #[arg(long, value_name = "TOKEN")]
    precision: Option<String>,

    /// Backend: selects a package of a directory, and the backend for a bare model file
    #[arg(long, value_name = "NAME", value_parser = backend_parser(), help_heading = "Target")]
    backend: Option<Backend>,

    /// Engine; `auto` takes the best engine that works
    #[arg(long, default_value = "auto", value_parser = engine_parser())]
    engine: String,
}

/// A choice of variant and engine. Absent values are unspecified.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct VariantChoice<'a> {
    /// Precision of the variant.
    pub(super) precision: Option<&'a str>,
    /// Backend that selects a package of a directory, or that a bare model file is run on.
    pub(super) backend: Option<Backend>,
    /// The engine that the user named.
    pub(super) engine: Option<&'a str>,
}

impl VariantArgs {
    /// Returns the choice that the options describe.
    pub(super) fn which(&self) -> VariantChoice<'_> {
        VariantChoice {
            precision: self.precision.as_deref(),
            backend: self.backend,
            engine: engine_name(&self.engine),
        }
    }
}

/// Options for the engine of a model and for limits.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Target")]
pub(super) struct TargetArgs {
    /// Component of a multi-component variant
    #[arg(long, value_name = "NAME")]
    pub(super) component: Option<String>,

    /// Method [default: `forward`, or the only one]
    #[arg(long, value_name = "NAME")]
    pub(super) method: Option<String>,

    /// Fail instead of falling back to anything but the package's backend
    #[arg(long)]
    pub(super) strict: bool,

    /// Number of threads per run [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: Option<u16>,

    /// Cores on which the model runs: `big` (the fastest ones), `little` (the slowest ones), `all`, or numbers such as
    /// `0-3,6` [default: the system decides]
    #[arg(long, value_name = "big|little|all|LIST")]
    pub(super) cores: Option<CoreChoice>,

    /// Path of the ONNX Runtime library [default: search for it]
    #[arg(long, value_name = "FILE")]
    pub(super) ort_lib: Option<PathBuf>,

    /// Precision for Core ML, MLX and Vulkan programs in half precision when their backend is
    /// missing: `wide` computes in float32 with unchanged weights, `half` rounds every result as
    /// the program declares
    #[arg(long, value_name = "HOW", value_parser = rounding_parser(), default_value = "wide")]
    pub(super) rounding: Rounding,

    /// Session option for ONNX Runtime, overriding those set for the model; may be given several
    /// times
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) ort_option: Vec<OrtOption>,

    /// CPU instructions that engines use [default: all that the processor has]. ONNX Runtime only
    /// distinguishes whether VNNI is included
    #[arg(long, value_name = "SET", env = "PKGTOOL_CPU_FEATURES", value_parser = PossibleValuesParser::new(cpu_features()))]
    pub(super) cpu_features: Option<String>,

    /// Sandbox of the processes that run models: `auto` restricts them as far as the system can,
    /// `require` fails unless fully restricted, `off` disables it
    #[arg(long, value_name = "MODE", value_parser = sandbox_parser(), default_value = "auto", env = "PKGTOOL_SANDBOX")]
    pub(super) sandbox: SandboxMode,

    /// Time limit of each step, in seconds: generating the inputs, loading, one run, comparing the
    /// outputs of a set
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,

    /// Maximum memory of a model's process and of its generated inputs, such as `512MiB` or `4GiB`
    /// [default: three quarters of the free memory]
    #[arg(long, value_name = "SIZE", value_parser = byte_count)]
    pub(super) max_memory: Option<u64>,

    #[command(flatten)]
    pub(super) device: DeviceArgs,
}

impl TargetArgs {
    /// Selects a method of a model below `path`.
    pub(super) fn select(
        &self,
        path: &Path,
        which: VariantChoice<'_>,
    ) -> Result<Selection, SelectionError> {
        let choice = self.selection_criteria(which);
        selection::select(path, &choice)
    }

    /// Selects a link of a chain below `path`: a component or a method.
    pub(super) fn select_link(
        &self,
        path: &Path,
        which: VariantChoice<'_>,
        name: &str,
    ) -> Result<Selection, SelectionError> {
        selection::select_link(path, &self.selection_criteria(which), name)
    }

    /// Returns the criteria for selecting a method.
    pub(super) fn selection_criteria(&self, which: VariantChoice<'_>) -> SelectionCriteria {
        SelectionCriteria {
            precision: which.precision.map(str::to_owned),
            backend: which.backend,
            component: self.component.clone(),
            method: self.method.clone(),
        }
    }

    /// Returns the description of the run for the runtime.
    pub(super) fn start_request(
        &self,
        selection: &Selection,
        which: VariantChoice<'_>,
    ) -> StartRequest {
        let variant = selection.variant.as_ref();
        StartRequest {
            model: selection.model.clone(),
            format: selection.info.format,
            signature: selection.signature.clone(),
            backend: which
                .backend
                .or(variant.and_then(|variant| variant.backend)),
            engine: which.engine.map(str::to_owned),
            strict: self.strict,
            threads: self.threads.map(usize::from),
            observe: true,
            library: self.ort_lib.clone(),
            carrying: Carrying::default(),
            rounding: self.rounding,
            ort_options: self.ort_option.clone(),
            cpu_features: self.cpu_features.clone(),
            cores: self.cores.clone(),
        }
    }

    /// Returns the launcher of worker processes on the first device that the user named.
    pub(super) fn launcher(&self) -> Result<Launcher, Failure> {
        self.launcher_on(self.device.first())
    }

    /// Returns the launcher of worker processes on a device.
    pub(super) fn launcher_on(&self, device: &DeviceAddress) -> Result<Launcher, Failure> {
        let mut launcher = Launcher::new()
            .map_err(|error| Failure::Other(format!("cannot find the pkgtool binary: {error}")))?;
        launcher.timeout = self.timeout;
        launcher.memory_limit = Some(self.memory_limit());
        launcher.device = self.device.how.connect(device)?;
        let also_here = self.device.each().contains(&DeviceAddress::Local);
        if launcher.device.is_some() && self.ort_lib.is_some() && !also_here {
            let reason = "--ort-lib names a library of this machine: give one for the device with --device-lib";
            return Err(Failure::Other(reason.to_owned()));
        }
        Ok(launcher)
    }

    /// Returns input options with the limit on memory.
    pub(super) fn limit_memory(&self, inputs: InputArgs) -> InputArgs {
        InputArgs {
            memory: Some(self.memory_limit()),
            ..inputs
        }
    }

    /// Runs work of the command itself within the time limit.
    pub(super) fn within<T>(&self, doing: &str, work: impl FnOnce() -> T) -> T {
        deadline::within(self.timeout, doing, work)
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.max_memory
            .map_or(MemoryLimit::OfFree, MemoryLimit::Option)
    }
}

/// Returns a parser for the modes of the sandbox.
pub(super) fn sandbox_parser() -> impl TypedValueParser<Value = SandboxMode> {
    PossibleValuesParser::new(SandboxMode::ALL.map(SandboxMode::name))
        .map(|name| name.parse().expect("only their names pass"))
}

/// Returns a parser for the names of engines and `auto`.
pub(super) fn engine_parser() -> PossibleValuesParser {
    let engines = ENGINES.iter().map(|engine| engine.name());
    PossibleValuesParser::new(["auto"].into_iter().chain(engines))
}

/// Returns the engine's name for [`StartRequest`]; `None` for `auto`.
pub(super) fn engine_name(argument: &str) -> Option<&str> {
    (argument != "auto").then_some(argument)
}

/// Returns a parser for the names of backends.
pub(super) fn backend_parser() -> impl TypedValueParser<Value = Backend> {
    PossibleValuesParser::new(Backend::ALL.map(Backend::name))
        .map(|name| Backend::from_name(&name).expect("only their names pass"))
}

/// Parses a number of seconds above 0.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "expected a number above 0".to_owned())
}

/// Parses how half precision is computed.
fn rounding_parser() -> impl TypedValueParser<Value = Rounding> {
    PossibleValuesParser::new(["wide", "half"]).map(|name| match name.as_str() {
        "half" => Rounding::Half,
        _ => Rounding::Wide,
    })
}
