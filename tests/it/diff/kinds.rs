//! Tests of the kinds of changes: each change of a config has the kind in the table, in both
//! directions.

use std::path::Path;

use pkgtool_check::diff::{Change, ChangeLevel, KINDS};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{difference, kinds};
use crate::support::tree::{Tree, config, signature};

struct Case {
    name: &'static str,
    change: fn(&mut Value),
    there: &'static [&'static str],
    back: &'static [&'static str],
}

/// Returns the first variant's method `forward`.
fn forward(config: &mut Value) -> &mut Value {
    &mut config["variants"][0]["methods"]["forward"]
}

const CASES: &[Case] = &[
    Case {
        name: "nothing",
        change: |_| {},
        there: &[],
        back: &[],
    },
    Case {
        name: "an input more at the end",
        change: |it| {
            let inputs = forward(it)["inputs"].as_array_mut().expect("an array");
            inputs.push(json!({ "shape": [1], "dtype": "int64" }));
        },
        there: &["input-added"],
        back: &["input-removed"],
    },
    Case {
        name: "an input more at the beginning",
        change: |it| {
            let inputs = forward(it)["inputs"].as_array_mut().expect("an array");
            inputs.insert(0, json!({ "shape": [1], "dtype": "int64" }));
        },
        there: &["input-added"],
        back: &["input-removed"],
    },
    Case {
        name: "an output less",
        change: |it| forward(it)["outputs"] = json!([]),
        there: &["output-removed"],
        back: &["output-added"],
    },
    Case {
        name: "a dtype",
        change: |it| forward(it)["inputs"][0]["dtype"] = json!("float16"),
        there: &["dtype"],
        back: &["dtype"],
    },
    Case {
        name: "a rank",
        change: |it| forward(it)["inputs"][0]["shape"] = json!([2, 8, 1]),
        there: &["rank"],
        back: &["rank"],
    },
    Case {
        name: "a size",
        change: |it| forward(it)["outputs"][0]["shape"][1] = json!(5),
        there: &["dim-size"],
        back: &["dim-size"],
    },
    Case {
        name: "an input's dimension becomes dynamic",
        change: |it| forward(it)["inputs"][0]["shape"][0] = json!(-1),
        there: &["dim-dynamic"],
        back: &["dim-fixed"],
    },
    Case {
        name: "an output's dimension becomes dynamic by itself",
        change: |it| forward(it)["outputs"][0]["shape"][0] = json!(-1),
        there: &["output-dynamic"],
        back: &["dim-fixed"],
    },
    Case {
        name: "an output's dimension becomes dynamic with an input's",
        change: |it| {
            forward(it)["inputs"][0]["shape"][0] = json!(-1);
            forward(it)["outputs"][0]["shape"][0] = json!(-1);
        },
        there: &["dim-dynamic", "dim-dynamic"],
        back: &["dim-fixed", "dim-fixed"],
    },
    Case {
        name: "a name of a tensor",
        change: |it| forward(it)["inputs"][0]["name"] = json!("pixels"),
        there: &["tensor-named"],
        back: &["tensor-named"],
    },
    Case {
        name: "inputs in another order, by their names",
        change: |it| {
            let inputs = forward(it)["inputs"].as_array_mut().expect("an array");
            inputs[0]["name"] = json!("a");
            inputs[1]["name"] = json!("b");
        },
        there: &["tensor-named", "tensor-named"],
        back: &["tensor-named", "tensor-named"],
    },
    Case {
        name: "a method of another name",
        change: |it| it["variants"][0]["methods"] = json!({ "encode": signature() }),
        there: &["method-added", "method-removed"],
        back: &["method-added", "method-removed"],
    },
    Case {
        name: "a method more",
        change: |it| it["variants"][0]["methods"]["encode"] = signature(),
        there: &["method-added"],
        back: &["method-removed"],
    },
    Case {
        name: "methods not declared any more: the model file says the same",
        change: |it| {
            it["variants"][0]
                .as_object_mut()
                .expect("an object")
                .remove("methods");
        },
        there: &["methods-declared"],
        back: &["methods-declared"],
    },
    Case {
        name: "a variant more",
        change: |it| {
            let mut variant = it["variants"][0].clone();
            variant["precision"] = json!("int8");
            it["variants"]
                .as_array_mut()
                .expect("an array")
                .push(variant);
        },
        there: &["variant-added"],
        back: &["variant-removed"],
    },
    Case {
        name: "another precision",
        change: |it| it["variants"][0]["precision"] = json!("int8"),
        there: &["variant-added", "variant-removed"],
        back: &["variant-added", "variant-removed"],
    },
    Case {
        name: "components instead of a file",
        change: |it| {
            let file = it["variants"][0]["file"].take();
            it["variants"][0]["components"] = json!({ "encoder": file, "decoder": file });
            it["variants"][0]
                .as_object_mut()
                .expect("an object")
                .remove("methods");
        },
        there: &["layout-changed", "size-changed"],
        back: &["layout-changed", "size-changed"],
    },
    Case {
        name: "a file that is not there",
        change: |it| it["variants"][0]["file"] = json!("other.pte"),
        there: &["file-missing", "file-renamed"],
        back: &["file-found", "file-renamed"],
    },
    Case {
        name: "a capability more",
        change: |it| it["capabilities"] = json!(["classification", "vision"]),
        there: &["capability-added"],
        back: &["capability-removed"],
    },
    Case {
        name: "a licence",
        change: |it| it["license"] = json!("Apache-2.0"),
        there: &["license-changed"],
        back: &["license-changed"],
    },
    Case {
        name: "a family",
        change: |it| it["family"] = json!("small"),
        there: &["family-changed"],
        back: &["family-changed"],
    },
    Case {
        name: "a size token",
        change: |it| it["size"] = json!("s"),
        there: &["identity-changed"],
        back: &["identity-changed"],
    },
    Case {
        name: "a backend",
        change: |it| it["backend"] = json!("coreml"),
        there: &["identity-changed"],
        back: &["identity-changed"],
    },
    Case {
        name: "a tokenizer",
        change: |it| it["tokenizer"] = json!("config.json.txt"),
        there: &["tokenizer-added"],
        back: &["tokenizer-removed"],
    },
    Case {
        name: "$schema",
        change: |it| it["$schema"] = json!("https://example.com/other.json"),
        there: &["schema-changed"],
        back: &["schema-changed"],
    },
];

