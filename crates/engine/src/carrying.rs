//! Carried state: outputs of a method that become inputs of its next run, such as a KV cache, and
//! outputs of which only the last position is returned.
//!
//! [`Carrying`] describes this by positions in a method's signature. [`Carrying::check`] compares
//! it with the signature before a model is loaded. Knows no engine.

use serde::{Deserialize, Serialize};

use crate::tensor::{Signature, TensorSpec, byte_size};
use pkgtool_model::Dim;

/// The inputs and outputs that stay in a session. Callers neither give nor receive those of
/// [`Carrying::states`]. The other inputs and outputs keep their order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carrying {
    /// Outputs that are inputs of the next run.
    pub states: Vec<CarriedTensor>,
    /// Outputs of which only the last position along an axis is returned.
    pub last: Vec<TensorAxis>,
    /// The input whose size along an axis is the number of positions that a run adds to the states.
    pub added: Option<TensorAxis>,
    /// The mask input: it marks, for each row, the positions that count. Its shape is [rows, kept +
    /// added positions].
    #[serde(default)]
    pub mask: Option<usize>,
    /// Maximum number of positions of the states, if known.
    pub most: Option<u64>,
}

/// An output that is an input of the next run. If it is empty and has no positions, the input stays as it was: a run
/// with a cache does not compute the part that comes from an encoder again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedTensor {
    /// The position of the input in the signature.
    pub input: usize,
    /// The position of the output in the signature.
    pub output: usize,
    /// The axis of both along which positions lie. `None` for state without positions, such as that
    /// of a recurrent operator; such state cannot be cut.
    pub axis: Option<usize>,
    /// The initial shape. Its elements are zeros.
    pub begin: Vec<u64>,
}

impl CarriedTensor {
    /// Returns whether a run left this state as it was, by an output that is empty.
    pub(crate) fn is_left_out(&self, is_empty: bool) -> bool {
        self.axis.is_none() && is_empty
    }
}

/// An axis of an input or output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorAxis {
    /// The position of the input or output in the signature.
    pub place: usize,
    /// The axis.
    pub axis: usize,
}

/// The part of a session's kept state from which a run starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunStart {
    /// The initial state, as in the first run: all kept state is forgotten.
    Anew,
    /// The state that the previous run left.
    AsLeft,
    /// This many leading positions of the state that the previous run left. Requires state with
    /// positions.
    Cut(u64),
    /// A lane for each row of the run. Requires carried state, all of it with positions.
    Lanes(Lanes),
}

/// Separate states that a session keeps, such as conversations: each row of a run continues its own
/// lane. Runs without lanes use lane 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lanes {
    /// The lane of each row; each lane occurs once.
    pub rows: Vec<StateRow>,
    /// Forget all kept state first.
    pub anew: bool,
    /// Lanes to forget; no later run names them.
    pub gone: Vec<u32>,
}

/// A row of a run, and the state that it continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateRow {
    /// The lane.
    pub lane: u32,
    /// The number of leading positions of the lane that count; 0 starts from the initial state.
    pub held: u64,
}

impl Carrying {
    /// Returns `true` if nothing stays in the session.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty() && self.last.is_empty()
    }

    /// Returns `true` if the state can be cut to any number of positions.
    pub fn can_be_cut(&self) -> bool {
        self.states.iter().all(|state| state.axis.is_some())
    }

    /// The positions of the inputs that callers give, in the signature's order.
    pub fn given(&self, signature: &Signature) -> Vec<usize> {
        let carried = |place: &usize| self.states.iter().any(|state| state.input == *place);
        let places = 0..signature.inputs.len();
        places.filter(|place| !carried(place)).collect()
    }

    /// The positions of the outputs that callers receive, in the signature's order.
    pub fn taken(&self, signature: &Signature) -> Vec<usize> {
        let carried = |place: &usize| self.states.iter().any(|state| state.output == *place);
        let places = 0..signature.outputs.len();
        places.filter(|place| !carried(place)).collect()
    }

    /// Returns the signature that callers see: without the carried inputs and outputs.
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

    /// Fails if it does not fit the signature; the error names the place.
    pub fn check(&self, signature: &Signature) -> Result<(), String> {
        for (index, state) in self.states.iter().enumerate() {
            let before = &self.states[..index];
            let input = named(&signature.inputs, state.input, "input")?;
            let output = named(&signature.outputs, state.output, "output")?;
            let again =
                |one: &CarriedTensor| one.input == state.input || one.output == state.output;
            if before.iter().any(again) {
                return Err(format!("`{}` is carried twice", input.name));
            }
            if input.dtype != output.dtype {
                return Err(format!(
                    "output `{}` is {}, but input `{}`, which it feeds, is {}",
                    output.name, output.dtype, input.name, input.dtype
                ));
            }
            check_initial_shape(input, state)?;
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
    specs.get(place).ok_or_else(|| {
        format!(
            "{side} {place} does not exist: the method has {}",
            specs.len()
        )
    })
}

fn has_axis(spec: &TensorSpec, axis: usize) -> Result<(), String> {
    match &spec.dims {
        Some(dims) if axis >= dims.len() => {
            Err(format!("`{}` is {spec} and has no axis {axis}", spec.name))
        }
        _ => Ok(()),
    }
}

fn check_initial_shape(input: &TensorSpec, state: &CarriedTensor) -> Result<(), String> {
    state.axis.map_or(Ok(()), |axis| has_axis(input, axis))?;
    let begin = &state.begin;
    let wrong = || {
        let name = &input.name;
        Err(format!(
            "`{name}` is {input}: the initial shape {begin:?} does not fit"
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
            Err(_) => Dim::ANY,
        };
        TensorSpec {
            name: name.to_owned(),
            dtype,
            dims: Some(dims.iter().map(dim).collect()),
            fixed: None,
            pixels: None,
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
            states: vec![CarriedTensor {
                input: 1,
                output: 0,
                axis: Some(2),
                begin,
            }],
            last: vec![TensorAxis { place: 1, axis: 1 }],
            ..Carrying::default()
        }
    }

    #[test]
    fn carried_tensors_are_hidden_from_callers() {
        let carrying = carried(vec![1, 2, 0, 4]);
        carrying.check(&signature()).expect("it fits");
        let visible = carrying.visible(&signature());
        assert_eq!(visible.inputs[0].name, "tokens");
        assert_eq!(visible.outputs[0].name, "logits");
        assert_eq!((visible.inputs.len(), visible.outputs.len()), (1, 1));
    }

    #[test]
    fn mismatches_are_reported() {
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
        assert_eq!(error, "input 7 does not exist: the method has 2");
    }
}
