//! Images as inputs: layout, size, scale, and inputs that cannot be images.

use std::fs;
use std::path::{Path, PathBuf};

use image::{DynamicImage, GrayAlphaImage, ImageEncoder, LumaA, Rgb, RgbImage, Rgba, RgbaImage};
use pkgtool_engine::tensor::input::{InputArgs, assemble};
use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_model::Dim;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::input::{fixed, signature};

/// An image, three pixels wide and two high. Red rises to the right, green downwards, and blue is
/// 200.
fn picture() -> RgbImage {
    RgbImage::from_fn(3, 2, |x, y| {
        let red = [0, 50, 100][x as usize];
        let green = [0, 100][y as usize];
        Rgb([red, green, 200])
    })
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn save(&self, name: &str, picture: impl Into<DynamicImage>) -> PathBuf {
        let path = self.path(name);
        picture.into().save(&path).expect("the file is written");
        path
    }
}

fn give(
    dtype: DType,
    dims: Option<Vec<Dim>>,
    path: &Path,
    args: InputArgs,
) -> Result<Tensor, String> {
    let signature = signature(&[("pixels", dtype, dims)]);
    let args = InputArgs {
        inputs: vec![format!("pixels={}", path.display())],
        ..args
    };
    let mut tensors = assemble(&signature, &args).map_err(|error| error.to_string())?;
    Ok(tensors.remove(0))
}

fn plain(dtype: DType, sizes: &[u64], path: &Path) -> Result<Vec<f64>, String> {
    let tensor = give(dtype, Some(fixed(sizes)), path, InputArgs::default())?;
    assert_eq!(tensor.shape(), sizes);
    Ok(tensor.to_f64().collect())
}

const RED: [f64; 6] = [0.0, 50.0, 100.0, 0.0, 50.0, 100.0];
const GREEN: [f64; 6] = [0.0, 0.0, 0.0, 100.0, 100.0, 100.0];
const BLUE: [f64; 6] = [200.0; 6];

#[test]
fn layouts_are_seen() {
    let folder = Folder::new();
    let path = folder.save("x.png", picture());
    let planes = [RED, GREEN, BLUE].concat();
    let error = plain(DType::Uint8, &[1, 3, 2, 3], &path).expect_err("two readings");
    assert!(error.contains("both"), "{error}");
    let tall = give(
        DType::Uint8,
        Some(fixed(&[3, 2, 5])),
        &path,
        InputArgs::default(),
    );
    assert_eq!(tall.expect("the image is resized").shape(), [3, 2, 5]);
    let interleaved: Vec<f64> = (0..6)
        .flat_map(|at| [RED[at], GREEN[at], BLUE[at]])
        .collect();
    // A dynamic height and width take the size of the image.
    let open = Dim::ANY;
    let first = vec![open.clone(), Dim::Fixed(3), open.clone(), open.clone()];
    let tensor = give(DType::Uint8, Some(first), &path, InputArgs::default());
    let tensor = tensor.expect("channels first");
    assert_eq!(tensor.shape(), [1, 3, 2, 3]);
    assert_eq!(tensor.to_f64().collect::<Vec<_>>(), planes);
    let last = vec![open.clone(), open, Dim::Fixed(3)];
    let tensor = give(DType::Int16, Some(last), &path, InputArgs::default());
    let tensor = tensor.expect("channels last");
    assert_eq!(tensor.shape(), [2, 3, 3]);
    assert_eq!(tensor.to_f64().collect::<Vec<_>>(), interleaved);
    for (sizes, reason) in [
        (&[1, 7, 2, 3, 3][..], "3 dimensions, or 4"),
        (&[2, 3], "3 dimensions, or 4"),
        (&[2, 3, 8, 8], "a batch of 1"),
        (&[1, 2, 8, 8], "neither the first nor the last"),
        (&[1, 3, 0, 8], "1 to 16384"),
        (&[1, 3, 20_000, 8], "1 to 16384"),
    ] {
        let error = plain(DType::Uint8, sizes, &path).expect_err("the file is not an image");
        assert!(error.contains(reason), "{sizes:?}: {error}");
    }
}

