//! Arbitrary recipes, pictures and outputs end in an answer or in an error.

use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_media::picture::{self, Geometry};
use pkgtool_media::recipe::{Recipe, builtin};
use proptest::prelude::*;

use crate::{facts, signature};

/// Fits each built-in recipe to a model of small sizes: every symbol is 8.
fn small() -> Vec<pkgtool_media::recipe::FittedRecipe> {
    let recipes = builtin().iter().map(|recipe| {
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
    fn outputs_of_any_shape_end(outputs in proptest::collection::vec(tensor(), 0..9), which in 0..builtin().len(),
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
    fn pictures_of_any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0..4_usize) {
        let start: &[u8] = [&b"\x89PNG\r\n\x1a\n"[..], b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF\x20\0\0\0WEBPVP8 "][kind];
        let _ = picture::decode(&[start, &bytes].concat());
    }
}
