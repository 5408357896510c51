//! Errors about ExecuTorch in a build without the `executorch` feature.

use pkgtool_engine::{EngineError, engine};

use crate::support::environment::EnvironmentPiece;

#[test]
fn what_is_not_built_says_so() {
    let engine = engine("executorch").expect("the engine is listed in every build");
    match engine.backends() {
        Err(EngineError::Unavailable { help, .. }) => {
            assert_eq!(help, "build with `--features executorch`");
        }
        other => panic!("{other:?}"),
    }
    if EnvironmentPiece::ExecuTorch.is_required() {
        EnvironmentPiece::ExecuTorch.skip("every test of it", "this build has no such feature");
    }
}
