//! Speech from texts and phonemes, by `pkgtool run` and by services. The ids, the row of the voice and the speed come
//! back as samples of a made-up model.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::graph::{Attribute, FLOAT, Graph, INT64, Size};
use crate::support::run::pkgtool;

/// Divisor of ids in made-up models.
const SCALE: f32 = 1000.0;

/// Makes a graph whose samples are its inputs: ids divided by 1000, and what `others` names as they are.
fn echo(graph: Graph, tokens: &str, others: &[&str]) -> Graph {
    let graph = graph
        .bytes_of("scale", FLOAT, &[1], &(1.0 / SCALE).to_le_bytes())
        .integers("flat", &[-1])
        .node("Cast", &[tokens], "cast", &[Attribute::Int("to", FLOAT)])
        .node("Mul", &["cast", "scale"], "small", &[])
        .node("Reshape", &["small", "flat"], "ids", &[]);
    let parts = [&["ids"], others].concat();
    graph
        .node("Concat", &parts, "audio", &[Attribute::Int("axis", 0)])
        .shaped_output("audio", FLOAT, &[Size::Open("samples")])
}

/// Makes a model with the inputs of Kokoro: ids, a row of a voice and the speed.
fn kokoro() -> Vec<u8> {
    let graph = Graph::default()
        .input("tokens", INT64, &[Size::Of(1), Size::Open("n")])
        .input("style", FLOAT, &[Size::Of(1), Size::Of(256)])
        .input("speed", FLOAT, &[Size::Of(1)])
        .integers("first", &[0, 255])
        .node(
            "Gather",
            &["style", "first"],
            "ends",
            &[Attribute::Int("axis", 1)],
        )
        .integers("row", &[-1])
        .node("Reshape", &["ends", "row"], "voice", &[]);
    echo(graph, "tokens", &["voice", "speed"]).bytes()
}

/// Makes a model with the inputs of Piper: ids, their number and three scales.
fn piper() -> Vec<u8> {
    let graph = Graph::default()
        .input("input", INT64, &[Size::Of(1), Size::Open("n")])
        .input("input_lengths", INT64, &[Size::Of(1)])
        .input("scales", FLOAT, &[Size::Of(3)])
        .node(
            "Cast",
            &["input_lengths"],
            "number",
            &[Attribute::Int("to", FLOAT)],
        )
        .node("Mul", &["number", "scale"], "count", &[]);
    echo(graph, "input", &["count", "scales"]).bytes()
}

/// Number of ids that made-up models of two parts take.
const IDS: u64 = 16;

/// Makes a model with the inputs of Kokoro's predictor. Each id has `frames`; the features are the id, divided by 1000,
/// and its mask.
fn predictor(frames: i64) -> Vec<u8> {
    Graph::default()
        .input("tokens", INT64, &[Size::Of(1), Size::Of(IDS)])
        .input("mask", INT64, &[Size::Of(1), Size::Of(IDS)])
        .input("style", FLOAT, &[Size::Of(1), Size::Of(128)])
        .input("speed", FLOAT, &[Size::Of(1)])
        .integers("frames", &[frames])
        .integers("flat", &[-1])
        .integers("column", &[1, -1, 1])
        .bytes_of("scale", FLOAT, &[1], &(1.0 / SCALE).to_le_bytes())
        .node("Mul", &["mask", "frames"], "many", &[])
        .node("Reshape", &["many", "flat"], "durations", &[])
        .node("Cast", &["tokens"], "cast", &[Attribute::Int("to", FLOAT)])
        .node("Mul", &["cast", "scale"], "small", &[])
        .node("Reshape", &["small", "column"], "ids", &[])
        .node("Cast", &["mask"], "real", &[Attribute::Int("to", FLOAT)])
        .node("Reshape", &["real", "column"], "ones", &[])
        .node(
            "Concat",
            &["ids", "ones"],
            "features",
            &[Attribute::Int("axis", 2)],
        )
        .shaped_output("durations", INT64, &[Size::Of(IDS)])
        .shaped_output(
            "features",
            FLOAT,
            &[Size::Of(1), Size::Of(IDS), Size::Of(2)],
        )
        .bytes()
}

