//! From a picture to a tensor, and from a tensor to a picture.

use image::{Rgb, RgbImage};

use super::{Array, Data, DataKind, Operator, StepContext, picture_size, values};
use crate::answer::{PictureAnswer, TypedAnswer, TypedAnswerKind};
use crate::operators::{Arguments, Parameter, ParameterKind};
use crate::picture::{Fit, Interpolation, fit, resize_planes};

/// Maximum side of a model's input, in pixels.
const MAX_SIDE: u64 = 4096;

/// Mode for a line of text: of the input's height, and at most as wide.
const LINE: &str = "line";

pub(super) const TABLE: &[Operator] = &[
    Operator {
        name: "resize",
        from: &[DataKind::Picture],
        to: DataKind::Picture,
        parameters: &[
            Parameter {
                name: "mode",
                kind: ParameterKind::Choice(&[
                    "stretch",
                    "letterbox",
                    "border",
                    "corner",
                    "crop",
                    LINE,
                ]),
                default: Some("\"stretch\""),
            },
            Parameter {
                name: "interpolation",
                kind: ParameterKind::Choice(Interpolation::NAMES),
                default: Some("\"linear\""),
            },
            Parameter {
                name: "pad",
                kind: ParameterKind::Channels,
                default: Some("0"),
            },
            // The part of the shorter side that a crop keeps.
            Parameter {
                name: "part",
                kind: ParameterKind::Number(0.1, 1.0),
                default: Some("1"),
            },
            // Sides that the model leaves open are the picture's, between the shortest and the longest side, and
            // rounded to a multiple.
            Parameter {
                name: "shortest",
                kind: ParameterKind::Whole(1, MAX_SIDE),
                default: Some("1"),
            },
            Parameter {
                name: "multiple",
                kind: ParameterKind::Whole(1, 1024),
                default: Some("32"),
            },
            Parameter {
                name: "longest",
                kind: ParameterKind::Whole(1, MAX_SIDE),
                default: Some("640"),
            },
        ],
        run: resize,
    },
    Operator {
        name: "normalize",
        from: &[DataKind::Picture],
        to: DataKind::Values,
        parameters: &[
            Parameter {
                name: "scale",
                kind: ParameterKind::Number(0.0, 1e6),
                default: Some("0.00392156862745098"),
            },
            Parameter {
                name: "mean",
                kind: ParameterKind::Channels,
                default: Some("0"),
            },
            Parameter {
                name: "std",
                kind: ParameterKind::Channels,
                default: Some("1"),
            },
            Parameter {
                name: "order",
                kind: ParameterKind::Choice(&["rgb", "bgr", "grey"]),
                default: Some("\"rgb\""),
            },
        ],
        run: normalize,
    },
    Operator {
        name: "pad_right",
        from: &[DataKind::Values],
        to: DataKind::Values,
        parameters: &[
            Parameter {
                name: "least",
                kind: ParameterKind::Whole(1, MAX_SIDE),
                default: Some("1"),
            },
            Parameter {
                name: "value",
                kind: ParameterKind::Number(-1e6, 1e6),
                default: Some("0"),
            },
        ],
        run: pad_right,
    },
    Operator {
        name: "paint",
        from: &[DataKind::Values],
        to: DataKind::Answer(TypedAnswerKind::Picture),
        parameters: &[
            Parameter {
                name: "range",
                kind: ParameterKind::Choice(&["auto", "unit", "byte", "signed"]),
                default: Some("\"auto\""),
            },
            Parameter {
                name: "keep_size",
                kind: ParameterKind::Flag,
                default: Some("true"),
            },
        ],
        run: paint,
    },
    Operator {
        name: "reply",
        from: &[DataKind::Values],
        to: DataKind::Answer(TypedAnswerKind::Reply),
        parameters: &[
            Parameter {
                name: "prompt",
                kind: ParameterKind::Text,
                default: None,
            },
            // Tokens of the answer.
            Parameter {
                name: "most",
                kind: ParameterKind::Whole(1, 1 << 20),
                default: Some("128"),
            },
        ],
        run: reply,
    },
];

/// The words come from a text decoder, not from the rows alone.
fn reply(_: &[&Data], _: &Arguments, _: &mut StepContext<'_>) -> Result<Data, String> {
    Err("the words come from the text decoder".to_owned())
}

fn picture<'d>(from: &[&'d Data]) -> Result<&'d RgbImage, String> {
    match from {
        [Data::Picture(picture)] => Ok(picture),
        _ => Err("expected a picture".to_owned()),
    }
}

