//! Project policy: the requirements on packages and the selection of findings, from `pkgtool.toml`,
//! the command line and baselines.
//!
//! A [`Policy`] wraps a validation. It excludes files from walks, adds requirements beyond the
//! format, and filters the findings. It knows rules only by their metadata. Without a
//! `pkgtool.toml` and without options it has no effect.

mod baseline;
mod contradiction;
mod globs;
mod ignored;
mod judge;
mod lookup;
mod read;
mod selector;
mod settings;
mod sieve;
mod tighten;
mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use crate::validate::{
    self, FileLocation, ProjectPolicy, Requirements, ValidationOptions, ValidationOutcome,
    ValidationProgress, ValidationSession,
};
use pkgtool_base::diagnostic::{Report, RuleMeta};
use pkgtool_base::package::sieve::SETTINGS_FILE;
use pkgtool_base::package::{Discovery, FoundFile, LoadedFile, PrecisionList};

pub use globs::Glob;
pub use lookup::Origin;
pub use read::{EXCEPTION_KEYS, PRECISION_KEYS, SETTINGS_KEYS};
pub use selector::{RuleLevel, Selector};
pub use settings::{Cause, Exception, Overrides, PolicySettings};
pub use words::capabilities;

use contradiction::Contradictions;
use judge::{Baselines, Judge, Judgement};
use lookup::Lookup;

/// The JSON Schema (2020-12) of `pkgtool.toml`.
pub const SCHEMA: &str = include_str!("../../../../schemas/pkgtool.schema.json");

/// The settings, exceptions and baselines that apply to a validation.
#[derive(Debug)]
pub struct Policy {
    lookup: Lookup,
    baselines: Baselines,
    writes: Option<PathBuf>,
}

/// The result of a validation under a policy.
#[derive(Debug, Default)]
pub struct PolicyOutcome {
    /// The findings that are reported.
    pub outcome: ValidationOutcome,
    /// Number of warnings that count as errors because of settings.
    pub denied_warnings: usize,
    /// Number of findings that baselines list. They are not reported.
    pub known: usize,
    /// The baseline that was written, if requested.
    pub written: Option<WrittenBaseline>,
}

/// A baseline that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenBaseline {
    /// Path of the file as reports show it.
    pub file: String,
    /// Number of findings in the new baseline.
    pub findings: usize,
    /// Number of findings that the old baseline lacked.
    pub new: usize,
    /// Number of findings that only the old baseline had.
    pub gone: usize,
}

