//! Restricts the report to changed configs, for `--changed` and `--staged`.
//!
//! All configs are validated, since rules compare them with each other. Only the findings of the
//! chosen configs are reported. A config is chosen if any of these changed or was deleted:
//!
//! - the config itself
//! - a file that it names, or a file beside it
//! - a settings file or precision list in a directory above it, or given on the command line
//!
//! A deleted config whose models remain is reported as missing. Changed settings files are
//! reported, too.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use crate::cli::exit::Failure;
use crate::cli::output;
use pkgtool_base::git::{GitListing, Repository};
use pkgtool_base::package::reference::{normalize, resolve};
use pkgtool_base::package::sieve::SETTINGS_FILE;
use pkgtool_base::package::{
    Backend, Config, Discovery, FoundFile, FoundKind, LoadedFile, Roots, config, load, precision,
    roots,
};
use pkgtool_check::policy::{self, Policy, PolicyOutcome};
use pkgtool_check::validate::{ValidationOptions, ValidationOutcome, ValidationProgress};

/// Options that ask Git for changed files.
#[derive(Debug, clap::Args)]
pub(super) struct GitArgs {
    /// Report only configs affected by changes since the Git revision REV: changes of the config,
    /// of files it names or beside it, of its settings or its precision list. Untracked files count
    /// as changed. REV defaults to where the branch left its upstream, or to HEAD
    #[arg(
        long,
        value_name = "REV",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = ""
    )]
    changed: Option<String>,

    /// Report only configs affected by changes staged for the next Git commit, with their staged
    /// content. Models, tokenizers and precision lists are read from the working tree
    #[arg(long, conflicts_with = "changed")]
    staged: bool,
}

/// The files to check, and the subset to report.
#[derive(Debug)]
pub(super) struct ChosenFiles {
    /// All files to check.
    discovery: Discovery,
    /// File contents that replace those on the disk.
    contents: BTreeMap<PathBuf, Vec<u8>>,
    /// The files to report, by their paths in reports.
    chosen: HashSet<String>,
    /// The numbers of chosen configs and precision lists.
    counts: (usize, usize),
}

/// A repository that contains some of the paths, and its changed files.
struct RepositoryChanges {
    repository: Repository,
    /// The changed files as absolute paths.
    changed: HashSet<PathBuf>,
    /// The Git index by paths from the root, only for `--staged`.
    index: Option<GitListing>,
}

impl GitArgs {
    /// Returns whether one of these options is set.
    pub(super) fn is_set(&self) -> bool {
        self.staged || self.changed.is_some()
    }

    /// Chooses the files at `paths` that are affected by changes.
    pub(super) fn choose(
        &self,
        policy: &Policy,
        paths: &[PathBuf],
        precisions: Option<&Path>,
    ) -> Result<ChosenFiles, Failure> {
        let mut discovery = policy.discover(paths);
        let mut repositories: Vec<RepositoryChanges> = Vec::new();
        for path in paths {
            if !self.staged && path.symlink_metadata().is_err() {
                let path = path.display();
                return Err(Failure::Other(format!("{path}: no such file or directory")));
            }
            let repository = Repository::containing(path).map_err(other)?;
            let is_known = |one: &RepositoryChanges| one.repository.top() == repository.top();
            if !repositories.iter().any(is_known) {
                repositories.push(self.ask(repository)?);
            }
        }
        let contents = if self.staged {
            staged_contents(&mut discovery, paths, &repositories)?
        } else {
            BTreeMap::new()
        };
        let mut choice = ChosenFiles {
            chosen: HashSet::new(),
            contents,
            discovery,
            counts: (0, 0),
        };
        let given = [precisions, policy.settings_given()].into_iter().flatten();
        let given: Vec<PathBuf> = given.filter_map(|path| path.canonicalize().ok()).collect();
        let is_ruled_anew = repositories
            .iter()
            .any(|one| given.iter().any(|path| one.changed.contains(path)));
        choice.choose_files(&repositories, is_ruled_anew);
        choice.choose_settings(&repositories);
        choice.choose_deleted(&repositories);
        Ok(choice)
    }

    fn ask(&self, repository: Repository) -> Result<RepositoryChanges, Failure> {
        let (changed, index) = if self.staged {
            let index = repository.index().map_err(other)?;
            (repository.staged().map_err(other)?, Some(index))
        } else {
            let revision = self.changed.as_deref().filter(|name| !name.is_empty());
            let since = match revision {
                Some(revision) => repository.commit(revision).map_err(other)?,
                None => match repository.base() {
                    Some(base) => base,
                    None => repository.commit("HEAD").map_err(other)?,
                },
            };
            (repository.changed_since(&since).map_err(other)?, None)
        };
        let top = repository.top().to_owned();
        Ok(RepositoryChanges {
            changed: changed.iter().map(|path| top.join(path)).collect(),
            repository,
            index,
        })
    }
}

