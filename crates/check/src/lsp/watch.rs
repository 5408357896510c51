//! Determines which files on disk affect the findings of which documents.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::lenient::LenientTree;
use super::uri;
use pkgtool_base::package::reference::normalize;
use pkgtool_base::package::{config, precision};
use pkgtool_base::source::json::Node;

/// Extensions of files that configs refer to, and of files that these refer to.
const EXTENSIONS: &str = "pte,bpte,ptd,onnx,mlmodel,tflite,data,weight,bin,json,model,txt";
/// Id of the registration.
const REGISTRATION_ID: &str = "pkgtool-files";
/// Maximum number of references that are kept per document.
const MAX_REFERENCES: usize = 2000;

/// Returns the parameters of `client/registerCapability`: the files that the client is asked to
/// watch.
pub(super) fn registration() -> Value {
    let watcher = |pattern: &str| json!({ "globPattern": pattern });
    let watchers = [
        watcher(&format!("**/*.{{{EXTENSIONS}}}")),
        watcher("**/*.{mlpackage,mlmodelc}/**"),
        watcher("**/.git"),
    ];
    json!({ "registrations": [{
        "id": REGISTRATION_ID,
        "method": "workspace/didChangeWatchedFiles",
        "registerOptions": { "watchers": watchers },
    }] })
}

/// Returns the files that the client reports as changed (`workspace/didChangeWatchedFiles`).
pub(super) fn changed(params: &Value) -> Vec<PathBuf> {
    let changes = params.get("changes").and_then(Value::as_array);
    let changes = changes.into_iter().flatten();
    changes
        .filter_map(|change| uri::to_path(change.get("uri")?.as_str()?))
        .collect()
}

/// The files that a document's findings depend on, according to the text when it was last analysed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Dependencies {
    directory: PathBuf,
    references: HashSet<PathBuf>,
    /// Directories of these files. A model's external data lies beside it.
    neighbours: HashSet<PathBuf>,
}

impl Dependencies {
    /// Computes the dependencies of a text at `path`.
    pub(super) fn of(path: &Path, text: &str) -> Self {
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        let tree = LenientTree::read(text, None);
        let mut dependencies = Self {
            directory,
            ..Self::default()
        };
        dependencies.collect(&tree.root);
        dependencies
    }

    /// Returns whether a change of `path` can change the findings.
    pub(super) fn include(&self, path: &Path) -> bool {
        let name = path.file_name();
        let is_list = name == Some(precision::FILE_NAME.as_ref());
        let is_root = name == Some(".git".as_ref()) || is_list;
        let above = path
            .parent()
            .is_some_and(|above| self.directory.starts_with(above));
        // The editor, not the disk, determines the text of the document itself.
        let is_own = path == self.directory.join(config::FILE_NAME);
        is_root && above
            || !is_own && path.starts_with(&self.directory)
            || self.references.iter().any(|one| path.starts_with(one))
            || path
                .parent()
                .is_some_and(|parent| self.neighbours.contains(parent))
    }

    fn collect(&mut self, node: &Node) {
        if self.references.len() >= MAX_REFERENCES {
            return;
        }
        if let Some(text) = node.as_str()
            && (text.contains('/') || text.contains('.'))
            && !text.contains("://")
            && !text.contains('\0')
        {
            let path = normalize(&self.directory.join(text));
            let parent = path.parent().unwrap_or(Path::new(""));
            self.neighbours.insert(parent.to_owned());
            self.references.insert(path);
        }
        for member in node.members() {
            self.collect(&member.value);
        }
        for element in node.elements() {
            self.collect(element);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Dependencies;

    #[test]
    fn a_document_hangs_on_what_it_names() {
        let text = r#"{"tokenizer": "../t.json", "variants": [{"file": "../../s/m.onnx", "#;
        let hangs = Dependencies::of(Path::new("/r/p/xnnpack/config.json"), text);
        for (path, expected) in [
            ("/r/p/xnnpack/m.pte", true),
            ("/r/p/xnnpack/config.json", false),
            ("/r/p/t.json", true),
            ("/r/s/m.onnx", true),
            ("/r/s/m.onnx.data", true),
            ("/r/precisions.json", true),
            ("/r/.git", true),
            ("/r/q/precisions.json", false),
            ("/r/q/xnnpack/m.pte", false),
        ] {
            assert_eq!(hangs.include(Path::new(path)), expected, "{path}");
        }
    }
}
