//! Parsing of model answers: tool calls and reasoning of every model family, and text that only
//! resembles them.

use pkgtool_text::answer::{AnswerFormat, AnswerParser, Family, OfferedTool, Piece, Reasoning};
use proptest::prelude::*;
use serde_json::json;

fn tools() -> Vec<OfferedTool> {
    let parameters = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "more": {},
        },
    });
    vec![
        OfferedTool {
            name: "weather".to_owned(),
            parameters: Some(parameters),
        },
        OfferedTool {
            name: "now".to_owned(),
            parameters: None,
        },
    ]
}

fn reading(family: Family) -> AnswerFormat {
    AnswerFormat {
        family: Some(family),
        tools: tools(),
        reasoning: Reasoning::Possible,
    }
}

/// The content, the reasoning, and the tool calls as names and arguments.
#[derive(Debug, Default, PartialEq)]
struct Sum {
    content: String,
    reasoning: String,
    calls: Vec<(String, String)>,
}

fn add(sum: &mut Sum, pieces: Vec<Piece>) {
    for piece in pieces {
        match piece {
            Piece::Content(text) => sum.content += &text,
            Piece::Reasoning(text) => sum.reasoning += &text,
            Piece::Call { index, id, name } => {
                assert_eq!(index, sum.calls.len());
                assert!(id.starts_with("call_") && id.len() == 29, "{id}");
                sum.calls.push((name, String::new()));
            }
            Piece::Arguments { index, text } => sum.calls[index].1 += &text,
        }
    }
}

fn sum<'t>(reading: &AnswerFormat, chunks: impl IntoIterator<Item = &'t str>) -> Sum {
    let mut answer = AnswerParser::new(reading);
    let mut sum = Sum::default();
    for chunk in chunks {
        add(&mut sum, answer.push(chunk));
    }
    add(&mut sum, answer.finish(false));
    assert_eq!(answer.calls(), sum.calls.len());
    sum
}

/// Parses a text at once and character by character, and asserts equal results.
fn read(family: Family, text: &str) -> Sum {
    let reading = reading(family);
    let whole = sum(&reading, [text]);
    let letters = text
        .char_indices()
        .map(|(start, c)| &text[start..start + c.len_utf8()]);
    assert_eq!(sum(&reading, letters), whole, "{text}");
    whole
}

fn calls(family: Family, text: &str) -> Vec<(String, String)> {
    let sum = read(family, text);
    assert_eq!(sum.content, "", "{text}");
    sum.calls
}

const OSLO: &str = r#"{"city": "Oslo", "days": 3}"#;

fn oslo() -> (String, String) {
    ("weather".to_owned(), OSLO.to_owned())
}

