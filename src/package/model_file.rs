//! Which files are models, as far as their names tell.

use std::path::Path;

/// Extensions of model files, files of weights beside them left out.
const EXTENSIONS: [&str; 7] = [
    "pte",
    "bpte",
    "onnx",
    "mlmodel",
    "mlpackage",
    "mlmodelc",
    "tflite",
];
/// Those of models that are directories.
const BUNDLES: [&str; 2] = ["mlpackage", "mlmodelc"];

/// Whether a file of this name or path is a model by its extension.
pub fn has_extension(path: &str) -> bool {
    is_one_of(path, &EXTENSIONS)
}

/// Whether a model of this name or path is a directory by its extension.
pub fn is_bundle(path: &str) -> bool {
    is_one_of(path, &BUNDLES)
}

fn is_one_of(path: &str, extensions: &[&str]) -> bool {
    let extension = Path::new(path).extension().and_then(|it| it.to_str());
    extension.is_some_and(|extension| {
        extensions
            .iter()
            .any(|known| extension.eq_ignore_ascii_case(known))
    })
}
