//! Tests of `pkgtool run PACKAGE PICTURE`: answers by recipes, and errors of pictures, recipes and settings.

use std::fs;
use std::path::PathBuf;

use image::{Rgb, RgbImage};
use serde_json::json;

use crate::support::run::{Ran, pkgtool};
use tempfile::TempDir;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packages-examples");

/// Creates a directory with a picture of 60 x 40 pixels, `photo.png`.
fn photo() -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let picture = RgbImage::from_fn(60, 40, |x, y| {
        Rgb([x * 4, y * 6, 90].map(|value| u8::try_from(value).expect("a byte")))
    });
    picture
        .save(directory.path().join("photo.png"))
        .expect("written");
    directory
}

/// Copies the package `glimpse/xnnpack` to the directory, and returns its own directory.
fn copy_glimpse(directory: &TempDir) -> PathBuf {
    let package = directory.path().join("glimpse/xnnpack");
    fs::create_dir_all(&package).expect("a directory");
    for file in fs::read_dir(format!("{EXAMPLES}/glimpse/xnnpack")).expect("a directory") {
        let file = file.expect("an entry").path();
        fs::copy(&file, package.join(file.file_name().expect("a name"))).expect("copied");
    }
    package
}

/// Runs an example package on a file of the directory.
fn run(directory: &TempDir, package: &str, file: &str, arguments: &[&str]) -> Ran {
    let package = format!("{EXAMPLES}/{package}");
    let all = ["run", "--engine", "tract", &package, file];
    pkgtool(all.iter().chain(arguments))
        .within(directory.path())
        .run()
}

#[test]
fn every_capability_of_pictures_has_an_answer() {
    let directory = photo();
    for (package, recipe, part) in [
        (
            "glimpse",
            "classification",
            "labels: labels.txt of the package",
        ),
        ("twin-view", "image-embedding", "16 numbers: ["),
        ("mosaic", "semantic-segmentation", "grass"),
        (
            "watercolor",
            "style-transfer",
            "a picture of 60 x 40 pixels; `--save FILE` writes it",
        ),
    ] {
        let ran = run(&directory, package, "photo.png", &[]).expect_code(0);
        let line = format!("recipe {recipe}: a picture in, ");
        assert!(ran.stdout.contains(&line), "{package}: {}", ran.stdout);
        assert!(ran.stdout.contains(part), "{package}: {}", ran.stdout);
        let json = run(&directory, package, "photo.png", &["--json"])
            .expect_code(0)
            .json();
        assert_eq!(json["recipe"]["name"], recipe);
        let origin = json["recipe"]["values"]["resize"]["origin"]
            .as_str()
            .expect("a text");
        assert!(origin.contains("react-native-executorch"), "{origin}");
    }
}

#[test]
fn examples_answer_the_inputs_beside_them() {
    let directory = tempfile::tempdir().expect("a directory");
    for (package, input, parts) in [
        ("glimpse", "glimpse/shape.png", &["  star "][..]),
        (
            "spotter",
            "spotter/shapes.png",
            &["  circle ", "  star ", "  square ", "  triangle "],
        ),
        (
            "mosaic",
            "mosaic/landscape.png",
            &["sky ", "sea ", "sand ", "grass "],
        ),
        ("watercolor", "watercolor/landscape.png", &["128 x 128"]),
        ("twin-view", "twin-view/shape.png", &["16 numbers"]),
        (
            "readline-ocr",
            "readline-ocr/page.png",
            &["  a page of text", "  read on a phone "],
        ),
        (
            "lookout/xnnpack",
            "lookout/shapes.png",
            &["  A blue star and a red circle.\n"],
        ),
        ("murmur-vad/qnn", "murmur-vad/words.wav", &["of 2.53 s"]),
        (
            "scribe-tiny-en/mlx",
            "scribe-tiny-en/words.wav",
            &["  seven three one open right\n"],
        ),
        #[cfg(feature = "english")]
        ("parlor-tts", "Seven, three, one.", &["16000 samples"]),
        (
            "pocket-diffusion",
            "a small blue star",
            &["a picture of 32 x 32 pixels"],
        ),
    ] {
        let input = match package {
            "parlor-tts" | "pocket-diffusion" => input.to_owned(),
            _ => format!("{EXAMPLES}/{input}"),
        };
        let ran = run(&directory, package, &input, &[]).expect_code(0);
        for part in parts {
            assert!(ran.stdout.contains(part), "{package}: {}", ran.stdout);
        }
    }
}

