//! Validation of package configs and precision lists: turns the files that discovery found into a
//! report of findings.
//!
//! Stages: load → schema → config → files → model headers. Each stage collects facts into a
//! `Context`, and rules turn facts into findings. No stage stops at the first problem. A rule whose
//! facts are missing stays silent, because the stage that failed has its own rule. Models are never
//! run; only their headers are read.

mod context;
mod demands;
mod doubtful;
mod files;
mod interfaces;
mod kept;
mod limit;
mod listing;
mod mend;
mod nearby;
mod placed;
mod recheck;
mod references;

mod rules;
mod schema;
mod session;
mod signature;
mod tokenizer;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use context::{Context, Precisions};
use files::FileCache;
use limit::FindingLimiter;
use pkgtool_base::diagnostic::{Diagnostic, Finding, Report, RuleMeta, SourceText};
use pkgtool_base::package::card::{self, Card};
use pkgtool_base::package::sieve::NoFilter;
use pkgtool_base::package::{
    DirectoryListing, Discovery, FoundFile, FoundKind, LoadedFile, MarkerSet, PrecisionList,
    RecordedDirectories, Roots, Skipped, WalkRecord, discover, foreign, model_file, roots, steps,
};
use pkgtool_base::source::hashed::Map;
use pkgtool_base::source::spread::parallel_map;
use placed::ConfigFacts;

pub use demands::{FileLocation, NoPolicy, ProjectPolicy, Requirements};
pub use files::{FileFacts, FileState, ModelFacts};
pub use recheck::Recheck;
pub use rules::{RULES, Rule, find_rule};
pub use rules::{baseline_stale, exception_stale, settings_invalid};
pub use schema::{CONFIG_SCHEMA, Flaw, MAX_OVERLAY_BYTES, Overlay, PRECISIONS_SCHEMA, is_uri};
pub use session::ValidationSession;

/// The paths to validate and the settings of the validation.
#[derive(Debug, Clone)]
pub struct ValidationOptions {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// A precision list that replaces all other lists.
    pub precisions: Option<PathBuf>,
    /// Opens model files to read their headers.
    pub open_models: bool,
    /// Number of threads; 0 means one for each core.
    pub jobs: usize,
}

/// The result of a validation: its report and the files it skipped.
#[derive(Debug, Default)]
pub struct ValidationOutcome {
    /// All findings.
    pub report: Report,
    /// Files that discovery found but that are not package configs.
    pub skipped: Vec<Skipped>,
}

