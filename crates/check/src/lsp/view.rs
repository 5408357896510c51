//! A document as requests see it: its tree, its location on disk, and the models that it names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::client::EditorClient;
use super::lenient::LenientTree;
use super::shape::Subschema;
use super::text::Text;
use crate::policy::Policy;
use crate::validate::{FileFacts, ValidationSession};
use pkgtool_base::diagnostic::Diagnostic;
use pkgtool_base::package::reference::{self, ReferenceError};
use pkgtool_base::package::{FoundFile, FoundKind, Roots, precision, roots};
use pkgtool_base::source::JsonPath;
use pkgtool_base::source::json::{Node, Step};
use pkgtool_model::{Method, ModelInfo};

/// Keys that identify a config.
const CONFIG_KEYS: [&str; 7] = [
    "$schema",
    "model",
    "family",
    "backend",
    "license",
    "variants",
    "capabilities",
];

/// The data about a document that requests need.
pub(super) struct DocumentView<'a> {
    pub(super) text: &'a Text,
    pub(super) tree: LenientTree,
    pub(super) found: &'a FoundFile,
    pub(super) findings: &'a [Diagnostic],
    pub(super) session: &'a ValidationSession,
    pub(super) client: &'a EditorClient,
    /// Directory of the document.
    pub(super) directory: PathBuf,
    /// Depth of the directory below the package root.
    pub(super) depth: usize,
}

/// The variant that a path leads into.
#[derive(Clone, Copy)]
pub(super) struct VariantAt<'t> {
    pub(super) node: &'t Node,
}

impl<'a> DocumentView<'a> {
    /// Creates the view of the document at `found`; `cursor` is the position where the author
    /// types.
    pub(super) fn new(
        text: &'a Text,
        found: &'a FoundFile,
        findings: &'a [Diagnostic],
        (session, client): (&'a ValidationSession, &'a EditorClient),
        cursor: Option<usize>,
    ) -> Self {
        let roots = Roots::new();
        let directory = roots.absolute(found.path.parent().unwrap_or(Path::new("")));
        let root = roots.package_root(&directory);
        Self {
            text,
            tree: LenientTree::read(text.as_str(), cursor),
            found,
            findings,
            session,
            client,
            depth: roots::depth_below(&directory, &root),
            directory,
        }
    }

    /// Returns whether the document is a precision list; otherwise it is a config.
    pub(super) fn is_list(&self) -> bool {
        self.found.kind == FoundKind::PrecisionList
            || self.found.path.file_name() == Some(precision::FILE_NAME.as_ref())
    }

    /// Returns whether it is another library's file that happens to be named like a config.
    pub(super) fn is_foreign(&self) -> bool {
        let has = |key: &str| self.tree.root.get(key).is_some();
        let is_empty = self.tree.root.members().is_empty();
        match self.found.kind {
            FoundKind::PrecisionList | FoundKind::Config => false,
            FoundKind::MaybeConfig => {
                !is_empty && !CONFIG_KEYS.iter().any(|key| has(key)) && !self.is_begun()
            }
        }
    }

    /// Returns whether the document has so little content that it may become a config.
    fn is_begun(&self) -> bool {
        let members = self.tree.root.members();
        members.iter().all(|member| member.value.span.is_empty())
    }

    /// Returns the subschema for the value at `path`.
    pub(super) fn shape(&self, path: &JsonPath) -> Option<Subschema> {
        let nested = self.variant(path).is_some_and(VariantAt::has_components);
        Subschema::at(self.is_list(), path, nested)
    }

    /// Returns the capabilities that the project's schemas add.
    pub(super) fn extra_capabilities(&self) -> Vec<String> {
        let settings = Policy::nearest().settings_for(&self.found.path);
        let overlays = settings.iter().flat_map(|settings| &settings.overlays);
        let added = overlays.flat_map(|overlay| overlay.capabilities());
        added.map(str::to_owned).collect()
    }

