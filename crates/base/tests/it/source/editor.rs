//! Edits of JSON text, compared with the same operations on parsed values, in every text layout.

use pkgtool_base::source::edit::{TextEdit, apply};
use pkgtool_base::source::json::Node;
use pkgtool_base::source::pretty::Layout;
use pkgtool_base::source::{Document, Editor};
use proptest::prelude::*;
use proptest::sample::Index;
use serde::Serialize;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value, json};

/// The layout of a text before it is edited.
#[derive(Debug, Clone)]
enum Written {
    Tight,
    Indented(&'static str),
    Windows,
    /// The tool's own layout.
    Own,
    /// With white space at unusual places.
    Wild,
}

#[derive(Debug, Clone)]
enum Change {
    Remove(Index, Index),
    Insert(Index, Index, Value),
    Replace(Index, Value),
    Rename(Index, Index),
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z\"\\\\\n ë{}\\[\\],:]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec(("[a-z\" ë]{0,4}", inner), 0..5).prop_map(|members| {
                Value::Object(members.into_iter().collect::<Map<String, Value>>())
            }),
        ]
    })
}

fn layouts() -> impl Strategy<Value = Written> {
    prop_oneof![
        Just(Written::Tight),
        prop_oneof![Just("  "), Just("    "), Just("\t")].prop_map(Written::Indented),
        Just(Written::Windows),
        Just(Written::Own),
        Just(Written::Wild),
    ]
}

fn changes() -> impl Strategy<Value = Change> {
    let index = any::<Index>;
    prop_oneof![
        (index(), index()).prop_map(|(at, item)| Change::Remove(at, item)),
        (index(), index(), values()).prop_map(|(at, item, value)| Change::Insert(at, item, value)),
        (index(), values()).prop_map(|(at, value)| Change::Replace(at, value)),
        (index(), index()).prop_map(|(at, item)| Change::Rename(at, item)),
    ]
}

fn written(value: &Value, layout: &Written) -> String {
    match layout {
        Written::Tight => value.to_string(),
        Written::Own => Layout::default().print(value, ""),
        Written::Indented(indent) => indented(value, indent),
        Written::Windows => indented(value, "  ").replace('\n', "\r\n"),
        Written::Wild => wild(value),
    }
}

fn indented(value: &Value, indent: &str) -> String {
    let mut out = Vec::new();
    let formatter = PrettyFormatter::with_indent(indent.as_bytes());
    let mut serializer = Serializer::with_formatter(&mut out, formatter);
    value.serialize(&mut serializer).expect("a text");
    String::from_utf8(out).expect("UTF-8")
}

fn wild(value: &Value) -> String {
    match value {
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(wild).collect();
            format!("[ {}\n\t]", elements.join(" ,\r\n   "))
        }
        Value::Object(members) => {
            let member = |(key, value): (&String, &Value)| {
                format!("{}\n : {}", Value::from(key.as_str()), wild(value))
            };
            let members: Vec<String> = members.iter().map(member).collect();
            format!("{{\n{}}}", members.join("  , "))
        }
        scalar => scalar.to_string(),
    }
}

/// Collects all arrays and objects with their JSON Pointers.
fn containers<'n>(node: &'n Node, at: &str, out: &mut Vec<(String, &'n Node)>) {
    if node.is_object() || !node.elements().is_empty() {
        out.push((at.to_owned(), node));
    }
    for member in node.members() {
        let key = member.key.replace('~', "~0").replace('/', "~1");
        containers(&member.value, &format!("{at}/{key}"), out);
    }
    for (index, element) in node.elements().iter().enumerate() {
        containers(element, &format!("{at}/{index}"), out);
    }
}