fn resize(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let picture = picture(from)?;
    let own = [picture.width(), picture.height()];
    let known = |symbol: &str| context.symbols.get(symbol).copied().flatten();
    let [width, height] = if arguments.word("mode") == LINE {
        line_size(own, [known("W"), known("H")], arguments)
    } else {
        let open = open_size(own, arguments);
        [known("W").unwrap_or(open[0]), known("H").unwrap_or(open[1])]
    };
    let checked = |side: u64| {
        let fits = u32::try_from(side)
            .ok()
            .filter(|side| (1..=MAX_SIDE).contains(&u64::from(*side)));
        fits.ok_or_else(|| format!("invalid side of {side} pixels: expected 1 to {MAX_SIDE}"))
    };
    let size = [checked(width)?, checked(height)?];
    let mode = Fit::of(arguments.word("mode"));
    let interpolation = Interpolation::of(arguments.word("interpolation"));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to a byte"
    )]
    let pad = arguments
        .channels("pad")
        .map(|value| value.clamp(0.0, 255.0) as u8);
    let mode = (mode, arguments.number("part"));
    let (fitted, geometry) = fit(picture, size, mode, interpolation, pad);
    context.geometry = geometry;
    Ok(Data::Picture(fitted))
}

/// Returns the size of an input that the model leaves open.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "clamped to the maximum side"
)]
fn open_size(own: [u32; 2], arguments: &Arguments) -> [u64; 2] {
    let [multiple, shortest, longest] =
        ["multiple", "shortest", "longest"].map(|name| arguments.whole(name) as f64);
    let sides = own.map(|side| f64::from(side.max(1)));
    let [shorter, longer] = [sides[0].min(sides[1]), sides[0].max(sides[1])];
    let scale = (shortest / shorter).max(1.0).min(longest / longer);
    sides.map(|side| {
        let scaled = (side * scale).floor();
        let rounded = (scaled / multiple).round_ties_even() * multiple;
        rounded.clamp(multiple, MAX_SIDE as f64) as u64
    })
}

/// Returns the size of a line of text in an input: of the input's height, and as wide as its proportions
/// need.
fn line_size(own: [u32; 2], known: [Option<u64>; 2], arguments: &Arguments) -> [u64; 2] {
    let height = known[1].unwrap_or(arguments.whole("shortest") as u64);
    let width = (u64::from(own[0]) * height).div_ceil(u64::from(own[1].max(1)));
    let most = known[0].unwrap_or(arguments.whole("longest") as u64);
    [width.clamp(1, most.max(1)), height]
}

/// Appends columns to a line of text: up to the input's width, or else to a minimum width.
fn pad_right(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let array = values(from, 0)?;
    let [channels, height, width] = array.last::<3>()?;
    let known = context.symbols.get("W").copied().flatten();
    let wanted = known.unwrap_or((arguments.whole("least") as u64).max(width as u64));
    let wanted = usize::try_from(wanted.min(MAX_SIDE)).unwrap_or(width);
    if wanted < width {
        return Err(format!("a line of {width} pixels is wider than {wanted}"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a model's input has 32 bits"
    )]
    let value = arguments.number("value") as f32;
    let mut padded = Vec::with_capacity(channels * height * wanted);
    for row in array.values.chunks_exact(width.max(1)) {
        padded.extend_from_slice(row);
        padded.extend(std::iter::repeat_n(value, wanted - width));
    }
    Ok(Data::Values(Array {
        shape: vec![channels, height, wanted],
        values: padded,
    }))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a model's input has 32 bits"
)]
fn normalize(
    from: &[&Data],
    arguments: &Arguments,
    _: &mut StepContext<'_>,
) -> Result<Data, String> {
    let picture = picture(from)?;
    let (mean, std) = (arguments.channels("mean"), arguments.channels("std"));
    if std.contains(&0.0) {
        return Err("`std`: division by 0".to_owned());
    }
    let scale = arguments.number("scale");
    let (width, height) = (picture.width() as usize, picture.height() as usize);
    let value = |byte: f64, channel: usize| ((byte * scale - mean[channel]) / std[channel]) as f32;
    let mut values = Vec::with_capacity(width * height * 3);
    let order: &[usize] = match arguments.word("order") {
        "grey" => {
            let luma = |pixel: &Rgb<u8>| {
                let [red, green, blue] = pixel.0.map(f64::from);
                (0.299 * red + 0.587 * green + 0.114 * blue).round()
            };
            values.extend(picture.pixels().map(|pixel| value(luma(pixel), 0)));
            &[]
        }
        "bgr" => &[2, 1, 0],
        _ => &[0, 1, 2],
    };
    for (channel, source) in order.iter().enumerate() {
        let bytes = picture.as_raw().iter().skip(*source).step_by(3);
        values.extend(bytes.map(|byte| value(f64::from(*byte), channel)));
    }
    let channels = order.len().max(1);
    let shape = vec![channels, height, width];
    Ok(Data::Values(Array { shape, values }))
}

