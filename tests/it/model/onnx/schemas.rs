//! The checked-in operator table equals the output of `tests/operators/schemas.py`.

use std::path::Path;
use std::process::Command;

use crate::support::environment::Piece;

#[test]
fn the_table_of_operators_is_up_to_date() {
    if Piece::Ort.or_skip("the table of ONNX operators").is_none() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let written = Command::new("python3")
        .arg(root.join("tests/operators/schemas.py"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python runs");
    assert!(written.status.success(), "{written:?}");
    let committed = include_str!("../../../../crates/model/src/onnx/load/operators.txt");
    assert!(
        String::from_utf8_lossy(&written.stdout) == committed,
        "regenerate the table: tests/operators/schemas.py > crates/model/src/onnx/load/operators.txt"
    );
}
