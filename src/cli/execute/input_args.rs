//! Command line options for the inputs of a model.

use pkgtool_engine::tensor::input::{DIM_HELP, INPUT_HELP, InputArgs};

/// Options for inputs and dynamic dimensions.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Inputs")]
pub(super) struct InputOptions {
    #[arg(long = "input", short = 'i', value_name = "[NAME|INDEX=]VALUE", help = INPUT_HELP)]
    inputs: Vec<String>,

    #[arg(long = "dim", value_name = "NAME|INDEX=N", help = DIM_HELP)]
    dims: Vec<String>,

    /// Mean to subtract from image values: one number, or one per channel
    #[arg(
        long,
        value_name = "M,…",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    mean: Vec<f32>,

    /// Standard deviation to divide image values by: one number, or one per channel
    #[arg(long, value_name = "S,…", value_delimiter = ',')]
    std: Vec<f32>,
}

impl InputOptions {
    /// Converts the options to those of the runtime.
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
