//! Output constrained to JSON schemas.
//!
//! All allowed outputs match the schema, unsupported schema keywords are rejected by name, and
//! hostile schemas terminate.

use pkgtool_text::constraint::{
    CallChoice, Callable, Constrainer, Constraint, ConstraintError, Grammar, VocabularyBytes,
};
use serde_json::{Value, json};

const END: u32 = 256;
const OTHER_END: u32 = 257;

/// Tokens after the 256 byte tokens: two end tokens, whose text is irrelevant, an unused id, and
/// words.
const WORDS: [&str; 13] = [
    "</s>",
    "<|im_end|>",
    "",
    "{\"",
    "\": ",
    "\", \"",
    "true",
    "name",
    "\"}",
    "é",
    "arguments",
    "  ",
    "}}]",
];

fn bytes(token: u32) -> Vec<u8> {
    match u8::try_from(token) {
        Ok(byte) => vec![byte],
        Err(_) => WORDS
            .get(token as usize - 256)
            .map(|word| word.as_bytes().to_vec())
            .unwrap_or_default(),
    }
}

/// A constrainer whose vocabulary is every byte and the words of [`WORDS`].
fn constrainer() -> Constrainer {
    let bytes = (0..270).map(bytes).collect();
    let ends = vec![END, OTHER_END];
    Constrainer::new(VocabularyBytes { bytes, ends }).expect("the constraint is supported")
}

fn grammar(schema: &Value) -> Result<Grammar, ConstraintError> {
    let format = json!({"type": "json_schema", "json_schema": {"name": "x", "schema": schema}});
    let grammar = Grammar::of_response_format(Some(&format))?;
    Ok(grammar.expect("the format requests a grammar"))
}

fn constraint(schema: &Value) -> Result<Constraint, ConstraintError> {
    constrainer().constrain(&grammar(schema)?)
}

fn allows(constraint: &mut Constraint, token: u32) -> bool {
    let allowed = constraint.allowed().expect("the constraint is supported");
    allowed[token as usize / 32] >> (token % 32) & 1 == 1
}

/// Feeds a text byte by byte. Returns whether it may end there, or the position of the first
/// rejected byte.
fn takes(constraint: &mut Constraint, text: &str) -> Result<bool, usize> {
    for (place, byte) in text.bytes().enumerate() {
        if constraint.is_finished() || !allows(constraint, u32::from(byte)) {
            return Err(place);
        }
        constraint
            .take(u32::from(byte))
            .expect("the constraint is supported");
    }
    Ok(constraint.is_finished() || allows(constraint, END))
}

