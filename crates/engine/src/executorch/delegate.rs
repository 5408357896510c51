//! Checks that the delegates of a method can run here, and names the remedy for those that cannot.

use super::NAME;
use crate::library::NativeBackend;
use crate::{EngineError, LoadOptions, Provider};
use pkgtool_base::package::Backend;
use pkgtool_model::Method;

/// Delegates that an installation may lack, and the software that runs them.
const DELEGATE_RUNNERS: [(&str, &str); 7] = [
    (
        Backend::CoreMl.delegate_id(),
        "ExecuTorch on Apple's systems, with Core ML",
    ),
    ("CudaBackend", "ExecuTorch built with CUDA"),
    (
        Backend::Mlx.delegate_id(),
        "ExecuTorch on Apple silicon, with MLX",
    ),
    ("MPSBackend", "ExecuTorch on Apple silicon, with Metal"),
    ("OpenvinoBackend", "OpenVINO, beside ExecuTorch"),
    (
        Backend::Qnn.delegate_id(),
        "Qualcomm's libraries, beside ExecuTorch",
    ),
    (
        Backend::Vulkan.delegate_id(),
        "ExecuTorch built with Vulkan",
    ),
];

/// Rejects a method with a delegate that is not registered or not usable, and a provider that could
/// not run any part of the method.
pub(super) fn check(
    method: &Method,
    registered: &[NativeBackend],
    options: &LoadOptions,
) -> Result<(), EngineError> {
    let is_there = |id: &str| {
        let known = registered.iter().find(|backend| backend.name == id);
        known.is_some_and(|backend| backend.available)
    };
    let mut missing: Vec<String> = method
        .delegates
        .iter()
        .map(|delegate| delegate.id.clone())
        .filter(|id| !is_there(id))
        .collect();
    missing.sort();
    missing.dedup();
    if !missing.is_empty() {
        let reason = reason(&missing);
        return Err(unsupported(missing, reason));
    }
    let Some(id) = backend_of(options.provider) else {
        return Ok(());
    };
    if !is_there(id) {
        return Err(EngineError::Unavailable {
            what: format!("ExecuTorch's {id}"),
            reason: "the installed library lacks it".to_owned(),
            help: format!("install {}", runner(id)),
        });
    }
    // Parts that are not delegated belong to the program as published, so they are not a fallback.
    let takes_part = method.delegates.iter().any(|delegate| delegate.id == id);
    if options.strict && !takes_part {
        let reason = format!("`{}` has no part for {id}", method.name);
        return Err(unsupported(Vec::new(), reason));
    }
    Ok(())
}

/// Returns the delegate ID of a provider; `None` for the CPU, which has no delegate.
fn backend_of(provider: Provider) -> Option<&'static str> {
    match provider {
        Provider::Cpu => None,
        Provider::Xnnpack => Some(Backend::Xnnpack.delegate_id()),
        Provider::CoreMl => Some(Backend::CoreMl.delegate_id()),
        Provider::Qnn => Some(Backend::Qnn.delegate_id()),
        // Programs do not use WebGPU; the provider stands for Vulkan.
        Provider::WebGpu => Some(Backend::Vulkan.delegate_id()),
    }
}

fn reason(missing: &[String]) -> String {
    let runners: Vec<&str> = missing.iter().map(|id| runner(id)).collect();
    format!(
        "parts of the program are for missing backends; they need {}",
        runners.join(" and ")
    )
}

fn runner(id: &str) -> &'static str {
    let known = DELEGATE_RUNNERS.iter().find(|(known, _)| *known == id);
    known.map_or("ExecuTorch built with it", |(_, runner)| runner)
}

fn unsupported(operators: Vec<String>, reason: String) -> EngineError {
    EngineError::Unsupported {
        engine: NAME.to_owned(),
        operators,
        reason,
    }
}
