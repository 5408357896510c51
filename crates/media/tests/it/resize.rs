//! Resized pictures equal those of `OpenCV` and Pillow (`tests/golden/resize.py`).

use image::RgbImage;
use serde_json::Value as Json;

use crate::{facts, signature};
use pkgtool_media::recipe::Recipe;

const RECIPE: &str = r#"
name = "resize"
summary = "resizes"
source = "this test"
[match]
capability = "x"
inputs = ["image: float[1, 3, H, W]"]
outputs = ["vector: float[N]"]
[values]
interpolation = "linear"
[[prepare]]
step = "resize"
interpolation = "$interpolation"
[[prepare]]
step = "normalize"
scale = 1
[[interpret]]
step = "vector"
"#;

fn bytes(json: &Json) -> Vec<u8> {
    let values = json.as_array().expect("a list").iter();
    let byte = |value: &Json| u8::try_from(value.as_u64().expect("a number")).expect("a byte");
    values.map(byte).collect()
}

#[test]
fn kernels_equal_the_libraries() {
    let golden: Json = serde_json::from_str(include_str!("../golden/resize.json")).expect("JSON");
    let side = |value: &Json| u32::try_from(value.as_u64().expect("a side")).expect("a side");
    let picture = RgbImage::from_raw(
        side(&golden["width"]),
        side(&golden["height"]),
        bytes(&golden["pixels"]),
    );
    let picture = picture.expect("a picture");
    let recipe = Recipe::parse("resize.toml", RECIPE).expect("a recipe");
    let capabilities = ["x".to_owned()];
    for case in golden["cases"].as_array().expect("cases") {
        let [width, height] = [0, 1].map(|axis| case["size"][axis].as_u64().expect("a side"));
        let signature = signature(&[&[1, 3, height, width]], &[&[4]]);
        let mut fitted = recipe
            .fit(&facts(&capabilities, "x", &signature))
            .expect("it fits");
        let name = case["interpolation"].clone();
        recipe
            .set(&mut fitted, "interpolation", name.clone(), "test")
            .expect("a value");
        let (tensors, _) = fitted.preparation.run(picture.clone()).expect("prepared");
        assert_eq!(tensors[0].shape(), [1, 3, height, width]);
        let planes = tensors[0].to_f32();
        let expected = bytes(&case["pixels"]);
        let plane = expected.len() / 3;
        for (place, expected) in expected.iter().enumerate() {
            let found = planes[place % 3 * plane + place / 3];
            let distance = (found - f32::from(*expected)).abs();
            assert!(
                distance <= 1.0,
                "{name} {width} x {height}, {place}: {found}, {expected}"
            );
        }
    }
}
