//! Vulkan rotary embeddings: rotate pairs of numbers by angles given as cosines and sines.

use tract_onnx::tract_core::internal::*;

use super::args::at;
use super::{VulkanLowering, VulkanValue, WrittenResult};
use crate::graph::builder::{Wire, check_rank, ranked};
use crate::graph::calling::CallArg;
use crate::tensor::DType;

/// Rotation of rows `[batch, position, head, size]` by angles `[position, head or 1, number]`.
#[derive(Clone, Copy)]
struct RotaryTurn {
    /// Number of elements of a row that are rotated.
    size: usize,
    /// Whether neighbours form pairs, with one angle each. Otherwise element i pairs with element i
    /// of the second half, each with its own angle.
    neighbours: bool,
}

/// Rotates queries and keys by neighbouring pairs; angles are `[position, pair]` or `[position,
/// head, pair]`.
pub(super) fn rotate_neighbours(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
) -> WrittenResult {
    let angles = [2, 3].map(|place| lowering.tensor(at(args, place)?));
    let [cos, sin] = angles;
    let angles = [
        with_head_dim(lowering, cos?)?,
        with_head_dim(lowering, sin?)?,
    ];
    for (place, result) in two_results(lowering, out)?.into_iter().enumerate() {
        let x = lowering.tensor(at(args, place)?)?;
        let width = width(lowering, x)?;
        let turn = RotaryTurn {
            size: width,
            neighbours: true,
        };
        let wire = turn.wire(lowering, x, angles)?;
        lowering.set(result, wire)?;
    }
    Ok(())
}

/// Rotates queries and keys by halves; angles are rows of a table, starting at a position.
pub(super) fn rotate_halves(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
) -> WrittenResult {
    let x = lowering.tensor(at(args, 0)?)?;
    let shape = lowering.builder.shape(x.outlet)?;
    let count = shape
        .get(1)
        .cloned()
        .context("the input of a rotary embedding has only one dimension")?;
    let first = lowering.arg(at(args, 4)?)?;
    let mut angles = Vec::new();
    for place in [2, 3] {
        let table = lowering.tensor(at(args, place)?)?;
        let args = vec![
            table.into(),
            0.into(),
            first.clone(),
            CallArg::Int(count.clone()),
        ];
        let name = "aten::narrow_copy.out";
        let rows = lowering.aten(name, args, table.dtype)?;
        angles.push(with_head_dim(lowering, rows)?);
    }
    let &[cos, sin] = angles.as_slice() else {
        bail!("the angles are missing");
    };
    let size = width(lowering, cos)?;
    for (place, result) in two_results(lowering, out)?.into_iter().enumerate() {
        let x = lowering.tensor(at(args, place)?)?;
        let turn = RotaryTurn {
            size,
            neighbours: false,
        };
        let wire = turn.wire(lowering, x, [cos, sin])?;
        lowering.set(result, wire)?;
    }
    Ok(())
}

/// Rotates rows `[batch, position, size]` by neighbouring pairs; angles are pairs of cosine and
/// sine.
pub(super) fn rotate_interleaved(
    lowering: &mut VulkanLowering<'_>,
    args: &[usize],
    out: usize,
) -> WrittenResult {
    let x = lowering.tensor(at(args, 0)?)?;
    let table = lowering.tensor(at(args, 1)?)?;
    let builder = &mut *lowering.builder;
    let shape = builder.shape(x.outlet)?;
    let [_, places, size] = ranked(&shape, "a rotary embedding")?;
    let size = size.to_usize()?;
    let dims = [places.clone(), 1.to_dim(), (size / 2).to_dim(), 2.to_dim()];
    let pairs = builder.reshape(table.outlet, &dims)?;
    let mut angles = [table; 2];
    for (place, wire) in angles.iter_mut().enumerate() {
        let part = builder.slice(pairs, 3, place, place + 1)?;
        wire.outlet = builder.remove(part, &[3])?;
    }
    let rows = Wire {
        outlet: builder.wire(AxisOp::Add(2), &[x.outlet])?,
        ..x
    };
    let turn = RotaryTurn {
        size,
        neighbours: true,
    };
    let mut wire = turn.wire(lowering, rows, angles)?;
    wire.outlet = lowering.builder.remove(wire.outlet, &[2])?;
    lowering.set(out, wire)
}

