//! Tests of tensors: inputs and outputs as files and texts.

mod coupled;
mod image;
mod input;
mod npy;
mod output;

use pkgtool_engine::tensor::input::InputArgs;

fn args(inputs: &[&str], dims: &[&str]) -> InputArgs {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    InputArgs {
        inputs: texts(inputs),
        dims: texts(dims),
        ..InputArgs::default()
    }
}