/// An error that prevents the whole validation.
#[derive(Debug, thiserror::Error)]
pub enum ValidationError {
    /// An explicitly given path does not exist.
    #[error("{path}: {error}", path = path.display())]
    NoSuchPath {
        /// The path.
        path: PathBuf,
        /// The I/O error.
        error: std::io::Error,
    },
    /// An explicitly given file is a model, not a config.
    #[error("{path}: a model file, not a config; {advice}", path = path.display())]
    Model {
        /// The path.
        path: PathBuf,
        /// The path to check instead.
        advice: String,
    },
    /// The precision list given for all packages is unusable.
    #[error("{path}: not a usable precision list: {reason}; check it with `pkgtool validate {path}`", path = path.display())]
    Precisions {
        /// The list's path.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The thread pool could not be started.
    #[error("cannot start threads: {0}")]
    Threads(#[from] rayon::ThreadPoolBuildError),
}

/// A callback for progress: `(done, total)` files.
pub type ValidationProgress<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// Validates everything that discovery finds under `options.paths`.
pub fn validate(
    options: &ValidationOptions,
    progress: ValidationProgress<'_>,
) -> Result<ValidationOutcome, ValidationError> {
    check_names(&options.paths)?;
    let mut discovery = Discovery::walk_filtered(&options.paths, &mut NoFilter, options.jobs);
    check_exist(&discovery.absent)?;
    if let Some(list) = &options.precisions {
        discovery.add_list(list);
    }
    validate_found(&discovery, options, progress)
}

/// Rejects explicitly given paths whose names show that they are models.
pub fn check_names(paths: &[PathBuf]) -> Result<(), ValidationError> {
    let is_model = |path: &&PathBuf| path.to_str().is_some_and(model_file::has_extension);
    let Some(path) = paths.iter().find(is_model) else {
        return Ok(());
    };
    check_exist([path])?;
    Err(ValidationError::Model {
        path: path.clone(),
        advice: advice_for_model(path),
    })
}

/// Rejects explicitly given paths that do not exist. Accepts a broken symbolic link: a rule reports
/// it.
pub fn check_exist<'p>(
    paths: impl IntoIterator<Item = &'p PathBuf>,
) -> Result<(), ValidationError> {
    paths.into_iter().try_for_each(|path| {
        let looked = path.symlink_metadata();
        looked
            .map(drop)
            .map_err(|error| ValidationError::NoSuchPath {
                path: path.clone(),
                error,
            })
    })
}

/// Validates the files of `discovery`. Ignores `options.paths`.
pub fn validate_found(
    discovery: &Discovery,
    options: &ValidationOptions,
    progress: ValidationProgress<'_>,
) -> Result<ValidationOutcome, ValidationError> {
    validate_with_policy(discovery, &BTreeMap::new(), options, &NoPolicy, progress)
}

/// Like [`validate_found`], under a project's requirements and with the content of some files given
/// in memory. Those files are not read and need not exist.
pub fn validate_with_policy(
    discovery: &Discovery,
    contents: &BTreeMap<PathBuf, Vec<u8>>,
    options: &ValidationOptions,
    ruling: &dyn ProjectPolicy,
    progress: ValidationProgress<'_>,
) -> Result<ValidationOutcome, ValidationError> {
    let run = ValidationRun::new(options, &discovery.walked, ruling)?;
    let total = discovery.found.len();
    run.files.reserve(total);
    let done = std::sync::atomic::AtomicUsize::new(0);
    let check = |number: usize| {
        let found: &FoundFile = &discovery.found[number];
        let checked = match contents.get(&found.path) {
            Some(bytes) => run.check_loaded(found, &LoadedFile::from_bytes(bytes.clone())),
            None => run.check(found),
        };
        let now = done.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        progress(now, total);
        checked
    };
    let checked = parallel_map(total, options.jobs, check);
    Ok(collect(checked, discovery, &run))
}

/// Validates `bytes` as the content of the file at `path`. References are resolved relative to that
/// path; the file itself is not read and need not exist.
pub fn validate_bytes(
    path: &Path,
    bytes: Vec<u8>,
    options: &ValidationOptions,
) -> Result<ValidationOutcome, ValidationError> {
    validate_bytes_with_policy(path, bytes, options, &NoPolicy)
}

/// Like [`validate_bytes`], under a project's requirements.
pub fn validate_bytes_with_policy(
    path: &Path,
    bytes: Vec<u8>,
    options: &ValidationOptions,
    ruling: &dyn ProjectPolicy,
) -> Result<ValidationOutcome, ValidationError> {
    let found = FoundFile::named(path);
    let discovery = Discovery::default();
    let run = ValidationRun::new(options, &discovery.walked, ruling)?;
    let checked = run.check_loaded(&found, &LoadedFile::from_bytes(bytes));
    Ok(collect(vec![checked], &discovery, &run))
}

/// The result of checking one file.
enum CheckResult {
    File {
        path: String,
        kind: CheckedFileKind,
        diagnostics: Vec<Diagnostic>,
    },
    Skipped(Skipped),
}

/// The kind of a checked file.
enum CheckedFileKind {
    /// A config, with its facts for comparison with other configs if it has any.
    Config(Option<Box<ConfigFacts>>),
    PrecisionList,
    /// The config of another library.
    Foreign,
}

/// State shared by all files of one validation.
struct ValidationRun<'a> {
    walked: &'a WalkRecord,
    ruling: &'a dyn ProjectPolicy,
    files: FileCache,
    given: Option<Arc<Precisions>>,
    embedded: Arc<Precisions>,
    lists: Mutex<Map<OsString, Option<Arc<Precisions>>>>,
    cards: Mutex<Map<OsString, Option<Arc<Card>>>>,
    roots: Roots,
    marks: Mutex<Map<OsString, Option<MarkerSet>>>,
}

