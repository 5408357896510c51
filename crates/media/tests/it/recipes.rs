//! Built-in recipes find their models, and faults of recipes have a place and a reason.

use image::{Rgb, RgbImage};
use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_media::answer::TypedAnswer;
use pkgtool_media::labels::Labels;
use pkgtool_media::picture::{Geometry, Quad};
use pkgtool_media::recipe::{self, FittedRecipe, Recipe};
use pkgtool_media::worker;
use serde_json::json;

use crate::{facts, signature};

/// A shape of a model; 0 is an open size.
type Shape = &'static [u64];

/// Models as publishers export them: capability, family, shapes, and the recipe that fits.
const MODELS: [(&str, &str, Shape, &[Shape], &str); 13] = [
    (
        "classification",
        "efficientnet_v2",
        &[1, 3, 384, 384],
        &[&[1, 1000]],
        "classification",
    ),
    (
        "classification",
        "plain",
        &[3, 32, 32],
        &[&[10]],
        "classification",
    ),
    (
        "image-embedding",
        "clip",
        &[1, 3, 224, 224],
        &[&[1, 512]],
        "image-embedding",
    ),
    (
        "semantic-segmentation",
        "deeplab_v3",
        &[1, 3, 224, 224],
        &[&[1, 21, 224, 224]],
        "semantic-segmentation",
    ),
    (
        "style-transfer",
        "candy",
        &[1, 3, 640, 640],
        &[&[1, 3, 640, 640]],
        "style-transfer",
    ),
    (
        "object-detection",
        "ssdlite",
        &[1, 3, 320, 320],
        &[&[100, 4], &[100], &[100]],
        "detection",
    ),
    (
        "object-detection",
        "rf_detr",
        &[1, 3, 384, 384],
        &[&[1, 300, 4], &[1, 300], &[1, 300]],
        "detection",
    ),
    (
        "object-detection",
        "yolo26",
        &[1, 3, 640, 640],
        &[&[1, 300, 6]],
        "detection-rows",
    ),
    (
        "object-detection",
        "yolo11",
        &[1, 3, 640, 640],
        &[&[1, 84, 8400]],
        "detection-yolo",
    ),
    (
        "object-detection",
        "yolov5",
        &[1, 3, 640, 640],
        &[&[1, 25200, 85]],
        "detection-yolov5",
    ),
    (
        "object-detection",
        "picodet",
        &[1, 3, 0, 0],
        &[
            &[1, 0, 5],
            &[1, 0, 5],
            &[1, 0, 5],
            &[1, 0, 5],
            &[1, 0, 32],
            &[1, 0, 32],
            &[1, 0, 32],
            &[1, 0, 32],
        ],
        "detection-picodet",
    ),
    (
        "instance-segmentation",
        "rf_detr",
        &[1, 3, 312, 312],
        &[&[1, 200, 4], &[1, 200, 2], &[1, 200, 78, 78]],
        "instance-pairs",
    ),
    (
        "instance-segmentation",
        "yolo26",
        &[1, 3, 640, 640],
        &[&[300, 4], &[300], &[300], &[300, 160, 160]],
        "instance",
    ),
];

#[test]
fn published_contracts_find_their_recipe() {
    for (capability, family, input, outputs, expected) in MODELS {
        let signature = signature(&[input], outputs);
        let capabilities = [capability.to_owned()];
        let found = recipe::find(&[], &facts(&capabilities, family, &signature));
        let (_, recipe, _) = found.unwrap_or_else(|error| panic!("{family}: {error}"));
        assert_eq!(recipe.name, expected, "{family}");
    }
}

#[test]
fn a_model_that_nothing_fits_hears_what_was_expected() {
    let signature = signature(&[&[1, 16]], &[&[1, 2]]);
    let capabilities = ["classification".to_owned()];
    let error =
        recipe::find(&[], &facts(&capabilities, "x", &signature)).expect_err("nothing fits");
    assert!(
        error.contains("method `forward`, float32[1, 16] -> float32[1, 2]"),
        "{error}"
    );
    assert!(
        error.contains("classification (float[1?, 3, H, W] -> float[1?, N])"),
        "{error}"
    );
    let capabilities = ["text-generation".to_owned()];
    let error = recipe::find(&[], &facts(&capabilities, "x", &signature)).expect_err("no recipe");
    assert!(
        error.contains("no recipe for the capabilities text-generation"),
        "{error}"
    );
}