#[test]
fn each_change_is_of_its_kind_in_both_directions() {
    let old = Tree::with_package();
    for case in CASES {
        let mut changed = config();
        (case.change)(&mut changed);
        let new = Tree::new().package("xnnpack", &changed);
        for (from, to, expected) in [(&old, &new, case.there), (&new, &old, case.back)] {
            let difference = difference(from.root(), to.root(), true);
            let messages: Vec<String> = difference.changes.iter().map(Change::message).collect();
            assert_eq!(kinds(&difference), expected, "{}: {messages:#?}", case.name);
        }
    }
}

#[test]
fn kinds_have_names_of_their_own_and_stand_by_level() {
    let mut names: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    assert!(KINDS.is_sorted_by_key(|kind| kind.level));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), KINDS.len());
    for case in CASES {
        for name in case.there.iter().chain(case.back) {
            assert!(names.contains(name), "{name}");
        }
    }
}

#[test]
fn order_and_formatting_are_cosmetic() {
    let mut both = config();
    let mut second = both["variants"][0].clone();
    second["precision"] = json!("int8");
    both["capabilities"] = json!(["classification", "vision"]);
    both["variants"]
        .as_array_mut()
        .expect("an array")
        .push(second);
    let mut turned = both.clone();
    for key in ["capabilities", "variants"] {
        turned[key].as_array_mut().expect("an array").reverse();
    }
    let (old, new) = (
        Tree::new().package("xnnpack", &both),
        Tree::new().package("xnnpack", &turned),
    );
    let found = difference(old.root(), new.root(), true);
    assert_eq!(kinds(&found), ["order-changed", "order-changed"]);
    let packed = Tree::new().package("xnnpack", &both);
    let packed = packed.file("xnnpack/config.json", both.to_string());
    let found = difference(old.root(), packed.root(), true);
    assert_eq!(kinds(&found), ["formatting"]);
    assert_eq!(found.changes[0].kind.level, ChangeLevel::Cosmetic);
}

