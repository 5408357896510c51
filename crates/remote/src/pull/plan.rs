//! Selects the files of a source to download.
//!
//! Without filters, all files are selected. With filters for backends or precisions, two groups are
//! left out: folders of other backends, and models and weights that no selected variant needs.
//! Configs, tokenizers, lists, licences and texts are always selected.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use reqwest::Url;

use super::PullOptions;
use crate::listing::SourceFile;
use crate::weights::is_model;
use crate::{Mirror, RemoteError, settle};
use pkgtool_base::package::{Config, LoadedFile, Variant};

/// A file to download.
#[derive(Debug, Clone)]
pub(super) struct WantedFile {
    /// Path in the source.
    pub(super) path: String,
    /// Path in the directory, with `/` as the separator.
    pub(super) target: String,
    /// Size in bytes.
    pub(super) size: u64,
    /// SHA-256 of the content, if known.
    pub(super) sha256: Option<String>,
    /// Version marker that changes with the file, if known.
    pub(super) mark: Option<String>,
    /// URL of the content.
    pub(super) url: Url,
}

/// The files to download.
#[derive(Debug)]
pub(super) struct DownloadPlan {
    /// Selected files.
    pub(super) wanted: Vec<WantedFile>,
    /// Folder of the source that corresponds to the directory.
    base: String,
    /// Set if models may need further files.
    is_open: bool,
    /// Variants that were filtered out: the config's path in the directory, and the indices in
    /// `variants`.
    pub(super) left_out: Vec<(String, Vec<usize>)>,
}

/// The selection according to the configs of a source.
#[derive(Default)]
struct FilterResult {
    /// Files that selected configs and variants name.
    needed: HashSet<String>,
    /// Folders of configs for other backends.
    folders: Vec<String>,
    left_out: Vec<(String, Vec<usize>)>,
    /// Available backends and precisions.
    offered: Vec<String>,
    any: bool,
}

/// Selects the files to download.
pub(super) fn plan(mirror: &mut Mirror, wish: &PullOptions) -> Result<DownloadPlan, RemoteError> {
    let choice = FilterResult::of(mirror, wish);
    let chooses = !wish.backends.is_empty() || !wish.precisions.is_empty();
    if chooses && !choice.any {
        return Err(nothing(mirror, &choice));
    }
    let paths: Vec<String> = mirror
        .tree()
        .entries
        .iter()
        .filter(|entry| is_wanted(mirror, entry, chooses.then_some(&choice), &choice.needed))
        .map(|entry| entry.path.clone())
        .collect();
    settle::sizes(mirror, paths.clone())?;
    let base = base(mirror, &paths);
    let wanted = existing_files(mirror, &paths, &base);
    if wanted.is_empty() {
        return Err(nothing(mirror, &choice));
    }
    let left_out = choice.left_out.into_iter();
    let left_out = left_out
        .map(|(path, places)| (below(&path, &base).to_owned(), places))
        .collect();
    Ok(DownloadPlan {
        wanted,
        base,
        is_open: chooses || !mirror.tree().is_listed,
        left_out,
    })
}

impl DownloadPlan {
    /// Adds the further files that the headers of the models in `directory` name, and returns them.
    pub(super) fn complete(
        &mut self,
        mirror: &mut Mirror,
        directory: &Path,
    ) -> Result<Vec<WantedFile>, RemoteError> {
        if !self.is_open {
            return Ok(Vec::new());
        }
        self.is_open = false;
        let has: HashSet<&str> = self.wanted.iter().map(|one| one.path.as_str()).collect();
        let models = self.wanted.iter().filter(|one| is_model(&one.path));
        let data =
            models.flat_map(|one| settle::data_of(mirror, &one.path, &directory.join(&one.target)));
        // Runtimes search for data only below this folder.
        let mut paths: Vec<String> = data
            .filter(|path| !has.contains(path.as_str()) && is_in(path, &self.base))
            .collect();
        paths.sort();
        paths.dedup();
        settle::sizes(mirror, paths.clone())?;
        let more = existing_files(mirror, &paths, &self.base);
        self.wanted.extend(more.iter().cloned());
        Ok(more)
    }
}

