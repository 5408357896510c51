//! Pictures of texts, by `pkgtool run` and by services. The denoiser of a made-up package predicts the mean of the tokens,
//! so that every pixel is known.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::graph::{Attribute, FLOAT, Graph, INT64, Size};
use crate::support::run::{Ran, pkgtool};

const EXAMPLE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/packages-examples/pocket-diffusion"
);

/// Number of tokens that the made-up encoder takes.
const TOKENS: u64 = 6;

/// Divisor of tokens.
const SCALE: f64 = 100.0;

/// Makes an encoder whose states are its tokens, divided by 100; those that the mask leaves out are 0.
fn encoder(has_mask: bool) -> Vec<u8> {
    let sizes = [Size::Of(1), Size::Of(TOKENS)];
    let mut graph = Graph::default().input("ids", INT64, &sizes);
    if has_mask {
        graph = graph
            .input("mask", INT64, &sizes)
            .node("Mul", &["ids", "mask"], "kept", &[]);
    }
    let kept = if has_mask { "kept" } else { "ids" };
    #[expect(clippy::cast_possible_truncation, reason = "a power of ten")]
    let scale = (1.0 / SCALE) as f32;
    graph
        .numbers("scale", &[1], &[scale])
        .integers("column", &[1, -1, 1])
        .node("Cast", &[kept], "cast", &[Attribute::Int("to", FLOAT)])
        .node("Mul", &["cast", "scale"], "small", &[])
        .node("Reshape", &["small", "column"], "states", &[])
        .shaped_output(
            "states",
            FLOAT,
            &[Size::Of(1), Size::Of(TOKENS), Size::Of(1)],
        )
        .bytes()
}

/// Makes a denoiser of `batch` texts. It predicts the mean of the states for every number of the latents.
fn denoiser(batch: u64) -> Vec<u8> {
    let latents = [Size::Of(batch), Size::Of(3), Size::Of(2), Size::Of(2)];
    Graph::default()
        .input("sample", FLOAT, &latents)
        .input("timestep", INT64, &[Size::Of(1)])
        .input(
            "states",
            FLOAT,
            &[Size::Of(batch), Size::Of(TOKENS), Size::Of(1)],
        )
        .numbers("zero", &[1], &[0.0])
        .integers("each", &[-1, 1, 1, 1])
        .integers("axes", &[1, 2])
        .node("ReduceMean", &["states", "axes"], "mean", &[])
        .node("Reshape", &["mean", "each"], "value", &[])
        .node("Mul", &["sample", "zero"], "zeros", &[])
        .node("Add", &["zeros", "value"], "noise", &[])
        .shaped_output("noise", FLOAT, &latents)
        .bytes()
}

/// Makes a painter whose picture is the latents: from 0 to 1 plane by plane, or from 0 to 255 with the channels last.
fn painter(has_planes: bool) -> Vec<u8> {
    let latents = [Size::Of(1), Size::Of(3), Size::Of(2), Size::Of(2)];
    let factor = if has_planes { 0.18215 } else { 0.18215 * 255.0 };
    let graph =
        Graph::default()
            .input("latents", FLOAT, &latents)
            .numbers("factor", &[1], &[factor]);
    if has_planes {
        let graph = graph.node("Mul", &["latents", "factor"], "picture", &[]);
        return graph.shaped_output("picture", FLOAT, &latents).bytes();
    }
    let order = [Attribute::Ints("perm", &[0, 2, 3, 1])];
    graph
        .node("Mul", &["latents", "factor"], "levels", &[])
        .node("Transpose", &["levels"], "picture", &order)
        .shaped_output(
            "picture",
            FLOAT,
            &[Size::Of(1), Size::Of(2), Size::Of(2), Size::Of(3)],
        )
        .bytes()
}

