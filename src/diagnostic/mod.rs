//! Findings as data: rules' metadata, severities, places, reports, and their renderings.
//!
//! A rule makes a [`Finding`], which points with JSON paths; a file's findings become
//! [`Diagnostic`]s with byte spans; only renderers turn spans into lines and columns. Knows no
//! rule and no package.

pub mod book;
mod fix;
pub mod identity;
pub mod render;
mod report;
mod rule;
mod table;

pub use fix::{Applicability, Fix, Rename};
pub use identity::{Identities, Identity};
pub use report::{Anchor, Diagnostic, Finding, Report, SourceText, Summary};
pub use rule::{RuleMeta, Severity};
pub use table::{Align, Table};
