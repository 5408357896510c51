//! Which files are models, as far as their names tell.

use std::path::is_separator;

/// Extensions of model files, files of weights that a model names left out.
const EXTENSIONS: [&str; 9] = [
    "pte",
    "bpte",
    "onnx",
    "mlmodel",
    "mlpackage",
    "mlmodelc",
    "tflite",
    "gguf",
    "safetensors",
];
/// Those of models that are directories.
const BUNDLES: [&str; 2] = ["mlpackage", "mlmodelc"];

/// Whether a file of this name or path is a model by its extension.
pub fn has_extension(path: &str) -> bool {
    is_one_of(path, &EXTENSIONS)
}

/// Whether a file of this name holds only what macOS keeps of another one (`._x.pte`), on disks that cannot keep it.
pub fn is_shadow(name: &str) -> bool {
    name.starts_with("._")
}

/// The extensions in words: `.pte, .onnx, .tflite`.
pub fn extensions() -> String {
    let all = EXTENSIONS.map(|extension| format!(".{extension}"));
    all.join(", ")
}

/// Whether a model of this name or path is a directory by its extension.
pub fn is_bundle(path: &str) -> bool {
    is_one_of(path, &BUNDLES)
}

fn is_one_of(path: &str, extensions: &[&str]) -> bool {
    // Walks ask for every file: a `Path` would be taken apart into its components.
    let Some((stem, extension)) = path.trim_end_matches(is_separator).rsplit_once('.') else {
        return false;
    };
    !stem.is_empty()
        && !stem.ends_with(is_separator)
        && extensions
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::{has_extension, is_bundle};

    #[test]
    fn extensions_are_those_of_the_last_name() {
        for model in ["m.pte", "a.b/m.PTE", "..onnx", "a/m.mlpackage/", "m.x.pte"] {
            assert!(has_extension(model), "{model}");
        }
        for other in [
            "pte",
            ".pte",
            "a/.pte",
            "m.pte/config",
            "m.pte.txt",
            "",
            "/",
            "m.",
        ] {
            assert!(!has_extension(other), "{other}");
        }
        assert!(is_bundle("m.mlmodelc//") && !is_bundle("m.pte"));
    }
}
