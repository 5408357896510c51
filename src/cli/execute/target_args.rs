//! Arguments that `run`, `bench` and `compare` share: what to run and what may run it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};

use super::super::exit::Failure;
use super::deadline;
use crate::engine::{Carrying, ENGINES, OrtOption, Rounding, cpu_features};
use crate::package::Backend;
use crate::runtime::process::sandbox::Mode;
use crate::runtime::selection::{self, Choice, Selection, SelectionError};
use crate::runtime::target::Wish;
use crate::runtime::worker::Launcher;
use crate::tensor::input::InputArgs;
use crate::tensor::limit::MemoryLimit;

/// What the making of inputs is called when it takes too long.
pub(super) const MAKING_INPUTS: &str = "making the inputs";

/// Which variant of a package, and what runs it: for commands that run one.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct VariantArgs {
    /// Precision of the variant; without it the first in the config
    #[arg(long, value_name = "TOKEN")]
    precision: Option<String>,

    /// Backend: which package of a directory, and what a bare model file is run on
    #[arg(long, value_name = "NAME", value_parser = backend_parser(), help_heading = "Target")]
    backend: Option<Backend>,

    /// Engine; `auto` takes the best that works
    #[arg(long, default_value = "auto", value_parser = engine_parser())]
    engine: String,
}

/// Which variant, and what runs it; what is absent is left open.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Which<'a> {
    /// Precision of the variant.
    pub(super) precision: Option<&'a str>,
    /// Which package of a directory, and what a bare model file is run on.
    pub(super) backend: Option<Backend>,
    /// The engine that was named.
    pub(super) engine: Option<&'a str>,
}

impl VariantArgs {
    /// What they name.
    pub(super) fn which(&self) -> Which<'_> {
        Which {
            precision: self.precision.as_deref(),
            backend: self.backend,
            engine: named_engine(&self.engine),
        }
    }
}

/// Where a model runs, and within which limits.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Target")]
pub(super) struct TargetArgs {
    /// Component of a multi-component variant
    #[arg(long, value_name = "NAME")]
    pub(super) component: Option<String>,

    /// Method; without it `forward`, or the only one
    #[arg(long, value_name = "NAME")]
    pub(super) method: Option<String>,

    /// Fail rather than run anywhere else than on the package's backend
    #[arg(long)]
    pub(super) strict: bool,

    /// Threads of a run; without it, as many as there are cores
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(super) threads: Option<u16>,

    /// ONNX Runtime's library, instead of the one that is found
    #[arg(long, value_name = "FILE")]
    pub(super) ort_lib: Option<PathBuf>,

    /// How Core ML, MLX and Vulkan programs in half precision are computed where their backend is not: `wide`
    /// in float32 with their weights as they are, `half` with every result rounded as the program declares
    #[arg(long, value_name = "HOW", value_parser = rounding_parser(), default_value = "wide")]
    pub(super) rounding: Rounding,

    /// Option of ONNX Runtime's session, over those that are set for the model; may be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) ort_option: Vec<OrtOption>,

    /// Instructions that engines compute with, instead of the most that the processor has; ONNX Runtime
    /// takes from it only whether there is VNNI
    #[arg(long, value_name = "SET", env = "PKGTOOL_CPU_FEATURES", value_parser = PossibleValuesParser::new(cpu_features()))]
    pub(super) cpu_features: Option<String>,

    /// Whether the processes that run models are confined: `auto` as far as the system can, `require` fully or not at
    /// all, `off` never
    #[arg(long, value_name = "MODE", value_parser = sandbox_parser(), default_value = "auto", env = "PKGTOOL_SANDBOX")]
    pub(super) sandbox: Mode,

    /// Longest time that each step may take, in seconds: making the inputs, loading, one run, comparing
    /// the outputs of a set
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) timeout: Option<Duration>,

    /// Most memory that a model's process may take, and the inputs that are made for it: `512MiB`,
    /// `4GiB`; without it three quarters of what is free
    #[arg(long, value_name = "SIZE", value_parser = byte_count)]
    pub(super) max_memory: Option<u64>,
}

