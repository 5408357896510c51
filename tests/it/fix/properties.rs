//! Property tests of `fix` on randomly changed configs, each beside its own model files (20,000
//! cases with `FIX_CASES=20000`). Safe fixes remove their finding and add no new one, and a second
//! run changes nothing.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use pkgtool_base::diagnostic::{Applicability, Diagnostic};
use pkgtool_base::package::{Discovery, FoundFile, LoadedFile};
use pkgtool_base::source::edit::apply;
use pkgtool_check::fix::{Draft, FixOptions};
use pkgtool_check::validate::{self, NoPolicy, Recheck};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use pkgtool_testing::mutate::{JsonPart, changes};

static DISCOVERY: LazyLock<Discovery> = LazyLock::new(Discovery::default);
static RECHECK: LazyLock<Recheck<'static>> = LazyLock::new(|| {
    Recheck::new(&OPTIONS.validate, &DISCOVERY, &NoPolicy).expect("nothing is read")
});
static OPTIONS: LazyLock<FixOptions> = LazyLock::new(|| FixOptions {
    validate: validate::ValidationOptions {
        paths: Vec::new(),
        precisions: None,
        open_models: true,
        jobs: 1,
    },
    max_applicability: Applicability::Safe,
    only: BTreeSet::new(),
    writes: false,
});

/// Every config of the examples and of the rules' good packages, with its path.
static CONFIGS: LazyLock<Vec<(PathBuf, String)>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut directories = vec![
        root.join("packages-examples"),
        root.join("tests/fixtures/rules"),
    ];
    let mut configs = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() && !path.ends_with("bad") {
                directories.push(path);
            } else if path.ends_with("config.json") {
                let text = fs::read_to_string(&path).expect("a text");
                configs.push((path, text));
            }
        }
    }
    configs.sort();
    assert!(configs.len() > 60, "{} configs", configs.len());
    configs
});

/// A mistake of an author in one value.
#[derive(Debug, Clone)]
enum Slip {
    Null,
    Upper,
    Quoted,
    Bracketed,
    /// A character of a text or key is deleted, doubled, or swapped with the next one.
    Typo(Index, u8),
    /// The value of another place is copied here.
    Other(Index),
    Bigger,
    Joined,
}

fn slip() -> impl Strategy<Value = Slip> {
    prop_oneof![
        1 => Just(Slip::Null),
        1 => Just(Slip::Upper),
        1 => Just(Slip::Quoted),
        1 => Just(Slip::Bracketed),
        3 => (any::<Index>(), 0..3_u8).prop_map(|(at, kind)| Slip::Typo(at, kind)),
        2 => any::<Index>().prop_map(Slip::Other),
        1 => Just(Slip::Bigger),
        1 => Just(Slip::Joined),
    ]
}

fn pointers(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                pointers(
                    value,
                    &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")),
                    out,
                );
            }
        }
        Value::Array(elements) => {
            for (index, value) in elements.iter().enumerate() {
                pointers(value, &format!("{at}/{index}"), out);
            }
        }
        _ => {}
    }
}

fn mistyped(word: &str, at: Index, kind: u8) -> String {
    let mut letters: Vec<char> = word.chars().collect();
    if letters.is_empty() {
        return "x".to_owned();
    }
    let at = at.index(letters.len());
    match kind {
        0 => drop(letters.remove(at)),
        1 => letters.insert(at, letters[at]),
        _ if at + 1 < letters.len() => letters.swap(at, at + 1),
        _ => letters.push('s'),
    }
    letters.into_iter().collect()
}

