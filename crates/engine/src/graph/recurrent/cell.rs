//! One step of a recurrent cell: gates, activations and states of one row of a batch.
//!
//! Implements the standard's equations of `RNN`, `GRU` and `LSTM` with every attribute. It follows
//! ONNX Runtime for details that the standard leaves open (the operands of `clip`).

use tract_linalg::routines::Func;
use tract_onnx::prelude::{Datum, TractError, TractResult};
use tract_onnx::tract_hir::tract_num_traits::Float;

/// The type of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CellKind {
    Rnn,
    Gru,
    Lstm,
}

impl CellKind {
    /// Returns the number of gates; each has its own rows in W and R.
    pub(crate) fn gates(self) -> usize {
        match self {
            Self::Rnn => 1,
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }

    /// Returns the names of a direction's default activations.
    pub(crate) fn default_activations(self) -> &'static [&'static str] {
        match self {
            Self::Rnn => &["Tanh"],
            Self::Gru => &["Sigmoid", "Tanh"],
            Self::Lstm => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

/// The settings that all directions and steps share.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) kind: CellKind,
    /// Bound of the inputs of activations.
    pub(crate) clip: Option<f32>,
    /// The forget gate is one minus the input gate.
    pub(crate) input_forget: bool,
    /// The reset gate is applied after the product with R.
    pub(crate) linear_before_reset: bool,
    /// Bound of the memory of an `LSTM`.
    pub(crate) memory_clip: Option<f32>,
}

/// An activation function of a gate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum GateActivation {
    Sigmoid,
    Tanh,
    Relu,
    Softsign,
    Softplus,
    LeakyRelu(f32),
    ThresholdedRelu(f32),
    Elu(f32),
    Affine(f32, f32),
    ScaledTanh(f32, f32),
    HardSigmoid(f32, f32),
}

impl GateActivation {
    /// Returns the activation of this name, in any case. Activations with parameters take the next
    /// ones from the lists, as the standard specifies. Missing ones get the default of the ONNX
    /// operator of this name, if it exists.
    pub(crate) fn named(
        name: &str,
        alphas: &mut impl Iterator<Item = f32>,
        betas: &mut impl Iterator<Item = f32>,
    ) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "sigmoid" => Self::Sigmoid,
            "tanh" => Self::Tanh,
            "relu" => Self::Relu,
            "softsign" => Self::Softsign,
            "softplus" => Self::Softplus,
            "leakyrelu" => Self::LeakyRelu(alphas.next().unwrap_or(0.01)),
            "thresholdedrelu" => Self::ThresholdedRelu(alphas.next().unwrap_or(1.0)),
            "elu" => Self::Elu(alphas.next().unwrap_or(1.0)),
            "affine" => Self::Affine(alphas.next()?, betas.next()?),
            "scaledtanh" => Self::ScaledTanh(alphas.next()?, betas.next()?),
            "hardsigmoid" => {
                Self::HardSigmoid(alphas.next().unwrap_or(0.2), betas.next().unwrap_or(0.5))
            }
            _ => return None,
        })
    }
}

type NumberMap<T> = Box<dyn Fn(&mut [T]) -> TractResult<()>>;

/// An element type in which recurrences are computed.
pub(crate) trait RecurrentNumber: Datum + Float {
    /// Returns the fastest functions over slices: the logistic function and the hyperbolic tangent.
    fn maps() -> TractResult<[NumberMap<Self>; 2]>;

    /// Converts an attribute's value.
    fn of(value: f32) -> Self;

    /// Returns numbers of single precision as they are.
    fn single(values: &[Self]) -> Option<&[f32]>;

    /// Like [`single`](Self::single), to be written.
    fn single_mut(values: &mut [Self]) -> Option<&mut [f32]>;
}

impl RecurrentNumber for f32 {
    fn maps() -> TractResult<[NumberMap<Self>; 2]> {
        Ok([keeping_nan(Func::Sigmoid)?, keeping_nan(Func::Tanh)?])
    }

    fn of(value: f32) -> Self {
        value
    }

    fn single(values: &[Self]) -> Option<&[f32]> {
        Some(values)
    }

    fn single_mut(values: &mut [Self]) -> Option<&mut [f32]> {
        Some(values)
    }
}