/// The words that one example speaks are those that another writes down.
#[cfg(feature = "english")]
#[test]
fn an_example_hears_what_another_one_says() {
    let directory = tempfile::tempdir().expect("a directory");
    for words in ["nine stop left", "seven three one open right"] {
        let save = ["--set", "speed=1", "--save", "said.wav"];
        run(&directory, "parlor-tts", words, &save).expect_code(0);
        let heard = run(&directory, "scribe-tiny-en/mlx", "said.wav", &["--json"]);
        let heard = heard.expect_code(0).json()["answer"]["text"].clone();
        assert_eq!(heard, words);
    }
}

/// The picture in the README is what the command beside it draws.
#[test]
fn the_picture_of_the_readme_is_drawn() {
    let directory = tempfile::tempdir().expect("a directory");
    let input = format!("{EXAMPLES}/spotter/shapes.png");
    run(&directory, "spotter", &input, &["--save", "boxes.png"]).expect_code(0);
    let drawn = image::open(directory.path().join("boxes.png")).expect("a picture");
    let shown = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/images/boxes.png");
    let shown = image::open(shown).expect("a picture");
    let (drawn, shown) = (drawn.into_rgb8(), shown.into_rgb8());
    assert_eq!(drawn.dimensions(), shown.dimensions());
    let differing = drawn.pixels().zip(shown.pixels()).filter(|(a, b)| a != b);
    let differing = differing.count();
    assert!(differing < 500, "{differing} pixels differ");
}

#[test]
fn scores_are_those_of_the_tensors() {
    let directory = photo();
    let json = run(
        &directory,
        "glimpse",
        "photo.png",
        &["--json", "--set", "top_k=10"],
    )
    .expect_code(0)
    .json();
    let labels = json["answer"]["labels"].as_array().expect("labels");
    let sum: f64 = labels
        .iter()
        .map(|label| label["score"].as_f64().expect("a score"))
        .sum();
    assert!((sum - 1.0).abs() < 1e-5, "{sum}");
    let raw = run(&directory, "glimpse", "photo.png", &["--json", "--raw"])
        .expect_code(0)
        .json();
    let logits = raw["outputs"][0]["data"][0].as_array().expect("logits");
    let logits: Vec<f64> = logits
        .iter()
        .map(|logit| logit.as_f64().expect("a number"))
        .collect();
    let all: f64 = logits.iter().map(|logit| logit.exp()).sum();
    for label in labels {
        let index = usize::try_from(label["index"].as_u64().expect("a number")).expect("small");
        let score = label["score"].as_f64().expect("a score");
        assert!((score - logits[index].exp() / all).abs() < 1e-5, "{label}");
    }
}

#[test]
fn pictures_are_saved() {
    let directory = photo();
    for (package, file) in [("watercolor", "styled.png"), ("mosaic", "classes.jpg")] {
        let ran = run(&directory, package, "photo.png", &["--save", file]).expect_code(0);
        assert!(
            ran.stdout.contains(&format!("saved {file}")),
            "{}",
            ran.stdout
        );
        let saved = image::open(directory.path().join(file)).expect("a picture");
        assert_eq!((saved.width(), saved.height()), (60, 40));
    }
}

/// Checks that runs fail with these reasons.
#[track_caller]
fn refused(directory: &TempDir, cases: &[(&str, &str, &[&str], &str)]) {
    for (package, file, arguments, reason) in cases {
        let ran = run(directory, package, file, arguments).expect_code(2);
        let what = format!("{package} {file} {arguments:?}");
        assert!(ran.stderr.contains(reason), "{what}: {}", ran.stderr);
    }
}

#[test]
fn bad_pictures_are_refused_with_a_remedy() {
    let directory = photo();
    let write = |name: &str, bytes: &[u8]| {
        fs::write(directory.path().join(name), bytes).expect("written");
    };
    write("notes.txt", b"not a picture");
    write("empty.png", b"");
    write("photo.heic", b"\0\0\0\x18ftypheic\0\0\0\0");
    // The header of a PNG with 60000 x 60000 pixels.
    let mut bomb =
        b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\xea\x60\0\0\xea\x60\x08\x02\0\0\0".to_vec();
    bomb.extend([0x3e, 0x7c, 0xa5, 0x6f]);
    write("bomb.png", &bomb);
    refused(
        &directory,
        &[
            ("glimpse", "absent.png", &[], "absent.png: No such file"),
            (
                "glimpse",
                "notes.txt",
                &[],
                "notes.txt: neither PNG, JPEG, WebP nor GIF",
            ),
            (
                "glimpse",
                "empty.png",
                &[],
                "empty.png: neither PNG, JPEG, WebP nor GIF",
            ),
            (
                "glimpse",
                "photo.heic",
                &[],
                "HEIC and AVIF are unsupported: convert the picture to JPEG",
            ),
            ("glimpse", "bomb.png", &[], "bomb.png: "),
            ("glimpse", ".", &[], ".: "),
        ],
    );
}

