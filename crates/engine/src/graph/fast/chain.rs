//! Finds the elementwise operators after a convolution or product that can be fused into it.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::binary::TypedBinOp;
use tract_onnx::tract_core::ops::element_wise::ElementWiseOp;
use tract_onnx::tract_core::ops::logic::Iff;
use tract_onnx::tract_core::ops::nn::LeakyRelu;

use pkgtool_kernels::float::Activation;

/// The operations on an image after a convolution, in this order.
#[derive(Debug)]
pub(super) struct Chain {
    /// Factor and summand of each channel.
    pub(super) scaled: Vec<(f32, f32)>,
    /// Is `true` if the weights are integers, whose sums are exact. Factors must not be merged into
    /// them then.
    is_whole: bool,
    may_add: bool,
    /// An image of the same shape to add.
    pub(super) added: Option<OutletId>,
    /// The last operation.
    pub(super) activation: Activation,
    /// Factors of negative results, for all channels or each, in place of an activation.
    pub(super) slopes: Option<Vec<f32>>,
    /// The last value of the chain; the fused operator computes it.
    pub(super) end: OutletId,
}

impl Chain {
    /// Returns the chain after `start`, an image computed from weights, with this many channels
    /// along `axis`. It has sums of images only if `may_add`.
    pub(super) fn after(
        model: &TypedModel,
        start: OutletId,
        weights: &[f32],
        (channels, axis): (usize, usize),
        may_add: bool,
    ) -> TractResult<Self> {
        let mut chain = Self {
            may_add,
            scaled: vec![(1.0, 0.0); channels],
            is_whole: weights.iter().all(|weight| weight.fract() == 0.0),
            added: None,
            activation: Activation::None,
            slopes: None,
            end: start,
        };
        loop {
            if let Some(product) = chain.silu(model) {
                chain.activation = Activation::Silu;
                chain.end = product;
            }
            let sloped = match chain.sloped(model, axis)? {
                None => chain.selected(model, axis)?,
                found => found,
            };
            if let Some((sum, slopes)) = sloped {
                chain.slopes = Some(slopes);
                chain.end = sum;
            }
            let Some(next) = only_reader(model, chain.end) else {
                break;
            };
            let node = model.node(next.node);
            let goes_on = if let Some(op) = node.op_as::<TypedBinOp>() {
                let other = node.inputs[1 - next.slot];
                chain.two(model, op, next.slot, other, axis)?
            } else if let Some(op) = node.op_as::<ElementWiseOp>() {
                chain.one(op)
            } else {
                false
            };
            if !goes_on {
                break;
            }
            chain.end = node.id.into();
        }
        Ok(chain)
    }

    fn one(&mut self, op: &ElementWiseOp) -> bool {
        if self.is_last() {
            return false;
        }
        if let Some(leaky) = op.0.downcast_ref::<LeakyRelu>() {
            self.slopes = Some(vec![leaky.alpha]);
            return true;
        }
        self.activation = match op.0.name().as_str() {
            "HardSwish" => Activation::HardSwish,
            "Sigmoid" => Activation::Sigmoid,
            "Silu" => Activation::Silu,
            _ => return false,
        };
        true
    }

    /// Returns the product of the last value with its own logistic function, if nothing else reads
    /// either.
    fn silu(&self, model: &TypedModel) -> Option<OutletId> {
        let is_output = model.outputs.contains(&self.end);
        if is_output || self.is_last() {
            return None;
        }
        let readers = &model.node(self.end.node).outputs[self.end.slot].successors;
        let [one, other] = &**readers else {
            return None;
        };
        for (gate, product) in [(one, other), (other, one)] {
            let gate = model.node(gate.node);
            let product = model.node(product.node);
            let is_gate = gate
                .op_as::<ElementWiseOp>()
                .is_some_and(|op| op.0.name() == "Sigmoid");
            let is_product = operands(model, product.id.into(), "Mul").is_some();
            let alone = only_reader(model, gate.id.into());
            if is_gate && is_product && alone.is_some_and(|reader| reader.node == product.id) {
                return Some(product.id.into());
            }
        }
        None
    }

