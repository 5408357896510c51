//! Signatures (`SignatureDef`): names for a subgraph and for its inputs and outputs.

use std::collections::{BTreeMap, BTreeSet};

use super::schema::{map, model, signature};
use super::subgraph::Subgraph;

use crate::executorch::flatbuffer::{Field, Table};
use crate::{FormatError, Method, ModelValue};

/// Returns all signatures of a model as methods. Inputs and outputs have the subgraph's order and
/// the signature's names.
pub(super) fn read(
    root: &Table<'_>,
    subgraphs: &[Subgraph<'_>],
) -> Result<Vec<Method>, FormatError> {
    let mut methods = Vec::new();
    let mut names = BTreeSet::new();
    for found in root.tables(model::SIGNATURES)?.iter_tables() {
        let found = found?;
        let at = u64::from(found.u32(signature::SUBGRAPH)?);
        let subgraph = usize::try_from(at).ok().and_then(|at| subgraphs.get(at));
        let subgraph = subgraph.ok_or_else(|| {
            found
                .place(signature::SUBGRAPH)
                .index("subgraphs", subgraphs.len(), at)
        })?;
        let name = found.name(signature::KEY)?.unwrap_or_default();
        if !names.insert(name.clone()) {
            return Err(found.place(signature::KEY).duplicate_method(&name));
        }
        methods.push(Method {
            inputs: values(&found, signature::INPUTS, subgraph, &subgraph.inputs)?,
            outputs: values(&found, signature::OUTPUTS, subgraph, &subgraph.outputs)?,
            operators: subgraph.operators.clone(),
            name,
            ..Method::default()
        });
    }
    Ok(methods)
}

fn values(
    found: &Table<'_>,
    field: Field,
    subgraph: &Subgraph<'_>,
    indices: &[u64],
) -> Result<Vec<ModelValue>, FormatError> {
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    for entry in found.tables(field)?.iter_tables() {
        let entry = entry?;
        let at = u64::from(entry.u32(map::TENSOR)?);
        if at >= subgraph.count() {
            return Err(entry
                .place(map::TENSOR)
                .index("tensors", subgraph.count(), at));
        }
        if let Some(name) = entry.name(map::NAME)? {
            names.insert(at, name);
        }
    }
    let values = indices.iter().map(|index| {
        let name = names.get(index).map(String::as_str);
        subgraph.value(*index, name)
    });
    values.collect()
}
