//! A project's requirements on its packages beyond the format, and the [`ProjectPolicy`] trait through
//! which validation asks for them.
//!
//! The project configuration implements [`ProjectPolicy`]. Invariant: with [`NoPolicy`], only the format
//! itself is checked.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::schema::Overlay;
use pkgtool_base::diagnostic::Report;
use pkgtool_base::package::{Backend, FoundFile, PrecisionList, RecordedDirectories, Roots};

/// A project's requirements on one file.
#[derive(Debug, Clone, Default)]
pub struct Requirements {
    /// Codes of disabled rules.
    pub off: BTreeSet<&'static str>,
    /// Precisions allowed in addition to those of the precision list.
    pub extra: PrecisionList,
    /// The required `$schema` identifier.
    pub schema_id: Option<String>,
    /// The allowed licences, as SPDX identifiers or slugs; `None` allows any.
    pub licenses: Option<Vec<String>>,
    /// Backends for which every model must exist.
    pub backends: Vec<Backend>,
    /// Capabilities that every model must have.
    pub capabilities: Vec<String>,
    /// The project's own schemas.
    pub overlays: Vec<Arc<Overlay>>,
}

/// The location of a file under validation.
#[derive(Debug, Clone, Copy)]
pub struct FileLocation<'a> {
    /// The directory of the file, as an absolute path.
    pub directory: &'a Path,
    /// Directory listings that a walk has already read.
    pub seen: Option<RecordedDirectories<'a>>,
    /// Cache of package and repository roots.
    pub roots: &'a Roots,
}

/// The source of a project's requirements.
pub trait ProjectPolicy: Sync {
    /// Returns the requirements on a file.
    fn demands(&self, found: &FoundFile, place: FileLocation<'_>) -> Option<Arc<Requirements>>;

    /// Receives the precision list that applies to a file, before the project's extra precisions
    /// are added.
    fn observe_list(&self, _: FileLocation<'_>, _: &PrecisionList) {}

    /// Filters the finished report, for example by exceptions and the baseline.
    fn filter_report(&self, report: &mut Report);
}

/// No project configuration: requires nothing and keeps every finding.
#[derive(Debug, Clone, Copy)]
pub struct NoPolicy;

impl ProjectPolicy for NoPolicy {
    fn demands(&self, _: &FoundFile, _: FileLocation<'_>) -> Option<Arc<Requirements>> {
        None
    }

    fn filter_report(&self, _: &mut Report) {}
}
