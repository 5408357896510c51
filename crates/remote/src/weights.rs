//! Classifies files by name: models and weights, or JSON.

use pkgtool_base::package::model_file;

/// Extensions of files with external data of models, and of models in formats that packages do not
/// use.
const DATA_EXTENSIONS: [&str; 10] = [
    "ptd",
    "data",
    "onnx_data",
    "bin",
    "safetensors",
    "gguf",
    "weights",
    "mlpackage",
    "mlmodelc",
    "npy",
];
/// Returns whether a file with this name contains a model or its weights.
pub(super) fn is_model(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    model_file::has_extension(name)
        || extension.is_some_and(|extension| {
            DATA_EXTENSIONS
                .iter()
                .any(|known| extension.eq_ignore_ascii_case(known))
        })
}

/// Returns whether a file with this name contains JSON.
pub(super) fn is_json(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}