#[test]
fn channels_are_converted() {
    let folder = Folder::new();
    let path = folder.save("x.png", picture());
    // ITU-R BT.601: 0.299 red, 0.587 green, 0.114 blue.
    let grey: Vec<f64> = (0..6)
        .map(|at| (0.299 * RED[at] + 0.587 * GREEN[at] + 0.114 * BLUE[at]).round())
        .collect();
    let open = Dim::Dynamic {
        bound: Some(64),
        name: None,
        allowed: None,
    };
    let dims = |channels| Some(vec![Dim::Fixed(channels), open.clone(), open.clone()]);
    let none = InputArgs::default;
    let tensor = give(DType::Uint8, dims(1), &path, none()).expect("grey");
    assert_eq!(tensor.to_f64().collect::<Vec<_>>(), grey);
    let tensor = give(DType::Uint8, dims(4), &path, none()).expect("with transparency");
    assert_eq!(tensor.bytes()[18..], [255; 6]);
    let path = folder.save("grey.png", GrayAlphaImage::from_pixel(2, 2, LumaA([9, 0])));
    let tensor = give(DType::Uint8, dims(3), &path, none()).expect("grey as RGB");
    assert_eq!(tensor.bytes(), [9; 12]);
    let path = folder.save("clear.png", RgbaImage::from_pixel(1, 1, Rgba([1, 2, 3, 0])));
    let tensor = give(DType::Uint8, dims(3), &path, none()).expect("transparency is ignored");
    assert_eq!(tensor.bytes(), [1, 2, 3]);
    let path = folder.save("wide.png", RgbImage::new(65, 2));
    let error = give(DType::Uint8, dims(3), &path, none()).expect_err("too wide");
    assert!(error.contains("`--dim pixels[2]=64`"), "{error}");
}

#[test]
fn values_are_scaled_by_dtype() {
    let folder = Folder::new();
    let path = folder.save("x.png", RgbImage::from_pixel(8, 8, Rgb([0, 51, 255])));
    let channel = |dtype| {
        let values = plain(dtype, &[1, 3, 8, 8], &path).expect("a picture");
        vec![values[0], values[64], values[128]]
    };
    assert_eq!(channel(DType::Uint8), [0.0, 51.0, 255.0]);
    assert_eq!(channel(DType::Int8), [-128.0, -77.0, 127.0]);
    assert_eq!(channel(DType::Int64), [0.0, 51.0, 255.0]);
    assert_eq!(channel(DType::Float32), [0.0, f64::from(0.2_f32), 1.0]);
    assert!(plain(DType::Bool, &[1, 3, 8, 8], &path).is_err());
    let scaled = |dtype, mean: &[f32], std: &[f32]| {
        let args = InputArgs {
            mean: mean.to_vec(),
            std: std.to_vec(),
            ..InputArgs::default()
        };
        let tensor = give(dtype, Some(fixed(&[1, 8, 8, 3])), &path, args)?;
        Ok::<_, String>(tensor.to_f64().take(3).collect::<Vec<_>>())
    };
    let float = DType::Float32;
    assert_eq!(
        scaled(float, &[0.5], &[0.5]).expect("one number")[2..],
        [1.0]
    );
    let each = scaled(float, &[0.0, 0.2, 0.5], &[1.0, 1.0, 0.25]).expect("one a channel");
    assert_eq!(each, [0.0, 0.0, 2.0]);
    for (dtype, mean, std, reason) in [
        (float, &[][..], &[0.0][..], "division by 0"),
        (float, &[f32::NAN], &[], "not finite"),
        (float, &[0.1, 0.2], &[], "3 channels, not 2"),
        (DType::Uint8, &[0.5], &[], "integers"),
    ] {
        let error = scaled(dtype, mean, std).expect_err("refused");
        assert!(error.contains(reason), "{error}");
    }
    let args = InputArgs {
        inputs: vec!["random".to_owned()],
        mean: vec![0.5],
        ..InputArgs::default()
    };
    let error = assemble(&signature(&[("x", float, Some(fixed(&[1])))]), &args);
    assert!(
        error
            .expect_err("unused")
            .to_string()
            .contains("no input is an image")
    );
}

