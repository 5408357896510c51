//! The denoiser and the painter that a recipe needs beside its encoder of texts.

use pkgtool_engine::tensor::{DType, Signature, Tensor, TensorSpec};
use pkgtool_model::Dim;

use super::{FittedRecipe, Match};
use crate::diffusion::{DiffusionOptions, PromptTokens};
use crate::operators::Symbols;

/// What is known of a denoiser and a painter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittedDiffusion {
    /// Number of texts that the denoiser takes at once: 1 or 2.
    pub(crate) batch: usize,
    /// Channels of the latents.
    pub(crate) channels: usize,
    /// Height and width of the latents, if the models have fixed ones.
    pub(crate) sides: [Option<usize>; 2],
    /// Pixels of a side for each number of the latents, if the painter has fixed sizes.
    pub(crate) factor: Option<usize>,
    /// Dtypes of the denoiser's inputs.
    pub(crate) latents: DType,
    pub(crate) time: DType,
    pub(crate) states: DType,
    /// Shape of the denoiser's input for the time.
    pub(crate) time_shape: Vec<u64>,
    /// Dtype of the painter's input.
    pub(crate) painter: DType,
}

impl Match {
    /// Returns whether a method of a component is the denoiser or painter that the pattern describes.
    pub(super) fn is_of(&self, component: Option<&str>, signature: &Signature) -> bool {
        self.fits(component, signature, &mut Symbols::new())
    }
}

impl FittedDiffusion {
    /// Describes a denoiser and a painter that fit their patterns; `None` if they do not fit each other.
    pub fn of(denoiser: &Signature, painter: &Signature) -> Option<Self> {
        let [latents, time, states] = &denoiser.inputs[..] else {
            return None;
        };
        let (painted, picture) = (painter.inputs.first()?, painter.outputs.first()?);
        let batch = fixed(latents, 4).unwrap_or(1);
        let channels = fixed(latents, 3).or_else(|| fixed(painted, 3)).unwrap_or(4);
        let sides = [2, 1].map(|place| fixed(latents, place).or_else(|| fixed(painted, place)));
        let rows = match [3, 1].map(|place| fixed(picture, place)) {
            [Some(3), _] => fixed(picture, 2),
            [rows, Some(3) | None] => rows,
            _ => return None,
        };
        let factor = rows
            .zip(fixed(painted, 2))
            .map(|(rows, of)| rows / of.max(1));
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
            painter: painted.dtype,
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

impl FittedRecipe {
    /// Converts the tokens of a text to the encoder's inputs.
    pub(crate) fn prompt_inputs(&self, tokens: &PromptTokens) -> Result<Vec<Tensor>, String> {
        self.preparation.prompt(tokens)
    }

    /// Returns the number of tokens that the encoder takes.
    pub fn prompt_length(&self) -> Result<usize, String> {
        self.preparation.prompt_length()
    }

    /// Returns the settings of diffusion.
    pub fn diffusion_options(&self) -> Result<DiffusionOptions, String> {
        let arguments = self.last_arguments()?;
        let word = |name: &str| arguments.word(name).to_owned();
        Ok(DiffusionOptions {
            guidance: arguments.number("guidance"),
            steps: arguments.whole("steps"),
            seed: arguments.whole("seed") as u64,
            negative: word("negative"),
            size: [arguments.whole("width"), arguments.whole("height")],
            sampler: word("sampler"),
            prediction: word("prediction"),
            betas: word("betas"),
            beta_range: [arguments.number("beta_start"), arguments.number("beta_end")],
            train_steps: arguments.whole("train_steps"),
            offset: arguments.whole("offset"),
            spacing: word("spacing"),
            final_one: arguments.flag("final_one"),
            clip: arguments.flag("clip"),
            scaling: arguments.number("scaling"),
            range: word("range"),
        })
    }
}