/// Wraps a fast function so that it keeps NaN. The function itself clamps its input, which turns
/// NaN into a number.
fn keeping_nan(function: Func) -> TractResult<NumberMap<f32>> {
    let fast = function.ew_f32()?;
    Ok(Box::new(move |values| {
        // Without an early exit this takes a few instructions.
        if values.iter().fold(true, |all, value| all & !value.is_nan()) {
            return fast.run(values);
        }
        let are_nan: Vec<bool> = values.iter().map(|value| value.is_nan()).collect();
        fast.run(values)?;
        for (value, is_nan) in values.iter_mut().zip(are_nan) {
            if is_nan {
                *value = f32::NAN;
            }
        }
        Ok(())
    }))
}

impl RecurrentNumber for f64 {
    fn maps() -> TractResult<[NumberMap<Self>; 2]> {
        fn each(function: fn(f64) -> f64) -> NumberMap<f64> {
            Box::new(move |values| {
                for value in values {
                    *value = function(*value);
                }
                Ok(())
            })
        }
        Ok([each(|value| 1.0 / (1.0 + (-value).exp())), each(f64::tanh)])
    }

    fn of(value: f32) -> Self {
        f64::from(value)
    }

    fn single(_: &[Self]) -> Option<&[f32]> {
        None
    }

    fn single_mut(_: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
}

/// A direction's activations, ready to be applied.
pub(crate) struct GateFunctions<T> {
    maps: [NumberMap<T>; 2],
    activations: Vec<GateActivation>,
}

impl<T: RecurrentNumber> GateFunctions<T> {
    pub(crate) fn new(activations: &[GateActivation]) -> TractResult<Self> {
        Ok(Self {
            maps: T::maps()?,
            activations: activations.to_vec(),
        })
    }

    /// Applies the activation at this position.
    fn apply(&self, place: usize, values: &mut [T]) -> TractResult<()> {
        let one = T::one();
        let zero = T::zero();
        let each = |values: &mut [T], function: &dyn Fn(T) -> T| {
            for value in values {
                *value = function(*value);
            }
            Ok(())
        };
        let [sigmoid, tanh] = &self.maps;
        let activation = self.activations.get(place);
        match *activation.ok_or_else(|| TractError::msg("an activation is missing"))? {
            GateActivation::Sigmoid => sigmoid(values),
            GateActivation::Tanh => tanh(values),
            GateActivation::Relu => each(values, &|x| if x < zero { zero } else { x }),
            GateActivation::Softsign => each(values, &|x| x / (one + x.abs())),
            // Equals log(1 + exp(x)), which would overflow.
            GateActivation::Softplus => each(values, &|x| x.max(zero) + (-x.abs()).exp().ln_1p()),
            GateActivation::LeakyRelu(alpha) => {
                each(values, &|x| if x < zero { x * T::of(alpha) } else { x })
            }
            GateActivation::ThresholdedRelu(alpha) => {
                each(values, &|x| if x > T::of(alpha) { x } else { zero })
            }
            GateActivation::Elu(alpha) => each(values, &|x| {
                if x < zero {
                    T::of(alpha) * x.exp_m1()
                } else {
                    x
                }
            }),
            GateActivation::Affine(alpha, beta) => {
                each(values, &|x| x * T::of(alpha) + T::of(beta))
            }
            GateActivation::ScaledTanh(alpha, beta) => {
                each(values, &|x| T::of(alpha) * (x * T::of(beta)).tanh())
            }
            GateActivation::HardSigmoid(alpha, beta) => each(values, &|x| {
                bound(x * T::of(alpha) + T::of(beta), zero, one)
            }),
        }
    }
}

/// One row of a batch during a step.
pub(crate) struct CellRow<'a, T> {
    /// The contribution of the input, with its bias; becomes the gates.
    pub(crate) gates: &'a mut [T],
    /// The contribution of the state, with its bias.
    pub(crate) recurrent: &'a [T],
    /// The hidden state.
    pub(crate) hidden: &'a mut [T],
    /// The cell state of an `LSTM`.
    pub(crate) memory: &'a mut [T],
    /// Peephole weights of the input, output and forget gates.
    pub(crate) peepholes: Option<&'a [T]>,
}

impl Cell {
    /// Returns a cell of this kind without bounds.
    pub(crate) fn new(kind: CellKind) -> Self {
        Self {
            kind,
            clip: None,
            input_forget: false,
            linear_before_reset: false,
            memory_clip: None,
        }
    }