/// Makes a model with the inputs of Kokoro's synthesizer. Its samples are the places of ids, divided by 1000, the
/// features, and both ends of the voice's row. `frames` is the number of places, if the model has a fixed one; it then
/// gives the places only.
fn synthesizer(frames: Option<u64>) -> Vec<u8> {
    let places = frames.map_or(Size::Open("d"), Size::Of);
    let graph = Graph::default()
        .input("tokens", INT64, &[Size::Of(1), Size::Of(IDS)])
        .input("mask", INT64, &[Size::Of(1), Size::Of(IDS)])
        .input("indices", INT64, &[places])
        .input(
            "features",
            FLOAT,
            &[Size::Of(1), Size::Of(IDS), Size::Of(2)],
        )
        .input("style", FLOAT, &[Size::Of(1), Size::Of(256)])
        .integers("line", &[-1])
        .integers("ends", &[0, 255])
        .node("Reshape", &["features", "line"], "all", &[])
        .node(
            "Gather",
            &["style", "ends"],
            "both",
            &[Attribute::Int("axis", 1)],
        )
        .node("Reshape", &["both", "line"], "voice", &[]);
    let others: &[&str] = if frames.is_some() {
        &[]
    } else {
        &["all", "voice"]
    };
    echo(graph, "indices", others).bytes()
}

/// Makes a package of a predictor and a synthesizer.
fn pair(models: [Vec<u8>; 2]) -> TempDir {
    let package = parrot();
    let folder = package.path().join("xnnpack");
    let files = ["duration_predictor", "synthesizer"]
        .map(|part| (part, format!("parrot_{part}_xnnpack_fp32.onnx")));
    for ((_, file), model) in files.iter().zip(models) {
        fs::write(folder.join(file), model).expect("a model");
    }
    let path = folder.join("config.json");
    let config = fs::read_to_string(&path).expect("the config");
    let mut config: Value = serde_json::from_str(&config).expect("JSON");
    let parts: serde_json::Map<_, _> = files
        .iter()
        .map(|(part, file)| ((*part).to_owned(), json!(file)))
        .collect();
    config["variants"] = json!([{"precision": "fp32", "components": parts}]);
    fs::write(path, config.to_string()).expect("written");
    package
}

/// Makes a package of a model that speaks.
fn package(model: &[u8]) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = directory.path().join("xnnpack");
    fs::create_dir(&folder).expect("a directory");
    fs::write(folder.join("parrot_xnnpack_fp32.onnx"), model).expect("a model");
    let config = json!({
        "$schema": "https://pkgtool.dev/schemas/config.schema.json",
        "model": "parrot",
        "family": "parrot",
        "capabilities": ["text-to-speech"],
        "backend": "xnnpack",
        "license": "apache-2.0",
        "variants": [{"precision": "fp32", "file": "parrot_xnnpack_fp32.onnx"}],
    });
    fs::write(folder.join("config.json"), config.to_string()).expect("written");
    directory
}

/// Makes a package of Kokoro's form with two voices; a row has its number, in hundredths, at both ends.
fn parrot() -> TempDir {
    let package = package(&kokoro());
    let voices = package.path().join("voices");
    fs::create_dir(&voices).expect("a directory");
    for (name, start) in [("anna", 0_u8), ("ben", 50)] {
        let rows = (0..20_u8).flat_map(|row| [f32::from(start + row) / 100.0; 256]);
        let bytes: Vec<u8> = rows.flat_map(f32::to_le_bytes).collect();
        fs::write(voices.join(name).with_extension("bin"), bytes).expect("a voice");
    }
    package
}

/// Runs a package, and returns its samples from −1 to 1, without silence cut off.
fn spoken(package: &TempDir, text: &str, options: &[&str]) -> Vec<f64> {
    let folder = package.path().to_string_lossy();
    let sound = package.path().join("speech.pcm");
    let name = sound.to_string_lossy();
    let all = ["run", &folder, text, "--save", &name, "--set", "trim=false"];
    pkgtool(all.iter().chain(options)).run().expect_code(0);
    samples(&sound)
}

fn samples(file: &Path) -> Vec<f64> {
    let bytes = fs::read(file).expect("a sound");
    let samples = bytes.chunks_exact(2);
    let samples = samples.map(|bytes| i16::from_le_bytes([bytes[0], bytes[1]]));
    samples.map(|sample| f64::from(sample) / 32767.0).collect()
}

