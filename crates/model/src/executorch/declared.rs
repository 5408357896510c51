//! Reads declarations of dynamic dimensions from a program's constant methods.
//!
//! Publishers use two conventions. `get_model_schema` returns a JSON text: method → inputs and
//! outputs → per tensor dimension `constant`, `range` or `enum`. The older `get_dynamic_dims`
//! returns an int64 tensor with a row (min, max, step) for each dimension of the inputs of
//! `forward`. A declaration that contradicts the program is ignored, dimension by dimension.

use serde_json::Value as Json;

use super::evidence::DimFact;
use super::plan::MethodPlan;
use crate::{Allowed, Method, ValueKind};

/// Inputs or outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DeclaredSide {
    /// A method's inputs.
    Inputs,
    /// A method's outputs.
    Outputs,
}

/// The declarations of one program.
#[derive(Debug, Default)]
pub(super) struct Declarations {
    schema: Option<Json>,
    /// (min, max, step) of each input dimension of `forward`, concatenated over the inputs.
    ranges: Option<Vec<[i64; 3]>>,
}

/// The position of a tensor in declarations, which count the tensors of a side only.
#[derive(Debug, Clone, Copy)]
pub(super) struct TensorPosition<'a> {
    /// The method's name.
    pub(super) method: &'a str,
    /// Inputs or outputs.
    pub(super) side: DeclaredSide,
    /// Its index among the tensors of the side.
    pub(super) tensor: usize,
    /// Ranks of all tensors of the side.
    pub(super) ranks: &'a [usize],
}

impl Declarations {
    /// Finds the declarations among the methods of a program.
    pub(super) fn find(plans: &[MethodPlan]) -> Self {
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

    /// Returns the declared dynamism of each dimension of a tensor with these bounds.
    pub(super) fn of(&self, position: TensorPosition<'_>, bounds: &[u64]) -> Vec<Option<DimFact>> {
        self.of_schema(position, bounds)
            .or_else(|| self.of_ranges(position, bounds))
            .unwrap_or_else(|| vec![None; bounds.len()])
    }

    /// Returns the declared sizes of each dimension of a tensor with these bounds.
    pub(super) fn allowed(
        &self,
        position: TensorPosition<'_>,
        bounds: &[u64],
    ) -> Vec<Option<Allowed>> {
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

    /// Returns the declared dependencies between sizes, as the schema writes them.
    pub(super) fn constraints(&self, method: &str) -> &[Json] {
        let schema = self.schema.as_ref().and_then(|schema| schema.get(method));
        let list = schema.and_then(|method| method.get("runtimeConstraints"));
        list.and_then(Json::as_array).map_or(&[], Vec::as_slice)
    }

    fn of_schema(
        &self,
        position: TensorPosition<'_>,
        bounds: &[u64],
    ) -> Option<Vec<Option<DimFact>>> {
        let shape = self.shape(position, bounds.len())?;
        let dims = shape.iter().zip(bounds);
        Some(dims.map(|(dim, &bound)| evaluate_dim(dim, bound)).collect())
    }

    /// Returns the dimensions of a tensor in the model schema, if their number matches.
    fn shape(&self, position: TensorPosition<'_>, rank: usize) -> Option<&[Json]> {
        let side = match position.side {
            DeclaredSide::Inputs => "inputs",
            DeclaredSide::Outputs => "outputs",
        };
        let parameters = self.schema.as_ref()?.get(position.method)?.get(side)?;
        let mut tensors = parameters
            .as_array()?
            .iter()
            .filter(|parameter| parameter.get("kind").and_then(Json::as_str) == Some("Tensor"));
        let shape = tensors.nth(position.tensor)?.get("shape")?.as_array()?;
        (shape.len() == rank).then_some(shape)
    }

    fn of_ranges(
        &self,
        position: TensorPosition<'_>,
        bounds: &[u64],
    ) -> Option<Vec<Option<DimFact>>> {
        let ranges = self.ranges(position, bounds.len())?;
        let dims = ranges.iter().zip(bounds);
        Some(
            dims.map(|(&[min, max, _], &bound)| evaluate_range(min, max, bound))
                .collect(),
        )
    }

    /// Returns the rows for the dimensions of a tensor.
    fn ranges(&self, position: TensorPosition<'_>, rank: usize) -> Option<&[[i64; 3]]> {
        let ranges = self.ranges.as_ref()?;
        let declared = position.method == "forward"
            && position.side == DeclaredSide::Inputs
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

/// Evaluates a dimension of a model schema.
fn evaluate_dim(dim: &Json, bound: u64) -> Option<DimFact> {
    match dim.get("kind")?.as_str()? {
        "constant" => {
            let value = dim.get("value")?.as_i64()?;
            evaluate_range(value, value, bound)
        }
        "range" => {
            let range = dim.get("range")?;
            let end = |name| range.get(name).and_then(Json::as_i64);
            evaluate_range(end("min")?, end("max")?, bound)
        }
        "enum" => {
            let choices = dim.get("choices")?.as_array()?;
            let sizes: Option<Vec<i64>> = choices.iter().map(Json::as_i64).collect();
            let sizes = sizes?;
            evaluate_range(*sizes.iter().min()?, *sizes.iter().max()?, bound)
        }
        _ => None,
    }
}

/// Returns the allowed sizes of a dimension of a model schema.
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

/// Evaluates a range. A range of a single size must equal the size in the program.
fn evaluate_range(min: i64, max: i64, bound: u64) -> Option<DimFact> {
    if min < max {
        return Some(DimFact::Dynamic);
    }
    (min == max && u64::try_from(max) == Ok(bound)).then_some(DimFact::Fixed)
}
