//! Results of items in a file, so that an evaluation that was interrupted continues.
//!
//! Invariant: a file has results of one model, recipe and version of this tool only. Its name says which.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use super::model::EvalModel;
use crate::cli::exit::Failure;
use pkgtool_engine::Rounding;
use pkgtool_eval::{DatasetItem, ItemTruth, Outcome};

/// The result of an item.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ItemResult {
    /// The item's name.
    pub(super) item: String,
    /// A hash of the item's files and truth. The result is of no use for others.
    pub(super) state: String,
    /// What of the answer counts.
    pub(super) outcome: Outcome,
    /// Time of the model's runs, in milliseconds.
    pub(super) milliseconds: f64,
}

/// The file with the results.
pub(super) struct ResultFile {
    path: PathBuf,
    file: File,
}

impl ResultFile {
    /// Opens the file for a model, and returns the results that it has.
    pub(super) fn open(
        directory: &Path,
        model: &EvalModel<'_>,
        rounding: Rounding,
    ) -> Result<(Self, HashMap<String, ItemResult>), Failure> {
        let path = directory.join(name(model, rounding));
        let fault = |error: std::io::Error| {
            Failure::Other(format!("--results {}: {error}", path.display()))
        };
        fs::create_dir_all(directory).map_err(fault)?;
        let mut file = OpenOptions::new();
        let file = file.create(true).append(true).read(true);
        let mut file = file.open(&path).map_err(fault)?;
        let mut known = HashMap::new();
        let mut ends_a_line = true;
        for line in BufReader::new(&file).split(b'\n') {
            let line = line.map_err(fault)?;
            // The last line may be cut off.
            ends_a_line = false;
            if let Ok(result) = serde_json::from_slice::<ItemResult>(&line) {
                ends_a_line = true;
                known.insert(result.item.clone(), result);
            }
        }
        if !ends_a_line {
            file.write_all(b"\n").map_err(fault)?;
        }
        Ok((Self { path, file }, known))
    }

    /// Adds a result.
    pub(super) fn add(&mut self, result: &ItemResult) -> Result<(), Failure> {
        let line = serde_json::to_string(result).map_err(std::io::Error::other);
        let written = line.and_then(|line| self.file.write_all(format!("{line}\n").as_bytes()));
        written
            .map_err(|error| Failure::Other(format!("--results {}: {error}", self.path.display())))
    }
}

/// Returns a hash of everything about an item that its result depends on.
pub(super) fn state(item: &DatasetItem) -> String {
    let truth = match &item.truth {
        ItemTruth::Class(class) => json!(class),
        ItemTruth::Classes(file) => of_file(file),
        ItemTruth::Objects { size, .. } => json!(size),
        ItemTruth::Similarity { texts, .. } => json!(texts),
        ItemTruth::Text(_) => Json::Null,
    };
    let file = item.file.as_deref().map(of_file);
    hash(&json!({ "file": file, "truth": truth }))
}

/// Describes the state of a file: its size and the time of its last change.
fn of_file(file: &Path) -> Json {
    let known = fs::metadata(file).ok();
    let modified = known.as_ref().and_then(|it| it.modified().ok());
    let modified = modified.and_then(|it| it.duration_since(UNIX_EPOCH).ok());
    json!({
        "bytes": known.map(|it| it.len()),
        "modified": modified.map(|it| it.as_nanos().to_string()),
    })
}

fn hash(value: &Json) -> String {
    let hash = Sha256::digest(value.to_string());
    let hash = hash.iter().take(6);
    let hash = hash.fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    format!("{hash:012x}")
}

/// Returns the file's name: the variant, and a hash of everything that results depend on.
fn name(model: &EvalModel<'_>, rounding: Rounding) -> String {
    let files = model.files().into_iter();
    let files = files.map(|file| (fs::canonicalize(file).unwrap_or_default(), of_file(file)));
    let recipe = model.recipe().map(|recipe| (&recipe.name, &recipe.values));
    let identity = json!({
        "tool": env!("CARGO_PKG_VERSION"),
        "files": files.collect::<Vec<_>>(),
        "method": model.selection().signature.method,
        "recipe": recipe,
        "engine": model.engine,
        "rounding": format!("{rounding:?}"),
    });
    let safe = |c: char| {
        if c.is_alphanumeric() || c == '.' {
            c
        } else {
            '-'
        }
    };
    let label: String = model.label().chars().map(safe).take(80).collect();
    format!("{label}-{}.jsonl", hash(&identity))
}