impl ChosenFiles {
    /// Validates all files, and reduces the outcome to the chosen ones.
    pub(super) fn validate(
        &self,
        policy: &Policy,
        options: &ValidationOptions,
        progress: ValidationProgress<'_>,
    ) -> Result<PolicyOutcome, policy::PolicyError> {
        let (discovery, contents) = (&self.discovery, &self.contents);
        let mut ruled = policy.validate_found(discovery, contents, options, progress)?;
        self.narrow(&mut ruled.outcome);
        Ok(ruled)
    }

    /// Removes everything from an outcome that is not to be reported.
    fn narrow(&self, outcome: &mut ValidationOutcome) {
        let chosen = &self.chosen;
        let report = &mut outcome.report;
        report.files.retain(|path| chosen.contains(path));
        let diagnostics = &mut report.diagnostics;
        diagnostics.retain(|one| chosen.contains(&one.source.path));
        (report.packages, report.lists) = self.counts;
    }

    /// Chooses configs and precision lists; all of them if a file changed that applies to all.
    fn choose_files(&mut self, repositories: &[RepositoryChanges], is_ruled_anew: bool) {
        let roots = Roots::new();
        let mut chosen = HashSet::new();
        for found in &self.discovery.found {
            let loaded = match self.contents.get(&found.path) {
                Some(bytes) => LoadedFile::from_bytes(bytes.clone()),
                None => LoadedFile::read(&found.path),
            };
            let is_list = found.kind == FoundKind::PrecisionList;
            if !is_list && !found.is_config(&loaded) {
                continue;
            }
            let place = FoundLocation::of(found, &roots);
            let is_changed = |one: &RepositoryChanges| {
                is_ruled_anew || place.is_changed(&loaded, is_list, &one.changed)
            };
            let Some(changes) = repositories.iter().find(|one| is_changed(one)) else {
                continue;
            };
            if let Some(index) = &changes.index {
                place.note_unstaged(&loaded, index, changes.repository.top(), found);
            }
            chosen.insert(roots.shown(&found.path));
            if is_list {
                self.counts.1 += 1;
            } else {
                self.counts.0 += 1;
            }
        }
        self.chosen = chosen;
    }

    /// Chooses changed settings files, which have findings of their own.
    fn choose_settings(&mut self, repositories: &[RepositoryChanges]) {
        let roots = Roots::new();
        let changed = repositories.iter().flat_map(|one| &one.changed);
        let is_settings = |path: &&PathBuf| path.file_name() == Some(OsStr::new(SETTINGS_FILE));
        let shown = changed.filter(is_settings).map(|path| roots.shown(path));
        self.chosen.extend(shown);
    }

    /// Chooses directories whose config was deleted. Other directories without a config are not
    /// reported.
    fn choose_deleted(&mut self, repositories: &[RepositoryChanges]) {
        let roots = Roots::new();
        let chosen = &mut self.chosen;
        self.discovery.bare.retain(|bare| {
            let directory = roots.absolute(&bare.directory);
            let file = directory.canonicalize().unwrap_or(directory);
            let file = file.join(bare.file_name());
            let is_deleted = repositories.iter().any(|one| one.changed.contains(&file));
            if is_deleted {
                chosen.insert(roots.shown(&bare.directory.join(bare.file_name())));
            }
            is_deleted
        });
    }
}

/// The location of a found file, with links in the path resolved as Git resolves them.
struct FoundLocation {
    file: PathBuf,
    directory: PathBuf,
    depth: usize,
}

impl FoundLocation {
    fn of(found: &FoundFile, roots: &Roots) -> Self {
        let absolute = roots.absolute(&found.path);
        let named = absolute.parent().unwrap_or(Path::new("")).to_owned();
        let root = roots.package_root(&named);
        let directory = named.canonicalize().unwrap_or_else(|_| named.clone());
        Self {
            file: directory.join(absolute.file_name().unwrap_or_default()),
            depth: roots::depth_below(&named, &root),
            directory,
        }
    }

