//! Requests sizes that a listing lacks, and files that are not listed, as far as configs and models
//! need them.

use std::path::Path;

use rayon::prelude::*;
use reqwest::Url;

use super::RemoteError;
use super::mirror::Mirror;
use super::name;
use super::ranged::{FetchedPart, RangedFile};
use super::web::without_query;
use super::weights::{is_json, is_model};
use super::{Address, RemoteSettings};
use pkgtool_base::package::{
    Backend, Config, LoadedFile, config, is_package_config, model_file, precision, reference,
};
use pkgtool_model as model;

/// Maximum number of files that are requested one by one.
const MAX_SIZE_REQUESTS: usize = 2000;

impl Mirror {
    /// Opens the mirror of a source. Headers and configs are fetched when they are read. If sizes
    /// are not listed, those of the files named in configs are requested now.
    pub fn open(address: &Address, settings: &RemoteSettings) -> Result<Self, RemoteError> {
        let mut mirror = Self::of(address, settings)?;
        request_missing(&mut mirror, settings.opens_models)?;
        Ok(mirror)
    }
}

/// Requests the unknown sizes of these files.
pub(super) fn sizes(mirror: &mut Mirror, paths: Vec<String>) -> Result<(), RemoteError> {
    let sizes = |_: &str| FetchedPart::Size;
    request_files(mirror, paths, &sizes)
}

/// Requests all missing sizes and files.
fn request_missing(mirror: &mut Mirror, opens_models: bool) -> Result<(), RemoteError> {
    let look = |path: &str| {
        if opens_models || !path.split('/').any(is_model) {
            FetchedPart::Beginning
        } else {
            FetchedPart::Size
        }
    };
    if !mirror.has_unknown_sizes() {
        return Ok(());
    }
    let start = mirror.tree().start.clone();
    let is_listed = mirror.tree().is_listed;
    let mut first: Vec<String> = files_of_unknown_size(mirror)
        .filter(|path| is_small_or_model(path))
        .collect();
    if !is_listed {
        first.push(start.clone());
        if last(&start) == config::FILE_NAME {
            first.extend(list_places(&start, &mirror.tree().border));
        }
    }
    request_files(mirror, first, &look)?;
    if !is_listed && !mirror.local(&start).exists() {
        return Err(RemoteError::Nothing {
            url: mirror.shown(&mirror.path().to_string_lossy()),
            reason: "not found, and the server does not list the directory; give the URL of a config.json, or of a \
                     directory that has one"
                .to_owned(),
        });
    }
    if mirror.tree().is_start_guessed && !is_package(mirror, &start) && mirror.fault().is_none() {
        let directory = mirror.path().with_file_name("");
        return Err(RemoteError::NoPackage {
            url: mirror.shown(&directory.to_string_lossy()),
        });
    }
    let configs = configs(mirror);
    let named: Vec<String> = configs
        .iter()
        .flat_map(|path| references(mirror, path))
        .collect();
    request_files(mirror, named.clone(), &look)?;
    if !opens_models {
        return Ok(());
    }
    let models = named.into_iter().filter(|path| is_model(path));
    let data: Vec<String> = models
        .flat_map(|path| data_of(mirror, &path, &mirror.local(&path)))
        .collect();
    request_files(mirror, data, &look)
}

/// Returns whether the config at `path` belongs to a package, by the criteria of discovery.
fn is_package(mirror: &Mirror, path: &str) -> bool {
    let folder = path.rsplit('/').nth(1);
    folder.and_then(Backend::from_name).is_some()
        || is_package_config(&LoadedFile::read(&mirror.local(path)))
}

/// Returns the paths of a source's configs.
pub(super) fn configs(mirror: &Mirror) -> Vec<String> {
    let entries = mirror.tree().entries.iter().map(|entry| &entry.path);
    let is_config = |path: &&String| {
        let named = !mirror.tree().is_listed && **path == mirror.tree().start && is_json(path);
        (named || last(path) == config::FILE_NAME) && mirror.tree().is_below_start(path)
    };
    entries.filter(is_config).cloned().collect()
}

/// Returns the paths of the files that the config at `path` names, including the files in folders
/// that it names.
pub(super) fn references(mirror: &Mirror, path: &str) -> Vec<String> {
    let local = mirror.local(path);
    let Ok(document) = LoadedFile::read(&local).document else {
        return Vec::new();
    };
    let config = Config::from_document(&document);
    let files = config.files();
    files
        .flat_map(|file| reached(mirror, path, &file.reference))
        .collect()
}

