//! Scaled dot-product attention, which several backends have as one operator.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::logic::Iff;
use tract_onnx::tract_core::ops::math;
use tract_onnx::tract_core::ops::nn::{Softmax, SoftmaxKind};

use super::builder::{Builder, Wire};
use super::operators::einsum;
use crate::tensor::DType;

/// The inputs of an attention operator.
pub(crate) struct AttentionInputs {
    /// `[batch.., heads, queries, size]`
    pub(crate) queries: Wire,
    /// `[batch.., heads, keys, size]`. With fewer heads than the queries, each head serves a group
    /// of query heads.
    pub(crate) keys: Wire,
    /// `[batch.., heads, keys, width]`
    pub(crate) values: Wire,
    /// Boolean masks select keys; numeric masks are added to the scores.
    pub(crate) mask: Option<Wire>,
    /// Factor of the scores; by default `1 / sqrt(size)`.
    pub(crate) scale: Option<f64>,
}

impl AttentionInputs {
    /// Adds the operator in float32; the result is `[batch.., heads, queries, width]`.
    pub(crate) fn wire(self, builder: &mut Builder) -> TractResult<OutletId> {
        let float = DType::Float32;
        let [q, k, v] = [self.queries, self.keys, self.values]
            .map(|wire| builder.cast(wire, float).map(|wire| wire.outlet));
        let (mut q, k, v) = (q?, k?, v?);
        let shape = builder.shape(q)?;
        let rank = shape.len();
        ensure!(
            (2..=5).contains(&rank) && builder.rank(k)? == rank && builder.rank(v)? == rank,
            "invalid rank of attention inputs: expected equal ranks of 2 to 5, got {rank}"
        );
        let mut mask = self.mask;
        let of_keys = "abc"[..rank - 2].to_owned();
        let mut lead = of_keys.clone();
        let grouped = grouped(builder, k, v, &shape)?;
        if let Some(grouped) = &grouped {
            q = builder.reshape(q, grouped)?;
            mask = mask
                .map(|mask| mask_of_groups(builder, mask, grouped))
                .transpose()?;
            lead.push('r');
        }
        let formula = format!("{lead}md,{of_keys}nd->{lead}mn");
        let mut scores = einsum(builder, &formula, &[q, k], float)?;
        let full = lead.len() + 2;
        let scale = match self.scale {
            Some(scale) => scale,
            #[expect(clippy::cast_precision_loss, reason = "a small size")]
            None => (shape[rank - 1].to_i64()? as f64).sqrt().recip(),
        };
        let scale = builder.scalar(scale, float, full)?.outlet;
        scores = builder.binary(Box::new(math::Mul), scores, scale)?;
        if let Some(mask) = mask {
            scores = masked(builder, scores, mask)?;
        }
        let softmax = Softmax {
            axes: tvec!(full - 1),
            quant_output_dt: None,
            kind: SoftmaxKind::Softmax,
        };
        let weights = builder.wire(softmax, &[scores])?;
        let formula = format!("{lead}mn,{of_keys}nd->{lead}md");
        let outlet = einsum(builder, &formula, &[weights, v], float)?;
        let mut joined = shape;
        joined[rank - 1] = builder.shape(v)?[rank - 1].clone();
        builder.reshape(outlet, &joined)
    }
}

/// Returns the shape of the queries, given their current one.
///
/// If several query heads share a key head, an axis is inserted: `[batch.., heads of keys, heads of
/// queries for each, queries, size]`.
fn grouped(
    builder: &Builder,
    keys: OutletId,
    values: OutletId,
    queries: &[TDim],
) -> TractResult<Option<Vec<TDim>>> {
    let Some(at) = queries.len().checked_sub(3) else {
        return Ok(None);
    };
    let (of_keys, of_values) = (&builder.shape(keys)?[at], &builder.shape(values)?[at]);
    ensure!(
        of_keys == of_values,
        "numbers of heads differ: {of_keys} of keys, {of_values} of values"
    );
    if *of_keys == queries[at] {
        return Ok(None);
    }
    let (own, wanted) = (of_keys.to_usize()?, queries[at].to_usize()?);
    ensure!(
        own > 0 && wanted.is_multiple_of(own),
        "number of query heads is not a multiple of the key heads: {wanted} and {own}"
    );
    let mut grouped = queries.to_vec();
    grouped.splice(at..=at, [own.to_dim(), (wanted / own).to_dim()]);
    Ok(Some(grouped))
}

