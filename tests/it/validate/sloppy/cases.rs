//! Typical mistakes in packages, each with the findings that a careful reviewer would report.

use serde_json::{Value, json};

use super::repository::{Repository, model_of};

/// A mistake in a package.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) package: &'static str,
    pub(super) sloppy: fn(&mut Repository),
    /// All expected findings.
    pub(super) expected: &'static [&'static str],
}

pub(super) const fn case(
    name: &'static str,
    package: &'static str,
    sloppy: fn(&mut Repository),
    expected: &'static [&'static str],
) -> Case {
    Case {
        name,
        package,
        sloppy,
        expected,
    }
}

pub(super) const C: &str = "xnnpack/config.json";
const EFF: &str = "xnnpack/efficientnet_v2_s_xnnpack_fp32.pte";
pub(super) const SSD: &str = "xnnpack/ssdlite320_mobilenet_v3_large_xnnpack_fp32.pte";

pub(super) const CASES: &[Case] = &[
    // Syntax.
    case(
        "a comma too many",
        "ssdlite",
        |r| r.replace(C, "\n}\n", ",\n}\n"),
        &["PKG002 xnnpack/config.json  ~ Trailing commas"],
    ),
    case(
        "not a number",
        "ssdlite",
        |r| {
            let size = format!("\"size_bytes\": {}", r.size(SSD));
            r.replace(C, &size, "\"size_bytes\": NaN");
        },
        &["PKG002 xnnpack/config.json  ~ `NaN`"],
    ),
    case(
        "Python's True",
        "ssdlite",
        |r| r.replace(C, "\"MIT\"", "True"),
        &["PKG002 xnnpack/config.json  ~ write `true`"],
    ),
    case(
        "a merge was not finished",
        "ssdlite",
        |r| {
            r.replace(C, "  \"license\": \"MIT\",", "<<<<<<< HEAD\n  \"license\": \"MIT\",\n=======\n  \"license\": \"Apache-2.0\",\n>>>>>>> main");
        },
        &["PKG002 xnnpack/config.json  ~ conflict marker"],
    ),
    case(
        "an error page",
        "ssdlite",
        |r| r.file(C, "<!DOCTYPE html>\n<html><body>404</body></html>\n"),
        &["PKG002 xnnpack/config.json  ~ HTML"],
    ),
    case(
        "YAML",
        "ssdlite",
        |r| r.file(C, "model: ssdlite\nbackend: xnnpack\n"),
        &["PKG002 xnnpack/config.json  ~ YAML"],
    ),
    case(
        "a brace is not closed",
        "ssdlite",
        |r| r.replace(C, "\n}\n", "\n"),
        &["PKG002 xnnpack/config.json  ~ This `{` is never closed"],
    ),
    case(
        "a bracket is not closed",
        "ssdlite",
        |r| r.replace(C, "\"object-detection\"\n  ],", "\"object-detection\",\n"),
        &["PKG002 xnnpack/config.json  ~ This `[` is never closed"],
    ),
    case(
        "a byte order mark",
        "ssdlite",
        |r| r.replace(C, "{\n  \"$schema\"", "\u{feff}{\n  \"$schema\""),
        &["PKG002 xnnpack/config.json  ~ byte order mark"],
    ),
    case(
        "a comment",
        "ssdlite",
        |r| r.replace(C, "\"MIT\",", "\"MIT\", // as upstream"),
        &["PKG002 xnnpack/config.json  ~ no comments"],
    ),
    case(
        "Python's quotes",
        "ssdlite",
        |r| r.replace(C, "\"MIT\"", "'MIT'"),
        &["PKG002 xnnpack/config.json  ~ double quotes"],
    ),
    case(
        "cut off",
        "ssdlite",
        |r| {
            let half = r.size(C) / 2;
            r.cut(C, half);
        },
        &["PKG002 xnnpack/config.json "],
    ),
    case(
        "an empty config",
        "efficientnet",
        |r| r.file("coreml/config.json", ""),
        &["PKG001 coreml/config.json "],
    ),
    case(
        "a key twice",
        "ssdlite",
        |r| {
            r.replace(
                C,
                "\"license\": \"MIT\",",
                "\"license\": \"MIT\", \"license\": \"MIT\",",
            );
        },
        &["PKG003 xnnpack/config.json /license"],
    ),
    case(
        "UTF-16",
        "ssdlite",
        |r| r.file(C, b"\xff\xfe{\0}\0".as_slice()),
        &["PKG002 xnnpack/config.json  ~ UTF-16"],
    ),
    // Places.
    case(
        "the tokenizer is one level up",
        "whisper",
        |r| r.set(C, "/tokenizer", json!("tokenizer.json")),
        &["PKG015 xnnpack/config.json /tokenizer ~ did you mean `../tokenizer.json`?"],
    ),
    case(
        "a letter of another case",
        "whisper",
        |r| r.set(C, "/tokenizer", json!("../Tokenizer.json")),
        &[
            "PKG015 xnnpack/config.json /tokenizer ~ did you mean `../tokenizer.json`? Names are case-sensitive",
        ],
    ),
    case(
        "a letter too few",
        "clip",
        |r| {
            r.set(
                C,
                "/variants/0/file",
                json!("clip_vit_base_patch32_imag_xnnpack_fp32.pte"),
            );
        },
        &[
            "PKG015 xnnpack/config.json /variants/0/file ~ did you mean `clip_vit_base_patch32_image_xnnpack_fp32.pte`?",
        ],
    ),
    case(
        "a component was not uploaded",
        "whisper",
        |r| r.remove("xnnpack/whisper_tiny_en_decoder_xnnpack_fp32.pte"),
        &["PKG015 xnnpack/config.json /variants/0/components/decoder ~ looked for"],
    ),
    case(
        "a path of one machine",
        "vad",
        |r| r.set(C, "/variants/0/file", json!("/home/me/fsmn_vad.pte")),
        &["PKG016 xnnpack/config.json /variants/0/file ~ absolute"],
    ),
    case(
        "Windows' separators",
        "whisper",
        |r| r.set(C, "/tokenizer", json!("..\\tokenizer.json")),
        &["PKG016 xnnpack/config.json /tokenizer ~ write `/`"],
    ),
    case(
        "a URL",
        "vad",
        |r| {
            r.set(
                C,
                "/variants/0/file",
                json!("https://example.com/fsmn_vad.pte"),
            );
        },
        &["PKG016 xnnpack/config.json /variants/0/file ~ is a URL"],
    ),
    case(
        "out of the repository",
        "llama",
        |r| {
            r.set(
                "1b/xnnpack/config.json",
                "/tokenizer",
                json!("../../../tokenizer.json"),
            );
        },
        &["PKG016 1b/xnnpack/config.json /tokenizer ~ leaves the package root"],
    ),
    case(
        "the backend's name as its makers write it",
        "efficientnet",
        |r| r.rename_all("coreml", "CoreML"),
        &["PKG024 CoreML/config.json /backend ~ rename the directory to `coreml`"],
    ),
    case(
        "models without a config",
        "efficientnet",
        |r| r.remove("coreml/config.json"),
        &["PKG043 coreml/config.json  ~ efficientnet_v2_s_coreml_fp16.pte"],
    ),
    case(
        "a capital letter",
        "efficientnet",
        |r| r.rename("coreml/config.json", "coreml/Config.json"),
        &["PKG044 coreml/config.json  ~ Config.json"],
    ),
    case(
        "JSON with comments",
        "efficientnet",
        |r| r.rename("coreml/config.json", "coreml/config.jsonc"),
        &["PKG044 coreml/config.json  ~ config.jsonc"],
    ),
    case(
        "a directory in the model's place",
        "vad",
        |r| {
            r.rename(
                "xnnpack/fsmn_vad_xnnpack_fp32.pte",
                "xnnpack/fsmn_vad_xnnpack_fp32.pte/model.pte",
            );
        },
        &["PKG039 xnnpack/config.json /variants/0/file ~ it is a directory"],
    ),
    case(
        "a clone without LFS",
        "vad",
        |r| {
            let size = r.size("xnnpack/fsmn_vad_xnnpack_fp32.pte");
            r.file(
                "xnnpack/fsmn_vad_xnnpack_fp32.pte",
                format!(
                    "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize {size}\n"
                ),
            );
        },
        &["PKG018 xnnpack/config.json /variants/0/file ~ git lfs pull"],
    ),
    case(
        "the shared tokenizer is not there",
        "llama",
        |r| r.remove("tokenizer.json"),
        &[
            "PKG015 1b/xnnpack/config.json /tokenizer ~ also named at 3b/xnnpack/config.json#/tokenizer",
        ],
    ),
    case(
        "the shared tokenizer is an error page",
        "llama",
        |r| r.file("tokenizer.json", "<html>404</html>"),
        &[
            "PKG022 1b/xnnpack/config.json /tokenizer ~ also named at 3b/xnnpack/config.json#/tokenizer",
        ],
    ),
    case(
        "a file that was forgotten",
        "vad",
        |r| r.model("xnnpack/fsmn_vad_xnnpack_int8.pte", "xnnpack"),
        &["PKG020 xnnpack/config.json /variants ~ fsmn_vad_xnnpack_int8.pte"],
    ),
    case(
        "MLX's own package beside ours",
        "qwen",
        |r| {
            r.file("mlx/config.json", r#"{ "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_size": 64 }"#);
            r.file("mlx/model.safetensors", "x");
        },
        &["PKG042 mlx/config.json  ~ transformers"],
    ),
    case(
        "an old copy",
        "vad",
        |r| r.copy_all("xnnpack", "xnnpack_old"),
        &[
            "PKG049 xnnpack_old/config.json /model ~ xnnpack/config.json is already a config of `fsmn_vad` for xnnpack",
        ],
    ),
    #[cfg(unix)]
    case(
        "a link into a cache",
        "vad",
        |r| r.link("xnnpack/fsmn_vad_xnnpack_fp32.pte", "../../blobs/4d7a"),
        &["PKG015 xnnpack/config.json /variants/0/file ~ is a symbolic link to `../../blobs/4d7a`"],
    ),
    // Names.
    case(
        "the model's marketing name",
        "ssdlite",
        |r| r.set(C, "/model", json!("SSDLite320-MobileNet-V3-Large")),
        &["PKG004 xnnpack/config.json /model ~ write \"ssdlite320_mobilenet_v3_large\""],
    ),
    case(
        "two letters exchanged",
        "qwen",
        |r| {
            r.set(
                "0_6b/xnnpack/config.json",
                "/variants/0/precision",
                json!("8w4da"),
            );
        },
        &["PKG008 0_6b/xnnpack/config.json /variants/0/precision ~ did you mean `8da4w`?"],
    ),
    case(
        "a precision of one's own",
        "vad",
        |r| {
            r.rename(
                "xnnpack/fsmn_vad_xnnpack_fp32.pte",
                "xnnpack/fsmn_vad_xnnpack_8da5w.pte",
            );
            r.set(C, "/variants/0/file", json!("fsmn_vad_xnnpack_8da5w.pte"));
            r.set(C, "/variants/0/precision", json!("8da5w"));
        },
        &["PKG008 xnnpack/config.json /variants/0/precision ~ `precisions.json`"],
    ),
    case(
        "a file of another precision",
        "vad",
        |r| {
            r.rename(
                "xnnpack/fsmn_vad_xnnpack_fp32.pte",
                "xnnpack/fsmn_vad_xnnpack_int8.pte",
            );
            r.set(C, "/variants/0/file", json!("fsmn_vad_xnnpack_int8.pte"));
        },
        &["PKG025 xnnpack/config.json /variants/0/file ~ correct `precision`"],
    ),
    case(
        "a name with capitals",
        "vad",
        |r| {
            r.rename("xnnpack/fsmn_vad_xnnpack_fp32.pte", "xnnpack/FSMN-VAD.pte");
            r.set(C, "/variants/0/file", json!("FSMN-VAD.pte"));
        },
        &["PKG025 xnnpack/config.json /variants/0/file ~ `fsmn_vad_xnnpack_fp32.pte`"],
    ),
    case(
        "a name that says nothing",
        "vad",
        |r| {
            r.rename("xnnpack/fsmn_vad_xnnpack_fp32.pte", "xnnpack/model.pte");
            r.set(C, "/variants/0/file", json!("model.pte"));
        },
        &["PKG025 xnnpack/config.json /variants/0/file ~ `fsmn_vad_xnnpack_fp32.pte`"],
    ),
    case(
        "another model's token",
        "style",
        |r| {
            r.set(
                "candy/xnnpack/config.json",
                "/model",
                json!("style_transfer_udnie"),
            );
        },
        &["PKG025 candy/xnnpack/config.json /model ~ style_transfer_candy_xnnpack_int8.pte"],
    ),
    case(
        "the backend's full name",
        "vad",
        |r| r.set(C, "/backend", json!("XNNPACK")),
        &["PKG004 xnnpack/config.json /backend ~ did you mean `xnnpack`?"],
    ),
    case(
        "the hub's name of a task",
        "ssdlite",
        |r| r.set(C, "/capabilities/0", json!("image_segmentation")),
        &[
            "PKG004 xnnpack/config.json /capabilities/0 ~ `semantic-segmentation` or `instance-segmentation`",
        ],
    ),
    case(
        "PyTorch's name of a dtype",
        "vad",
        |r| {
            r.set(
                C,
                "/variants/0/methods/forward/inputs/0/dtype",
                json!("torch.float32"),
            );
        },
        &[
            "PKG004 xnnpack/config.json /variants/0/methods/forward/inputs/0/dtype ~ did you mean `float32`?",
        ],
    ),
    case(
        "a mistyped key",
        "vad",
        |r| r.replace(C, "\"precision\"", "\"precison\""),
        &["PKG004 xnnpack/config.json /variants/0/precison ~ did you mean `precision`?"],
    ),
    case(
        "a licence as people say it",
        "ssdlite",
        |r| r.set(C, "/license", json!("Apache 2.0")),
        &["PKG026 xnnpack/config.json /license ~ write \"license\": \"Apache-2.0\""],
    ),
    case(
        "a licence with spaces",
        "ssdlite",
        |r| r.set(C, "/license", json!(" MIT ")),
        &["PKG026 xnnpack/config.json /license ~ write \"license\": \"MIT\""],
    ),
    case(
        "a family of licences",
        "ssdlite",
        |r| r.set(C, "/license", json!("GPL")),
        &["PKG026 xnnpack/config.json /license ~ \"GPL-3.0-only\""],
    ),
    case(
        "no licence at all",
        "ssdlite",
        |r| r.set(C, "/license", json!("see model card")),
        &["PKG026 xnnpack/config.json /license ~ neither"],
    ),
    // Semantics.
    case(
        "another backend's config",
        "ssdlite",
        |r| r.set(C, "/backend", json!("coreml")),
        &["PKG024 xnnpack/config.json /backend ~ write \"backend\": \"xnnpack\""],
    ),
    case(
        "another size's config",
        "llama",
        |r| r.set("3b/xnnpack/config.json", "/size", json!("1b")),
        &["PKG045 3b/xnnpack/config.json /size ~ write \"size\": \"3b\""],
    ),
    case(
        "a field that was dropped",
        "vad",
        |r| r.set(C, "/variants/0/quantized", json!(false)),
        &["PKG005 xnnpack/config.json /variants/0/quantized"],
    ),
    case(
        "a generator's question",
        "vad",
        |r| r.set(C, "/license", json!("TODO_license")),
        &["PKG010 xnnpack/config.json /license"],
    ),
    case(
        "a size of the export before",
        "vad",
        |r| r.set(C, "/variants/0/size_bytes", json!(2500)),
        &["PKG019 xnnpack/config.json /variants/0/size_bytes ~ write \"size_bytes\": 2577"],
    ),
    case(
        "a size that is no number of bytes",
        "vad",
        |r| {
            r.replace(
                C,
                "\"size_bytes\": 2577",
                "\"size_bytes\": 99999999999999999999",
            );
        },
        &["PKG019 xnnpack/config.json /variants/0/size_bytes ~ is 99999999999999999999,"],
    ),
    case(
        "a model that is cut off",
        "vad",
        |r| r.cut("xnnpack/fsmn_vad_xnnpack_fp32.pte", 1000),
        &["PKG027 xnnpack/config.json /variants/0/file"],
    ),
    case(
        "an empty model",
        "vad",
        |r| r.cut("xnnpack/fsmn_vad_xnnpack_fp32.pte", 0),
        &["PKG017 xnnpack/config.json /variants/0/file"],
    ),
    case(
        "a copy under another name",
        "efficientnet",
        |r| {
            r.copy(EFF, "xnnpack/efficientnet_v2_s_xnnpack_int8.pte");
            r.set(C, "/variants/1/size_bytes", json!(r.size(EFF)));
        },
        &["PKG046 xnnpack/config.json /variants/1/file ~ same bytes"],
    ),
    case(
        "a line that was copied",
        "style",
        |r| {
            r.remove("mosaic/xnnpack/style_transfer_mosaic_xnnpack_int8.pte");
            r.edit("mosaic/xnnpack/config.json", |config| {
                let file = config["variants"][0]["file"].clone();
                let size = config["variants"][0]["size_bytes"].clone();
                config["variants"][1]["file"] = file;
                config["variants"][1]["size_bytes"] = size;
            });
        },
        &["PKG021 mosaic/xnnpack/config.json /variants/1/file ~ name this variant's own file"],
    ),
    case(
        "a precision that was copied",
        "efficientnet",
        |r| r.set(C, "/variants/1/precision", json!("fp32")),
        &["PKG009 xnnpack/config.json /variants/1/precision ~ `int8`"],
    ),
    case(
        "the tokenizer's files exchanged",
        "llama",
        |r| {
            r.set(
                "1b/xnnpack/config.json",
                "/tokenizer",
                json!("../../tokenizer_config.json"),
            );
            r.set(
                "1b/xnnpack/config.json",
                "/tokenizer_config",
                json!("../../tokenizer.json"),
            );
        },
        &["PKG048 1b/xnnpack/config.json /tokenizer ~ swap"],
    ),
    case(
        "two licences of one model",
        "efficientnet",
        |r| r.set("coreml/config.json", "/license", json!("Apache-2.0")),
        &["PKG047 xnnpack/config.json /license ~ Apache-2.0 in coreml/config.json"],
    ),
    case(
        "one backend exported from another revision",
        "efficientnet",
        |r| {
            let (program, methods) = model_of("coreml");
            let path = "coreml/efficientnet_v2_s_coreml_fp16.pte";
            r.model(path, "coreml");
            assert!(program.contains("coreml"));
            let size = r.size(path);
            r.set("coreml/config.json", "/variants/0/methods", methods);
            r.set("coreml/config.json", "/variants/0/size_bytes", json!(size));
        },
        &["PKG051 xnnpack/config.json /variants/0/file ~ float32[1, 3, 32, 32] in"],
    ),
    case(
        "two lists of capabilities of one model",
        "efficientnet",
        |r| {
            r.set(
                "coreml/config.json",
                "/capabilities",
                json!(["classification", "vision"]),
            );
        },
        &["PKG047 xnnpack/config.json /capabilities ~ coreml/config.json"],
    ),
    case(
        "nested where it is flat",
        "vad",
        |r| {
            r.edit(C, |config| {
                let methods = config["variants"][0]["methods"].take();
                config["variants"][0]["methods"] = json!({ "fsmn_vad": methods });
            });
        },
        &["PKG011 xnnpack/config.json /variants/0/methods/fsmn_vad"],
    ),
    case(
        "a signature of another export",
        "vad",
        |r| {
            r.set(
                C,
                "/variants/0/methods/forward/inputs/0/shape",
                json!([4, 8]),
            );
            r.set(
                C,
                "/variants/0/methods/forward/outputs/0/dtype",
                json!("float16"),
            );
        },
        &[
            "PKG034 xnnpack/config.json /variants/0/methods/forward/inputs/0/shape/0",
            "PKG032 xnnpack/config.json /variants/0/methods/forward/outputs/0/dtype",
        ],
    ),
    case(
        "half of the keys",
        "vad",
        |r| {
            r.edit(C, |config| {
                let config = config.as_object_mut().expect("an object");
                for key in ["$schema", "family", "license"] {
                    config.remove(key);
                }
            });
        },
        &[
            "PKG004 xnnpack/config.json  ~ add \"$schema\": \"https://pkgtool.dev/schemas/config.schema.json\", and `family` and `license`",
        ],
    ),
    case(
        "a file and components",
        "whisper",
        |r| {
            r.set(
                C,
                "/variants/0/file",
                json!("whisper_tiny_en_encoder_xnnpack_fp32.pte"),
            );
        },
        &["PKG007 xnnpack/config.json /variants/0/components"],
    ),
    case(
        "a second resolution",
        "diffusion",
        |r| {
            r.model("xnnpack/bk_sdm_tiny_unet_xnnpack_fp32_512.pte", "xnnpack");
            r.edit(C, |config| {
                let mut second: Value = config["variants"][0].clone();
                second["components"]["unet"] = json!("bk_sdm_tiny_unet_xnnpack_fp32_512.pte");
                config["variants"]
                    .as_array_mut()
                    .expect("variants")
                    .push(second);
            });
        },
        &["PKG009 xnnpack/config.json /variants/1/precision"],
    ),
    case(
        "text without a tokenizer",
        "minilm",
        |r| {
            r.edit(C, |config| {
                config
                    .as_object_mut()
                    .expect("an object")
                    .remove("tokenizer");
            });
        },
        &["PKG023 xnnpack/config.json /capabilities/0"],
    ),
    case(
        "a component that changed its name",
        "kokoro",
        |r| {
            r.edit(C, |config| {
                let methods = &mut config["variants"][0]["methods"];
                methods["vocoder"] = methods["synthesizer"].take();
                methods
                    .as_object_mut()
                    .expect("an object")
                    .remove("synthesizer");
            });
        },
        &["PKG012 xnnpack/config.json /variants/0/methods/vocoder"],
    ),
    case(
        "no signatures",
        "clip",
        |r| {
            r.edit(C, |config| {
                config["variants"][0]
                    .as_object_mut()
                    .expect("an object")
                    .remove("methods");
            });
        },
        &["PKG013 xnnpack/config.json /variants/0"],
    ),
    case(
        "a program of another backend",
        "lfm",
        |r| {
            r.model("mlx/lfm_2_mlx_4w.pte", "xnnpack");
            let size = r.size("mlx/lfm_2_mlx_4w.pte");
            r.set("mlx/config.json", "/variants/0/size_bytes", json!(size));
            r.edit("mlx/config.json", |config| {
                config["variants"][0]
                    .as_object_mut()
                    .expect("an object")
                    .remove("methods");
            });
        },
        &[
            "PKG038 mlx/config.json /variants/0/file ~ XnnpackBackend",
            "PKG013 mlx/config.json /variants/0",
        ],
    ),
    // Findings that are consequences of others, and packages without a fault.
    case(
        "a component in another precision",
        "kokoro",
        |r| {
            r.remove("xnnpack/kokoro_duration_predictor_xnnpack_int8.pte");
            r.set(
                C,
                "/variants/1/components/duration_predictor",
                json!("kokoro_duration_predictor_xnnpack_fp32.pte"),
            );
        },
        &[
            "PKG021 xnnpack/config.json /variants/1/components/duration_predictor ~ nothing is wrong if this component is the same in both",
        ],
    ),
    case(
        "two files without a name",
        "lraspp",
        |r| {
            r.rename("xnnpack/lraspp_xnnpack_fp32_256.pte", "xnnpack/a.pte");
            r.model("xnnpack/b.pte", "xnnpack");
            r.edit(C, |config| {
                config["variants"][0]["file"] = json!("a.pte");
                let mut second: Value = config["variants"][0].clone();
                second["file"] = json!("b.pte");
                second["size_bytes"] = json!(2578);
                config["variants"]
                    .as_array_mut()
                    .expect("variants")
                    .push(second);
            });
        },
        &[
            "PKG009 xnnpack/config.json /variants/1/precision",
            "PKG025 xnnpack/config.json /variants/0/file ~ add a token that distinguishes the files",
            "PKG025 xnnpack/config.json /variants/1/file ~ add a token that distinguishes the files",
        ],
    ),
    case(
        "a directory too many",
        "vad",
        |r| r.rename_all("xnnpack", "xnnpack/models"),
        &[
            "PKG024 xnnpack/models/config.json /backend ~ move the package's files up into `xnnpack/`",
        ],
    ),
    case(
        "a model beside the backends",
        "vad",
        |r| {
            r.rename("xnnpack/fsmn_vad_xnnpack_fp32.pte", "shared/vad.pte");
            r.set(C, "/variants/0/file", json!("../shared/vad.pte"));
        },
        &[],
    ),
    case(
        "a precision in capitals",
        "vad",
        |r| r.set(C, "/variants/0/precision", json!("FP32")),
        &["PKG004 xnnpack/config.json /variants/0/precision ~ write \"fp32\""],
    ),
    case(
        "one capability, not a list",
        "vad",
        |r| r.set(C, "/capabilities", json!("voice-activity-detection")),
        &["PKG004 xnnpack/config.json /capabilities ~ write [\"voice-activity-detection\"]"],
    ),
    case(
        "a missing model that has a sibling",
        "efficientnet",
        |r| r.remove(EFF),
        &["PKG015 xnnpack/config.json /variants/0/file ~ looked for"],
    ),
];
