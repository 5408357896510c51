//! More typical mistakes: unusual packages as people, tools and downloads produce them.

use serde_json::{Value, json};

use super::cases::{C, Case, SSD, case};

const FILE: &str = "/variants/0/file";
const NAME: &str = "ssdlite320_mobilenet_v3_large_xnnpack_fp32";

pub(super) const ODDITIES: &[Case] = &[
    case(
        "no components in the place of a file",
        "ssdlite",
        |r| {
            let file = format!("\"file\": \"{NAME}.pte\"");
            r.replace(C, &file, "\"components\": {}");
        },
        &["PKG004 xnnpack/config.json /variants/0/components"],
    ),
    case(
        "a precision twice",
        "ssdlite",
        |r| {
            r.replace(
                C,
                "\"precision\": \"fp32\"",
                "\"precision\": \"fp32\", \"precision\": \"int8\"",
            );
        },
        &["PKG003 xnnpack/config.json /variants/0/precision"],
    ),
    case(
        "a space behind a name",
        "ssdlite",
        |r| r.replace(C, ".pte\"", ".pte \""),
        &[
            "PKG015 xnnpack/config.json /variants/0/file ~ has U+0020 where the file's name has nothing",
        ],
    ),
    case(
        "an invisible character",
        "ssdlite",
        |r| r.set(C, FILE, Value::from(format!("\u{200b}{NAME}.pte"))),
        &["PKG015 xnnpack/config.json /variants/0/file ~ has U+200B where"],
    ),
    case(
        "a letter in two characters",
        "ssdlite",
        |r| {
            r.rename(SSD, &SSD.replace("_v3_", "_é_"));
            let name = format!("{NAME}.pte").replace("_v3_", "_e\u{301}_");
            r.set(C, FILE, Value::from(name));
        },
        &[
            "PKG015 xnnpack/config.json /variants/0/file ~ has U+0065 where the file's name has U+00E9",
        ],
    ),
    case(
        "a name as in a URL",
        "ssdlite",
        |r| {
            let name = format!("{}.pte", NAME.replace('_', "%5F"));
            r.set(C, FILE, Value::from(name));
        },
        &[
            "PKG015 xnnpack/config.json /variants/0/file ~ did you mean `ssdlite320_mobilenet_v3_large_xnnpack_fp32.pte`?",
        ],
    ),
    case(
        "a name without its extension",
        "ssdlite",
        |r| r.set(C, FILE, Value::from(NAME)),
        &["PKG015 xnnpack/config.json /variants/0/file ~ The reference must include the extension"],
    ),
    case(
        "a download that did not end",
        "ssdlite",
        |r| r.rename(SSD, &format!("{SSD}.part")),
        &["PKG015 xnnpack/config.json /variants/0/file ~ is an unfinished download"],
    ),
    case(
        "a model that is packed",
        "ssdlite",
        |r| r.rename(SSD, &format!("{SSD}.gz")),
        &[
            "PKG015 xnnpack/config.json /variants/0/file ~ unpack `ssdlite320_mobilenet_v3_large_xnnpack_fp32.pte.gz`",
        ],
    ),
    case(
        "a file's name with a slash behind it",
        "ssdlite",
        |r| r.replace(C, ".pte\"", ".pte/\""),
        &["PKG016 xnnpack/config.json /variants/0/file ~ names a directory, not a file"],
    ),
    case(
        "a config that names itself",
        "ssdlite",
        |r| r.set(C, FILE, Value::from("config.json")),
        &["PKG016 xnnpack/config.json /variants/0/file ~ `config.json` is this config itself"],
    ),
    case(
        "a model as the tokenizer",
        "ssdlite",
        |r| r.set(C, "/tokenizer", Value::from(format!("{NAME}.pte"))),
        &["PKG022 xnnpack/config.json /tokenizer ~ is a model file, not JSON"],
    ),
    case(
        "a dimension by its name",
        "ssdlite",
        |r| r.set(C, SHAPE, json!(["batch", 8])),
        &[
            "PKG004 xnnpack/config.json /variants/0/methods/forward/inputs/0/shape/0 ~ write -1 for a dynamic dimension",
        ],
    ),
    case(
        "two licences as a list",
        "ssdlite",
        |r| r.set(C, "/license", json!(["MIT", "Apache-2.0"])),
        &["PKG004 xnnpack/config.json /license ~ MIT OR Apache-2.0"],
    ),
    case(
        "a list of one licence",
        "ssdlite",
        |r| r.set(C, "/license", json!(["MIT"])),
        &["PKG004 xnnpack/config.json /license ~ write \"MIT\", without brackets"],
    ),
    case(
        "a list of one backend",
        "ssdlite",
        |r| r.set(C, "/backend", json!(["xnnpack"])),
        &["PKG004 xnnpack/config.json /backend ~ write \"xnnpack\", without brackets"],
    ),
    case(
        "a precision by PyTorch's name",
        "ssdlite",
        |r| r.set(C, "/variants/0/precision", json!("float32")),
        &["PKG008 xnnpack/config.json /variants/0/precision ~ did you mean `fp32`?"],
    ),
    case(
        "what a disk left behind the text",
        "ssdlite",
        |r| r.replace(C, "\n}\n", "\n}\n\0\0\0\0"),
        &["PKG002 xnnpack/config.json  ~ NUL"],
    ),
    case(
        "a config packed by gzip",
        "ssdlite",
        |r| r.file(C, *b"\x1f\x8b\x08\0\0\0\0\0\0\x03"),
        &["PKG002 xnnpack/config.json  ~ packed by gzip"],
    ),
    #[cfg(unix)]
    case(
        "a backend's directory that is a link",
        "ssdlite",
        |r| {
            r.rename_all("xnnpack", "built");
            r.link("xnnpack", "built");
        },
        &[],
    ),
];

const SHAPE: &str = "/variants/0/methods/forward/inputs/0/shape";