    fn is_changed(&self, loaded: &LoadedFile, is_list: bool, changed: &HashSet<PathBuf>) -> bool {
        if changed.contains(&self.file) {
            return true;
        }
        if is_list {
            return false;
        }
        let is_beside = |path: &PathBuf| path.parent() == Some(self.directory.as_path());
        let mut rules = [precision::FILE_NAME, SETTINGS_FILE].iter();
        let is_above = |name: &&str| {
            let mut above = self.directory.ancestors();
            above.any(|directory| changed.contains(&directory.join(name)))
        };
        changed.iter().any(is_beside)
            || rules.any(is_above)
            || self.references(loaded).iter().any(|reference| {
                // A model may be a folder with changed files.
                changed.contains(reference)
                    || changed.iter().any(|path| path.starts_with(reference))
            })
    }

    fn references(&self, loaded: &LoadedFile) -> Vec<PathBuf> {
        let Ok(document) = &loaded.document else {
            return Vec::new();
        };
        let config = Config::from_document(document);
        let references = config
            .files()
            .filter_map(|file| resolve(&self.directory, self.depth, &file.reference).ok());
        references.collect()
    }

    /// Prints notes about files that the config names and that are missing from the index.
    fn note_unstaged(
        &self,
        loaded: &LoadedFile,
        index: &GitListing,
        top: &Path,
        found: &FoundFile,
    ) {
        for path in self.references(loaded) {
            let Ok(below) = path.strip_prefix(top) else {
                continue;
            };
            if path.exists() && index.get(below).is_none() && !index.has_directory(below) {
                let (config, file) = (found.path.display(), below.display());
                output::note(&format!(
                    "{config} names {file}, which is missing from the index: add it with `git add`"
                ));
            }
        }
    }
}

/// Returns the staged content of the found files. Files missing from the index are removed from the
/// discovery, and files that exist only in the index are added.
fn staged_contents(
    discovery: &mut Discovery,
    paths: &[PathBuf],
    repositories: &[RepositoryChanges],
) -> Result<BTreeMap<PathBuf, Vec<u8>>, Failure> {
    let roots = Roots::new();
    let mut contents = BTreeMap::new();
    let on_disk = std::mem::take(&mut discovery.found);
    let mut found: Vec<(FoundFile, PathBuf)> = on_disk
        .into_iter()
        .map(|found| {
            let file = FoundLocation::of(&found, &roots).file;
            (found, file)
        })
        .collect();
    for changes in repositories {
        let (Some(index), top) = (&changes.index, changes.repository.top()) else {
            continue;
        };
        found.extend(only_staged(index, top, paths, &roots));
        let mut blobs = changes.repository.blobs().map_err(other)?;
        for (found, file) in &found {
            let Some(entry) = file.strip_prefix(top).ok().and_then(|at| index.get(at)) else {
                continue;
            };
            // Read one byte more than the maximum size of a config, so that it is rejected as too
            // large.
            match blobs.bytes(&entry.id, load::MAX_SIZE).map_err(other)? {
                Ok(bytes) => {
                    contents.insert(found.path.clone(), bytes);
                    discovery.found.push(found.clone());
                }
                Err(_) => discovery.found.push(found.clone()),
            }
        }
    }
    discovery.found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(contents)
}

/// Returns configs and precision lists that are in the index but not on the disk.
fn only_staged(
    index: &GitListing,
    top: &Path,
    paths: &[PathBuf],
    roots: &Roots,
) -> Vec<(FoundFile, PathBuf)> {
    let mut found = Vec::new();
    for path in paths {
        let absolute = roots.absolute(path);
        let real = absolute.canonicalize().unwrap_or(absolute);
        let Ok(below) = real.strip_prefix(top) else {
            continue;
        };
        for (at, _) in index.below(below).filter(|(at, _)| *at != below) {
            let file = top.join(at);
            let directory = at
                .parent()
                .and_then(Path::file_name)
                .and_then(OsStr::to_str);
            let kind = match at.file_name().and_then(OsStr::to_str) {
                Some(precision::FILE_NAME) => FoundKind::PrecisionList,
                Some(config::FILE_NAME) if directory.and_then(Backend::from_name).is_some() => {
                    FoundKind::Config
                }
                Some(config::FILE_NAME) => FoundKind::MaybeConfig,
                _ => continue,
            };
            if file.symlink_metadata().is_err() {
                let named = normalize(&path.join(at.strip_prefix(below).unwrap_or(at)));
                let one = FoundFile {
                    path: named,
                    kind,
                    walked_from: Some(path.clone()),
                    size: None,
                };
                found.push((one, file));
            }
        }
    }
    found
}

fn other(error: impl std::fmt::Display) -> Failure {
    Failure::Other(error.to_string())
}
