//! Sounds or pictures with their words: a text file beside each, or the lists that corpora have.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use pkgtool_media::MediaKind;

use super::{DatasetItem, EvalDataset, EvalDatasetError, ItemTruth, media_below, name_of, stem};

/// The ending of lists that `LibriSpeech` has in each folder: a line is a name and its words.
const LIST_ENDING: &str = ".trans.txt";

/// Maximum size of a text file, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Returns the data set, or `None` if no file has words beside it.
pub(super) fn read(root: &Path, takes: MediaKind) -> Result<Option<EvalDataset>, EvalDatasetError> {
    if !root.is_dir() {
        return Ok(None);
    }
    let mut words: HashMap<PathBuf, String> = HashMap::new();
    for file in media_below(root, MediaKind::Text)? {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(LIST_ENDING) {
            let folder = file.parent().unwrap_or(root);
            for line in text(&file)?.lines() {
                if let Some((name, spoken)) = line.split_once(' ') {
                    words.insert(folder.join(name), spoken.trim().to_owned());
                }
            }
        } else {
            words.insert(stem(&file), text(&file)?);
        }
    }
    let mut items = Vec::new();
    let mut without = None;
    for file in media_below(root, takes)? {
        match words.remove(&stem(&file)) {
            Some(text) => items.push(DatasetItem {
                name: name_of(&file, root),
                file: Some(file),
                truth: ItemTruth::Text(text.trim().to_owned()),
            }),
            None => without = Some(file),
        }
    }
    if items.is_empty() {
        return Ok(None);
    }
    if let Some(file) = without {
        let name = stem(&file);
        let name = name.file_name().unwrap_or_default().to_string_lossy();
        return Err(EvalDatasetError::new(
            &file,
            format!("no words: expected {name}.txt beside it"),
        ));
    }
    let (count, noun) = (items.len(), takes.noun());
    let layout = format!("{count} {noun}s with their words");
    Ok(Some(EvalDataset { layout, items }))
}

fn text(file: &Path) -> Result<String, EvalDatasetError> {
    let fault = |error: std::io::Error| EvalDatasetError::new(file, error.to_string());
    if fs::metadata(file).map_err(fault)?.len() > MAX_BYTES {
        let most = MAX_BYTES >> 20;
        return Err(EvalDatasetError::new(
            file,
            format!("expected at most {most} MiB"),
        ));
    }
    fs::read_to_string(file).map_err(fault)
}
