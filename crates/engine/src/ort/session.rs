//! A session of the ONNX Runtime engine: a loaded model.
//!
//! Invariant: inputs and outputs of a run fit the signature that the session was created for. The
//! measured time is from tensors of this crate to tensors of this crate.

use std::borrow::Cow;
use std::slice;
use std::time::{Duration, Instant};

use ort::session::Session;
use ort::session::builder::SessionBuilder;

use super::byte_mode::{self, ByteSumMode};
use super::carried::CarriedValues;
use super::events::EventFile;
use super::known_wrong::{InputReduction, Workarounds};
use super::{NAME, assigned, environment, failure, output, placement, provider, recorded, value};
use crate::feedback;
use crate::tensor::{Signature, Tensor, TensorSpec};
use crate::{
    AssignedOperators, ByteSums, EngineError, LoadOptions, LoadRequest, OrtOption, Placement,
    Profile, RunAnswer, RunStart,
};

/// A session, and the placement observed in its first run.
pub(super) struct OrtSession {
    // Dropped before the profile's directory is removed.
    session: Session,
    /// ONNX Runtime's names of the inputs, in the signature's order.
    inputs: Vec<String>,
    outputs: Vec<TensorSpec>,
    /// Inputs that must not be empty, because the library would compute a wrong result.
    direct: Vec<InputReduction>,
    /// State that the session carries from run to run.
    carried: Option<CarriedValues>,
    events: Option<EventFile>,
    /// Times of the recorded runs, while runs are recorded.
    recorded: Option<Vec<Duration>>,
    placement: Placement,
    /// Whether the first run is observed.
    observes: bool,
    byte_sums: Option<ByteSums>,
}

impl OrtSession {
    /// Loads the model. `verdict` lists the settings that avoid known wrong results.
    pub(super) fn load(request: &LoadRequest, verdict: Workarounds) -> Result<Self, EngineError> {
        let options = &request.options;
        feedback::check(NAME, request)?;
        check_options(&options.ort_options)?;
        let modes = byte_mode::candidate_modes(&verdict.bytes, options)?;
        let ready = environment::ready(options)?;
        let events = if options.observe || options.profile {
            EventFile::new().ok()
        } else {
            None
        };
        let (session, byte_sums) = byte_mode::first_that_loads(&modes, |mode| {
            let builder = Session::builder(&ready.environment)
                .map_err(|error| failure::of_loading(&error))?;
            let plugin = ready.plugin.as_ref();
            let builder = provider::set_up(builder, &ready.environment, plugin, options)?;
            let builder = configured(builder, options, events.as_ref(), (&verdict.without, mode))
                .map_err(|error| failure::of_loading(&error))?;
            with_options(builder, &options.ort_options)?
                .commit_from_file(&request.model)
                .map_err(|error| {
                    with_option_hint(failure::of_loading(&error), &options.ort_options)
                })
        })?;
        Ok(Self {
            inputs: input_names(&session, &request.signature)?,
            outputs: request.signature.outputs.clone(),
            direct: verdict.empty_checks,
            carried: CarriedValues::of(request)?,
            session,
            events,
            recorded: None,
            observes: options.observe && !options.profile,
            placement: Placement::default(),
            byte_sums,
        })
    }
}

fn check_options(options: &[OrtOption]) -> Result<(), EngineError> {
    OrtOption::check_all(options).map_err(|reason| EngineError::Load {
        engine: NAME.to_owned(),
        reason: format!("--ort-option (`ort_options` of a service): {reason}"),
    })
}

/// Applies the options of the user.
fn with_options(
    mut builder: SessionBuilder,
    options: &[OrtOption],
) -> Result<SessionBuilder, EngineError> {
    for option in options {
        let set = builder.with_config_entry(option.key(), option.value());
        builder = set.map_err(|error| {
            with_option_hint(failure::of_loading(&error), slice::from_ref(option))
        })?;
    }
    Ok(builder)
}

/// Mentions the user's options in an error, because they may be the cause.
fn with_option_hint(mut error: EngineError, options: &[OrtOption]) -> EngineError {
    let (EngineError::Load { reason, .. } | EngineError::Unsupported { reason, .. }) = &mut error
    else {
        return error;
    };
    if !options.is_empty() {
        let set: Vec<String> = options.iter().map(|it| format!("`{it}`")).collect();
        let set = set.join(", ");
        *reason += "; --ort-option (`ort_options` of a service) sets ";
        *reason += &set;
        *reason += ": try without them";
    }
    error
}

