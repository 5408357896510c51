//! Lowers image operators: resizing, padding, grid sampling.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::array::{Pad, PadMode};

use super::super::builder::{Wire, check_rank};
use super::super::resize::{ResizeSampling, resize};
use super::call::{LoweringTable, OperatorCall};
use crate::tensor::DType;

/// The operators of this file.
pub(super) const TABLE: LoweringTable = &[
    (&["aten::upsample_nearest2d.vec_out"], |call| {
        upsample(call, 2, [|factor| ResizeSampling::Nearest { factor }; 2])
    }),
    (&["aten::upsample_bilinear2d.vec_out"], |call| {
        if call.bool(2)? {
            upsample(call, 3, [|_| ResizeSampling::AlignedCorners; 2])
        } else {
            upsample(
                call,
                3,
                [|factor| ResizeSampling::AlignedCentres { factor }; 2],
            )
        }
    }),
    (&["aten::_upsample_bilinear2d_aa.out"], upsample_antialiased),
    (&["aten::grid_sampler_2d.out"], grid),
    (
        &[
            "aten::reflection_pad1d.out",
            "aten::reflection_pad2d.out",
            "aten::reflection_pad3d.out",
        ],
        |call| pad(call, PadMode::Reflect),
    ),
    (
        &[
            "aten::replication_pad1d.out",
            "aten::replication_pad2d.out",
            "aten::replication_pad3d.out",
        ],
        |call| pad(call, PadMode::Edge),
    ),
];

/// Lowers resizing. Arguments: image, optional sizes, and optional scale factors at `factors`.
fn upsample(
    call: &mut OperatorCall<'_, '_>,
    factors: usize,
    sampling: [fn(Option<f32>) -> ResizeSampling; 2],
) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let shape = call.frame.builder.shape(input)?;
    check_rank(&shape, 4, "an image")?;
    let scales = call.doubles(factors)?;
    let mut sizes = [shape[2].clone(), shape[3].clone()];
    let mut ratios = [None, None];
    if call.is_none(1)? {
        let scales = scales.filter(|scales| scales.len() == 2);
        let Some(scales) = scales else {
            bail!("both sizes and scale factors are missing")
        };
        for at in 0..2 {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_precision_loss,
                reason = "sizes of an image"
            )]
            let size = match sizes[at].to_i64() {
                Ok(size) => ((size as f64 * scales[at]).floor() as i64).to_dim(),
                Err(_) if scales[at].fract() == 0.0 => {
                    (sizes[at].clone() * scales[at] as i64).reduce()
                }
                Err(error) => bail!("{error}"),
            };
            sizes[at] = size;
            #[expect(
                clippy::cast_possible_truncation,
                reason = "the runtime computes in float32"
            )]
            let ratio = (1.0 / scales[at]) as f32;
            ratios[at] = Some(ratio);
        }
    } else {
        let wanted = call.dims(1)?;
        let Ok(wanted) = <[TDim; 2]>::try_from(wanted) else {
            bail!("expected 2 sizes of an image")
        };
        sizes = wanted;
    }
    let sampling = [sampling[0](ratios[0]), sampling[1](ratios[1])];
    let outlet = resize(&mut call.frame.builder, input, 2, &sizes, sampling)?;
    call.set_result(Wire::float(outlet))
}

/// Lowers antialiased resizing. Arguments: image, sizes, aligned corners, optional factors of
/// height and width.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the runtime computes in float32"
)]
fn upsample_antialiased(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let shape = call.frame.builder.shape(input)?;
    check_rank(&shape, 4, "an image")?;
    let Ok(sizes) = <[TDim; 2]>::try_from(call.dims(1)?) else {
        bail!("expected 2 sizes of an image")
    };
    let corners = call.bool(2)?;
    let mut sampling = [ResizeSampling::AlignedCorners; 2];
    for (sampling, at) in sampling.iter_mut().zip([3, 4]) {
        let factor = call.optional_double(at)?.map(|scale| (1.0 / scale) as f32);
        *sampling = ResizeSampling::Covered { factor, corners };
    }
    let outlet = resize(&mut call.frame.builder, input, 2, &sizes, sampling)?;
    call.set_result(Wire::float(outlet))
}

/// Sampling of images between their pixels and outside of them.
#[derive(Clone, Copy)]
struct ImageSampler {
    /// 0 bilinear, 1 nearest, 2 bicubic.
    mode: i64,
    /// 0 zeros, 1 border, 2 reflection.
    padding: i64,
    corners: bool,
}

