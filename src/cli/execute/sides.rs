//! The sides of `bench` and `compare`: every combination of paths, precisions, backends and
//! engines, each with a label. All sides run on the same inputs.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::target_args::{TargetArgs, VariantChoice, backend_parser, engine_name, engine_parser};
use crate::cli::exit::Failure;
use crate::cli::output;
use pkgtool_base::package::Backend;
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::ByteSums;
use pkgtool_engine::runtime::cores::core_list;
use pkgtool_engine::runtime::device::DeviceAddress;
use pkgtool_engine::runtime::process::sandbox::Sandbox;
use pkgtool_engine::runtime::selection::Selection;
use pkgtool_engine::runtime::target::{Candidate, StartRequest, Started};
use pkgtool_engine::tensor::input::{InputArgs, JointModel, JointSignature};
use pkgtool_engine::tensor::{Tensor, TensorSpec};

/// Options with lists whose combinations are run.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct SideArgs {
    /// Precisions of the package; give several to compare them
    #[arg(long, value_name = "TOKEN,…", value_delimiter = ',')]
    precision: Vec<String>,

    /// Backends: select packages of a directory, and backends for bare model files; give several to
    /// compare them
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = backend_parser(), help_heading = "Target")]
    backend: Vec<Backend>,

    /// Engines; give several to compare them. `auto` takes the best engine that works
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', default_value = "auto", value_parser = engine_parser())]
    engine: Vec<String>,
}

/// One combination to run.
#[derive(Debug, Clone)]
pub(super) struct ExecutionSide {
    /// The backend that the user named.
    pub(super) backend: Option<Backend>,
    /// The selected method of a model.
    pub(super) selection: Selection,
    /// The engine that the user named.
    pub(super) engine: Option<String>,
    /// The device that runs it.
    pub(super) device: DeviceAddress,
}

impl SideArgs {
    /// Returns every combination, ordered by path, then backend, precision, engine and device.
    pub(super) fn sides(
        &self,
        paths: &[PathBuf],
        target: &TargetArgs,
    ) -> Result<Vec<ExecutionSide>, Failure> {
        let mut sides = Vec::new();
        for path in paths {
            for (backend, selection) in self.selections(path, target)? {
                for (engine, device) in self.places(target) {
                    sides.push(ExecutionSide {
                        backend,
                        selection: selection.clone(),
                        engine: engine_name(engine).map(str::to_owned),
                        device: device.clone(),
                    });
                }
            }
        }
        Ok(sides)
    }

    /// Returns every combination of an engine and a device.
    fn places<'a>(
        &'a self,
        target: &'a TargetArgs,
    ) -> impl Iterator<Item = (&'a String, &'a DeviceAddress)> {
        let devices = target.device.each();
        let engines = self.engine.iter();
        engines.flat_map(move |engine| devices.iter().map(move |device| (engine, device)))
    }

    fn selections(
        &self,
        path: &Path,
        target: &TargetArgs,
    ) -> Result<Vec<(Option<Backend>, Selection)>, Failure> {
        let mut selections = Vec::new();
        for backend in each_or_none(&self.backend, Clone::clone) {
            for precision in each_or_none(&self.precision, String::as_str) {
                let which = VariantChoice {
                    precision,
                    backend,
                    engine: None,
                };
                selections.push((backend, super::select_method(target, path, which)?));
            }
        }
        Ok(selections)
    }

    /// Returns every combination of a backend and a precision that the user named.
    pub(super) fn variants(&self) -> Vec<(Option<Backend>, Option<String>)> {
        let backends = each_or_none(&self.backend, Clone::clone).into_iter();
        let variants = backends.flat_map(|backend: Option<Backend>| {
            let precisions = each_or_none(&self.precision, String::clone).into_iter();
            precisions.map(move |precision| (backend, precision))
        });
        variants.collect()
    }

    /// Returns the backends that the user named.
    pub(super) fn backends(&self) -> &[Backend] {
        &self.backend
    }

    /// Returns the precisions that the user named.
    pub(super) fn precisions(&self) -> &[String] {
        &self.precision
    }

    /// Returns the engines that the user named, with [`None`] for the best that works.
    pub(super) fn engines(&self) -> impl Iterator<Item = Option<&str>> {
        self.engine.iter().map(|engine| engine_name(engine))
    }
}

/// Returns each element of a list, or a single `None` if the list is empty.
fn each_or_none<'l, T, U: 'l>(list: &'l [T], view: fn(&'l T) -> U) -> Vec<Option<U>> {
    if list.is_empty() {
        return vec![None];
    }
    list.iter().map(|item| Some(view(item))).collect()
}

/// How a side runs, for reports.
#[derive(Debug, Serialize)]
pub(super) struct ExecutionSideEngine {
    engine: &'static str,
    provider: &'static str,
    fallback: bool,
    /// A remark if an engine computes the program by its own interpretation instead of its
    /// backend's.
    pub(super) reading: Option<String>,
    /// How products of 8-bit numbers are summed, if the model has any.
    pub(super) byte_sums: Option<ByteSums>,
    /// Sandbox of the worker process.
    sandbox: Option<Sandbox>,
    /// The device that runs it, unless it is this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    /// The cores to which it is pinned, if the user chose them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pinned_cores: Option<Vec<u32>>,
}

