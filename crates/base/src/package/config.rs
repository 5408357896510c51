//! A package config as a typed view of its JSON tree.
//!
//! Invariant: reading never fails. A value of the wrong type is absent from the view, and the
//! schema stage reports it. Every part keeps its path, so that findings can point at it.

use super::{Backend, DType};
use crate::source::hashed::Map;
use crate::source::json::{Document, JsonPath, Member, Node};

/// URI of the config schema, also the schema's `$id`.
pub const SCHEMA_ID: &str = "https://pkgtool.dev/schemas/config.schema.json";

/// The file name of a config in a package.
pub const FILE_NAME: &str = "config.json";

/// The key of a signature's input tensors.
pub const INPUTS: &str = "inputs";

/// The key of a signature's output tensors.
pub const OUTPUTS: &str = "outputs";

/// A package config: one model for one backend.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// The `$schema` identifier.
    pub schema: Option<String>,
    /// Model token, used in file names.
    pub model: Option<String>,
    /// Family: a loose grouping of models.
    pub family: Option<String>,
    /// Size token.
    pub size: Option<String>,
    /// Capabilities of the model.
    pub capabilities: Vec<String>,
    /// Target backend.
    pub backend: Option<Backend>,
    /// Licence.
    pub license: Option<String>,
    /// `tokenizer` and `tokenizer_config`, as far as present.
    pub tokenizer_files: Vec<FileRef>,
    /// Variants in file order.
    pub variants: Vec<Variant>,
}

/// A reference from a config to a file.
#[derive(Debug, Clone)]
pub struct FileRef {
    /// Name of the component, in a multi-component variant.
    pub component: Option<String>,
    /// The reference as written.
    pub reference: String,
    /// Its path in the config.
    pub path: JsonPath,
}

/// A file or set of components in one precision.
#[derive(Debug, Clone)]
pub struct Variant {
    /// The variant's path in the config.
    pub path: JsonPath,
    /// Index in `variants`, from 0.
    pub position: usize,
    /// Precision token.
    pub precision: Option<String>,
    /// True if `file` is set and not null.
    pub has_file: bool,
    /// True if `components` is set and not null.
    pub has_components: bool,
    /// The files: one for a single-file variant, one for each component otherwise.
    pub files: Vec<FileRef>,
    /// Declared size in bytes.
    pub size_bytes: Option<u64>,
    /// Declared method signatures.
    pub methods: Methods,
}

/// The `methods` of a variant.
#[derive(Debug, Clone, Default)]
pub enum Methods {
    /// Not declared.
    #[default]
    Absent,
    /// Declared: groups of signatures. A single-file variant has one group without a component.
    Declared {
        /// Well-nested groups.
        groups: Vec<MethodGroup>,
        /// Paths of entries nested the wrong way for this variant.
        misnested: Vec<JsonPath>,
    },
}

/// The method signatures of one file.
#[derive(Debug, Clone)]
pub struct MethodGroup {
    /// The component they belong to, in a multi-component variant.
    pub component: Option<String>,
    /// Its path in the config.
    pub path: JsonPath,
    /// Signatures in file order.
    pub methods: Vec<MethodSignature>,
}

/// The declared signature of a method.
#[derive(Debug, Clone)]
pub struct MethodSignature {
    /// Method name.
    pub name: String,
    /// Its path in the config.
    pub path: JsonPath,
    /// Input tensors in order, under [`INPUTS`]; `None` unless it is an array.
    pub inputs: Option<Vec<DeclaredTensor>>,
    /// Output tensors in order, under [`OUTPUTS`]; `None` unless it is an array.
    pub outputs: Option<Vec<DeclaredTensor>>,
}

/// A declared tensor. Its path follows from its index: storing a path for each would dominate the
/// cost of the view.
#[derive(Debug, Clone)]
pub struct DeclaredTensor {
    /// Semantic name.
    pub name: Option<String>,
    /// Sizes, -1 for a dynamic dimension; `None` unless all are integers.
    pub shape: Option<Vec<i64>>,
    /// Element type; `None` unless it is one of the format's.
    pub dtype: Option<DType>,
}

/// Returns the index of the variant at or above a JSON pointer into a config.
pub fn variant_at(pointer: &str) -> Option<usize> {
    let rest = pointer.strip_prefix("/variants/")?;
    rest.split('/').next()?.parse().ok()
}

impl Config {
    /// Creates the view of a document.
    pub fn from_document(document: &Document) -> Self {
        let root = &document.root;
        let at = JsonPath::root();
        let capabilities = root.get("capabilities").map_or(&[][..], Node::elements);
        let variants = root.get("variants").map_or(&[][..], Node::elements);
        let variants_at = at.key("variants");
        Self {
            schema: string(root, "$schema"),
            model: string(root, "model"),
            family: string(root, "family"),
            size: string(root, "size"),
            capabilities: capabilities
                .iter()
                .filter_map(Node::as_str)
                .map(str::to_owned)
                .collect(),
            backend: root
                .get("backend")
                .and_then(Node::as_str)
                .and_then(Backend::from_name),
            license: string(root, "license"),
            tokenizer_files: ["tokenizer", "tokenizer_config"]
                .into_iter()
                .filter_map(|key| FileRef::read(root, key, &at))
                .collect(),
            variants: variants
                .iter()
                .enumerate()
                .filter(|(_, node)| node.is_object())
                .map(|(i, node)| Variant::read(node, i, variants_at.index(i)))
                .collect(),
        }
    }

