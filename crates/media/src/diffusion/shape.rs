//! Sizes and dtypes in the signatures of a denoiser and a painter.

use pkgtool_engine::tensor::{DType, Signature, TensorSpec};
use pkgtool_model::Dim;

/// Sizes and dtypes of a denoiser and a painter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffusionShape {
    /// Number of texts that the denoiser takes at once: 1 or 2.
    pub(super) batch: usize,
    /// Channels of the latents.
    pub(super) channels: usize,
    /// Height and width of the latents, if the models have fixed ones.
    pub(super) sides: [Option<usize>; 2],
    /// Pixels of a side for each number of the latents, if the painter has fixed sizes.
    pub(super) factor: Option<usize>,
    /// Dtypes of the denoiser's inputs.
    pub(super) latents: DType,
    pub(super) time: DType,
    pub(super) states: DType,
    /// Shape of the denoiser's input for the time.
    pub(super) time_shape: Vec<u64>,
    /// Dtype of the painter's input.
    pub(super) painter: DType,
}

impl DiffusionShape {
    /// Describes a denoiser and a painter that fit their patterns; `None` if they do not fit each other.
    pub fn of(denoiser: &Signature, painter: &Signature) -> Option<Self> {
        let [latents, time, states] = &denoiser.inputs[..] else {
            return None;
        };
        let (given, picture) = (painter.inputs.first()?, painter.outputs.first()?);
        let batch = fixed(latents, 4).unwrap_or(1);
        let channels = match [latents, given].map(|spec| fixed(spec, 3)) {
            // The encoder of the autoencoder takes pictures.
            [Some(predicted), Some(taken)] if predicted != taken => return None,
            [predicted, taken] => predicted.or(taken).unwrap_or(4),
        };
        let sides = [2, 1].map(|place| fixed(latents, place).or_else(|| fixed(given, place)));
        let rows = match [3, 1].map(|place| fixed(picture, place)) {
            [Some(3), _] => fixed(picture, 2),
            [rows, Some(3) | None] => rows,
            _ => return None,
        };
        let factor = rows.zip(fixed(given, 2)).map(|(rows, of)| rows / of.max(1));
        let dims = time.dims.as_deref()?.iter();
        let time_shape = dims.map(|dim| match dim {
            Dim::Fixed(size) => *size,
            _ => batch as u64,
        });
        Some(Self {
            batch: Some(batch).filter(|batch| [1, 2].contains(batch))?,
            channels,
            sides,
            factor: factor.filter(|factor| *factor > 0),
            latents: latents.dtype,
            time: time.dtype,
            states: states.dtype,
            time_shape: time_shape.collect(),
            painter: given.dtype,
        })
    }
}

/// Returns the size at a place counted from behind, from 1, if it is fixed.
fn fixed(spec: &TensorSpec, place: usize) -> Option<usize> {
    let dims = spec.dims.as_deref()?;
    match dims.get(dims.len().checked_sub(place)?)? {
        Dim::Fixed(size) => usize::try_from(*size).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signature(inputs: &[&[u64]], output: &[u64]) -> Signature {
        let spec = |dims: &&[u64]| TensorSpec {
            name: "x".to_owned(),
            dtype: DType::Float32,
            dims: Some(dims.iter().map(|size| open_or_fixed(*size)).collect()),
            fixed: None,
            pixels: None,
        };
        Signature {
            method: "forward".to_owned(),
            inputs: inputs.iter().map(spec).collect(),
            outputs: vec![spec(&output)],
        }
    }

    /// Returns a size; 0 is an open one.
    fn open_or_fixed(size: u64) -> Dim {
        if size == 0 {
            return Dim::Dynamic {
                bound: None,
                name: None,
                allowed: None,
            };
        }
        Dim::Fixed(size)
    }

    #[test]
    fn published_models_are_understood() {
        // Sizes of the denoiser's inputs, of the painter's input and output, and what they mean: texts at once, sides, factor.
        type Case<'c> = (
            &'c [&'c [u64]],
            &'c [u64],
            &'c [u64],
            Option<(usize, [Option<usize>; 2], Option<usize>)>,
        );
        let cases: [Case<'_>; 6] = [
            (
                &[&[2, 4, 32, 32], &[1], &[2, 77, 768]],
                &[1, 4, 32, 32],
                &[256, 256, 3],
                Some((2, [Some(32); 2], Some(8))),
            ),
            (
                &[&[1, 4, 8, 8], &[1, 1], &[1, 8, 16]],
                &[1, 4, 8, 8],
                &[1, 3, 32, 32],
                Some((1, [Some(8); 2], Some(4))),
            ),
            (
                &[&[0, 4, 0, 0], &[0], &[0, 0, 768]],
                &[0, 4, 0, 0],
                &[0, 3, 0, 0],
                Some((1, [None; 2], None)),
            ),
            (
                &[&[0, 4, 0, 0], &[0], &[0, 0, 768]],
                &[0, 3, 0, 0],
                &[0, 4, 0, 0],
                None,
            ),
            (
                &[&[3, 4, 8, 8], &[1], &[3, 8, 16]],
                &[1, 4, 8, 8],
                &[1, 3, 32, 32],
                None,
            ),
            (
                &[&[1, 4, 8, 8], &[1], &[1, 8, 16]],
                &[1, 4, 8, 8],
                &[1, 1, 32, 32],
                None,
            ),
        ];
        for (denoiser, given, picture, expected) in cases {
            let shape =
                DiffusionShape::of(&signature(denoiser, &[1]), &signature(&[given], picture));
            let found = shape.map(|it| (it.batch, it.sides, it.factor));
            assert_eq!(found, expected, "{denoiser:?} {given:?} {picture:?}");
        }
    }
}