fn now() -> (String, String) {
    ("now".to_owned(), "{}".to_owned())
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_family_is_read() {
    let compact = (
        "weather".to_owned(),
        r#"{"city":"Oslo","days":3}"#.to_owned(),
    );
    let call = format!(r#"{{"name": "weather", "arguments": {OSLO}}}"#);
    let bare = format!(r#"{{"name": "weather", "parameters": {OSLO}}}"#);
    let time = r#"{"name": "now", "arguments": {}}"#;
    let xml = "<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n3\n\
               </parameter>\n</function>";
    for (family, text, found) in [
        (
            Family::Hermes,
            format!("<tool_call>\n{call}\n</tool_call>\n<tool_call>\n{time}\n</tool_call>"),
            vec![oslo(), now()],
        ),
        (
            Family::Hermes,
            format!("<tool_call>[{call}, {time}]</tool_call>"),
            vec![oslo(), now()],
        ),
        (Family::Hermes, format!("<tool_call>{call}"), vec![oslo()]),
        (
            Family::Xml,
            format!("<tool_call>\n{xml}\n</tool_call>\n"),
            vec![compact.clone()],
        ),
        (Family::Xml, xml.to_owned(), vec![compact.clone()]),
        (
            Family::Xml,
            "<function=now>\n</function>".to_owned(),
            vec![now()],
        ),
        (Family::Llama, bare.clone(), vec![oslo()]),
        (
            Family::Llama,
            format!("<|python_tag|>{bare}; {time}"),
            vec![oslo(), now()],
        ),
        (
            Family::Llama,
            r#"<|python_tag|>weather.call(city="Oslo", days=3)"#.to_owned(),
            vec![compact.clone()],
        ),
        (
            Family::Llama,
            format!("<function=weather>{OSLO}</function>"),
            vec![oslo()],
        ),
        (
            Family::Mistral,
            format!("[TOOL_CALLS][{call}, {time}]"),
            vec![oslo(), now()],
        ),
        (
            Family::Mistral,
            format!("[TOOL_CALLS]weather[ARGS]{OSLO}[TOOL_CALLS]now{{}}"),
            vec![oslo(), now()],
        ),
        (
            Family::Mistral,
            format!("[TOOL_CALLS] weather[CALL_ID]abc[ARGS] {OSLO}"),
            vec![oslo()],
        ),
        (
            Family::Phi,
            format!("<|tool_call|>[{call}]<|/tool_call|>"),
            vec![oslo()],
        ),
        (
            Family::Phi,
            format!("functools[{call}, {time}]"),
            vec![oslo(), now()],
        ),
        (
            Family::Granite,
            format!("<|tool_call|>[{call}]"),
            vec![oslo()],
        ),
        (
            Family::Granite,
            format!("<tool_call>{call}</tool_call>"),
            vec![oslo()],
        ),
        (
            Family::Lfm,
            "<|tool_call_start|>[weather(city=\"Oslo\", days=3), now()]<|tool_call_end|>"
                .to_owned(),
            vec![compact.clone(), now()],
        ),
        (
            Family::Lfm,
            "<|tool_call_start|>[now()]".to_owned(),
            vec![now()],
        ),
        (
            Family::Gemma,
            "```tool_code\nweather('Oslo', 3)\nnow()\n```".to_owned(),
            vec![compact, now()],
        ),
        (
            Family::Required,
            format!("[{call}, {time}]"),
            vec![oslo(), now()],
        ),
        (
            Family::Harmony,
            format!(
                "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{OSLO}\
                <|call|>"
            ),
            vec![oslo()],
        ),
        (
            Family::Harmony,
            " to=functions.now<|channel|>commentary json<|message|>{}".to_owned(),
            vec![now()],
        ),
    ] {
        assert_eq!(calls(family, &text), found, "{family:?}: {text}");
    }
}

#[test]
fn content_stands_beside_calls() {
    let call = format!(r#"<tool_call>{{"name": "weather", "arguments": {OSLO}}}</tool_call>"#);
    let sum = read(
        Family::Hermes,
        &format!("Let me see.\n\n{call}\n\nDone. \n"),
    );
    assert_eq!(sum.content, "Let me see.Done.");
    assert_eq!(sum.calls, [oslo()]);
    let sum = read(Family::Hermes, "No call,  at all. \n");
    assert_eq!(sum.content, "No call,  at all. \n");
    let sum = read(
        Family::Harmony,
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary<|message|>\
         Looking.<|end|><|start|>assistant<|channel|>final<|message|>It <|x is 5.<|return|>",
    );
    assert_eq!(
        (sum.reasoning.as_str(), sum.content.as_str()),
        ("Hm.", "Looking.It <|x is 5.")
    );
}

#[test]
fn what_is_no_call_stays_content() {
    for (family, text) in [
        (
            Family::Hermes,
            r#"<tool_call>{"name": "other", "arguments": {}}</tool_call>"#,
        ),
        (Family::Hermes, "<tool_call>not JSON</tool_call> and on"),
        (
            Family::Hermes,
            "<tool_call>{\"name\": \"now\" oops}</tool_call>",
        ),
        (
            Family::Hermes,
            "<tool_call>{\"name\": \"now\", \"arguments\": {",
        ),
        (Family::Hermes, "<tool_call>"),
        (Family::Hermes, "  a <tool_cal"),
        (Family::Hermes, "<tool_call>{]}"),
        (Family::Xml, "<function=other>\n</function>"),
        (Family::Xml, "<function=now>stray</function>"),
        (Family::Xml, "<tool_call>\n<function=now>\n"),
        (
            Family::Llama,
            r#"{"name": "Bob", "parameters": {}} is a person"#,
        ),
        (Family::Llama, r#"say {"name": "now", "parameters": {}}"#),
        (Family::Llama, "<|python_tag|>print(5)"),
        (Family::Llama, " {"),
        (Family::Mistral, "[TOOL_CALLS]other[ARGS]{}"),
        (Family::Mistral, "[TOOL_CALLS]weather"),
        (Family::Phi, "functools[1, 2]"),
        (
            Family::Lfm,
            "<|tool_call_start|>[weather(city=open('x'))]<|tool_call_end|>!",
        ),
        (
            Family::Gemma,
            "```python\nfor x in y:\n    now(x)\n```\nis code",
        ),
        (Family::Gemma, "``` and ```tool"),
        (Family::Required, "[]"),
        (Family::Harmony, "plain text"),
    ] {
        let sum = read(family, text);
        let expected = Sum {
            content: text.to_owned(),
            ..Sum::default()
        };
        assert_eq!(sum, expected, "{family:?}");
    }
}

#[test]
fn a_call_behind_a_broken_one_is_found() {
    let sum = read(
        Family::Hermes,
        "<tool_call>{bad]</tool_call><tool_call>{\"name\": \"now\", \"arguments\": null}</tool_call>",
    );
    assert_eq!(sum.content, "<tool_call>{bad]</tool_call>");
    assert_eq!(sum.calls, [now()]);
}

#[test]
fn without_tools_nothing_is_a_call() {
    let text = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    let mut reading = reading(Family::Hermes);
    reading.tools.clear();
    assert_eq!(sum(&reading, [text]).content, text);
    let sum = sum(&AnswerFormat::plain(), ["<think>a</think>", " b"]);
    assert_eq!(sum.content, "<think>a</think> b");
}

#[test]
fn arguments_stay_as_they_were_written() {
    for (written, given) in [
        (
            r#"{"n": 12345678901234567890123, "x": 1.50}"#,
            r#"{"n": 12345678901234567890123, "x": 1.50}"#,
        ),
        (r#""{\"city\": \"Oslo\"}""#, r#"{"city": "Oslo"}"#),
        (
            r#"{"s": "</tool_call> {[\" é"}"#,
            r#"{"s": "</tool_call> {[\" é"}"#,
        ),
    ] {
        let text = format!(r#"<tool_call>{{"arguments": {written}, "name": "now"}}</tool_call>"#);
        assert_eq!(
            calls(Family::Hermes, &text),
            [("now".to_owned(), given.to_owned())]
        );
    }
    let xml = "<function=weather><parameter=city>\n5\n</parameter><parameter=days>5</parameter>\
               <parameter=more>[1, null]</parameter></function>";
    let expected = r#"{"city":"5","days":5,"more":[1,null]}"#;
    assert_eq!(calls(Family::Xml, xml)[0].1, expected);
    let python = r#"<|tool_call_start|>[weather(city='a\n"b"', days=-1_000, more={"k": (1.5, None, True), 2: []})]<|tool_call_end|>"#;
    let expected = r#"{"city":"a\n\"b\"","days":-1000,"more":{"k":[1.5,null,true],"2":[]}}"#;
    assert_eq!(calls(Family::Lfm, python)[0].1, expected);
}

#[test]
fn reasoning_is_told_apart() {
    let family = Family::Hermes;
    for (text, reasoning, content) in [
        ("<think>\nHm, 5?\n</think>\n\nFive.", "Hm, 5?", "Five."),
        ("\n<think>\n\n</think>\n\nFive.", "", "Five."),
        ("<think>a < b </ c", "a < b </ c", ""),
        ("<think>", "", ""),
        ("<thin", "", "<thin"),
        ("Say <think>no</think>.", "", "Say <think>no</think>."),
        (
            "<think>a</think>b<think>c</think>",
            "a",
            "b<think>c</think>",
        ),
        ("<think>a</think> \n", "a", ""),
    ] {
        let sum = read(family, text);
        assert_eq!(
            (sum.reasoning.as_str(), sum.content.as_str()),
            (reasoning, content),
            "{text}"
        );
    }
    let begun = AnswerFormat {
        reasoning: Reasoning::Begun,
        ..reading(family)
    };
    let text = "\nHm.\n</think>\n\n<tool_call>{\"name\": \"now\"}</tool_call>";
    let found = sum(&begun, [text]);
    assert_eq!(
        (found.reasoning.as_str(), found.calls),
        ("Hm.", vec![now()])
    );
    let mut answer = AnswerParser::new(&begun);
    assert!(answer.is_reasoning());
    answer.push("Hm.");
    assert!(answer.is_reasoning());
    answer.push("</think>");
    assert!(!answer.is_reasoning());
    assert_eq!(
        Reasoning::of("{{ '</think>' }}", "<|im_start|>assistant\n<think>\n"),
        Reasoning::Begun
    );
    let off = "<|im_start|>assistant\n<think>\n\n</think>\n\n";
    assert_eq!(Reasoning::of("{{ '</think>' }}", off), Reasoning::Possible);
    assert_eq!(Reasoning::of("{{ content }}", "x"), Reasoning::Absent);
}

#[test]
fn families_are_told_from_templates() {
    for (template, family) in [
        ("<tool_call>\n{\"name\": <function-name>", Family::Hermes),
        (
            "<tool_call>\n<function=example>\n<parameter=a>",
            Family::Xml,
        ),
        ("<|start_header_id|>…<|python_tag|>", Family::Llama),
        ("[AVAILABLE_TOOLS][TOOL_CALLS]", Family::Mistral),
        ("<|tool|>…<|/tool|><|tool_call|>", Family::Phi),
        ("<|start_of_role|><|tool_call|>", Family::Granite),
        ("<|tool_list_start|>", Family::Lfm),
        ("<start_of_turn>model", Family::Gemma),
        ("<|channel|>analysis<|message|>", Family::Harmony),
        ("{{ content }}", Family::Hermes),
    ] {
        assert_eq!(Family::of(template), family, "{template}");
    }
}

const FAMILIES: [Family; 10] = [
    Family::Hermes,
    Family::Xml,
    Family::Llama,
    Family::Mistral,
    Family::Phi,
    Family::Granite,
    Family::Lfm,
    Family::Gemma,
    Family::Harmony,
    Family::Required,
];

/// Fragments from which random answers are assembled.
fn bits() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<function=now>",
        "</function>",
        "<function=weather>",
        "<parameter=city>",
        "</parameter>",
        "<|python_tag|>",
        "[TOOL_CALLS]",
        "now[ARGS]",
        "{}",
        "<|tool_call|>",
        "<|/tool_call|>",
        "functools",
        "[",
        "]",
        "{",
        "}",
        "\"",
        "<|tool_call_start|>",
        "<|tool_call_end|>",
        "now()",
        "```",
        "tool_code",
        "python",
        "\n",
        " ",
        "é",
        "<",
        "word",
        ";",
        "<|channel|>",
        "analysis",
        "final",
        "<|message|>",
        "<|end|>",
        "<|start|>",
        "assistant",
        "to=functions.now",
        "<|call|>",
        "{\"name\": \"now\", \"arguments\": {}}",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_chunks_give_the_same(
        bits in proptest::collection::vec(bits(), 0..14),
        cuts in proptest::collection::vec(any::<bool>(), 200),
        family in prop::sample::select(FAMILIES.to_vec()),
        reasoning in prop::sample::select(vec![Reasoning::Absent, Reasoning::Possible, Reasoning::Begun]),
    ) {
        let text = bits.concat();
        let reading = AnswerFormat { family: Some(family), tools: tools(), reasoning };
        let whole = sum(&reading, [text.as_str()]);
        let mut chunks = vec![String::new()];
        for (letter, cut) in text.chars().zip(cuts.into_iter().chain(std::iter::repeat(true))) {
            if cut {
                chunks.push(String::new());
            }
            chunks.last_mut().expect("the list is not empty").push(letter);
        }
        let cut = sum(&reading, chunks.iter().map(String::as_str));
        prop_assert_eq!(cut, whole, "{}", text);
    }
}

/// Parses an answer that was truncated by a token limit.
fn cut(family: Family, text: &str) -> Sum {
    let mut answer = AnswerParser::new(&reading(family));
    let mut sum = Sum::default();
    for letter in text.chars() {
        add(&mut sum, answer.push(&letter.to_string()));
    }
    add(&mut sum, answer.finish(true));
    sum
}

#[test]
fn a_call_that_is_cut_comes_as_far_as_it_goes() {
    let weather = |arguments: &str| vec![("weather".to_owned(), arguments.to_owned())];
    let forced =
        r#"[{"name": "now", "arguments": {}}, {"name": "weather", "arguments": {"city": "Os"#;
    let both = [vec![now()], weather(r#"{"city": "Os"#)].concat();
    for (family, text, calls) in [
        (Family::Required, forced, both),
        (
            Family::Required,
            r#"[{"name": "weather", "arguments": "#,
            weather(""),
        ),
        (Family::Required, r#"{"name": "weather", "#, weather("")),
        (Family::Required, r#"[{"name": "wea"#, Vec::new()),
        (Family::Required, r#"[{"na"#, Vec::new()),
        (Family::Required, "[", Vec::new()),
        (
            Family::Required,
            r#"[{"name": "now", "arguments": {}}, "#,
            vec![now()],
        ),
        (
            Family::Hermes,
            r#"<tool_call>{"name": "weather", "arguments": {"city""#,
            weather(r#"{"city""#),
        ),
        (
            Family::Llama,
            r#"{"name": "weather", "parameters": {"days": 3"#,
            weather(r#"{"days": 3"#),
        ),
        (
            Family::Mistral,
            r#"[TOOL_CALLS]weather[ARGS]{"city": "#,
            weather(r#"{"city": "#),
        ),
        (
            Family::Harmony,
            r#"<|channel|>commentary to=functions.weather<|message|>{"city": "Os"#,
            weather(r#"{"city": "Os"#),
        ),
    ] {
        let sum = cut(family, text);
        assert_eq!((sum.content.as_str(), sum.calls), ("", calls), "{text}");
    }
    // Text that is not certainly a tool call stays content, however the answer ended.
    let text = r#"<tool_call>{"name": "nobody", "#;
    assert_eq!(cut(Family::Hermes, text).content, text);
    let text = r#"<tool_call>{"name": "weather", "arguments": {"#;
    assert_eq!(read(Family::Hermes, text).content, text);
    assert_eq!(
        read(Family::Required, r#"[{"name": "weather", "arguments": {"#),
        Sum::default()
    );
}
