//! Finds external data behind symbolic links.
//!
//! The library reads only data whose real file is below the model's folder. In the cache of a model hub, and on a device,
//! model and data are links to files beside each other in another folder.
//!
//! Invariant: data is read from the model's folder, or from the folder of the file to which the model's link leads.

use std::path::{Component, Path, PathBuf};

use tract_onnx::pb::tensor_proto::DataLocation;
use tract_onnx::pb::{ModelProto, TensorProto};

use super::graph::each_tensor_mut;
use super::slim::MODEL_FILE;

/// The folder of locations that are real paths without their first character.
const ROOT: &str = "/";

/// Replaces the locations of external data by their real paths if one is outside of the model's folder. Returns the
/// folder of the locations. Leaves the model unchanged if a location may not be read, which the library reports.
pub(super) fn locate(proto: &mut ModelProto, model: &Path, folder: String) -> String {
    let Some(folders) = folders_of(model, &folder) else {
        return folder;
    };
    let (mut is_outside, mut is_readable) = (false, true);
    each_tensor_mut(proto, &mut |tensor| {
        let Some(location) = location_of(tensor) else {
            return;
        };
        match real_path(location, &folder, &folders) {
            Some(path) => is_outside |= !path.starts_with(&folders[0]),
            None => is_readable = false,
        }
    });
    if !is_outside || !is_readable {
        return folder;
    }
    each_tensor_mut(proto, &mut |tensor| {
        if let Some(location) = location_of(tensor)
            && let Some(path) = real_path(location, &folder, &folders)
            && let Some(path) = path.to_str().and_then(|path| path.strip_prefix(ROOT))
        {
            path.clone_into(location);
        }
    });
    ROOT.to_owned()
}

/// Returns the real folders from which the data of a model may be read: its own, and that of its real file.
fn folders_of(model: &Path, folder: &str) -> Option<[PathBuf; 2]> {
    let folder = if folder.is_empty() { "." } else { folder };
    let own = Path::new(folder).canonicalize().ok()?;
    let linked = model.canonicalize().ok()?.parent()?.to_owned();
    Some([own, linked])
}

/// Returns the location of external data that is not in the model file itself.
fn location_of(tensor: &mut TensorProto) -> Option<&mut String> {
    if tensor.data_location != Some(DataLocation::External as i32) {
        return None;
    }
    let mut entries = tensor.external_data.iter_mut();
    let location = entries.find(|entry| entry.key == "location")?;
    (location.value != MODEL_FILE).then_some(&mut location.value)
}

/// Returns the real path of a location, if it may be read and is UTF-8.
fn real_path(location: &str, folder: &str, folders: &[PathBuf]) -> Option<PathBuf> {
    let is_plain = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    if !Path::new(location).components().all(is_plain) {
        return None;
    }
    let path = Path::new(folder).join(location).canonicalize().ok()?;
    let is_allowed = folders.iter().any(|folder| path.starts_with(folder));
    (is_allowed && path.to_str()?.starts_with(ROOT)).then_some(path)
}
