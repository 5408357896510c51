//! The backends that the config format supports.

use std::fmt;

/// A backend of the config format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// XNNPACK, on CPUs.
    Xnnpack,
    /// Core ML, on Apple devices.
    CoreMl,
    /// Vulkan, on GPUs.
    Vulkan,
    /// Qualcomm's AI Engine Direct.
    Qnn,
    /// MLX, on Apple silicon.
    Mlx,
}

impl Backend {
    /// All backends in the order of the specification.
    pub const ALL: [Self; 5] = [
        Self::Xnnpack,
        Self::CoreMl,
        Self::Vulkan,
        Self::Qnn,
        Self::Mlx,
    ];

    /// Returns the name in configs, directory names and file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xnnpack => "xnnpack",
            Self::CoreMl => "coreml",
            Self::Vulkan => "vulkan",
            Self::Qnn => "qnn",
            Self::Mlx => "mlx",
        }
    }

    /// Returns the name for use in sentences.
    pub fn title(self) -> &'static str {
        match self {
            Self::Xnnpack => "XNNPACK",
            Self::CoreMl => "Core ML",
            Self::Vulkan => "Vulkan",
            Self::Qnn => "QNN",
            Self::Mlx => "MLX",
        }
    }

    /// Returns the backend with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|backend| backend.name() == name)
    }

    /// Returns the id under which ExecuTorch registers this backend's delegate in a program.
    pub const fn delegate_id(self) -> &'static str {
        match self {
            Self::Xnnpack => "XnnpackBackend",
            Self::CoreMl => "CoreMLBackend",
            Self::Vulkan => "VulkanBackend",
            Self::Qnn => "QnnBackend",
            Self::Mlx => "MLXBackend",
        }
    }

    /// Returns the backend that registers delegates under this id.
    pub fn of_delegate(id: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|backend| backend.delegate_id() == id)
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
