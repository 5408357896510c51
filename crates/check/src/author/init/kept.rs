//! Preserves author-supplied facts of a config that is being replaced: size, custom tokenizer
//! names, tensor names, and dynamic dimensions.
//!
//! Tensor facts are preserved if the same file has a method of that name with the same number of
//! tensors. The file's header takes precedence. Validation checks whether names still fit.

use serde_json::{Map, Value as Json, json};

use super::beside::NeighbourFile;
use super::file::InitModel;
use super::home::{ExistingConfig, ModelDirectory};
use super::names;
use pkgtool_base::package::leftover::is_placeholder;
use pkgtool_base::package::reference::resolve;
use pkgtool_base::package::roots::depth_below;
use pkgtool_base::package::{Config, DeclaredTensor};
use pkgtool_model::{Dim, ModelValue, TensorInfo};

/// Evidence for a preserved value.
pub(super) const EVIDENCE: &str = "kept from the replaced config";

/// The facts that were preserved for a file's tensors.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PreservedFacts {
    names: bool,
    dims: bool,
}

impl PreservedFacts {
    /// Returns whether the replaced config declared the dynamic dimensions.
    pub(super) fn has_dims(self) -> bool {
        self.dims
    }

    /// Names the preserved facts: `names of tensors`; `None` if nothing is preserved.
    pub(super) fn words(self) -> Option<&'static str> {
        match (self.names, self.dims) {
            (true, true) => Some("names of tensors and dynamic dimensions"),
            (true, false) => Some("names of tensors"),
            (false, true) => Some("dynamic dimensions"),
            (false, false) => None,
        }
    }
}

fn config(there: &ExistingConfig) -> Option<Config> {
    let ExistingConfig::Something(loaded) = there else {
        return None;
    };
    let document = loaded.document.as_ref().ok()?;
    Some(Config::from_document(document))
}

/// Returns the size in the replaced config.
pub(super) fn size(there: &ExistingConfig) -> Option<String> {
    let size = config(there)?.size?;
    (!is_placeholder(&size) && !size.is_empty() && names::token(&size) == size).then_some(size)
}

/// Returns the file under the field `key`, if it still exists.
pub(super) fn beside(home: &ModelDirectory, key: &str) -> Option<NeighbourFile> {
    let config = config(&home.there)?;
    let pointer = format!("/{key}");
    let mut files = config.tokenizer_files.into_iter();
    let file = files.find(|file| file.path.to_pointer() == pointer)?;
    let depth = depth_below(&home.absolute, &home.root);
    let path = resolve(&home.absolute, depth, &file.reference).ok()?;
    path.is_file().then_some(NeighbourFile {
        reference: file.reference,
        path,
        evidence: EVIDENCE,
    })
}

/// Copies names and dynamic dimensions into the methods of a file; `component` is its component in
/// the variant.
pub(super) fn tensors(
    there: &ExistingConfig,
    file: &InitModel,
    component: Option<&str>,
    methods: &mut Map<String, Json>,
) -> PreservedFacts {
    let mut kept = PreservedFacts::default();
    let Some(config) = config(there) else {
        return kept;
    };
    let mut variants = config.variants.iter();
    let variant = variants.find(|variant| variant.files.iter().any(|it| it.reference == file.name));
    let groups = variant.map(|variant| variant.methods_by_component());
    let Some(group) = groups.as_ref().and_then(|groups| groups.get(&component)) else {
        return kept;
    };
    for declared in &group.methods {
        let method = file.model().and_then(|info| info.method(&declared.name));
        let (Some(own), Some(method)) = (methods.get_mut(&declared.name), method) else {
            continue;
        };
        for (side, specs, values) in [
            ("inputs", &declared.inputs, &method.inputs),
            ("outputs", &declared.outputs, &method.outputs),
        ] {
            if let (Some(tensors), Some(specs)) = (own[side].as_array_mut(), specs) {
                keep_all(tensors, specs, values, &mut kept);
            }
        }
    }
    kept
}

fn keep_all(
    tensors: &mut [Json],
    specs: &[DeclaredTensor],
    values: &[ModelValue],
    kept: &mut PreservedFacts,
) {
    if tensors.len() != specs.len() {
        return;
    }
    let infos = values.iter().filter_map(ModelValue::tensor);
    for ((tensor, spec), info) in tensors.iter_mut().zip(specs).zip(infos) {
        kept.dims |= keep_dims(tensor, spec, info);
        let Some(name) = spec.name.as_ref().filter(|name| !name.is_empty()) else {
            continue;
        };
        let mut named = json!({ "name": name });
        for key in ["shape", "dtype"] {
            named[key] = tensor[key].take();
        }
        *tensor = named;
        kept.names = true;
    }
}

/// Copies the author's shape of a bounded tensor if the header does not record which dimension is
/// dynamic and the shape fits.
fn keep_dims(tensor: &mut Json, spec: &DeclaredTensor, info: &TensorInfo) -> bool {
    let (Some(shape), Some(dims)) = (&spec.shape, &info.dims) else {
        return false;
    };
    let fits = |size: i64, dim: &Dim| match dim {
        Dim::Maybe { bound, .. } => size == -1 || u64::try_from(size) == Ok(*bound),
        other => size == other.config_size(),
    };
    let all_fit = shape.len() == dims.len()
        && shape.iter().zip(dims).all(|(size, dim)| fits(*size, dim))
        && shape.contains(&-1);
    let is_open = dims.iter().any(|dim| matches!(dim, Dim::Maybe { .. }));
    if all_fit && is_open {
        tensor["shape"] = json!(shape);
    }
    all_fit && is_open
}
