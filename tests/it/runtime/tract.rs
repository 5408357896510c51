//! tract's plans: one for each shape at first, then one for all; the answers are the same.

use std::path::Path;

use pkgtool::model;
use pkgtool::runtime::agreement::Comparison;
use pkgtool::runtime::tract::Tract;
use pkgtool::runtime::{
    DType, Engine, LoadOptions, LoadRequest, Provider, Session, Signature, Tensor,
};

const EXAMPLE: &str = "packages-examples/hush-sentence/mlx/hush_sentence_mlx_fp32.onnx";

fn request() -> LoadRequest {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join(EXAMPLE);
    let (info, _) = model::open(&model).expect("an example");
    LoadRequest {
        signature: Signature::of(&info.methods[0], None).expect("it takes tensors"),
        model,
        options: LoadOptions {
            threads: Some(1),
            ..LoadOptions::default()
        },
    }
}

fn load() -> Box<dyn Session> {
    Tract.load(&request()).expect("the example loads")
}

/// Token identifiers of a batch of sentences.
fn tokens(batch: u64, length: u64) -> Tensor {
    let ids = (0..batch * length).map(|id| f64::from(u32::try_from(id * 7 % 23).expect("small")));
    Tensor::from_f64(DType::Int64, vec![batch, length], ids).expect("it is small")
}

#[test]
fn any_number_of_shapes_gives_the_answers_of_a_fresh_session() {
    let mut long_lived = load();
    // There and back again: known shapes, new ones, known ones.
    let shapes = (1..=12)
        .chain([3, 1, 12, 20])
        .map(|length| (1 + length % 3, length));
    for (batch, length) in shapes {
        let inputs = [tokens(batch, length)];
        let found = long_lived.run(&inputs).expect("any size runs");
        let expected = load().run(&inputs).expect("any size runs");
        let mut comparison = Comparison::default();
        let added = comparison.add(&expected.outputs[0], &found.outputs[0]);
        added.expect("the shapes are the same");
        let agreement = comparison.agreement();
        assert!(
            agreement.max_rel < 1e-5,
            "{batch} × {length}: {agreement:?}"
        );
    }
}

#[test]
fn other_providers_are_not_tracts() {
    let mut request = request();
    request.options.provider = Provider::Qnn;
    let error = Tract.load(&request).err().expect("it has the CPU only");
    assert!(error.is_about_the_engine(), "{error}");
}
