//! Adds a recurrence to the library's graph. The library computes the products with W for all steps
//! at once, because they are independent of the state. One operator does the rest ([`crate::graph::recurrent::run`]).

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::Slice;
use tract_onnx::tract_core::ops::cast::cast;
use tract_onnx::tract_core::ops::einsum::EinSum;

use super::{
    BIAS, HIDDEN, LENGTHS, MEMORY, PEEPHOLES, R, R_SCALE, R_ZERO, Recurrence, W, W_SCALE, W_ZERO,
};
use crate::graph::recurrent::product::{RecurrentProduct, products};
use crate::graph::recurrent::quantised::RecurrentBytes;
use crate::graph::recurrent::run::{RecurrentRun, RunSide};
use crate::graph::rows::product_of_rows;

/// A graph under construction, with the name prefix of its new nodes.
struct RecurrentWriter<'a> {
    model: &'a mut TypedModel,
    prefix: &'a str,
}

impl RecurrentWriter<'_> {
    fn node(
        &mut self,
        name: &str,
        operator: impl Into<Box<dyn TypedOp>>,
        inputs: &[OutletId],
    ) -> TractResult<OutletId> {
        let name = format!("{}.{name}", self.prefix);
        Ok(self.model.wire_node(name, operator, inputs)?[0])
    }

    fn constant(&mut self, name: &str, value: Tensor) -> TractResult<OutletId> {
        self.model
            .add_const(format!("{}.{name}", self.prefix), value)
    }

    fn stored(&self, outlet: OutletId) -> TractResult<Option<Arc<Tensor>>> {
        Ok(self.model.outlet_fact(outlet)?.konst.clone())
    }

    /// Returns one direction's part of a tensor with a part per direction.
    fn side(&mut self, name: &str, outlet: OutletId, side: usize) -> TractResult<OutletId> {
        if let Some(stored) = self.stored(outlet)? {
            let mut part = stored.slice(0, side, side + 1)?;
            part.remove_axis(0)?;
            return self.constant(&format!("{name}.{side}"), part);
        }
        let slice = Slice::new(0, side, side + 1);
        let part = self.node(&format!("{name}.{side}.slice"), slice, &[outlet])?;
        self.node(&format!("{name}.{side}"), AxisOp::Rm(0), &[part])
    }
}

/// Adds `recurrence` to a graph.
pub(crate) fn wire(
    recurrence: &Recurrence,
    prefix: &str,
    model: &mut TypedModel,
    inputs: &[OutletId],
) -> TractResult<TVec<OutletId>> {
    let given = model.outlet_fact(inputs[0])?.datum_type;
    let dtype = if given == f16::datum_type() {
        f32::datum_type()
    } else {
        given
    };
    ensure!(
        dtype == f32::datum_type() || dtype == f64::datum_type(),
        "a recurrence over {given:?} is not supported"
    );
    let mut writer = RecurrentWriter { model, prefix };
    let mut inputs: TVec<OutletId> = inputs.into();
    for (at, input) in inputs.iter_mut().enumerate() {
        if writer.model.outlet_fact(*input)?.datum_type == f16::datum_type() {
            *input = writer.node(&format!("cast.{at}"), cast(dtype), &[*input])?;
        }
    }
    let x = sequence(recurrence, &mut writer, inputs[0])?;
    let mut given_to = vec![x];
    let mut give = |outlet: OutletId| {
        given_to.push(outlet);
        given_to.len() - 1
    };
    let lengths = recurrence.input(LENGTHS).map(|at| give(inputs[at]));
    let mut states = [None; 2];
    for (state, place) in states.iter_mut().zip([HIDDEN, MEMORY]) {
        if let Some(at) = recurrence.input(place) {
            *state = Some(give(state_first(
                recurrence,
                &mut writer,
                inputs[at],
                place,
            )?));
        }
    }
    let products = side_products(recurrence, &mut writer, &inputs, x)?;
    let mut sides = Vec::new();
    for ((at, side), products) in recurrence.sides.iter().enumerate().zip(products) {
        let mut optional = |place: usize, name: &str| -> TractResult<Option<usize>> {
            let found = recurrence.input(place).map(|input| inputs[input]);
            let found = found.map(|outlet| writer.side(name, outlet, at));
            Ok(found.transpose()?.map(&mut give))
        };
        sides.push(RunSide {
            is_reverse: side.is_reverse,
            activations: side.activations.clone(),
            bias: optional(BIAS, "bias")?,
            peepholes: optional(PEEPHOLES, "peepholes")?,
            from_input: give(products.from_input),
            weights: products.weights.map(&mut give),
            product: products.product,
            last: products.last,
        });
    }
    let hidden = &writer.model.outlet_fact(inputs[R])?.shape[recurrence.hidden_axis()];
    let run = RecurrentRun {
        cell: recurrence.cell.clone(),
        sides,
        lengths,
        states,
        hidden: hidden.to_usize()?,
        keeps_all: recurrence.outputs[0].is_some(),
    };
    let made = writer.model.wire_node(prefix, run, &given_to)?;
    outputs(recurrence, &mut writer, &made, given)
}

/// Returns a state with the directions as its first dimension.
fn state_first(
    recurrence: &Recurrence,
    writer: &mut RecurrentWriter<'_>,
    state: OutletId,
    place: usize,
) -> TractResult<OutletId> {
    if recurrence.batch_first {
        return writer.node(&format!("state.{place}"), AxisOp::Move(1, 0), &[state]);
    }
    Ok(state)
}

