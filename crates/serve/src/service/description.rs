//! Description of a service for the registry: facts of its package and the possible values of a
//! predict config.

use crate::database::Timestamp;
use pkgtool_engine::tensor::TensorSpec;
use pkgtool_media::MediaKind;

/// Description of a service for the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Model token of the package.
    pub model: String,
    /// Family of the package: its `family`, or its model token.
    pub family: String,
    /// Size token.
    pub size: Option<String>,
    /// Licence as in the first config: an SPDX identifier if possible.
    pub license: Option<String>,
    /// Capabilities of the model, in the first config's order.
    pub capabilities: Vec<String>,
    /// Backends with a local variant, in the specification's order.
    pub backends: Vec<String>,
    /// Precisions, each with whether it is quantized.
    pub precisions: Vec<(String, bool)>,
    /// Names of the components that are models, in multi-component variants.
    pub components: Vec<String>,
    /// Names of the callable methods.
    pub methods: Vec<String>,
    /// Inputs and outputs of each method, the preferred variant first.
    pub signatures: Vec<MethodDescription>,
    /// Backend of requests without a config.
    pub default_backend: Option<String>,
    /// Precision of requests without a config.
    pub default_precision: Option<String>,
    /// What requests may send instead of tensors, because a capability is about pictures or sounds.
    pub takes: Option<MediaKind>,
    /// True if requests may send texts instead of tensors, because it embeds texts and has a
    /// tokenizer.
    pub embeds_texts: bool,
    /// Labels of a classifier of texts or pictures; empty for other models.
    pub labels: Vec<String>,
    /// True if this build runs at least one of its models. Otherwise every request fails with
    /// [`super::CallError::NoInstances`].
    pub runnable: bool,
    /// Size of the default variant's files, in bytes.
    pub size_bytes: u64,
    /// Creation time of the package's oldest file, or the time when the service was first seen.
    pub created_at: Timestamp,
    /// Time of the last change to a file of the package.
    pub updated_at: Timestamp,
}

/// One method of one model file, with the predict config that selects it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodDescription {
    /// Backend.
    pub backend: String,
    /// Precision.
    pub precision: String,
    /// Component of a multi-component variant.
    pub component: Option<String>,
    /// Method.
    pub method: String,
    /// Reason why this build cannot run it, if so.
    pub not_runnable: Option<String>,
    /// Inputs in calling order; empty for inputs that are not tensors.
    pub inputs: Vec<TensorSpec>,
    /// Outputs in order; empty for outputs that are not tensors.
    pub outputs: Vec<TensorSpec>,
}

impl Description {
    /// Returns the precisions of one backend, each with whether it is quantized.
    pub fn precisions_of(&self, backend: &str) -> Vec<&(String, bool)> {
        let has = |precision: &str| {
            let mut methods = self.signatures.iter();
            methods.any(|method| method.backend == backend && method.precision == precision)
        };
        let all = self.precisions.iter();
        all.filter(|(precision, _)| has(precision)).collect()
    }
}
