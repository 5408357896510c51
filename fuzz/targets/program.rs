//! Fuzzes the lowering and execution of ExecuTorch programs. The inputs are mutated real programs;
//! those in `tests/fixtures/programs` make a wider corpus.
#![no_main]

use std::sync::OnceLock;

use pkgtool_engine::tensor::{Signature, Tensor, TensorSpec};
use pkgtool_engine::{LoadOptions, LoadRequest, engine};
use pkgtool_model::{self as model, Dim};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Engines load programs from files.
    static PATH: OnceLock<std::path::PathBuf> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        std::env::temp_dir().join(format!("pkgtool-fuzz-{}.pte", std::process::id()))
    });
    if std::fs::write(path, bytes).is_err() {
        return;
    }
    let Ok((info, _)) = model::open(path) else {
        return;
    };
    let Some(method) = info.methods.iter().find(|method| !method.constant) else {
        return;
    };
    let Ok(signature) = Signature::of(method, None) else {
        return;
    };
    let inputs: Option<Vec<Tensor>> = signature.inputs.iter().map(zeros).collect();
    let Some(inputs) = inputs else { return };
    let request = LoadRequest {
        model: path.clone(),
        signature,
        options: LoadOptions {
            threads: Some(1),
            ..LoadOptions::default()
        },
    };
    let tract = engine("tract").expect("it is in every build that runs models");
    if let Ok(mut session) = tract.load(&request) {
        let _ = session.run(&inputs);
    }
});

fn zeros(spec: &TensorSpec) -> Option<Tensor> {
    let sizes = spec.dims.as_ref()?.iter().map(|dim| match dim {
        Dim::Fixed(size) => *size,
        Dim::Maybe { bound, .. } => *bound,
        Dim::Dynamic { .. } => 1,
    });
    let shape: Vec<u64> = sizes.collect();
    let elements = shape
        .iter()
        .try_fold(1_u64, |all, size| all.checked_mul(*size))?;
    (elements <= 1 << 16).then(|| Tensor::zeros(spec.dtype, shape).ok())?
}