/// Returns the change as an edit, and the value that the edited text must have. `None` means that
/// the change does not apply.
fn made(change: &Change, text: &str, document: &Document) -> Option<(TextEdit, Value)> {
    let layout = Layout::of(text, &document.root);
    let editor = Editor::new(text, document, &layout);
    let mut all = Vec::new();
    containers(&document.root, "", &mut all);
    let pick = |index: &Index| (!all.is_empty()).then(|| all[index.index(all.len())].clone());
    let mut value = document.root.to_value();
    let edit = match change {
        Change::Remove(at, item) => {
            let (pointer, node) = pick(at)?;
            let target = value.pointer_mut(&pointer)?;
            if let Value::Object(members) = target {
                let index = (!members.is_empty()).then(|| item.index(members.len()))?;
                let key = node.members()[index].key.clone();
                members.shift_remove(key.as_str());
                editor.remove_member(node, index)?
            } else {
                let elements = target.as_array_mut()?;
                let index = item.index(elements.len());
                elements.remove(index);
                editor.remove_element(node, index)?
            }
        }
        Change::Insert(at, item, new) => {
            let (pointer, node) = pick(at)?;
            let target = value.pointer_mut(&pointer)?;
            if let Value::Object(members) = target {
                let index = item.index(members.len() + 1);
                members.shift_insert(index, "a new key".to_owned(), new.clone());
                editor.insert_member(node, index, "a new key", new)
            } else {
                let elements = target.as_array_mut()?;
                let index = item.index(elements.len() + 1);
                elements.insert(index, new.clone());
                editor.insert_element(node, index, new)
            }
        }
        Change::Replace(at, new) => {
            let (pointer, node) = pick(at)?;
            *value.pointer_mut(&pointer)? = new.clone();
            editor.replace(node, new)
        }
        Change::Rename(at, item) => {
            let (pointer, node) = pick(at)?;
            let members = value.pointer_mut(&pointer)?.as_object_mut()?;
            let index = (!members.is_empty()).then(|| item.index(members.len()))?;
            let member = &node.members()[index];
            let old = members.shift_remove(member.key.as_str())?;
            members.shift_insert(index, "another key".to_owned(), old);
            editor.rename_key(member, "another key")
        }
    };
    Some((edit, value))
}

/// Serializes a value in member order, which the equality of `Value` ignores.
fn in_order(value: &Value) -> String {
    value.to_string()
}

proptest! {
    #[test]
    fn edits_are_what_the_operations_are(
        value in values(),
        layout in layouts(),
        change in changes(),
    ) {
        let text = written(&value, &layout);
        let document = Document::parse(&text).expect("JSON");
        prop_assert_eq!(&document.root.to_value(), &value, "{}", text);
        if let Some((edit, expected)) = made(&change, &text, &document) {
            let span = edit.span;
            let after = apply(&text, &[edit]).expect("the edit applies");
            let parsed = Document::parse(&after).map_err(|error| TestCaseError::fail(format!("{error}: {after}")))?;
            prop_assert_eq!(in_order(&parsed.root.to_value()), in_order(&expected), "{}", after);
            // The text outside of the edit is unchanged.
            prop_assert!(after.starts_with(&text[..span.start]));
            prop_assert!(after.ends_with(&text[span.end..]));
        }
    }

    #[test]
    fn a_line_ending_stays_the_only_one(value in values(), new in values(), at in any::<Index>()) {
        let text = written(&json!({ "a": value, "b": [{}] }), &Written::Windows);
        let document = Document::parse(&text).expect("JSON");
        let layout = Layout::of(&text, &document.root);
        let editor = Editor::new(&text, &document, &layout);
        let edit = editor.insert_member(&document.root, at.index(3), "c", &new);
        let after = apply(&text, &[edit]).expect("the edit applies");
        prop_assert_eq!(after.matches('\n').count(), after.matches("\r\n").count(), "{}", after);
    }

    #[test]
    fn what_is_printed_parses_to_what_was_given(value in values(), sample in values(), layout in layouts()) {
        let text = written(&sample, &layout);
        let layout = Layout::of(&text, &Document::parse(&text).expect("JSON").root);
        let parse = |text: &str| serde_json::from_str::<Value>(text).map(|value| in_order(&value)).ok();
        prop_assert_eq!(parse(&layout.print(&value, "    ")), Some(in_order(&value)));
        prop_assert_eq!(parse(&layout.print_on_one_line(&value)), Some(in_order(&value)));
    }
}
