//! Findings as data: rules' metadata, severities, places, reports, and their renderings.
//!
//! A rule makes a [`Finding`], which points with JSON paths; a file's findings become
//! [`Diagnostic`]s with byte spans; only renderers turn spans into lines and columns. Knows no
//! rule and no package.

mod fix;
pub mod identity;
pub mod render;
mod report;
mod rule;

pub use fix::{Applicability, Fix, Rename};
pub use identity::{Identities, Identity};
pub use report::{Anchor, Diagnostic, Finding, Report, SourceText, Summary};
pub use rule::{RuleMeta, Severity};
