//! Lowers ExecuTorch's own operators for language models: KV caches, and attention over them.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::math;

use super::super::builder::{Wire, check_rank};
use super::super::frame::FrameSlot;
use super::call::{LoweringTable, OperatorCall};
use super::elements::IndexCheck;
use crate::graph::head_state::HeadState;
use crate::graph::kernel::Kernel;
use crate::graph::overwrite::Overwrite;
use crate::graph::pool::computed_anew;
use crate::tensor::DType;
use pkgtool_kernels::Cpu;
use pkgtool_kernels::float::{Attention, HeadRows, VisibleKeys};

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (&["llama::update_cache.out"], |call| {
        let position = position(call, 2)?;
        update(call, 0, 1, position, 3)
    }),
    (&["llama::update_cache_with_indices.out"], update_rows),
    (&["llama::custom_sdpa.out"], |call| {
        attention(call, [1, 2], CUSTOM_SDPA)
    }),
    (&["llama::custom_quantized_sdpa.out"], |call| {
        ensure!(
            !call.bool(14)?,
            "attention over a quantized cache with heads before positions is unsupported"
        );
        // Zero points precede scales.
        let [query, keys, values] = [(0, 8), (1, 10), (2, 12)];
        let query = dequantized(call, query)?;
        let keys = dequantized(call, keys)?;
        let values = dequantized(call, values)?;
        let at = AttentionArgs {
            out: 15,
            ..CUSTOM_SDPA
        };
        attend(call, [query, keys, values], at)
    }),
    (
        &[
            "llama::gated_delta_rule.out",
            "llama::channelwise_gated_delta_rule.out",
        ],
        gated_delta_rule,
    ),
    (&["llama::fast_hadamard_transform.out"], hadamard),
    (&["llama::sdpa_with_kv_cache.out"], |call| {
        let start = position(call, 5)?;
        update(call, 1, 3, start, 3)?;
        update(call, 2, 4, start, 4)?;
        let at = AttentionArgs {
            position: 5,
            mask: 7,
            causal: 9,
            scale: 10,
            out: 11,
        };
        attention(call, [3, 4], at)
    }),
];

/// Positions of the arguments of an attention call besides its tensors.
#[derive(Clone, Copy)]
struct AttentionArgs {
    position: usize,
    mask: usize,
    causal: usize,
    scale: usize,
    out: usize,
}

/// The arguments of `custom_sdpa`.
const CUSTOM_SDPA: AttentionArgs = AttentionArgs {
    position: 3,
    mask: 4,
    causal: 6,
    scale: 7,
    out: 8,
};

/// Returns a position in the sequence as a tensor without dimensions.
fn position(call: &mut OperatorCall<'_, '_>, at: usize) -> TractResult<OutletId> {
    call.scalar(at, DType::Int64, 0)
}

/// Writes `[batch, sequence, ..]` into a cache `[batch, most, ..]`, starting at a position.
fn update(
    call: &mut OperatorCall<'_, '_>,
    value: usize,
    cache: usize,
    position: OutletId,
    out: usize,
) -> TractResult<()> {
    let kept = call.tensor(cache)?;
    let value = call.tensor_as(value, kept.dtype)?;
    let check = call.indices(false);
    let write = Overwrite::new(1, move |inputs| {
        let given = inputs[2].cast_to_scalar::<i64>()?;
        let (Some(most), Some(length)) = (inputs[0].shape().get(1), inputs[1].shape().get(1))
        else {
            bail!("invalid rank of a cache: {}", inputs[0].rank());
        };
        Ok(span(&check, given, *length, *most)?.0)
    });
    let outlet = call.wire(write, &[kept.outlet, value, position])?;
    let wire = Wire::new(outlet, kept.dtype);
    call.set_output(cache, wire)?;
    if call.arg(out)? != call.arg(cache)? && out != cache {
        call.set_output(out, wire)?;
    }
    Ok(())
}

