//! The files that a model needs on a device: itself, its external data, and what lies in its folder.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use super::error::DeviceError;
use super::hashes::KnownHashes;
use super::protocol::DeviceFile;
use pkgtool_model as model;

/// Maximum number of files of a model.
const MAX_FILES: usize = 10_000;

/// A model's files, and where it is among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SentModel {
    /// Path of the model below the folder.
    pub(super) model: String,
    /// The files, with their places on this machine.
    pub(super) files: Vec<(DeviceFile, PathBuf)>,
}

impl SentModel {
    /// Reads the files of a model.
    pub(super) fn of(path: &Path, hashes: &KnownHashes) -> Result<Self, DeviceError> {
        let fault = |error: io::Error| DeviceError::File {
            path: path.to_owned(),
            error,
        };
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let name = name.ok_or_else(|| fault(io::ErrorKind::InvalidInput.into()))?;
        let mut places = BTreeMap::new();
        if path.is_dir() {
            add_folder(path, &name, &mut places).map_err(fault)?;
        } else {
            places.insert(name.clone(), path.to_owned());
            let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
            add_data(path, folder.unwrap_or(Path::new(".")), &mut places).map_err(fault)?;
        }
        if places.len() > MAX_FILES {
            let message = format!("the model has more than {MAX_FILES} files");
            return Err(fault(io::Error::other(message)));
        }
        let mut files = Vec::new();
        for (below, place) in places {
            files.push((stored(below, &place, hashes)?, place));
        }
        Ok(Self { model: name, files })
    }
}

/// Describes a file by its content.
pub(super) fn stored(
    path: String,
    place: &Path,
    hashes: &KnownHashes,
) -> Result<DeviceFile, DeviceError> {
    let (size, sha256) = hashes.of(place).map_err(|error| DeviceError::File {
        path: place.to_owned(),
        error,
    })?;
    Ok(DeviceFile { path, sha256, size })
}

/// Adds all files of a folder.
fn add_folder(folder: &Path, name: &str, places: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    for entry in WalkDir::new(folder)
        .follow_links(true)
        .into_iter()
        .take(MAX_FILES + 1)
    {
        let entry = entry.map_err(io::Error::other)?;
        if !entry.file_type().is_file() {
            continue;
        }
        let below = entry
            .path()
            .strip_prefix(folder)
            .map_err(io::Error::other)?;
        places.insert(joined(name, below), entry.path().to_owned());
    }
    Ok(())
}

/// Adds the files beside a model that hold its tensors.
fn add_data(model: &Path, folder: &Path, places: &mut BTreeMap<String, PathBuf>) -> io::Result<()> {
    let Ok((info, _)) = model::open(model) else {
        return Ok(());
    };
    for data in &info.external {
        if let Ok(Some(place)) = data.locate(folder)
            && let Ok(below) = place.strip_prefix(folder)
        {
            places.insert(joined("", below), place.clone());
        }
    }
    if info.format == "coreml" {
        let weights = folder.join("weights");
        if weights.is_dir() {
            add_folder(&weights, "weights", places)?;
        }
    }
    if info.external.is_empty() || info.format != "executorch" {
        return Ok(());
    }
    // The runtime looks into all of them.
    for entry in std::fs::read_dir(folder)?.take(MAX_FILES) {
        let path = entry?.path();
        let is_data = path.extension().is_some_and(|it| it == "ptd");
        if is_data && let Some(name) = path.file_name() {
            places.insert(name.to_string_lossy().into_owned(), path);
        }
    }
    Ok(())
}

/// Joins names with `/`.
fn joined(name: &str, below: &Path) -> String {
    let parts = below
        .components()
        .map(|part| part.as_os_str().to_string_lossy());
    let all = [name.into()].into_iter().chain(parts);
    let all: Vec<_> = all.filter(|part| !part.is_empty()).collect();
    all.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_taken_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let hashes = KnownHashes::default();
        let package = folder.path().join("m.mlpackage");
        std::fs::create_dir_all(package.join("Data/weights")).expect("a folder");
        std::fs::write(package.join("Manifest.json"), "{}").expect("a file");
        std::fs::write(package.join("Data/weights/weight.bin"), "w").expect("a file");
        let files = SentModel::of(&package, &hashes).expect("it is there");
        assert_eq!(files.model, "m.mlpackage");
        let paths: Vec<&str> = files.files.iter().map(|(file, _)| &*file.path).collect();
        let expected = [
            "m.mlpackage/Data/weights/weight.bin",
            "m.mlpackage/Manifest.json",
        ];
        assert_eq!(paths, expected);
        assert!(SentModel::of(&folder.path().join("absent"), &hashes).is_err());
    }
}
