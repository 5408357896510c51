//! What a service is, for the registry: constants of its package, and what a predict config may set.

use crate::database::Timestamp;

/// What a service is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// Model token of the package: the family.
    pub family: String,
    /// Size token.
    pub size: Option<String>,
    /// SPDX expression, as far as the configs have one.
    pub license: Option<String>,
    /// What the model can do, in the first config's order.
    pub capabilities: Vec<String>,
    /// Backends that have a variant here, in the specification's order.
    pub backends: Vec<String>,
    /// Precisions, and whether each is quantized.
    pub precisions: Vec<(String, bool)>,
    /// Component names of multi-component variants.
    pub components: Vec<String>,
    /// Method names that may be called.
    pub methods: Vec<String>,
    /// What is taken without a config.
    pub default_backend: Option<String>,
    /// What is taken without a config.
    pub default_precision: Option<String>,
    /// Bytes of the default variant's files.
    pub size_bytes: u64,
    /// When the package's first file was made, or the service first seen.
    pub created_at: Timestamp,
    /// When a file of the package changed last.
    pub updated_at: Timestamp,
}
