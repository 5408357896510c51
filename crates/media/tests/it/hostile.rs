//! Arbitrary recipes, pictures and outputs end in an answer or in an error.

use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_media::MediaKind;
use pkgtool_media::picture::{self, Geometry};
use pkgtool_media::recipe::{Recipe, SoundRun, builtin};
use pkgtool_media::sound::{self, Sound};
use proptest::prelude::*;

use crate::{facts, signature};

/// Fits each built-in recipe to a model of small sizes: every symbol is 8.
fn small() -> Vec<pkgtool_media::recipe::FittedRecipe> {
    let recipes = pictures().map(|recipe| {
        let capabilities = [recipe.capability().to_owned()];
        let sizes = |texts: &str| -> Vec<Vec<u64>> {
            let tensors = texts.split("], ").map(|text| text.trim_end_matches(']'));
            let shape = |text: &str| {
                let (_, dims) = text.split_once('[').expect("sizes");
                // Open sizes, so that outputs may have any.
                let dims = dims
                    .split(", ")
                    .map(|dim| dim.trim_end_matches('?').parse().unwrap_or(0));
                dims.collect()
            };
            tensors.map(shape).collect()
        };
        let expected = recipe.expected();
        let (inputs, outputs) = expected.split_once(" -> ").expect("both sides");
        let (inputs, outputs) = (sizes(inputs), sizes(outputs));
        let slices = |shapes: &'_ [Vec<u64>]| shapes.iter().map(Vec::clone).collect::<Vec<_>>();
        let (inputs, outputs) = (slices(&inputs), slices(&outputs));
        let inputs: Vec<&[u64]> = inputs.iter().map(Vec::as_slice).collect();
        let outputs: Vec<&[u64]> = outputs.iter().map(Vec::as_slice).collect();
        let mut signature = signature(&inputs, &outputs);
        if let Some(method) = recipe.preferred_method() {
            method.clone_into(&mut signature.method);
        }
        let fitted = recipe.fit(&facts(&capabilities, "x", &signature));
        fitted.unwrap_or_else(|| panic!("{}: {expected}", recipe.name))
    });
    recipes.collect()
}

fn pictures() -> impl Iterator<Item = &'static Recipe> {
    let recipes = builtin().iter();
    recipes.filter(|recipe| recipe.takes() == MediaKind::Picture)
}

fn tensor() -> impl Strategy<Value = Tensor> {
    let shape = proptest::collection::vec(prop_oneof![Just(1_u64), 0_u64..9], 0..5);
    shape.prop_flat_map(|shape| {
        let count = usize::try_from(shape.iter().product::<u64>()).expect("small");
        let value = prop_oneof![-4.0..300.0_f64, Just(f64::NAN), Just(f64::INFINITY)];
        proptest::collection::vec(value, count).prop_map(move |values| {
            Tensor::from_f64(DType::Float32, shape.clone(), values).expect("small")
        })
    })
}

proptest! {
    #[test]
    fn outputs_of_any_shape_end(outputs in proptest::collection::vec(tensor(), 0..9), which in 0..pictures().count(),
        picture in (1..50_u32, 1..50_u32)) {
        let recipe = &small()[which];
        let geometry = Geometry::same([picture.0, picture.1]);
        if let Ok(answer) = recipe.interpret(&outputs, geometry) {
            answer.to_json();
        }
    }

    #[test]
    fn recipes_of_any_text_end(text in "\\PC*", at in 0..400_usize) {
        let _ = Recipe::parse("x.toml", &text);
        let good = include_str!("../../recipes/detection.toml");
        let at = (0..=at.min(good.len())).rev().find(|at| good.is_char_boundary(*at)).unwrap_or(0);
        let _ = Recipe::parse("x.toml", &format!("{}{text}{}", &good[..at], &good[at..]));
    }

    #[test]
    fn sounds_and_outputs_of_any_shape_end(samples in proptest::collection::vec(any::<i16>(), 0..4000),
        outputs in proptest::collection::vec(tensor(), 1..4), silero in any::<bool>()) {
        let recipe = if silero { crate::sounds::silero() } else { crate::sounds::fsmn() };
        let mut run = SoundRun::new(Sound::of(samples));
        while let Ok(Some(_)) = run.next_inputs(&recipe) {
            if run.add(&recipe, outputs.clone()).is_err() {
                break;
            }
        }
        let _ = run.answer(&recipe).map(|answer| answer.to_json());
    }

    #[test]
    fn sounds_of_any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..300), kind in 0..8_usize,
        cut in 0..20_000_usize, at in 0..20_000_usize) {
        let starts: [&[u8]; 8] = [
            b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0", b"fLaC\0\0\0\x22", b"OggS\0\x02", b"ID3\x04\0\0\0\0\x7f\x7f",
            b"\x1a\x45\xdf\xa3", b"\0\0\0\x20ftypM4A ", b"\xff\xfb\x90\x64", b"FORM\0\0\0\0AIFF",
        ];
        let _ = sound::decode(&[starts[kind], &bytes].concat());
        // A recording with bytes replaced, and cut.
        let (_, good) = crate::sounds::RECORDINGS[kind % crate::sounds::RECORDINGS.len()];
        let mut broken = good[..cut.min(good.len())].to_vec();
        let at = at.min(broken.len());
        let end = (at + bytes.len()).min(broken.len());
        broken[at..end].copy_from_slice(&bytes[..end - at]);
        let _ = sound::decode(&broken);
    }

    #[test]
    fn pictures_of_any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..4_usize) {
        let start: &[u8] = [&b"\x89PNG\r\n\x1a\n"[..], b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF\x20\0\0\0WEBPVP8 "][kind];
        let _ = picture::decode(&[start, &bytes].concat());
    }
}
