//! Core ML image resizing.

use tract_onnx::tract_core::internal::*;

use super::held::CoremlOperand;
use super::real::check_size;
use super::{CoremlLowering, Operation, OperationTable, Results, one};
use crate::graph::builder::Wire;
use crate::graph::resize::{ResizeSampling, resize};
use crate::tensor::DType;

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[
    (&["resize"], resized),
    (&["resize_bilinear"], |lowering, operation| {
        let sampling = sampling(&lowering.text(operation, "sampling_mode", "DEFAULT")?)?;
        resize_to_target(lowering, operation, sampling)
    }),
    (&["resize_nearest_neighbor"], |lowering, operation| {
        resize_to_target(lowering, operation, ResizeSampling::NearestCentre)
    }),
    (&["upsample_bilinear"], |lowering, operation| {
        let corners = lowering.bool(operation, "align_corners", true)?;
        let centres = lowering.bool(operation, "half_pixel_centers", !corners)?;
        let sampling = match (corners, centres) {
            (true, false) => ResizeSampling::AlignedCorners,
            (false, true) => ResizeSampling::AlignedCentres { factor: None },
            (false, false) => ResizeSampling::AlignedStarts,
            (true, true) => bail!("`align_corners` and `half_pixel_centers` cannot both be true"),
        };
        resize_by_factors(lowering, operation, |_| sampling)
    }),
    (&["upsample_nearest_neighbor"], |lowering, operation| {
        resize_by_factors(lowering, operation, |factor| ResizeSampling::Nearest {
            factor,
        })
    }),
];

/// Returns the mapping of output positions to input positions for Core ML's name of it.
fn sampling(name: &str) -> TractResult<ResizeSampling> {
    Ok(match name {
        "DEFAULT" => ResizeSampling::AlignedStarts,
        "STRICT_ALIGN_CORNERS" => ResizeSampling::AlignedCorners,
        "ALIGN_CORNERS" => ResizeSampling::CornersOrMiddle,
        "UNALIGN_CORNERS" => ResizeSampling::AlignedCentres { factor: None },
        "OFFSET_CORNERS" => ResizeSampling::EqualParts,
        other => bail!("unsupported sampling mode `{other}`"),
    })
}

/// Resizes the last two dimensions.
fn apply(
    lowering: &mut CoremlLowering<'_, '_>,
    x: Wire,
    sizes: &[TDim; 2],
    sampling: [ResizeSampling; 2],
) -> Results {
    let dtype = DType::Float32;
    let x = lowering.frame.builder.cast(x, dtype)?;
    let mut shape = lowering.shape(x)?;
    let rank = shape.len();
    ensure!(
        rank > 2,
        "invalid rank of an image: expected 3 or more, got {rank}"
    );
    shape[rank - 2..].clone_from_slice(sizes);
    check_size(&shape)?;
    let builder = &mut lowering.frame.builder;
    let outlet = resize(builder, x.outlet, rank - 2, sizes, sampling)?;
    Ok(one(Wire { outlet, dtype }))
}

fn resize_to_target(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    sampling: ResizeSampling,
) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let sizes = ["target_size_height", "target_size_width"]
        .map(|name| lowering.int(operation, name, 1).map(|size| size.to_dim()));
    let [height, width] = sizes;
    apply(lowering, x, &[height?, width?], [sampling; 2])
}

fn resize_by_factors(
    lowering: &mut CoremlLowering<'_, '_>,
    operation: &Operation,
    sampling: impl Fn(Option<f32>) -> ResizeSampling,
) -> Results {
    let x = lowering.tensor(operation, "x")?;
    let shape = lowering.shape(x)?;
    let rank = shape.len();
    ensure!(
        rank > 2,
        "invalid rank of an image: expected 3 or more, got {rank}"
    );
    let mut sizes = Vec::new();
    let mut samplings = Vec::new();
    for (at, name) in ["scale_factor_height", "scale_factor_width"]
        .iter()
        .enumerate()
    {
        let factor = lowering.float(operation, name, 1.0)?;
        ensure!(
            factor > 0.0 && factor < 1e6,
            "invalid scale factor {factor}"
        );
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_precision_loss,
            reason = "sizes of an image"
        )]
        let size = match shape[rank - 2 + at].to_i64() {
            Ok(size) => ((size as f64 * factor).floor() as i64).to_dim(),
            Err(_) if factor.fract() == 0.0 => {
                (shape[rank - 2 + at].clone() * factor as i64).reduce()
            }
            Err(error) => bail!("{error}"),
        };
        sizes.push(size);
        #[expect(clippy::cast_possible_truncation, reason = "computed in float32")]
        samplings.push(sampling(Some((1.0 / factor) as f32)));
    }
    let (sizes, samplings) = (
        <[TDim; 2]>::try_from(sizes),
        <[ResizeSampling; 2]>::try_from(samplings),
    );
    let (Ok(sizes), Ok(samplings)) = (sizes, samplings) else {
        bail!("expected two scale factors");
    };
    apply(lowering, x, &sizes, samplings)
}

/// Resizes the last one or two dimensions to the end of `shape`; a size of 0 keeps the dimension.
fn resized(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let mode = lowering.text(operation, "sampling_mode", "DEFAULT")?;
    let kind = lowering.text(operation, "interpolation_mode", "LINEAR")?;
    let sampling = match kind.as_str() {
        "LINEAR" => sampling(&mode)?,
        // The positions follow from coremltools only for this mode: half-pixel centres in
        // TensorFlow's terms.
        "NEAREST_NEIGHBOR" if mode == "DEFAULT" => ResizeSampling::NearestCentre,
        _ => bail!("unsupported interpolation {kind} with sampling mode `{mode}`"),
    };
    let count = lowering.int(operation, "resized_dims", 0)?;
    let count = usize::try_from(count)?;
    let shape = lowering
        .sizes(operation, "shape")?
        .context("missing argument `shape`")?;
    let mut x = lowering.tensor(operation, "x")?;
    let own = lowering.shape(x)?;
    ensure!(
        (1..=2).contains(&count) && count <= shape.len() && count <= own.len(),
        "unsupported number of resized dimensions: {count}"
    );
    let ends = |dims: &[TDim]| dims[dims.len() - count..].to_vec();
    let wanted = ends(&shape).into_iter().zip(ends(&own));
    let mut sizes: Vec<TDim> = wanted
        .map(|(wanted, own)| if wanted == TDim::Val(0) { own } else { wanted })
        .collect();
    let mut given = own[..own.len() - count].to_vec();
    given.extend(sizes.iter().cloned());
    // Resizing needs two dimensions after at least one other.
    let mut full = vec![1.to_dim(); 3_usize.saturating_sub(own.len() + 2 - count)];
    full.extend(own[..own.len() - count].iter().cloned());
    if count == 1 {
        full.push(1.to_dim());
        sizes.insert(0, 1.to_dim());
    }
    full.extend(ends(&own));
    x = lowering.reshaped(x, &full)?;
    let Ok(sizes) = <[TDim; 2]>::try_from(sizes) else {
        bail!("expected two sizes");
    };
    let first = if count == 1 {
        ResizeSampling::AlignedCorners
    } else {
        sampling
    };
    let held = apply(lowering, x, &sizes, [first, sampling])?;
    let Some(CoremlOperand::Tensor(wire)) = held.first() else {
        bail!("resizing returned no tensor");
    };
    lowering.reshaped(*wire, &given).map(one)
}
