//! Detects configs of other libraries in places where a package config may be: `mlx/config.json` of
//! a transformers model, `coreml/config.json` of an exporter.
//!
//! A config with any key that only this format uses counts as a package config, however broken.

use super::LoadedFile;
use crate::source::json::Node;
use crate::source::suggest;

/// Keys of the format that other libraries do not use at the root, or use only together with their
/// own marker keys.
const FORMAT_KEYS: [&str; 7] = [
    "backend",
    "variants",
    "family",
    "capabilities",
    "license",
    "model",
    "$schema",
];

/// Marker keys of other libraries, with the library's name.
const FOREIGN_KEYS: [(&str, &str); 12] = [
    ("model_type", "transformers"),
    ("architectures", "transformers"),
    ("transformers_version", "transformers"),
    ("torch_dtype", "transformers"),
    ("_class_name", "diffusers"),
    ("_diffusers_version", "diffusers"),
    ("expo", "Expo"),
    ("nativeBuildVersion", "Expo"),
    ("__version__", "sentence-transformers"),
    ("quantization", "MLX"),
    ("compilerOptions", "TypeScript"),
    ("num_hidden_layers", "transformers"),
];

/// Returns the library that a config belongs to; `None` for a package config or if it is unknown.
pub fn owner(loaded: &LoadedFile) -> Option<&'static str> {
    let root = &loaded.document.as_ref().ok()?.root;
    let has = |key: &&str| root.get(key).is_some();
    // Either key decides alone: no other library has them.
    if !root.is_object() || has(&"backend") || has(&"variants") {
        return None;
    }
    if let Some((_, owner)) = FOREIGN_KEYS.iter().find(|(key, _)| has(key)) {
        return Some(owner);
    }
    let meant = |node: &Node| {
        let keys = node.members().iter().map(|member| member.key.as_str());
        keys.map(|key| suggest::nearest(key, FORMAT_KEYS.into_iter()))
            .any(|meant| meant.is_some())
    };
    (!root.members().is_empty() && !meant(root)).then_some("another library")
}