fn expect_samples(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1e-4, "{found} {expected}");
    }
}

fn scaled(ids: &[f64], others: &[f64]) -> Vec<f64> {
    let ids = ids.iter().map(|id| id / f64::from(SCALE));
    ids.chain(others.iter().copied()).collect()
}

#[test]
fn phonemes_become_ids_with_the_row_of_a_voice() {
    let package = parrot();
    // 0, h, ə, a space, h, 0; five phonemes would take the fifth row.
    let ids = [0.0, 50.0, 83.0, 16.0, 50.0, 0.0];
    let made = spoken(&package, "hə h", &["--phonemes"]);
    expect_samples(&made, &scaled(&ids, &[0.03, 0.03, 1.0]));
    let options = ["--phonemes", "--set", "voice=ben", "--set", "speed=0.5"];
    // Unknown phonemes are left out.
    let made = spoken(&package, "1hə  \n日h7", &options);
    expect_samples(&made, &scaled(&ids, &[0.53, 0.53, 0.5]));
    // Longer texts than the voice has rows take the last row.
    let made = spoken(&package, &"a".repeat(30), &["--phonemes"]);
    expect_samples(&made[32..], &[0.19, 0.19, 1.0]);
}

#[cfg(feature = "english")]
#[test]
fn english_texts_become_phonemes() {
    let package = parrot();
    let folder = package.path().to_string_lossy();
    let text = package.path().join("text.txt");
    fs::write(&text, "Hello world.\n").expect("a text");
    let file = format!("@{}", text.display());
    for text in ["Hello world.", &file] {
        let ran = pkgtool(["run", &folder, text, "--json"])
            .run()
            .expect_code(0);
        let answer = &ran.json()["answer"];
        assert_eq!(answer["phonemes"], "həlˈO wˈɜɹld.");
        assert_eq!(answer["sampling_rate"], 24_000);
    }
    let ran = pkgtool(["run", &folder, "日本"]).run().expect_code(2);
    assert!(ran.stderr.contains("no English word"), "{}", ran.stderr);
}

#[test]
fn a_text_behind_a_package_that_embeds_is_embedded() {
    let example = |name: &str| format!("{}/packages-examples/{name}", env!("CARGO_MANIFEST_DIR"));
    let sentence = example("hush-sentence");
    let [behind, named] = [&["a cat"][..], &["--text", "a cat"]].map(|text| {
        let all = ["run", &sentence, "--json", "--engine", "tract"];
        let ran = pkgtool(all.iter().chain(text)).run().expect_code(0);
        ran.json()["embedded_texts"].clone()
    });
    assert!(behind.is_array(), "{behind}");
    assert_eq!(behind, named);
    // For a package that takes pictures, it is the name of a file.
    for package in [example("twin-view"), example("glimpse")] {
        let ran = pkgtool(["run", &package, "missing.jpg"])
            .run()
            .expect_code(2);
        assert!(
            ran.stderr.contains("missing.jpg: No such file"),
            "{}",
            ran.stderr
        );
    }
    let ran = pkgtool(["run", &sentence, "a cat", "--save", "a.png"]).run();
    assert!(ran.expect_code(2).stderr.contains("--text"));
}

#[test]
fn long_texts_are_spoken_in_pieces_with_pauses() {
    let package = parrot();
    let folder = package.path().to_string_lossy();
    let text = format!("{}. {}", "a ".repeat(200), "b ".repeat(200));
    let ran = pkgtool(["run", &folder, &text, "--phonemes", "--json"]).run();
    let report = ran.expect_code(0).json();
    assert_eq!(report["runs"], 2);
    // Each run gives less than a hundredth of a second; behind a sentence is a pause.
    let seconds = report["answer"]["duration"].as_f64().expect("a number");
    assert!((0.375..0.42).contains(&seconds), "{report}");
}