/// Returns the sequence with the steps as its first dimension.
fn sequence(
    recurrence: &Recurrence,
    writer: &mut RecurrentWriter<'_>,
    x: OutletId,
) -> TractResult<OutletId> {
    if recurrence.batch_first {
        return writer.node("steps_first", AxisOp::Move(1, 0), &[x]);
    }
    Ok(x)
}

/// The products of one direction.
struct SideProducts {
    /// That of the sequence with W.
    from_input: OutletId,
    /// R, unless it is part of `product`.
    weights: Option<OutletId>,
    product: RecurrentProduct,
    last: Option<RecurrentProduct>,
}

/// Returns the products of each direction.
fn side_products(
    recurrence: &Recurrence,
    writer: &mut RecurrentWriter<'_>,
    inputs: &[OutletId],
    x: OutletId,
) -> TractResult<Vec<SideProducts>> {
    let rows = rows(writer, x)?;
    let fact = writer.model.outlet_fact(x)?;
    let (dtype, batch) = (fact.datum_type, fact.shape[1].clone());
    let sides = recurrence.sides.len();
    if !recurrence.is_quantised {
        let of_side = |side: usize| {
            let weights = writer.side("w", inputs[W], side)?;
            let product = EinSum::new("nk,gk->ng".parse()?, dtype);
            let from_input = writer.node(&format!("xw.{side}"), product, &[rows, weights])?;
            let weights = writer.side("r", inputs[R], side)?;
            let fact = writer.model.outlet_fact(weights)?;
            let (product, last) = products(&recurrence.cell, fact, &batch)?;
            Ok(SideProducts {
                from_input,
                weights: fact.konst.is_none().then_some(weights),
                product,
                last,
            })
        };
        return (0..sides).map(of_side).collect();
    }
    let of_input = quantised_products(recurrence, writer, inputs, [W, W_SCALE, W_ZERO])?;
    let of_state = quantised_products(recurrence, writer, inputs, [R, R_SCALE, R_ZERO])?;
    ensure!(
        of_input.len() == sides && of_state.len() == sides,
        "expected weights of {sides} directions, got {} and {}",
        of_input.len(),
        of_state.len()
    );
    let products = of_input.into_iter().zip(of_state).enumerate();
    let of_side = |(side, (of_input, of_state))| {
        Ok(SideProducts {
            from_input: quantised_input(writer, rows, side, of_input)?,
            weights: None,
            product: RecurrentProduct::of_bytes(of_state),
            last: None,
        })
    };
    products.map(of_side).collect()
}

/// Returns the products of all directions with quantised weights.
fn quantised_products(
    recurrence: &Recurrence,
    writer: &RecurrentWriter<'_>,
    inputs: &[OutletId],
    [weights, scale, zero]: [usize; 3],
) -> TractResult<Vec<RecurrentBytes>> {
    let stored = |place: usize| match recurrence.input(place) {
        Some(at) => {
            let stored = writer.stored(inputs[at])?;
            let stored = stored.context("computed quantised weights are not supported");
            stored.map(Some)
        }
        None => Ok(None),
    };
    let weights = stored(weights)?.context("quantised weights are missing")?;
    let scale = stored(scale)?.context("the scale of quantised weights is missing")?;
    RecurrentBytes::of_directions(&weights, &scale, stored(zero)?.as_deref())
}

/// Returns the product of the sequence with quantised W.
fn quantised_input(
    writer: &mut RecurrentWriter<'_>,
    rows: OutletId,
    side: usize,
    product: RecurrentBytes,
) -> TractResult<OutletId> {
    let (outputs, bytes) = (product.outputs(), product.bytes());
    let run = move |_, from: &[&[f32]], to: &mut [f32], split| product.run(from[0], to, split);
    let shape = writer.model.outlet_fact(rows)?.shape.to_tvec();
    let kernel = product_of_rows("QuantisedRows", &shape, outputs, bytes, run)?;
    writer.node(&format!("xw.{side}"), kernel, &[rows])
}

/// Returns all steps of all rows as one matrix.
fn rows(writer: &mut RecurrentWriter<'_>, x: OutletId) -> TractResult<OutletId> {
    let shape = &writer.model.outlet_fact(x)?.shape;
    let from: TVec<TDim> = tvec![shape[0].clone(), shape[1].clone()];
    let to: TVec<TDim> = tvec![shape[0].clone() * &shape[1]];
    writer.node("rows", AxisOp::Reshape(0, from, to), &[x])
}

/// Returns the outputs of the node, in the layout of the model.
fn outputs(
    recurrence: &Recurrence,
    writer: &mut RecurrentWriter<'_>,
    made: &[OutletId],
    dtype: DatumType,
) -> TractResult<TVec<OutletId>> {
    let mut wanted: TVec<OutletId> = tvec!();
    for (place, slot) in recurrence.outputs.iter().enumerate() {
        if slot.is_none() {
            continue;
        }
        let mut outlet = *made.get(place).context("only LSTM has a third output")?;
        if recurrence.batch_first {
            let axis = if place == 0 { 2 } else { 1 };
            outlet = writer.node(&format!("out.{place}"), AxisOp::Move(axis, 0), &[outlet])?;
        }
        if writer.model.outlet_fact(outlet)?.datum_type != dtype {
            outlet = writer.node(&format!("out.cast.{place}"), cast(dtype), &[outlet])?;
        }
        wanted.push(outlet);
    }
    Ok(wanted)
}
