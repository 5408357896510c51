//! Repeated checks of changing texts, with the facts about referenced files kept between the
//! checks.
//!
//! `pkgtool fix` uses it to check each candidate text. Invariant: a referenced file is inspected
//! once; a caller that changes such a file creates a new [`Recheck`].

use super::{
    CheckResult, LoadedFile, ProjectPolicy, ValidationError, ValidationOptions, ValidationRun,
};
use pkgtool_base::diagnostic::{Diagnostic, Report};
use pkgtool_base::package::{Discovery, FoundFile};

/// Checks candidate texts of files.
pub struct Recheck<'a> {
    run: ValidationRun<'a>,
}

impl<'a> Recheck<'a> {
    /// Prepares checks of the files of `discovery`. Ignores `options.paths`.
    pub fn new(
        options: &ValidationOptions,
        discovery: &'a Discovery,
        ruling: &'a dyn ProjectPolicy,
    ) -> Result<Self, ValidationError> {
        let run = ValidationRun::new(options, &discovery.walked, ruling)?;
        Ok(Self { run })
    }

    /// Returns the findings about one file with this text, in order of position; `None` if the file
    /// is not part of a package. Findings that compare several files or concern settings are not
    /// included.
    pub fn check(&self, found: &FoundFile, loaded: &LoadedFile) -> Option<Vec<Diagnostic>> {
        match self.run.check_loaded(found, loaded) {
            CheckResult::File {
                path, diagnostics, ..
            } => {
                let mut report = Report {
                    files: vec![path.clone()],
                    diagnostics,
                    ..Report::default()
                };
                self.run.ruling.filter_report(&mut report);
                let mut diagnostics = report.diagnostics;
                diagnostics.retain(|one| one.source.path == path);
                diagnostics.sort_by_key(|one| (one.span.start, one.span.end, one.rule.code));
                Some(diagnostics)
            }
            CheckResult::Skipped(_) => None,
        }
    }

    /// Returns the path as reports show it.
    pub fn shown(&self, found: &FoundFile) -> String {
        self.run.roots.shown(&found.path)
    }
}
