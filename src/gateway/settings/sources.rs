//! Settings of packages that are on servers.

use serde::{Deserialize, Serialize};

/// What is fetched of packages whose address stands where a directory could.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sources {
    /// Only packages for these backends; empty: all.
    pub backends: Vec<String>,
    /// Only variants of these precisions; empty: all.
    pub precisions: Vec<String>,
}
