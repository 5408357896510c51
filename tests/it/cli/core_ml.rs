//! Tests of Core ML models on the command line: inspect, validate against the config, run, compare,
//! bench.

use serde_json::{Value, json};

use crate::support::run::{pkgtool, validate};
use crate::support::tree::{Tree, config};
use pkgtool_testing::coreml::copy;
use pkgtool_testing::coreml::path;

/// Returns a Core ML package around a fixture, with the given declaration of its method `forward`.
fn package(file: &str, method: &str, signature: impl Into<Value>) -> Tree {
    let extension = file.rsplit('.').next().expect("an extension");
    let name = format!("tiny_coreml_fp32.{extension}");
    let mut config = config();
    config["backend"] = "coreml".into();
    config["variants"][0]["file"] = name.clone().into();
    config["variants"][0]["methods"] = json!({ method: signature.into() });
    let tree = Tree::new().json("coreml/config.json", &config);
    let (from, to) = (path(file), tree.path(&format!("coreml/{name}")));
    if from.is_dir() {
        copy(&from, &to);
    } else {
        std::fs::copy(from, to).expect("it can be copied");
    }
    tree
}

/// Returns a tensor's declaration as in a config; the name `-` omits the name.
fn tensor(name: &str, dtype: &str, shape: &[i64]) -> Value {
    let mut spec = json!({ "dtype": dtype, "shape": shape });
    if name != "-" {
        spec["name"] = name.into();
    }
    spec
}

/// Returns the rules that report findings in a package, with their messages.
fn said(tree: &Tree) -> Vec<(String, String)> {
    let found = validate(tree.root(), ".").findings().into_iter();
    found.map(|found| (found.code, found.message)).collect()
}

#[test]
fn declared_signatures_are_held_against_descriptions() {
    let x = |shape: &[i64]| json!([tensor("x", "float32", shape)]);
    let y = |shape: &[i64]| json!([tensor("y", "float32", shape)]);
    for (file, inputs, outputs, expected) in [
        ("mlp_fp32.mlpackage", x(&[2, 8]), y(&[2, 4]), &[][..]),
        ("mlp_fp32.mlpackage", x(&[2, 9]), y(&[2, 4]), &["PKG034"]),
        ("mlp_fp32.mlpackage", x(&[-1, 8]), y(&[2, 4]), &["PKG035"]),
        ("mlp_fp32.mlpackage", x(&[8]), y(&[2, 4]), &["PKG033"]),
        (
            "mlp_fp16.mlpackage",
            x(&[2, 8]),
            y(&[2, 4]),
            &["PKG032", "PKG032"],
        ),
        (
            "mlp_fp32.mlpackage",
            json!([tensor("z", "float32", &[2, 8])]),
            y(&[2, 4]),
            &["PKG036"],
        ),
        ("mlp_fp32.mlpackage", json!([]), y(&[2, 4]), &["PKG031"]),
        // A model with open sizes does not describe its output sizes, so the rules report nothing.
        ("ranged.mlpackage", x(&[-1, -1, 8]), y(&[-1, -1]), &[]),
        ("ranged.mlpackage", x(&[-1, -1, 8]), y(&[7]), &[]),
        (
            "ranged.mlpackage",
            x(&[8, 16, 8]),
            y(&[-1, -1]),
            &["PKG035"],
        ),
        (
            "ranged.mlpackage",
            x(&[-1, -1, 7]),
            y(&[-1, -1]),
            &["PKG034"],
        ),
        ("enumerated.mlpackage", x(&[-1, 8]), y(&[-1, 4]), &[]),
        ("enumerated.mlpackage", x(&[2, 8]), y(&[2, 4]), &["PKG035"]),
        // For an image, only the name and the number of inputs are known.
        (
            "image.mlpackage",
            json!([tensor("picture", "float32", &[1, 3, 16, 12])]),
            y(&[1, 560]),
            &["PKG037"],
        ),
        ("image.mlpackage", json!([]), y(&[1, 560]), &["PKG031"]),
        (
            "network.mlmodel",
            json!([tensor("x", "float64", &[8])]),
            json!([tensor("y", "float64", &[4])]),
            &[],
        ),
        (
            "network.mlmodel",
            json!([tensor("x", "float32", &[8])]),
            json!([tensor("y", "float64", &[4])]),
            &["PKG032"],
        ),
    ] {
        let tree = package(
            file,
            "forward",
            json!({ "inputs": inputs, "outputs": outputs }),
        );
        let said = said(&tree);
        let rules: Vec<&str> = said.iter().map(|(rule, _)| rule.as_str()).collect();
        assert_eq!(rules, expected, "{file} {inputs} {outputs}: {said:#?}");
    }
}