    /// Computes a whole step, except for a `GRU` that resets before the product.
    pub(crate) fn step<T: RecurrentNumber>(
        &self,
        row: CellRow<'_, T>,
        functions: &GateFunctions<T>,
    ) -> TractResult<()> {
        match self.kind {
            CellKind::Rnn => {
                add(row.gates, row.recurrent);
                self.activate(functions, 0, row.gates)?;
                row.hidden.copy_from_slice(row.gates);
                Ok(())
            }
            CellKind::Gru => {
                let size = row.hidden.len();
                let (first, last) = row.recurrent.split_at(2 * size);
                self.open(row.gates, first, functions)?;
                let (open, new) = row.gates.split_at_mut(2 * size);
                for ((new, last), reset) in new.iter_mut().zip(last).zip(&open[size..]) {
                    *new = *new + *last * *reset;
                }
                self.close(row.gates, row.hidden, functions)
            }
            CellKind::Lstm => self.lstm(row, functions),
        }
    }

    /// Computes the update and reset gates of a `GRU`.
    pub(crate) fn open<T: RecurrentNumber>(
        &self,
        gates: &mut [T],
        recurrent: &[T],
        functions: &GateFunctions<T>,
    ) -> TractResult<()> {
        let open = &mut gates[..recurrent.len()];
        add(open, recurrent);
        self.activate(functions, 0, open)
    }

    /// Computes the new state of a `GRU` from its last gate before the activation.
    pub(crate) fn close<T: RecurrentNumber>(
        &self,
        gates: &mut [T],
        hidden: &mut [T],
        functions: &GateFunctions<T>,
    ) -> TractResult<()> {
        let size = hidden.len();
        let (open, new) = gates.split_at_mut(2 * size);
        self.activate(functions, 1, new)?;
        for ((hidden, new), update) in hidden.iter_mut().zip(new).zip(&open[..size]) {
            *hidden = (T::one() - *update) * *new + *update * *hidden;
        }
        Ok(())
    }

    fn lstm<T: RecurrentNumber>(
        &self,
        row: CellRow<'_, T>,
        functions: &GateFunctions<T>,
    ) -> TractResult<()> {
        let CellRow {
            gates,
            recurrent,
            hidden,
            memory,
            peepholes,
        } = row;
        let size = hidden.len();
        add(gates, recurrent);
        let (input, rest) = gates.split_at_mut(size);
        let (output, rest) = rest.split_at_mut(size);
        let (forget, new) = rest.split_at_mut(size);
        if let Some(weights) = peepholes {
            add_product(input, &weights[..size], memory);
            add_product(forget, &weights[2 * size..], memory);
        }
        self.activate(functions, 0, input)?;
        if self.input_forget {
            for (forget, input) in forget.iter_mut().zip(&*input) {
                *forget = T::one() - *input;
            }
        } else {
            self.activate(functions, 0, forget)?;
        }
        self.activate(functions, 1, new)?;
        for (at, memory) in memory.iter_mut().enumerate() {
            *memory = forget[at] * *memory + input[at] * new[at];
            if let Some(clip) = self.memory_clip.map(T::of) {
                *memory = bound(*memory, -clip, clip);
            }
        }
        if let Some(weights) = peepholes {
            add_product(output, &weights[size..2 * size], memory);
        }
        self.activate(functions, 0, output)?;
        hidden.copy_from_slice(memory);
        functions.apply(2, hidden)?;
        for (hidden, output) in hidden.iter_mut().zip(output) {
            *hidden = *hidden * *output;
        }
        Ok(())
    }

    fn activate<T: RecurrentNumber>(
        &self,
        functions: &GateFunctions<T>,
        place: usize,
        values: &mut [T],
    ) -> TractResult<()> {
        if let Some(clip) = self.clip {
            let clip = T::of(clip);
            for value in &mut *values {
                *value = bound(*value, -clip, clip);
            }
        }
        functions.apply(place, values)
    }
}

/// Adds `what` to `to`.
pub(crate) fn add<T: Float>(to: &mut [T], what: &[T]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to = *to + *what;
    }
}

fn add_product<T: Float>(to: &mut [T], left: &[T], right: &[T]) {
    for ((to, left), right) in to.iter_mut().zip(left).zip(right) {
        *to = *to + *left * *right;
    }
}

/// Clamps a number; NaN stays NaN.
fn bound<T: Float>(value: T, least: T, most: T) -> T {
    if value < least {
        least
    } else if value > most {
        most
    } else {
        value
    }
}
