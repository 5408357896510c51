//! The first message to a worker: the information from which its sandbox permissions are computed.
//!
//! Invariant: computing the permissions reads only directories and headers of models. The worker
//! itself computes them on systems where it confines itself.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use walkdir::WalkDir;

use crate::runtime::cores::CoreChoice;
use crate::runtime::device::{DeviceError, RemoteDevice};
use crate::runtime::pinning;
use crate::runtime::process::sandbox::{SandboxMode, SandboxPermissions};
use crate::surroundings::Surroundings;
use crate::{LoadOptions, LoadRequest, Provider};
use pkgtool_base::package::Backend;
use pkgtool_model::{self as model, ModelInfo};

/// Environment variables for glibc's allocator: the block size from which freed memory returns to
/// the system at once, and how much of smaller blocks is retained. Other systems ignore them.
pub(super) type Allocator = [(&'static str, &'static str); 2];

/// By default, glibc retains as much freed memory as the largest block that was freed. For weights
/// that are temporary while a model is loaded, that doubles the memory.
const FOR_LARGE_WEIGHTS: Allocator = [
    ("MALLOC_MMAP_THRESHOLD_", "4194304"),
    ("MALLOC_TRIM_THRESHOLD_", "67108864"),
];

/// Tensors between nodes are allocated in every run. Memory that comes from the system each time
/// costs a page fault every 4 KiB: 13 ms instead of 4.8 ms for a sum of two matrices of 16 MB.
const FOR_LARGE_TENSORS: Allocator = [
    ("MALLOC_MMAP_THRESHOLD_", "33554432"),
    ("MALLOC_TRIM_THRESHOLD_", "268435456"),
];

/// Size of weights from which a second copy should be avoided, in bytes.
const LARGE_WEIGHTS_BYTES: u64 = 128 << 20;

/// The purpose of a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Setup {
    /// Name of the engine.
    pub(super) engine: String,
    /// The model file; empty without a model.
    pub(super) model: PathBuf,
    /// The provider or delegate that needs devices of the machine.
    pub(super) devices: Option<String>,
    /// Size of the model's weights, in its file and in external files, in bytes; 0 if the file is
    /// unreadable, which loading reports.
    pub(super) weights: u64,
    /// The cores on which the process runs; `None` leaves them to the system.
    pub(super) cores: Option<CoreChoice>,
    options: LoadOptions,
    scratch: Option<PathBuf>,
    surroundings: Surroundings,
}

impl Setup {
    /// Returns the setup for loading a model.
    pub(super) fn of(engine: &str, request: &LoadRequest) -> Self {
        let options = &request.options;
        let mut setup = Self::of_library(engine);
        setup.model.clone_from(&request.model);
        setup.options.clone_from(options);
        if !matches!(options.provider, Provider::Cpu | Provider::Xnnpack) {
            setup.devices = Some(options.provider.name().to_owned());
        }
        if let Ok((info, _)) = model::open(&request.model) {
            let beside = info.external.iter().filter_map(|data| data.needs_bytes);
            setup.weights = beside.fold(info.weight_bytes, u64::saturating_add);
            let delegate = device_delegate(&info, &request.signature.method);
            if crate::engine(engine).is_some_and(|engine| !engine.needs_no_library()) {
                setup.devices = setup.devices.or(delegate);
            }
        }
        setup
    }

    /// Returns the setup for inspecting an engine's library.
    pub(super) fn of_library(engine: &str) -> Self {
        Self {
            engine: engine.to_owned(),
            model: PathBuf::new(),
            devices: None,
            weights: 0,
            cores: None,
            options: LoadOptions::default(),
            scratch: None,
            surroundings: Surroundings::of_this_process(),
        }
    }

    /// Returns the settings of the allocator for the model.
    pub(super) fn allocator(&self) -> Allocator {
        if self.weights >= LARGE_WEIGHTS_BYTES {
            FOR_LARGE_WEIGHTS
        } else {
            FOR_LARGE_TENSORS
        }
    }

    /// Puts the model on a device. The worker there finds what the device has.
    pub(super) fn move_to(&mut self, device: &RemoteDevice) -> Result<(), DeviceError> {
        if !self.model.as_os_str().is_empty() {
            (self.model, self.options) = device.localized(&self.model, &self.options)?;
        }
        self.surroundings = device.surroundings();
        // The agent starts the worker in a folder of its own.
        self.scratch = self.needs_scratch().then(|| PathBuf::from("."));
        Ok(())
    }

    /// Returns whether the engine needs a folder for temporary files. The sandbox closes the shared one.
    fn needs_scratch(&self) -> bool {
        let engine = crate::engine(&self.engine);
        let writes = engine.is_some_and(|engine| engine.writes_files(&self.options));
        // Drivers of devices write compiled code.
        SandboxMode::chosen() != SandboxMode::Off && (writes || self.devices.is_some())
    }

    /// Creates a folder for temporary files if the engine needs one.
    pub(super) fn scratch(&mut self) -> io::Result<Option<TempDir>> {
        if !self.needs_scratch() {
            return Ok(None);
        }
        let scratch = tempfile::Builder::new().prefix("pkgtool-").tempdir()?;
        self.scratch = Some(scratch.path().to_owned());
        Ok(Some(scratch))
    }

    /// Adopts the parent's surroundings in this process, and computes its permissions.
    pub(super) fn prepare(&self) -> SandboxPermissions {
        self.surroundings.clone().set_for_process();
        self.allowed()
    }