fn slipped(root: &mut Value, at: Index, slip: &Slip) {
    let mut places = Vec::new();
    pointers(root, "", &mut places);
    let place = &places[at.index(places.len())];
    let other = match slip {
        Slip::Other(other) => root.pointer(&places[other.index(places.len())]).cloned(),
        _ => None,
    };
    let value = root.pointer_mut(place).expect("a place");
    let before = value.take();
    *value = match (slip, before) {
        (Slip::Null, _) => Value::Null,
        (Slip::Upper, Value::String(text)) => json!(text.to_uppercase()),
        (Slip::Quoted, value @ (Value::Number(_) | Value::Array(_))) => json!(value.to_string()),
        (Slip::Bracketed, value) => json!([value]),
        (Slip::Typo(at, kind), Value::String(text)) => json!(mistyped(&text, *at, *kind)),
        (Slip::Typo(at, kind), Value::Object(mut members)) if !members.is_empty() => {
            let key = members
                .keys()
                .nth(at.index(members.len()))
                .cloned()
                .expect("a key");
            let value = members.shift_remove(&key).expect("a member");
            members.insert(mistyped(&key, *at, *kind), value);
            Value::Object(members)
        }
        (Slip::Other(_), _) => other.expect("a value"),
        (Slip::Bigger, Value::Number(number)) => json!(number.as_i64().unwrap_or(0) * 2 - 3),
        (Slip::Joined, Value::Array(elements)) => {
            let words: Vec<String> = elements
                .iter()
                .map(|one| one.to_string().replace('"', ""))
                .collect();
            json!(words.join("x"))
        }
        (_, before) => before,
    };
}

/// Foreign pieces of text to insert.
const PIECES: [&str; 20] = [
    ",",
    "\"",
    "{",
    "}",
    "[",
    "]",
    ":",
    "\u{a0}",
    "\u{201c}",
    "\u{201d}",
    "'",
    "// why\n",
    "\u{feff}",
    "None",
    "-",
    "0",
    "TODO_x",
    " ",
    "\\",
    "\"quantized\": false,",
];

#[derive(Debug, Clone)]
enum Scratch {
    Insert(&'static str),
    Delete(usize),
    RepeatLine,
    DeleteLine,
}

fn scratch() -> impl Strategy<Value = Scratch> {
    prop_oneof![
        3 => prop::sample::select(&PIECES[..]).prop_map(Scratch::Insert),
        2 => (1..4_usize).prop_map(Scratch::Delete),
        2 => Just(Scratch::RepeatLine),
        2 => Just(Scratch::DeleteLine),
    ]
}

fn scratched(text: &mut String, at: Index, scratch: &Scratch) {
    if text.is_empty() {
        return;
    }
    let at = text.floor_char_boundary(at.index(text.len()));
    let start = text[..at].rfind('\n').map_or(0, |at| at + 1);
    let end = text[at..]
        .find('\n')
        .map_or(text.len(), |more| at + more + 1);
    match scratch {
        Scratch::Insert(piece) => text.insert_str(at, piece),
        Scratch::Delete(count) => {
            let end = text.ceil_char_boundary((at + count).min(text.len()));
            text.replace_range(at..end, "");
        }
        Scratch::RepeatLine => {
            let line = text[start..end].to_owned();
            text.insert_str(start, &line);
        }
        Scratch::DeleteLine => text.replace_range(start..end, ""),
    }
}

fn findings(path: &Path, text: &str) -> Vec<Diagnostic> {
    let loaded = LoadedFile::from_bytes(text.as_bytes().to_vec());
    RECHECK
        .check(&FoundFile::named(path), &loaded)
        .expect("a config")
}

fn draft(path: &Path, text: &str) -> Draft {
    let loaded = LoadedFile::from_bytes(text.as_bytes().to_vec());
    Draft::of(&OPTIONS, &RECHECK, &FoundFile::named(path), &loaded).expect("a config")
}

fn is_no_json(findings: &[Diagnostic]) -> bool {
    findings.iter().any(|one| one.rule.code == "PKG002")
}

/// Counts the findings by rule code and message.
fn said(findings: &[Diagnostic]) -> BTreeMap<(&str, &str), usize> {
    let mut said = BTreeMap::new();
    for one in findings {
        *said
            .entry((one.rule.code, one.message.as_str()))
            .or_default() += 1;
    }
    said
}

/// Returns a new finding: one whose rule had no finding with the same pointer or message before.
fn added<'d>(before: &[Diagnostic], after: &'d [Diagnostic]) -> Option<&'d Diagnostic> {
    after.iter().find(|one| {
        !before.iter().any(|other| {
            other.rule.code == one.rule.code
                && (other.pointer == one.pointer || other.message == one.message)
        })
    })
}