fn grid(call: &mut OperatorCall<'_, '_>) -> TractResult<()> {
    let input = call.tensor_as(0, DType::Float32)?;
    let grid = call.tensor_as(1, DType::Float32)?;
    let sampler = ImageSampler {
        mode: call.int(2)?,
        padding: call.int(3)?,
        corners: call.bool(4)?,
    };
    ensure!(
        (0..=2).contains(&sampler.mode) && (0..=2).contains(&sampler.padding),
        "invalid sampling: interpolation mode {}, padding mode {}",
        sampler.mode,
        sampler.padding
    );
    let (image, places) = (
        call.frame.builder.shape(input)?,
        call.frame.builder.shape(grid)?,
    );
    ensure!(
        image.len() == 4 && places.len() == 4,
        "invalid rank of an image or grid: expected 4, the image has {}",
        image.len()
    );
    let shape = [
        image[0].clone(),
        image[1].clone(),
        places[1].clone(),
        places[2].clone(),
    ];
    let inputs = [input, grid];
    let wire = call.kernel(
        "GridSample",
        DType::Float32,
        &shape,
        &inputs,
        move |inputs| {
            let (image, grid) = (&inputs[0], &inputs[1]);
            let (from, to) = (image.shape(), grid.shape());
            ensure!(
                to[0] == from[0] && to[3] == 2,
                "grid of shape {to:?} does not match the image of shape {from:?}"
            );
            let (image, grid) = (image.try_as_plain_ram()?, grid.try_as_plain_ram()?);
            let (pixels, places) = (image.as_slice::<f32>()?, grid.as_slice::<f32>()?);
            let area = (from[2] * from[3]).max(1);
            let mut output = Vec::new();
            for (at, plane) in pixels.chunks(area).enumerate() {
                let batch = at / from[1].max(1);
                let points = to[1] * to[2];
                for point in places[batch * points * 2..(batch + 1) * points * 2].chunks(2) {
                    output.push(sampler.at(plane, [from[2], from[3]], [point[1], point[0]]));
                }
            }
            Tensor::from_shape(&[from[0], from[1], to[1], to[2]], &output)
        },
    )?;
    call.set_output(5, wire)
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::manual_midpoint,
    reason = "positions in an image, computed as the runtime does"
)]
impl ImageSampler {
    /// Returns the value at a position; both coordinates are from -1 to 1.
    fn at(self, plane: &[f32], size: [usize; 2], place: [f32; 2]) -> f32 {
        let mut found = [0.0; 2];
        for axis in 0..2 {
            let size = size[axis] as f32;
            found[axis] = if self.corners {
                (place[axis] + 1.0) / 2.0 * (size - 1.0)
            } else {
                ((place[axis] + 1.0) * size - 1.0) / 2.0
            };
            // Bicubic sampling instead pads each pixel that it reads.
            if self.mode != 2 {
                found[axis] = self.padded(found[axis], size);
            }
        }
        match self.mode {
            0 => self.blended(plane, size, found, 0, |t| vec![1.0 - t, t]),
            1 => {
                let nearest = found.map(f32::round_ties_even);
                self.pixel(plane, size, nearest)
            }
            _ => self.blended(plane, size, found, 1, |t| cubic(t).to_vec()),
        }
    }

    /// Maps a coordinate into the image, unless padding is zeros.
    fn padded(self, x: f32, size: f32) -> f32 {
        match self.padding {
            1 => x.clamp(0.0, (size - 1.0).max(0.0)),
            2 => {
                let (low, high) = if self.corners {
                    (0.0, size - 1.0)
                } else {
                    (-0.5, size - 0.5)
                };
                let span = high - low;
                if span <= 0.0 {
                    return 0.0;
                }
                let distance = (x - low).abs();
                let rest = distance % span;
                let flips = (distance / span) as i64;
                let turned = if flips % 2 == 0 {
                    rest + low
                } else {
                    span - rest + low
                };
                turned.clamp(0.0, size - 1.0)
            }
            _ => x,
        }
    }

    fn pixel(self, plane: &[f32], size: [usize; 2], place: [f32; 2]) -> f32 {
        let mut place = place;
        if self.mode == 2 {
            place = [
                self.padded(place[0], size[0] as f32),
                self.padded(place[1], size[1] as f32),
            ];
        }
        let inside = (0..2).all(|axis| place[axis] >= 0.0 && place[axis] < size[axis] as f32);
        if !inside {
            return 0.0;
        }
        let (row, column) = (place[0] as usize, place[1] as usize);
        plane.get(row * size[1] + column).copied().unwrap_or(0.0)
    }

    /// Returns the weighted sum of the pixels around a position; the first one is `before` the
    /// position.
    fn blended(
        self,
        plane: &[f32],
        size: [usize; 2],
        place: [f32; 2],
        before: u8,
        weights: impl Fn(f32) -> Vec<f32>,
    ) -> f32 {
        let first = place.map(f32::floor);
        let down = weights(place[0] - first[0]);
        let across = weights(place[1] - first[1]);
        let mut sum = 0.0;
        for (i, down) in down.iter().enumerate() {
            for (j, across) in across.iter().enumerate() {
                let row = first[0] - f32::from(before) + i as f32;
                let column = first[1] - f32::from(before) + j as f32;
                sum += self.pixel(plane, size, [row, column]) * down * across;
            }
        }
        sum
    }
}

/// Returns the weights of four neighbours for a position between the inner two.
fn cubic(t: f32) -> [f32; 4] {
    const A: f32 = -0.75;
    let near = |x: f32| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f32| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
}

fn pad(call: &mut OperatorCall<'_, '_>, mode: PadMode) -> TractResult<()> {
    let input = call.tensor(0)?;
    let rank = call.rank(input)?;
    let pads = call.sizes(1)?;
    ensure!(
        pads.len().is_multiple_of(2) && pads.len() <= 2 * rank,
        "invalid number of paddings: {}",
        pads.len()
    );
    let mut all = vec![(0, 0); rank];
    for (pair, both) in pads.chunks(2).enumerate() {
        all[rank - 1 - pair] = (both[0], both[1]);
    }
    let outlet = call.wire(Pad { pads: all, mode }, &[input.outlet])?;
    call.set_output(2, Wire::new(outlet, input.dtype))
}
