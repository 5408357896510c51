//! Parsing of model answers: tool calls and reasoning of every model family, and text that only
//! resembles them.

use pkgtool_text::answer::{AnswerFormat, AnswerParser, CallFamily, OfferedTool, Piece, Reasoning};
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

fn reading(family: CallFamily) -> AnswerFormat {
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
fn read(family: CallFamily, text: &str) -> Sum {
    let reading = reading(family);
    let whole = sum(&reading, [text]);
    let letters = text
        .char_indices()
        .map(|(start, c)| &text[start..start + c.len_utf8()]);
    assert_eq!(sum(&reading, letters), whole, "{text}");
    whole
}

fn calls(family: CallFamily, text: &str) -> Vec<(String, String)> {
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
            CallFamily::Hermes,
            format!("<tool_call>\n{call}\n</tool_call>\n<tool_call>\n{time}\n</tool_call>"),
            vec![oslo(), now()],
        ),
        (
            CallFamily::Hermes,
            format!("<tool_call>[{call}, {time}]</tool_call>"),
            vec![oslo(), now()],
        ),
        (
            CallFamily::Hermes,
            format!("<tool_call>{call}"),
            vec![oslo()],
        ),
        (
            CallFamily::Xml,
            format!("<tool_call>\n{xml}\n</tool_call>\n"),
            vec![compact.clone()],
        ),
        (CallFamily::Xml, xml.to_owned(), vec![compact.clone()]),
        (
            CallFamily::Xml,
            "<function=now>\n</function>".to_owned(),
            vec![now()],
        ),
        (CallFamily::Llama, bare.clone(), vec![oslo()]),
        (
            CallFamily::Llama,
            format!("<|python_tag|>{bare}; {time}"),
            vec![oslo(), now()],
        ),
        (
            CallFamily::Llama,
            r#"<|python_tag|>weather.call(city="Oslo", days=3)"#.to_owned(),
            vec![compact.clone()],
        ),
        (
            CallFamily::Llama,
            format!("<function=weather>{OSLO}</function>"),
            vec![oslo()],
        ),
        (
            CallFamily::Mistral,
            format!("[TOOL_CALLS][{call}, {time}]"),
            vec![oslo(), now()],
        ),
        (
            CallFamily::Mistral,
            format!("[TOOL_CALLS]weather[ARGS]{OSLO}[TOOL_CALLS]now{{}}"),
            vec![oslo(), now()],
        ),
        (
            CallFamily::Mistral,
            format!("[TOOL_CALLS] weather[CALL_ID]abc[ARGS] {OSLO}"),
            vec![oslo()],
        ),
        (
            CallFamily::Phi,
            format!("<|tool_call|>[{call}]<|/tool_call|>"),
            vec![oslo()],
        ),
        (
            CallFamily::Phi,
            format!("functools[{call}, {time}]"),
            vec![oslo(), now()],
        ),
        (
            CallFamily::Granite,
            format!("<|tool_call|>[{call}]"),
            vec![oslo()],
        ),
        (
            CallFamily::Granite,
            format!("<tool_call>{call}</tool_call>"),
            vec![oslo()],
        ),
        (
            CallFamily::Lfm,
            "<|tool_call_start|>[weather(city=\"Oslo\", days=3), now()]<|tool_call_end|>"
                .to_owned(),
            vec![compact.clone(), now()],
        ),
        (
            CallFamily::Lfm,
            "<|tool_call_start|>[now()]".to_owned(),
            vec![now()],
        ),
        (
            CallFamily::Gemma,
            "```tool_code\nweather('Oslo', 3)\nnow()\n```".to_owned(),
            vec![compact, now()],
        ),
        (
            CallFamily::Required,
            format!("[{call}, {time}]"),
            vec![oslo(), now()],
        ),
        (
            CallFamily::Harmony,
            format!(
                "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{OSLO}\
                <|call|>"
            ),
            vec![oslo()],
        ),
        (
            CallFamily::Harmony,
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
        CallFamily::Hermes,
        &format!("Let me see.\n\n{call}\n\nDone. \n"),
    );
    assert_eq!(sum.content, "Let me see.Done.");
    assert_eq!(sum.calls, [oslo()]);
    let sum = read(CallFamily::Hermes, "No call,  at all. \n");
    assert_eq!(sum.content, "No call,  at all. \n");
    let sum = read(
        CallFamily::Harmony,
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
            CallFamily::Hermes,
            r#"<tool_call>{"name": "other", "arguments": {}}</tool_call>"#,
        ),
        (CallFamily::Hermes, "<tool_call>not JSON</tool_call> and on"),
        (
            CallFamily::Hermes,
            "<tool_call>{\"name\": \"now\" oops}</tool_call>",
        ),
        (
            CallFamily::Hermes,
            "<tool_call>{\"name\": \"now\", \"arguments\": {",
        ),
        (CallFamily::Hermes, "<tool_call>"),
        (CallFamily::Hermes, "  a <tool_cal"),
        (CallFamily::Hermes, "<tool_call>{]}"),
        (CallFamily::Xml, "<function=other>\n</function>"),
        (CallFamily::Xml, "<function=now>stray</function>"),
        (CallFamily::Xml, "<tool_call>\n<function=now>\n"),
        (
            CallFamily::Llama,
            r#"{"name": "Bob", "parameters": {}} is a person"#,
        ),
        (
            CallFamily::Llama,
            r#"say {"name": "now", "parameters": {}}"#,
        ),
        (CallFamily::Llama, "<|python_tag|>print(5)"),
        (CallFamily::Llama, " {"),
        (CallFamily::Mistral, "[TOOL_CALLS]other[ARGS]{}"),
        (CallFamily::Mistral, "[TOOL_CALLS]weather"),
        (CallFamily::Phi, "functools[1, 2]"),
        (
            CallFamily::Lfm,
            "<|tool_call_start|>[weather(city=open('x'))]<|tool_call_end|>!",
        ),
        (
            CallFamily::Gemma,
            "```python\nfor x in y:\n    now(x)\n```\nis code",
        ),
        (CallFamily::Gemma, "``` and ```tool"),
        (CallFamily::Required, "[]"),
        (CallFamily::Harmony, "plain text"),
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
        CallFamily::Hermes,
        "<tool_call>{bad]</tool_call><tool_call>{\"name\": \"now\", \"arguments\": null}</tool_call>",
    );
    assert_eq!(sum.content, "<tool_call>{bad]</tool_call>");
    assert_eq!(sum.calls, [now()]);
}