#[test]
fn bad_settings_and_packages_are_refused_with_a_remedy() {
    let labels = "1 labels (the recipe's value `labels`) do not fit the 10 classes";
    let model = "glimpse/xnnpack/glimpse_xnnpack_fp32.pte";
    let detector = "spotter/s/qnn/spotter_s_qnn_fp32.onnx";
    let file = "photo.png";
    let directory = photo();
    refused(
        &directory,
        &[
            (
                "glimpse",
                file,
                &["--set", "top_k"],
                "--set top_k: expected NAME=VALUE",
            ),
            (
                "glimpse",
                file,
                &["--set", "top_k=0"],
                "`top_k`: expected an integer from 1",
            ),
            (
                "glimpse",
                file,
                &["--set", "colour=red"],
                "unknown value `colour`: recipe `classification` has",
            ),
            ("glimpse", file, &["--set", "labels=[\"a\"]"], labels),
            (
                "glimpse",
                file,
                &["--save", "x.png"],
                "--save x.png: the answer has no places in the picture",
            ),
            (
                "watercolor",
                file,
                &["--save", "x.txt"],
                "--save x.txt: expected a name that ends with .png, .jpg, .webp or .gif",
            ),
            (
                "glimpse",
                file,
                &["--input", "zeros"],
                "cannot be used with",
            ),
            (model, file, &[], "add `--as CAPABILITY`"),
            (
                detector,
                file,
                &["--as", "classification"],
                "no recipe fits method `forward`, float32[1, 3, 64, 64] ->",
            ),
            (
                detector,
                file,
                &["--as", "voice-activity-detection"],
                "voice-activity-silero (float[1, N]",
            ),
            (
                "jackdaw",
                file,
                &[],
                "no recipe for the capabilities text-generation",
            ),
        ],
    );
    run(&directory, model, file, &["--as", "classification"]).expect_code(0);
}

#[test]
fn a_package_brings_its_recipe_and_labels() {
    let directory = photo();
    let package = copy_glimpse(&directory);
    let run = |arguments: &[&str]| {
        let all = ["run", "--engine", "tract", "glimpse/xnnpack", "photo.png"];
        pkgtool(all.iter().chain(arguments))
            .within(directory.path())
            .run()
    };
    let labels: Vec<String> = (0..10).map(|class| format!("digit {class}")).collect();
    fs::write(
        directory.path().join("glimpse/labels.txt"),
        labels.join("\n"),
    )
    .expect("written");
    let ran = run(&[]).expect_code(0);
    assert!(ran.stdout.contains("  digit "), "{}", ran.stdout);
    assert!(
        ran.stdout.contains("labels: labels.txt of the package"),
        "{}",
        ran.stdout
    );
    let hub = directory.path().join("glimpse/preprocessor_config.json");
    let values = r#"{"size": {"shortest_edge": 40}, "do_center_crop": true, "crop_size": 32, "image_std": [0.5, 0.5, 0.5]}"#;
    fs::write(&hub, values).expect("written");
    let values = run(&["--json"]).expect_code(0).json()["recipe"]["values"].clone();
    for (name, value) in [
        ("resize", json!("crop")),
        ("part", json!(0.8)),
        ("std", json!([0.5, 0.5, 0.5])),
    ] {
        let expected =
            json!({ "value": value, "origin": "preprocessor_config.json of the package" });
        assert_eq!(values[name], expected, "{name}");
    }
    fs::write(&hub, "{\"size\": 1, \"resample\": 9}").expect("written");
    let ran = run(&[]).expect_code(2);
    let part = "preprocessor_config.json: `resample`: expected 0 (nearest) to 3 (cubic), got 9";
    assert!(ran.stderr.contains(part), "{}", ran.stderr);
    fs::remove_file(&hub).expect("removed");
    let own = r#"
name = "halves"
summary = "a picture in, a vector out"
source = "the publisher"
[match]
capability = "classification"
inputs = ["image: float[1?, 3, H, W]"]
outputs = ["logits: float[1?, N]"]
[[prepare]]
step = "resize"
[[prepare]]
step = "normalize"
[[interpret]]
step = "vector"
normalize = false
"#;
    let path = package.join("recipe.toml");
    fs::write(&path, own).expect("written");
    let ran = run(&[]).expect_code(0);
    assert!(
        ran.stdout
            .contains("recipe halves: a picture in, a vector out"),
        "{}",
        ran.stdout
    );
    fs::write(&path, own.replace("\"vector\"", "\"vectors\"")).expect("written");
    let ran = run(&[]).expect_code(2);
    assert!(
        ran.stderr
            .contains("recipe.toml:13:1: step 1: unknown step `vectors`; known: "),
        "{}",
        ran.stderr
    );
}