/// Makes a package of three models, with the example's tokenizer.
fn easel([encoder, denoiser, painter]: [Vec<u8>; 3]) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = directory.path().join("xnnpack");
    fs::create_dir(&folder).expect("a directory");
    let mut components = json!({ "scheduler": "../steps.json", "tokenizer": "../words.json" });
    for (component, model) in [
        ("text_encoder", encoder),
        ("unet", denoiser),
        ("vae", painter),
    ] {
        let file = format!("easel_{component}_xnnpack_fp32.onnx");
        fs::write(folder.join(&file), model).expect("written");
        components[component] = json!(file);
    }
    let scheduler = json!({
        "_class_name": "DDIMScheduler",
        "prediction_type": "sample",
        "set_alpha_to_one": true,
        "clip_sample": false,
        "steps_offset": 0,
    });
    fs::write(directory.path().join("steps.json"), scheduler.to_string()).expect("written");
    let words = Path::new(EXAMPLE).join("tokenizer/tokenizer.json");
    fs::copy(words, directory.path().join("words.json")).expect("copied");
    let config = json!({
        "$schema": "https://pkgtool.dev/schemas/config.schema.json",
        "model": "easel",
        "family": "easel",
        "capabilities": ["image-generation"],
        "backend": "xnnpack",
        "license": "mit",
        "variants": [{ "precision": "fp32", "components": components }],
    });
    fs::write(folder.join("config.json"), config.to_string()).expect("written");
    directory
}

fn run(package: &Path, text: &str, options: &[&str]) -> Ran {
    let package = package.to_string_lossy();
    let all = ["run", &package, text, "--engine", "tract", "--json"];
    pkgtool(all.iter().chain(options)).run()
}

/// Returns the picture of a run, as PNG in base64.
fn picture(package: &Path, text: &str, options: &[&str]) -> String {
    let answer = run(package, text, options).expect_code(0).json();
    answer["answer"]["image"]
        .as_str()
        .expect("a picture")
        .to_owned()
}

/// Returns the level that each pixel of the made-up package has.
fn level(text: &str, negative: &str, guidance: f64, has_mask: bool) -> u8 {
    let file = Path::new(EXAMPLE).join("tokenizer/tokenizer.json");
    let file = fs::read_to_string(file).expect("the tokenizer");
    let file: Value = serde_json::from_str(&file).expect("JSON");
    let id = |word: &str| file["model"]["vocab"][word].as_f64().expect("a word");
    let mean = |text: &str| {
        let (start, end) = (id("[CLS]"), id("[SEP]"));
        let words: Vec<f64> = text.split_whitespace().map(id).collect();
        #[expect(clippy::cast_precision_loss, reason = "a few tokens")]
        let left = TOKENS as f64 - 2.0 - words.len() as f64;
        let padding = if has_mask { 0.0 } else { left * end };
        #[expect(clippy::cast_precision_loss, reason = "a few tokens")]
        let count = TOKENS as f64;
        (start + words.iter().sum::<f64>() + end + padding) / count / SCALE
    };
    let (text, negative) = (mean(text), mean(negative));
    let value = negative + guidance * (text - negative);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a level"
    )]
    let level = (value.clamp(0.0, 1.0) * 255.0).round() as u8;
    level
}

#[test]
fn every_form_of_the_models_makes_the_known_picture() {
    for (has_mask, batch, has_planes) in [(false, 1, true), (true, 2, false), (true, 1, true)] {
        let package = easel([encoder(has_mask), denoiser(batch), painter(has_planes)]);
        let file = package.path().join("out.png");
        let save = ["--save", &file.to_string_lossy()];
        for (text, negative, guidance, steps) in [
            ("red house", "", 7.5, "25"),
            ("red house", "", 1.0, "1"),
            ("a phone", "the", 3.0, "7"),
        ] {
            let set = [
                format!("negative={negative}"),
                format!("guidance={guidance}"),
                format!("steps={steps}"),
            ];
            let set: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
            let ran = run(package.path(), text, &[&set[..], &save].concat())
                .expect_code(0)
                .json();
            assert_eq!(ran["recipe"]["values"]["sampler"]["value"], "ddim");
            let picture = image::open(&file).expect("a picture").into_rgb8();
            let expected = level(text, negative, guidance, has_mask);
            assert!(expected > 10, "{text}");
            for pixel in picture.pixels() {
                assert_eq!(pixel.0, [expected; 3], "{text} {batch} {has_mask}");
            }
        }
    }
}

