//! Average precision, against pycocotools: `tests/coco/truth.py` made the objects and the figures.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use pkgtool_eval::{EvalDataset, EvalTask, ItemTruth, Outcome, figures};
use pkgtool_media::MediaKind;
use serde_json::{Value as Json, json};

fn numbers(list: &Json) -> Vec<f64> {
    let list = list.as_array().expect("a list").iter();
    list.map(|value| value.as_f64().expect("a number"))
        .collect()
}

#[test]
fn average_precision_is_that_of_pycocotools() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/coco/coco.json");
    let text = fs::read_to_string(file).expect("the truth");
    let truth: Json = serde_json::from_str(&text).expect("JSON");
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path();
    fs::create_dir_all(root.join("annotations")).expect("a directory");
    fs::create_dir_all(root.join("images")).expect("a directory");
    let annotations = root.join("annotations/instances_val.json");
    fs::write(annotations, truth["dataset"].to_string()).expect("written");
    for picture in truth["dataset"]["images"].as_array().expect("pictures") {
        let name = picture["file_name"].as_str().expect("a name");
        fs::write(root.join("images").join(name), "").expect("written");
    }
    let dataset = EvalDataset::open(root, EvalTask::Detection, MediaKind::Picture).expect("valid");
    let mut found: HashMap<&str, Vec<Json>> = HashMap::new();
    for object in truth["found"].as_array().expect("objects") {
        let picture = object["picture"].as_str().expect("a name");
        found.entry(picture).or_default().push(object.clone());
    }
    let outcomes: Vec<Outcome> = dataset
        .items
        .iter()
        .map(|item| {
            let objects = found.get(item.name.as_str()).cloned().unwrap_or_default();
            serde_json::from_value(json!({ "objects": objects })).expect("an outcome")
        })
        .collect();
    let truths: Vec<&ItemTruth> = dataset.items.iter().map(|item| &item.truth).collect();
    for truth in &truths {
        let ItemTruth::Objects { objects, .. } = truth else {
            panic!("objects");
        };
        for object in objects {
            let pixels = object.pixels.as_ref().expect("pixels");
            #[expect(clippy::cast_precision_loss, reason = "small pictures")]
            let area = pixels.area() as f64;
            assert!((area - object.area).abs() < 1e-9, "{area} {}", object.area);
        }
    }
    let pairs: Vec<_> = truths.into_iter().zip(&outcomes).collect();
    let figures = figures(EvalTask::Detection, &pairs);
    let expected = [numbers(&truth["boxes"]), numbers(&truth["masks"])].concat();
    assert_eq!(figures.len(), expected.len());
    for (figure, expected) in figures.iter().zip(expected) {
        let value = figure.value.expect("a value");
        assert!(
            (value - expected).abs() < 1e-9,
            "{}: {value}, {expected}",
            figure.name
        );
    }
}
