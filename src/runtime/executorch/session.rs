//! A loaded method of a program.
//!
//! Invariant: what a run takes and gives fits the signature that the session was made for; time is
//! measured from our tensors to our tensors. What the method keeps from run to run, such as a cache,
//! lives as long as the session.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::failure::{Failure, OPERATOR_MISSING};
use super::ffi::{Library, Method, Source};
use super::value::{self, Kind, Slot};
use super::{NAME, delegate, opened};
use crate::model::{self, ModelInfo};
use crate::runtime::{
    self, Answer, DType, EngineError, LoadOptions, LoadRequest, Placement, Share, Tensor,
    TensorSpec,
};
use crate::source::FileSource;

/// What a share of nodes is called that no delegate runs.
const KERNELS: &str = "cpu";

/// A session.
pub(super) struct ExecuTorchSession {
    method: Method,
    /// Where the inputs of the signature go; what is left over is nothing to the program either.
    inputs: Vec<(usize, TensorSpec)>,
    outputs: Vec<(usize, TensorSpec)>,
    /// How many nodes each provider has.
    nodes: BTreeMap<String, u64>,
    /// Time of delegates and of kernels in the first run.
    times: Option<(f64, f64)>,
}

impl ExecuTorchSession {
    /// Loads the method.
    pub(super) fn load(request: &LoadRequest) -> Result<Self, EngineError> {
        let LoadOptions {
            threads, observe, ..
        } = request.options;
        let unreadable = |reason: String| EngineError::Load {
            engine: NAME.to_owned(),
            reason,
        };
        let (info, _) = model::open(&request.model)
            .map_err(|error| unreadable(format!("{} {error}", request.model.display())))?;
        if info.format != "executorch" {
            return Err(EngineError::Unsupported {
                engine: NAME.to_owned(),
                operators: Vec::new(),
                reason: "ExecuTorch runs its own programs, not ONNX models".to_owned(),
            });
        }
        let name = &request.signature.method;
        let known = info
            .method(name)
            .ok_or_else(|| unreadable(format!("it has no method `{name}`")))?;
        let library = opened::library()?;
        delegate::check(known, &library.backends(), &request.options)?;
        let place = FileSource::open(&request.model)
            .map_err(|error| error.to_string())
            .and_then(|source| {
                model::executorch::place(&source).map_err(|error| error.to_string())
            });
        let source = Source {
            path: &request.model,
            place: place.map_err(unreadable)?,
            data: &data_files(&request.model, &info),
            method: name,
            threads: threads.and_then(|threads| u32::try_from(threads).ok()),
            observe,
        };
        let method =
            Method::load(library, &source).map_err(|failure| refused(library, known, &failure))?;
        let mut session = Self {
            inputs: places(&method.inputs, &request.signature.inputs, "inputs")?,
            outputs: places(&method.outputs, &request.signature.outputs, "outputs")?,
            nodes: nodes(known),
            method,
            times: None,
        };
        session.set_nothing()?;
        Ok(session)
    }

    /// Sets inputs that are nothing, once and for all.
    fn set_nothing(&mut self) -> Result<(), EngineError> {
        for index in 0..self.method.inputs.len() {
            if self.method.inputs[index].kind == Kind::None {
                let outcome = self.method.set(index, &value::Value::None);
                outcome.map_err(|failure| failure.of_loading())?;
            }
        }
        Ok(())
    }

    fn set(&mut self, position: usize, tensor: &Tensor) -> Result<(), EngineError> {
        let (index, spec) = &self.inputs[position];
        let slot = &self.method.inputs[*index];
        let wrong = |error: value::ValueError| failed(format!("input `{}` {error}", spec.name));
        let elements = value::elements(tensor, slot).map_err(wrong)?;
        let value = value::value(tensor, &elements, slot).map_err(wrong)?;
        let outcome = self.method.set(*index, &value);
        outcome.map_err(|failure| {
            if failure.is_about_fixed_value() {
                let name = &spec.name;
                return failed(format!(
                    "input `{name}` was fixed when the program was exported: it takes no other value"
                ));
            }
            failure.of_running()
        })
    }

    fn get(&self, index: usize, spec: &TensorSpec) -> Result<Tensor, EngineError> {
        let name = &spec.name;
        let value = self
            .method
            .get(index)
            .map_err(|failure| failure.of_running())?;
        let tensor =
            value::tensor(&value).map_err(|error| failed(format!("output `{name}` {error}")))?;
        if tensor.dtype() == spec.dtype {
            return Ok(tensor);
        }
        let (found, expected) = (tensor.dtype(), spec.dtype);
        Err(failed(format!(
            "output `{name}` is {found}, and the model says {expected}"
        )))
    }
}