/// Fits the built-in recipe for a model.
fn fitted(
    capability: &str,
    family: &str,
    input: Shape,
    outputs: &[Shape],
) -> (&'static Recipe, FittedRecipe) {
    let signature = signature(&[input], outputs);
    let capabilities = [capability.to_owned()];
    let found = recipe::find(&[], &facts(&capabilities, family, &signature));
    let (_, recipe, fitted) = found.expect("a recipe");
    (recipe, fitted)
}

#[test]
fn presets_and_settings_show_their_origin() {
    let (recipe, mut detector) = fitted(
        "object-detection",
        "ssdlite320",
        &[1, 3, 320, 320],
        &[&[9, 4], &[9], &[9]],
    );
    let threshold = &detector.values["threshold"];
    assert_eq!(threshold.value, json!(0.7));
    assert!(
        threshold.origin.contains("preset for ssdlite*, ssd*"),
        "{}",
        threshold.origin
    );
    assert!(
        detector.values["iou"]
            .origin
            .starts_with("recipe `detection`")
    );
    recipe
        .set(&mut detector, "threshold", json!(0.1), "a test")
        .expect("a threshold");
    assert_eq!(detector.values["threshold"].origin, "a test");
    for (name, value, reason) in [
        (
            "threshold",
            json!(7),
            "expected a number from 0 to 1, got 7",
        ),
        (
            "resize",
            json!("squeeze"),
            "expected one of stretch, letterbox, border, corner, crop",
        ),
        ("limit", json!(1), "unknown value `limit`"),
        ("mean", json!([1, 2]), "a list of three"),
    ] {
        let error = recipe
            .set(&mut detector, name, value, "a test")
            .expect_err("refused");
        assert!(error.contains(reason), "{error}");
    }
}

fn tensor(shape: &[u64], values: &[f64]) -> Tensor {
    Tensor::from_f64(DType::Float32, shape.to_vec(), values.iter().copied()).expect("it is small")
}

#[test]
fn labels_of_a_package_must_fit() {
    let (recipe, classifier) = fitted("classification", "x", &[1, 3, 8, 8], &[&[1, 3]]);
    let outputs = [tensor(&[1, 3], &[0.0, 3.0, 1.0])];
    let geometry = Geometry::same([8, 8]);
    let list = |names: &[&str]| {
        Labels::listed(names.iter().map(|it| (*it).to_owned()).collect(), "a file")
    };
    let named = classifier
        .clone()
        .with_labels(Some(list(&["cat", "dog", "cow"])));
    let Ok(TypedAnswer::Labels(answer)) = named.interpret(&outputs, geometry) else {
        panic!("labels")
    };
    assert_eq!(
        (answer.labels[0].label.as_str(), answer.labels[0].index),
        ("dog", 1)
    );
    assert!(
        (answer.labels[0].score - 0.843_795).abs() < 1e-5,
        "{}",
        answer.labels[0].score
    );
    let mut two = classifier.clone().with_labels(Some(list(&["cat", "dog"])));
    let error = two.interpret(&outputs, geometry).expect_err("two labels");
    assert!(
        error.contains("2 labels (a file) do not fit the 3 classes"),
        "{error}"
    );
    // A setting takes precedence over the package.
    recipe
        .set(&mut two, "labels", json!(["a", "b", "c"]), "a test")
        .expect("labels");
    let Ok(TypedAnswer::Labels(answer)) = two.interpret(&outputs, geometry) else {
        panic!("labels")
    };
    assert_eq!(answer.labels[0].label, "b");
}

