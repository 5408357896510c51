//! Execution providers, and the placement of a model's nodes on them.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::byte_sums::ByteSums;
use pkgtool_base::package::Backend;

/// An execution provider: the part of an engine that computes on one kind of hardware.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    /// The engine's own CPU code.
    #[default]
    Cpu,
    /// XNNPACK.
    Xnnpack,
    /// Apple's Core ML.
    CoreMl,
    /// Qualcomm's AI Engine Direct.
    Qnn,
    /// WebGPU, on Vulkan, Metal or Direct3D.
    WebGpu,
}

/// The providers that ran a model's nodes, and their shares of the work.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// Providers with at least one node, the largest share of nodes first. Empty if the engine does
    /// not report it.
    pub shares: Vec<Share>,
    /// How products of 8-bit numbers were added up. `None` if the model has no such products or the
    /// engine does not report it.
    #[serde(default)]
    pub byte_sums: Option<ByteSums>,
}

/// The share of one provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The provider, as the engine names it.
    pub provider: String,
    /// How many nodes it ran (after the engine merged nodes).
    pub nodes: u64,
    /// Its share of all nodes, 0 to 1.
    pub node_share: f64,
    /// Its share of the time of all nodes in the observed run, 0 to 1.
    pub time_share: f64,
}

/// The operators of a model that one provider runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssignedOperators {
    /// The provider, as the engine names it.
    pub provider: String,
    /// The number of nodes of each operator.
    pub operators: BTreeMap<String, u64>,
}

impl Provider {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Xnnpack => "xnnpack",
            Self::CoreMl => "coreml",
            Self::Qnn => "qnn",
            Self::WebGpu => "webgpu",
        }
    }

    /// Returns `true` if an engine calls the provider by this name. Engines name providers in their
    /// own way (`QNNExecutionProvider`, `XnnpackBackend`).
    pub fn is_named(self, name: &str) -> bool {
        let name = name.to_lowercase();
        let short = name.strip_suffix("executionprovider");
        let short = short.or_else(|| name.strip_suffix("backend"));
        short.unwrap_or(&name) == self.name()
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Placement {
    /// Returns `true` if the provider ran at least one node.
    pub fn has(&self, provider: Provider) -> bool {
        let mut shares = self.shares.iter();
        shares.any(|share| provider.is_named(&share.provider))
    }

    /// Returns `true` if a part of a program ran that was exported for the backend.
    pub fn has_delegate(&self, backend: Backend) -> bool {
        let mut shares = self.shares.iter();
        shares.any(|share| share.provider == backend.delegate_id())
    }
}