fn paint(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let array = values(from, 0)?;
    let [first, middle, last] = array.last::<3>()?;
    let (height, width, planar) = match (first, last) {
        (3, _) => (middle, last, true),
        (_, 3) => (first, middle, false),
        _ => return Err(format!("expected three channels, got {:?}", array.shape)),
    };
    let most = array
        .values
        .iter()
        .copied()
        .filter(|value| value.is_finite())
        .fold(0.0_f32, f32::max);
    let (factor, shift) = match arguments.word("range") {
        "unit" => (255.0, 0.0),
        "byte" => (1.0, 0.0),
        "signed" => (127.5, 127.5),
        // A picture of bytes has values far above 1.
        _ if most > 2.0 => (1.0, 0.0),
        _ => (255.0, 0.0),
    };
    let plane = height * width;
    let at = |pixel: usize, channel: usize| {
        if planar {
            channel * plane + pixel
        } else {
            pixel * 3 + channel
        }
    };
    let places = (0..plane).flat_map(|pixel| (0..3).map(move |channel| (pixel, channel)));
    let interleaved = places.map(|(pixel, channel)| {
        let value = array.values[at(pixel, channel)] * factor + shift;
        // NaN is black.
        if value.is_nan() {
            0.0
        } else {
            value.clamp(0.0, 255.0)
        }
    });
    let mut interleaved: Vec<f32> = interleaved.collect();
    let mut size = picture_size(width, height)?;
    if arguments.flag("keep_size") && size != context.geometry.picture {
        let picture = context.geometry.picture;
        interleaved = resize_planes(&interleaved, 3, size, picture, Interpolation::Linear);
        size = picture;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to a byte"
    )]
    let bytes = interleaved
        .iter()
        .map(|value| value.round() as u8)
        .collect();
    let picture = RgbImage::from_raw(size[0], size[1], bytes).ok_or("the picture is too large")?;
    Ok(Data::Answer(TypedAnswer::Picture(PictureAnswer {
        picture,
    })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::Symbols;
    use crate::operators::find;
    use crate::picture::Geometry;
    use serde_json::json;

    fn arguments(name: &str, given: &[(&'static str, serde_json::Value)]) -> Arguments {
        let operator = find(name).expect("an operator");
        let mut arguments = Arguments::default();
        for parameter in operator.parameters {
            let default = parameter.default.expect("a default");
            arguments
                .0
                .insert(parameter.name, serde_json::from_str(default).expect("JSON"));
        }
        arguments.0.extend(given.iter().cloned());
        arguments
    }

    #[test]
    fn channels_are_normalized_in_order() {
        let picture = RgbImage::from_pixel(2, 1, Rgb([255, 0, 51]));
        let symbols = Symbols::new();
        let mut context = StepContext {
            geometry: Geometry::same([2, 1]),
            ..StepContext::new(&symbols)
        };
        for (order, expected) in [
            ("rgb", vec![1.0, 1.0, -1.0, -1.0, -0.6, -0.6]),
            ("bgr", vec![-0.6, -0.6, -1.0, -1.0, 1.0, 1.0]),
            ("grey", vec![-0.356_862_75, -0.356_862_75]),
        ] {
            let given = [
                ("order", json!(order)),
                ("mean", json!(0.5)),
                ("std", json!([0.5, 0.5, 0.5])),
            ];
            let arguments = arguments("normalize", &given);
            let data = [&Data::Picture(picture.clone())]
                .map(|it| normalize(&[it], &arguments, &mut context));
            let [Ok(Data::Values(array))] = data else {
                panic!("values")
            };
            assert_eq!(array.shape, [expected.len() / 2, 1, 2]);
            for (value, expected) in array.values.iter().zip(expected) {
                assert!((value - expected).abs() < 1e-6, "{order}");
            }
        }
    }

    #[test]
    fn open_sides_follow_the_picture() {
        let symbols = Symbols::from([("H".to_owned(), None), ("W".to_owned(), None)]);
        let mut context = StepContext {
            geometry: Geometry::same([1, 1]),
            ..StepContext::new(&symbols)
        };
        for (own, expected) in [
            ([100, 50], [96, 64]),
            ([6400, 3200], [640, 320]),
            ([1, 1], [32, 32]),
        ] {
            let picture = Data::Picture(RgbImage::new(own[0], own[1]));
            let resized =
                resize(&[&picture], &arguments("resize", &[]), &mut context).expect("it fits");
            let Data::Picture(resized) = resized else {
                panic!("a picture")
            };
            assert_eq!([resized.width(), resized.height()], expected);
        }
    }

    #[test]
    fn values_become_a_picture_of_the_old_size() {
        let symbols = Symbols::new();
        let mut context = StepContext {
            geometry: Geometry::same([2, 2]),
            ..StepContext::new(&symbols)
        };
        let array = |values: Vec<f32>| {
            Data::Values(Array {
                shape: vec![1, 3, 1, 1],
                values,
            })
        };
        for (values, expected) in [
            (vec![1.0, 0.5, -1.0], [255, 128, 0]),
            (vec![255.0, 128.0, 300.0], [255, 128, 255]),
            (vec![f32::NAN, f32::INFINITY, 0.0], [0, 255, 0]),
        ] {
            let painted = paint(&[&array(values)], &arguments("paint", &[]), &mut context);
            let Ok(Data::Answer(TypedAnswer::Picture(answer))) = painted else {
                panic!("a picture")
            };
            assert_eq!(answer.picture.dimensions(), (2, 2));
            assert_eq!(answer.picture.get_pixel(1, 1).0, expected);
        }
        let wrong = Data::Values(Array {
            shape: vec![2, 4, 4],
            values: vec![0.0; 32],
        });
        let error =
            paint(&[&wrong], &arguments("paint", &[]), &mut context).expect_err("two channels");
        assert!(error.contains("expected three channels"), "{error}");
    }
}
