//! What of a method's inputs and outputs stays with its session: outputs that are the inputs of the next
//! run, such as a cache of keys and values, and positions of outputs that nobody wants.
//!
//! Invariant: knows places and sizes, no engine. What is named here is held against the signature before
//! a model is loaded with it.

use serde::{Deserialize, Serialize};

use crate::model::Dim;
use crate::tensor::{Signature, TensorSpec, byte_size};

/// What stays with a session. Inputs and outputs of [`Carrying::states`] are neither given nor taken: the
/// others keep their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carrying {
    /// Outputs that are inputs of the next run.
    pub states: Vec<Carried>,
    /// Outputs of which only the last position along an axis is given.
    pub last: Vec<Along>,
    /// The input whose size along an axis is the number of positions that a run adds to the states.
    pub added: Option<Along>,
    /// The input that tells, for each row, which positions count, [rows, held and added].
    #[serde(default)]
    pub mask: Option<usize>,
    /// Most positions that the states may come to have, where that is known.
    pub most: Option<u64>,
}

/// An output that is an input of the next run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// The input's place in the signature.
    pub input: usize,
    /// The output's place.
    pub output: usize,
    /// The axis of both along which positions are; none where it has no positions, as what a recurrence
    /// keeps. Then it cannot be cut.
    pub axis: Option<usize>,
    /// The shape that it begins with. Its elements are zeros then, if it has any.
    pub begin: Vec<u64>,
}

/// An axis of an input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Along {
    /// The place of the input or output in the signature.
    pub place: usize,
    /// The axis.
    pub axis: usize,
}

/// What a run begins with, of what its session keeps from run to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Begins {
    /// Nothing, as the first run did: all that was kept is forgotten.
    Anew,
    /// What the run before has left.
    AsLeft,
    /// The first so many positions of what the run before has left, where positions are told apart.
    Cut(u64),
    /// A lane for each row of the run. Only where something is carried, and all of it has positions.
    Lanes(Lanes),
}

/// What a session keeps apart for several, such as conversations: each row of a run goes on in its lane.
/// Runs that name no lanes are those of lane 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lanes {
    /// The lane of each row; each is there once.
    pub rows: Vec<Row>,
    /// Whether all that was kept is forgotten before.
    pub anew: bool,
    /// Lanes that are forgotten: no run will name them again.
    pub gone: Vec<u32>,
}

/// What a row goes on with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// The lane.
    pub lane: u32,
    /// So many positions of it count, from the first; with none it begins anew.
    pub held: u64,
}

impl Carrying {
    /// Whether nothing stays.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty() && self.last.is_empty()
    }

    /// Whether it can be cut to any number of positions.
    pub fn can_be_cut(&self) -> bool {
        self.states.iter().all(|state| state.axis.is_some())
    }

    /// The places of inputs that are given, in the signature's order.
    pub fn given(&self, signature: &Signature) -> Vec<usize> {
        let carried = |place: &usize| self.states.iter().any(|state| state.input == *place);
        let places = 0..signature.inputs.len();
        places.filter(|place| !carried(place)).collect()
    }

    /// The places of outputs that are taken, in the signature's order.
    pub fn taken(&self, signature: &Signature) -> Vec<usize> {
        let carried = |place: &usize| self.states.iter().any(|state| state.output == *place);
        let places = 0..signature.outputs.len();
        places.filter(|place| !carried(place)).collect()
    }

    /// What is given and taken of a method: its signature without what stays.
    pub fn visible(&self, signature: &Signature) -> Signature {
        let inputs = self.given(signature).into_iter();
        let outputs = self.taken(signature).into_iter();
        Signature {
            method: signature.method.clone(),
            inputs: inputs
                .map(|place| signature.inputs[place].clone())
                .collect(),
            outputs: outputs
                .map(|place| signature.outputs[place].clone())
                .collect(),
        }
    }

    /// Fails if it does not fit the signature, and says where.
    pub fn check(&self, signature: &Signature) -> Result<(), String> {
        for (index, state) in self.states.iter().enumerate() {
            let before = &self.states[..index];
            let input = named(&signature.inputs, state.input, "input")?;
            let output = named(&signature.outputs, state.output, "output")?;
            let again = |one: &Carried| one.input == state.input || one.output == state.output;
            if before.iter().any(again) {
                return Err(format!("`{}` is carried twice", input.name));
            }
            if input.dtype != output.dtype {
                return Err(format!(
                    "output `{}` is {}, and input `{}`, which it is carried into, {}",
                    output.name, output.dtype, input.name, input.dtype
                ));
            }
            fits(input, state)?;
            byte_size(input.dtype, &state.begin).map_err(|error| error.to_string())?;
        }
        for last in &self.last {
            let output = named(&signature.outputs, last.place, "output")?;
            has_axis(output, last.axis)?;
        }
        if let Some(added) = &self.added {
            has_axis(named(&signature.inputs, added.place, "input")?, added.axis)?;
        }
        if let Some(mask) = self.mask {
            has_axis(named(&signature.inputs, mask, "input")?, 1)?;
        }
        Ok(())
    }
}

