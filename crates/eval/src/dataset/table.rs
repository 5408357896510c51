//! Tables: comma-separated values, values between tabs, or a JSON object on each line.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use super::{DatasetItem, EvalDataset, EvalDatasetError, ItemTruth};
use crate::task::EvalTask;

/// Names of a directory's table, without the ending.
const NAMES: [&str; 5] = ["metadata", "labels", "truth", "validated", "test"];

/// Endings of tables.
const ENDINGS: [&str; 5] = ["csv", "tsv", "jsonl", "ndjson", "txt"];

/// Names of columns.
const FILES: [&str; 7] = [
    "file_name",
    "file",
    "path",
    "filename",
    "image",
    "audio",
    "name",
];
const CLASSES: [&str; 4] = ["label", "class", "category", "target"];
const TEXTS: [&str; 6] = [
    "text",
    "sentence",
    "transcription",
    "transcript",
    "words",
    "normalized_text",
];
const FIRST_TEXTS: [&str; 5] = ["sentence1", "text1", "sentence_1", "sentence_a", "a"];
const SECOND_TEXTS: [&str; 5] = ["sentence2", "text2", "sentence_2", "sentence_b", "b"];
const SCORES: [&str; 5] = [
    "score",
    "similarity_score",
    "similarity",
    "label",
    "relatedness_score",
];

/// Maximum size of a table, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// A table in memory.
struct TruthTable {
    path: PathBuf,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Returns the data set of a table, or `None` if there is no table.
pub(super) fn read(path: &Path, task: EvalTask) -> Result<Option<EvalDataset>, EvalDatasetError> {
    let Some(file) = table_of(path) else {
        return Ok(None);
    };
    let table = TruthTable::read(&file, task)?;
    let items = match task {
        EvalTask::Similarity => table.pairs()?,
        EvalTask::Classification => table.files(&CLASSES, ItemTruth::Class)?,
        EvalTask::Transcription | EvalTask::Reading => table.files(&TEXTS, ItemTruth::Text)?,
        EvalTask::Detection | EvalTask::Segmentation => return Ok(None),
    };
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    Ok(Some(EvalDataset {
        layout: format!("{} rows of {name}", items.len()),
        items,
    }))
}

/// Returns the table at a path: the file itself, or the one of a directory.
fn table_of(path: &Path) -> Option<PathBuf> {
    if path.is_file() {
        return Some(path.to_owned());
    }
    let names = NAMES.iter().flat_map(|name| {
        let endings = ENDINGS.iter();
        endings.map(move |ending| path.join(format!("{name}.{ending}")))
    });
    let mut known = names.filter(|path| path.is_file());
    known.next().or_else(|| only_table(path))
}

/// Returns the only table of a directory.
fn only_table(directory: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).ok()?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_table = |path: &PathBuf| {
        let ending = path.extension().and_then(|ending| ending.to_str());
        ending.is_some_and(|ending| ENDINGS.contains(&ending))
    };
    let mut tables = paths.filter(is_table);
    tables.next().filter(|_| tables.next().is_none())
}

impl TruthTable {
    fn read(path: &Path, task: EvalTask) -> Result<Self, EvalDatasetError> {
        let fault = |reason: String| EvalDatasetError::new(path, reason);
        let size = fs::metadata(path).map_err(|error| fault(error.to_string()))?;
        if size.len() > MAX_BYTES {
            return Err(fault(format!("expected at most {} MiB", MAX_BYTES >> 20)));
        }
        let file = File::open(path).map_err(|error| fault(error.to_string()))?;
        let ending = path.extension().and_then(|ending| ending.to_str());
        let mut table = match ending {
            Some("jsonl" | "ndjson") => Self::of_json(path, BufReader::new(file))?,
            ending => {
                let delimiter = if ending == Some("csv") { b',' } else { b'\t' };
                Self::of_values(path, file, delimiter)?
            }
        };
        table.name_columns(task);
        Ok(table)
    }

    fn of_values(path: &Path, file: File, delimiter: u8) -> Result<Self, EvalDatasetError> {
        let mut reader = csv::ReaderBuilder::new();
        reader
            .delimiter(delimiter)
            .has_headers(false)
            .flexible(true);
        // A quotation mark in a corpus with tabs is a letter.
        reader.quoting(delimiter == b',');
        let mut rows = Vec::new();
        for row in reader.from_reader(file).into_records() {
            let row = row.map_err(|error| EvalDatasetError::new(path, error.to_string()))?;
            rows.push(row.iter().map(str::to_owned).collect());
        }
        let head = if rows.is_empty() {
            Vec::new()
        } else {
            rows.remove(0)
        };
        Ok(Self {
            path: path.to_owned(),
            head,
            rows,
        })
    }