impl TargetArgs {
    /// Selects a method below `path`.
    pub(super) fn select(
        &self,
        path: &Path,
        which: Which<'_>,
    ) -> Result<Selection, SelectionError> {
        let choice = self.choice(which);
        selection::select(path, &choice)
    }

    /// Selects a link of a chain below `path`: a component or a method.
    pub(super) fn select_link(
        &self,
        path: &Path,
        which: Which<'_>,
        name: &str,
    ) -> Result<Selection, SelectionError> {
        selection::select_link(path, &self.choice(which), name)
    }

    /// What these arguments leave to choose from.
    pub(super) fn choice(&self, which: Which<'_>) -> Choice {
        Choice {
            precision: which.precision.map(str::to_owned),
            backend: which.backend,
            component: self.component.clone(),
            method: self.method.clone(),
        }
    }

    /// What is to be run.
    pub(super) fn wish(&self, selection: &Selection, which: Which<'_>) -> Wish {
        let variant = selection.variant.as_ref();
        Wish {
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
        }
    }

    /// How worker processes are started.
    pub(super) fn launcher(&self) -> Result<Launcher, Failure> {
        let mut launcher = Launcher::new()
            .map_err(|error| Failure::Other(format!("cannot find my own program: {error}")))?;
        launcher.timeout = self.timeout;
        launcher.memory_limit = Some(self.memory_limit());
        Ok(launcher)
    }

    /// Inputs that are made within the limits on memory.
    pub(super) fn limited(&self, inputs: InputArgs) -> InputArgs {
        InputArgs {
            memory: Some(self.memory_limit()),
            ..inputs
        }
    }

    /// Does something that is no engine's work within the limit on time.
    pub(super) fn within<T>(&self, doing: &str, work: impl FnOnce() -> T) -> T {
        deadline::within(self.timeout, doing, work)
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.max_memory
            .map_or(MemoryLimit::OfFree, MemoryLimit::Option)
    }
}

/// Modes of the sandbox by their names.
pub(super) fn sandbox_parser() -> impl TypedValueParser<Value = Mode> {
    PossibleValuesParser::new(Mode::ALL.map(Mode::name))
        .map(|name| name.parse().expect("only their names pass"))
}

/// The engine that `--engine` names; `auto` is none.
pub(super) fn engine_parser() -> PossibleValuesParser {
    let engines = ENGINES.iter().map(|engine| engine.name());
    PossibleValuesParser::new(["auto"].into_iter().chain(engines))
}

/// The engine's name for [`Wish`].
pub(super) fn named_engine(argument: &str) -> Option<&str> {
    (argument != "auto").then_some(argument)
}

/// Backends by their names.
pub(super) fn backend_parser() -> impl TypedValueParser<Value = Backend> {
    PossibleValuesParser::new(Backend::ALL.map(Backend::name))
        .map(|name| Backend::from_name(&name).expect("only their names pass"))
}

/// A number of seconds, above 0.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| "must be above 0".to_owned())
}

/// A size in bytes with its unit. A number alone would be taken for megabytes by one and for bytes by
/// another.
fn byte_count(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" if digits.parse::<u64>().is_ok() => {
            return Err(format!(
                "it has no unit; write `{digits}MiB` or `{digits}GiB`"
            ));
        }
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        other => {
            return Err(format!(
                "`{other}` is no unit; KiB, MiB, GiB, kB, MB, GB are"
            ));
        }
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "not a whole number".to_owned())?;
    number
        .checked_mul(unit)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "out of range".to_owned())
}

/// Parses how half precision is computed.
fn rounding_parser() -> impl TypedValueParser<Value = Rounding> {
    PossibleValuesParser::new(["wide", "half"]).map(|name| match name.as_str() {
        "half" => Rounding::Half,
        _ => Rounding::Wide,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(byte_count("4GiB"), Ok(4 << 30));
        assert_eq!(byte_count("100B"), Ok(100));
        assert_eq!(
            byte_count("10"),
            Err("it has no unit; write `10MiB` or `10GiB`".to_owned())
        );
        assert_eq!(byte_count("2mb"), Ok(2_000_000));
        assert!(byte_count("0").is_err());
        assert!(byte_count("4 parsecs").is_err());
        assert!(byte_count("99999999999999GiB").is_err());
    }
}
