//! Tests of recipes through the public interface.

mod hostile;
mod recipes;
mod resize;
mod sounds;
mod speech;

use pkgtool_engine::tensor::{DType, Signature, TensorSpec};
use pkgtool_media::recipe::CandidateModel;
use pkgtool_model::Dim;

/// Builds the signature of a method with float32 tensors of these shapes; 0 is an open size.
fn signature(inputs: &[&[u64]], outputs: &[&[u64]]) -> Signature {
    let dim = |size: &u64| match size {
        0 => Dim::Dynamic {
            bound: None,
            name: None,
            allowed: None,
        },
        size => Dim::Fixed(*size),
    };
    let specs = |shapes: &[&[u64]]| {
        let specs = shapes.iter().enumerate().map(|(place, shape)| TensorSpec {
            name: format!("tensor_{place}"),
            dtype: DType::Float32,
            dims: Some(shape.iter().map(dim).collect()),
            fixed: None,
            pixels: None,
        });
        specs.collect()
    };
    Signature {
        method: "forward".to_owned(),
        inputs: specs(inputs),
        outputs: specs(outputs),
    }
}

/// Describes a model of one family and capability.
fn facts<'a>(
    capability: &'a [String],
    family: &'a str,
    signature: &'a Signature,
) -> CandidateModel<'a> {
    CandidateModel {
        capabilities: capability,
        names: [Some(family), None],
        component: None,
        signature,
    }
}