    fn of_json(path: &Path, file: BufReader<File>) -> Result<Self, EvalDatasetError> {
        let mut head: Vec<String> = Vec::new();
        let mut rows = Vec::new();
        for (number, line) in file.lines().enumerate() {
            let fault = |reason: String| {
                EvalDatasetError::new(path, format!("line {}: {reason}", number + 1))
            };
            let line = line.map_err(|error| fault(error.to_string()))?;
            if line.trim().is_empty() {
                continue;
            }
            let object: Map<String, Json> = serde_json::from_str(&line)
                .map_err(|error| fault(format!("{error}: expected a JSON object")))?;
            if head.is_empty() {
                head = object.keys().cloned().collect();
            }
            let cells = head.iter().map(|name| match object.get(name) {
                Some(Json::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => String::new(),
            });
            rows.push(cells.collect());
        }
        Ok(Self {
            path: path.to_owned(),
            head,
            rows,
        })
    }

    /// Names the columns of a table without a head, if its rows are what the task needs in the usual order.
    fn name_columns(&mut self, task: EvalTask) {
        let names: &[&str] = match task {
            EvalTask::Similarity => &["sentence1", "sentence2", "score"],
            EvalTask::Classification => &["file", "label"],
            _ => &["file", "text"],
        };
        let is_row = self.head.len() == names.len()
            && match task {
                EvalTask::Similarity => self.head[2].trim().parse::<f64>().is_ok(),
                _ => self.beside(&self.head[0]).is_file(),
            };
        if is_row {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            let first = std::mem::replace(&mut self.head, names);
            self.rows.insert(0, first);
        }
    }

    /// Returns the first column with one of these names.
    fn column(&self, names: &[&str]) -> Result<usize, EvalDatasetError> {
        let is_named = |name: &&&str| self.head.iter().any(|it| it.eq_ignore_ascii_case(name));
        let name = names.iter().find(is_named);
        let position = |name: &&str| {
            self.head
                .iter()
                .position(|it| it.eq_ignore_ascii_case(name))
        };
        name.and_then(position).ok_or_else(|| {
            let has = self.head.join(", ");
            let expected = names.join(", ");
            let reason = format!("the columns are {has}: expected one of {expected}");
            EvalDatasetError::new(&self.path, reason)
        })
    }

    fn cell<'r>(
        &self,
        number: usize,
        row: &'r [String],
        column: usize,
    ) -> Result<&'r str, EvalDatasetError> {
        row.get(column).map(String::as_str).ok_or_else(|| {
            let name = &self.head[column];
            let reason = format!("row {}: no value in column {name}", number + 1);
            EvalDatasetError::new(&self.path, reason)
        })
    }

    /// Returns the path of a file that the table names.
    fn beside(&self, name: &str) -> PathBuf {
        let folder = self.path.parent().unwrap_or(Path::new(""));
        let direct = folder.join(name);
        // Common Voice has its sounds in `clips`.
        let folders = ["clips", "images", "audio"].map(|it| folder.join(it).join(name));
        let found = folders.into_iter().find(|it| it.is_file());
        if direct.is_file() {
            direct
        } else {
            found.unwrap_or(direct)
        }
    }

    fn files(
        &self,
        truths: &[&str],
        truth: impl Fn(String) -> ItemTruth,
    ) -> Result<Vec<DatasetItem>, EvalDatasetError> {
        let (name, of_truth) = (self.column(&FILES)?, self.column(truths)?);
        let rows = self.rows.iter().enumerate().map(|(number, row)| {
            let name = self.cell(number, row, name)?;
            let file = self.beside(name);
            if !file.is_file() {
                let reason = format!("row {}: no file {}", number + 1, file.display());
                return Err(EvalDatasetError::new(&self.path, reason));
            }
            Ok(DatasetItem {
                name: name.to_owned(),
                file: Some(file),
                truth: truth(self.cell(number, row, of_truth)?.to_owned()),
            })
        });
        rows.collect()
    }

    fn pairs(&self) -> Result<Vec<DatasetItem>, EvalDatasetError> {
        let columns = [
            self.column(&FIRST_TEXTS)?,
            self.column(&SECOND_TEXTS)?,
            self.column(&SCORES)?,
        ];
        let rows = self.rows.iter().enumerate().map(|(number, row)| {
            let [first, second, score] = columns.map(|column| self.cell(number, row, column));
            let score = score?.trim();
            let value = score.parse().ok().filter(|value: &f64| value.is_finite());
            let score = value.ok_or_else(|| {
                let reason = format!("row {}: the score {score:?} is not a number", number + 1);
                EvalDatasetError::new(&self.path, reason)
            })?;
            Ok(DatasetItem {
                name: format!("row {}", number + 1),
                file: None,
                truth: ItemTruth::Similarity {
                    texts: [first?.to_owned(), second?.to_owned()],
                    score,
                },
            })
        });
        rows.collect()
    }
}
