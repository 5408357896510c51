//! Session settings that keep ONNX Runtime's sums of 8-bit products exact on processors without
//! VNNI.
//!
//! Such processors may saturate these sums. A [`ByteSumMode`] is one combination of settings; the
//! session uses the first that loads.
//!
//! Invariant: a model whose sums would saturate is rejected, unless the user sets the option.

use super::NAME;
use super::known_wrong::ByteNeeds;
use crate::{ByteSums, EngineError, LoadOptions, Provider};
use pkgtool_kernels::Cpu;
use pkgtool_kernels::cpu::Level;

/// The session option that rewrites signed weights as unsigned ones.
pub(super) const UNSIGNED_WEIGHTS_OPTION: &str = "session.x64quantprecision";

/// The optimiser pass that fuses operators between conversions into operators on 8-bit numbers.
pub(super) const FUSION_PASS: &str = "QDQSelectorActionTransformer";

/// Settings of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ByteSumMode {
    /// Set [`UNSIGNED_WEIGHTS_OPTION`].
    pub(super) rewrites_weights: bool,
    /// Disable [`FUSION_PASS`].
    pub(super) unfused: bool,
    /// How the session then adds up; `None` if the model has no such products.
    pub(super) sums: Option<ByteSums>,
}

impl ByteSumMode {
    /// The library's default settings.
    fn plain(sums: Option<ByteSums>) -> Self {
        Self {
            sums,
            ..Self::default()
        }
    }
}

/// Returns the settings to try for a model, the best first.
pub(super) fn candidate_modes(
    needs: &ByteNeeds,
    options: &LoadOptions,
) -> Result<Vec<ByteSumMode>, EngineError> {
    modes_with(needs, options, lacks_vnni())
}

/// Returns `true` if this is an x86-64 processor without dot products of bytes (VNNI), or is used
/// as one.
fn lacks_vnni() -> bool {
    let has_vnni = matches!(Cpu::chosen().level(), Level::Avx2Vnni | Level::Avx512Vnni);
    cfg!(target_arch = "x86_64") && !has_vnni
}

fn modes_with(
    needs: &ByteNeeds,
    options: &LoadOptions,
    lacks_vnni: bool,
) -> Result<Vec<ByteSumMode>, EngineError> {
    if !needs.any {
        return Ok(vec![ByteSumMode::plain(None)]);
    }
    // Other providers have their own kernels.
    let told = |sums| Some(sums).filter(|_| options.provider == Provider::Cpu);
    let set = options
        .ort_options
        .iter()
        .find(|it| it.key() == UNSIGNED_WEIGHTS_OPTION);
    if !lacks_vnni || !needs.is_needed() {
        return Ok(vec![ByteSumMode::plain(told(ByteSums::Exact))]);
    }
    if let Some(set) = set {
        let is_reached = !needs.unfused && needs.beyond.is_empty();
        let sums = if set.value() == "1" && is_reached {
            ByteSums::UnsignedWeights
        } else {
            ByteSums::Saturating
        };
        return Ok(vec![ByteSumMode::plain(told(sums))]);
    }
    let is_of_cpu = options.provider != Provider::Qnn;
    if is_of_cpu && !needs.beyond.is_empty() {
        return Err(refused(
            needs.beyond.clone(),
            "the sums of its 8-bit products would saturate on this processor, which lacks VNNI",
        ));
    }
    let unfused = ByteSumMode {
        rewrites_weights: needs.unsigned_weights,
        unfused: true,
        sums: told(ByteSums::Float32),
    };
    if is_of_cpu && needs.unfused {
        return Ok(vec![unfused]);
    }
    let mut modes = vec![ByteSumMode {
        rewrites_weights: true,
        unfused: false,
        sums: told(ByteSums::UnsignedWeights),
    }];
    if is_of_cpu && needs.unsigned_fused_weights {
        modes.push(unfused);
    }
    Ok(modes)
}