#[test]
fn named_inputs_that_change_places_are_told() {
    let named = |names: [&str; 2]| {
        let mut config = config();
        let mut inputs = forward(&mut config)["inputs"].take();
        for (input, name) in inputs
            .as_array_mut()
            .expect("an array")
            .iter_mut()
            .zip(["a", "b"])
        {
            input["name"] = json!(name);
        }
        if names == ["b", "a"] {
            inputs.as_array_mut().expect("an array").reverse();
        }
        forward(&mut config)["inputs"] = inputs;
        Tree::new().package("xnnpack", &config)
    };
    let (old, new) = (named(["a", "b"]), named(["b", "a"]));
    // The unchanged model file is not read.
    let found = difference(old.root(), new.root(), false);
    assert_eq!(kinds(&found), ["input-order"]);
}

#[test]
fn packages_come_go_move_and_break() {
    let one = Tree::with_package();
    let mut other = config();
    other["backend"] = json!("coreml");
    let two = Tree::with_package().package("coreml", &other);
    assert_eq!(
        kinds(&difference(one.root(), two.root(), true)),
        ["package-added"]
    );
    assert_eq!(
        kinds(&difference(two.root(), one.root(), true)),
        ["package-removed"]
    );
    let moved = Tree::new().package("small/xnnpack", &config());
    assert_eq!(
        kinds(&difference(one.root(), moved.root(), true)),
        ["config-moved"]
    );
    let broken = Tree::with_package().file("xnnpack/config.json", "{");
    assert_eq!(
        kinds(&difference(one.root(), broken.root(), true)),
        ["package-unreadable"]
    );
    assert_eq!(
        kinds(&difference(broken.root(), one.root(), true)),
        ["package-readable"]
    );
    let neither = difference(broken.root(), broken.root(), true);
    assert!(neither.is_void() && neither.notes.len() == 1, "{neither:?}");
}

#[test]
fn examples_have_no_change_against_themselves() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("packages-examples");
    for open_models in [true, false] {
        let found = difference(&examples, &examples, open_models);
        assert!(found.changes.is_empty(), "{:?}", found.changes);
        assert!(found.compared > 20, "{}", found.compared);
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z0-9_./`|\\[]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let key = prop_oneof![
            "[a-z]{1,4}",
            Just("forward".to_owned()),
            Just("inputs".to_owned())
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Generates a config with arbitrary values in some places.
fn any_config() -> impl Strategy<Value = Value> {
    let place = prop_oneof![
        Just("/model"),
        Just("/capabilities"),
        Just("/backend"),
        Just("/variants"),
        Just("/variants/0/precision"),
        Just("/variants/0/file"),
        Just("/variants/0/methods"),
        Just("/variants/0/methods/forward/inputs"),
        Just("/variants/0/methods/forward/outputs/0/shape"),
        Just("/variants/0/methods/forward/inputs/1"),
    ];
    prop::collection::vec((place, any_json()), 0..4).prop_map(|changes| {
        let mut config = config();
        for (place, value) in changes {
            if let Some(target) = config.pointer_mut(place) {
                *target = value;
            }
        }
        config
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_differs_from_itself_and_anything_can_be_compared(
        one in any_config(),
        other in any_config(),
    ) {
        let (a, b) = (Tree::new().package("xnnpack", &one), Tree::new().package("xnnpack", &other));
        let again = Tree::new().package("xnnpack", &one);
        prop_assert_eq!(kinds(&difference(a.root(), again.root(), true)), Vec::<&str>::new());
        let (there, back) = (
            difference(a.root(), b.root(), true),
            difference(b.root(), a.root(), true),
        );
        // A difference in one direction is a difference in the other.
        prop_assert_eq!(there.changes.is_empty(), back.changes.is_empty());
    }
}