    /// Pins this process to its cores. It must have one thread: others would keep their cores.
    pub(super) fn pin(&self) -> Result<(), String> {
        self.cores.as_ref().map_or(Ok(()), pinning::pin)
    }

    /// Returns the permissions of the worker.
    pub(super) fn allowed(&self) -> SandboxPermissions {
        let engine = crate::engine(&self.engine);
        let needs = engine.map(|engine| engine.prepare(&self.options));
        let needs = needs.unwrap_or_default();
        let mut allowed = SandboxPermissions {
            read: needs.read,
            list: needs.list,
            scratch: self.scratch.clone(),
            devices: self.devices.clone(),
        };
        if !self.model.as_os_str().is_empty() {
            self.allow_model(&mut allowed);
        }
        allowed
    }

    /// Returns the files of the model: its own, and those that it names; all files if it is a folder.
    pub(super) fn model_files(&self) -> Vec<PathBuf> {
        if self.model.is_dir() {
            let entries = WalkDir::new(&self.model).into_iter().flatten();
            let files = entries.filter(|entry| entry.file_type().is_file());
            return files.map(walkdir::DirEntry::into_path).collect();
        }
        let folder = self.model.parent().unwrap_or(Path::new("."));
        let mut files = external_files(&self.model, folder);
        files.push(self.model.clone());
        files
    }

    /// Allows the model's folder, and the folder to which a link of a hub's cache leads. In a
    /// folder such as the user's home, only the model's own files are allowed.
    fn allow_model(&self, allowed: &mut SandboxPermissions) {
        let model = &self.model;
        let Ok(real) = model.canonicalize() else {
            return;
        };
        if real.is_dir() {
            allowed.read.push(real);
            return;
        }
        for path in [model, &real] {
            let folder = path
                .parent()
                .filter(|folder| !folder.as_os_str().is_empty());
            let folder = folder.unwrap_or(Path::new("."));
            if self.is_shared_folder(folder) {
                allowed.list.push(folder.to_owned());
                allowed.read.push(path.clone());
                allowed.read.extend(external_files(model, folder));
            } else {
                allowed.read.push(folder.to_owned());
            }
        }
    }

    /// Returns `true` for a folder that contains the user's home, and for the shared folders for
    /// temporary files.
    fn is_shared_folder(&self, folder: &Path) -> bool {
        let Ok(folder) = folder.canonicalize() else {
            return true;
        };
        let home = self.surroundings.home();
        let home = home.and_then(|home| home.canonicalize().ok());
        home.is_some_and(|home| home.starts_with(&folder))
            || folder.parent().is_none()
            || ["/tmp", "/var/tmp", "/private/tmp"]
                .iter()
                .any(|it| folder == Path::new(it))
    }
}

/// Returns the first delegate of a method that needs a device.
fn device_delegate(info: &ModelInfo, method: &str) -> Option<String> {
    let mut delegates = info.method(method)?.delegates.iter();
    let found = delegates.find(|delegate| delegate.id != Backend::Xnnpack.delegate_id())?;
    Some(found.id.clone())
}

/// Returns the external files that a model names.
fn external_files(model: &Path, folder: &Path) -> Vec<PathBuf> {
    let Ok((info, _)) = model::open(model) else {
        return Vec::new();
    };
    let located = info
        .external
        .iter()
        .filter_map(|data| data.locate(folder).ok()?);
    located.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(model: &Path, home: &Path) -> Setup {
        let mut setup = Setup::of_library("tract");
        setup.model = model.to_owned();
        let home = home.as_os_str().to_owned();
        setup.surroundings.variables.insert("HOME".to_owned(), home);
        setup
    }

    #[test]
    fn a_model_in_the_home_directory_opens_itself_alone() {
        let home = tempfile::tempdir().expect("a directory");
        let home = home.path().canonicalize().expect("it is there");
        let model = home.join("model.onnx");
        std::fs::write(&model, b"").expect("a file");
        std::fs::write(home.join("secret"), b"").expect("a file");
        let allowed = setup(&model, &home).allowed();
        assert!(allowed.read.contains(&model), "{allowed:?}");
        assert!(!allowed.read.contains(&home), "{allowed:?}");
        assert!(allowed.list.contains(&home), "{allowed:?}");
        let elsewhere = setup(&model, Path::new("/nobody")).allowed();
        assert!(elsewhere.read.contains(&home), "{elsewhere:?}");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_of_a_cache_opens_the_folder_of_blobs() {
        let cache = tempfile::tempdir().expect("a directory");
        let cache = cache.path().canonicalize().expect("it is there");
        let (blobs, snapshot) = (cache.join("blobs"), cache.join("snapshots/1/onnx"));
        std::fs::create_dir_all(&blobs).expect("a directory");
        std::fs::create_dir_all(&snapshot).expect("a directory");
        std::fs::write(blobs.join("a"), b"").expect("a file");
        let model = snapshot.join("model.onnx");
        std::os::unix::fs::symlink("../../../blobs/a", &model).expect("a link");
        let allowed = setup(&model, Path::new("/nobody")).allowed();
        assert!(allowed.read.contains(&blobs), "{allowed:?}");
        assert!(allowed.read.contains(&snapshot), "{allowed:?}");
        assert!(!allowed.read.contains(&cache), "{allowed:?}");
    }
}
