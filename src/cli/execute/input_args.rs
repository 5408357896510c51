//! Arguments that say what a model is fed.

use crate::tensor::input::{DIM_HELP, INPUT_HELP, InputArgs};

/// Inputs and dynamic dimensions.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Inputs")]
pub(super) struct InputOptions {
    #[arg(long = "input", short = 'i', value_name = "[NAME|INDEX=]VALUE", help = INPUT_HELP)]
    inputs: Vec<String>,

    #[arg(long = "dim", value_name = "NAME|INDEX=N", help = DIM_HELP)]
    dims: Vec<String>,

    /// Subtracted from an image's values, one number or one a channel
    #[arg(
        long,
        value_name = "M,…",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    mean: Vec<f32>,

    /// What an image's values are divided by, one number or one a channel
    #[arg(long, value_name = "S,…", value_delimiter = ',')]
    std: Vec<f32>,
}

impl InputOptions {
    /// For the runtime.
    pub(super) fn to_args(&self) -> InputArgs {
        InputArgs {
            inputs: self.inputs.clone(),
            dims: self.dims.clone(),
            mean: self.mean.clone(),
            std: self.std.clone(),
            default: None,
            memory: None,
            held: 0,
            pixels: None,
        }
    }
}
