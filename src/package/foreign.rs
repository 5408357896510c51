//! Configs of other libraries that stand where a package's config may stand: `mlx/config.json` of a
//! transformers model, `coreml/config.json` of an exporter.
//!
//! A config that has any key of the format is the format's, however broken.

use super::Loaded;
use crate::source::json::Node;
use crate::source::suggest;

/// Keys of the format that no other library's config has at its root, or has with another meaning
/// only together with its own marks.
const OWN: [&str; 7] = [
    "backend",
    "variants",
    "family",
    "capabilities",
    "license",
    "model",
    "$schema",
];

/// Marks of other libraries, and whose they are.
const MARKS: [(&str, &str); 12] = [
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

/// Whose config it is; `None` for one of the format, and for what does not say.
pub fn owner(loaded: &Loaded) -> Option<&'static str> {
    let root = &loaded.document.as_ref().ok()?.root;
    let has = |key: &&str| root.get(key).is_some();
    // Two keys decide alone: nothing else names both a backend and variants.
    if !root.is_object() || has(&"backend") || has(&"variants") {
        return None;
    }
    if let Some((_, owner)) = MARKS.iter().find(|(key, _)| has(key)) {
        return Some(owner);
    }
    let meant = |node: &Node| {
        let keys = node.members().iter().map(|member| member.key.as_str());
        keys.map(|key| suggest::nearest(key, OWN.into_iter()))
            .any(|meant| meant.is_some())
    };
    (!root.members().is_empty() && !meant(root)).then_some("another library")
}
