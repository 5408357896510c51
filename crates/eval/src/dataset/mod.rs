//! Data sets: files or texts, each with the truth.
//!
//! A data set is a directory or one file. Its layout follows from what the task needs: a folder for each class, a file
//! of COCO, masks beside pictures, a table, or texts beside sounds and pictures.

mod coco;
mod folders;
mod masks;
mod pairs;
mod table;

use std::path::{Path, PathBuf};

use pkgtool_media::MediaKind;

use crate::runs::PixelRuns;
use crate::task::EvalTask;
pub(crate) use masks::class_numbers;

/// Maximum number of items.
const MAX_ITEMS: usize = 2_000_000;

/// A data set.
#[derive(Debug)]
pub struct EvalDataset {
    /// The layout, for people.
    pub layout: String,
    /// Its items, in a fixed order.
    pub items: Vec<DatasetItem>,
}

/// An item of a data set.
#[derive(Debug)]
pub struct DatasetItem {
    /// Its name, unique in the data set.
    pub name: String,
    /// The file of its picture or sound; `None` for an item of texts.
    pub file: Option<PathBuf>,
    /// The truth.
    pub truth: ItemTruth,
}

/// The truth about an item.
#[derive(Debug, Clone)]
pub enum ItemTruth {
    /// Its class, by name or number.
    Class(String),
    /// Objects in a picture of this width and height.
    Objects {
        /// Width and height.
        size: [u32; 2],
        /// The objects.
        objects: Vec<TrueObject>,
    },
    /// The file with the class of each pixel.
    Classes(PathBuf),
    /// Its words.
    Text(String),
    /// The similarity of two texts.
    Similarity {
        /// The texts.
        texts: [String; 2],
        /// The similarity, in any unit.
        score: f64,
    },
}

/// An object of a picture.
#[derive(Debug, Clone)]
pub struct TrueObject {
    /// Its class.
    pub class: String,
    /// Left, top, width and height.
    pub corner_and_size: [f64; 4],
    /// Its pixels, if the data set has them.
    pub pixels: Option<PixelRuns>,
    /// Its area as the data set says it.
    pub area: f64,
    /// It stands for many objects: what a model finds in it counts neither way.
    pub is_crowd: bool,
}

/// A data set cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct EvalDatasetError {
    /// The file or directory.
    pub path: PathBuf,
    /// The fault and the expectation.
    pub reason: String,
}

impl EvalDatasetError {
    fn new(path: &Path, reason: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            reason: reason.into(),
        }
    }
}

impl EvalDataset {
    /// Reads the data set at a path for a task.
    pub fn open(path: &Path, task: EvalTask, takes: MediaKind) -> Result<Self, EvalDatasetError> {
        if !path.exists() {
            return Err(EvalDatasetError::new(path, "no such file or directory"));
        }
        let dataset = match task {
            EvalTask::Classification => folders::read(path)?,
            EvalTask::Detection => Some(coco::read(path)?),
            EvalTask::Segmentation => masks::read(path)?,
            EvalTask::Transcription | EvalTask::Reading => pairs::read(path, takes)?,
            EvalTask::Similarity => None,
        };
        let dataset = match dataset {
            Some(dataset) => dataset,
            None => table::read(path, task)?.ok_or_else(|| {
                EvalDatasetError::new(path, format!("expected {}", task.layouts()))
            })?,
        };
        match dataset.items.len() {
            0 => Err(EvalDatasetError::new(path, "the data set has no item")),
            count if count > MAX_ITEMS => Err(EvalDatasetError::new(
                path,
                format!("{count} items: expected at most {MAX_ITEMS}"),
            )),
            _ => Ok(dataset),
        }
    }

    /// Keeps this many items, spread evenly.
    pub fn limit(&mut self, most: usize) {
        let count = self.items.len();
        if most >= count {
            return;
        }
        let mut number = 0;
        self.items.retain(|_| {
            let share = |number: usize| number * most / count;
            number += 1;
            share(number - 1) != share(number)
        });
    }
}

/// Returns the files of a kind below a directory, ordered by their paths; or the file itself.
pub fn media_below(path: &Path, kind: MediaKind) -> Result<Vec<PathBuf>, EvalDatasetError> {
    let mut files = Vec::new();
    let walk = walkdir::WalkDir::new(path)
        .follow_links(true)
        .sort_by_file_name();
    for entry in walk {
        let entry = entry.map_err(|error| EvalDatasetError::new(path, error.to_string()))?;
        if entry.file_type().is_file() && is_of_kind(entry.path(), kind) {
            files.push(entry.into_path());
        }
        if files.len() > MAX_ITEMS {
            let reason = format!("expected at most {MAX_ITEMS} files");
            return Err(EvalDatasetError::new(path, reason));
        }
    }
    Ok(files)
}

/// Returns whether the ending of a file's name is that of a kind. Hidden files have none.
fn is_of_kind(path: &Path, kind: MediaKind) -> bool {
    let endings: &[&str] = match kind {
        MediaKind::Picture => &["jpg", "jpeg", "png", "webp", "gif"],
        MediaKind::Sound => &[
            "wav", "flac", "mp3", "ogg", "oga", "opus", "m4a", "aac", "webm", "aif", "aiff", "mp4",
        ],
        MediaKind::Text => &["txt"],
    };
    let is_hidden = path
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with('.'));
    let ending = path.extension().and_then(|ending| ending.to_str());
    !is_hidden && ending.is_some_and(|it| endings.contains(&it.to_ascii_lowercase().as_str()))
}

/// Returns the name of an item: its path within the data set.
fn name_of(file: &Path, root: &Path) -> String {
    let name = file.strip_prefix(root).unwrap_or(file);
    name.to_string_lossy().into_owned()
}

/// Returns a path without its ending.
fn stem(path: &Path) -> PathBuf {
    path.with_extension("")
}
