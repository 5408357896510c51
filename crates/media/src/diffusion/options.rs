//! Settings of diffusion.

/// Rules by which a step follows from the denoiser's output.
pub(crate) const SAMPLERS: &[&str] = &["pndm", "ddim", "euler"];

/// Predictions of the denoiser.
pub(crate) const PREDICTIONS: &[&str] = &["epsilon", "v_prediction", "sample"];

/// How the noise grows over the steps of the training.
pub(crate) const BETAS: &[&str] = &["scaled_linear", "linear", "squaredcos_cap_v2"];

/// How the steps lie among those of the training.
pub(crate) const SPACINGS: &[&str] = &["auto", "leading", "linspace", "trailing"];

/// Values of the painter's pictures: 0 to 255, −1 to 1, or 0 to 1.
pub(crate) const RANGES: &[&str] = &["auto", "levels", "signed", "unit"];

/// Settings of diffusion.
#[derive(Debug, Clone, PartialEq)]
pub struct DiffusionOptions {
    /// Weight of the text against the negative text.
    pub guidance: f64,
    /// Number of steps.
    pub steps: usize,
    /// Seed of the noise.
    pub seed: u64,
    /// The negative text: content that the picture should lack.
    pub negative: String,
    /// Width and height of the picture, 0 for the model's.
    pub size: [usize; 2],
    /// One of [`SAMPLERS`].
    pub sampler: String,
    /// One of [`PREDICTIONS`].
    pub prediction: String,
    /// One of [`BETAS`].
    pub betas: String,
    /// First and last growth of the noise.
    pub beta_range: [f64; 2],
    /// Number of steps of the training.
    pub train_steps: usize,
    /// Number that is added to each step.
    pub offset: usize,
    /// One of [`SPACINGS`].
    pub spacing: String,
    /// The step behind the last one has no noise at all.
    pub final_one: bool,
    /// Predicted pictures are cut to −1 to 1.
    pub clip: bool,
    /// Divides what the painter gets.
    pub scaling: f64,
    /// One of [`RANGES`].
    pub range: String,
}