/// The error of a validation under a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The validation failed.
    #[error(transparent)]
    Validate(#[from] validate::ValidationError),
    /// The named settings file is unusable.
    #[error("{path}: {reason}; --config expects a settings file in TOML", path = path.display())]
    Settings {
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The precision tokens on the command line contradict each other or the precision list.
    #[error("--extra-precision: {0}; a token is either quantized or not, so remove it")]
    Precision(String),
    /// The named baseline is unusable.
    #[error("unusable baseline {path}: {reason}", path = path.display())]
    Baseline {
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The baseline cannot be written.
    #[error("cannot write the baseline {path}: {error}", path = path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
}

impl Policy {
    /// Creates a policy from settings and the options of a command line.
    pub fn new(origin: Origin, overrides: Overrides) -> Result<Self, PolicyError> {
        if let Origin::File(path) = &origin {
            lookup::read_settings_text(path).map_err(|(reason, _)| PolicyError::Settings {
                path: path.clone(),
                reason,
            })?;
        }
        Ok(Self {
            lookup: Lookup::new(origin, overrides),
            baselines: Baselines::default(),
            writes: None,
        })
    }

    /// Creates a policy with the settings in each `pkgtool.toml` from a file's directory up.
    pub fn nearest() -> Self {
        Self {
            lookup: Lookup::new(Origin::Nearest, Overrides::default()),
            baselines: Baselines::default(),
            writes: None,
        }
    }

    /// Uses a baseline instead of those named in settings.
    pub fn with_baseline(mut self, file: &Path) -> Result<Self, PolicyError> {
        let absolute = self.lookup.roots().absolute(file);
        let known = baseline::read(&absolute).map_err(|reason| PolicyError::Baseline {
            path: file.to_owned(),
            reason,
        })?;
        self.baselines.given = Some((absolute, known));
        Ok(self)
    }

    /// Writes all findings to a baseline, which replaces those named in settings.
    #[must_use]
    pub fn writing_baseline(mut self, file: &Path) -> Self {
        self.writes = Some(self.lookup.roots().absolute(file));
        self.baselines = Baselines {
            given: None,
            ignores_settings: true,
        };
        self
    }

    /// Returns the settings file that the caller named.
    pub fn settings_given(&self) -> Option<&Path> {
        self.lookup.given()
    }

    /// Returns the settings that apply to a file or to the files in a directory, if there are any.
    pub fn settings_for(&self, path: &Path) -> Option<Arc<PolicySettings>> {
        let path = self.lookup.roots().absolute(path);
        let directory = if path.is_dir() {
            &path
        } else {
            path.parent().unwrap_or(&path)
        };
        self.lookup.of(directory)
    }

    /// Returns the precision tokens that settings add to the list in force, for a file or the files
    /// in a directory.
    pub fn extra_precisions(&self, path: &Path) -> PrecisionList {
        let settings = self.settings_for(path);
        settings.map_or_else(PrecisionList::default, |settings| settings.extra.clone())
    }

    /// Returns a path as reports show it.
    pub fn shown(&self, path: &Path) -> String {
        match self.lookup.roots().shown(path) {
            shown if shown.is_empty() => ".".to_owned(),
            shown => shown,
        }
    }

    /// Finds the files below `paths` that settings do not exclude. Files given explicitly are
    /// always included.
    pub fn discover(&self, paths: &[PathBuf]) -> Discovery {
        self.discover_by(paths, 1)
    }

    /// Like [`Self::discover`], with a number of threads; 0 means one per core.
    fn discover_by(&self, paths: &[PathBuf], threads: usize) -> Discovery {
        self.lookup.record_named_paths(paths);
        let mut sieve = sieve::ProjectWalkFilter::new(&self.lookup);
        Discovery::walk_filtered(paths, &mut sieve, threads)
    }

    /// Validates all files found under `options.paths`. A `pkgtool.toml` among the paths is checked
    /// itself.
    pub fn validate(
        &self,
        options: &ValidationOptions,
        progress: ValidationProgress<'_>,
    ) -> Result<PolicyOutcome, PolicyError> {
        let is_settings =
            |path: &&PathBuf| path.file_name().is_some_and(|name| name == SETTINGS_FILE);
        let (settings, paths): (Vec<&PathBuf>, Vec<&PathBuf>) = options
            .paths
            .iter()
            .partition(|path| is_settings(path) && !path.is_dir());
        validate::check_names(&options.paths)?;
        let paths: Vec<PathBuf> = paths.into_iter().cloned().collect();
        let mut discovery = self.discover_by(&paths, options.jobs);
        validate::check_exist(settings.iter().copied().chain(&discovery.absent))?;
        if let Some(list) = &options.precisions {
            discovery.add_list(list);
        }
        let settings = settings
            .iter()
            .map(|path| self.lookup.roots().absolute(path));
        let settings: Vec<PathBuf> = settings.collect();
        self.rule(options, &settings, |ruling| {
            let nothing = BTreeMap::new();
            validate::validate_with_policy(&discovery, &nothing, options, ruling, progress)
        })
    }

    /// Validates the found files, some of them with the given contents. `options.paths` is ignored.
    pub fn validate_found(
        &self,
        discovery: &Discovery,
        contents: &BTreeMap<PathBuf, Vec<u8>>,
        options: &ValidationOptions,
        progress: ValidationProgress<'_>,
    ) -> Result<PolicyOutcome, PolicyError> {
        self.rule(options, &[], |ruling| {
            validate::validate_with_policy(discovery, contents, options, ruling, progress)
        })
    }

    /// Checks a text that is being edited, with the caches of `session`.
    pub fn check(
        &self,
        session: &ValidationSession,
        found: &FoundFile,
        loaded: &LoadedFile,
    ) -> Result<PolicyOutcome, PolicyError> {
        let options = ValidationOptions {
            paths: Vec::new(),
            precisions: None,
            open_models: session.opens_models(),
            jobs: 1,
        };
        self.rule(&options, &[], |ruling| {
            Ok(session.check(found, loaded, ruling))
        })
    }

    /// Validates `bytes` as if they were the file at `path`.
    pub fn validate_bytes(
        &self,
        path: &Path,
        bytes: Vec<u8>,
        options: &ValidationOptions,
    ) -> Result<PolicyOutcome, PolicyError> {
        self.rule(options, &[], |ruling| {
            validate::validate_bytes_with_policy(path, bytes, options, ruling)
        })
    }

    /// Returns the policy as a [`ProjectPolicy`], for callers that check the files of a walk one by one.
    pub fn ruling<'p>(&'p self, options: &ValidationOptions) -> impl ProjectPolicy + use<'p> {
        self.ruler(options, &[])
    }

    /// Filters the findings of a validation that ran without the policy. Its additional
    /// requirements were not checked.
    pub fn apply(&self, outcome: &mut ValidationOutcome, options: &ValidationOptions) {
        let judge = Judge::new(&self.lookup, &self.baselines, options.open_models);
        judge.judge(&mut outcome.report);
        outcome.report.sort();
    }

    fn rule(
        &self,
        options: &ValidationOptions,
        named: &[PathBuf],
        validate: impl FnOnce(
            &dyn ProjectPolicy,
        ) -> Result<ValidationOutcome, validate::ValidationError>,
    ) -> Result<PolicyOutcome, PolicyError> {
        let ruler = self.ruler(options, named);
        let outcome = validate(&ruler)?;
        let overrides = self.lookup.overrides();
        if let Some(reason) = ruler.contradictions.of_command_line(overrides) {
            return Err(PolicyError::Precision(reason));
        }
        let (judgement, written) = ruler
            .left
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        Ok(PolicyOutcome {
            outcome,
            denied_warnings: judgement.denied_warnings,
            known: judgement.known,
            written: written.transpose()?,
        })
    }

    fn ruler<'p>(&'p self, options: &ValidationOptions, named: &'p [PathBuf]) -> AppliedPolicy<'p> {
        AppliedPolicy {
            policy: self,
            named,
            is_complete: options.open_models,
            contradictions: Contradictions::default(),
            left: Mutex::default(),
        }
    }

    /// Writes the findings of a report to a baseline, and removes them from the report. Entries of
    /// files that were not checked are kept.
    fn write(
        &self,
        file: &Path,
        judge: &Judge<'_>,
        report: &mut Report,
        judgement: &mut Judgement,
    ) -> Result<WrittenBaseline, PolicyError> {
        let before = if file.symlink_metadata().is_ok() {
            baseline::read(file).map_err(|reason| PolicyError::Baseline {
                path: file.to_owned(),
                reason: format!("{reason}; remove it, or write to another file"),
            })?
        } else {
            baseline::KnownFindings::new()
        };
        let stays = |rule: &RuleMeta| UNLISTED_RULES.contains(&rule.name);
        let (told, known): (Vec<_>, Vec<_>) = std::mem::take(&mut report.diagnostics)
            .into_iter()
            .partition(|one| stays(one.rule));
        report.diagnostics = known;
        let mut now = judge.entries(file, report);
        report.diagnostics = told;
        let stale = judge.stale(file, &before, &judgement.checked);
        for (entry, count) in &before {
            if !now.contains_key(entry) && !stale.contains_key(entry) {
                now.insert(entry.clone(), *count);
            }
        }
        baseline::write(file, &now).map_err(|error| PolicyError::Write {
            path: file.to_owned(),
            error,
        })?;
        let beyond = |of: &baseline::KnownFindings, other: &baseline::KnownFindings| {
            let more = |(entry, count): (&baseline::BaselineEntry, &usize)| {
                count.saturating_sub(other.get(entry).copied().unwrap_or(0))
            };
            of.iter().map(more).sum()
        };
        judgement.denied_warnings = 0;
        Ok(WrittenBaseline {
            file: self.lookup.roots().shown(file),
            findings: now.values().sum(),
            new: beyond(&now, &before),
            gone: beyond(&before, &now),
        })
    }
}