impl<'a> ValidationRun<'a> {
    fn new(
        options: &ValidationOptions,
        walked: &'a WalkRecord,
        ruling: &'a dyn ProjectPolicy,
    ) -> Result<Self, ValidationError> {
        let given = match &options.precisions {
            Some(path) => Some(Arc::new(given_precisions(path)?)),
            None => None,
        };
        let files = FileCache::new(options.open_models);
        Ok(Self::with(walked, files, given, ruling))
    }

    fn with(
        walked: &'a WalkRecord,
        files: FileCache,
        given: Option<Arc<Precisions>>,
        ruling: &'a dyn ProjectPolicy,
    ) -> Self {
        Self {
            walked,
            ruling,
            files,
            given,
            embedded: Arc::new(Precisions::trusted(PrecisionList::embedded())),
            lists: Mutex::default(),
            cards: Mutex::default(),
            roots: Roots::new(),
            marks: Mutex::default(),
        }
    }

    fn check(&self, found: &FoundFile) -> CheckResult {
        self.check_loaded(found, &LoadedFile::read_sized(&found.path, found.size))
    }

    fn check_loaded(&self, found: &FoundFile, loaded: &LoadedFile) -> CheckResult {
        if found.kind == FoundKind::MaybeConfig && !discover::is_package_config(loaded) {
            return CheckResult::Skipped(Skipped {
                path: found.path.clone(),
                reason: "not a package config: it has neither `backend` nor `variants`, and its \
                         directory is not named after a backend"
                    .to_owned(),
            });
        }
        if found.kind == FoundKind::Config
            && found.walked_from.is_some()
            && let Some(owner) = foreign::owner(loaded)
        {
            return self.foreign(found, owner);
        }
        let directory = steps::above(&found.path)
            .unwrap_or(Path::new(""))
            .to_owned();
        let absolute = self.roots.absolute(&directory);
        let top = found.walked_from.as_deref();
        let listing;
        let mut seen = top.and_then(|top| self.walked.below(top));
        if seen.is_none() {
            listing = DirectoryListing::read(&directory, &absolute)
                .map(|listing| listing.with_above(self.parent_markers(&absolute)));
            seen = listing.as_ref().map(RecordedDirectories::listed);
        }
        let root = self.roots.package_root_seen(&absolute, seen);
        let depth = roots::depth_below(&absolute, &root);
        let place = FileLocation {
            directory: &absolute,
            seen,
            roots: &self.roots,
        };
        let demands = self.ruling.demands(found, place);
        let demands = demands.as_deref();
        let mut precisions = self.precisions_for(found, &absolute, &root, seen);
        let extra = demands.map(|demands| &demands.extra);
        if let Some(extra) = extra.filter(|extra| extra.tokens().next().is_some()) {
            self.ruling.observe_list(place, &precisions.list);
            precisions = Precisions::with(&precisions, extra);
        }
        let is_list = found.kind == FoundKind::PrecisionList || is_precision_list(loaded);
        let card = self.card_for(&absolute, depth, seen);
        let context = Context::build(&context::ContextInputs {
            card: card.as_deref(),
            loaded,
            is_list,
            depth,
            absolute: &absolute,
            directory: &directory,
            models: seen.map(|seen| seen.models_in(&directory)),
            precisions: &precisions,
            files: &self.files,
            demands,
        });
        let mut worst = FindingLimiter::new(loaded.document.as_ref().ok());
        for rule in RULES {
            if demands.is_some_and(|demands| demands.off.contains(rule.meta.code)) {
                continue;
            }
            let mut findings = Vec::new();
            (rule.check)(&context, &mut findings);
            if !rules::reports_duplicate_keys(rule) {
                findings.retain(|finding| {
                    let path = finding.anchor.path();
                    path.is_none_or(|path| !context.is_ambiguous(path))
                });
            }
            if !findings.is_empty() {
                worst.add(findings);
            }
        }
        let path = self.roots.shown(&found.path);
        CheckResult::File {
            kind: if is_list {
                CheckedFileKind::PrecisionList
            } else {
                let placed = ConfigFacts::new(&context, &found.path, &path);
                CheckedFileKind::Config(placed.map(Box::new))
            },
            diagnostics: worst.locate(|| SourceText::new(path.clone(), loaded.text.clone())),
            path,
        }
    }

