//! Labels of objects as text in a picture.

use std::convert::Infallible;

use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::iso_8859_1::FONT_7X13_BOLD as FONT;
use embedded_graphics::pixelcolor::BinaryColor;
use embedded_graphics::prelude::{DrawTarget, Drawable as _, OriginDimensions, Pixel, Point, Size};
use embedded_graphics::text::{Baseline, Text};
use image::{GrayImage, Luma, Rgb, RgbImage};

/// Maximum number of letters of a caption.
const MAX_LETTERS: usize = 40;

/// Letters of a font pixel by pixel: 0 or 255.
struct Letters(GrayImage);

impl OriginDimensions for Letters {
    fn size(&self) -> Size {
        Size::new(self.0.width(), self.0.height())
    }
}

impl DrawTarget for Letters {
    type Color = BinaryColor;
    type Error = Infallible;

    fn draw_iter<I>(&mut self, pixels: I) -> Result<(), Infallible>
    where
        I: IntoIterator<Item = Pixel<BinaryColor>>,
    {
        for Pixel(at, colour) in pixels {
            let at = u32::try_from(at.x).ok().zip(u32::try_from(at.y).ok());
            let pixel = at.and_then(|(x, y)| self.0.get_pixel_mut_checked(x, y));
            if let Some(pixel) = pixel.filter(|_| colour.is_on()) {
                *pixel = Luma([255]);
            }
        }
        Ok(())
    }
}

impl Letters {
    fn of(text: &str) -> Self {
        let text: String = text.chars().take(MAX_LETTERS).collect();
        let Size { width, height } = FONT.character_size;
        let count = u32::try_from(text.chars().count()).unwrap_or(0);
        let mut letters = Self(GrayImage::new(width * count + 2, height));
        let style = MonoTextStyle::new(&FONT, BinaryColor::On);
        let text = Text::with_baseline(&text, Point::new(1, 0), style, Baseline::Top);
        // The target does not fail.
        let Ok(_) = text.draw(&mut letters);
        letters
    }
}

/// Writes a text on a ground of a colour, above a place of the picture or, at its upper edge, below it.
pub(super) fn write(picture: &mut RgbImage, text: &str, [left, top]: [u32; 2], ground: [u8; 3]) {
    let letters = Letters::of(text).0;
    let scale = (picture.width().max(picture.height()) / 600).max(1);
    let (width, height) = (letters.width() * scale, letters.height() * scale);
    let left = left.min(picture.width().saturating_sub(width));
    let top = top.checked_sub(height).unwrap_or(top);
    let is_light = ground.map(u32::from).iter().sum::<u32>() > 380;
    let ink = [if is_light { 0 } else { 255 }; 3];
    for y in 0..height {
        for x in 0..width {
            if let Some(pixel) = picture.get_pixel_mut_checked(left + x, top + y) {
                let is_ink = letters.get_pixel(x / scale, y / scale).0[0] > 0;
                *pixel = Rgb(if is_ink { ink } else { ground });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_stay_within_the_picture() {
        for (text, size, place) in [
            ("dog 93%", [80, 40], [10, 20]),
            ("dog 93%", [80, 40], [79, 0]),
            ("a label longer than the picture", [20, 9], [3, 8]),
            ("größer 漢字", [1, 1], [0, 0]),
            ("", [30, 30], [29, 29]),
        ] {
            let mut picture = RgbImage::new(size[0], size[1]);
            write(&mut picture, text, place, [255, 0, 0]);
            let count = |colour| picture.pixels().filter(|it| it.0 == colour).count();
            assert!(count([255, 0, 0]) > 0, "{text}");
        }
    }
}