    /// Returns all references to files: first tokenizers, then variants.
    pub fn files(&self) -> impl Iterator<Item = &FileRef> {
        self.tokenizer_files
            .iter()
            .chain(self.variants.iter().flat_map(|variant| &variant.files))
    }
}

impl FileRef {
    fn read(node: &Node, key: &str, at: &JsonPath) -> Option<Self> {
        let reference = string(node, key)?;
        Some(Self {
            component: None,
            reference,
            path: at.key(key),
        })
    }

    fn component(member: &Member, at: &JsonPath) -> Option<Self> {
        Some(Self {
            component: Some(member.key.to_string()),
            reference: member.value.as_str()?.to_owned(),
            path: at.key(&member.key),
        })
    }
}

impl Variant {
    fn read(node: &Node, position: usize, path: JsonPath) -> Self {
        let present = |key| node.get(key).is_some_and(|value| !value.is_null());
        let has_components = present("components");
        let files = if has_components {
            let at = path.key("components");
            let components = node.get("components").into_iter();
            components
                .flat_map(|object| {
                    let at = &at;
                    let members = object.effective_members();
                    members.filter_map(move |member| FileRef::component(member, at))
                })
                .collect()
        } else {
            let file = FileRef::read(node, "file", &path);
            file.map_or_else(Vec::new, |file| vec![file])
        };
        Self {
            position,
            precision: string(node, "precision"),
            has_file: present("file"),
            has_components,
            files,
            size_bytes: node
                .get("size_bytes")
                .and_then(Node::as_i64)
                .and_then(|size| u64::try_from(size).ok()),
            methods: Methods::read(node.get("methods"), &path.key("methods"), has_components),
            path,
        }
    }

    /// Returns the declared signatures by component; those of a single-file variant have the key
    /// `None`.
    pub fn methods_by_component(&self) -> Map<Option<&str>, &MethodGroup> {
        let groups = match &self.methods {
            Methods::Absent => &[][..],
            Methods::Declared { groups, .. } => groups,
        };
        let keyed = groups
            .iter()
            .map(|group| (group.component.as_deref(), group));
        keyed.collect()
    }
}

impl Methods {
    fn read(node: Option<&Node>, path: &JsonPath, has_components: bool) -> Self {
        let Some(node) = node else {
            return Self::Absent;
        };
        let (mut groups, mut misnested) = (Vec::new(), Vec::new());
        let mut flat = Vec::new();
        for member in node.effective_members() {
            let at = path.key(&member.key);
            if has_components && is_signature(&member.value)
                || !has_components && is_method_group(&member.value)
            {
                misnested.push(at);
            } else if has_components {
                groups.push(MethodGroup {
                    component: Some(member.key.to_string()),
                    methods: read_signatures(&member.value, &at),
                    path: at,
                });
            } else {
                flat.push(MethodSignature::read(&member.value, &member.key, at));
            }
        }
        if !flat.is_empty() {
            groups.push(MethodGroup {
                component: None,
                path: path.clone(),
                methods: flat,
            });
        }
        Self::Declared { groups, misnested }
    }
}

impl MethodSignature {
    fn read(node: &Node, name: &str, path: JsonPath) -> Self {
        let tensors = |key| {
            let value = node.get(key)?;
            let array = matches!(value.kind, crate::source::json::JsonValue::Array(_));
            array.then(|| value.elements().iter().map(DeclaredTensor::read).collect())
        };
        Self {
            name: name.to_owned(),
            inputs: tensors(INPUTS),
            outputs: tensors(OUTPUTS),
            path,
        }
    }
}

impl DeclaredTensor {
    fn read(node: &Node) -> Self {
        let shape = node.get("shape").and_then(|shape| {
            let is_array = matches!(shape.kind, crate::source::json::JsonValue::Array(_));
            let sizes = shape.elements().iter().map(Node::as_i64);
            is_array.then(|| sizes.collect::<Option<Vec<_>>>())?
        });
        Self {
            name: string(node, "name"),
            shape,
            dtype: node
                .get("dtype")
                .and_then(Node::as_str)
                .and_then(DType::from_name)
                .filter(|dtype| dtype.is_configurable()),
        }
    }
}

fn read_signatures(node: &Node, path: &JsonPath) -> Vec<MethodSignature> {
    node.effective_members()
        .map(|member| MethodSignature::read(&member.value, &member.key, path.key(&member.key)))
        .collect()
}

/// Returns whether the author meant a method signature: it has `inputs` or `outputs` that are not
/// objects.
fn is_signature(node: &Node) -> bool {
    [INPUTS, OUTPUTS]
        .iter()
        .any(|key| node.get(key).is_some_and(|value| !value.is_object()))
}

/// Returns whether the author meant a component's methods: an object of signatures.
fn is_method_group(node: &Node) -> bool {
    !is_signature(node)
        && node
            .members()
            .iter()
            .any(|member| is_signature(&member.value))
}

fn string(node: &Node, key: &str) -> Option<String> {
    node.get(key).and_then(Node::as_str).map(str::to_owned)
}
