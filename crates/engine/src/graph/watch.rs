//! Run-time checks for operators of the library that compute wrongly, or panic, for some inputs
//! only.
//!
//! A check inspects an operator's inputs or outputs and turns a wrong answer into an error.

use half::f16;
use tract_onnx::prelude::{Datum, DatumType, TValue, Tensor, TractError, TractResult};
use tract_onnx::tract_core::internal::Op;
use tract_onnx::tract_core::ops::array::{Gather, GatherElements};
use tract_onnx::tract_hir::tract_num_traits::Float;

use super::guard::InvalidInput;

/// A check of an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuntimeCheck {
    /// Detects a shift by a negative amount, or by at least the number of bits.
    Shift,
    /// Detects a window's maximum over infinities, which becomes finite, or over NaN, which is
    /// dropped.
    Extreme,
    /// Detects an index outside this axis; negative ones count from the end.
    Index(usize),
}

/// The end of every message of wrong results here. No other plan of the model would be correct.
pub(crate) const WRONG_RESULT: &str = "would be computed wrongly";

/// Returns the check for this operator, if it needs one.
pub(crate) fn check_for(operator: &dyn Op) -> Option<RuntimeCheck> {
    let name = operator.name();
    if name.contains("Shift") {
        Some(RuntimeCheck::Shift)
    } else if name.contains("MaxPool") {
        Some(RuntimeCheck::Extreme)
    } else if let Some(gather) = operator.downcast_ref::<Gather>() {
        Some(RuntimeCheck::Index(gather.axis))
    } else {
        let gather = operator.downcast_ref::<GatherElements>();
        gather.map(|gather| RuntimeCheck::Index(gather.axis))
    }
}

impl RuntimeCheck {
    /// Checks the inputs before the operator runs.
    pub(crate) fn before(self, inputs: &[TValue]) -> TractResult<()> {
        if self == Self::Extreme
            && inputs
                .iter()
                .any(|input| any(input, WatchedKind::NotANumber))
        {
            return Err(TractError::msg(format!(
                "a maximum over windows with NaN {WRONG_RESULT}"
            )));
        }
        if let Self::Index(axis) = self {
            return indices(inputs, axis);
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
                "a shift of {bits} bits by {amount} {WRONG_RESULT}"
            ))),
            None => Ok(()),
        }
    }

    /// Checks the outputs after the operator ran on `inputs`.
    pub(crate) fn after(self, inputs: &[TValue], outputs: &[TValue]) -> TractResult<()> {
        if self == Self::Extreme
            && outputs
                .iter()
                .any(|output| any(output, WatchedKind::Largest))
            && inputs
                .iter()
                .any(|input| input.len() == 0 || any(input, WatchedKind::Infinite))
        {
            return Err(TractError::msg(format!(
                "a maximum over windows with infinities {WRONG_RESULT}"
            )));
        }
        Ok(())
    }
}

/// Rejects an index outside its axis.
fn indices(inputs: &[TValue], axis: usize) -> TractResult<()> {
    let [table, indices] = inputs else {
        return Ok(());
    };
    let (Some(rows), DatumType::I64 | DatumType::I32) =
        (table.shape().get(axis), indices.datum_type())
    else {
        return Ok(());
    };
    let rows = i128::try_from(*rows)?;
    match signed(indices)?
        .iter()
        .find(|index| !(-rows..rows).contains(*index))
    {
        Some(index) => Err(InvalidInput {
            operator: "Gather".to_owned(),
            reason: format!(
                "index {index} of a dimension of {rows}; {} to {} are valid",
                -rows,
                rows - 1
            ),
        }
        .into()),
        None => Ok(()),
    }
}

#[derive(Clone, Copy)]
enum WatchedKind {
    /// The largest finite magnitude.
    Largest,
    Infinite,
    NotANumber,
}

fn any(tensor: &Tensor, kind: WatchedKind) -> bool {
    match tensor.datum_type() {
        DatumType::F16 => any_of::<f16>(tensor, kind),
        DatumType::F32 => any_of::<f32>(tensor, kind),
        DatumType::F64 => any_of::<f64>(tensor, kind),
        _ => false,
    }
}

fn any_of<T: Datum + Float>(tensor: &Tensor, kind: WatchedKind) -> bool {
    let Ok(view) = tensor.try_as_plain_ram() else {
        return false;
    };
    let values = view.as_slice::<T>().unwrap_or_default();
    match kind {
        WatchedKind::Largest => values.iter().any(|value| value.abs() == T::max_value()),
        WatchedKind::Infinite => values.iter().any(|value| value.is_infinite()),
        WatchedKind::NotANumber => values.iter().any(|value| value.is_nan()),
    }
}

fn signed(amounts: &Tensor) -> TractResult<Vec<i128>> {
    let amounts = amounts.cast_to::<i64>()?;
    let amounts = amounts.try_as_plain_ram()?;
    let amounts = amounts.as_slice::<i64>()?;
    Ok(amounts.iter().map(|amount| i128::from(*amount)).collect())
}
