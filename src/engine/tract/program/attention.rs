//! Scaled dot products of queries, keys and values, as several backends have them in one operator.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::logic::Iff;
use tract_onnx::tract_core::ops::math;
use tract_onnx::tract_core::ops::nn::{Softmax, SoftmaxKind};

use super::builder::{Builder, Wire};
use super::operators::einsum;
use crate::tensor::DType;

/// What is attended to.
pub(super) struct Attention {
    /// `[batch.., heads, queries, size]`
    pub(super) queries: Wire,
    /// `[batch.., heads, keys, size]`; there may be fewer heads, each for a group of queries'.
    pub(super) keys: Wire,
    /// `[batch.., heads, keys, width]`
    pub(super) values: Wire,
    /// Booleans say what is seen; numbers are added.
    pub(super) mask: Option<Wire>,
    /// What products are multiplied by; by default that of the size's root.
    pub(super) scale: Option<f64>,
}

impl Attention {
    /// Wires it, in float32: `[batch.., heads, queries, width]`.
    pub(super) fn wire(self, builder: &mut Builder) -> TractResult<OutletId> {
        let float = DType::Float32;
        let [q, k, v] = [self.queries, self.keys, self.values]
            .map(|wire| builder.cast(wire, float).map(|wire| wire.outlet));
        let (q, k, v) = (q?, k?, v?);
        let shape = builder.shape(q)?;
        let rank = shape.len();
        ensure!(
            (2..=5).contains(&rank) && builder.rank(k)? == rank && builder.rank(v)? == rank,
            "attention of {rank} dimensions"
        );
        let (k, v) = (heads(builder, k, &shape)?, heads(builder, v, &shape)?);
        let lead = &"abc"[..rank - 2];
        let formula = format!("{lead}md,{lead}nd->{lead}mn");
        let mut scores = einsum(builder, &formula, &[q, k], float)?;
        let scale = match self.scale {
            Some(scale) => scale,
            #[expect(clippy::cast_precision_loss, reason = "a small size")]
            None => (shape[rank - 1].to_i64()? as f64).sqrt().recip(),
        };
        let scale = builder.scalar(scale, float, rank)?.outlet;
        scores = builder.binary(Box::new(math::Mul), scores, scale)?;
        if let Some(mask) = self.mask {
            scores = masked(builder, scores, mask)?;
        }
        let softmax = Softmax {
            axes: tvec!(rank - 1),
            quant_output_dt: None,
            kind: SoftmaxKind::Softmax,
        };
        let weights = builder.wire(softmax, &[scores])?;
        let formula = format!("{lead}mn,{lead}nd->{lead}md");
        einsum(builder, &formula, &[weights, v], float)
    }
}

/// Keys or values with as many heads as the queries have, whose shape this is.
fn heads(builder: &mut Builder, outlet: OutletId, queries: &[TDim]) -> TractResult<OutletId> {
    let shape = builder.shape(outlet)?;
    let rank = shape.len();
    if rank < 3 || shape[rank - 3] == queries[rank - 3] {
        return Ok(outlet);
    }
    let (own, wanted) = (shape[rank - 3].to_usize()?, queries[rank - 3].to_usize()?);
    ensure!(
        own > 0 && wanted.is_multiple_of(own),
        "{wanted} heads of queries for {own} of keys"
    );
    let outlet = builder.wire(AxisOp::Add(rank - 2), &[outlet])?;
    let mut wide = shape.clone();
    wide.insert(rank - 2, (wanted / own).to_dim());
    let outlet = builder.expand(outlet, &wide)?;
    let mut joined = shape;
    joined[rank - 3] = wanted.to_dim();
    builder.reshape(outlet, &joined)
}

fn masked(builder: &mut Builder, scores: OutletId, mask: Wire) -> TractResult<OutletId> {
    if mask.dtype != DType::Bool {
        let mask = builder.cast(mask, DType::Float32)?;
        return builder.binary(Box::new(math::Add), scores, mask.outlet);
    }
    let hidden = builder.float(f32::NEG_INFINITY, 0)?;
    let aligned = builder.same_rank([mask.outlet, scores, hidden])?;
    builder.wire(Iff, &aligned)
}
