//! Annotations of COCO: one JSON file about pictures, objects and their categories.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{DatasetItem, EvalDataset, EvalDatasetError, ItemTruth, TrueObject};
use crate::runs::PixelRuns;

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 2 << 30;

#[derive(Debug, Deserialize)]
struct CocoFile {
    images: Vec<CocoPicture>,
    annotations: Vec<CocoObject>,
    categories: Vec<CocoCategory>,
}

#[derive(Debug, Deserialize)]
struct CocoPicture {
    id: u64,
    file_name: String,
    width: u32,
    height: u32,
}

#[derive(Debug, Deserialize)]
struct CocoObject {
    image_id: u64,
    category_id: u64,
    bbox: [f64; 4],
    area: Option<f64>,
    #[serde(default)]
    iscrowd: u8,
    segmentation: Option<CocoPixels>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum CocoPixels {
    Polygons(Vec<Vec<f64>>),
    Runs { counts: CocoCounts, size: [u32; 2] },
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum CocoCounts {
    Text(String),
    List(Vec<u32>),
}

#[derive(Debug, Deserialize)]
struct CocoCategory {
    id: u64,
    name: String,
}

/// Reads the data set: a file, or a directory that has one.
pub(super) fn read(path: &Path) -> Result<EvalDataset, EvalDatasetError> {
    let file = if path.is_dir() {
        annotations(path)?
    } else {
        path.to_owned()
    };
    let fault = |reason: String| EvalDatasetError::new(&file, reason);
    let size = fs::metadata(&file).map_err(|error| fault(error.to_string()))?;
    if size.len() > MAX_BYTES {
        return Err(fault(format!("expected at most {} GiB", MAX_BYTES >> 30)));
    }
    let opened = File::open(&file).map_err(|error| fault(error.to_string()))?;
    let coco: CocoFile = serde_json::from_reader(BufReader::new(opened)).map_err(|error| {
        fault(format!(
            "{error}: expected annotations of COCO (`images`, `annotations`, `categories`)"
        ))
    })?;
    let names = coco.categories.into_iter().map(|it| (it.id, it.name));
    let names: HashMap<u64, String> = names.collect();
    let layout = format!(
        "{} pictures with {} objects of {} categories",
        coco.images.len(),
        coco.annotations.len(),
        names.len()
    );
    let mut pictures = BTreeMap::new();
    for picture in coco.images {
        pictures.insert(picture.id, (picture, Vec::new()));
    }
    for (number, object) in coco.annotations.into_iter().enumerate() {
        let at = |reason: String| fault(format!("annotations[{number}]: {reason}"));
        let id = object.image_id;
        let found = pictures.get_mut(&id);
        let (picture, objects) = found.ok_or_else(|| at(format!("no picture has the id {id}")))?;
        let class = names.get(&object.category_id);
        let class =
            class.ok_or_else(|| at(format!("no category has the id {}", object.category_id)))?;
        let size = [picture.width, picture.height];
        objects.push(object.read(class, size).map_err(at)?);
    }
    let folders = folders(&file, path);
    let items = pictures.into_values().map(|(picture, objects)| {
        let name = &picture.file_name;
        let found = folders.iter().map(|folder| folder.join(name));
        let found = found.into_iter().find(|path| path.is_file());
        let found = found.ok_or_else(|| {
            let looked: Vec<String> = folders.iter().map(|it| it.display().to_string()).collect();
            fault(format!(
                "the picture {name} is in none of {}",
                looked.join(", ")
            ))
        })?;
        Ok(DatasetItem {
            name: name.clone(),
            file: Some(found),
            truth: ItemTruth::Objects {
                size: [picture.width, picture.height],
                objects,
            },
        })
    });
    Ok(EvalDataset {
        layout,
        items: items.collect::<Result<_, _>>()?,
    })
}

impl CocoObject {
    fn read(self, class: &str, size: [u32; 2]) -> Result<TrueObject, String> {
        let pixels = match self.segmentation {
            None => None,
            Some(CocoPixels::Polygons(polygons)) if polygons.is_empty() => None,
            Some(CocoPixels::Polygons(polygons)) => Some(PixelRuns::of_polygons(&polygons, size)?),
            Some(CocoPixels::Runs { size: of_runs, .. }) if of_runs != [size[1], size[0]] => {
                let [height, width] = of_runs;
                return Err(format!(
                    "a mask of {width} x {height} pixels in a picture of {} x {}",
                    size[0], size[1]
                ));
            }
            Some(CocoPixels::Runs { counts, .. }) => Some(match counts {
                CocoCounts::Text(text) => PixelRuns::of_text(&text, size)?,
                CocoCounts::List(counts) => PixelRuns::of_counts(&counts, size)?,
            }),
        };
        let [_, _, width, height] = self.bbox;
        Ok(TrueObject {
            class: class.to_owned(),
            corner_and_size: self.bbox,
            pixels,
            area: self.area.unwrap_or(width * height),
            is_crowd: self.iscrowd != 0,
        })
    }
}

/// Finds the file with the annotations in a directory or in `annotations` below it.
fn annotations(root: &Path) -> Result<PathBuf, EvalDatasetError> {
    for directory in [root.to_owned(), root.join("annotations")] {
        let Ok(entries) = fs::read_dir(&directory) else {
            continue;
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let is_json = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "json");
        let mut files: Vec<PathBuf> = paths.filter(is_json).collect();
        files.sort();
        // COCO has files about persons and captions beside those about objects.
        let name = |path: &Path| {
            path.file_name()
                .map(|name| name.to_string_lossy().into_owned())
        };
        let of_objects = |path: &&PathBuf| {
            name(path).is_some_and(|name| name.starts_with("instances") && name.contains("val"))
        };
        match (files.iter().find(of_objects), &files[..]) {
            (Some(file), _) | (None, [file]) => return Ok(file.clone()),
            (None, []) => {}
            (None, several) => {
                let names: Vec<String> = several.iter().filter_map(|path| name(path)).collect();
                let reason = format!(
                    "several files may have the annotations: name one of {}",
                    names.join(", ")
                );
                return Err(EvalDatasetError::new(&directory, reason));
            }
        }
    }
    let reason = "no JSON file with annotations of COCO, neither there nor in `annotations`";
    Err(EvalDatasetError::new(root, reason))
}

/// Returns the folders that may have the pictures.
fn folders(file: &Path, given: &Path) -> Vec<PathBuf> {
    let beside = file.parent().unwrap_or(Path::new(""));
    let mut roots = vec![beside.to_owned()];
    if given.is_dir() && given != beside {
        roots.push(given.to_owned());
    }
    if beside.ends_with("annotations")
        && let Some(above) = beside.parent()
        && !roots.iter().any(|root| root == above)
    {
        roots.push(above.to_owned());
    }
    // `instances_val2017.json` is about the pictures in `val2017`.
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let split = stem.split('_').next_back().unwrap_or_default().to_owned();
    let below = |root: &PathBuf| {
        let folders = ["", "images", &split].map(|folder| root.join(folder));
        let images = root.join("images").join(&split);
        folders.into_iter().chain([images])
    };
    roots.iter().flat_map(below).collect()
}
