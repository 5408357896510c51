//! The packages of these tests: layout, names, capabilities and shared files of published packages,
//! with small stand-in models.

use serde_json::{Value, json};

use super::repository::{Repository, model_of};

/// Adds the files of a package to a repository.
type Make = fn(&mut Repository);

/// All packages by name.
pub(super) const PACKAGES: [(&str, Make); 14] = [
    ("efficientnet", efficientnet),
    ("ssdlite", ssdlite),
    ("style", style),
    ("lraspp", lraspp),
    ("whisper", whisper),
    ("llama", llama),
    ("qwen", qwen),
    ("minilm", minilm),
    ("clip", clip),
    ("kokoro", kokoro),
    ("diffusion", diffusion),
    ("vad", vad),
    ("craft", craft),
    ("lfm", lfm),
];

/// The parts of a config that differ between packages.
struct Made<'a> {
    directory: &'a str,
    model: &'a str,
    family: &'a str,
    size: Option<&'a str>,
    capability: &'a str,
    license: &'a str,
    precisions: &'a [&'a str],
}

impl Made<'_> {
    fn backend(&self) -> &str {
        self.directory.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the kind of stand-in for the package's models.
    fn stand_in(&self) -> String {
        let backend = self.backend();
        if self.model == "efficientnet_v2_s" {
            format!("{backend} too")
        } else {
            backend.to_owned()
        }
    }

    fn stem(&self, component: Option<&str>, precision: &str) -> String {
        let tokens = [
            Some(self.model),
            self.size,
            component,
            Some(self.backend()),
            Some(precision),
        ];
        tokens.into_iter().flatten().collect::<Vec<_>>().join("_")
    }

    fn config(&self, variants: &[Value]) -> Value {
        let mut config = json!({
            "$schema": "https://pkgtool.dev/schemas/config.schema.json",
            "model": self.model,
            "family": self.family,
            "capabilities": [self.capability],
            "backend": self.backend(),
            "license": self.license,
            "variants": variants,
        });
        if let Some(size) = self.size {
            config["size"] = json!(size);
        }
        config
    }

    /// Adds a package with one file per variant.
    fn files(&self, repository: &mut Repository) -> Value {
        let variants: Vec<Value> = self
            .precisions
            .iter()
            .map(|precision| {
                let file = format!("{}.pte", self.stem(None, precision));
                let path = format!("{}/{file}", self.directory);
                repository.model(&path, &self.stand_in());
                json!({
                    "precision": precision,
                    "file": file,
                    "size_bytes": repository.size(&path),
                    "methods": model_of(&self.stand_in()).1,
                })
            })
            .collect();
        self.write(repository, self.config(&variants))
    }

    /// Adds a package with several component models per variant.
    fn components(&self, repository: &mut Repository, names: &[&str]) -> Value {
        let variants: Vec<Value> = self
            .precisions
            .iter()
            .map(|precision| {
                let (mut components, mut methods) = (json!({}), json!({}));
                for name in names {
                    let file = format!("{}.pte", self.stem(Some(name), precision));
                    repository.model(&format!("{}/{file}", self.directory), self.backend());
                    components[name] = json!(file);
                    methods[name] = model_of(self.backend()).1;
                }
                json!({ "precision": precision, "file": null, "components": components, "methods": methods })
            })
            .collect();
        self.write(repository, self.config(&variants))
    }

    fn write(&self, repository: &mut Repository, config: Value) -> Value {
        repository.file(
            &format!("{}/config.json", self.directory),
            format!("{config:#}\n"),
        );
        config
    }
}

const TOKENIZER: &str =
    r#"{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": []}}"#;
const TOKENIZER_CONFIG: &str =
    r#"{"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512}"#;

fn made<'a>(
    directory: &'a str,
    model: &'a str,
    capability: &'a str,
    precisions: &'a [&'a str],
) -> Made<'a> {
    Made {
        directory,
        model,
        family: model.split('_').next().unwrap_or_default(),
        size: None,
        capability,
        license: "MIT",
        precisions,
    }
}

/// Returns the repository with the package of this name.
pub(super) fn named(name: &str) -> Repository {
    let mut known = PACKAGES.iter();
    let package = known.find(|(known, _)| *known == name);
    let (_, make) = package.unwrap_or_else(|| panic!("unknown package {name}"));
    let mut repository = Repository::default();
    make(&mut repository);
    repository
}

fn efficientnet(r: &mut Repository) {
    made(
        "xnnpack",
        "efficientnet_v2_s",
        "classification",
        &["fp32", "int8"],
    )
    .files(r);
    made("coreml", "efficientnet_v2_s", "classification", &["fp16"]).files(r);
}

fn ssdlite(r: &mut Repository) {
    let model = "ssdlite320_mobilenet_v3_large";
    made("xnnpack", model, "object-detection", &["fp32"]).files(r);
}

