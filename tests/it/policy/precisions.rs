//! Tests of a project's own precision tokens, and of lists that contradict each other.

use super::{faulty, run};
use crate::support::tree::Tree;

fn with(settings: &str) -> Tree {
    Tree::new()
        .package("xnnpack", &faulty())
        .file("pkgtool.toml", settings)
}

#[test]
fn a_token_is_in_one_list() {
    // The precision list in force contradicts the first token, agrees with the second and lacks the
    // third.
    let settings = "[extra-precisions]\nquantized = [\"fp32\", \"int8\", \"int2\"]\n";
    let found = run(&with(settings), &[]).expect_code(1).findings();
    let found: Vec<_> = found.iter().filter(|one| one.code == "PKG053").collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (found[0].path.as_str(), found[0].pointer.as_str()),
        ("pkgtool.toml", "/extra-precisions/quantized/0")
    );
    assert!(
        found[0]
            .message
            .contains("`fp32` is quantized here, but not in the precision list"),
        "{found:?}"
    );
    // A package's own list may classify the tokens differently.
    let own = "{ \"quantized\": [\"fp32\"], \"non_quantized\": [\"int2\"] }\n";
    let found = run(&with(settings).file("precisions.json", own), &[]).findings();
    let found = found.iter().filter(|one| one.code == "PKG053");
    let places: Vec<&str> = found.map(|one| one.pointer.as_str()).collect();
    assert_eq!(places, ["/extra-precisions/quantized/2"]);
}

#[test]
fn a_command_line_that_contradicts_itself_or_the_list_is_not_understood() {
    let tree = with("[extra-precisions]\nquantized = [\"tf32\"]\n");
    for (arguments, words) in [
        (
            "tf32=non-quantized,tf32=quantized",
            "`tf32` is given as quantized and as non-quantized",
        ),
        (
            "fp32=quantized",
            "--extra-precision: `fp32` is quantized here, but not in the precision list",
        ),
    ] {
        let ran = run(&tree, &["--extra-precision", arguments]).expect_code(2);
        assert!(ran.stderr.contains(words), "{}", ran.stderr);
    }
    // The option overrides a file, and a repeated entry is harmless.
    let arguments = ["--extra-precision", "tf32=non-quantized,tf32=non-quantized"];
    let found = run(&tree, &arguments).findings();
    assert!(found.iter().all(|one| one.code != "PKG053"), "{found:?}");
}
