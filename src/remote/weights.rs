//! Which files hold models, their weights or JSON, as far as their names tell.

use crate::package::model_file;

/// Extensions of files that models keep data in, and of models that are not of a package.
const DATA: [&str; 10] = [
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
/// Whether a file of this name holds a model or its weights.
pub(super) fn is_model(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    model_file::has_extension(name)
        || extension.is_some_and(|extension| {
            DATA.iter()
                .any(|known| extension.eq_ignore_ascii_case(known))
        })
}

/// Whether a file of this name is JSON.
pub(super) fn is_json(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    extension.is_some_and(|extension| extension.eq_ignore_ascii_case("json"))
}