#[test]
fn a_seed_belongs_to_its_picture() {
    let example = Path::new(EXAMPLE);
    let of_seed =
        |seed: &str| picture(example, "a red house", &["--set", seed, "--set", "steps=4"]);
    let first = of_seed("seed=0");
    assert_eq!(
        first,
        picture(example, "a red house", &["--set", "steps=4"])
    );
    assert_ne!(first, of_seed("seed=1"));
    assert_ne!(
        first,
        picture(example, "the sea at night", &["--set", "steps=4"])
    );
}

#[test]
fn what_makes_no_picture_has_a_reason() {
    let example = Path::new(EXAMPLE);
    for (options, part) in [
        (vec!["--set", "steps=0"], "an integer from 1 to 1000"),
        (vec!["--set", "steps=1000"], "set fewer steps"),
        (vec!["--set", "width=512"], "a width of 32 pixels, not 512"),
        (vec!["--set", "sampler=heun"], "one of pndm, ddim, euler"),
        (
            vec!["--set", "sampler=pndm", "--set", "prediction=sample"],
            "needs a prediction of epsilon",
        ),
        (vec!["--set", "colour=red"], "unknown value `colour`"),
        (vec!["--phonemes"], "not a text to speak"),
        (vec!["--save", "out.wav"], "--save out.wav"),
    ] {
        let ran = run(example, "a red house", &options).expect_code(2);
        assert!(ran.stderr.contains(part), "{options:?}: {}", ran.stderr);
    }
    let package = easel([encoder(false), denoiser(3), painter(true)]);
    let ran = run(package.path(), "a", &[]).expect_code(2);
    assert!(
        ran.stderr
            .contains("no methods make a picture of what this one encodes"),
        "{}",
        ran.stderr
    );
    let package = easel([encoder(false), denoiser(1), painter(true)]);
    let file = package.path().join("steps.json");
    for (text, part) in [
        (
            r#"{"_class_name": "HeunDiscreteScheduler"}"#,
            "unknown scheduler HeunDiscreteScheduler",
        ),
        (
            r#"{"_class_name": "DDIMScheduler", "beta_start": "low"}"#,
            "`beta_start`: expected a number",
        ),
        ("", "steps.json"),
    ] {
        fs::write(&file, text).expect("written");
        let ran = run(package.path(), "a", &[]).expect_code(2);
        assert!(ran.stderr.contains(part), "{}\n{part}", ran.stderr);
    }
}

#[cfg(feature = "serve")]
mod served {
    use std::process::Command;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;
    use crate::gateway::adapters::clients::{run_client, script};
    use crate::support::environment::EnvironmentPiece;
    use crate::support::gateway::Setup;

