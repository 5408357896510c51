//! How devices are used.

use std::path::PathBuf;

/// Version and commit of this build. Both sides must be of the same.
#[derive(Debug, Clone, Copy)]
pub struct VersionText(pub &'static str);

/// How devices are used.
#[derive(Debug, Clone)]
pub struct DeviceOptions {
    /// Version of this build.
    pub version: VersionText,
    /// The binary for the device, if the user named one.
    pub binary: Option<PathBuf>,
    /// Folders in which binaries for devices are looked for.
    pub folders: Vec<PathBuf>,
    /// The program that runs binaries there, with its arguments; empty if the system does.
    pub runner: Vec<String>,
    /// Directory on the device, if the user named one.
    pub directory: Option<String>,
    /// Libraries of engines for the device.
    pub libraries: Vec<PathBuf>,
    /// Maximum size of all files on the device, in bytes.
    pub most_bytes: u64,
    /// File in which hashes of files of this machine are kept.
    pub hashes: Option<PathBuf>,
    /// Is called with the name of a file, the number of its bytes that are sent, and its size.
    pub sent: fn(&str, u64, u64),
}
