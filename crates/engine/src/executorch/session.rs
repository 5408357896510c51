//! A session of the ExecuTorch engine: a loaded method of a program.
//!
//! Invariant: inputs and outputs of a run fit the signature that the session was created for. The
//! measured time is from tensors of this crate to tensors of this crate. State that the method
//! keeps from run to run, such as a KV cache, lives as long as the loaded method: forgetting it
//! reloads the method.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::failure::{OPERATOR_MISSING, RuntimeFailure};
use super::ffi::{Library, LoadedMethod, MethodSource};
use super::placement::CallTarget;
use super::value::{self, ValueSlot, ValueType};
use super::{NAME, delegate, missing_kernels, opened, placement};
use crate::tensor::{DType, Tensor, TensorSpec};
use crate::{EngineError, LoadRequest, Placement, Profile, ProfiledNode, RunAnswer};
use pkgtool_base::source::FileSource;
use pkgtool_model::executorch::body::{MethodBody, ProgramBody, data_files};
use pkgtool_model::{self as model, ModelInfo};

/// A session.
pub(super) struct ExecuTorchSession {
    method: LoadedMethod,
    /// The method's input index for each input of the signature. All other inputs of the method are
    /// `None`.
    inputs: Vec<(usize, TensorSpec)>,
    outputs: Vec<(usize, TensorSpec)>,
    /// The source of the method, for reloading it.
    source: MethodSource,
    library: &'static Library,
    placement: Placement,
    /// The method's instructions, if runs are observed or may be recorded.
    calls: Option<Vec<CallTarget>>,
    /// Is `true` until an observed run has measured the times of the instructions.
    observes: bool,
    /// The method's nodes, if runs may be recorded.
    nodes: Vec<ProfiledNode>,
    /// The recorded runs, while runs are recorded.
    recorded: Option<Profile>,
    /// Is `true` if the method keeps state from run to run.
    has_state: bool,
    /// Is `true` if the method has run since it was loaded.
    has_run: bool,
}

impl ExecuTorchSession {
    /// Loads the method.
    pub(super) fn load(request: &LoadRequest) -> Result<Self, EngineError> {
        let options = &request.options;
        let path = &request.model;
        let (info, _) = model::open(path)
            .map_err(|error| invalid_model(format!("{} {error}", path.display())))?;
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
            .ok_or_else(|| invalid_model(format!("method `{name}` is missing")))?;
        let directory = path.parent().unwrap_or(Path::new(""));
        for data in &info.external {
            data.locate(directory)
                .map_err(|error| invalid_model(format!("{} {error}", path.display())))?;
        }
        let library = opened::library()?;
        delegate::check(known, &library.backends(), options)?;
        let file = FileSource::open(path).map_err(|error| invalid_model(error.to_string()))?;
        let place =
            model::executorch::place(&file).map_err(|error| invalid_model(error.to_string()))?;
        let source = MethodSource {
            path: path.clone(),
            place,
            data: data(path, &info),
            method: name.clone(),
            threads: options
                .threads
                .and_then(|threads| u32::try_from(threads).ok()),
        };
        let method = LoadedMethod::load(library, &source)
            .map_err(|failure| refused(library, known, &failure))?;
        let body = ProgramBody::read(&file).map_err(|error| invalid_model(error.to_string()))?;
        let body = body.method(name);
        let calls = body.and_then(placement::calls);
        let mut session = Self {
            inputs: places(&method.inputs, &request.signature.inputs, "inputs")?,
            outputs: places(&method.outputs, &request.signature.outputs, "outputs")?,
            method,
            source,
            library,
            placement: calls.as_ref().map_or_else(
                || placement::of_method(known),
                |calls| placement::of_call_targets(calls, &[]),
            ),
            observes: calls.is_some() && options.observe,
            calls: calls.filter(|_| options.observe || options.profile),
            nodes: body
                .filter(|_| options.profile)
                .map(placement::nodes)
                .unwrap_or_default(),
            recorded: None,
            has_state: body.is_some_and(MethodBody::has_state),
            has_run: false,
        };
        session.set_none_inputs()?;
        Ok(session)
    }

    /// Sets the inputs without a value, once after loading.
    fn set_none_inputs(&mut self) -> Result<(), EngineError> {
        for index in 0..self.method.inputs.len() {
            if self.method.inputs[index].kind == ValueType::None {
                let outcome = self.method.set(index, &value::Value::None);
                outcome.map_err(|failure| failure.to_load_error())?;
            }
        }
        Ok(())
    }

    /// Runs the method, whose inputs are set. Observed and recorded runs execute instruction by
    /// instruction, which is slower; they return the instructions' times.
    fn execute(&mut self) -> Result<Option<Vec<Duration>>, EngineError> {
        // A failed run may have changed the state, too.
        self.has_run = true;
        if !self.observes && self.recorded.is_none() {
            let outcome = self.method.run();
            outcome.map_err(|failure| failure.to_run_error())?;
            return Ok(None);
        }
        match self.method.run_in_steps() {
            Ok(times) => {
                if let Some(calls) = self.calls.as_ref().filter(|_| self.observes) {
                    self.placement = placement::of_call_targets(calls, &times);
                    self.observes = false;
                }
                Ok(Some(times))
            }
            Err(failure) => {
                // The method stopped halfway and is unusable.
                self.reload()?;
                Err(failure.to_run_error())
            }
        }
    }