#[test]
fn functions_are_methods_of_a_config() {
    let of = |rows: i64| {
        json!({
            "inputs": [tensor("x", "float32", &[rows, 8])],
            "outputs": [tensor("y", "float32", &[rows, 6])],
        })
    };
    let tree = package("methods.mlpackage", "small", of(1));
    let found = said(&tree);
    let rules: Vec<&str> = found.iter().map(|(rule, _)| rule.as_str()).collect();
    assert_eq!(rules, ["PKG030"], "{found:#?}");
    let tree = package("methods.mlpackage", "forward", of(1));
    let found = said(&tree);
    assert_eq!(found[0].0, "PKG029", "{found:#?}");
}

#[test]
fn sizes_of_folders_are_those_of_their_files() {
    let tree = package(
        "mlp_fp32.mlpackage",
        "forward",
        json!({
            "inputs": [tensor("x", "float32", &[2, 8])],
            "outputs": [tensor("y", "float32", &[2, 4])],
        }),
    );
    for (size, rules) in [(3317, &[][..]), (3318, &["PKG019"])] {
        let path = tree.path("coreml/config.json");
        let text = std::fs::read_to_string(&path).expect("a config");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        config["variants"][0]["size_bytes"] = size.into();
        std::fs::write(&path, config.to_string()).expect("a config");
        let found = said(&tree);
        let found: Vec<&str> = found.iter().map(|(rule, _)| rule.as_str()).collect();
        assert_eq!(found, rules);
    }
}

#[test]
fn broken_folders_are_findings() {
    let signature = json!({
        "inputs": [tensor("x", "float32", &[2, 8])],
        "outputs": [tensor("y", "float32", &[2, 4])],
    });
    let tree = package("mlp_fp32.mlpackage", "forward", signature);
    let weights = "coreml/tiny_coreml_fp32.mlpackage/Data/com.apple.CoreML/weights/weight.bin";
    std::fs::write(tree.path(weights), b"short").expect("a file");
    let found = said(&tree);
    let [(rule, message)] = &found[..] else {
        panic!("{found:#?}");
    };
    assert_eq!(rule, "PKG027");
    assert!(message.contains("weights/weight.bin"), "{message}");
}

#[cfg(feature = "run")]
mod running {
    use super::*;

    #[test]
    fn a_package_runs_by_its_config_and_by_its_folder() {
        let tree = package(
            "ranged.mlpackage",
            "forward",
            json!({
                "inputs": [tensor("x", "float32", &[-1, -1, 8])],
                "outputs": [tensor("y", "float32", &[-1, -1])],
            }),
        );
        for path in [
            ".",
            "coreml/config.json",
            "coreml/tiny_coreml_fp32.mlpackage",
        ] {
            let arguments = [
                "run", path, "--once", "--input", "x=random", "--dim", "0=3", "--dim", "1=5",
            ];
            let ran = pkgtool(arguments).within(tree.root()).run().expect_code(0);
            assert!(ran.stdout.contains("y  float32[3, 40]"), "{}", ran.stdout);
            assert!(ran.stdout.contains("on tract (cpu)"), "{}", ran.stdout);
        }
        let arguments = ["run", ".", "--once", "--input", "x=random", "--dim", "1=17"];
        let ran = pkgtool(arguments).within(tree.root()).run().expect_code(2);
        assert!(ran.stderr.contains("16"), "{}", ran.stderr);
    }

    #[test]
    fn a_package_is_timed_and_compared() {
        let (one, other) = (path("mlp_fp32.mlpackage"), path("mlp_fp32.mlpackage"));
        let [one, other] = [&one, &other].map(|path| path.to_str().expect("UTF-8"));
        let arguments = ["bench", one, "--input", "x=random", "--seconds", "0.2"];
        let ran = pkgtool(arguments).run();
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        let ran = pkgtool(["compare", one, other, "--input", "x=random"]).run();
        assert_eq!(ran.code, 0, "{} {}", ran.stdout, ran.stderr);
    }

    /// Writes a picture of 8 x 6 pixels of one colour.
    fn picture(tree: &Tree, name: &str, colour: [u8; 3]) -> String {
        let path = tree.path(name);
        let picture = image::RgbImage::from_pixel(8, 6, image::Rgb(colour));
        picture.save(&path).expect("it can be written");
        path.to_str().expect("UTF-8").to_owned()
    }