#[test]
fn a_predictor_and_a_synthesizer_speak_together() {
    let package = pair([predictor(2), synthesizer(None)]);
    let options = ["--phonemes", "--set", "voice=ben"];
    let made = spoken(&package, "hə həh", &options);
    let ids = [0.0, 50.0, 83.0, 16.0, 50.0, 83.0, 50.0, 0.0];
    // Each real id has two frames.
    let places: Vec<f64> = (0..8).flat_map(|id| [f64::from(id); 2]).collect();
    let mut features: Vec<f64> = ids
        .iter()
        .flat_map(|id| [id / f64::from(SCALE), 1.0])
        .collect();
    features.resize(32, 0.0);
    expect_samples(
        &made,
        &scaled(&places, &[&features[..], &[0.55, 0.55]].concat()),
    );
    // A synthesizer with a fixed number of frames gives more than was asked for.
    let package = pair([predictor(2), synthesizer(Some(40))]);
    let made = spoken(&package, "hə hə", &options);
    // Without the frames of padding.
    expect_samples(&made, &scaled(&places[..14], &[]));
    // A piece that takes too many frames is spoken in parts.
    let package = pair([predictor(50), synthesizer(None)]);
    let folder = package.path().to_string_lossy();
    let ran = pkgtool(["run", &folder, "abcdefhi", "--phonemes", "--json"]).run();
    let report = ran.expect_code(0).json();
    assert_eq!(report["reader"]["runs"], 4, "{report}");
    let package = pair([predictor(2), predictor(2)]);
    let folder = package.path().to_string_lossy();
    let ran = pkgtool(["run", &folder, "a", "--phonemes"])
        .run()
        .expect_code(2);
    assert!(
        ran.stderr.contains("no method makes the sound"),
        "{}",
        ran.stderr
    );
}