    /// Returns whether nothing can follow.
    fn is_last(&self) -> bool {
        self.activation != Activation::None || self.slopes.is_some()
    }

    /// Returns the sum of the last value's positive part and its negative part times slopes, and the slopes, if nothing
    /// else reads them.
    fn sloped(&self, model: &TypedModel, axis: usize) -> TractResult<Option<(OutletId, Vec<f32>)>> {
        if model.outputs.contains(&self.end) || self.is_last() {
            return Ok(None);
        }
        let is_half =
            |outlet: OutletId, name: &str| match other_operand(model, outlet, name, self.end) {
                Some(limit) => Ok(known_number(model, limit)? == Some(0.0)),
                None => TractResult::Ok(false),
            };
        let readers = &model.node(self.end.node).outputs[self.end.slot].successors;
        for reader in readers.iter().filter(|_| readers.len() == 2) {
            let positive = reader.node.into();
            let Some(sum) = only_reader(model, positive) else {
                continue;
            };
            let sum = sum.node.into();
            let product = other_operand(model, sum, "Add", positive);
            let factors = product.and_then(|product| operands(model, product, "Mul"));
            let (Some(product), Some([a, b])) = (product, factors) else {
                continue;
            };
            for (negative, slopes) in [(a, b), (b, a)] {
                let mut parts = [negative, product].into_iter();
                if parts.all(|part| only_reader(model, part).is_some())
                    && is_half(positive, "Max")?
                    && is_half(negative, "Min")?
                    && let Some(slopes) = self.known_by_channel(model, slopes, axis)?
                {
                    return Ok(Some((sum, slopes)));
                }
            }
        }
        Ok(None)
    }

    /// Returns the choice between the last value and its product with slopes, where it is negative, and the slopes, if
    /// nothing else reads them. The library writes `PReLU` like that.
    fn selected(
        &self,
        model: &TypedModel,
        axis: usize,
    ) -> TractResult<Option<(OutletId, Vec<f32>)>> {
        let readers = &model.node(self.end.node).outputs[self.end.slot].successors;
        if model.outputs.contains(&self.end) || self.is_last() || readers.len() != 3 {
            return Ok(None);
        }
        let mut choices = readers.iter().map(|reader| model.node(reader.node));
        let Some(choice) = choices.find(|node| node.op_is::<Iff>()) else {
            return Ok(None);
        };
        let &[test, product, value] = &*choice.inputs else {
            return Ok(None);
        };
        let is_alone = [test, product]
            .iter()
            .all(|part| only_reader(model, *part).is_some_and(|reader| reader.node == choice.id));
        let Some([zero, tested]) = operands(model, test, "GT") else {
            return Ok(None);
        };
        let is_choice = is_alone && value == self.end && tested == self.end;
        let slopes = other_operand(model, product, "Mul", self.end);
        let Some(slopes) = slopes.filter(|_| is_choice) else {
            return Ok(None);
        };
        if known_number(model, zero)? != Some(0.0) {
            return Ok(None);
        }
        let slopes = self.known_by_channel(model, slopes, axis)?;
        Ok(slopes.map(|slopes| (choice.id.into(), slopes)))
    }

    /// Returns the numbers of a constant by channel.
    fn known_by_channel(
        &self,
        model: &TypedModel,
        outlet: OutletId,
        axis: usize,
    ) -> TractResult<Option<Vec<f32>>> {
        let rank = model.outlet_fact(self.end)?.rank();
        match &model.outlet_fact(outlet)?.konst {
            Some(known) if known.datum_type() == DatumType::F32 => {
                by_channel(known, axis, self.scaled.len(), rank)
            }
            _ => Ok(None),
        }
    }

