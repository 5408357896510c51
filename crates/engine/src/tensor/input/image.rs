//! Converts images (PNG, JPEG, WebP, GIF) to an input's layout, size and scale.
//!
//! Invariant: decoding takes bounded memory ([`MAX_SIDE_PIXELS`], [`MAX_DECODED_BYTES`]), and an ambiguous
//! layout is rejected. Pixels have 8 bits per channel in between.

use std::io::{BufRead, Cursor, Seek};

use image::imageops::{self, FilterType};
use image::{DynamicImage, GrayImage, ImageDecoder, ImageReader, Limits};

use super::dims::{AxisSize, DimSizes};
use super::error::InputLabel;
use super::{Assembly, InputArgs, InputError};
use crate::tensor::{DType, Tensor, byte_size};
use pkgtool_model::PixelColours;

/// Maximum width and height of a file and of an input, in pixels.
const MAX_SIDE_PIXELS: u32 = 16384;

/// Maximum size of a decoded image, in bytes.
const MAX_DECODED_BYTES: u64 = 1 << 30;

/// Maximum size of a file, in bytes. The decoders hold it in memory.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Bytes per pixel between the two passes of a resize: four floats.
const RESIZE_BYTES_PER_PIXEL: u64 = 16;

/// Remedy for an image that cannot be read.
const ANOTHER_IMAGE_HELP: &str = "give another PNG, JPEG, WebP or GIF file";

/// Remedy for an input that does not accept pixels.
const ARRAY_HELP: &str = "prepare the tensor yourself and give it as .npy";

/// The numbers of `--mean` and `--std`.
#[derive(Debug)]
pub(super) struct ImageScale {
    mean: Vec<f32>,
    std: Vec<f32>,
}

/// The axes of an image input.
struct ImageLayout {
    channels_first: bool,
    /// 1, 3 or 4.
    channels: u8,
    height: AxisSize,
    width: AxisSize,
    /// The leading axis of size 1.
    batch: Option<AxisSize>,
}

impl ImageScale {
    /// Parses the options.
    pub(super) fn of(args: &InputArgs) -> Result<Self, InputError> {
        for (option, values) in [("--mean", &args.mean), ("--std", &args.std)] {
            if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                return Err(refused(option, values, &format!("{value} is not finite")));
            }
        }
        if args.std.contains(&0.0) {
            return Err(refused("--std", &args.std, "division by 0"));
        }
        Ok(Self {
            mean: args.mean.clone(),
            std: args.std.clone(),
        })
    }

    /// Rejects the options if no input uses them.
    pub(super) fn require_none(&self, reason: &str) -> Result<(), InputError> {
        for (option, values) in [("--mean", &self.mean), ("--std", &self.std)] {
            if !values.is_empty() {
                return Err(refused(option, values, reason));
            }
        }
        Ok(())
    }

    /// Returns the mean and the standard deviation of each channel.
    fn channels(&self, channels: u8) -> Result<Vec<(f32, f32)>, InputError> {
        let count = usize::from(channels);
        for (option, values) in [("--mean", &self.mean), ("--std", &self.std)] {
            if values.len() > 1 && values.len() != count {
                let reason = format!("the image has {count} channels, not {}", values.len());
                return Err(refused(option, values, &reason));
            }
        }
        let pick = |values: &[f32], channel: usize, none: f32| match values {
            [] => none,
            [value] => *value,
            values => values[channel],
        };
        let numbers = (0..count).map(|channel| {
            (
                pick(&self.mean, channel, 0.0),
                pick(&self.std, channel, 1.0),
            )
        });
        Ok(numbers.collect())
    }
}

fn refused(option: &'static str, values: &[f32], reason: &str) -> InputError {
    let texts: Vec<String> = values.iter().map(f32::to_string).collect();
    InputError::Argument {
        option,
        text: texts.join(","),
        reason: reason.to_owned(),
        help: "give one number, or one for each channel of an image input of floats".to_owned(),
    }
}