fn style(r: &mut Repository) {
    for style in ["candy", "mosaic"] {
        let (directory, model) = (
            format!("{style}/xnnpack"),
            format!("style_transfer_{style}"),
        );
        made(&directory, &model, "style-transfer", &["fp32", "int8"]).files(r);
    }
}

fn lraspp(r: &mut Repository) {
    made("xnnpack", "lraspp", "semantic-segmentation", &["fp32"]).files(r);
    r.rename(
        "xnnpack/lraspp_xnnpack_fp32.pte",
        "xnnpack/lraspp_xnnpack_fp32_256.pte",
    );
    r.set(
        "xnnpack/config.json",
        "/variants/0/file",
        json!("lraspp_xnnpack_fp32_256.pte"),
    );
}

fn whisper(r: &mut Repository) {
    let made = made("xnnpack", "whisper_tiny_en", "speech-to-text", &["fp32"]);
    made.components(r, &["encoder", "decoder"]);
    r.set(
        "xnnpack/config.json",
        "/tokenizer",
        json!("../tokenizer.json"),
    );
    r.file("tokenizer.json", TOKENIZER);
    r.file("config.json", "{ \"architectures\": [\"Whisper\"] }");
}

fn llama(r: &mut Repository) {
    for size in ["1b", "3b"] {
        let directory = format!("{size}/xnnpack");
        let llama = Made {
            size: Some(size),
            license: "llama-3.2-community",
            ..made(
                &directory,
                "llama_3_2",
                "text-generation",
                &["bf16", "spinquant", "qat_lora"],
            )
        };
        llama.files(r);
        let config = format!("{directory}/config.json");
        r.set(&config, "/tokenizer", json!("../../tokenizer.json"));
        r.set(
            &config,
            "/tokenizer_config",
            json!("../../tokenizer_config.json"),
        );
    }
    r.file("tokenizer.json", TOKENIZER);
    r.file("tokenizer_config.json", TOKENIZER_CONFIG);
}

fn qwen(r: &mut Repository) {
    let qwen = Made {
        size: Some("0_6b"),
        license: "Apache-2.0",
        ..made("0_6b/xnnpack", "qwen_3", "text-generation", &["8da4w"])
    };
    qwen.files(r);
    r.set(
        "0_6b/xnnpack/config.json",
        "/tokenizer",
        json!("../../tokenizer.json"),
    );
    r.file("tokenizer.json", TOKENIZER);
}

fn minilm(r: &mut Repository) {
    made(
        "xnnpack",
        "all_minilm_l6_v2",
        "text-embedding",
        &["fp32", "8da8w"],
    )
    .files(r);
    r.set(
        "xnnpack/config.json",
        "/tokenizer",
        json!("../tokenizer.json"),
    );
    r.file("tokenizer.json", TOKENIZER);
}

fn clip(r: &mut Repository) {
    made(
        "xnnpack",
        "clip_vit_base_patch32_image",
        "image-embedding",
        &["fp32"],
    )
    .files(r);
}

fn kokoro(r: &mut Repository) {
    let made = made("xnnpack", "kokoro", "text-to-speech", &["fp32", "int8"]);
    made.components(r, &["duration_predictor", "synthesizer"]);
    for variant in [0, 1] {
        let at = |key: &str| format!("/variants/{variant}/components/{key}");
        r.set(
            "xnnpack/config.json",
            &at("voice"),
            json!("../voices/af_heart.bin"),
        );
        r.set(
            "xnnpack/config.json",
            &at("lexicon"),
            json!("../phonemizer/lexicon.json"),
        );
    }
    r.file("voices/af_heart.bin", [7; 300]);
    r.file("phonemizer/lexicon.json", "{}");
}

fn diffusion(r: &mut Repository) {
    let made = Made {
        license: "creativeml-openrail-m",
        ..made("xnnpack", "bk_sdm_tiny", "image-generation", &["fp32"])
    };
    made.components(r, &["text_encoder", "unet", "vae"]);
    for (key, file) in [
        ("scheduler", "scheduler/scheduler_config.json"),
        ("tokenizer", "tokenizer/tokenizer.json"),
    ] {
        let pointer = format!("/variants/0/components/{key}");
        r.set("xnnpack/config.json", &pointer, json!(format!("../{file}")));
        r.file(file, TOKENIZER);
    }
}

fn vad(r: &mut Repository) {
    made("xnnpack", "fsmn_vad", "voice-activity-detection", &["fp32"]).files(r);
}

fn craft(r: &mut Repository) {
    let made = made("xnnpack", "craft", "text-detection", &["fp32"]);
    made.files(r);
}

fn lfm(r: &mut Repository) {
    let lfm = Made {
        license: "lfm-1.0",
        ..made("mlx", "lfm_2", "text-generation", &["4w"])
    };
    lfm.files(r);
    r.set("mlx/config.json", "/tokenizer", json!("../tokenizer.json"));
    r.file("tokenizer.json", TOKENIZER);
}
