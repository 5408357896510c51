//! Execution providers of ONNX Runtime: detects whether the loaded library has one, sets up a
//! session for it, and explains how to install a missing one.
//!
//! Invariant: a session is created for exactly the requested provider, with at most the CPU as
//! fallback. A provider that cannot be set up is an error.

use std::env::consts::ARCH;

use ort::environment::Environment;
use ort::ep::{CPU, CoreML, ExecutionProvider, QNN, WebGPU, XNNPACK};
use ort::memory::DeviceType;
use ort::session::builder::SessionBuilder;

use super::failure;
use crate::library::Plugin;
use crate::{EngineError, LoadOptions, Provider};

/// Returns `true` if the loaded library contains the provider.
pub(super) fn is_built_in(provider: Provider) -> bool {
    let available = match provider {
        Provider::Cpu => return true,
        Provider::Xnnpack => XNNPACK::is_available(),
        Provider::CoreMl => CoreML::is_available(),
        Provider::Qnn => QNN::is_available(),
        Provider::WebGpu => WebGPU::is_available(),
    };
    available.unwrap_or(false)
}

/// Returns ONNX Runtime's name of the provider.
pub(super) fn full_name(provider: Provider) -> &'static str {
    match provider {
        Provider::Cpu => CPU::NAME,
        Provider::Xnnpack => XNNPACK::NAME,
        Provider::CoreMl => CoreML::NAME,
        Provider::Qnn => QNN::NAME,
        Provider::WebGpu => WebGPU::NAME,
    }
}

/// The error for a missing provider.
pub(super) fn absent(provider: Provider, reason: &str) -> EngineError {
    let help = match provider {
        Provider::Cpu => "install ONNX Runtime with `pip install onnxruntime`",
        Provider::Xnnpack => {
            "name a library that was built with XNNPACK with --ort-lib (no package for desktops \
             has one)"
        }
        Provider::CoreMl => "it needs an Apple system: run `pip install onnxruntime` there",
        Provider::Qnn => "install it with `pip install onnxruntime-qnn`",
        Provider::WebGpu => "install it with `pip install onnxruntime-webgpu`",
    };
    EngineError::Unavailable {
        what: format!("ONNX Runtime's {} provider", provider.name()),
        reason: reason.to_owned(),
        help: help.to_owned(),
    }
}

/// The error for a provider that does not start.
pub(super) fn unusable(provider: Provider, message: &str) -> EngineError {
    let help = match provider {
        Provider::Cpu | Provider::Xnnpack => "name another library with --ort-lib",
        Provider::CoreMl => "it needs macOS 12 or later",
        Provider::Qnn => {
            "it needs a Qualcomm processor, or on x86-64 the emulator of `onnxruntime-qnn`"
        }
        Provider::WebGpu => "it needs a driver of Vulkan, Metal or Direct3D 12",
    };
    EngineError::Unavailable {
        what: format!("ONNX Runtime's {} provider", provider.name()),
        reason: failure::trimmed(message),
        help: help.to_owned(),
    }
}

/// Sets up a session for the provider.
pub(super) fn set_up(
    mut builder: SessionBuilder,
    environment: &Environment,
    plugin: Option<&Plugin>,
    options: &LoadOptions,
) -> Result<SessionBuilder, EngineError> {
    let provider = options.provider;
    let failed = |error: ort::Error<SessionBuilder>| unusable(provider, error.message());
    if options.strict && provider != Provider::Cpu {
        builder = builder.with_disable_cpu_fallback().map_err(failed)?;
    }
    if let Some(plugin) = plugin {
        return set_up_plugin(builder, environment, plugin);
    }
    let dispatch = match provider {
        Provider::Cpu => return set_up_cpu(builder, environment),
        Provider::Xnnpack => {
            let threads = options.threads.and_then(std::num::NonZeroUsize::new);
            let xnnpack = XNNPACK::default();
            match threads {
                Some(threads) => xnnpack.with_intra_op_num_threads(threads).build(),
                None => xnnpack.build(),
            }
        }
        Provider::CoreMl => CoreML::default()
            .with_model_format(ort::ep::coreml::ModelFormat::MLProgram)
            .build(),
        Provider::Qnn => QNN::default().build(),
        Provider::WebGpu => WebGPU::default().build(),
    };
    builder
        .with_execution_providers([dispatch.error_on_failure()])
        .map_err(failed)
}

/// Selects the CPU device. By default ONNX Runtime chooses among all devices, including those of
/// plug-ins that other sessions use, and Core ML on macOS.
fn set_up_cpu(
    builder: SessionBuilder,
    environment: &Environment,
) -> Result<SessionBuilder, EngineError> {
    let is_cpu = |device: &ort::device::Device<'_>| device.ep().is_ok_and(|name| name == CPU::NAME);
    let devices: Vec<_> = environment.devices().filter(is_cpu).take(1).collect();
    if devices.is_empty() {
        return Ok(builder);
    }
    builder
        .with_devices(devices, None)
        .map_err(|error| unusable(Provider::Cpu, error.message()))
}

/// Selects one device of the plug-in: preferably an NPU, then a GPU. A list with devices of several
/// types has crashed the library.
fn set_up_plugin(
    builder: SessionBuilder,
    environment: &Environment,
    plugin: &Plugin,
) -> Result<SessionBuilder, EngineError> {
    let name = full_name(plugin.provider);
    let devices = environment.devices();
    let mut devices: Vec<_> = devices
        .filter(|device| device.ep().is_ok_and(|ep| ep == name))
        .collect();
    devices.sort_by_key(|device| match device.hardware_device().ty() {
        DeviceType::NPU => 0,
        DeviceType::GPU => 1,
        _ => 2,
    });
    let Some(device) = devices.into_iter().next() else {
        let reason = format!("{} found no device", plugin.path.display());
        return Err(unusable(plugin.provider, &reason));
    };
    let options: Vec<(String, String)> = device_options(plugin)
        .into_iter()
        .map(|(key, value)| (format!("{name}.{key}"), value))
        .collect();
    builder
        .with_devices([device], Some(&options))
        .map_err(|error| unusable(plugin.provider, error.message()))
}

/// Returns the options of the QNN device: the path of the processor's library. On x86-64 that
/// library is an emulator, which also needs the processor to emulate: the HTP v75 of a Snapdragon 8
/// Gen 3.
fn device_options(plugin: &Plugin) -> Vec<(&'static str, String)> {
    let Some(backend) = &plugin.backend else {
        return Vec::new();
    };
    let mut options = vec![("backend_path", backend.to_string_lossy().into_owned())];
    if ARCH == "x86_64" {
        options.extend([
            ("enable_htp_fp16_precision", "1".to_owned()),
            ("soc_model", "57".to_owned()),
            ("htp_arch", "75".to_owned()),
        ]);
    }
    options
}