#[test]
fn boxes_return_to_the_picture() {
    let (_, detector) = fitted(
        "object-detection",
        "yolo11",
        &[1, 3, 64, 64],
        &[&[1, 6, 84]],
    );
    let picture = RgbImage::from_pixel(128, 64, Rgb([10, 20, 30]));
    let (tensors, geometry) = detector.preparation.run(picture).expect("prepared");
    assert_eq!(tensors[0].shape(), [1, 3, 64, 64]);
    // The border of the letterbox has the colour of the recipe.
    assert!((tensors[0].to_f32()[0] - 114.0 / 255.0).abs() < 1e-6);
    let mut values = vec![0.0; 6 * 84];
    for (row, value) in [32.0, 32.0, 16.0, 8.0, 0.1, 0.9].into_iter().enumerate() {
        values[row * 84 + 5] = value;
    }
    let answer = detector
        .interpret(&[tensor(&[1, 6, 84], &values)], geometry)
        .expect("an answer");
    let TypedAnswer::Boxes(answer) = answer else {
        panic!("boxes")
    };
    assert_eq!(answer.boxes.len(), 1);
    let found = &answer.boxes[0];
    assert_eq!((found.index, found.label.as_str()), (1, "class_1"));
    for (at, expected) in found.corners.iter().zip([48.0, 24.0, 80.0, 40.0]) {
        assert!((at - expected).abs() < 1e-4, "{:?}", found.corners);
    }
}

#[test]
fn maps_of_characters_become_lines_of_the_picture() {
    let capabilities = ["text-detection".to_owned()];
    for (method, name, first) in [
        // Blue first, normalised like red.
        (
            "forward_800",
            "text-detection-craft-bgr",
            (30.0 / 255.0 - 0.485) / 0.229,
        ),
        ("detect_800", "text-detection-craft-program", 10.0 / 255.0),
        (
            "forward",
            "text-detection-craft",
            (10.0 / 255.0 - 0.485) / 0.229,
        ),
    ] {
        let mut model = signature(&[&[1, 3, 80, 80]], &[&[1, 40, 40, 2]]);
        model.method = method.to_owned();
        let facts = facts(&capabilities, "craft", &model);
        let mut recipes = recipe::builtin().iter();
        let (recipe, fitted) = recipes
            .find_map(|recipe| Some((recipe, recipe.fit(&facts)?)))
            .expect("a recipe");
        assert_eq!(recipe.name, name);
        // Half as high as wide: it is placed in the middle.
        let picture = RgbImage::from_pixel(160, 80, Rgb([10, 20, 30]));
        let (tensors, geometry) = fitted.preparation.run(picture).expect("prepared");
        assert!(
            (f64::from(tensors[0].to_f32()[0]) - first).abs() < 1e-5,
            "{name}"
        );
        let mut maps = vec![0.0; 40 * 40 * 2];
        for y in 18..22 {
            for x in 8..32 {
                maps[2 * (y * 40 + x)] = 0.9;
            }
        }
        let outputs = [tensor(&[1, 40, 40, 2], &maps)];
        let Ok(TypedAnswer::Lines(answer)) = fitted.interpret(&outputs, geometry) else {
            panic!("lines")
        };
        // Four rows are thick by two pixels, so the area grows by two on each side; a pixel of the map is four of
        // the picture.
        let [line] = &answer.lines[..] else {
            panic!("one line: {answer:?}")
        };
        let expected = [24.0, 24.0, 132.0, 52.0];
        for (found, expected) in line.quad.bounds().iter().zip(expected) {
            assert!((found - expected).abs() < 1e-3, "{:?}", line.quad);
        }
    }
}

#[test]
fn masks_cover_their_box() {
    let outputs: &[Shape] = &[&[1, 2, 4], &[1, 2, 2], &[1, 2, 4, 4]];
    let (_, model) = fitted("instance-segmentation", "x", &[1, 3, 8, 8], outputs);
    let (_, geometry) = model
        .preparation
        .run(RgbImage::new(16, 16))
        .expect("prepared");
    let mut masks = vec![-9.0; 32];
    // The left half of the second object's grid.
    for row in 0..4 {
        masks[16 + row * 4] = 9.0;
        masks[16 + row * 4 + 1] = 9.0;
    }
    let outputs = [
        tensor(&[1, 2, 4], &[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 8.0, 4.0]),
        tensor(&[1, 2, 2], &[0.1, 0.0, 0.9, 3.0]),
        tensor(&[1, 2, 4, 4], &masks),
    ];
    let Ok(TypedAnswer::Boxes(answer)) = model.interpret(&outputs, geometry) else {
        panic!("boxes")
    };
    assert_eq!(answer.boxes.len(), 1);
    let mask = answer.boxes[0].mask.as_ref().expect("a mask");
    assert_eq!((mask.origin, mask.mask.dimensions()), ([0, 0], (16, 8)));
    assert_eq!(
        (mask.mask.get_pixel(7, 3).0, mask.mask.get_pixel(8, 3).0),
        ([255], [0])
    );
}

