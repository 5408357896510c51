//! ONNX Runtime's own profile: a file of events, written while a session runs.
//!
//! Owns the profile's files, in a temporary directory that is deleted with the profile.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use tempfile::TempDir;

/// A profile in progress.
#[derive(Debug)]
pub(super) struct EventFile {
    directory: TempDir,
}

impl EventFile {
    /// Creates a directory for the profile.
    pub(super) fn new() -> io::Result<Self> {
        let directory = tempfile::Builder::new().prefix("pkgtool-").tempdir()?;
        Ok(Self { directory })
    }

    /// Returns the path prefix from which ONNX Runtime makes file names.
    pub(super) fn prefix(&self) -> PathBuf {
        self.directory.path().join("profile")
    }

    /// Ends the profile and reads it. An unreadable profile has no events.
    pub(super) fn finish(self, session: &mut ort::session::Session) -> Vec<Event> {
        let file = session.end_profiling();
        let events = file.ok().and_then(|file| read(Path::new(&file)).ok());
        // The directory must exist until here.
        drop(self.directory);
        events.unwrap_or_default()
    }
}

fn read(path: &Path) -> io::Result<Vec<Event>> {
    Ok(serde_json::from_reader(BufReader::new(File::open(path)?))?)
}

/// The fields of an event that are read.
#[derive(Debug, Deserialize)]
pub(super) struct Event {
    /// Its category: `Node` or `Session`.
    #[serde(default)]
    pub(super) cat: String,
    /// Its name, such as `model_run` or a node's name with a suffix.
    #[serde(default)]
    pub(super) name: String,
    /// Start, in microseconds.
    #[serde(default)]
    pub(super) ts: f64,
    /// Duration, in microseconds.
    #[serde(default)]
    pub(super) dur: f64,
    /// Properties of a node.
    #[serde(default)]
    pub(super) args: EventArguments,
}

/// Properties of a node. Numbers are written as strings.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EventArguments {
    /// Empty for other events than a node's computation.
    pub(super) provider: String,
    pub(super) op_name: String,
    pub(super) node_index: Option<String>,
    pub(super) activation_size: String,
    pub(super) parameter_size: String,
    pub(super) output_size: String,
    /// dtype and shape of each output.
    pub(super) output_type_shape: Vec<BTreeMap<String, Vec<i64>>>,
}

impl Event {
    /// Returns the node's name if this is a node's computation.
    pub(super) fn node(&self) -> Option<&str> {
        let name = self.name.strip_suffix("_kernel_time")?;
        (self.cat == "Node" && !self.args.provider.is_empty()).then_some(name)
    }

    /// Returns `true` if this is a run of the whole model.
    pub(super) fn is_run(&self) -> bool {
        self.cat == "Session" && self.name == "model_run"
    }
}
