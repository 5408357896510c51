//! What a project asks of its packages beyond the format, and who is asked for it.
//!
//! Invariant: without demands a validation is what it is without this file.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::diagnostic::Report;
use crate::package::{Backend, Found, PrecisionList, Roots, Seen};

/// What a project asks of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Demands {
    /// Codes of rules that are not looked at.
    pub off: BTreeSet<&'static str>,
    /// Tokens beside those of the precision list.
    pub extra: PrecisionList,
    /// The format's identifier that packages have in `$schema`.
    pub schema_id: Option<String>,
    /// The licences that a package may have, as SPDX identifiers or slugs; `None` for any.
    pub licenses: Option<Vec<String>>,
    /// Backends for which every model is to be there.
    pub backends: Vec<Backend>,
    /// What every model is to be capable of.
    pub capabilities: Vec<String>,
}

/// Where a file that is checked stands.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Its directory, from the file system's root.
    pub directory: &'a Path,
    /// What was seen of directories.
    pub seen: Option<Seen<'a>>,
    /// What is known of checkouts.
    pub roots: &'a Roots,
}

/// Who rules a validation.
pub trait Ruling: Sync {
    /// What is asked of a file.
    fn demands(&self, found: &Found, place: Place<'_>) -> Option<Arc<Demands>>;

    /// Hears of the precision list that holds for a file, before tokens that are asked for besides are added.
    fn hear_of_list(&self, _: Place<'_>, _: &PrecisionList) {}

    /// Has the last word on what was found, before findings about one file are put together.
    fn judge(&self, report: &mut Report);
}

/// Nobody: nothing is asked, everything is told.
#[derive(Debug, Clone, Copy)]
pub struct Unruled;

impl Ruling for Unruled {
    fn demands(&self, _: &Found, _: Place<'_>) -> Option<Arc<Demands>> {
        None
    }

    fn judge(&self, _: &mut Report) {}
}