/// Rules about settings. Their findings never go into a baseline, since they should be fixed.
const UNLISTED_RULES: [&str; 3] = ["settings-invalid", "exception-stale", "baseline-stale"];

/// A policy during one validation.
struct AppliedPolicy<'p> {
    policy: &'p Policy,
    /// Settings files that the user named.
    named: &'p [PathBuf],
    is_complete: bool,
    contradictions: Contradictions,
    left: Mutex<(Judgement, Option<Result<WrittenBaseline, PolicyError>>)>,
}

impl ProjectPolicy for AppliedPolicy<'_> {
    fn demands(&self, found: &FoundFile, place: FileLocation<'_>) -> Option<Arc<Requirements>> {
        let lookup = &self.policy.lookup;
        let settings = lookup.settings_at(place)?;
        let file = lookup.roots().absolute(&found.path);
        let metas = validate::rule_metas().into_iter();
        let off = metas.filter(|rule| !settings.is_enabled_for(rule, &file));
        Some(Arc::new(Requirements {
            off: off.map(|rule| rule.code).collect(),
            extra: settings.extra.clone(),
            schema_id: settings.schema_id.clone(),
            licenses: settings.licenses.clone(),
            backends: settings.backends.clone(),
            capabilities: settings.capabilities.clone(),
            overlays: settings.overlays.clone(),
        }))
    }

    fn observe_list(&self, place: FileLocation<'_>, list: &PrecisionList) {
        let lookup = &self.policy.lookup;
        if let Some(settings) = lookup.settings_at(place) {
            self.contradictions
                .record(&settings, lookup.overrides(), list);
        }
    }

    fn filter_report(&self, report: &mut Report) {
        let Policy {
            lookup,
            baselines,
            writes,
        } = self.policy;
        for file in self.named {
            lookup.file(file);
            report.files.push(lookup.roots().shown(file));
        }
        let mut judge = Judge::new(lookup, baselines, self.is_complete);
        judge.writes = writes.is_some();
        judge.contradictions = Some(&self.contradictions);
        let mut judgement = judge.judge(report);
        let written = writes
            .as_ref()
            .map(|file| self.policy.write(file, &judge, report, &mut judgement));
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = (judgement, written);
    }
}