fn shown(one: &Diagnostic) -> String {
    format!(
        "{} {}: {} ({:?})",
        one.rule.code,
        one.pointer,
        one.message,
        one.fix.as_ref().map(|fix| &fix.title)
    )
}

fn titles(draft: &Draft) -> Vec<&str> {
    draft.fixed.iter().map(|one| one.title.as_str()).collect()
}

/// Checks the guarantees of safe fixes on one text.
fn sound(path: &Path, text: &str) -> Result<(), TestCaseError> {
    let before = findings(path, text);
    let mut known = before.clone();
    for one in &before {
        let Some(fix) = one
            .fix
            .as_ref()
            .filter(|fix| fix.applicability == Applicability::Safe)
        else {
            continue;
        };
        let alone = apply(text, &fix.edits).expect("edits that do not overlap");
        let after = findings(path, &alone);
        let key = (one.rule.code, one.message.as_str());
        let is_less = said(&after).get(&key).copied().unwrap_or(0) < said(&before)[&key];
        prop_assert!(
            is_less,
            "{}: {} stays after its fix:\n{alone}",
            path.display(),
            shown(one)
        );
        if is_no_json(&before) {
            known = after;
        }
    }
    let fixed = draft(path, text);
    if !(is_no_json(&before) && fixed.text == text) {
        let new = added(&known, &fixed.diagnostics);
        let new = new.map(shown);
        let titles = titles(&fixed);
        prop_assert!(
            new.is_none(),
            "{}: {new:?} is new after {titles:?}\n{text}\n{}",
            path.display(),
            fixed.text
        );
    }
    let again = draft(path, &fixed.text);
    prop_assert_eq!(
        &again.text,
        &fixed.text,
        "{}: {:?} then {:?}",
        path.display(),
        titles(&fixed),
        titles(&again)
    );
    Ok(())
}

fn config() -> impl Strategy<Value = &'static (PathBuf, String)> {
    (0..CONFIGS.len()).prop_map(|at| &CONFIGS[at])
}

/// Default number of changed texts; `FIX_CASES=20000` takes minutes in a debug build.
const CASES: u32 = 2_000;

/// Returns a configuration for this many tenths of all cases.
fn cases(tenths: u32) -> ProptestConfig {
    let asked = std::env::var("FIX_CASES").ok();
    let all = asked.map_or(CASES, |all| all.parse().expect("FIX_CASES is a number"));
    ProptestConfig {
        cases: all / 10 * tenths,
        max_shrink_iters: 500,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(cases(4))]

    #[test]
    fn slips_in_values((path, text) in config(), slips in prop::collection::vec((any::<Index>(), slip()), 1..3)) {
        let mut value: Value = serde_json::from_str(text).expect("JSON");
        for (at, slip) in &slips {
            slipped(&mut value, *at, slip);
        }
        sound(path, &format!("{value:#}\n"))?;
    }
}

proptest! {
    #![proptest_config(cases(3))]

    #[test]
    fn changes_of_structure((path, text) in config(), changes in changes()) {
        let mut tree = JsonPart::parse(text);
        for (at, change) in changes.iter().take(3) {
            tree.apply(*at, change);
        }
        sound(path, &tree.text())?;
    }

    #[test]
    fn scratches_in_texts((path, text) in config(), scratches in prop::collection::vec((any::<Index>(), scratch()), 1..3)) {
        let mut text = text.clone();
        for (at, scratch) in &scratches {
            scratched(&mut text, *at, scratch);
        }
        sound(path, &text)?;
    }
}