/// Creates a session with the first settings that load. Rejects the model if only the default
/// settings load.
pub(super) fn first_that_loads<T>(
    modes: &[ByteSumMode],
    mut make: impl FnMut(&ByteSumMode) -> Result<T, EngineError>,
) -> Result<(T, Option<ByteSums>), EngineError> {
    let mut last = None;
    for mode in modes {
        match make(mode) {
            Ok(session) => return Ok((session, mode.sums)),
            Err(error) => last = Some((mode, error)),
        }
    }
    let (mode, error) = last.expect("there is at least one mode");
    if mode.rewrites_weights && make(&ByteSumMode::default()).is_ok() {
        return Err(refused(
            Vec::new(),
            &format!(
                "the sums of its 8-bit products would saturate on this processor, which lacks VNNI, \
                 and it does not load with {UNSIGNED_WEIGHTS_OPTION}=1 ({error})"
            ),
        ));
    }
    Err(error)
}

fn refused(operators: Vec<String>, reason: &str) -> EngineError {
    EngineError::Unsupported {
        engine: NAME.to_owned(),
        operators,
        reason: format!("{reason}; use the engine tract, which sums exactly on every processor"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(of: impl FnOnce(&mut ByteNeeds)) -> ByteNeeds {
        let mut needs = ByteNeeds {
            any: true,
            ..ByteNeeds::default()
        };
        of(&mut needs);
        needs
    }

    fn sums(needs: &ByteNeeds, options: &[&str], lacks_vnni: bool) -> Option<ByteSums> {
        let parsed = options
            .iter()
            .map(|text| text.parse().expect("it is right"));
        let options = LoadOptions {
            ort_options: parsed.collect(),
            ..LoadOptions::default()
        };
        let modes = modes_with(needs, &options, lacks_vnni);
        modes.expect("it is not refused")[0].sums
    }

    #[test]
    fn nothing_is_done_where_nothing_saturates() {
        assert_eq!(sums(&ByteNeeds::default(), &[], true), None);
        assert_eq!(sums(&needs(|_| ()), &[], true), Some(ByteSums::Exact));
        let weights = needs(|it| it.unsigned_weights = true);
        assert_eq!(sums(&weights, &[], false), Some(ByteSums::Exact));
        assert_eq!(sums(&weights, &[], true), Some(ByteSums::UnsignedWeights));
    }

    #[test]
    fn user_settings_are_reported_unchanged() {
        let weights = needs(|it| it.unsigned_weights = true);
        let off = ["session.x64quantprecision=0"];
        assert_eq!(sums(&weights, &off, true), Some(ByteSums::Saturating));
        assert_eq!(sums(&weights, &off, false), Some(ByteSums::Exact));
        let beyond = needs(|it| it.beyond = vec!["QLinearMatMul".to_owned()]);
        let on = ["session.x64quantprecision=1"];
        assert_eq!(sums(&beyond, &on, true), Some(ByteSums::Saturating));
        assert_eq!(sums(&weights, &on, true), Some(ByteSums::UnsignedWeights));
    }

    #[test]
    fn a_model_that_loads_only_with_saturating_sums_is_refused() {
        let weights = needs(|it| it.unsigned_weights = true);
        let modes = modes_with(&weights, &LoadOptions::default(), true).expect("it is not refused");
        let error = EngineError::Load {
            engine: NAME.to_owned(),
            reason: "no kernel".to_owned(),
        };
        let make = |mode: &ByteSumMode| {
            if mode.rewrites_weights {
                Err(error.clone())
            } else {
                Ok(())
            }
        };
        let refused = first_that_loads(&modes, make).expect_err("it must not load");
        assert!(refused.is_about_the_engine(), "{refused}");
        let broken = first_that_loads(&modes, |_| Err::<(), _>(error.clone()));
        assert_eq!(broken, Err(error));
    }

    #[test]
    fn operators_are_left_unfused_where_the_option_fails() {
        let fused = needs(|it| it.unsigned_fused_weights = true);
        let modes = modes_with(&fused, &LoadOptions::default(), true).expect("it is not refused");
        let make = |mode: &ByteSumMode| {
            if mode.rewrites_weights {
                Err(EngineError::Load {
                    engine: NAME.to_owned(),
                    reason: "it is shared".to_owned(),
                })
            } else {
                Ok(mode.unfused)
            }
        };
        assert_eq!(
            first_that_loads(&modes, make),
            Ok((true, Some(ByteSums::Float32)))
        );
    }
}
