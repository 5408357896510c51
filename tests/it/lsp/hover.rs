//! Tests of hover texts, the outline and links.

use serde_json::{Value, json};

use crate::support::editor::{Editor, able, uri};
use crate::support::tree::{MODEL, Tree, config};

/// Returns the hover text at the end of `needle`.
fn shown(text: &str, needle: &str) -> String {
    let tree = Tree::with_package();
    let mut editor = Editor::of(tree.root());
    let at = text.find(needle).expect("it is there") + needle.len();
    let marked = format!("{}|{}", &text[..at], &text[at..]);
    let hover = editor.ask_at(
        "textDocument/hover",
        &tree.path("xnnpack/config.json"),
        &marked,
    );
    hover["contents"]["value"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn keys_values_files_and_signatures_are_explained() {
    let text = format!("{:#}", config()).replace(
        "[\n                2,\n                8\n              ]",
        "[2, 9]",
    );
    for (needle, expected) in [
        ("\"precis", &["Precision token", "Required.", "PKG008"][..]),
        ("\"fp3", &["`fp32` is not quantized", "built-in"]),
        ("\"MI", &["MIT License"]),
        ("\"xnnp", &["One of `xnnpack`"]),
        (
            "\"tiny_xnn",
            &[
                "executorch",
                "2576 bytes",
                "`forward` (float32[2, 8], float32[2, 4])",
                "XnnpackBackend",
            ],
        ),
        (
            "\"forw",
            &[
                "| inputs 0 | float32[2, 9] | float32[2, 8] |",
                "| outputs 0 |",
            ],
        ),
        ("\"outp", &["| outputs 0 | float32[2, 4] | float32[2, 4] |"]),
        ("[2, 9", &["PKG034", "What it checks"]),
    ] {
        let shown = shown(&text, needle);
        for part in expected {
            let shown = shown.to_lowercase();
            assert!(
                shown.contains(&part.to_lowercase()),
                "{needle}: {part} is not in\n{shown}"
            );
        }
    }
    assert_eq!(shown(&text, "{\n"), "", "nothing to say of white space");
}

#[test]
fn a_text_that_does_not_parse_is_explained_as_well() {
    let text = format!(
        "{{ \"variants\": [{{ \"file\": \"{MODEL}\", \"precision\": \"8da4w\", \"size_bytes\": "
    );
    let about = shown(&text, "\"8da4");
    assert!(about.contains("`8da4w` is quantized"), "{about}");
    let about = shown(&text, "\"tiny_x");
    assert!(about.contains("2576 bytes"), "{about}");
}

#[test]
fn the_outline_names_variants_and_methods() {
    let tree = Tree::with_package();
    let path = tree.path("xnnpack/config.json");
    let document = json!({ "textDocument": { "uri": uri(&path) } });
    let mut editor = Editor::of(tree.root());
    editor.open(&path, &format!("{:#}", config()));
    let symbols = editor.ask("textDocument/documentSymbol", document.clone());
    assert_eq!(symbols[0]["name"], "fp32");
    assert_eq!(symbols[0]["detail"], MODEL);
    assert_eq!(symbols[0]["children"][0]["name"], "forward");
    let links = editor.ask("textDocument/documentLink", document.clone());
    assert_eq!(links.as_array().map(Vec::len), Some(1));
    assert_eq!(
        links[0]["target"],
        uri(tree.path(&format!("xnnpack/{MODEL}")))
    );
    let mut capabilities = able();
    capabilities["textDocument"]["documentSymbol"] = json!({});
    let mut editor = Editor::with(tree.root(), capabilities);
    let mut parts = config();
    parts["variants"][0]["components"] = json!({ "encoder": MODEL, "decoder": "../missing.pte" });
    editor.open(&path, &format!("{parts:#}"));
    let symbols = editor.ask("textDocument/documentSymbol", document);
    let symbols = symbols.as_array().expect("a list");
    let names: Vec<&Value> = symbols.iter().map(|one| &one["name"]).collect();
    assert_eq!(
        names,
        ["fp32", "encoder", "decoder", "forward", "inputs", "outputs"]
    );
    assert_eq!(symbols[1]["containerName"], "fp32");
}
