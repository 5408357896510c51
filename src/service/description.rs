//! What a service is, for the registry: constants of its package, and what a predict config may set.

use crate::database::Timestamp;
use crate::tensor::TensorSpec;

/// What a service is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Model token of the package.
    pub model: String,
    /// Family of the package: its `family`, else its model token.
    pub family: String,
    /// Size token.
    pub size: Option<String>,
    /// Licence, as the first config writes it: an SPDX identifier where there is one.
    pub license: Option<String>,
    /// What the model can do, in the first config's order.
    pub capabilities: Vec<String>,
    /// Backends that have a variant here, in the specification's order.
    pub backends: Vec<String>,
    /// Precisions, and whether each is quantized.
    pub precisions: Vec<(String, bool)>,
    /// Component names of multi-component variants, of those components that are models.
    pub components: Vec<String>,
    /// Method names that may be called.
    pub methods: Vec<String>,
    /// What each method takes and gives, the preferred variant first.
    pub signatures: Vec<MethodDescription>,
    /// What is taken without a config.
    pub default_backend: Option<String>,
    /// What is taken without a config.
    pub default_precision: Option<String>,
    /// Whether a picture is taken in place of tensors: it has a capability of images.
    pub takes_pictures: bool,
    /// Whether texts are taken in place of tensors: it embeds them, and has a tokenizer.
    pub embeds_texts: bool,
    /// The labels that texts or pictures are told apart by; empty where that is not done here.
    pub labels: Vec<String>,
    /// Whether this build runs at least one of its models; otherwise every request fails with
    /// [`super::CallError::NoInstances`].
    pub runnable: bool,
    /// Bytes of the default variant's files.
    pub size_bytes: u64,
    /// When the package's first file was made, or the service first seen.
    pub created_at: Timestamp,
    /// When a file of the package changed last.
    pub updated_at: Timestamp,
}

/// One method of one model file, and the predict config that chooses it.
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
    /// Why nothing here runs it, if so.
    pub not_runnable: Option<String>,
    /// Inputs in calling order; empty where they are no tensors.
    pub inputs: Vec<TensorSpec>,
    /// Outputs in order; empty where they are no tensors.
    pub outputs: Vec<TensorSpec>,
}

impl Description {
    /// The precisions of one backend, and whether each is quantized.
    pub fn precisions_of(&self, backend: &str) -> Vec<&(String, bool)> {
        let has = |precision: &str| {
            let mut methods = self.signatures.iter();
            methods.any(|method| method.backend == backend && method.precision == precision)
        };
        let all = self.precisions.iter();
        all.filter(|(precision, _)| has(precision)).collect()
    }
}