    /// Returns the variant that `path` leads into.
    pub(super) fn variant(&self, path: &JsonPath) -> Option<VariantAt<'_>> {
        let [Step::Key(key), Step::Index(index), ..] = path.steps() else {
            return None;
        };
        let variants = self
            .tree
            .root
            .get("variants")
            .filter(|_| &**key == "variants")?;
        let node = variants.elements().get(*index)?;
        Some(VariantAt { node })
    }

    /// Resolves a reference to a path.
    pub(super) fn resolve(&self, reference: &str) -> Result<PathBuf, ReferenceError> {
        reference::resolve(&self.directory, self.depth, reference)
    }

    /// Returns facts about the file that a reference names.
    pub(super) fn file(&self, reference: &str, as_model: bool) -> Option<Arc<FileFacts>> {
        let path = self.resolve(reference).ok()?;
        Some(self.session.file(&path, as_model))
    }

    /// Returns the model file of a variant or of one of its components, if it is readable.
    pub(super) fn model(
        &self,
        variant: VariantAt<'_>,
        component: Option<&str>,
    ) -> Option<Arc<FileFacts>> {
        let reference = match component {
            Some(component) => variant.node.get("components")?.get(component)?,
            None => variant.node.get("file")?,
        };
        let facts = self.file(reference.as_str()?, true)?;
        facts.model_info().is_some().then_some(facts)
    }

    /// Returns the size of a variant's file, or the total size of its components. Returns `None` if
    /// a file is missing.
    pub(super) fn size_on_disk(&self, variant: VariantAt<'_>) -> Option<u64> {
        let file = variant.node.get("file").and_then(Node::as_str);
        let components = variant.components().map(|(_, reference)| reference);
        let references: Vec<&str> = match file {
            Some(file) => vec![file],
            None => components.collect(),
        };
        let sizes = references
            .iter()
            .map(|reference| self.file(reference, false)?.size());
        let sizes: Vec<u64> = sizes.collect::<Option<_>>()?;
        (!sizes.is_empty()).then(|| sizes.into_iter().fold(0, u64::saturating_add))
    }

    /// Returns all references to files, each with its node and its text.
    pub(super) fn references(&self) -> Vec<(&Node, &str)> {
        let root = &self.tree.root;
        let named = ["tokenizer", "tokenizer_config"].into_iter();
        let named = named.filter_map(|key| root.get(key));
        let variants = root.get("variants").map_or(&[][..], Node::elements);
        let files = variants.iter().flat_map(|variant| {
            let components = variant.get("components").map_or(&[][..], Node::members);
            let components = components.iter().map(|member| &member.value);
            variant.get("file").into_iter().chain(components)
        });
        let all = named.chain(files);
        all.filter_map(|node| Some((node, node.as_str()?)))
            .collect()
    }
}

impl<'t> VariantAt<'t> {
    pub(super) fn has_components(self) -> bool {
        self.node
            .get("components")
            .is_some_and(|components| !components.is_null() || components.span.is_empty())
    }

    /// Returns the names and references of the components.
    pub(super) fn components(self) -> impl Iterator<Item = (&'t str, &'t str)> {
        let components = self.node.get("components").map_or(&[][..], Node::members);
        let components = components.iter();
        components.filter_map(|member| Some((member.key.as_str(), member.value.as_str()?)))
    }
}

/// Returns the model's method that a config calls `name`. The only graph of an ONNX file has no
/// method name, so any name matches.
pub(super) fn method<'m>(info: &'m ModelInfo, name: &str) -> Option<&'m Method> {
    if info.names_methods {
        info.method(name).filter(|method| !method.constant)
    } else {
        info.methods.first()
    }
}

/// Returns the steps of a path below its variant's `methods`: the component if there are
/// components, the method, and the remaining steps.
pub(super) fn method_steps(
    path: &JsonPath,
    nested: bool,
) -> Option<(Option<&str>, Option<&str>, &[Step])> {
    let [_, _, Step::Key(methods), rest @ ..] = path.steps() else {
        return None;
    };
    if &**methods != "methods" {
        return None;
    }
    let (component, rest) = match rest {
        [Step::Key(component), rest @ ..] if nested => (Some(&**component), rest),
        _ => (None, rest),
    };
    match rest {
        [Step::Key(method), rest @ ..] => Some((component, Some(&**method), rest)),
        rest => Some((component, None, rest)),
    }
}