    /// Returns the marker files of the parent directory, which several configs' directories may
    /// share.
    fn parent_markers(&self, absolute: &Path) -> Option<MarkerSet> {
        let above = steps::above(absolute)?;
        let marks = || self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = marks().get(above.as_os_str()) {
            return *known;
        }
        let found = MarkerSet::read(above);
        marks().insert(above.into(), found);
        found
    }

    fn foreign(&self, found: &FoundFile, owner: &str) -> CheckResult {
        let source = Arc::new(self.source(&found.path, String::new()));
        CheckResult::File {
            path: source.path.clone(),
            kind: CheckedFileKind::Foreign,
            diagnostics: vec![rules::config_foreign(owner).locate(&source, None)],
        }
    }

    fn source(&self, path: &Path, text: String) -> SourceText {
        SourceText::new(self.roots.shown(path), text)
    }

    /// Returns the precision list that applies to the config: the list given for all packages; else
    /// the nearest one from the config's directory up to the package root; else the one at the root
    /// of the validated tree; else the built-in one.
    fn precisions_for(
        &self,
        found: &FoundFile,
        absolute: &Path,
        root: &Path,
        seen: Option<RecordedDirectories<'_>>,
    ) -> Arc<Precisions> {
        if let Some(given) = &self.given {
            return Arc::clone(given);
        }
        let top = found.walked_from.as_deref();
        let mut places = self.roots.list_places(absolute, root, top);
        let list = places.find_map(|directory| self.list_in(&directory, seen));
        list.unwrap_or_else(|| Arc::clone(&self.embedded))
    }

    fn list_in(
        &self,
        directory: &Path,
        seen: Option<RecordedDirectories<'_>>,
    ) -> Option<Arc<Precisions>> {
        if seen.and_then(|seen| seen.has_list(directory)) == Some(false) {
            return None;
        }
        // The lock is released during I/O, so two threads may read the same list.
        let lists = || self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lists().get(directory.as_os_str()) {
            return known.clone();
        }
        let path = directory.join(pkgtool_base::package::precision::FILE_NAME);
        let exists = path.symlink_metadata().is_ok();
        let list = exists.then(|| Arc::new(Precisions::read(&LoadedFile::read(&path))));
        lists().insert(directory.into(), list.clone());
        list
    }
}

impl ValidationRun<'_> {
    /// Returns the nearest model card from the config's directory up to the package root.
    fn card_for(
        &self,
        absolute: &Path,
        depth: usize,
        seen: Option<RecordedDirectories<'_>>,
    ) -> Option<Arc<Card>> {
        let mut places = steps::upwards(absolute).take(depth + 1);
        places.find_map(|directory| self.card_in(directory, seen))
    }

    fn card_in(
        &self,
        directory: &Path,
        seen: Option<RecordedDirectories<'_>>,
    ) -> Option<Arc<Card>> {
        if seen.and_then(|seen| seen.has_card(directory)) == Some(false) {
            return None;
        }
        // The lock is released during I/O, so two threads may read the same card.
        let cards = || self.cards.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = cards().get(directory.as_os_str()) {
            return known.clone();
        }
        let card = Card::read(&directory.join(card::FILE_NAME)).map(Arc::new);
        cards().insert(directory.into(), card.clone());
        card
    }
}