    #[test]
    fn a_service_makes_pictures_in_every_form_of_a_request() {
        let package = easel([encoder(true), denoiser(2), painter(false)]);
        let gateway = Setup::new().packages(package.path()).start();
        let path = "/p/local/easel";
        let body = json!({ "text": "red house", "settings": { "guidance": 3, "steps": 3 } });
        let expected = level("red house", "", 3.0, true);
        let check = |bytes: &[u8]| {
            let picture = image::load_from_memory(bytes)
                .expect("a picture")
                .into_rgb8();
            assert!(picture.pixels().all(|pixel| pixel.0 == [expected; 3]));
        };
        for _ in 0..3 {
            let reply = gateway.post_with(path, &[("Accept", "image/png")], body.to_string());
            assert_eq!(reply.header("content-type"), Some("image/png"));
            check(&reply.expect(200).body);
        }
        let reply = gateway.post(path, body.to_string()).expect(200).json();
        assert_eq!((&reply["width"], &reply["height"]), (&json!(2), &json!(2)));
        let text = [("Content-Type", "text/plain"), ("Accept", "image/jpeg")];
        let reply = gateway.post_with(path, &text, "red house").expect(200);
        assert!(reply.body.starts_with(&[0xff, 0xd8]));
        let task = gateway.create("easel", body.to_string());
        gateway.wait_for(&task, "COMPLETED");
        assert_eq!(gateway.result(&task).expect(200).json()["width"], 2);
        for (body, place, part) in [
            (
                json!({ "text": "a", "settings": { "steps": 0 } }),
                "$.settings.steps",
                "from 1 to 1000",
            ),
            (json!({ "phonemes": "a" }), "$.phonemes", "not of phonemes"),
            (
                json!({ "text": "a", "answer": "audio/wav" }),
                "$",
                "answers with a picture",
            ),
            (
                json!({ "text": "a", "settings": { "height": 64 } }),
                "$.config",
                "a height of 2 pixels, not 64",
            ),
        ] {
            let error = gateway.post(path, body.to_string()).expect(400).json();
            assert_eq!(error["error"]["args"]["place"], place, "{error}");
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn the_common_interface_makes_pictures() {
        let gateway = Setup::new().packages(Path::new(EXAMPLE)).start();
        let path = "/api/adapters/openai/v1/images/generations";
        let ask = |more: Value| {
            let mut body = json!({
                "model": "local/pocket_diffusion", "prompt": "a red house", "num_inference_steps": 3,
            });
            let more = more.as_object().cloned().expect("an object");
            body.as_object_mut().expect("an object").extend(more);
            gateway.post(path, body.to_string())
        };
        let reply = ask(json!({ "n": 2, "seed": 5, "size": "32x32" }))
            .expect(200)
            .json();
        let data = reply["data"].as_array().expect("a list");
        assert_eq!((data.len(), &data[1]["seed"]), (2, &json!(6)));
        for picture in data {
            let set = format!("seed={}", picture["seed"]);
            let set = ["--set", &set, "--set", "steps=3"];
            let expected = self::picture(Path::new(EXAMPLE), "a red house", &set);
            let own = levels(picture["b64_json"].as_str().expect("a text"));
            // The service may run another engine.
            let pairs = own.iter().zip(levels(&expected));
            assert!(pairs.map(|(own, other)| own.abs_diff(other)).max() <= Some(2));
        }
        let random = || ask(json!({})).expect(200).json()["data"][0]["seed"].clone();
        assert_ne!(random(), random());
        for (more, part) in [
            (json!({ "n": 0 }), "expected 1 to 10 pictures, got 0"),
            (json!({ "n": 11 }), "expected 1 to 10 pictures, got 11"),
            (
                json!({ "size": "512x512" }),
                "a height of 32 pixels, not 512",
            ),
            (
                json!({ "size": "large" }),
                "expected a size such as `512x512`",
            ),
            (json!({ "response_format": "url" }), "expected `b64_json`"),
            (json!({ "output_format": "webp" }), "expected `png`"),
            (json!({ "num_inference_steps": 0 }), "from 1 to 1000"),
            (json!({ "guidance_scale": -1 }), "from 0 to 100"),
            (
                json!({ "negative_prompt": "x".repeat(5000) }),
                "at most 4096 bytes",
            ),
            (json!({ "prompt": null }), "invalid request"),
            (json!({ "colour": "red" }), "unknown field"),
        ] {
            let error = ask(more.clone()).expect(400).json();
            assert!(error.to_string().contains(part), "{more}: {error}");
        }
        ask(json!({ "model": "local/absent" })).expect(404);
        let Some(client) = EnvironmentPiece::OpenAi.or_skip("pictures by the OpenAI client") else {
            return;
        };
        let mut command = Command::new("python3");
        command
            .arg(script("openai_client.py"))
            .env("PYTHONPATH", &client);
        let asked = ["--painter", "local/pocket_diffusion"];
        run_client(command, &gateway, "/api/adapters/openai/v1", &asked);
    }

    /// Returns the levels of a picture in base64.
    fn levels(picture: &str) -> Vec<u8> {
        let bytes = STANDARD.decode(picture).expect("base64");
        let picture = image::load_from_memory(&bytes);
        picture.expect("a picture").into_rgb8().into_raw()
    }
}
