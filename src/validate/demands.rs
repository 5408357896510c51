//! A project's requirements on its packages beyond the format, and the [`Ruling`] trait through
//! which validation asks for them.
//!
//! The project configuration implements [`Ruling`]. Invariant: with [`Unruled`], only the format
//! itself is checked.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::diagnostic::Report;
use crate::package::{Backend, Found, PrecisionList, Roots, Seen};

/// A project's requirements on one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demands {
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
}

/// The location of a file under validation.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The directory of the file, as an absolute path.
    pub directory: &'a Path,
    /// Directory listings that a walk has already read.
    pub seen: Option<Seen<'a>>,
    /// Cache of package and repository roots.
    pub roots: &'a Roots,
}

/// The source of a project's requirements.
pub trait Ruling: Sync {
    /// Returns the requirements on a file.
    fn demands(&self, found: &Found, place: Place<'_>) -> Option<Arc<Demands>>;

    /// Receives the precision list that applies to a file, before the project's extra precisions
    /// are added.
    fn hear_of_list(&self, _: Place<'_>, _: &PrecisionList) {}

    /// Filters the finished report, for example by exceptions and the baseline.
    fn judge(&self, report: &mut Report);
}

/// No project configuration: requires nothing and keeps every finding.
#[derive(Debug, Clone, Copy)]
pub struct Unruled;

impl Ruling for Unruled {
    fn demands(&self, _: &Found, _: Place<'_>) -> Option<Arc<Demands>> {
        None
    }

    fn judge(&self, _: &mut Report) {}
}
