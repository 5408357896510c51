//! Names of tensors that an author gave in a config that is replaced.
//!
//! A name is kept where the same file has a method of that name with as many tensors on that side; whether it
//! still fits is validation's to say.

use serde_json::{Map, Value as Json, json};

use super::home::There;
use crate::package::{Config, TensorSpec};

/// Puts the names into the methods of a file, which is `component` of its variant; says whether there were any.
pub(super) fn names(
    there: &There,
    file: &str,
    component: Option<&str>,
    methods: &mut Map<String, Json>,
) -> bool {
    let There::Something(loaded) = there else {
        return false;
    };
    let Ok(document) = &loaded.document else {
        return false;
    };
    let config = Config::from_document(document);
    let mut variants = config.variants.iter();
    let variant = variants.find(|variant| variant.files.iter().any(|it| it.reference == file));
    let groups = variant.map(|variant| variant.methods_by_component());
    let Some(group) = groups.as_ref().and_then(|groups| groups.get(&component)) else {
        return false;
    };
    let mut kept = false;
    for declared in &group.methods {
        let Some(own) = methods.get_mut(&declared.name) else {
            continue;
        };
        for (side, specs) in [("inputs", &declared.inputs), ("outputs", &declared.outputs)] {
            if let (Some(tensors), Some(specs)) = (own[side].as_array_mut(), specs) {
                kept |= name_all(tensors, specs);
            }
        }
    }
    kept
}

fn name_all(tensors: &mut [Json], specs: &[TensorSpec]) -> bool {
    if tensors.len() != specs.len() {
        return false;
    }
    let mut kept = false;
    for (tensor, spec) in tensors.iter_mut().zip(specs) {
        let Some(name) = spec.name.as_ref().filter(|name| !name.is_empty()) else {
            continue;
        };
        let mut named = json!({ "name": name });
        for key in ["shape", "dtype"] {
            named[key] = tensor[key].take();
        }
        *tensor = named;
        kept = true;
    }
    kept
}