    /// Adds a run to the recording, if runs are recorded.
    fn record(&mut self, steps: Option<&[Duration]>, time: Duration) {
        if let (Some(steps), Some(profile), Some(calls)) = (steps, &mut self.recorded, &self.calls)
            && !profile.is_full()
        {
            profile
                .runs
                .extend(placement::recorded_run(calls, steps, time));
        }
    }

    fn reload(&mut self) -> Result<(), EngineError> {
        self.method = LoadedMethod::load(self.library, &self.source)
            .map_err(|failure| failure.to_load_error())?;
        self.has_run = false;
        self.set_none_inputs()
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
                    "input `{name}` was fixed when the program was exported and accepts no other value"
                ));
            }
            failure.to_run_error()
        })
    }

    fn get(&self, index: usize, spec: &TensorSpec) -> Result<Tensor, EngineError> {
        let name = &spec.name;
        let value = self
            .method
            .get(index)
            .map_err(|failure| failure.to_run_error())?;
        let tensor =
            value::tensor(&value).map_err(|error| failed(format!("output `{name}` {error}")))?;
        if tensor.dtype() == spec.dtype {
            return Ok(tensor);
        }
        let (found, expected) = (tensor.dtype(), spec.dtype);
        Err(failed(format!(
            "output `{name}` has the wrong dtype: expected {expected}, got {found}"
        )))
    }
}

impl crate::Session for ExecuTorchSession {
    fn run(&mut self, inputs: &[Tensor]) -> Result<RunAnswer, EngineError> {
        let start = Instant::now();
        if inputs.len() != self.inputs.len() {
            let (found, expected) = (inputs.len(), self.inputs.len());
            return Err(failed(format!("expected {expected} inputs, got {found}")));
        }
        for (position, tensor) in inputs.iter().enumerate() {
            self.set(position, tensor)?;
        }
        let steps = self.execute()?;
        let outputs = self.outputs.iter();
        let outputs = outputs
            .map(|(index, spec)| self.get(*index, spec))
            .collect::<Result<_, _>>()?;
        let time = start.elapsed();
        self.record(steps.as_deref(), time);
        Ok(RunAnswer { outputs, time })
    }

    fn reset_state(&mut self) -> Result<(), EngineError> {
        if self.has_state && self.has_run {
            self.reload()?;
        }
        Ok(())
    }

    fn placement(&mut self) -> Placement {
        self.placement.clone()
    }

    fn begin_profile(&mut self) {
        self.recorded = self.calls.as_ref().map(|_| Profile {
            nodes: self.nodes.clone(),
            runs: Vec::new(),
        });
    }

    fn end_profile(&mut self) -> Option<Profile> {
        self.recorded.take()
    }
}

/// Matches the values of a signature to the method's values: to all of them, or to all that are not
/// `None`.
fn places(
    slots: &[ValueSlot],
    specs: &[TensorSpec],
    side: &str,
) -> Result<Vec<(usize, TensorSpec)>, EngineError> {
    let mut indices: Vec<usize> = (0..slots.len()).collect();
    if indices.len() != specs.len() {
        indices.retain(|index| slots[*index].kind != ValueType::None);
    }
    if indices.len() != specs.len() {
        let (found, expected) = (indices.len(), specs.len());
        return Err(invalid_model(format!(
            "expected {expected} {side}, but ExecuTorch finds {found}"
        )));
    }
    let places = indices.into_iter().zip(specs.iter().cloned());
    let places: Vec<_> = places.collect();
    for (index, spec) in &places {
        let name = &spec.name;
        let wanted = match slots[*index].kind {
            ValueType::Other => {
                return Err(invalid_model(format!(
                    "`{name}` of its {side} is a string or a list"
                )));
            }
            ValueType::Int => DType::Int64,
            ValueType::Double => DType::Float64,
            ValueType::Bool => DType::Bool,
            ValueType::None | ValueType::Tensor => continue,
        };
        if spec.dtype != wanted {
            let found = spec.dtype;
            let reason = format!(
                "`{name}` of its {side} has the wrong dtype: expected one {wanted}, got {found}"
            );
            return Err(invalid_model(reason));
        }
    }
    Ok(places)
}

/// Returns the files that may contain tensors of the program: all data files next to it. The `bool`
/// marks the preferred file, which is named like the program.
fn data(program: &Path, info: &ModelInfo) -> Vec<(PathBuf, bool)> {
    if info.external.is_empty() {
        return Vec::new();
    }
    let is_preferred = |path: &PathBuf| path.file_stem() == program.file_stem();
    let files = data_files(program).into_iter();
    files
        .map(|path| {
            let preferred = is_preferred(&path);
            (path, preferred)
        })
        .collect()
}

/// Converts a failed load to an error that names the missing operators.
fn refused(library: &Library, method: &model::Method, failure: &RuntimeFailure) -> EngineError {
    if failure.code != OPERATOR_MISSING {
        return failure.to_load_error();
    }
    let operators = method.operators.keys();
    let missing = operators.filter(|name| !library.has_kernel(name));
    let missing: Vec<String> = missing.cloned().collect();
    EngineError::Unsupported {
        engine: NAME.to_owned(),
        reason: missing_kernels::reason(&missing),
        operators: missing,
    }
}

fn failed(reason: String) -> EngineError {
    EngineError::Run {
        engine: NAME.to_owned(),
        operator: None,
        reason,
    }
}

fn invalid_model(reason: String) -> EngineError {
    EngineError::Load {
        engine: NAME.to_owned(),
        reason,
    }
}