    fn two(
        &mut self,
        model: &TypedModel,
        op: &TypedBinOp,
        slot: usize,
        other: OutletId,
        axis: usize,
    ) -> TractResult<bool> {
        let shape = &model.outlet_fact(self.end)?.shape;
        let fact = model.outlet_fact(other)?;
        if fact.datum_type != DatumType::F32 || op.1.is_some() {
            return Ok(false);
        }
        let name = op.0.name();
        let Some(known) = &fact.konst else {
            let is_sum =
                self.may_add && name == "Add" && self.added.is_none() && fact.shape == *shape;
            let free = !self.is_last() && other != self.end;
            if is_sum && free {
                self.added = Some(other);
            }
            return Ok(is_sum && free);
        };
        let Some(values) = by_channel(known, axis, self.scaled.len(), shape.rank())? else {
            return Ok(false);
        };
        if let ([limit], "Max" | "Min") = (&*values, name) {
            return Ok(self.limit(*limit, name == "Max"));
        }
        if self.added.is_some() || self.is_last() {
            return Ok(false);
        }
        let all_finite = values.iter().all(|value| value.is_finite());
        let values = values.iter().cycle();
        let each = self.scaled.iter_mut().zip(values);
        match (name, slot) {
            _ if !all_finite => return Ok(false),
            ("Mul" | "Div", _) if self.is_whole => return Ok(false),
            ("Mul", _) => each.for_each(|(scaled, by)| {
                scaled.0 *= by;
                scaled.1 *= by;
            }),
            ("Add", _) => each.for_each(|(scaled, by)| scaled.1 += by),
            ("Sub", 0) => each.for_each(|(scaled, by)| scaled.1 -= by),
            ("Div", 0) => each.for_each(|(scaled, by)| {
                scaled.0 /= by;
                scaled.1 /= by;
            }),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Clamps the result to at least, or at most, `limit`.
    fn limit(&mut self, limit: f32, is_least: bool) -> bool {
        let (mut least, mut most) = match self.activation {
            _ if self.slopes.is_some() => return false,
            Activation::None => (f32::NEG_INFINITY, f32::INFINITY),
            Activation::Clamp { least, most } => (least, most),
            _ => return false,
        };
        if limit.is_nan() {
            return false;
        }
        if is_least {
            // A lower limit above `most` replaces both.
            least = least.max(limit);
            most = most.max(limit);
        } else {
            least = least.min(limit);
            most = most.min(limit);
        }
        self.activation = Activation::Clamp { least, most };
        true
    }
}

/// Returns the operands of the elementwise operator of this name that computes a value, if it does.
fn operands(model: &TypedModel, outlet: OutletId, name: &str) -> Option<[OutletId; 2]> {
    let node = model.node(outlet.node);
    let op = node.op_as::<TypedBinOp>()?;
    let is_named = op.0.name() == name && op.1.is_none();
    <[OutletId; 2]>::try_from(&*node.inputs)
        .ok()
        .filter(|_| is_named)
}

/// Returns what the operator of this name combines a value with.
fn other_operand(
    model: &TypedModel,
    outlet: OutletId,
    name: &str,
    value: OutletId,
) -> Option<OutletId> {
    match operands(model, outlet, name)? {
        [a, other] | [other, a] if a == value => Some(other),
        _ => None,
    }
}

/// Returns the number of a constant of one element.
fn known_number(model: &TypedModel, outlet: OutletId) -> TractResult<Option<f32>> {
    let known = model.outlet_fact(outlet)?.konst.as_ref();
    let known = known.filter(|known| known.len() == 1 && known.datum_type() == DatumType::F32);
    known.map(|known| known.cast_to_scalar()).transpose()
}

/// Returns the only reader of a value that is not an output of the graph.
pub(super) fn only_reader(model: &TypedModel, outlet: OutletId) -> Option<InletId> {
    let is_output = model.outputs.contains(&outlet);
    match &*model.node(outlet.node).outputs[outlet.slot].successors {
        [only] if !is_output => Some(*only),
        _ => None,
    }
}

/// Returns one number per channel, or one for all, if a constant extends along no other axis.
fn by_channel(
    constant: &Tensor,
    axis: usize,
    channels: usize,
    rank: usize,
) -> TractResult<Option<Vec<f32>>> {
    let shape = constant.shape();
    let is_one = constant.len() == 1;
    let along = shape.len() == rank
        && shape.iter().enumerate().all(|(at, size)| {
            let wanted = if at == axis { channels } else { 1 };
            *size == wanted
        });
    if !is_one && !along || !constant.is_plain_ram() {
        return Ok(None);
    }
    let view = constant.try_as_plain_ram()?;
    Ok(Some(view.as_slice::<f32>()?.to_vec()))
}
