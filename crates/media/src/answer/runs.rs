//! Masks as runs of pixels, as COCO writes them: column by column, as a text.

use image::GrayImage;
use serde_json::{Value as Json, json};

/// Bits of a number in one letter, the bit that says that more letters follow, and the first letter.
const BITS: u32 = 5;
const MORE: u8 = 1 << BITS;
const FIRST: u8 = b'0';

/// Returns the runs of a mask that lies at `origin` in a picture of this size.
pub(super) fn of_mask(mask: &GrayImage, origin: [u32; 2], [width, height]: [u32; 2]) -> Json {
    let mut runs = vec![0_i64];
    let mut add = |is_object: bool, count: u64| {
        // The first run is of pixels without the object.
        if count > 0 && runs.len().is_multiple_of(2) != is_object {
            runs.push(0);
        }
        if let Some(last) = runs.last_mut() {
            *last += count.cast_signed();
        }
    };
    let [left, top] = origin;
    let columns = mask.width().min(width.saturating_sub(left));
    let rows = mask.height().min(height.saturating_sub(top));
    let above = top.min(height);
    let columns_before = u64::from(left.min(width));
    add(false, columns_before * u64::from(height));
    for x in 0..columns {
        add(false, u64::from(above));
        for y in 0..rows {
            add(mask.get_pixel(x, y).0[0] > 0, 1);
        }
        add(false, u64::from(height - above - rows));
    }
    let columns_behind = u64::from(width) - columns_before - u64::from(columns);
    add(false, columns_behind * u64::from(height));
    json!({"size": [height, width], "counts": text(&runs)})
}

/// Writes each number, from the third one on as the difference to the one two places before.
fn text(runs: &[i64]) -> String {
    let mut text = String::new();
    for (place, run) in runs.iter().enumerate() {
        let before = if place > 2 { runs[place - 2] } else { 0 };
        let mut rest = run - before;
        loop {
            let low = u8::try_from(rest & 0x1f).unwrap_or_default();
            rest >>= BITS;
            // The highest bit of the last letter is the sign.
            let is_last = rest == if low & 0x10 == 0 { 0 } else { -1 };
            let letter = low | if is_last { 0 } else { MORE };
            text.push(char::from(letter + FIRST));
            if is_last {
                break;
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The truth is that of pycocotools.
    #[test]
    fn texts_are_those_of_coco() {
        let mask = |width: u32, pixels: &[u8]| {
            let bytes = pixels.iter().map(|pixel| pixel * 255).collect::<Vec<_>>();
            let height = u32::try_from(pixels.len()).expect("few") / width;
            GrayImage::from_raw(width, height, bytes).expect("a mask")
        };
        for (mask, origin, size, expected) in [
            (mask(2, &[1, 1, 0, 1]), [1, 1], [5, 4], "51316"),
            (mask(3, &[1; 6]), [0, 0], [3, 2], "06"),
            (mask(3, &[0; 6]), [0, 0], [3, 2], "6"),
        ] {
            let runs = of_mask(&mask, origin, size);
            assert_eq!(
                runs,
                json!({"size": [size[1], size[0]], "counts": expected})
            );
        }
        let round = GrayImage::from_fn(80, 60, |x, y| {
            let [x, y] = [f64::from(x) - 40.0, f64::from(y) - 30.0];
            image::Luma([u8::from(x * x / 1500.0 + y * y / 800.0 < 1.0)])
        });
        let expected = "md\\1;n86K4L4M2N2N2N2N2N2N2N2O0O2N2O0O2O0O2O0O2O000O2O00000O2O000000000O2O0000000000000000\
            0001N10000000001N1000001N10001N101N101N101N2N101N2N2N2N2N2N2N2N3L4L5JZoa1";
        assert_eq!(of_mask(&round, [150, 100], [400, 300])["counts"], expected);
    }
}