/// Writes rows `[batch, sequence, ..]` into a cache `[batch, most, ..]`, each at its own position.
fn update_rows(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let kept = call.tensor(1)?;
    let value = call.tensor_as(0, kept.dtype)?;
    let places = call.tensor_as(3, DType::Int64)?;
    let shape = call.frame.builder.shape(kept.outlet)?;
    let check = call.indices(false);
    let inputs = [kept.outlet, value, places];
    let wire = call.kernel("UpdateRows", kept.dtype, &shape, &inputs, move |inputs| {
        let (&[batch, most, ..], &[same, length, ..]) = (inputs[0].shape(), inputs[1].shape())
        else {
            bail!("invalid rank of a cache: {}", inputs[0].rank());
        };
        let places = inputs[2].try_as_plain_ram()?;
        let places = places.as_slice::<i64>()?;
        let rows = inputs[1].try_as_plain_ram()?;
        let mut output = Tensor::clone(&inputs[0]);
        let mut view = output.try_as_plain_ram_mut()?;
        let (from, to) = (rows.as_bytes(), view.as_bytes_mut());
        let row = from.len().checked_div(batch * length).unwrap_or(0);
        let fits =
            batch == same && places.len() == batch * length && to.len() == batch * most * row;
        ensure!(
            fits,
            "shapes of a cache, of its new rows and of their positions differ"
        );
        for (at, place) in places.iter().enumerate() {
            let place = check.place(*place, most)? + at / length * most;
            to[place * row..][..row].copy_from_slice(&from[at * row..][..row]);
        }
        Ok(output)
    })?;
    call.set_output(1, wire)?;
    call.set_output(4, wire)
}

/// Returns the start and end of `length` values in a cache of `most` values, starting at a
/// position.
fn span(check: &IndexCheck, given: i64, length: usize, most: usize) -> TractResult<(usize, usize)> {
    let start = usize::try_from(given).ok();
    let end = start.and_then(|start| start.checked_add(length));
    if let (Some(start), Some(end)) = (start, end.filter(|end| *end <= most)) {
        return Ok((start, end));
    }
    let last = i64::try_from(most)? - i64::try_from(length)?;
    let valid = if last < 0 {
        "no position is valid".to_owned()
    } else {
        format!("0 to {last} are valid")
    };
    check.reject(format!(
        "position {given} for {length} values in a cache of {most}; {valid}"
    ))
}

/// Returns the numbers of a quantized tensor, whose zero points and scales are this argument and the
/// next one: one for each vector.
fn dequantized(
    call: &mut OperatorCall<'_, '_>,
    (tensor, zero_points): (usize, usize),
) -> TractResult<OutletId> {
    let float = DType::Float32;
    let value = call.tensor_as(tensor, float)?;
    let zero_point = call.tensor_as(zero_points, float)?;
    let scale = call.tensor_as(zero_points + 1, float)?;
    let builder = call.builder();
    let [value, zero_point, scale] = builder.same_rank([value, zero_point, scale])?;
    let moved = builder.wire(math::sub(), &[value, zero_point])?;
    builder.wire(math::mul(), &[moved, scale])
}

/// Takes keys and values up into a state of each head, and reads it by queries. All tensors are
/// `[batch, heads, sequence, width]`; several query heads may share a state.
fn gated_delta_rule(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let mut inputs = Vec::new();
    for at in 0..6 {
        inputs.push(call.tensor_as(at, DType::Float32)?);
    }
    let builder = call.builder();
    let (queries, values) = (builder.shape(inputs[0])?, builder.shape(inputs[2])?);
    check_rank(&queries, 4, "queries")?;
    check_rank(&values, 4, "values")?;
    let mut output = queries;
    output[3] = values[3].clone();
    let state = builder.shape(inputs[5])?;
    let facts = [output, state].map(f32::fact);
    let kernel = Kernel::new(
        "GatedDeltaRule",
        facts.into_iter().collect(),
        |inputs: &[TValue]| Ok(delta_rule(inputs)?.into_iter().collect()),
    );
    let outlets = call.builder().wire_all(kernel, &inputs)?;
    for (at, outlet) in outlets.iter().enumerate() {
        call.set_output(6 + at, Wire::float(*outlet))?;
    }
    Ok(())
}

fn delta_rule(inputs: &[TValue]) -> TractResult<[Tensor; 2]> {
    let (&[batch, heads, length, size], &[_, states, _, width]) =
        (inputs[0].shape(), inputs[2].shape())
    else {
        bail!("expected queries and values of rank 4");
    };
    let slice = |at: usize| inputs[at].try_as_plain_ram()?.as_slice::<f32>();
    let [queries, keys, values, decay, rate] =
        [slice(0)?, slice(1)?, slice(2)?, slice(3)?, slice(4)?];
    let rows = batch * states * length;
    // A decay belongs to a row, or to each element of its key.
    let of_decay = decay.len().checked_div(rows).unwrap_or(1);
    let mut kept = Tensor::clone(&inputs[5]);
    let lengths = [keys.len(), values.len(), rate.len(), kept.len()];
    let fits = lengths
        == [
            rows * size,
            rows * width,
            rows,
            batch * states * size * width,
        ]
        && (rows == 0 || (of_decay * rows == decay.len() && (of_decay == 1 || of_decay == size)))
        && (states > 0 && heads.is_multiple_of(states));
    ensure!(fits, "shapes of the inputs do not match");
    let each = heads / states;
    let mut output = vec![0.0; batch * heads * length * width];
    let mut view = kept.try_as_plain_ram_mut()?;
    let cells = view
        .as_slice_mut::<f32>()?
        .chunks_exact_mut((size * width).max(1));
    let mut value = vec![0.0; width];
    for (head, cell) in cells.enumerate() {
        let mut cell = HeadState::new(cell, width);
        for at in 0..length {
            let row = head * length + at;
            let key = &keys[row * size..][..size];
            value.copy_from_slice(&values[row * width..][..width]);
            let factors = &decay[row * of_decay..][..of_decay];
            cell.decay(|place| factors[place.min(of_decay - 1)]);
            cell.correct(key, &mut value, rate[row]);
            cell.add(key, &value);
            for reader in head * each..(head + 1) * each {
                let row = reader * length + at;
                let to = &mut output[row * width..][..width];
                cell.read(&queries[row * size..][..size], 1.0, to);
            }
        }
    }
    let output = Tensor::from_shape(&[batch, heads, length, width], &output)?;
    Ok([output, kept])
}

