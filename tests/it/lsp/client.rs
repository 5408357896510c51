//! Test of the language server with an independent client, `pygls`, whose types check every message
//! against the protocol.

use std::path::Path;
use std::process::Command;

use crate::support::environment::EnvironmentPiece;
use crate::support::tree::Tree;

#[test]
fn a_client_library_understands_every_message() {
    let Some(packages) =
        EnvironmentPiece::Lsp.or_skip("a_client_library_understands_every_message")
    else {
        return;
    };
    let tree = Tree::with_package();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/lsp.py");
    let output = Command::new("python3")
        .arg(script)
        .args([Path::new(env!("CARGO_BIN_EXE_pkgtool")), tree.root()])
        .env("PYTHONPATH", packages)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("Python runs");
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{errors}");
    assert_eq!(told.trim(), "understood", "{errors}");
}