/// Reads an image for one input; `open` returns its bytes and their number.
pub(super) fn read<R: BufRead + Seek>(
    assembly: &mut Assembly,
    input: usize,
    open: impl FnOnce() -> Result<(R, u64), String>,
    origin: &str,
) -> Result<Tensor, InputError> {
    let place = InputLabel::of(assembly.signature, input);
    let layout =
        layout(&assembly.dims, input).map_err(|reason| place.value(origin, reason, ARRAY_HELP))?;
    let dtype = assembly.signature.inputs[input].dtype;
    if dtype == DType::Bool {
        return Err(place.value(
            origin,
            "an image cannot fill an input of booleans",
            ARRAY_HELP,
        ));
    }
    let pixels_of = assembly.signature.inputs[input].pixels;
    if !dtype.is_float() {
        let reason = "the image input has integers, which stay 0 to 255 (int8: -128 to 127)";
        assembly.scale.require_none(reason)?;
    } else if pixels_of.is_some() {
        let reason = "the model takes pixels of 0 to 255, and scales them itself";
        assembly.scale.require_none(reason)?;
    }
    let scale = match pixels_of {
        Some(_) => vec![(0.0, 1.0 / 255.0); usize::from(layout.channels)],
        None => assembly.scale.channels(layout.channels)?,
    };
    let allowed = assembly.memory.left().min(MAX_DECODED_BYTES);
    let most = assembly.pixels.map(|most| {
        let wanted = |size| assembly.dims.or_default(size);
        most.max(wanted(layout.height).saturating_mul(wanted(layout.width)))
    });
    let allowed = (allowed, most.unwrap_or(u64::MAX));
    let picture = open().and_then(|(reader, size)| decode(reader, size, allowed));
    let picture = picture.map_err(|reason| place.value(origin, reason, ANOTHER_IMAGE_HELP))?;
    let sized = |size, own| {
        side_pixels(&assembly.dims, size, own)
            .map_err(|reason| place.value(origin, reason, ARRAY_HELP))
    };
    let height = sized(layout.height, picture.height())?;
    let width = sized(layout.width, picture.width())?;
    let shape = layout.shape(height, width);
    assembly.dims.fit(input, dtype, &shape, origin)?;
    let bytes = byte_size(dtype, &shape).map_err(|error| place.value(origin, error, ARRAY_HELP))?;
    assembly.memory.take(bytes)?;
    let between = u64::from(picture.width()) * u64::from(height) * RESIZE_BYTES_PER_PIXEL;
    assembly.memory.require(between)?;
    let mut pixels = pixels(&picture, layout.channels, width, height);
    if pixels_of == Some(PixelColours::Bgr) {
        for pixel in pixels.chunks_exact_mut(usize::from(layout.channels)) {
            pixel.reverse();
        }
    }
    layout
        .tensor(dtype, shape, &pixels, &scale)
        .map_err(|error| place.value(origin, error, ARRAY_HELP))
}

/// Returns whether an input has the layout of an image.
pub(super) fn has_image_layout(dims: &DimSizes, input: usize, dtype: DType) -> bool {
    dtype != DType::Bool && layout(dims, input).is_ok()
}

/// The two sides of an image input that a model leaves open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenSides {
    /// Index of the input.
    pub input: usize,
    /// The axes of height and width.
    pub axes: [usize; 2],
    /// The names of height and width for `--dim`.
    pub labels: [String; 2],
}

/// Returns the sides of an input, if it has the layout of an image and leaves both open.
pub(super) fn open_sides(dims: &DimSizes, input: usize) -> Option<OpenSides> {
    let layout = layout(dims, input).ok()?;
    let is_open = |side: AxisSize| dims.known(side).is_none() && dims.is_open(side);
    let first = usize::from(layout.batch.is_some()) + usize::from(layout.channels_first);
    let sides = [layout.height, layout.width];
    sides.iter().all(|side| is_open(*side)).then(|| OpenSides {
        input,
        axes: [first, first + 1],
        labels: sides.map(|side| dims.label(side).to_owned()),
    })
}

