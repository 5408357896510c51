//! Errors of devices.

use std::io;
use std::path::PathBuf;

/// A device cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// It gives no shell.
    #[error("cannot reach {device}: {reason}; {help}")]
    Unreachable {
        /// The device.
        device: String,
        /// The reason.
        reason: String,
        /// The remedy.
        help: &'static str,
    },
    /// No binary is known that runs there.
    #[error(
        "no pkgtool for {device}, which is {kind}: give a static binary of this version with --device-binary, or put it at {}",
        place.display()
    )]
    NoProgram {
        /// The device.
        device: String,
        /// System and processor.
        kind: String,
        /// The path at which pkgtool looks for it.
        place: PathBuf,
    },
    /// The binary does not run there.
    #[error("{} does not run on {device}: {reason}", program.display())]
    Program {
        /// The device.
        device: String,
        /// The binary.
        program: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A command in its shell failed.
    #[error("{device}: {doing} failed: {reason}")]
    Command {
        /// The device.
        device: String,
        /// The step that failed.
        doing: &'static str,
        /// The reason.
        reason: String,
    },
    /// The connection ended.
    #[error("{device}: the connection ended while {doing}: {reason}")]
    Lost {
        /// The device.
        device: String,
        /// The step that failed.
        doing: &'static str,
        /// The reason.
        reason: String,
    },
    /// Its agent refused.
    #[error("{device}: {reason}")]
    Refused {
        /// The device.
        device: String,
        /// The reason.
        reason: String,
    },
    /// A file of this machine cannot be read.
    #[error("{}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

impl DeviceError {
    /// Returns whether the device could not be reached, so that another attempt may succeed.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Unreachable { .. })
    }
}