#[test]
fn pictures_are_stretched_and_turned_upright() {
    let folder = Folder::new();
    let two = RgbImage::from_fn(
        40,
        20,
        |x, _| if x < 20 { Rgb([0; 3]) } else { Rgb([255; 3]) },
    );
    let path = folder.save("x.png", two.clone());
    let values = plain(DType::Uint8, &[3, 6, 8], &path).expect("a picture");
    assert_eq!((values[0], values[7]), (0.0, 255.0));
    // EXIF orientation 6: the image must be rotated clockwise, so that the left side becomes the
    // top.
    let mut exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0".to_vec();
    exif.extend([0; 4]);
    let path = folder.path("turned.jpg");
    let file = fs::File::create(&path).expect("the file is created");
    let mut encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(file, 100);
    encoder.set_exif_metadata(exif).expect("JPEG has EXIF");
    encoder.encode_image(&two).expect("the file is written");
    let values = plain(DType::Uint8, &[3, 8, 6], &path).expect("a picture");
    assert!(values[0] < 5.0 && values[5] < 5.0, "the top is black");
    assert!(
        values[42] > 250.0 && values[47] > 250.0,
        "the bottom is white"
    );
}

#[test]
fn what_is_no_picture_is_refused() {
    let folder = Folder::new();
    let refused = |path: &Path| {
        plain(DType::Uint8, &[1, 3, 8, 8], path).expect_err("the file is not an image")
    };
    let path = folder.path("x.png");
    fs::write(&path, "text").expect("the file is written");
    assert!(refused(&path).contains("neither PNG, JPEG, WebP nor GIF"));
    fs::write(&path, "").expect("the file is written");
    assert!(refused(&path).contains("neither PNG, JPEG, WebP nor GIF"));
    assert!(refused(&folder.path("none.jpg")).contains("No such file"));
    // Headers of 60000 x 60000 pixels, and of 16384 x 16384 with 16 bits per channel: both exceed
    // the limit.
    for (side, bits) in [(60_000_u32, 8), (16_384, 16)] {
        fs::write(&path, claiming(side, bits)).expect("the file is written");
        let error = refused(&path);
        assert!(
            error.contains("limit") || error.contains("large"),
            "{error}"
        );
    }
}

/// A PNG file whose header declares `side` by `side` RGBA pixels, without pixel data.
fn claiming(side: u32, bits: u8) -> Vec<u8> {
    let color = if bits == 16 {
        image::ExtendedColorType::Rgba16
    } else {
        image::ExtendedColorType::Rgba8
    };
    let mut file = Vec::new();
    let pixels = vec![0; usize::from(bits) / 2];
    let encoder = image::codecs::png::PngEncoder::new(&mut file);
    encoder
        .write_image(&pixels, 1, 1, color)
        .expect("the file is written");
    let sides = [side.to_be_bytes(), side.to_be_bytes()].concat();
    file[16..24].copy_from_slice(&sides);
    let check = crc(&file[12..29]);
    file[29..33].copy_from_slice(&check.to_be_bytes());
    file
}

/// Returns the checksum of a PNG chunk.
fn crc(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let odd = crc & 1 == 1;
            crc >>= 1;
            if odd {
                crc ^= 0xedb8_8320;
            }
        }
    }
    !crc
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn changed_pictures_never_panic(
        name in prop::sample::select(&["x.png", "x.jpg"][..]),
        changes in vec((any::<Index>(), any::<u8>()), 1..6),
    ) {
        let folder = Folder::new();
        let path = folder.save(name, picture());
        let mut bytes = fs::read(&path).expect("the file was written");
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        fs::write(&path, bytes).expect("the file is written");
        let _ = plain(DType::Float32, &[1, 3, 8, 8], &path);
    }
}
