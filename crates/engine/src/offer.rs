//! The providers that engines offer for models of a format.
//!
//! The offers of the native engines are here too. Builds without these engines list them to say
//! which engine is missing.

use super::provider::Provider;
use pkgtool_base::package::Backend;

/// A provider of an engine that could run a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The provider.
    pub provider: Provider,
    /// Is `true` if the provider is not the requested backend.
    pub fallback: bool,
}

impl Offer {
    /// An offer of the requested backend itself, by this provider.
    fn on_target(provider: Provider) -> Self {
        Self {
            provider,
            fallback: false,
        }
    }

    /// An offer of an engine's own CPU code, which belongs to no backend.
    pub(super) fn portable(backend: Option<Backend>) -> Self {
        Self {
            provider: Provider::Cpu,
            fallback: backend.is_some(),
        }
    }
}

/// Returns the offers of ONNX Runtime.
pub(super) fn of_onnx_runtime(format: &str, backend: Option<Backend>) -> Vec<Offer> {
    if format != "onnx" {
        return Vec::new();
    }
    let providers: &[Provider] = match backend {
        Some(Backend::Xnnpack) => &[Provider::Xnnpack],
        Some(Backend::CoreMl) => &[Provider::CoreMl],
        Some(Backend::Vulkan) => &[Provider::WebGpu],
        Some(Backend::Qnn) => &[Provider::Qnn],
        // No library runs ONNX on MLX. These providers compute on the same hardware on Apple's
        // machines.
        Some(Backend::Mlx) if cfg!(target_vendor = "apple") => {
            &[Provider::CoreMl, Provider::WebGpu]
        }
        None | Some(Backend::Mlx) => &[],
    };
    let on_target = providers.iter().copied().map(Offer::on_target);
    on_target.chain([Offer::portable(backend)]).collect()
}

/// Returns the offers of ExecuTorch. A program runs on the backends that it was exported for.
pub(super) fn of_executorch(format: &str, backend: Option<Backend>) -> Vec<Offer> {
    if format != "executorch" {
        return Vec::new();
    }
    vec![Offer::on_target(match backend {
        Some(Backend::Xnnpack) => Provider::Xnnpack,
        _ => Provider::Cpu,
    })]
}
