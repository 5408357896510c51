//! Recognizes model files by their names.

use std::path::is_separator;

/// Extensions of model files, without those of separate weight files.
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
/// Extensions of models that are directories.
const BUNDLES: [&str; 2] = ["mlpackage", "mlmodelc"];

/// Returns whether the extension of this name or path is that of a model.
pub fn has_extension(path: &str) -> bool {
    is_one_of(path, &EXTENSIONS)
}

/// Returns whether a file of this name is an `AppleDouble` file (`._x.pte`), in which macOS keeps
/// attributes of another file.
pub fn is_shadow(name: &str) -> bool {
    name.starts_with("._")
}

/// Returns the extensions as a list: `.pte, .onnx, .tflite`.
pub fn extensions() -> String {
    let all = EXTENSIONS.map(|extension| format!(".{extension}"));
    all.join(", ")
}

/// Returns whether the extension of this name or path is that of a model directory.
pub fn is_bundle(path: &str) -> bool {
    is_one_of(path, &BUNDLES)
}

fn is_one_of(path: &str, extensions: &[&str]) -> bool {
    // Walks call this for every file. Parsing a `Path` into components would be slower.
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