#[test]
fn any_object_is_an_object() {
    let constrainer = constrainer();
    let format = json!({"type": "json_object"});
    let grammar = Grammar::of_response_format(Some(&format))
        .expect("the constraint is supported")
        .expect("the constraint is supported");
    let start = constrainer
        .constrain(&grammar)
        .expect("the constraint is supported");
    for (text, taken) in [
        (
            r#"{"a": [1, 2.5e3, null, true, {"b": "é\n\u001f"}]}"#,
            Ok(true),
        ),
        ("{}", Ok(true)),
        ("{\n  \"a\": 1\n}", Ok(true)),
        (r#"{"a": 1"#, Ok(false)),
        ("[1]", Err(0)),
        (r#"{"a" 1}"#, Err(5)),
        (r#"{"a": 01}"#, Err(7)),
        (r#"{"a": 1,}"#, Err(8)),
    ] {
        assert_eq!(takes(&mut start.copy(), text), taken, "{text}");
    }
    let text = Grammar::of_response_format(Some(&json!({"type": "text"})))
        .expect("the constraint is supported");
    assert_eq!(text, None);
    assert_eq!(
        Grammar::of_response_format(None).expect("the constraint is supported"),
        None
    );
}

#[test]
fn all_ends_are_allowed_where_the_grammar_accepts_and_nowhere_else() {
    let mut number = constraint(&json!({"type": "integer"})).expect("the constraint is supported");
    assert!(!allows(&mut number, END) && !allows(&mut number, OTHER_END));
    number
        .take(u32::from(b'5'))
        .expect("the constraint is supported");
    assert!(allows(&mut number, END) && allows(&mut number, OTHER_END));
    assert!(allows(&mut number, u32::from(b'0')));
    // The unused id between the others is never allowed.
    assert!(!allows(&mut number, 258));
    assert!(!number.is_finished());
    let mut whole = constraint(&json!({"const": true})).expect("the constraint is supported");
    assert_eq!(takes(&mut whole, "true"), Ok(true));
    assert!(whole.is_finished());
    // A finished constraint still reports the allowed tokens.
    assert!(allows(&mut whole, END) && !allows(&mut whole, u32::from(b' ')));
    assert!(number.take(u32::from(b'x')).is_err());
}

#[test]
fn schemas_are_followed() {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 3},
            "kind": {"enum": ["a", "b", 3]},
            "size": {"type": "integer", "minimum": 2, "maximum": 30},
            "tags": {"type": "array", "items": {"$ref": "#/$defs/tag"}, "maxItems": 2},
        },
        "required": ["name", "kind"],
        "additionalProperties": false,
        "$defs": {"tag": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}},
    });
    let constrainer = constrainer();
    let start = constrainer
        .constrain(&grammar(&schema).expect("the constraint is supported"))
        .expect("the constraint is supported");
    for (text, whole) in [
        (r#"{"name": "abc", "kind": 3}"#, true),
        (
            r#"{"name":"é","kind":"b","size":30,"tags":[true,null]}"#,
            true,
        ),
        (r#"{"name": "abcd"#, false),
        (r#"{"name": """#, false),
        (r#"{"kind""#, false),
        (r#"{"name": "a", "kind": "c"#, false),
        (r#"{"name": "a", "kind": "a", "size": 31"#, false),
        (r#"{"name": "a", "kind": "a", "tags": [true, true, "#, false),
        (r#"{"name": "a", "kind": "a", "more"#, false),
    ] {
        assert_eq!(takes(&mut start.copy(), text) == Ok(true), whole, "{text}");
    }
}

#[test]
fn spaces_end() {
    let mut object = constraint(&json!({"type": "object"})).expect("the constraint is supported");
    assert!(takes(&mut object, "{\n\n").is_ok());
    let spaces = " ".repeat(100);
    let ended = takes(&mut object, &spaces).expect_err("the input is rejected");
    assert!(ended <= 32, "{ended}");
}

#[test]
fn calls_are_required_by_name_and_with_their_arguments() {
    let tools = [
        Callable {
            name: "weather".to_owned(),
            parameters: Some(json!({
                "type": "object",
                "properties": {"at": {"$ref": "#/$defs/place"}},
                "required": ["at"],
                "$defs": {"place": {"type": "string"}},
            })),
        },
        Callable {
            name: "now".to_owned(),
            parameters: None,
        },
    ];
    let constrainer = constrainer();
    let any =
        Grammar::of_calls(&tools, CallChoice::Any, true).expect("the constraint is supported");
    let any = constrainer
        .constrain(&any)
        .expect("the constraint is supported");
    let weather = r#"{"name": "weather", "arguments": {"at": "Oslo"}}"#;
    let now = r#"{"name": "now", "arguments": {}}"#;
    assert_eq!(
        takes(&mut any.copy(), &format!("[{weather}, {now}]")),
        Ok(true)
    );
    assert!(takes(&mut any.copy(), "[]").is_err());
    assert!(takes(&mut any.copy(), r#"[{"name": "other"#).is_err());
    assert!(
        takes(
            &mut any.copy(),
            r#"[{"name": "weather", "arguments": {"at": 5"#
        )
        .is_err()
    );
    let one = Grammar::of_calls(&tools, CallChoice::Named("now"), false)
        .expect("the constraint is supported");
    let one = constrainer
        .constrain(&one)
        .expect("the constraint is supported");
    assert_eq!(takes(&mut one.copy(), &format!("[{now}]")), Ok(true));
    assert!(takes(&mut one.copy(), &format!("[{now},")).is_err());
    assert!(takes(&mut one.copy(), r#"[{"name": "w"#).is_err());
    let error = Grammar::of_calls(&tools, CallChoice::Named("then"), true)
        .expect_err("the input is rejected");
    assert_eq!(
        error.to_string(),
        "`tool_choice` must be the name of one of `tools`, not \"then\""
    );
}

#[test]
fn what_output_cannot_be_held_to_is_refused_by_name_and_place() {
    let at = "response_format.json_schema.schema";
    for (schema, words) in [
        (
            json!({"not": {}}),
            format!("`{at}` has the unsupported keyword `not`"),
        ),
        (
            json!({"properties": {"a": {"items": {"uniqueItems": true}}}}),
            format!("`{at}.properties.a.items` has the unsupported keyword `uniqueItems`"),
        ),
        (
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"if": {}}}}),
            format!("`{at}/$defs/a` has the unsupported keyword `if`"),
        ),
        (
            json!({"$ref": "https://example.com/schema"}),
            format!("`{at}.$ref` must be a path"),
        ),
        (
            json!({"$ref": "#/$defs/b"}),
            format!("`{at}.$ref` must be the path of an existing schema"),
        ),
        (
            json!({"type": "text"}),
            format!("cannot constrain the output by `{at}`: Invalid type"),
        ),
        (
            json!({"type": "string", "format": "colour"}),
            "Unknown format: colour".to_owned(),
        ),
        (
            json!({"type": "string", "pattern": "("}),
            format!("cannot constrain the output by `{at}`"),
        ),
        (
            json!({"type": "string", "pattern": "(?=a)b"}),
            format!("cannot constrain the output by `{at}`"),
        ),
        (
            json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
            "use `anyOf`".to_owned(),
        ),
        (
            json!({"type": "integer", "minimum": 5, "maximum": 4}),
            "minimum".to_owned(),
        ),
        (json!(false), "schema is false".to_owned()),
        (
            json!(5),
            format!("`{at}` must be a JSON schema, which is an object, not a number"),
        ),
        (
            Value::Null,
            format!("`{at}` must be a JSON schema, which is an object, not null"),
        ),
        (
            json!({"enum": ["é".repeat(70)], "type": 5}),
            "type must be".to_owned(),
        ),
        (
            json!({"enum": []}),
            format!("cannot constrain the output by `{at}`"),
        ),
    ] {
        let error = constraint(&schema)
            .err()
            .unwrap_or_else(|| panic!("{schema} was accepted"));
        let told = error.to_string();
        assert!(told.contains(&words), "{schema}: {told}");
        assert!(!told.contains("coerce") && !told.contains('\n'), "{told}");
    }
    let error = Grammar::of_response_format(Some(&json!({"type": "xml"})))
        .expect_err("the input is rejected");
    assert_eq!(
        error.to_string(),
        "`response_format.type` must be `text`, `json_object` or `json_schema`, not \"xml\""
    );
    let error =
        Grammar::of_response_format(Some(&json!("json"))).expect_err("the input is rejected");
    assert_eq!(
        error.to_string(),
        "`response_format` must be an object, not a string"
    );
}

#[test]
fn what_says_nothing_is_passed_over() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "propertyNames": {"type": "string"},
        "additionalProperties": {"type": "array", "items": {}, "uniqueItems": false},
        "x-order": 5, "title": "T", "default": {}, "x-guidance": {"lenient": true},
    });
    assert_eq!(
        takes(
            &mut constraint(&schema).expect("the constraint is supported"),
            r#"{"a": [1]}"#
        ),
        Ok(true)
    );
}

#[test]
fn whatever_is_drawn_fits_the_schema() {
    let constrainer = constrainer();
    for schema in [
        json!({"type": "object"}),
        json!({"type": ["integer", "null", "boolean"], "maximum": 120, "exclusiveMinimum": -3}),
        json!({"type": "number", "minimum": 0.5, "maximum": 7, "multipleOf": 0.25}),
        json!({"type": "string", "pattern": "^[a-c]+-\\d{2,3}$"}),
        json!({"type": "string", "format": "date-time"}),
        json!({"type": "array", "prefixItems": [{"type": "boolean"}, {"const": "x"}],
            "items": {"type": "integer"}, "minItems": 2, "maxItems": 4}),
        json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/node"}, "b": {}},
            "required": ["a"], "additionalProperties": {"type": "boolean"},
            "$defs": {"node": {"anyOf": [{"type": "null"}, {"type": "object",
                "properties": {"next": {"$ref": "#/$defs/node"}}, "required": ["next"],
                "additionalProperties": false}]}}}),
        json!({"allOf": [{"type": "object", "properties": {"a": {"minimum": 3}}, "required": ["a"]},
            {"properties": {"a": {"type": "integer", "maximum": 5}}}]}),
        json!({"type": "object", "patternProperties": {"^x": {"type": "null"}},
            "additionalProperties": false, "minProperties": 1, "maxProperties": 2}),
    ] {
        let start = constrainer.constrain(&grammar(&schema).expect("the input is valid"));
        let start = start.expect("the constraint is supported");
        let validator = jsonschema::validator_for(&schema).expect("the schema is valid");
        let mut state = 1_u64;
        let mut whole = 0;
        for _ in 0..30 {
            let mut constraint = start.copy();
            let mut text = Vec::new();
            for _ in 0..400 {
                let allowed = constraint.allowed().expect("the constraint is supported");
                let is_allowed = |id: &u32| allowed[*id as usize / 32] >> (id % 32) & 1 == 1;
                let allowed: Vec<u32> = (0..270).filter(is_allowed).collect();
                if allowed.contains(&END) {
                    break;
                }
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let place = usize::try_from(state >> 33).unwrap_or(0);
                // Closing tokens are preferred; otherwise random strings hardly ever end.
                let closing = allowed
                    .iter()
                    .copied()
                    .filter(|id| b"\"]}0".map(u32::from).contains(id));
                let closing: Vec<u32> = closing.collect();
                let token = if closing.is_empty() || place % 3 == 0 {
                    allowed[place / 3 % allowed.len()]
                } else {
                    closing[place / 3 % closing.len()]
                };
                constraint.take(token).expect("the token is allowed");
                text.extend(bytes(token));
            }
            if !allows(&mut constraint, END) {
                continue;
            }
            whole += 1;
            let text = String::from_utf8(text).expect("JSON is text");
            let value: Value = serde_json::from_str(&text).expect("the text is JSON");
            assert!(validator.is_valid(&value), "{schema}: {text}");
        }
        assert!(whole > 10, "{schema}: {whole}");
    }
}

/// Builds a constraint and takes up to `steps` tokens, always the last allowed one. Describes how
/// it ended.
fn followed(schema: &Value, steps: usize) -> String {
    let constrainer = constrainer();
    match grammar(schema).and_then(|grammar| constrainer.constrain(&grammar)) {
        Err(error) => error.to_string(),
        Ok(mut constraint) => (0..steps)
            .find_map(|_| {
                let allowed = constraint.allowed().map(<[u32]>::to_vec);
                let allowed = match allowed {
                    Ok(allowed) => allowed,
                    Err(error) => return Some(error.to_string()),
                };
                let bits = (0_u32..256).rev();
                let mut bits = bits.filter(|id| allowed[*id as usize / 32] >> (id % 32) & 1 == 1);
                match bits.next() {
                    Some(token) => constraint.take(token).err().map(|error| error.to_string()),
                    None => Some("whole".to_owned()),
                }
            })
            .unwrap_or_else(|| "on and on".to_owned()),
    }
}

const HOW_THEY_END: [(&str, &str); 30] = [
    ("deep arrays", "whole"),
    (
        "too deep",
        "has too many levels of nesting: expected at most 64, got 65",
    ),
    ("deep choices", "whole"),
    (
        "doubled",
        "has too many values: expected at most 20000, got 20001",
    ),
    ("chain", "whole"),
    (
        "long chain",
        "has too many levels of nesting: expected at most 2048, got 2049",
    ),
    ("circle", "no token can follow"),
    ("circle of all", "circular references"),
    ("circle of any", "no token can follow"),
    ("enum", "whole"),
    ("too large an enum", "got 20001"),
    (
        "optional properties",
        "too many properties: expected at most 1024",
    ),
    ("all of any", "schema too large"),
    ("one of", "got 20001"),
    ("pattern properties", "are not disjoint"),
    ("tree", "whole"),
    ("repeats", "on and on"),
    ("nested repeats", "too many expressions"),
    ("many repeats", "on and on"),
    ("any before", "on and on"),
    ("huge repeat", "on and on"),
    ("long", "on and on"),
    ("many items", "on and on"),
    ("most items", "whole"),
    ("many properties", "on and on"),
    ("multiple", "too many digits"),
    ("large multiple", "a number with few digits, at most 10000"),
    ("bounds", "float range"),
    ("letters", "on and on"),
    ("both", "Unable to determine if regex is empty"),
];

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn hostile_schemas_end() {
    let nested = |levels: usize, wrap: fn(Value) -> Value| {
        (0..levels).fold(json!({"type": "string"}), |schema, _| wrap(schema))
    };
    let chain = |links: usize| {
        let link = |i: usize| {
            (
                format!("a{i}"),
                json!({"$ref": format!("#/$defs/a{}", i + 1)}),
            )
        };
        let mut defs: serde_json::Map<String, Value> = (0..links).map(link).collect();
        defs.insert(format!("a{links}"), json!({"type": "null"}));
        json!({"$ref": "#/$defs/a0", "$defs": defs})
    };
    let names = |count: usize| {
        (0..count)
            .map(|i| format!("value number {i}"))
            .collect::<Vec<_>>()
    };
    let words = |pattern: &str| json!({"type": "string", "pattern": pattern});
    let all_of_any = json!({"allOf": vec![json!({"anyOf": names(200).iter()
        .map(|name| json!({"properties": {name: {"type": "string"}}})).collect::<Vec<_>>()}); 4]});
    let one_of = json!({"oneOf": (0..5000).map(|i| json!({"type": "object",
        "properties": {"kind": {"const": format!("k{i}")}}, "required": ["kind"]})).collect::<Vec<_>>()});
    let many = names(2000)
        .into_iter()
        .map(|name| (name, json!({"type": "string"})));
    let optional = json!({"type": "object", "additionalProperties": false,
        "properties": many.collect::<serde_json::Map<_, _>>()});
    let patterns = names(60)
        .into_iter()
        .map(|name| (format!("{name}.*x"), json!({})));
    let patterns = json!({"type": "object",
        "patternProperties": patterns.collect::<serde_json::Map<_, _>>()});
    let tree = json!({"$ref": "#/$defs/t", "$defs": {"t": {"anyOf": [
        {"type": "array", "items": {"$ref": "#/$defs/t"}},
        {"type": "array", "items": {"$ref": "#/$defs/t"}}, {"type": "null"}]}}});
    for (name, schema) in [
        (
            "deep arrays",
            nested(60, |inner| json!({"type": "array", "items": inner})),
        ),
        (
            "too deep",
            nested(70, |inner| json!({"type": "array", "items": inner})),
        ),
        (
            "deep choices",
            nested(60, |inner| json!({"anyOf": [inner, {"type": "null"}]})),
        ),
        (
            "doubled",
            nested(
                14,
                |inner| json!({"anyOf": [inner.clone(), {"items": inner}]}),
            ),
        ),
        ("chain", chain(2000)),
        ("long chain", chain(9000)),
        ("circle", json!({"$ref": "#"})),
        (
            "circle of all",
            json!({"allOf": [{"$ref": "#"}, {"type": "object"}]}),
        ),
        (
            "circle of any",
            json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}),
        ),
        ("enum", json!({"enum": names(15_000)})),
        ("too large an enum", json!({"enum": names(25_000)})),
        ("optional properties", optional),
        ("all of any", all_of_any),
        ("one of", one_of),
        ("pattern properties", patterns),
        ("tree", tree),
        ("repeats", words("^(a?){200}a{200}$")),
        ("nested repeats", words("^((a{1,50}){1,50}){1,50}$")),
        ("many repeats", words("(x+x+)+y")),
        ("any before", words(".*a.{60}b.*c.{60}")),
        ("huge repeat", words("a{1000000000}")),
        (
            "long",
            json!({"type": "string", "minLength": 1_000_000_000}),
        ),
        (
            "many items",
            json!({"type": "array", "minItems": 1_000_000_000, "items": {}}),
        ),
        (
            "most items",
            json!({"type": "array", "maxItems": 1_000_000, "items": {"enum": [1, "a"]}}),
        ),
        (
            "many properties",
            json!({"type": "object", "minProperties": 1_000_000}),
        ),
        ("multiple", json!({"type": "number", "multipleOf": 1e-300})),
        (
            "large multiple",
            json!({"type": "integer", "multipleOf": 999_999_937}),
        ),
        (
            "bounds",
            json!({"type": "number", "minimum": -1e308, "maximum": 1.000_000_000_1e308}),
        ),
        ("letters", words("^[\\w\\p{L}\\p{N}]{1,5000}$")),
        (
            "both",
            json!({"type": "string", "pattern": "^(a|b)*a(a|b){12}$", "minLength": 100,
            "maxLength": 5000}),
        ),
    ] {
        // An endless computation would show as a test that does not end.
        let told = followed(&schema, 60);
        let (_, words) = HOW_THEY_END
            .into_iter()
            .find(|(of, _)| *of == name)
            .expect("the case is listed");
        assert!(told.contains(words), "{name}: {told}");
    }
}