/// Multiplies each row by a Hadamard matrix (Sylvester's construction) and divides it by the root
/// of its size.
#[expect(clippy::cast_precision_loss, reason = "width of vectors")]
fn hadamard(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let shape = call.frame.builder.shape(input)?;
    let width = match shape.last() {
        Some(width) => width.to_usize()?,
        None => bail!("the input has no dimensions"),
    };
    ensure!(
        width.is_power_of_two(),
        "unsupported row size {width}: expected a power of two"
    );
    let wire = call.kernel(
        "Hadamard",
        DType::Float32,
        &shape,
        &[input],
        move |inputs| {
            let mut output = Tensor::clone(&inputs[0]);
            let mut view = output.try_as_plain_ram_mut()?;
            let scale = 1.0 / (width as f32).sqrt();
            for row in view.as_slice_mut::<f32>()?.chunks_exact_mut(width) {
                let mut half = 1;
                while half < width {
                    for pair in row.chunks_exact_mut(2 * half) {
                        let (low, high) = pair.split_at_mut(half);
                        for (a, b) in low.iter_mut().zip(high) {
                            (*a, *b) = (*a + *b, *a - *b);
                        }
                    }
                    half *= 2;
                }
                for x in row {
                    *x *= scale;
                }
            }
            Ok(output)
        },
    )?;
    call.set_output(1, wire)
}

/// Computes `softmax(query · keysᵀ · scale + mask) · values` over the caches.
///
/// Without a mask, only cache entries up to the position count. All tensors are `[batch, sequence,
/// heads, width]`. Several query heads may share a cache head. The query is the first argument.
fn attention(
    call: &mut OperatorCall<'_, '_>,
    [keys, values]: [usize; 2],
    at: AttentionArgs,
) -> TractResult<()> {
    let float = DType::Float32;
    let query = call.tensor_as(0, float)?;
    let keys = call.tensor_as(keys, float)?;
    let values = call.tensor_as(values, float)?;
    attend(call, [query, keys, values], at)
}

/// Computes the attention of these queries, keys and values.
#[expect(clippy::cast_possible_truncation, reason = "a scale is a float32")]
fn attend(
    call: &mut OperatorCall<'_, '_>,
    [query, keys, values]: [OutletId; 3],
    at: AttentionArgs,
) -> TractResult<()> {
    let float = DType::Float32;
    let start = match call.slot(at.position)? {
        FrameSlot::Int(_) | FrameSlot::Number(_) => position(call, at.position)?,
        _ => bail!("the position is not an integer"),
    };
    let causal = call.bool(at.causal)?;
    let scale = call.optional_double(at.scale)?.map(|scale| scale as f32);
    let shape = call.frame.builder.shape(query)?;
    let mut inputs = vec![query, keys, values, start];
    if let Some(mask) = call.optional_tensor(at.mask)? {
        inputs.push(call.frame.builder.cast(mask, float)?.outlet);
    }
    let check = call.indices(false);
    let Wire { outlet, dtype } =
        call.kernel("Attention", float, &shape, &inputs, move |inputs| {
            let given = inputs[3].cast_to_scalar::<i64>()?;
            let sizes = (inputs[0].shape().get(1), inputs[1].shape().get(1));
            let (Some(length), Some(most)) = sizes else {
                bail!("invalid rank of attention inputs: {}", inputs[0].rank());
            };
            let (start, _) = span(&check, given, *length, *most)?;
            let mask = inputs.get(4).map(|mask| &**mask);
            Heads::new(&inputs[0], &inputs[1], &inputs[2], start)?.attend(mask, causal, scale)
        })?;
    call.set_output(at.out, Wire { outlet, dtype })
}