/// Returns the files at these paths that exist and have a known size.
fn existing_files(mirror: &Mirror, paths: &[String], base: &str) -> Vec<WantedFile> {
    let entries: HashMap<&str, &SourceFile> = mirror
        .tree()
        .entries
        .iter()
        .map(|entry| (entry.path.as_str(), entry))
        .collect();
    let wanted = paths.iter().filter_map(|path| {
        let entry = entries.get(path.as_str())?;
        Some(WantedFile {
            path: path.clone(),
            target: below(path, base).to_owned(),
            size: entry.size?,
            sha256: entry.sha256.clone(),
            mark: entry.version_marker.clone(),
            url: entry.url.clone(),
        })
    });
    wanted.collect()
}

impl FilterResult {
    fn of(mirror: &Mirror, wish: &PullOptions) -> Self {
        let mut choice = Self::default();
        for path in settle::configs(mirror) {
            let Ok(document) = LoadedFile::read(&mirror.local(&path)).document else {
                continue;
            };
            choice.take(mirror, wish, &path, &Config::from_document(&document));
        }
        choice
    }

    fn take(&mut self, mirror: &Mirror, wish: &PullOptions, path: &str, config: &Config) {
        let backend = config.backend;
        self.offered
            .extend(backend.map(|backend| backend.name().to_owned()));
        let chosen = wish.backends.is_empty()
            || backend.is_some_and(|backend| wish.backends.contains(&backend));
        if !chosen {
            self.folders.push(folder(path).to_owned());
            return;
        }
        let (mut left_out, mut files) = (Vec::new(), Vec::new());
        for variant in &config.variants {
            self.offered.extend(variant.precision.clone());
            if is_chosen(variant, wish) {
                self.any = true;
                files.extend(&variant.files);
            } else {
                left_out.push(variant.position);
            }
        }
        files.extend(&config.tokenizer_files);
        for file in files {
            for path in settle::reached(mirror, path, &file.reference) {
                self.needed.insert(path);
            }
        }
        self.needed.insert(path.to_owned());
        if !left_out.is_empty() {
            self.left_out.push((path.to_owned(), left_out));
        }
    }
}

fn is_chosen(variant: &Variant, wish: &PullOptions) -> bool {
    let precision = variant.precision.as_ref();
    wish.precisions.is_empty()
        || precision.is_some_and(|precision| wish.precisions.contains(precision))
}

fn is_wanted(
    mirror: &Mirror,
    entry: &SourceFile,
    choice: Option<&FilterResult>,
    needed: &HashSet<String>,
) -> bool {
    if needed.contains(&entry.path) {
        return true;
    }
    let is_inside = mirror.tree().is_below_start(&entry.path) || !mirror.tree().is_listed;
    let Some(choice) = choice else {
        return is_inside;
    };
    let in_other = choice.folders.iter().any(|folder| {
        let rest = entry.path.strip_prefix(folder.as_str());
        !folder.is_empty() && rest.is_some_and(|rest| rest.starts_with('/'))
    });
    let is_weights = entry.path.split('/').any(is_model);
    is_inside && !in_other && !is_weights
}

/// Returns the folder of the source that corresponds to the directory: the named folder, or the
/// nearest one above it that contains all needed files.
fn base(mirror: &Mirror, paths: &[String]) -> String {
    let tree = mirror.tree();
    let is_file = tree.entries.iter().any(|entry| entry.path == tree.start);
    let mut base = if is_file {
        folder(&tree.start)
    } else {
        tree.start.as_str()
    };
    while !base.is_empty() && paths.iter().any(|path| !is_below(path, base)) {
        base = folder(base);
    }
    base.to_owned()
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'))
}

fn is_in(path: &str, folder: &str) -> bool {
    folder.is_empty() || is_below(path, folder)
}

fn below<'p>(path: &'p str, base: &str) -> &'p str {
    let rest = path.strip_prefix(base).unwrap_or(path);
    rest.trim_start_matches('/')
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn nothing(mirror: &Mirror, choice: &FilterResult) -> RemoteError {
    let mut offered = choice.offered.clone();
    offered.sort();
    offered.dedup();
    let reason = if offered.is_empty() {
        "no package config found to apply the filters to".to_owned()
    } else {
        format!(
            "no variant has the wanted backend and precision; available: {}",
            offered.join(", ")
        )
    };
    let path: &Path = &mirror.path();
    RemoteError::Nothing {
        url: mirror.shown(&path.to_string_lossy()),
        reason,
    }
}
