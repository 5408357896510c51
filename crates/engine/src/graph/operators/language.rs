//! Lowers ExecuTorch's own operators for language models: KV caches, and attention over them.

use tract_onnx::tract_core::internal::*;

use super::super::builder::Wire;
use super::super::frame::FrameSlot;
use super::call::{LoweringTable, OperatorCall};
use super::elements::IndexCheck;
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
    (&["llama::custom_sdpa.out"], |call| {
        attention(
            call,
            AttentionArgs {
                keys: 1,
                values: 2,
                position: 3,
                mask: 4,
                causal: 6,
                scale: 7,
                out: 8,
            },
        )
    }),
    (&["llama::fast_hadamard_transform.out"], hadamard),
    (&["llama::sdpa_with_kv_cache.out"], |call| {
        let start = position(call, 5)?;
        update(call, 1, 3, start, 3)?;
        update(call, 2, 4, start, 4)?;
        attention(
            call,
            AttentionArgs {
                keys: 3,
                values: 4,
                position: 5,
                mask: 7,
                causal: 9,
                scale: 10,
                out: 11,
            },
        )
    }),
];

/// Positions of the arguments of an attention call; the query is the first argument.
#[derive(Clone, Copy)]
struct AttentionArgs {
    keys: usize,
    values: usize,
    position: usize,
    mask: usize,
    causal: usize,
    scale: usize,
    out: usize,
}

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
/// heads, width]`. Several query heads may share a cache head.
#[expect(clippy::cast_possible_truncation, reason = "a scale is a float32")]
fn attention(call: &mut OperatorCall<'_, '_>, at: AttentionArgs) -> TractResult<()> {
    let float = DType::Float32;
    let query = call.tensor_as(0, float)?;
    let keys = call.tensor_as(at.keys, float)?;
    let values = call.tensor_as(at.values, float)?;
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
