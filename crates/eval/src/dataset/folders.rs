//! A folder for each class, as `ImageNet` has them.

use std::path::Path;

use pkgtool_media::MediaKind;

use super::{DatasetItem, EvalDataset, EvalDatasetError, ItemTruth, media_below, name_of};

/// Number of classes of `ImageNet`, whose folders have numbers of `WordNet` in the order of the classes.
const IMAGENET: usize = 1000;

/// Returns the data set, or `None` if the directory has no folders with pictures.
pub(super) fn read(root: &Path) -> Result<Option<EvalDataset>, EvalDatasetError> {
    if !root.is_dir() {
        return Ok(None);
    }
    let mut items = Vec::new();
    let mut classes: Vec<String> = Vec::new();
    for file in media_below(root, MediaKind::Picture)? {
        let within = file.strip_prefix(root).unwrap_or(&file);
        let mut parts = within.components();
        let (Some(class), Some(_)) = (parts.next(), parts.next()) else {
            // Pictures beside the folders: a table may name them.
            return Ok(None);
        };
        let class = class.as_os_str().to_string_lossy().into_owned();
        if classes.last() != Some(&class) {
            classes.push(class.clone());
        }
        items.push(DatasetItem {
            name: name_of(&file, root),
            truth: ItemTruth::Class(class),
            file: Some(file),
        });
    }
    if items.is_empty() || classes == ["images"] {
        return Ok(None);
    }
    let count = classes.len();
    if count == IMAGENET && classes.iter().all(|class| is_synset(class)) {
        for item in &mut items {
            if let ItemTruth::Class(class) = &mut item.truth {
                let number = classes.binary_search(class).unwrap_or_default();
                *class = number.to_string();
            }
        }
    }
    Ok(Some(EvalDataset {
        layout: format!("pictures in {count} folders, one for each class"),
        items,
    }))
}

fn is_synset(name: &str) -> bool {
    let digits = name.strip_prefix('n');
    digits.is_some_and(|it| it.len() == 8 && it.bytes().all(|byte| byte.is_ascii_digit()))
}