impl ExecutionSideEngine {
    /// Creates the description of a running side.
    pub(super) fn of(side: &ExecutionSide, started: &Started) -> Self {
        Self {
            engine: started.candidate.engine,
            provider: started.candidate.provider.name(),
            fallback: started.candidate.fallback,
            reading: side.reading(started),
            byte_sums: started.placement.byte_sums,
            sandbox: started.sandbox.clone(),
            device: started.worker.device().map(ToString::to_string),
            pinned_cores: started.pinned_cores.clone(),
        }
    }

    /// Formats engine and provider, such as `tract (cpu)`.
    pub(super) fn on(&self) -> String {
        format!("{} ({})", self.engine, self.provider)
    }

    /// Writes the remarks on how the side computes, one per line.
    pub(super) fn write_remarks(&self, text: &mut String) -> fmt::Result {
        if let Some(reading) = &self.reading {
            writeln!(text, "   {reading}")?;
        }
        if let Some(sums) = self.byte_sums {
            writeln!(text, "   {sums}")?;
        }
        if let Some(cores) = &self.pinned_cores {
            writeln!(text, "   {}", pinned_text(cores))?;
        }
        Ok(())
    }
}

/// Describes the cores to which a model is pinned: `pinned to 4 cores: 0-3`.
pub(super) fn pinned_text(cores: &[u32]) -> String {
    let plural = if cores.len() == 1 { "core" } else { "cores" };
    format!("pinned to {} {plural}: {}", cores.len(), core_list(cores))
}

impl ExecutionSide {
    /// Returns a remark if an engine computes the program by its own interpretation.
    fn reading(&self, started: &Started) -> Option<String> {
        let selection = &self.selection;
        let reading = started
            .candidate
            .reading(&selection.info, &selection.signature.method);
        reading.map(|reading| reading.to_string())
    }

    /// Returns backend and engine.
    pub(super) fn which(&self) -> VariantChoice<'_> {
        VariantChoice {
            precision: None,
            backend: self.backend,
            engine: self.engine.as_deref(),
        }
    }

    /// Returns the description of the run for the runtime.
    pub(super) fn wish(&self, target: &TargetArgs) -> StartRequest {
        target.start_request(&self.selection, self.which())
    }

    /// Returns a label that distinguishes the side from others, such as `glimpse decoder int8
    /// (qnn), ort on cpu`.
    pub(super) fn label(&self, candidate: Candidate) -> String {
        let label = format!("{}, {candidate}", what(&self.selection));
        match &self.device {
            DeviceAddress::Local => label,
            device => format!("{label} on {device}"),
        }
    }
}

/// Returns the common signature of all sides and the arguments for it. Prints a note about sizes
/// without effect.
pub(super) fn joint_signature(
    sides: &[ExecutionSide],
    labels: impl Fn(usize, &ExecutionSide) -> String,
    given: &InputArgs,
) -> Result<(JointSignature, InputArgs), Failure> {
    let parties = sides.iter().enumerate().map(|(place, side)| JointModel {
        label: labels(place, side),
        signature: side.selection.signature.clone(),
    });
    let fail = |error: &dyn fmt::Display| Failure::Other(error.to_string());
    let joint = JointSignature::of(parties.collect()).map_err(|error| fail(&error))?;
    let (args, notes) = joint.args(given).map_err(|error| fail(&error))?;
    for note in notes {
        output::note(&note);
    }
    Ok((joint, args))
}

/// Name, dtype and shape of an input tensor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct GivenInput {
    name: String,
    dtype: &'static str,
    shape: Vec<u64>,
}

impl GivenInput {
    /// Describes the inputs of a side.
    pub(super) fn list(specs: &[TensorSpec], tensors: &[Tensor]) -> Vec<Self> {
        let pairs = specs.iter().zip(tensors);
        pairs
            .map(|(spec, tensor)| Self {
                name: spec.name.clone(),
                dtype: tensor.dtype().name(),
                shape: tensor.shape().to_vec(),
            })
            .collect()
    }

    /// Formats several inputs on one line.
    pub(super) fn line(inputs: &[Self]) -> String {
        let texts: Vec<String> = inputs.iter().map(Self::to_string).collect();
        if texts.is_empty() {
            return "no inputs".to_owned();
        }
        texts.join(", ")
    }
}

/// Formats as `image float32[1, 3, 64, 64]`.
impl fmt::Display for GivenInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, dtype, shape } = self;
        write!(f, "{} {dtype}{shape:?}", defuse_line(name))
    }
}

/// Describes a selection in a few words: `glimpse int8 for qnn`, or the model file's name.
pub(super) fn what(selection: &Selection) -> String {
    let Some(variant) = &selection.variant else {
        let name = selection.model.file_name().unwrap_or_default();
        return name.to_string_lossy().into_owned();
    };
    let mut words = vec![variant.package.clone()];
    words.extend(variant.component.clone());
    words.extend(variant.precision.clone());
    if let Some(backend) = variant.backend {
        words.push(format!("for {backend}"));
    }
    words.join(" ")
}
