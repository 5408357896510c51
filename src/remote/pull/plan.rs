//! Which files of a source are wanted.
//!
//! With nothing chosen, all of them. With backends or precisions chosen: everything but the folders of
//! other backends and the models and weights that no chosen variant needs; so configs, tokenizers, lists,
//! licences and texts always come.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use reqwest::Url;

use super::Wish;
use crate::package::{Config, Loaded, Variant};
use crate::remote::listing::Entry;
use crate::remote::weights::is_model;
use crate::remote::{Mirror, RemoteError, settle};

/// A file to be had.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// Its path in the source.
    pub(super) path: String,
    /// Its path in the directory, with `/` between its parts.
    pub(super) target: String,
    /// Its size in bytes.
    pub(super) size: u64,
    /// SHA-256 of its content, where one is told.
    pub(super) sha256: Option<String>,
    /// What changes when the file does, where that is told.
    pub(super) mark: Option<String>,
    /// Where its bytes are.
    pub(super) url: Url,
}

/// What is to be had.
#[derive(Debug)]
pub(super) struct Plan {
    /// Files.
    pub(super) wanted: Vec<Wanted>,
    /// The folder of the source that becomes the directory.
    base: String,
    /// Whether models may need files that are not among them.
    is_open: bool,
    /// Variants left out: the config's path in the directory, places in `variants`.
    pub(super) left_out: Vec<(String, Vec<usize>)>,
}

/// What the configs of a source say of its files.
#[derive(Default)]
struct Choice {
    /// Files that chosen configs and variants name.
    needed: HashSet<String>,
    /// Folders of configs for backends that are not chosen.
    folders: Vec<String>,
    left_out: Vec<(String, Vec<usize>)>,
    /// Backends and precisions that are there.
    offered: Vec<String>,
    any: bool,
}

/// Decides.
pub(super) fn plan(mirror: &mut Mirror, wish: &Wish) -> Result<Plan, RemoteError> {
    let choice = Choice::of(mirror, wish);
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
    let wanted = wanted(mirror, &paths, &base);
    if wanted.is_empty() {
        return Err(nothing(mirror, &choice));
    }
    let left_out = choice.left_out.into_iter();
    let left_out = left_out
        .map(|(path, places)| (below(&path, &base).to_owned(), places))
        .collect();
    Ok(Plan {
        wanted,
        base,
        is_open: chooses || !mirror.tree().is_listed,
        left_out,
    })
}

impl Plan {
    /// What the models among the files need besides, as their headers say: in a directory that has them. What
    /// it finds is from now on among the files.
    pub(super) fn complete(
        &mut self,
        mirror: &mut Mirror,
        directory: &Path,
    ) -> Result<Vec<Wanted>, RemoteError> {
        if !self.is_open {
            return Ok(Vec::new());
        }
        self.is_open = false;
        let has: HashSet<&str> = self.wanted.iter().map(|one| one.path.as_str()).collect();
        let models = self.wanted.iter().filter(|one| is_model(&one.path));
        let data =
            models.flat_map(|one| settle::data_of(mirror, &one.path, &directory.join(&one.target)));
        // What lies elsewhere no runtime looks for.
        let mut paths: Vec<String> = data
            .filter(|path| !has.contains(path.as_str()) && is_in(path, &self.base))
            .collect();
        paths.sort();
        paths.dedup();
        settle::sizes(mirror, paths.clone())?;
        let more = wanted(mirror, &paths, &self.base);
        self.wanted.extend(more.iter().cloned());
        Ok(more)
    }
}

/// The files at these paths, as far as they are there and their sizes are known.
fn wanted(mirror: &Mirror, paths: &[String], base: &str) -> Vec<Wanted> {
    let entries: HashMap<&str, &Entry> = mirror
        .tree()
        .entries
        .iter()
        .map(|entry| (entry.path.as_str(), entry))
        .collect();
    let wanted = paths.iter().filter_map(|path| {
        let entry = entries.get(path.as_str())?;
        Some(Wanted {
            path: path.clone(),
            target: below(path, base).to_owned(),
            size: entry.size?,
            sha256: entry.sha256.clone(),
            mark: entry.mark.clone(),
            url: entry.url.clone(),
        })
    });
    wanted.collect()
}

impl Choice {
    fn of(mirror: &Mirror, wish: &Wish) -> Self {
        let mut choice = Self::default();
        for path in settle::configs(mirror) {
            let Ok(document) = Loaded::read(&mirror.local(&path)).document else {
                continue;
            };
            choice.take(mirror, wish, &path, &Config::from_document(&document));
        }
        choice
    }

    fn take(&mut self, mirror: &Mirror, wish: &Wish, path: &str, config: &Config) {
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

fn is_chosen(variant: &Variant, wish: &Wish) -> bool {
    let precision = variant.precision.as_ref();
    wish.precisions.is_empty()
        || precision.is_some_and(|precision| wish.precisions.contains(precision))
}

fn is_wanted(
    mirror: &Mirror,
    entry: &Entry,
    choice: Option<&Choice>,
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

/// The folder of the source that becomes the directory: what was named, or as far above it as what is
/// needed lies.
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

fn nothing(mirror: &Mirror, choice: &Choice) -> RemoteError {
    let mut offered = choice.offered.clone();
    offered.sort();
    offered.dedup();
    let reason = if offered.is_empty() {
        "it has no package config to choose by".to_owned()
    } else {
        format!(
            "no variant is of the wanted backend and precision; there are {}",
            offered.join(", ")
        )
    };
    let path: &Path = &mirror.path();
    RemoteError::Nothing {
        url: mirror.shown(&path.to_string_lossy()),
        reason,
    }
}