    #[test]
    fn pictures_are_given_as_the_model_describes_them() {
        let tree = Tree::new();
        let photo = picture(&tree, "photo.png", [200, 100, 10]);
        let first = |file: &str, more: &[&str]| {
            let file = path(file);
            let file = file.to_str().expect("UTF-8");
            let ran = pkgtool(
                ["run", file, "--input", &photo]
                    .into_iter()
                    .chain(more.iter().copied()),
            );
            ran.run()
        };
        let values = |file: &str| -> Vec<f64> {
            let json = first(file, &["--json"]).expect_code(0).json();
            let values = json["outputs"][0]["data"][0].as_array();
            let values = values.unwrap_or_else(|| panic!("{json}")).iter();
            values.map(|it| it.as_f64().expect("a number")).collect()
        };
        // Means of blue, green and red: the model divides by 255 and adds 0.5, 0 and -0.5.
        let close = |found: &[f64], expected: [f64; 3]| {
            let apart = found.iter().zip(expected).map(|(a, b)| (a - b).abs());
            assert!(apart.fold(0.0, f64::max) < 1e-5, "{found:?}");
        };
        close(
            &values("colours_bgr.mlpackage"),
            [10.0 / 255.0 + 0.5, 100.0 / 255.0, 200.0 / 255.0 - 0.5],
        );
        // Softmax of the means of red, green and blue, divided by 32.
        let scores = [200.0_f64, 100.0, 10.0].map(|mean| (mean / 32.0).exp());
        let sum: f64 = scores.iter().sum();
        close(
            &values("colours.mlpackage"),
            scores.map(|score| score / sum),
        );
        let refused = first("colours.mlpackage", &["--mean", "0.5"]).stderr;
        assert!(refused.contains("takes pixels of 0 to 255"), "{refused}");
    }

    #[test]
    fn a_classifier_names_its_labels() {
        let tree = package("colours.mlpackage", "forward", json!({}));
        let mut config: Value = serde_json::from_str(
            &std::fs::read_to_string(tree.path("coreml/config.json")).expect("a config"),
        )
        .expect("JSON");
        config["capabilities"] = json!(["classification"]);
        std::fs::write(tree.path("coreml/config.json"), config.to_string()).expect("written");
        for (name, colour) in [
            ("red", [200, 100, 10]),
            ("green", [0, 90, 10]),
            ("blue", [1, 2, 255]),
        ] {
            let photo = picture(&tree, "photo.png", colour);
            let ran = pkgtool(["run", "coreml", &photo, "--json"])
                .within(tree.root())
                .run();
            let json = ran.expect_code(0).json();
            assert_eq!(json["answer"]["labels"][0]["label"], name, "{json}");
            assert_eq!(
                json["recipe"]["values"]["order"]["origin"], "the model's picture input",
                "{json}"
            );
        }
    }

    #[test]
    fn what_only_core_ml_runs_is_refused_by_name() {
        for (file, expected) in [
            (
                "network.mlmodel",
                "a Core ML model of kind neuralNetwork (`neuralNetwork::activation`",
            ),
            ("custom.mlmodel", "`neuralNetwork::custom`"),
            ("pipeline.mlmodel", "input 0 of `forward` is of kind int64"),
        ] {
            let file = path(file);
            let file = file.to_str().expect("UTF-8");
            let ran = pkgtool(["run", file, "--once", "--input", "x=random"]).run();
            assert!(
                ran.code != 0 && ran.stderr.contains(expected),
                "{}",
                ran.stderr
            );
            let shown = pkgtool(["inspect", "--json", file])
                .run()
                .expect_code(0)
                .json();
            assert_eq!(shown["methods"]["forward"]["portable"], false, "{file}");
        }
        let tree = Tree::new().file("m.mlmodelc/coremldata.bin", b"");
        let ran = pkgtool(["run", "m.mlmodelc"]).within(tree.root()).run();
        assert!(
            ran.stderr.contains("is a compiled Core ML model"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn models_are_shown() {
    for (file, lines) in [
        (
            "mlp_fp32.mlpackage",
            &[
                "coreml (specification 7, mlProgram)",
                "input 0  x: float32[2, 8]",
                "author",
                "3.3 kB",
            ][..],
        ),
        ("counter.mlpackage", &["total: float16[1, 4]"]),
        ("network.mlmodel", &["neuralNetwork::innerProduct"]),
        (
            "image.mlpackage",
            &["picture: image (RGB, 12 wide, 16 high)"],
        ),
    ] {
        let file = path(file);
        let file = file.to_str().expect("UTF-8");
        let shown = pkgtool(["inspect", file]).run().expect_code(0).stdout;
        for line in lines {
            assert!(shown.contains(line), "{line}: {shown}");
        }
        let json = pkgtool(["inspect", "--json", file])
            .run()
            .expect_code(0)
            .json();
        assert_eq!(json["format"], "coreml");
    }
}
