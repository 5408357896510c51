//! Findings as data: metadata of rules, severities, locations, reports, and their output formats.
//!
//! A rule creates a [`Finding`], whose location is a JSON path. The findings of a file become
//! [`Diagnostic`]s with byte spans. Only renderers convert spans to lines and columns. This module
//! does not depend on individual rules or on packages.

pub mod book;
mod fix;
pub mod identity;
pub mod render;
mod report;
mod rule;
mod table;

pub use fix::{Applicability, Fix, Rename};
pub use identity::{Identity, IdentityCache};
pub use report::{Anchor, Diagnostic, Finding, Report, ReportSummary, SourceText};
pub use rule::{RuleMeta, Severity};
pub use table::{Align, TextTable};