#[test]
fn without_tools_nothing_is_a_call() {
    let text = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    let mut reading = reading(CallFamily::Hermes);
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
            calls(CallFamily::Hermes, &text),
            [("now".to_owned(), given.to_owned())]
        );
    }
    let xml = "<function=weather><parameter=city>\n5\n</parameter><parameter=days>5</parameter>\
               <parameter=more>[1, null]</parameter></function>";
    let expected = r#"{"city":"5","days":5,"more":[1,null]}"#;
    assert_eq!(calls(CallFamily::Xml, xml)[0].1, expected);
    let python = r#"<|tool_call_start|>[weather(city='a\n"b"', days=-1_000, more={"k": (1.5, None, True), 2: []})]<|tool_call_end|>"#;
    let expected = r#"{"city":"a\n\"b\"","days":-1000,"more":{"k":[1.5,null,true],"2":[]}}"#;
    assert_eq!(calls(CallFamily::Lfm, python)[0].1, expected);
}

#[test]
fn reasoning_is_told_apart() {
    let family = CallFamily::Hermes;
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
        (
            "<tool_call>\n{\"name\": <function-name>",
            CallFamily::Hermes,
        ),
        (
            "<tool_call>\n<function=example>\n<parameter=a>",
            CallFamily::Xml,
        ),
        ("<|start_header_id|>…<|python_tag|>", CallFamily::Llama),
        ("[AVAILABLE_TOOLS][TOOL_CALLS]", CallFamily::Mistral),
        ("<|tool|>…<|/tool|><|tool_call|>", CallFamily::Phi),
        ("<|start_of_role|><|tool_call|>", CallFamily::Granite),
        ("<|tool_list_start|>", CallFamily::Lfm),
        ("<start_of_turn>model", CallFamily::Gemma),
        ("<|channel|>analysis<|message|>", CallFamily::Harmony),
        ("{{ content }}", CallFamily::Hermes),
    ] {
        assert_eq!(CallFamily::of(template), family, "{template}");
    }
}

const FAMILIES: [CallFamily; 10] = [
    CallFamily::Hermes,
    CallFamily::Xml,
    CallFamily::Llama,
    CallFamily::Mistral,
    CallFamily::Phi,
    CallFamily::Granite,
    CallFamily::Lfm,
    CallFamily::Gemma,
    CallFamily::Harmony,
    CallFamily::Required,
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
fn cut(family: CallFamily, text: &str) -> Sum {
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
        (CallFamily::Required, forced, both),
        (
            CallFamily::Required,
            r#"[{"name": "weather", "arguments": "#,
            weather(""),
        ),
        (CallFamily::Required, r#"{"name": "weather", "#, weather("")),
        (CallFamily::Required, r#"[{"name": "wea"#, Vec::new()),
        (CallFamily::Required, r#"[{"na"#, Vec::new()),
        (CallFamily::Required, "[", Vec::new()),
        (
            CallFamily::Required,
            r#"[{"name": "now", "arguments": {}}, "#,
            vec![now()],
        ),
        (
            CallFamily::Hermes,
            r#"<tool_call>{"name": "weather", "arguments": {"city""#,
            weather(r#"{"city""#),
        ),
        (
            CallFamily::Llama,
            r#"{"name": "weather", "parameters": {"days": 3"#,
            weather(r#"{"days": 3"#),
        ),
        (
            CallFamily::Mistral,
            r#"[TOOL_CALLS]weather[ARGS]{"city": "#,
            weather(r#"{"city": "#),
        ),
        (
            CallFamily::Harmony,
            r#"<|channel|>commentary to=functions.weather<|message|>{"city": "Os"#,
            weather(r#"{"city": "Os"#),
        ),
    ] {
        let sum = cut(family, text);
        assert_eq!((sum.content.as_str(), sum.calls), ("", calls), "{text}");
    }
    // Text that is not certainly a tool call stays content, however the answer ended.
    let text = r#"<tool_call>{"name": "nobody", "#;
    assert_eq!(cut(CallFamily::Hermes, text).content, text);
    let text = r#"<tool_call>{"name": "weather", "arguments": {"#;
    assert_eq!(read(CallFamily::Hermes, text).content, text);
    assert_eq!(
        read(
            CallFamily::Required,
            r#"[{"name": "weather", "arguments": {"#
        ),
        Sum::default()
    );
}