/// Returns the metadata of all rules in the order of their codes.
pub fn rule_metas() -> Vec<&'static RuleMeta> {
    RULES.iter().map(|rule| &rule.meta).collect()
}

fn collect(
    checked: Vec<CheckResult>,
    discovery: &Discovery,
    run: &ValidationRun<'_>,
) -> ValidationOutcome {
    let roots = &run.roots;
    let mut outcome = ValidationOutcome::default();
    let mut placed = Vec::new();
    for one in checked {
        match one {
            CheckResult::Skipped(skipped) => outcome.skipped.push(skipped),
            CheckResult::File {
                path,
                kind,
                diagnostics,
            } => {
                match kind {
                    CheckedFileKind::Config(place) => {
                        outcome.report.packages += 1;
                        placed.extend(place.map(|boxed| *boxed));
                    }
                    CheckedFileKind::PrecisionList => outcome.report.lists += 1,
                    CheckedFileKind::Foreign => {}
                }
                outcome.report.files.push(path);
                outcome.report.diagnostics.extend(diagnostics);
            }
        }
    }
    for (path, reason) in &discovery.unreadable {
        let finding = rules::unreadable_directory(reason);
        add_finding_at(&mut outcome.report, roots, path, finding);
    }
    for bare in &discovery.bare {
        let path = bare.directory.join(bare.file_name());
        add_finding_at(
            &mut outcome.report,
            roots,
            &path,
            rules::bare_directory(bare),
        );
    }
    let compared = placed::compare(placed);
    let diagnostics = &mut outcome.report.diagnostics;
    diagnostics.retain(|one| {
        !(rules::checks_directory_name(one.rule) && compared.duplicates.contains(&one.source.path))
    });
    diagnostics.extend(compared.diagnostics);
    outcome.skipped.extend(discovery.skipped.iter().cloned());
    outcome.skipped.sort_by(|a, b| a.path.cmp(&b.path));
    run.ruling.filter_report(&mut outcome.report);
    outcome.report.sort();
    outcome
}

/// Adds a finding about a path whose content was not read.
fn add_finding_at(report: &mut Report, roots: &Roots, path: &Path, finding: Finding) {
    let source = Arc::new(SourceText::new(roots.shown(path), String::new()));
    report.files.push(source.path.clone());
    report.diagnostics.push(finding.locate(&source, None));
}

/// Names the config to validate in order to check this model.
fn advice_for_model(model: &Path) -> String {
    let config = model.with_file_name(pkgtool_base::package::config::FILE_NAME);
    if config.is_file() {
        format!(
            "check the config beside it: `pkgtool validate {}`",
            config.display()
        )
    } else {
        "there is no config.json beside it; name the package's directory or config, or inspect the file \
         with `pkgtool inspect`"
            .to_owned()
    }
}

fn given_precisions(path: &Path) -> Result<Precisions, ValidationError> {
    let loaded = LoadedFile::read(path);
    let unusable = |reason: String| ValidationError::Precisions {
        path: path.to_owned(),
        reason,
    };
    match &loaded.document {
        Ok(_) if is_precision_list(&loaded) => Ok(Precisions::read(&loaded)),
        Ok(_) => Err(unusable(
            "it has neither `quantized` nor `non_quantized`".to_owned(),
        )),
        Err(fault) => Err(unusable(rules::describe_fault(fault))),
    }
}

/// Returns whether the content is a precision list, whatever the name of the file.
fn is_precision_list(loaded: &LoadedFile) -> bool {
    let Ok(document) = &loaded.document else {
        return false;
    };
    let has = |key: &str| document.root.get(key).is_some();
    (has("quantized") || has("non_quantized")) && !has("variants") && !has("backend")
}
