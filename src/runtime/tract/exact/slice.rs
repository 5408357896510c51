//! `Slice` in graphs: what the library would leave unsliced, or slice the other way.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::StridedSlice;

use crate::runtime::tract::watch::WRONG;

/// Refuses slices that would be wrong.
pub(super) fn prepare(model: &mut TypedModel) -> TractResult<()> {
    for node in model.nodes() {
        let Some(slice) = node.op_as::<StridedSlice>() else {
            continue;
        };
        let stored = |at: Option<usize>| {
            let outlet = at.and_then(|at| node.inputs.get(at));
            let fact = outlet
                .map(|outlet| model.outlet_fact(*outlet))
                .transpose()?;
            TractResult::Ok(fact.and_then(|fact| fact.konst.clone()))
        };
        let ends = stored(Some(2))?;
        let are_known = stored(Some(1))?.is_some() && ends.is_some();
        let Some(steps) = stored(slice.optional_steps_input)? else {
            // Without steps, or with steps that the library wants to know itself.
            continue;
        };
        let steps = steps.cast_to::<i64>()?;
        let steps = steps.try_as_plain_ram()?;
        let steps = steps.as_slice::<i64>()?;
        if !are_known && steps.iter().any(|step| *step != 1) {
            bail!("the bounds of a slice with steps must be known when the plan is made");
        }
        let Some(ends) = ends.filter(|ends| ends.datum_type() == DatumType::I64) else {
            continue;
        };
        let ends = ends.try_as_plain_ram()?;
        let mut pairs = ends.as_slice::<i64>()?.iter().zip(steps);
        if pairs.any(|(end, step)| goes_nowhere(*end, *step)) {
            bail!("a slice that ends before it begins {WRONG}");
        }
    }
    Ok(())
}

/// Whether an end that stands for the other side's is taken for this one's.
fn goes_nowhere(end: i64, step: i64) -> bool {
    if step > 0 {
        end <= i64::MIN + 1
    } else {
        end == i64::MAX || end == i64::from(i32::MAX)
    }
}
