//! Operators whose answer is wrong for some inputs only: their inputs or outputs are looked at when
//! they run, and a wrong answer becomes an error.

use half::f16;
use tract_onnx::prelude::{Datum, DatumType, TValue, Tensor, TractError, TractResult};
use tract_onnx::tract_core::internal::Op;
use tract_onnx::tract_hir::tract_num_traits::Float;

/// What to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// A shift by a negative amount or by all bits or more.
    Shift,
    /// A window's maximum over infinities, which comes out finite, or over NaN, which is dropped.
    Extreme,
}

/// The end of every message here: no other way to plan the model makes it right.
pub(super) const WRONG: &str = "would be computed wrongly";

/// What to look at when this operator runs, if anything.
pub(super) fn watch(operator: &dyn Op) -> Option<Watch> {
    let name = operator.name();
    if name.contains("Shift") {
        Some(Watch::Shift)
    } else if name.contains("MaxPool") {
        Some(Watch::Extreme)
    } else {
        None
    }
}

impl Watch {
    /// Looks at the inputs before the operator runs.
    pub(super) fn before(self, inputs: &[TValue]) -> TractResult<()> {
        if self == Self::Extreme && inputs.iter().any(|input| any(input, Kind::NotANumber)) {
            return Err(TractError::msg(format!(
                "a maximum over windows with NaN {WRONG}"
            )));
        }
        let ([value, amounts], Self::Shift) = (inputs, self) else {
            return Ok(());
        };
        let bits = i128::try_from(value.datum_type().size_of() * 8)?;
        let amounts = if amounts.datum_type().is_unsigned() {
            let amounts = amounts.cast_to::<u64>()?;
            let amounts = amounts.try_as_plain_ram()?;
            let amounts = amounts.as_slice::<u64>()?;
            amounts.iter().map(|amount| i128::from(*amount)).collect()
        } else {
            signed(amounts)?
        };
        match amounts.iter().find(|amount| !(0..bits).contains(*amount)) {
            Some(amount) => Err(TractError::msg(format!(
                "a shift of {bits} bits by {amount} {WRONG}"
            ))),
            None => Ok(()),
        }
    }

    /// Looks at the outputs after the operator ran; `inputs` are what it ran on.
    pub(super) fn after(self, inputs: &[TValue], outputs: &[TValue]) -> TractResult<()> {
        if self == Self::Extreme
            && outputs.iter().any(|output| any(output, Kind::Largest))
            && inputs
                .iter()
                .any(|input| input.len() == 0 || any(input, Kind::Infinite))
        {
            return Err(TractError::msg(format!(
                "a maximum over windows with infinities {WRONG}"
            )));
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
enum Kind {
    /// The largest finite magnitude.
    Largest,
    Infinite,
    NotANumber,
}

fn any(tensor: &Tensor, kind: Kind) -> bool {
    match tensor.datum_type() {
        DatumType::F16 => any_of::<f16>(tensor, kind),
        DatumType::F32 => any_of::<f32>(tensor, kind),
        DatumType::F64 => any_of::<f64>(tensor, kind),
        _ => false,
    }
}

fn any_of<T: Datum + Float>(tensor: &Tensor, kind: Kind) -> bool {
    let Ok(view) = tensor.try_as_plain_ram() else {
        return false;
    };
    let values = view.as_slice::<T>().unwrap_or_default();
    match kind {
        Kind::Largest => values.iter().any(|value| value.abs() == T::max_value()),
        Kind::Infinite => values.iter().any(|value| value.is_infinite()),
        Kind::NotANumber => values.iter().any(|value| value.is_nan()),
    }
}

fn signed(amounts: &Tensor) -> TractResult<Vec<i128>> {
    let amounts = amounts.cast_to::<i64>()?;
    let amounts = amounts.try_as_plain_ram()?;
    let amounts = amounts.as_slice::<i64>()?;
    Ok(amounts.iter().map(|amount| i128::from(*amount)).collect())
}
