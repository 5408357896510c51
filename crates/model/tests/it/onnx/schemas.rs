//! The checked-in operator table equals the output of `tests/operators/schemas.py`.

use std::process::Command;

use pkgtool_testing::environment::EnvironmentPiece;

#[test]
fn the_table_of_operators_is_up_to_date() {
    if EnvironmentPiece::Ort
        .or_skip("the table of ONNX operators")
        .is_none()
    {
        return;
    }
    let root = pkgtool_testing::files::root();
    let written = Command::new("python3")
        .arg(root.join("tests/operators/schemas.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python runs");
    assert!(written.status.success(), "{written:?}");
    let committed = include_str!("../../../src/onnx/load/operators.txt");
    assert!(
        String::from_utf8_lossy(&written.stdout) == committed,
        "regenerate the table: tests/operators/schemas.py > crates/model/src/onnx/load/operators.txt"
    );
}