#[test]
fn pixels_of_a_letterbox_are_cut() {
    let (recipe, mut model) = fitted(
        "semantic-segmentation",
        "x",
        &[1, 3, 4, 4],
        &[&[1, 2, 4, 4]],
    );
    recipe
        .set(&mut model, "resize", json!("letterbox"), "a test")
        .expect("a mode");
    let (_, geometry) = model
        .preparation
        .run(RgbImage::new(8, 4))
        .expect("prepared");
    // Class 1 in the two rows of the picture, class 0 in the borders.
    let rows = [9.0, -9.0, -9.0, 9.0].iter().flat_map(|value| [*value; 4]);
    let values: Vec<f64> = rows.chain([0.0; 16]).collect();
    let Ok(TypedAnswer::Classes(answer)) =
        model.interpret(&[tensor(&[1, 2, 4, 4], &values)], geometry)
    else {
        panic!("classes")
    };
    assert_eq!(answer.mask.dimensions(), (8, 4));
    assert!(
        answer.mask.as_raw().iter().all(|class| *class == 1),
        "{:?}",
        answer.mask
    );
}

const GOOD: &str = r#"name = "x"
summary = "x"
source = "x"
[match]
capability = "x"
inputs = ["image: float[1, 3, H, W]"]
outputs = ["logits: float[1, N]"]
[values]
top = 3
[[prepare]]
step = "resize"
[[prepare]]
step = "normalize"
[[interpret]]
step = "scores"
to = "scores"
[[interpret]]
step = "labels"
from = "scores"
top_k = "$top"
"#;

#[test]
fn faults_of_recipes_have_a_place() {
    Recipe::parse("good.toml", GOOD).expect("a recipe");
    for (from, to, place, reason) in [
        ("name = \"x\"", "name = 1", "1:8", "invalid type"),
        ("[values]", "[value]", "8:2", "unknown field `value`"),
        (
            "float[1, N]",
            "float[1, N",
            "7:12",
            "expected `name: dtype[sizes]`",
        ),
        (
            "\"scores\"\nto",
            "\"score\"\nto",
            "14:1",
            "unknown step `score`; known: resize",
        ),
        (
            "from = \"scores\"",
            "from = \"boxes\"",
            "17:1",
            "unknown name `boxes` in `from`; known: logits, scores",
        ),
        (
            "step = \"scores\"",
            "step = \"scores\"\nfrom = \"scores\"",
            "14:1",
            "steps cannot form a cycle",
        ),
        ("top_k", "top", "17:1", "`labels` has no parameter `top`"),
        (
            "\"$top\"",
            "\"$most\"",
            "17:1",
            "`$most` is not among `[values]`: top",
        ),
        (
            "top = 3",
            "top = 0",
            "17:1",
            "`top` in `[values]`: expected an integer from 1",
        ),
        ("\"$top\"", "0.5", "17:1", "`top_k`: expected an integer"),
        (
            "step = \"scores\"\nto = \"scores\"",
            "step = \"vector\"\nto = \"scores\"",
            "17:1",
            "reads a tensor, but `scores` is an answer",
        ),
        (
            "[[prepare]]\nstep = \"normalize\"\n",
            "",
            "4:1",
            "no step of `prepare` makes the input `image`",
        ),
        (
            "to = \"scores\"",
            "to = \"a b\"",
            "14:1",
            "invalid name `a b`",
        ),
        (
            "[1, 3, H, W]\"]",
            "[1, 3, H, W]\", \"image: float[1]\"]",
            "4:1",
            "two tensors have the name `image`",
        ),
        (
            "step = \"normalize\"",
            "step = \"distances\"",
            "12:1",
            "`distances` needs `stride`",
        ),
    ] {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        let error = Recipe::parse("bad.toml", &text)
            .expect_err(reason)
            .to_string();
        assert!(error.contains(reason), "{error}, expected {reason}");
        assert!(
            error.starts_with(&format!("bad.toml:{place}: ")),
            "{error}, expected at {place}"
        );
    }
    let end = GOOD
        .find("[[interpret]]\nstep = \"labels\"")
        .expect("the last step");
    let error = Recipe::parse("bad.toml", &GOOD[..end])
        .expect_err("no answer")
        .to_string();
    assert!(
        error.contains(
            "the last step of `interpret` makes no answer: end with one of paint, reply, speech"
        ),
        "{error}"
    );
}

