//! Subgraphs: their tensors, inputs, outputs and operator counts.

use std::collections::BTreeMap;

use super::element::element_of;
use super::schema::{operator, subgraph, tensor};

use crate::executorch::flatbuffer::{Field, Table, Vector};
use crate::{Dim, Dynamism, ElementType, FormatError, ModelValue, TensorInfo, ValueKind};

/// Maximum number of dimensions of a tensor.
pub(super) const MAX_RANK: u64 = 64;
/// Approximate memory per tensor or operator name, in bytes.
pub(super) const TENSOR_COST: u64 = 96;

/// A tensor of a subgraph.
struct SubgraphTensor {
    name: Option<String>,
    info: TensorInfo,
}

/// A subgraph.
pub(super) struct Subgraph<'a> {
    tensors: Vector<'a>,
    pub(super) inputs: Vec<u64>,
    pub(super) outputs: Vec<u64>,
    pub(super) operators: BTreeMap<String, u64>,
}

impl<'a> Subgraph<'a> {
    /// Reads a subgraph; `operators` are the model's operator names by index.
    pub(super) fn read(table: &Table<'a>, operators: &[String]) -> Result<Self, FormatError> {
        let tensors = table.tables(subgraph::TENSORS)?;
        let count = tensors.len();
        let mut called: BTreeMap<String, u64> = BTreeMap::new();
        for found in table.tables(subgraph::OPERATORS)?.iter_tables() {
            let found = found?;
            let at = u64::from(found.u32(operator::OPCODE)?);
            let name = usize::try_from(at).ok().and_then(|at| operators.get(at));
            let name = name.ok_or_else(|| {
                found
                    .place(operator::OPCODE)
                    .index("operator codes", operators.len(), at)
            })?;
            for field in [operator::INPUTS, operator::OUTPUTS] {
                each_index(&found, field, count, true, |_| {})?;
            }
            if let Some(known) = called.get_mut(name) {
                *known += 1;
            } else {
                table.buffer().keep(TENSOR_COST, || table.here())?;
                called.insert(name.clone(), 1);
            }
        }
        let indices = |field| -> Result<Vec<u64>, FormatError> {
            table.vector(field, 4)?.keep(TENSOR_COST)?;
            let mut indices = Vec::new();
            each_index(table, field, count, false, |index| indices.push(index))?;
            Ok(indices)
        };
        Ok(Self {
            inputs: indices(subgraph::INPUTS)?,
            outputs: indices(subgraph::OUTPUTS)?,
            operators: called,
            tensors,
        })
    }

    /// Returns the number of tensors.
    pub(super) fn count(&self) -> u64 {
        self.tensors.len()
    }

    /// Returns the tensor at an index that was checked before.
    fn tensor(&self, index: u64) -> Result<SubgraphTensor, FormatError> {
        let table = self.tensors.table(index)?;
        table.buffer().keep(TENSOR_COST, || table.here())?;
        let dims = dims(&table)?;
        let name = table.name(tensor::NAME)?.filter(|name| !name.is_empty());
        Ok(SubgraphTensor {
            name,
            info: TensorInfo {
                element: element_of(table.i8(tensor::TYPE)?).0,
                dynamism: dynamism(dims.as_deref()),
                dims,
            },
        })
    }

    /// Returns an input or output, under the name that a signature gives it or its own name.
    pub(super) fn value(&self, index: u64, name: Option<&str>) -> Result<ModelValue, FormatError> {
        let SubgraphTensor { name: own, info } = self.tensor(index)?;
        let kind = match &info.element {
            ElementType::Other(other) if matches!(other.as_str(), "resource" | "variant") => {
                ValueKind::Other(other.clone())
            }
            _ => ValueKind::Tensor { info, data: None },
        };
        Ok(ModelValue {
            name: name.map(str::to_owned).or(own),
            kind,
        })
    }
}

/// Visits tensor indices; -1 marks an omitted tensor where the schema allows it.
fn each_index(
    table: &Table<'_>,
    field: Field,
    count: u64,
    optional: bool,
    mut visit: impl FnMut(u64),
) -> Result<(), FormatError> {
    let indices = table.vector(field, 4)?;
    for at in 0..indices.len() {
        let found = indices.i32(at)?;
        if found == -1 && optional {
            continue;
        }
        let index = u64::try_from(found).ok().filter(|index| *index < count);
        visit(index.ok_or_else(|| indices.place(at).index("tensors", count, found))?);
    }
    Ok(())
}

/// Reads the dimensions. `shape` has a size for each dimension, `shape_signature` has -1 for
/// dynamic dimensions.
fn dims(table: &Table<'_>) -> Result<Option<Vec<Dim>>, FormatError> {
    let sizes = table.vector(tensor::SHAPE, 4)?;
    let signature = table.vector(tensor::SIGNATURE, 4)?;
    if sizes.len() > MAX_RANK {
        return Err(sizes.here().rank(MAX_RANK, sizes.len()));
    }
    if !signature.is_empty() && signature.len() != sizes.len() {
        return Err(table.place(tensor::SIGNATURE).expected(
            format_args!("as many sizes as `shape` has, {}", sizes.len()),
            signature.len(),
        ));
    }
    // Older writers stored an empty shape both for scalars and for tensors of unknown rank.
    if sizes.is_empty() && table.u8(tensor::HAS_RANK)? == 0 {
        return Ok(None);
    }
    sizes.keep(64)?;
    let varies = Dim::ANY;
    let mut dims = Vec::new();
    for at in 0..sizes.len() {
        let found = sizes.i32(at)?;
        if !signature.is_empty() && signature.i32(at)? == -1 {
            dims.push(varies.clone());
            continue;
        }
        match u64::try_from(found) {
            Ok(size) => dims.push(Dim::Fixed(size)),
            Err(_) if found == -1 => dims.push(varies.clone()),
            Err(_) => {
                return Err(sizes.place(at).negative_size(found));
            }
        }
    }
    Ok(Some(dims))
}

fn dynamism(dims: Option<&[Dim]>) -> Dynamism {
    let is_fixed = |dim: &Dim| matches!(dim, Dim::Fixed(_));
    match dims {
        None => Dynamism::Unbounded,
        Some(dims) if dims.iter().all(is_fixed) => Dynamism::Static,
        Some(_) => Dynamism::Symbolic,
    }
}