/// Returns the paths that a reference in the config at `path` means: one file, or the files of a
/// folder.
pub(super) fn reached(mirror: &Mirror, path: &str, reference: &str) -> Vec<String> {
    let local = mirror.local(path);
    let directory = local.parent().unwrap_or(Path::new(""));
    let depth = path.split('/').count() - 1;
    let Some(target) = reference::resolve(directory, depth, reference).ok() else {
        return Vec::new();
    };
    let Some(target) = mirror.below(&target).filter(|target| name::is_safe(target)) else {
        return Vec::new();
    };
    let folder = format!("{target}/");
    let entries = mirror.tree().entries.iter().map(|entry| &entry.path);
    let mut inside: Vec<String> = entries
        .filter(|path| path.starts_with(&folder))
        .cloned()
        .collect();
    if inside.is_empty() {
        inside.push(target);
    }
    inside
}

/// Returns the paths of the external data files of the model at `path`. They are read from the
/// header of the same file, which is stored locally as `at`.
pub(super) fn data_of(mirror: &Mirror, path: &str, at: &Path) -> Vec<String> {
    let Ok(Some(info)) = model::inspect_at(at) else {
        return Vec::new();
    };
    let local = mirror.local(path);
    let folder = local.parent().unwrap_or(Path::new(""));
    let mut paths = Vec::new();
    for external in &info.external {
        if let Some(location) = &external.location {
            let target = reference::resolve(folder, 0, location).ok();
            let target = target.and_then(|target| mirror.below(&target));
            paths.extend(target.filter(|target| name::is_safe(target)));
            continue;
        }
        let inside = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let entries = mirror.tree().entries.iter().map(|entry| &entry.path);
        let beside = entries.filter(|path| {
            let parent = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            parent == inside && path.to_ascii_lowercase().ends_with(".ptd")
        });
        paths.extend(beside.cloned());
    }
    paths
}

fn files_of_unknown_size(mirror: &Mirror) -> impl Iterator<Item = String> {
    let entries = mirror.tree().entries.iter();
    entries
        .filter(|entry| entry.size.is_none())
        .map(|entry| entry.path.clone())
}

fn is_small_or_model(path: &str) -> bool {
    let name = last(path);
    let in_bundle = path.split('/').any(model_file::is_bundle);
    name == config::FILE_NAME || name == precision::FILE_NAME || in_bundle || is_model(name)
}

/// Returns the possible paths of the precision list for the config at `path`.
fn list_places(path: &str, border: &str) -> Vec<String> {
    let mut places = Vec::new();
    let mut folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    loop {
        places.push(match folder {
            "" => precision::FILE_NAME.to_owned(),
            folder => format!("{folder}/{}", precision::FILE_NAME),
        });
        if folder == border || folder.is_empty() {
            return places;
        }
        folder = folder.rsplit_once('/').map_or("", |(folder, _)| folder);
    }
}

/// Requests files of unknown size, a few at a time.
fn request_files(
    mirror: &mut Mirror,
    mut paths: Vec<String>,
    look: &(dyn Fn(&str) -> FetchedPart + Sync),
) -> Result<(), RemoteError> {
    paths.sort();
    paths.dedup();
    let tree = mirror.tree();
    let questions: Vec<(String, Url)> = paths
        .into_iter()
        .filter_map(
            |path| match tree.entries.iter().find(|entry| entry.path == path) {
                Some(entry) if entry.size.is_some() => None,
                Some(entry) => Some((path, entry.url.clone())),
                None if tree.is_listed && tree.is_below_start(&path) => None,
                None => tree.url_of(&path).map(|url| (path, url)),
            },
        )
        .collect();
    if let Some((_, url)) = questions.get(MAX_SIZE_REQUESTS) {
        return Err(RemoteError::Budget {
            url: without_query(url),
            most: format!("{MAX_SIZE_REQUESTS} files without listed sizes"),
        });
    }
    let web = std::sync::Arc::clone(mirror.web());
    let answers: Vec<_> = questions
        .into_par_iter()
        .map(|(path, url)| {
            let found = RangedFile::find(&web, &url, look(&path));
            (path, url, found)
        })
        .collect();
    for (path, url, found) in answers {
        let found = match found {
            // Some servers answer with 401 or 403 for missing files.
            Err(RemoteError::Status {
                status: 401 | 403, ..
            }) if path != mirror.tree().start => None,
            found => found?,
        };
        match found {
            Some(far) => mirror.found(&path, url, far)?,
            None if mirror.tree().has(&path) => mirror.remove_missing(&path)?,
            None => {}
        }
    }
    Ok(())
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