/// Returns the size of a side: the input's size, or the image's `own` size if the input leaves it
/// open.
fn side_pixels(dims: &DimSizes, size: AxisSize, own: u32) -> Result<u32, String> {
    let is_open = dims.known(size).is_none() && dims.is_open(size);
    if is_open && dims.bound(size).is_some_and(|bound| bound < own.into()) {
        let (label, bound) = (dims.label(size), dims.or_default(size));
        return Err(format!(
            "a side of {own} pixels exceeds the model's bound of {bound}: resize it with `--dim {label}={bound}`"
        ));
    }
    let wanted = if is_open {
        own.into()
    } else {
        dims.or_default(size)
    };
    let pixels = u32::try_from(wanted).ok();
    let pixels = pixels.filter(|pixels| (1..=MAX_SIDE_PIXELS).contains(pixels));
    pixels
        .ok_or_else(|| format!("invalid side of {wanted} pixels: expected 1 to {MAX_SIDE_PIXELS}"))
}

/// Finds channels, rows and columns among the input's axes.
fn layout(dims: &DimSizes, input: usize) -> Result<ImageLayout, String> {
    let Some(axes) = dims.axes(input) else {
        return Err("the model does not state the input's rank".to_owned());
    };
    let (batch, axes) = match *axes {
        [batch, a, b, c] => (Some(batch), [a, b, c]),
        [a, b, c] => (None, [a, b, c]),
        _ => return Err("an image input needs 3 dimensions, or 4 with a batch".to_owned()),
    };
    if let Some(size) = batch
        && dims.known(size).is_some_and(|size| size != 1)
    {
        return Err("one image needs a batch of 1".to_owned());
    }
    let channels = |axis: AxisSize| {
        let size = dims.fixed(axis).or_else(|| dims.known(axis))?;
        u8::try_from(size)
            .ok()
            .filter(|size| [1, 3, 4].contains(size))
    };
    let [first, _, last] = axes;
    match (channels(first), channels(last)) {
        (Some(channels), None) => Ok(ImageLayout {
            channels_first: true,
            channels,
            height: axes[1],
            width: axes[2],
            batch,
        }),
        (None, Some(channels)) => Ok(ImageLayout {
            channels_first: false,
            channels,
            height: axes[0],
            width: axes[1],
            batch,
        }),
        (Some(_), Some(_)) => {
            Err("both the first and the last dimension could be the channels".to_owned())
        }
        (None, None) => {
            Err("neither the first nor the last dimension is 1, 3 or 4 channels".to_owned())
        }
    }
}

impl ImageLayout {
    fn shape(&self, height: u32, width: u32) -> Vec<u64> {
        let (channels, height, width) = (self.channels.into(), height.into(), width.into());
        let picture = if self.channels_first {
            [channels, height, width]
        } else {
            [height, width, channels]
        };
        let batch = self.batch.map(|_| 1);
        batch.into_iter().chain(picture).collect()
    }

    /// Builds the tensor of `pixels` with interleaved channels.
    fn tensor(
        &self,
        dtype: DType,
        shape: Vec<u64>,
        pixels: &[u8],
        scale: &[(f32, f32)],
    ) -> Result<Tensor, crate::tensor::TensorError> {
        let count = usize::from(self.channels);
        let value = |channel: usize, byte: u8| {
            if dtype.is_float() {
                let (mean, std) = scale[channel];
                f64::from((f32::from(byte) / 255.0 - mean) / std)
            } else if dtype == DType::Int8 {
                f64::from(byte) - 128.0
            } else {
                f64::from(byte)
            }
        };
        if self.channels_first {
            let planes = (0..count).flat_map(|channel| {
                let bytes = pixels.iter().skip(channel).step_by(count);
                bytes.map(move |byte| value(channel, *byte))
            });
            Tensor::from_f64(dtype, shape, planes)
        } else {
            let bytes = pixels.iter().enumerate();
            Tensor::from_f64(
                dtype,
                shape,
                bytes.map(|(at, byte)| value(at % count, *byte)),
            )
        }
    }
}