#[test]
fn piper_has_pads_between_ids_and_the_rate_of_its_file() {
    let package = package(&piper());
    let file = "xnnpack/parrot_xnnpack_fp32.onnx.json";
    let settings = json!({
        "audio": {"sample_rate": 16_000},
        "inference": {"noise_scale": 0.3, "length_scale": 2, "noise_w": 0.4},
        "phoneme_id_map": {"^": [1], "$": [2], "_": [0], "a": [14], "b": [15, 16]},
    });
    fs::write(package.path().join(file), settings.to_string()).expect("written");
    let ids = [1.0, 0.0, 14.0, 0.0, 15.0, 16.0, 0.0, 2.0];
    let options = ["--phonemes", "--set", "noise=0.5", "--set", "speed=4"];
    let made = spoken(&package, "acb", &options);
    expect_samples(&made, &scaled(&ids, &[0.008, 0.5, 0.25, 0.4]));
    let folder = package.path().to_string_lossy();
    let ran = pkgtool(["run", &folder, "a", "--phonemes", "--json"]).run();
    let report = ran.expect_code(0).json();
    assert_eq!(report["answer"]["sampling_rate"], 16_000);
    let values = &report["recipe"]["values"];
    assert_eq!(values["speed"]["value"], 0.5);
    let origin = values["rate"]["origin"].as_str().expect("a text");
    assert_eq!(origin, "parrot_xnnpack_fp32.onnx.json");
    for (from, to, part) in [
        (
            "16000",
            "0",
            "`rate`: expected an integer from 8000 to 48000",
        ),
        ("[14]", "-1", "`a`: expected an id"),
        ("\"^\":[1]", "\"x\":[1]", "no id for the symbol `^`"),
        ("}", "", "EOF"),
    ] {
        let text = settings.to_string().replace(from, to);
        fs::write(package.path().join(file), text).expect("written");
        let ran = pkgtool(["run", &folder, "a", "--phonemes"])
            .run()
            .expect_code(2);
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
}

#[test]
fn faults_of_texts_have_a_reason() {
    let package = parrot();
    let folder = package.path().to_string_lossy();
    let long = "a".repeat(17_000);
    for (text, options, part) in [
        ("12", &["--phonemes"][..], "no phoneme that the model knows"),
        (".", &["--phonemes"], "no phoneme that the model knows"),
        (&long, &["--phonemes"], "more than 16384 phonemes"),
        (
            "a",
            &["--phonemes", "--set", "voice=cleo"],
            "the package has anna, ben",
        ),
        (
            "a",
            &["--phonemes", "--set", "voice=../voices/anna"],
            "the package has anna, ben",
        ),
        (
            "a",
            &["--phonemes", "--set", "speed=9"],
            "a number from 0.1 to 4",
        ),
        (
            "a",
            &["--phonemes", "--save", "a.mp3"],
            "ends with .wav, .flac, .opus or .pcm",
        ),
        ("@missing.txt", &[], "missing.txt"),
    ] {
        let ran = pkgtool(["run", &folder, text].iter().chain(options))
            .run()
            .expect_code(2);
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    let voice = package.path().join("voices/anna.bin");
    for (bytes, part) in [
        (vec![0_u8; 6], "expected finite float32 numbers"),
        (vec![0_u8; 1000], "expected rows of 256"),
        (
            f32::NAN.to_le_bytes().repeat(256),
            "expected finite float32 numbers",
        ),
    ] {
        fs::write(&voice, bytes).expect("written");
        let ran = pkgtool(["run", &folder, "a", "--phonemes"])
            .run()
            .expect_code(2);
        assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
    }
    fs::remove_dir_all(package.path().join("voices")).expect("removed");
    let ran = pkgtool(["run", &folder, "a", "--phonemes"])
        .run()
        .expect_code(2);
    assert!(
        ran.stderr.contains("no voices: put files"),
        "{}",
        ran.stderr
    );
}

#[cfg(feature = "ort")]
#[test]
fn samples_are_those_of_kokoro() {
    use crate::support::environment::EnvironmentPiece;
    use std::process::Command;

    const PHONEMES: &str = "həlˈoʊ wˈɜːld, ðɪs ɪz ɐ tˈɛst.";
    let Some(packages) = EnvironmentPiece::Models.or_skip("speech of Kokoro") else {
        return;
    };
    let Some(library) = EnvironmentPiece::Ort.or_skip("speech of Kokoro") else {
        return;
    };
    let package = package(b"");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/answers/kokoro.py");
    let folder = package.path();
    let mut command = Command::new("python3");
    command.arg(script).arg(&packages).arg(folder);
    command.args(["jf_alpha", PHONEMES]);
    let ran = command.output().expect("python3 runs");
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    let model = folder.join("xnnpack/parrot_xnnpack_fp32.onnx");
    fs::rename(folder.join("model.onnx"), model).expect("moved");
    let library = library.to_string_lossy();
    let engine = ["--engine", "ort", "--ort-lib", &library];
    let made = spoken(&package, PHONEMES, &[&["--phonemes"][..], &engine].concat());
    expect_samples(&made, &samples(&folder.join("truth.pcm")));
    assert!(made.len() > 24_000, "{}", made.len());
}

#[cfg(feature = "serve")]
mod served {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;

    use super::*;
    use crate::gateway::adapters::clients::{run_client, script};
    use crate::support::environment::EnvironmentPiece;
    use crate::support::gateway::Setup;
    use std::process::Command;

    #[test]
    fn a_service_speaks_in_every_form_of_a_request() {
        let package = parrot();
        let gateway = Setup::new().packages(package.path()).start();
        let path = "/p/local/parrot";
        let body = json!({"phonemes": "hə h", "settings": {"trim": false, "voice": "ben"}});
        let expected = scaled(&[0.0, 50.0, 83.0, 16.0, 50.0, 0.0], &[0.53, 0.53, 1.0]);
        let expect = |pcm: &[u8]| {
            let file = package.path().join("speech.pcm");
            fs::write(&file, pcm).expect("written");
            expect_samples(&samples(&file), &expected);
        };
        for _ in 0..3 {
            let reply = gateway.post(path, body.to_string()).expect(200).json();
            assert_eq!(reply["media_type"], "audio/wav");
            let wave = BASE64.decode(reply["audio"].as_str().expect("a text"));
            expect(&wave.expect("base64")[44..]);
        }
        for (media_type, start) in [
            ("audio/wav", &b"RIFF"[..]),
            ("audio/flac", b"fLaC"),
            ("audio/ogg", b"OggS"),
            ("audio/pcm", b""),
        ] {
            let reply = gateway.post_with(path, &[("Accept", media_type)], body.to_string());
            let reply = reply.expect(200);
            assert_eq!(reply.header("content-type"), Some(media_type));
            assert!(reply.body.starts_with(start), "{media_type}");
        }
        let form = ("Content-Type", "multipart/form-data; boundary=cut");
        let fields = [
            ("phonemes", "hə h"),
            ("trim", "false"),
            ("voice", "ben"),
            ("answer", "audio/pcm"),
        ];
        let fields = fields.map(|(name, value)| {
            format!("--cut\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
        });
        let reply = gateway.post_with(path, &[form], fields.concat() + "--cut--\r\n");
        expect(&reply.expect(200).body);
        let task = gateway.create("parrot", body.to_string());
        gateway.wait_for(&task, "COMPLETED");
        assert_eq!(
            gateway.result(&task).expect(200).json()["sampling_rate"],
            24_000
        );
        #[cfg(feature = "english")]
        {
            let reply = gateway.post_with(path, &[("Content-Type", "text/plain")], "Hello world.");
            assert_eq!(reply.expect(200).json()["phonemes"], "həlˈO wˈɜɹld.");
        }
        for (body, place, part) in [
            (json!({"phonemes": "12"}), "$.phonemes", "no phoneme"),
            (json!({"phonemes": "a", "text": "a"}), "$", "got both"),
            (json!({"phonemes": 1}), "$.phonemes", "a string"),
            (
                json!({"phonemes": "a", "settings": {"voice": "cleo"}}),
                "$.phonemes",
                "has anna, ben",
            ),
            (
                json!({"phonemes": "a", "settings": {"speed": 0}}),
                "$.settings.speed",
                "from 0.1",
            ),
            (
                json!({"phonemes": "a", "answer": "image/png"}),
                "$",
                "answers with speech",
            ),
            (json!({"phonemes": "a", "tone": 1}), "$.tone", "tone"),
        ] {
            let error = gateway.post(path, body.to_string()).expect(400).json();
            assert_eq!(error["error"]["args"]["place"], place, "{error}");
            assert!(error.to_string().contains(part), "{error}");
            let directory = package.path().to_string_lossy();
            assert!(!error.to_string().contains(&*directory), "{error}");
        }
    }

    #[test]
    fn a_service_of_two_models_speaks() {
        let package = pair([predictor(2), synthesizer(Some(40))]);
        let gateway = Setup::new().packages(package.path()).start();
        let body = json!({"phonemes": "hə h", "settings": {"trim": false}, "answer": "audio/pcm"});
        for _ in 0..3 {
            let reply = gateway
                .post("/p/local/parrot", body.to_string())
                .expect(200);
            assert_eq!(reply.body.len(), 2 * 12);
        }
        let package = pair([predictor(2), predictor(2)]);
        let gateway = Setup::new().packages(package.path()).start();
        let error = gateway
            .post("/p/local/parrot", body.to_string())
            .expect(400);
        assert!(error.text().contains("no method makes the sound"));
    }

    #[test]
    fn the_common_interface_speaks() {
        let package = parrot();
        let gateway = Setup::new().packages(package.path()).start();
        let path = "/api/adapters/openai/v1/audio/speech";
        let ask = |more: Value| {
            let mut body = json!({"model": "local/parrot", "phonemes": "hə h"});
            body.as_object_mut()
                .expect("an object")
                .extend(more.as_object().cloned().expect("an object"));
            gateway.post(path, body.to_string())
        };
        let reply =
            ask(json!({"voice": {"id": "ben"}, "speed": 2, "response_format": "pcm"})).expect(200);
        assert_eq!(reply.header("content-type"), Some("audio/pcm"));
        assert!(ask(json!({})).expect(200).body.starts_with(b"RIFF"));
        for (more, part) in [
            (
                json!({"response_format": "mp3"}),
                "expected one of wav, flac, opus, pcm",
            ),
            (json!({"stream_format": "sse"}), "expected `audio`"),
            (json!({"voice": "alloy"}), "the package has anna, ben"),
            (json!({"speed": 9}), "from 0.1 to 4"),
            (
                json!({"phonemes": "a".repeat(4097)}),
                "at most 4096 letters",
            ),
            (json!({"phonemes": null}), "expected a text"),
            (json!({"voices": 1}), "unknown field"),
        ] {
            let error = ask(more.clone()).expect(400).json();
            assert!(error.to_string().contains(part), "{more}: {error}");
        }
        ask(json!({"model": "local/absent"})).expect(404);
        let Some(client) = EnvironmentPiece::OpenAi.or_skip("speech by the OpenAI client") else {
            return;
        };
        if cfg!(feature = "english") {
            let mut command = Command::new("python3");
            command
                .arg(script("openai_client.py"))
                .env("PYTHONPATH", &client);
            let asked = ["--speaker", "local/parrot"];
            run_client(command, &gateway, "/api/adapters/openai/v1", &asked);
        }
    }
}
