//! Files checked again and again, with what is known of the files they refer to kept.
//!
//! Invariant: what is referred to is looked at once; who changes such a file begins anew.

use super::{Checked, Error, Loaded, Options, Ruling, Run};
use crate::diagnostic::{Diagnostic, Report};
use crate::package::{Discovery, Found};

/// Checks texts that files may get.
pub struct Recheck<'a> {
    run: Run<'a>,
}

impl<'a> Recheck<'a> {
    /// For files of `discovery`; `options.paths` is not looked at.
    pub fn new(
        options: &Options,
        discovery: &'a Discovery,
        ruling: &'a dyn Ruling,
    ) -> Result<Self, Error> {
        let run = Run::new(options, &discovery.walked, ruling)?;
        Ok(Self { run })
    }

    /// The findings about one file as if it had this text, in the order of their places; `None` if it is no
    /// package's. What rules say of several files together, and of settings, is not among them.
    pub fn check(&self, found: &Found, loaded: &Loaded) -> Option<Vec<Diagnostic>> {
        match self.run.check_loaded(found, loaded) {
            Checked::File {
                path, diagnostics, ..
            } => {
                let mut report = Report {
                    files: vec![path.clone()],
                    diagnostics,
                    ..Report::default()
                };
                self.run.ruling.judge(&mut report);
                let mut diagnostics = report.diagnostics;
                diagnostics.retain(|one| one.source.path == path);
                diagnostics.sort_by_key(|one| (one.span.start, one.span.end, one.rule.code));
                Some(diagnostics)
            }
            Checked::Skipped(_) => None,
        }
    }

    /// The path as reports show it.
    pub fn shown(&self, found: &Found) -> String {
        self.run.roots.shown(&found.path)
    }
}