/// Adapts a mask to queries of this shape, which [`grouped`] returned.
fn mask_of_groups(builder: &mut Builder, mask: Wire, grouped: &[TDim]) -> TractResult<Wire> {
    let rank = grouped.len() - 1;
    let outlet = builder.with_rank(mask.outlet, rank)?;
    let mut shape = builder.shape(outlet)?;
    let heads = if shape[rank - 3].is_one() {
        [1.to_dim(), 1.to_dim()]
    } else {
        [grouped[rank - 3].clone(), grouped[rank - 2].clone()]
    };
    shape.splice(rank - 3..=rank - 3, heads);
    let outlet = builder.reshape(outlet, &shape)?;
    Ok(Wire { outlet, ..mask })
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

#[cfg(test)]
mod tests {
    use tract_linalg::multithread::Executor;

    use super::*;
    use crate::graph::corrections;
    use crate::graph::runner::Runner;

    const QUERIES: usize = 3;
    const KEYS: usize = 5;
    const SIZE: usize = 4;
    const WIDTH: usize = 2;

    /// Returns numbers that depend only on their position and the seed.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        let number = |at: usize| u8::try_from((at * 37 + seed * 11) % 19).unwrap_or(0);
        let numbers = (0..count).map(|at| f32::from(number(at)) / 8.0 - 1.0);
        numbers.collect()
    }

    /// Computes attention plainly: queries of `batches` and `heads`, keys and values of fewer
    /// heads, and numbers added to the scores, for as many heads as there are.
    fn expected(
        [batches, heads, of_keys]: [usize; 3],
        [q, k, v]: &[Vec<f32>; 3],
        mask: Option<&[f32]>,
    ) -> Vec<f32> {
        let mut all = Vec::new();
        for (at, query) in q.chunks(SIZE).enumerate() {
            let (head, row) = (at / QUERIES % heads, at % QUERIES);
            let group = at / QUERIES / heads * of_keys + head / (heads / of_keys);
            let keys = k[group * KEYS * SIZE..][..KEYS * SIZE].chunks(SIZE);
            let weights = keys.enumerate().map(|(place, key)| {
                let product: f32 = query.iter().zip(key).map(|(a, b)| a * b).sum();
                let added = mask.map_or(0.0, |mask| {
                    let of_heads = mask.len() / (QUERIES * KEYS);
                    mask[(head % of_heads * QUERIES + row) * KEYS + place]
                });
                (product / 2.0 + added).exp()
            });
            let weights: Vec<f32> = weights.collect();
            let sum: f32 = weights.iter().sum();
            for column in 0..WIDTH {
                let value = |place| v[(group * KEYS + place) * WIDTH + column];
                let parts = weights.iter().enumerate();
                all.push(parts.map(|(place, it)| it / sum * value(place)).sum());
            }
        }
        assert_eq!(all.len(), batches * heads * QUERIES * WIDTH);
        all
    }

    fn answer(
        lead: &[usize],
        of_keys: usize,
        tensors: &[Vec<f32>; 3],
        mask: Option<&Tensor>,
    ) -> Vec<f32> {
        let last = lead.len() - 1;
        let shape = |heads: usize, sizes: [usize; 2]| {
            let mut shape = lead.to_vec();
            shape[last] = heads;
            shape.extend(sizes);
            shape
        };
        let shapes = [
            shape(lead[last], [QUERIES, SIZE]),
            shape(of_keys, [KEYS, SIZE]),
            shape(of_keys, [KEYS, WIDTH]),
        ];
        let build = || {
            let mut builder = Builder::new();
            let mut wires = Vec::new();
            for (at, shape) in shapes.iter().enumerate() {
                let dims: Vec<TDim> = shape.iter().map(ToDim::to_dim).collect();
                wires.push(builder.source(at.to_string(), DType::Float32, &dims)?);
            }
            let dtype = |mask: &Tensor| match mask.datum_type() {
                DatumType::Bool => DType::Bool,
                _ => DType::Float32,
            };
            let mask = mask.map(|mask| {
                let dtype = dtype(mask);
                builder.constant(Arc::new(mask.clone()), dtype)
            });
            let attention = AttentionInputs {
                queries: wires[0],
                keys: wires[1],
                values: wires[2],
                mask: mask.transpose()?,
                scale: None,
            };
            let output = attention.wire(&mut builder)?;
            assert_eq!(
                builder.shape(output)?,
                shape(lead[last], [QUERIES, WIDTH])
                    .iter()
                    .map(ToDim::to_dim)
                    .collect::<Vec<TDim>>()
            );
            builder.model.select_output_outlets(&[output])?;
            Ok(builder.model)
        };
        let planned = Runner::new(
            &Executor::SingleThread,
            true,
            build,
            corrections::CORRECTIONS,
        );
        let mut runner = planned.unwrap_or_else(|unplanned| panic!("{:?}", unplanned.failure));
        let inputs = tensors.iter().zip(&shapes).map(|(values, shape)| {
            let tensor = Tensor::from_shape(shape, values);
            tensor.expect("the sizes match").into_tvalue()
        });
        let outputs = runner.run(inputs.collect(), 1).expect("it can be computed");
        let view = outputs[0].try_as_plain_ram().expect("it is in memory");
        view.as_slice::<f32>().expect("it is of float32").to_vec()
    }

    #[test]
    fn heads_share_keys_and_values() {
        for lead in [&[4][..], &[2, 4], &[1, 2, 4]] {
            for of_keys in [1, 2, 4] {
                let heads = lead[lead.len() - 1];
                let batches = lead.iter().product::<usize>() / heads;
                let tensors = [
                    numbers(batches * heads * QUERIES * SIZE, 1),
                    numbers(batches * of_keys * KEYS * SIZE, 2),
                    numbers(batches * of_keys * KEYS * WIDTH, 3),
                ];
                for of_mask in [None, Some(1), Some(heads)] {
                    let added = of_mask.map(|of_mask| numbers(of_mask * QUERIES * KEYS, 4));
                    // The first key is always visible.
                    let seen = |added: &[f32]| -> Vec<bool> {
                        let at = added.iter().enumerate();
                        at.map(|(at, it)| at % KEYS == 0 || *it > 0.0).collect()
                    };
                    let seen = added.as_deref().map(seen);
                    let shape = of_mask.map(|of_mask| [of_mask, QUERIES, KEYS]);
                    let numbers = shape.as_ref().zip(added.as_ref()).map(|(shape, added)| {
                        Tensor::from_shape(shape, added).expect("the sizes match")
                    });
                    let booleans = shape.as_ref().zip(seen.as_ref()).map(|(shape, seen)| {
                        Tensor::from_shape(shape, seen).expect("the sizes match")
                    });
                    let hidden = seen.map(|seen| -> Vec<f32> {
                        let values = seen.iter();
                        values
                            .map(|seen| if *seen { 0.0 } else { f32::NEG_INFINITY })
                            .collect()
                    });
                    for (mask, added) in [(numbers, added), (booleans, hidden)] {
                        let sizes = [batches, heads, of_keys];
                        let expected = expected(sizes, &tensors, added.as_deref());
                        let found = answer(lead, of_keys, &tensors, mask.as_ref());
                        let close = found
                            .iter()
                            .zip(&expected)
                            .all(|(a, b)| (a - b).abs() < 1e-5);
                        assert!(
                            close && found.len() == expected.len(),
                            "{lead:?}, {of_keys}, {of_mask:?}: {found:?} {expected:?}"
                        );
                    }
                }
            }
        }
    }
}
