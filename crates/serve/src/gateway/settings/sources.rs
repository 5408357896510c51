//! Settings for packages of servers and of other accounts.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Filters for packages that are given by an address instead of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sources {
    /// Fetch only packages for these backends; empty: all.
    pub backends: Vec<String>,
    /// Fetch only variants of these precisions; empty: all.
    pub precisions: Vec<String>,
}

/// Packages of an account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Publisher {
    /// Name of the account.
    pub account: String,
    /// Directories of its packages, or addresses.
    pub packages: Vec<PathBuf>,
}
