//! What an engine offers to run a model on. What the native engines offer stands here, since builds
//! without them name them, and say what is missing.

use super::provider::Provider;
use crate::package::Backend;

/// A provider of an engine that could run a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// The provider.
    pub provider: Provider,
    /// Whether it is something else than the backend that was asked for.
    pub fallback: bool,
}

impl Offer {
    /// The backend itself, by this provider.
    fn on_target(provider: Provider) -> Self {
        Self {
            provider,
            fallback: false,
        }
    }

    /// An engine's own CPU code, which is no backend.
    pub(super) fn portable(backend: Option<Backend>) -> Self {
        Self {
            provider: Provider::Cpu,
            fallback: backend.is_some(),
        }
    }
}

/// What ONNX Runtime offers.
pub(super) fn of_onnx_runtime(format: &str, backend: Option<Backend>) -> Vec<Offer> {
    if format != "onnx" {
        return Vec::new();
    }
    let providers: &[Provider] = match backend {
        Some(Backend::Xnnpack) => &[Provider::Xnnpack],
        Some(Backend::CoreMl) => &[Provider::CoreMl],
        Some(Backend::Vulkan) => &[Provider::WebGpu],
        Some(Backend::Qnn) => &[Provider::Qnn],
        // No library runs ONNX on MLX; on Apple's machines these compute on the same hardware.
        Some(Backend::Mlx) if cfg!(target_vendor = "apple") => {
            &[Provider::CoreMl, Provider::WebGpu]
        }
        None | Some(Backend::Mlx) => &[],
    };
    let on_target = providers.iter().copied().map(Offer::on_target);
    on_target.chain([Offer::portable(backend)]).collect()
}

/// What ExecuTorch offers: a program runs on the backends that it was exported for.
pub(super) fn of_executorch(format: &str, backend: Option<Backend>) -> Vec<Offer> {
    if format != "executorch" {
        return Vec::new();
    }
    vec![Offer::on_target(match backend {
        Some(Backend::Xnnpack) => Provider::Xnnpack,
        _ => Provider::Cpu,
    })]
}