impl runtime::Session for ExecuTorchSession {
    fn run(&mut self, inputs: &[Tensor]) -> Result<Answer, EngineError> {
        let start = Instant::now();
        if inputs.len() != self.inputs.len() {
            let (found, expected) = (inputs.len(), self.inputs.len());
            return Err(failed(format!("it takes {expected} inputs, not {found}")));
        }
        for (position, tensor) in inputs.iter().enumerate() {
            self.set(position, tensor)?;
        }
        self.method.run().map_err(|failure| failure.of_running())?;
        let outputs = self.outputs.iter();
        let outputs = outputs
            .map(|(index, spec)| self.get(*index, spec))
            .collect::<Result<_, _>>()?;
        let time = start.elapsed();
        self.times.get_or_insert_with(|| self.method.times());
        Ok(Answer { outputs, time })
    }

    fn placement(&mut self) -> Placement {
        Placement {
            shares: shares(&self.nodes, self.times.unwrap_or_default()),
        }
    }
}

/// Partitions of each delegate, and calls of kernels.
fn nodes(method: &model::Method) -> BTreeMap<String, u64> {
    let mut nodes: BTreeMap<String, u64> = BTreeMap::new();
    for delegate in &method.delegates {
        *nodes.entry(delegate.id.clone()).or_default() += 1;
    }
    let kernels: u64 = method.operators.values().sum();
    if kernels > 0 {
        nodes.insert(KERNELS.to_owned(), kernels);
    }
    nodes
}

/// Nodes as the program has them, time as it was measured: in delegates together, and in kernels.
#[expect(
    clippy::cast_precision_loss,
    reason = "programs have fewer than 2^53 nodes"
)]
fn shares(nodes: &BTreeMap<String, u64>, (delegates, kernels): (f64, f64)) -> Vec<Share> {
    let all: u64 = nodes.values().sum();
    let outside = nodes.get(KERNELS).unwrap_or(&0);
    let inside = all - outside;
    let mut shares: Vec<Share> = nodes
        .iter()
        .map(|(provider, &count)| {
            let node_share = count as f64 / all as f64;
            let time = match provider.as_str() {
                KERNELS => kernels,
                _ => delegates * count as f64 / inside as f64,
            };
            Share {
                provider: provider.clone(),
                nodes: count,
                node_share,
                time_share: if delegates + kernels > 0.0 {
                    time / (delegates + kernels)
                } else {
                    node_share
                },
            }
        })
        .collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.nodes));
    shares
}

/// Which of the method's values a signature means: all, or all that are something.
fn places(
    slots: &[Slot],
    specs: &[TensorSpec],
    side: &str,
) -> Result<Vec<(usize, TensorSpec)>, EngineError> {
    let mut indices: Vec<usize> = (0..slots.len()).collect();
    if indices.len() != specs.len() {
        indices.retain(|index| slots[*index].kind != Kind::None);
    }
    let load = |reason| EngineError::Load {
        engine: NAME.to_owned(),
        reason,
    };
    if indices.len() != specs.len() {
        let (found, expected) = (indices.len(), specs.len());
        return Err(load(format!("it sees {found} {side}, not {expected}")));
    }
    let places = indices.into_iter().zip(specs.iter().cloned());
    let places: Vec<_> = places.collect();
    for (index, spec) in &places {
        let name = &spec.name;
        let wanted = match slots[*index].kind {
            Kind::Other => return Err(load(format!("`{name}` of its {side} is a string or list"))),
            Kind::Int => DType::Int64,
            Kind::Double => DType::Float64,
            Kind::Bool => DType::Bool,
            Kind::None | Kind::Tensor => continue,
        };
        if spec.dtype != wanted {
            let found = spec.dtype;
            let reason = format!("`{name}` of its {side} is one {wanted}, not {found}");
            return Err(load(reason));
        }
    }
    Ok(places)
}

/// Files with tensors that are not in the program: all that lie beside it. The one that is named like
/// the program is preferred.
fn data_files(program: &Path, info: &ModelInfo) -> Vec<(PathBuf, bool)> {
    if info.external.is_empty() {
        return Vec::new();
    }
    let directory = program.parent().filter(|path| !path.as_os_str().is_empty());
    let entries = directory.unwrap_or(Path::new(".")).read_dir();
    let mut files: Vec<PathBuf> = entries
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "ptd"))
        .collect();
    files.sort();
    let is_preferred = |path: &PathBuf| path.file_stem() == program.file_stem();
    let files = files.into_iter();
    files
        .map(|path| {
            let preferred = is_preferred(&path);
            (path, preferred)
        })
        .collect()
}

/// Why a method was not loaded; operators without code by their names.
fn refused(library: &Library, method: &model::Method, failure: &Failure) -> EngineError {
    if failure.code != OPERATOR_MISSING {
        return failure.of_loading();
    }
    let operators = method.operators.keys();
    EngineError::Unsupported {
        engine: NAME.to_owned(),
        operators: operators
            .filter(|name| !library.has_kernel(name))
            .cloned()
            .collect(),
        reason: "there is no kernel for this in ExecuTorch's Python package".to_owned(),
    }
}

fn failed(reason: String) -> EngineError {
    EngineError::Run {
        engine: NAME.to_owned(),
        operator: None,
        reason,
    }
}