/// Queries, keys and values of one attention call.
struct Heads<'t> {
    query: &'t [f32],
    keys: &'t [f32],
    values: &'t [f32],
    batch: usize,
    length: usize,
    count: usize,
    shared: usize,
    width: usize,
    most: usize,
    start: usize,
}

impl<'t> Heads<'t> {
    fn new(
        query: &'t Tensor,
        keys: &'t Tensor,
        values: &'t Tensor,
        start: usize,
    ) -> TractResult<Self> {
        let (&[batch, length, heads, width], &[other, most, shared, same]) =
            (query.shape(), keys.shape())
        else {
            bail!(
                "invalid ranks of attention inputs: {} and {}",
                query.rank(),
                keys.rank()
            );
        };
        let end = start.checked_add(length).filter(|end| *end <= most);
        ensure!(
            batch == other && width == same && keys.shape() == values.shape(),
            "shapes of attention inputs differ: query {:?}, keys {:?}, values {:?}",
            query.shape(),
            keys.shape(),
            values.shape()
        );
        ensure!(
            shared > 0 && heads.is_multiple_of(shared),
            "number of query heads {heads} is not a multiple of the cache heads {shared}"
        );
        ensure!(
            end.is_some(),
            "{length} positions from {start} do not fit into a cache of {most}"
        );
        let slice = |tensor: &'t Tensor| tensor.try_as_plain_ram()?.as_slice::<f32>();
        Ok(Self {
            query: slice(query)?,
            keys: slice(keys)?,
            values: slice(values)?,
            batch,
            length,
            count: heads,
            shared,
            width,
            most,
            start,
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "width of vectors")]
    fn attend(
        &self,
        mask: Option<&Tensor>,
        causal: bool,
        scale: Option<f32>,
    ) -> TractResult<Tensor> {
        // With a mask, all keys are computed and the mask selects among them.
        let keys = match mask {
            Some(_) => self.most,
            None => self.start + self.length,
        };
        let mask = mask
            .map(|mask| Mask::new(mask, self.length, keys))
            .transpose()?;
        let heads = 0..self.batch * self.count;
        let of_heads = |rows: usize, among: usize| -> Vec<usize> {
            let of_head = |head: usize| {
                let (batch, head) = (head / self.count, head % self.count);
                (batch * rows * among + head * among / self.count) * self.width
            };
            heads.clone().map(of_head).collect()
        };
        let of_queries = of_heads(self.length, self.count);
        let of_keys = of_heads(self.most, self.shared);
        let of_mask = vec![0; heads.len()];
        let visible = causal.then(|| {
            let end = i64::try_from(self.start + 1).unwrap_or(i64::MAX);
            vec![
                VisibleKeys {
                    end,
                    ..VisibleKeys::ALL
                };
                heads.len()
            ]
        });
        let rows = 0..self.batch * self.length * self.count;
        let places = rows.map(|row| {
            let (line, head) = (row / self.count, row % self.count);
            [line / self.length * self.count + head, line % self.length]
        });
        let places: Vec<[usize; 2]> = places.collect();
        let cached = |elements| HeadRows {
            elements,
            starts: &of_keys,
            stride: self.shared * self.width,
        };
        let attention = Attention {
            queries: HeadRows {
                elements: self.query,
                starts: &of_queries,
                stride: self.count * self.width,
            },
            keys: cached(self.keys),
            values: cached(self.values),
            mask: mask.map(|mask| HeadRows {
                elements: mask.values,
                starts: &of_mask,
                stride: mask.columns,
            }),
            sizes: [self.length, keys, self.width, self.width],
            scale: scale.unwrap_or_else(|| 1.0 / (self.width as f32).sqrt()),
            score_limit: None,
            visible: visible.as_deref(),
            sinks: None,
            zeros: false,
        };
        let shape = [self.batch, self.length, self.count, self.width];
        computed_anew::<f32, f32>(&shape, &[], |_, to, split| {
            attention.run(Cpu::chosen(), &places, to, split)
        })
    }
}

/// Numbers added to the scores, from the mask's last two dimensions; all heads share one mask.
struct Mask<'t> {
    values: &'t [f32],
    columns: usize,
}

impl<'t> Mask<'t> {
    fn new(mask: &'t Tensor, rows: usize, columns: usize) -> TractResult<Self> {
        let shape = mask.shape();
        let (has, wide) = match shape {
            [.., rows, columns] => (*rows, *columns),
            _ => bail!("invalid rank of a mask: {}", shape.len()),
        };
        ensure!(
            has >= rows && wide >= columns && mask.len() == has * wide,
            "mask of shape {shape:?} does not match {rows} queries and {columns} keys"
        );
        Ok(Self {
            values: mask.try_as_plain_ram()?.as_slice::<f32>()?,
            columns: wide,
        })
    }
}
