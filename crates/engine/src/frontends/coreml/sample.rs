//! Core ML image sampling at positions given by a tensor.

use tract_onnx::tract_core::internal::*;

use super::real::check_size;
use super::{CoremlLowering, Operation, OperationTable, Results};
use crate::graph::builder::{Wire, check_rank};
use crate::graph::operators::einsum;
use crate::tensor::DType;

/// The operations of this file.
pub(super) const TABLE: OperationTable = &[(&["affine"], affine), (&["resample"], resample)];

/// Interpolation and padding modes, as numbers of `ATen`'s operator.
struct SampleModes {
    mode: i64,
    padding: i64,
    corners: bool,
}

impl SampleModes {
    fn read(lowering: &CoremlLowering<'_, '_>, operation: &Operation) -> TractResult<Self> {
        let text = |name: &str| lowering.text(operation, name, "");
        let unnormalized = text("coordinates_mode")? == "unnormalized";
        let corners = unnormalized || lowering.bool(operation, "align_corners", false)?;
        let mode = match text("sampling_mode")?.as_str() {
            "bilinear" => 0,
            "nearest" => 1,
            other => bail!("unsupported sampling mode `{other}`"),
        };
        // Reflection does not repeat the edge, symmetric padding does. `ATen`'s operator reflects
        // without repeating the edge only with aligned corners, and repeats it otherwise.
        let padding = match (text("padding_mode")?.as_str(), corners) {
            ("constant", _) => {
                let value = lowering.float(operation, "padding_value", 0.0)?;
                ensure!(value == 0.0, "unsupported padding value {value}");
                0
            }
            ("border", _) => 1,
            ("reflection", true) | ("symmetric", false) => 2,
            (other, _) => {
                bail!("unsupported padding mode `{other}` with aligned corners {corners}")
            }
        };
        Ok(Self {
            mode,
            padding,
            corners,
        })
    }

    fn apply(&self, lowering: &mut CoremlLowering<'_, '_>, x: Wire, places: Wire) -> Results {
        let args = vec![
            x.into(),
            places.into(),
            self.mode.into(),
            self.padding.into(),
            self.corners.into(),
        ];
        lowering.aten_result("aten::grid_sampler_2d.out", args, DType::Float32)
    }
}

/// Samples at the positions in a tensor, `(x, y)` each.
fn resample(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let sampling = SampleModes::read(lowering, operation)?;
    let x = lowering.tensor(operation, "x")?;
    let places = lowering.tensor(operation, "coordinates")?;
    let mut places = lowering.frame.builder.cast(places, DType::Float32)?;
    // The operator's coordinates range from -1 to 1.
    match lowering.text(operation, "coordinates_mode", "")?.as_str() {
        "normalized_minus_one_to_one" => {}
        "normalized_zero_to_one" => {
            places = lowering.binary("mul", places, 2.0)?;
            places = lowering.binary("sub", places, 1.0)?;
        }
        "unnormalized" => {
            let shape = lowering.shape(x)?;
            check_rank(&shape, 4, "an image")?;
            let sizes = [shape[3].to_i64()?, shape[2].to_i64()?];
            ensure!(
                sizes.iter().all(|size| *size > 1),
                "unsupported pixel coordinates in an image of {sizes:?}"
            );
            #[expect(clippy::cast_precision_loss, reason = "sizes of an image")]
            let steps = sizes.map(|size| 2.0 / (size - 1) as f32);
            let steps = Arc::new(tensor1(&steps));
            let steps = lowering.frame.builder.constant(steps, DType::Float32)?;
            places = lowering.binary("mul", places, steps)?;
            places = lowering.binary("sub", places, 1.0)?;
        }
        other => bail!("unsupported coordinates mode `{other}`"),
    }
    sampling.apply(lowering, x, places)
}

/// Samples at the positions of a regular grid transformed by matrices.
fn affine(lowering: &mut CoremlLowering<'_, '_>, operation: &Operation) -> Results {
    let sampling = SampleModes::read(lowering, operation)?;
    let mode = lowering.text(operation, "coordinates_mode", "")?;
    ensure!(
        mode == "normalized_minus_one_to_one" && sampling.corners,
        "unsupported coordinates mode `{mode}` of an affine transformation"
    );
    let x = lowering.tensor(operation, "x")?;
    let matrix = lowering.tensor(operation, "transform_matrix")?;
    let matrix = lowering.frame.builder.cast(matrix, DType::Float32)?;
    let sizes = ["output_height", "output_width"].map(|name| lowering.int(operation, name, 0));
    let [height, width] = sizes;
    let (height, width) = (height?, width?);
    ensure!(
        height > 0 && width > 0,
        "invalid size of the output: {height} by {width}"
    );
    check_size(&[height.to_dim(), width.to_dim()])?;
    #[expect(clippy::cast_precision_loss, reason = "positions in an image")]
    let place = |at: i64, size: i64| match size {
        1 => 0.0,
        _ => 2.0 * at as f32 / (size - 1) as f32 - 1.0,
    };
    let rows = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let grid: Vec<f32> = rows
        .flat_map(|(x, y)| [place(x, width), place(y, height), 1.0])
        .collect();
    let count = usize::try_from(height * width)?;
    let grid = Arc::new(Tensor::from_shape(&[count, 3], &grid)?);
    let grid = lowering.frame.builder.constant(grid, DType::Float32)?;
    let shape = lowering.shape(matrix)?;
    ensure!(
        shape.len() == 2 && shape[1] == 6.to_dim(),
        "invalid shape of the transformation matrices: {shape:?}"
    );
    let batch = shape[0].clone();
    let matrix = lowering.reshaped(matrix, &[batch.clone(), 2.to_dim(), 3.to_dim()])?;
    let builder = &mut lowering.frame.builder;
    let inputs = [grid.outlet, matrix.outlet];
    let outlet = einsum(builder, "pk,bck->bpc", &inputs, DType::Float32)?;
    let mut to = [batch, height.to_dim(), width.to_dim(), 2.to_dim()];
    let outlet = builder.reshape(outlet, &to)?;
    // One matrix may apply to all images.
    to[0] = builder
        .shape(x.outlet)?
        .first()
        .cloned()
        .unwrap_or_default();
    let outlet = builder.expand(outlet, &to)?;
    let places = Wire { outlet, ..grid };
    sampling.apply(lowering, x, places)
}
