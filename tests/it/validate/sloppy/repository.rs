//! An in-memory repository that tests modify, write to disk and validate.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use crate::support::fixture;
use crate::support::run::{Found, validate};
use crate::support::tree::Tree;

/// Files by path.
#[derive(Default)]
pub(super) struct Repository {
    files: BTreeMap<String, Vec<u8>>,
    links: BTreeMap<String, String>,
    models: u8,
}

/// Returns the stand-in model for a backend, and its signature.
pub(super) fn model_of(backend: &str) -> (&'static str, Value) {
    let tensor = |shape: &[i64]| json!({ "shape": shape, "dtype": "float32" });
    let signature = |inputs: &[&[i64]], output: &[i64]| {
        let inputs: Vec<Value> = inputs.iter().map(|shape| tensor(shape)).collect();
        json!({ "forward": { "inputs": inputs, "outputs": [tensor(output)] } })
    };
    match backend {
        "coreml" => (
            "convnet_coreml_fp16.pte",
            signature(&[&[1, 3, 32, 32]], &[1, 10]),
        ),
        // Two backends of the same model have the same signature.
        "xnnpack too" => ("dyn_mlp_xnnpack_fp32.pte", signature(&[&[-1, 8]], &[-1, 4])),
        "coreml too" => (
            "../payloads/mlp_dynamic_coreml_fp32.pte",
            signature(&[&[-1, 8]], &[-1, 4]),
        ),
        "mlx" => ("mlp_mlx_fp32.pte", signature(&[&[1, 16]], &[1, 10])),
        _ => (
            "add_linear_xnnpack_fp32.pte",
            signature(&[&[2, 8], &[2, 4]], &[2, 4]),
        ),
    }
}

impl Repository {
    pub(super) fn file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.files.insert(path.to_owned(), content.into());
    }

    /// Adds a model of this backend; each model has unique bytes.
    pub(super) fn model(&mut self, path: &str, backend: &str) {
        let program = fixture(&format!("models/{}", model_of(backend).0));
        let mut bytes = fs::read(program).expect("a fixture");
        self.models += 1;
        bytes.extend([0].repeat(self.models.into()));
        self.file(path, bytes);
    }

    pub(super) fn remove(&mut self, path: &str) {
        self.files.remove(path).expect("a file to remove");
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) {
        let content = self.files.remove(from).expect("a file to rename");
        self.files.insert(to.to_owned(), content);
    }

    /// Renames a directory.
    pub(super) fn rename_all(&mut self, from: &str, to: &str) {
        for path in self.below(from) {
            self.rename(&path, &path.replacen(from, to, 1));
        }
    }

    /// Copies a directory.
    pub(super) fn copy_all(&mut self, from: &str, to: &str) {
        for path in self.below(from) {
            let content = self.files[&path].clone();
            self.files.insert(path.replacen(from, to, 1), content);
        }
    }

    pub(super) fn copy(&mut self, from: &str, to: &str) {
        let content = self.files[from].clone();
        self.file(to, content);
    }

    #[cfg(unix)]
    pub(super) fn link(&mut self, path: &str, target: &str) {
        self.files.remove(path);
        self.links.insert(path.to_owned(), target.to_owned());
    }

    pub(super) fn size(&self, path: &str) -> usize {
        self.files[path].len()
    }

    pub(super) fn cut(&mut self, path: &str, size: usize) {
        self.files
            .get_mut(path)
            .expect("a file to cut")
            .truncate(size);
    }

    /// Edits a config as a JSON value.
    pub(super) fn edit(&mut self, path: &str, change: impl FnOnce(&mut Value)) {
        let mut value: Value = serde_json::from_slice(&self.files[path]).expect("JSON");
        change(&mut value);
        self.file(path, format!("{value:#}\n"));
    }

    /// Sets a value at a JSON Pointer.
    pub(super) fn set(&mut self, path: &str, pointer: &str, new: Value) {
        self.edit(path, |value| {
            if let Some(known) = value.pointer_mut(pointer) {
                *known = new;
            } else {
                let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
                value.pointer_mut(parent).expect("a parent")[key] = new;
            }
        });
    }

    /// Replaces text in a config; the old text must occur.
    pub(super) fn replace(&mut self, path: &str, old: &str, new: &str) {
        let text = String::from_utf8(self.files[path].clone()).expect("text");
        assert!(text.contains(old), "{path} does not contain {old:?}");
        self.file(path, text.replacen(old, new, 1));
    }

    fn below(&self, directory: &str) -> Vec<String> {
        let prefix = format!("{directory}/");
        let paths = self.files.keys().filter(|path| path.starts_with(&prefix));
        paths.cloned().collect()
    }

    pub(super) fn validate(&self) -> Vec<Found> {
        let mut tree = Tree::new().file(".gitattributes", "*.pte filter=lfs\n");
        for (path, content) in &self.files {
            tree = tree.file(path, content);
        }
        #[cfg(unix)]
        for (path, target) in &self.links {
            std::os::unix::fs::symlink(target, tree.path(path)).expect("a link");
        }
        validate(tree.root(), ".").findings()
    }
}
