//! Pictures with the class of each pixel: `images` and `masks`, as Pascal VOC and others have them.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use pkgtool_media::MediaKind;

use super::{DatasetItem, EvalDataset, EvalDatasetError, ItemTruth, media_below, name_of, stem};

/// Folders of pictures, and of their masks.
const FOLDERS: [(&[&str], &[&str]); 2] = [
    (
        &["images", "image", "img"],
        &["masks", "labels", "annotations", "mask"],
    ),
    (&["JPEGImages"], &["SegmentationClass"]),
];

/// Maximum number of pixels of a mask.
const MAX_PIXELS: usize = 1 << 26;

/// Returns the data set, or `None` if the directory has no such folders.
pub(super) fn read(root: &Path) -> Result<Option<EvalDataset>, EvalDatasetError> {
    let folder = |names: &[&str]| names.iter().map(|it| root.join(it)).find(|it| it.is_dir());
    let found = FOLDERS
        .iter()
        .find_map(|(pictures, masks)| Some((folder(pictures)?, folder(masks)?)));
    let Some((pictures, masks)) = found else {
        return Ok(None);
    };
    let mut by_stem: HashMap<PathBuf, PathBuf> = HashMap::new();
    for picture in media_below(&pictures, MediaKind::Picture)? {
        let within = picture.strip_prefix(&pictures).unwrap_or(&picture);
        by_stem.insert(stem(within), picture);
    }
    let mut items = Vec::new();
    for mask in media_below(&masks, MediaKind::Picture)? {
        let within = stem(mask.strip_prefix(&masks).unwrap_or(&mask));
        let missing = || {
            let name = within.display();
            EvalDatasetError::new(
                &mask,
                format!("no picture {name} in {}", pictures.display()),
            )
        };
        let picture = by_stem.remove(&within).ok_or_else(missing)?;
        items.push(DatasetItem {
            name: name_of(&picture, root),
            file: Some(picture),
            truth: ItemTruth::Classes(mask),
        });
    }
    Ok(Some(EvalDataset {
        layout: format!("{} pictures with masks", items.len()),
        items,
    }))
}

/// Reads the numbers of a mask with its width and height: a PNG in grey or with a palette.
pub(crate) fn class_numbers(path: &Path) -> Result<(Vec<u8>, [u32; 2]), String> {
    let fault = |reason: String| format!("{}: {reason}", path.display());
    let file = File::open(path).map_err(|error| fault(error.to_string()))?;
    let mut decoder = png::Decoder::new(BufReader::new(file));
    decoder.set_transformations(png::Transformations::IDENTITY);
    let reader = decoder.read_info();
    let mut reader = reader.map_err(|error| fault(format!("{error}: expected a PNG")))?;
    let (color, depth) = reader.output_color_type();
    let is_numbers = matches!(color, png::ColorType::Grayscale | png::ColorType::Indexed);
    if !is_numbers || depth == png::BitDepth::Sixteen {
        return Err(fault(format!(
            "{color:?} of {} bits: expected a PNG in grey or with a palette, at most 8 bits",
            depth as u8
        )));
    }
    let info = reader.info();
    let (width, height) = (info.width, info.height);
    let size = reader.output_buffer_size();
    let size = size.filter(|size| *size <= MAX_PIXELS);
    let size = size.ok_or_else(|| fault(format!("expected at most {MAX_PIXELS} pixels")))?;
    let mut packed = vec![0; size];
    let read = reader.next_frame(&mut packed);
    let frame = read.map_err(|error| fault(error.to_string()))?;
    let bits = usize::from(depth as u8);
    let rows = packed.chunks_exact(frame.line_size);
    let mut numbers = Vec::with_capacity(width as usize * height as usize);
    for row in rows.take(height as usize) {
        let row = (0..width as usize).map(|x| {
            let shift = 8 - bits - (x * bits % 8);
            let mask = u8::MAX >> (8 - bits);
            (row[x * bits / 8] >> shift) & mask
        });
        numbers.extend(row);
    }
    Ok((numbers, [width, height]))
}