#[test]
fn a_recipe_may_replace_values_of_a_built_in_one() {
    let text = "base = \"detection\"\nsource = \"the publisher\"\n[values]\nthreshold = 0.25\norder = \"bgr\"\n";
    let recipe = Recipe::parse("recipe.toml", text).expect("a sound recipe");
    let signature = signature(&[&[1, 3, 320, 320]], &[&[100, 4], &[100], &[100]]);
    let capabilities = ["object-detection".to_owned()];
    // The preset of this family has another threshold.
    let fitted = recipe
        .fit(&facts(&capabilities, "ssdlite", &signature))
        .expect("it fits");
    assert_eq!(fitted.values["threshold"].value, json!(0.25));
    assert_eq!(
        fitted.values["threshold"].origin,
        "recipe `detection` (the publisher)"
    );
    assert_eq!(fitted.values["labels"].value, json!("coco-91"));
    for (wrong, place, part) in [
        (
            "base = \"x\"\nsource = \"y\"\nvalues = {}\n",
            (1, 8),
            "unknown recipe `x`",
        ),
        (
            "base = \"detection\"\nsource = \"y\"\n[values]\niuo = 1\n",
            (4, 7),
            "unknown value `iuo`",
        ),
        (
            "base = \"detection\"\nsource = \"y\"\n[values]\niou = 7\n",
            (4, 7),
            "`iou`: expected a number",
        ),
        (
            "base = \"detection\"\nsource = \"y\"\nsteps = 1\n",
            (3, 1),
            "unknown field `steps`",
        ),
    ] {
        let error = Recipe::parse("recipe.toml", wrong).expect_err("a fault");
        assert_eq!(error.place, Some(place), "{error}");
        assert!(error.reason.contains(part), "{error}");
    }
}

#[test]
fn lines_are_cut_in_rounds_of_bounded_size() {
    let (_, reader) = fitted("text-recognition", "x", &[1, 3, 48, 0], &[&[1, 0, 97]]);
    let picture = RgbImage::new(1000, 48);
    let line = Quad([[0.0, 0.0], [1000.0, 0.0], [1000.0, 48.0], [0.0, 48.0]]);
    let cut = |count: usize| worker::cut_out(&reader.preparation, &picture, &vec![line; count]);
    // A line takes 576 kB, and a round 24 MiB.
    assert_eq!(cut(100).expect("valid").len(), 44);
    assert_eq!(cut(3).expect("valid").len(), 3);
    let error = cut(5000).expect_err("too many pixels");
    assert!(error.contains("send a smaller picture"), "{error}");
}

#[test]
fn an_alphabet_of_a_user_replaces_that_of_the_package() {
    let (recipe, reader) = fitted("text-recognition", "x", &[1, 3, 48, 320], &[&[1, 3, 3]]);
    let own = Labels::listed(vec!["a".to_owned(), "b".to_owned()], "a file");
    let mut reader = reader.with_labels(Some(own));
    let outputs = [tensor(
        &[1, 3, 3],
        &[0.0, 9.0, 0.0, 9.0, 0.0, 0.0, 0.0, 0.0, 9.0],
    )];
    let geometry = Geometry::same([320, 48]);
    let text = |reader: &FittedRecipe| reader.interpret_text(&outputs, geometry).map(|it| it.text);
    assert_eq!(text(&reader), Ok("ab".to_owned()));
    let set = recipe.set(&mut reader, "alphabet", json!(["x", "y"]), "a test");
    assert_eq!((set, text(&reader)), (Ok(()), Ok("xy".to_owned())));
    let set = recipe.set(&mut reader, "alphabet", json!("nosuch"), "a test");
    assert_eq!(set, Ok(()));
    let error = text(&reader).expect_err("no such alphabet");
    assert!(error.contains("unknown labels `nosuch`"), "{error}");
}