#[test]
fn a_project_names_recipes_for_its_models() {
    let directory = photo();
    copy_glimpse(&directory);
    let write = |name: &str, text: &str| {
        fs::write(directory.path().join(name), text).expect("written");
    };
    let top_k = || {
        let all = [
            "run",
            "--engine",
            "tract",
            "glimpse/xnnpack",
            "photo.png",
            "--json",
        ];
        let ran = pkgtool(all).within(directory.path()).run().expect_code(0);
        ran.json()["recipe"]["values"]["top_k"]["value"].clone()
    };
    assert_eq!(top_k(), 5);
    write("pkgtool.toml", "recipes = [\"few.toml\"]");
    let values = "source = \"a test of projects\"\n[values]\ntop_k = 2\n";
    for (names, expected) in [("\"glim*\"", 2), ("\"spotter\"", 5), ("", 2)] {
        write(
            "few.toml",
            &format!("base = \"classification\"\nfor = [{names}]\n{values}"),
        );
        assert_eq!(top_k(), expected, "{names}");
    }
    write("pkgtool.toml", "recipes = [\"none.toml\"]");
    let all = ["run", "--engine", "tract", "glimpse/xnnpack", "photo.png"];
    let ran = pkgtool(all).within(directory.path()).run().expect_code(2);
    assert!(
        ran.stderr.contains("none.toml: No such file"),
        "{}",
        ran.stderr
    );
}

#[test]
fn inspect_shows_the_recipe_of_a_package() {
    let inspected = |package: &str, arguments: &[&str]| {
        let path = format!("{EXAMPLES}/{package}");
        let all = ["inspect", &path];
        pkgtool(all.iter().chain(arguments)).run().expect_code(0)
    };
    for (package, recipe, value) in [
        ("glimpse", "classification", "top_k"),
        ("mosaic", "semantic-segmentation", "keep_size"),
        ("readline-ocr", "text-detection-paddle", "grow"),
        ("twin-view", "image-embedding", "normalize"),
    ] {
        let text = inspected(package, &[]).stdout;
        assert!(text.contains(&format!("recipe {recipe} (")), "{text}");
        assert!(text.contains(&format!("\n  {value}")), "{text}");
        let json = inspected(package, &["--json"]).json();
        assert_eq!(json["recipe"]["name"], recipe);
        assert!(json["recipe"]["values"][value]["origin"].is_string());
    }
    let text = inspected("jackdaw", &[]).stdout;
    assert!(
        text.contains("no recipe for the capabilities text-generation: `pkgtool chat` answers"),
        "{text}"
    );
    for (wrong, part) in [
        ("", "contains several packages"),
        ("generator", "no package found"),
    ] {
        let path = format!("{EXAMPLES}/{wrong}");
        let ran = pkgtool(["inspect", &path]).run().expect_code(2);
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
}

/// Words about a picture, and what is wrong with pictures for chats.
#[test]
fn a_package_that_sees_answers_questions() {
    let directory = photo();
    let shapes = format!("{EXAMPLES}/lookout/shapes.png");
    let said = run(
        &directory,
        "lookout/mlx",
        &shapes,
        &["--set", "prompt=Which colour?", "--json"],
    );
    let said = said.expect_code(0).json();
    assert_eq!(said["answer"]["text"], "Blue and red.");
    run(&directory, "lookout", &shapes, &["--save", "said.txt"]).expect_code(0);
    let saved = fs::read_to_string(directory.path().join("said.txt")).expect("a text");
    assert_eq!(saved, "A blue star and a red circle.\n");
    fs::write(directory.path().join("text.png"), "no picture").expect("written");
    let chat = |package: &str, picture: &str| {
        let package = format!("{EXAMPLES}/{package}");
        let all = [
            "chat",
            "--engine",
            "tract",
            &package,
            "--image",
            picture,
            "-m",
            "How many?",
        ];
        pkgtool(all).within(directory.path()).run()
    };
    let said = chat("lookout", &shapes).expect_code(0);
    assert_eq!(said.stdout, "Two shapes.\n");
    for (package, picture, part) in [
        ("lookout", "none.png", "none.png: No such file"),
        ("lookout", "text.png", "text.png: neither PNG, JPEG"),
        (
            "jackdaw",
            "photo.png",
            "--image: no model of the package reads pictures for a chat",
        ),
        (
            "glimpse",
            "photo.png",
            "--image: the package does not chat about pictures: its recipe is classification",
        ),
        (
            "scribe-tiny-en/mlx",
            "photo.png",
            "--image: the package does not chat about pictures",
        ),
    ] {
        let refused = chat(package, picture).expect_code(2).stderr;
        assert!(refused.contains(part), "{refused}");
    }
    let wrong = run(&directory, "lookout", &shapes, &["--save", "said.png"]);
    let wrong = wrong.expect_code(2).stderr;
    assert!(
        wrong.contains("expected a name that ends with .txt"),
        "{wrong}"
    );
}
