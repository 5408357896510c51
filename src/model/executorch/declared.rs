//! What a program's constant methods declare of its dynamic dimensions.
//!
//! Two conventions of publishers: `get_model_schema` returns a JSON text (method → inputs and
//! outputs → per tensor dimension `constant`, `range` or `enum`); the older `get_dynamic_dims`
//! returns an int64 tensor with a row (min, max, step) for each dimension of the inputs of
//! `forward`. A declaration that contradicts the program is ignored, dimension by dimension.

use serde_json::Value as Json;

use super::evidence::Certain;
use super::plan::Plan;
use crate::model::{Allowed, Method, ValueKind};

/// Inputs or outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// A method's inputs.
    Inputs,
    /// A method's outputs.
    Outputs,
}

/// The declarations of one program.
#[derive(Debug, Default)]
pub(super) struct Declared {
    schema: Option<Json>,
    /// (min, max, step) of each input dimension of `forward`, concatenated.
    ranges: Option<Vec<[i64; 3]>>,
}

/// A tensor as declarations count it: the n-th of its side, tensors only.
#[derive(Debug, Clone, Copy)]
pub(super) struct Position<'a> {
    /// The method's name.
    pub(super) method: &'a str,
    /// Inputs or outputs.
    pub(super) side: Side,
    /// Its number among the tensors of the side.
    pub(super) tensor: usize,
    /// Ranks of all tensors of the side.
    pub(super) ranks: &'a [usize],
}

impl Declared {
    /// The declarations among the methods of a program.
    pub(super) fn find(plans: &[Plan]) -> Self {
        let output = |name: &str| {
            plans
                .iter()
                .map(|plan| &plan.method)
                .find(|method| method.constant && method.name == name)
                .and_then(only_output)
        };
        let schema = match output("get_model_schema") {
            Some(ValueKind::String(text)) => serde_json::from_str(text).ok(),
            _ => None,
        };
        Self {
            schema,
            ranges: output("get_dynamic_dims").and_then(read_ranges),
        }
    }

    /// What is declared of the dimensions of a tensor with these bounds.
    pub(super) fn of(&self, position: Position<'_>, bounds: &[u64]) -> Vec<Option<Certain>> {
        self.of_schema(position, bounds)
            .or_else(|| self.of_ranges(position, bounds))
            .unwrap_or_else(|| vec![None; bounds.len()])
    }

    /// The sizes that are declared for the dimensions of a tensor with these bounds.
    pub(super) fn allowed(&self, position: Position<'_>, bounds: &[u64]) -> Vec<Option<Allowed>> {
        if let Some(shape) = self.shape(position, bounds.len()) {
            let dims = shape.iter().zip(bounds);
            return dims.map(|(dim, &bound)| allowed_dim(dim, bound)).collect();
        }
        let Some(ranges) = self.ranges(position, bounds.len()) else {
            return vec![None; bounds.len()];
        };
        let dims = ranges.iter().zip(bounds);
        dims.map(|(&[min, max, step], &bound)| Allowed::range(min, max, step, bound))
            .collect()
    }

    /// What is declared of sizes that follow from one another, as the schema writes it.
    pub(super) fn constraints(&self, method: &str) -> &[Json] {
        let schema = self.schema.as_ref().and_then(|schema| schema.get(method));
        let list = schema.and_then(|method| method.get("runtimeConstraints"));
        list.and_then(Json::as_array).map_or(&[], Vec::as_slice)
    }

    fn of_schema(&self, position: Position<'_>, bounds: &[u64]) -> Option<Vec<Option<Certain>>> {
        let shape = self.shape(position, bounds.len())?;
        let dims = shape.iter().zip(bounds);
        Some(dims.map(|(dim, &bound)| judge_dim(dim, bound)).collect())
    }

    /// The dimensions of a tensor in the model schema, if they are as many.
    fn shape(&self, position: Position<'_>, rank: usize) -> Option<&[Json]> {
        let side = match position.side {
            Side::Inputs => "inputs",
            Side::Outputs => "outputs",
        };
        let parameters = self.schema.as_ref()?.get(position.method)?.get(side)?;
        let mut tensors = parameters
            .as_array()?
            .iter()
            .filter(|parameter| parameter.get("kind").and_then(Json::as_str) == Some("Tensor"));
        let shape = tensors.nth(position.tensor)?.get("shape")?.as_array()?;
        (shape.len() == rank).then_some(shape)
    }

    fn of_ranges(&self, position: Position<'_>, bounds: &[u64]) -> Option<Vec<Option<Certain>>> {
        let ranges = self.ranges(position, bounds.len())?;
        let dims = ranges.iter().zip(bounds);
        Some(
            dims.map(|(&[min, max, _], &bound)| judge_range(min, max, bound))
                .collect(),
        )
    }

    /// The rows of the dimensions of a tensor.
    fn ranges(&self, position: Position<'_>, rank: usize) -> Option<&[[i64; 3]]> {
        let ranges = self.ranges.as_ref()?;
        let declared = position.method == "forward"
            && position.side == Side::Inputs
            && position.ranks.iter().sum::<usize>() == ranges.len();
        if !declared {
            return None;
        }
        let first: usize = position.ranks[..position.tensor].iter().sum();
        ranges.get(first..first + rank)
    }
}

fn only_output(method: &Method) -> Option<&ValueKind> {
    match method.outputs.as_slice() {
        [value] => Some(&value.kind),
        _ => None,
    }
}

fn read_ranges(value: &ValueKind) -> Option<Vec<[i64; 3]>> {
    let ValueKind::Tensor {
        info,
        data: Some(data),
    } = value
    else {
        return None;
    };
    if info.element.name() != "int64" || info.config_shape()?.get(1..)? != [3] {
        return None;
    }
    data.chunks_exact(3)
        .map(|row| Some([row[0].as_i64()?, row[1].as_i64()?, row[2].as_i64()?]))
        .collect()
}

/// A dimension of a model schema.
fn judge_dim(dim: &Json, bound: u64) -> Option<Certain> {
    match dim.get("kind")?.as_str()? {
        "constant" => {
            let value = dim.get("value")?.as_i64()?;
            judge_range(value, value, bound)
        }
        "range" => {
            let range = dim.get("range")?;
            let end = |name| range.get(name).and_then(Json::as_i64);
            judge_range(end("min")?, end("max")?, bound)
        }
        "enum" => {
            let choices = dim.get("choices")?.as_array()?;
            let sizes: Option<Vec<i64>> = choices.iter().map(Json::as_i64).collect();
            let sizes = sizes?;
            judge_range(*sizes.iter().min()?, *sizes.iter().max()?, bound)
        }
        _ => None,
    }
}

/// The sizes that a dimension of a model schema may have.
fn allowed_dim(dim: &Json, bound: u64) -> Option<Allowed> {
    match dim.get("kind")?.as_str()? {
        "range" => {
            let range = dim.get("range")?;
            let number = |name| range.get(name).and_then(Json::as_i64);
            let step = number("step").unwrap_or(1);
            Allowed::range(number("min")?, number("max")?, step, bound)
        }
        "enum" => {
            let choices = dim.get("choices")?.as_array()?;
            let sizes: Vec<i64> = choices.iter().filter_map(Json::as_i64).collect();
            Allowed::choices(&sizes, bound)
        }
        _ => None,
    }
}

/// A range of one size is that size, and it has to be the program's.
fn judge_range(min: i64, max: i64, bound: u64) -> Option<Certain> {
    if min < max {
        return Some(Certain::Dynamic);
    }
    (min == max && u64::try_from(max) == Ok(bound)).then_some(Certain::Fixed)
}