/// Returns both results of a call.
fn two_results(lowering: &VulkanLowering<'_>, out: usize) -> TractResult<[usize; 2]> {
    match &lowering.graph.values[out] {
        VulkanValue::Values(values) => match values.as_slice() {
            &[first, second] => Ok([first, second]),
            _ => bail!(
                "wrong number of results: got {}, expected two",
                values.len()
            ),
        },
        _ => bail!("expected two results, got one"),
    }
}

/// Returns the size of a row.
fn width(lowering: &VulkanLowering<'_>, wire: Wire) -> TractResult<usize> {
    let shape = lowering.builder.shape(wire.outlet)?;
    Ok(shape
        .last()
        .context("the input has no dimensions")?
        .to_usize()?)
}

/// Adds a dimension for heads to angles `[position, number]`, if it is missing.
fn with_head_dim(lowering: &mut VulkanLowering<'_>, angles: Wire) -> TractResult<Wire> {
    let rank = lowering.builder.rank(angles.outlet)?;
    ensure!(
        (2..=3).contains(&rank),
        "invalid rank of angles: expected 2 or 3, got {rank}"
    );
    if rank == 3 {
        return Ok(angles);
    }
    let outlet = lowering.builder.wire(AxisOp::Add(1), &[angles.outlet])?;
    Ok(Wire { outlet, ..angles })
}

impl RotaryTurn {
    fn wire(
        self,
        lowering: &mut VulkanLowering<'_>,
        x: Wire,
        angles: [Wire; 2],
    ) -> TractResult<Wire> {
        let builder = &mut *lowering.builder;
        let float = DType::Float32;
        let [cos, sin] = angles;
        let mut inputs = Vec::new();
        for wire in [x, cos, sin] {
            inputs.push(builder.cast(wire, float)?.outlet);
        }
        let shape = builder.shape(inputs[0])?;
        check_rank(&shape, 4, "a rotary embedding")?;
        let wanted = if self.neighbours {
            self.size / 2
        } else {
            self.size
        };
        for outlet in &inputs[1..] {
            let of_angles = builder.shape(*outlet)?;
            ensure!(
                of_angles[0] == shape[1]
                    && (of_angles[1].is_one() || of_angles[1] == shape[2])
                    && of_angles[2] == wanted.to_dim(),
                "angles of shape {of_angles:?} do not match rows of shape {shape:?}"
            );
        }
        builder.kernel("Rotary", float, &shape, &inputs, move |inputs| {
            self.rows(&inputs[0], &inputs[1], &inputs[2])
        })
    }

    fn rows(self, x: &Tensor, cos: &Tensor, sin: &Tensor) -> TractResult<Tensor> {
        let &[_, places, heads, width] = x.shape() else {
            bail!(
                "invalid rank of a rotary embedding: expected 4, got {}",
                x.rank()
            );
        };
        ensure!(
            self.size <= width && self.size.is_multiple_of(2),
            "invalid rotary size {} for rows of {width}",
            self.size
        );
        let (of_heads, count) = (cos.shape()[1], cos.shape()[2]);
        let (cos, sin) = (cos.try_as_plain_ram()?, sin.try_as_plain_ram()?);
        let (cos, sin) = (cos.as_slice::<f32>()?, sin.as_slice::<f32>()?);
        let mut turned = Tensor::clone(x);
        let mut view = turned.try_as_plain_ram_mut()?;
        let rows = view.as_slice_mut::<f32>()?.chunks_mut(width.max(1));
        let half = self.size / 2;
        for (row, numbers) in rows.enumerate() {
            let (place, head) = (row / heads % places, row % heads);
            let head = if of_heads == 1 { 0 } else { head };
            let first = (place * of_heads + head) * count;
            for at in 0..half {
                let ([a, b], [of_a, of_b]) = if self.neighbours {
                    ([2 * at, 2 * at + 1], [at, at])
                } else {
                    ([at, at + half], [at, at + half])
                };
                let (x, y) = (numbers[a], numbers[b]);
                numbers[a] = x * cos[first + of_a] - y * sin[first + of_a];
                numbers[b] = y * cos[first + of_b] + x * sin[first + of_b];
            }
        }
        Ok(turned)
    }
}