/// Applies the settings for correct results, and for observing.
fn configured(
    mut builder: SessionBuilder,
    options: &LoadOptions,
    events: Option<&EventFile>,
    (without, mode): (&[String], &ByteSumMode),
) -> ort::Result<SessionBuilder> {
    // This pass merges two consecutive quantisations of different steps into one whose results fit
    // neither.
    builder = builder.with_config_entry("session.disable_double_qdq_remover", "1")?;
    if mode.rewrites_weights {
        builder = builder.with_config_entry(byte_mode::UNSIGNED_WEIGHTS_OPTION, "1")?;
    }
    let mut without: Vec<&str> = without.iter().map(String::as_str).collect();
    without.extend(Some(byte_mode::FUSION_PASS).filter(|_| mode.unfused));
    if !without.is_empty() {
        builder = builder.with_disabled_optimizers(without.join(";"))?;
    }
    if let Some(threads) = options.threads {
        builder = builder.with_intra_threads(threads)?;
    }
    if let Some(events) = events {
        builder = builder.with_profiling(events.prefix())?;
    }
    if options.observe {
        builder = builder.with_config_entry(assigned::OPTION, "1")?;
    }
    Ok(builder)
}

/// Returns the library's names of the inputs. The signature invents names for unnamed inputs.
fn input_names(session: &Session, signature: &Signature) -> Result<Vec<String>, EngineError> {
    let counts = (session.inputs().len(), session.outputs().len());
    if counts != (signature.inputs.len(), signature.outputs.len()) {
        return Err(EngineError::Load {
            engine: NAME.to_owned(),
            reason: format!(
                "ONNX Runtime finds {} inputs and {} outputs, expected {} and {}",
                counts.0,
                counts.1,
                signature.inputs.len(),
                signature.outputs.len()
            ),
        });
    }
    let known = session.inputs();
    let specs = signature.inputs.iter().enumerate();
    let names = specs.map(|(index, spec)| {
        let same = known.iter().find(|input| input.name() == spec.name);
        same.unwrap_or(&known[index]).name().to_owned()
    });
    Ok(names.collect())
}

impl crate::Session for OrtSession {
    fn run(&mut self, inputs: &[Tensor]) -> Result<RunAnswer, EngineError> {
        let seen = match &self.carried {
            Some(carried) => carried.given_inputs(inputs),
            None => inputs.iter().map(Some).collect(),
        };
        for direct in &self.direct {
            direct.check(&seen)?;
        }
        let start = Instant::now();
        if let Some(carried) = &mut self.carried {
            let sides = (self.inputs.as_slice(), self.outputs.as_slice());
            let outputs = carried.run(&mut self.session, sides, inputs)?;
            let time = start.elapsed();
            self.observe(time);
            return Ok(RunAnswer { outputs, time });
        }
        let failed = |error: ort::Error| failure::of_running(&error);
        let mut values = Vec::with_capacity(inputs.len());
        for (name, tensor) in self.inputs.iter().zip(inputs) {
            values.push((
                Cow::Borrowed(name.as_str()),
                value::input(tensor).map_err(failed)?,
            ));
        }
        let found = self.session.run(values).map_err(failed)?;
        let mut outputs = Vec::with_capacity(self.outputs.len());
        // Matching is by position: two outputs may have the same name.
        for (spec, (_, value)) in self.outputs.iter().zip(found) {
            outputs.push(output::of(spec, value)?);
        }
        let time = start.elapsed();
        self.observe(time);
        if outputs.len() == self.outputs.len() {
            Ok(RunAnswer { outputs, time })
        } else {
            let (found, expected) = (outputs.len(), self.outputs.len());
            Err(output::failed(format!(
                "the run returned {found} outputs, expected {expected}"
            )))
        }
    }

    fn reset_state(&mut self) -> Result<(), EngineError> {
        self.begin(RunStart::Anew)
    }

    fn truncate_state(&mut self, length: u64) -> Result<(), EngineError> {
        self.begin(RunStart::Cut(length))
    }

    fn begin(&mut self, begins: RunStart) -> Result<(), EngineError> {
        let carried = self.carried.as_mut();
        carried.map_or(Ok(()), |carried| carried.begin(&begins))
    }

    fn placement(&mut self) -> Placement {
        Placement {
            byte_sums: self.byte_sums,
            ..self.placement.clone()
        }
    }

    fn assigned(&mut self) -> Vec<AssignedOperators> {
        assigned::operators(&self.session).unwrap_or_default()
    }

    fn begin_profile(&mut self) {
        self.recorded = Some(Vec::new());
    }

    fn end_profile(&mut self) -> Option<Profile> {
        let times = self.recorded.take()?;
        let events = self.events.take()?.finish(&mut self.session);
        Some(recorded::profile(events, &times))
    }
}

impl OrtSession {
    /// Reads the placement that the first run recorded, and keeps the time of a recorded run.
    fn observe(&mut self, time: Duration) {
        if let Some(times) = &mut self.recorded {
            times.push(time);
        }
        if self.observes
            && let Some(events) = self.events.take()
        {
            self.placement = placement::placement(events.finish(&mut self.session));
        }
    }
}