fn named<'a>(specs: &'a [TensorSpec], place: usize, side: &str) -> Result<&'a TensorSpec, String> {
    specs
        .get(place)
        .ok_or_else(|| format!("it has no {side} {place}: there are {}", specs.len()))
}

fn has_axis(spec: &TensorSpec, axis: usize) -> Result<(), String> {
    match &spec.dims {
        Some(dims) if axis >= dims.len() => {
            Err(format!("`{}` is {spec} and has no axis {axis}", spec.name))
        }
        _ => Ok(()),
    }
}

fn fits(input: &TensorSpec, state: &Carried) -> Result<(), String> {
    state.axis.map_or(Ok(()), |axis| has_axis(input, axis))?;
    let begin = &state.begin;
    let wrong = || {
        let name = &input.name;
        Err(format!(
            "`{name}` is {input}, and cannot begin as {begin:?}"
        ))
    };
    if state.axis.is_some_and(|axis| axis >= begin.len()) {
        return wrong();
    }
    let Some(dims) = &input.dims else {
        return Ok(());
    };
    let fits = |(dim, size): (&Dim, &u64)| match dim {
        Dim::Fixed(fixed) => fixed == size,
        Dim::Maybe { bound, .. } => size <= bound,
        Dim::Dynamic { bound, .. } => bound.is_none_or(|bound| *size <= bound),
    };
    if dims.len() != begin.len() || !dims.iter().zip(begin).all(fits) {
        return wrong();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::DType;

    fn spec(name: &str, dtype: DType, dims: &[i64]) -> TensorSpec {
        let dim = |size: &i64| match u64::try_from(*size) {
            Ok(size) => Dim::Fixed(size),
            Err(_) => Dim::Dynamic {
                bound: None,
                name: None,
                allowed: None,
            },
        };
        TensorSpec {
            name: name.to_owned(),
            dtype,
            dims: Some(dims.iter().map(dim).collect()),
            fixed: None,
        }
    }

    fn signature() -> Signature {
        Signature {
            method: "forward".to_owned(),
            inputs: vec![
                spec("tokens", DType::Int64, &[1, -1]),
                spec("past", DType::Float32, &[1, 2, -1, 4]),
            ],
            outputs: vec![
                spec("present", DType::Float32, &[1, 2, -1, 4]),
                spec("logits", DType::Float32, &[1, -1, 9]),
            ],
        }
    }

    fn carried(begin: Vec<u64>) -> Carrying {
        Carrying {
            states: vec![Carried {
                input: 1,
                output: 0,
                axis: Some(2),
                begin,
            }],
            last: vec![Along { place: 1, axis: 1 }],
            ..Carrying::default()
        }
    }

    #[test]
    fn what_is_carried_is_neither_given_nor_taken() {
        let carrying = carried(vec![1, 2, 0, 4]);
        carrying.check(&signature()).expect("it fits");
        let visible = carrying.visible(&signature());
        assert_eq!(visible.inputs[0].name, "tokens");
        assert_eq!(visible.outputs[0].name, "logits");
        assert_eq!((visible.inputs.len(), visible.outputs.len()), (1, 1));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let error = carried(vec![1, 3, 0, 4]).check(&signature());
        let error = error.expect_err("three heads are not two");
        assert!(
            error.starts_with("`past` is float32[1, 2, -1, 4]"),
            "{error}"
        );
        let mut twice = carried(vec![1, 2, 0, 4]);
        twice.states.push(twice.states[0].clone());
        let error = twice.check(&signature()).expect_err("it is there twice");
        assert_eq!(error, "`past` is carried twice");
        let mut wrong = carried(vec![1, 2, 0, 4]);
        wrong.last[0].axis = 3;
        assert!(wrong.check(&signature()).is_err());
        let mut wrong = carried(vec![1, 2, 0, 4]);
        wrong.states[0].input = 0;
        let error = wrong.check(&signature()).expect_err("another dtype");
        assert!(error.contains("int64"), "{error}");
        wrong.states[0].input = 7;
        let error = wrong.check(&signature()).expect_err("no such input");
        assert_eq!(error, "it has no input 7: there are 2");
    }
}