/// Decodes a picture of a request or file to an upright image of at most `most` pixels. Uses at most
/// `allowed` bytes.
pub fn decode_image(bytes: &[u8], (allowed, most): (u64, u64)) -> Result<DynamicImage, String> {
    decode(Cursor::new(bytes), bytes.len() as u64, (allowed, most))
}

/// Returns whether a file begins like HEIC or AVIF.
fn is_heif(start: &[u8]) -> bool {
    const BRANDS: [&[u8]; 6] = [b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"avif"];
    start.get(4..8) == Some(b"ftyp") && start.get(8..12).is_some_and(|it| BRANDS.contains(&it))
}

/// Decodes a file of `size` bytes to an upright image of at most `most` pixels. Uses at most
/// `allowed` bytes.
fn decode(
    mut reader: impl BufRead + Seek,
    size: u64,
    (allowed, most): (u64, u64),
) -> Result<DynamicImage, String> {
    if size > MAX_FILE_BYTES {
        return Err(format!(
            "too large: expected at most {} MiB",
            MAX_FILE_BYTES >> 20
        ));
    }
    let text = |error: image::ImageError| error.to_string();
    if reader.fill_buf().is_ok_and(is_heif) {
        return Err("HEIC and AVIF are unsupported: convert the picture to JPEG or PNG".to_owned());
    }
    // The first bytes determine the format, not the file name.
    let mut reader = ImageReader::new(reader)
        .with_guessed_format()
        .map_err(|error| error.to_string())?;
    if reader.format().is_none() {
        return Err("neither PNG, JPEG, WebP nor GIF".to_owned());
    }
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE_PIXELS);
    limits.max_image_height = Some(MAX_SIDE_PIXELS);
    limits.max_alloc = Some(allowed);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(text)?;
    let (width, height) = decoder.dimensions();
    if u64::from(width) * u64::from(height) > most {
        return Err(format!(
            "an image of {width} x {height} pixels is too large: expected at most {most} pixels"
        ));
    }
    if width > MAX_SIDE_PIXELS || height > MAX_SIDE_PIXELS || decoder.total_bytes() > allowed {
        return Err(format!(
            "an image of {width} x {height} pixels is too large"
        ));
    }
    let orientation = decoder.orientation().map_err(text)?;
    let mut picture = DynamicImage::from_decoder(decoder).map_err(text)?;
    picture.apply_orientation(orientation);
    Ok(picture)
}

/// Returns the image's pixels, resized, with `channels` bytes each. Transparency is kept with four
/// channels and ignored with fewer.
fn pixels(picture: &DynamicImage, channels: u8, width: u32, height: u32) -> Vec<u8> {
    // Resizing to the same size would still copy through floats.
    macro_rules! resized {
        ($image:expr) => {{
            let image = $image;
            if image.dimensions() == (width, height) {
                image.into_raw()
            } else {
                imageops::resize(&image, width, height, FilterType::Triangle).into_raw()
            }
        }};
    }
    match channels {
        1 => resized!(grey(picture)),
        3 => resized!(picture.to_rgb8()),
        _ => resized!(picture.to_rgba8()),
    }
}

/// Converts to greyscale by the weights of ITU-R BT.601, as Pillow's `convert("L")` does.
fn grey(picture: &DynamicImage) -> GrayImage {
    if !picture.color().has_color() {
        return picture.to_luma8();
    }
    let rgb = picture.to_rgb8();
    GrayImage::from_fn(rgb.width(), rgb.height(), |x, y| {
        let [r, g, b] = rgb.get_pixel(x, y).0.map(u32::from);
        let luma = (r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16;
        image::Luma([u8::try_from(luma).expect("the weights sum up to 1")])
    })
}
