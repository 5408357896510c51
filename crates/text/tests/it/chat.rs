//! Chat and completion requests: parsing, error messages, and the values passed to templates.

use pkgtool_text::chat::{
    ChatRequest, CompletionRequest, Content, ContentPart, FieldError, Prompt, RequestLimits,
    ResponseFormat, Role, ToolChoice, read_json,
};
use pkgtool_text::template::TemplateTakes;
use proptest::prelude::*;
use serde_json::{Value, json};

fn read(request: &Value) -> Result<ChatRequest, FieldError> {
    ChatRequest::read(request, &RequestLimits::default())
}

fn chat(fields: &Value) -> Value {
    let mut request = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
    let (all, more) = (request.as_object_mut(), fields.as_object());
    all.expect("the value is an object")
        .extend(more.expect("the value is an object").clone());
    request
}

fn message(message: &Value) -> Value {
    chat(&json!({"messages": [{"role": "user", "content": "Hi"}, message]}))
}

fn tool(name: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}})
}

#[test]
fn a_full_request_is_read() {
    let request = read(&json!({
        "model": "local/pebble",
        "messages": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "name": "eve"},
            {"role": "assistant", "content": null, "reasoning": "hm", "tool_calls": [
                {"id": "call_1", "index": 0, "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}},
            ]},
            {"role": "tool", "tool_call_id": "call_1", "content": "2"},
        ],
        "tools": [tool("f"), tool("g")],
        "tool_choice": {"type": "function", "function": {"name": "g"}},
        "parallel_tool_calls": false,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
        "stream": true,
        "stream_options": {"include_usage": true},
        "n": 2.0,
        "max_completion_tokens": 9,
        "max_tokens": 9,
        "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": false},
        "temperature": 0.5,
        "stop": ["x"],
        "unknown": {"a": 1},
    }));
    let request = request.expect("the model is valid");
    assert_eq!(request.model.as_deref(), Some("local/pebble"));
    let roles: Vec<Role> = request
        .messages
        .iter()
        .map(|message| message.role)
        .collect();
    assert_eq!(
        roles,
        [Role::System, Role::User, Role::Assistant, Role::Tool]
    );
    let parts = Content::Parts(
        ["a", "b"]
            .map(|it| ContentPart::Text(it.to_owned()))
            .to_vec(),
    );
    assert_eq!(request.messages[1].content, parts);
    assert_eq!(request.messages[2].content, Content::Absent);
    assert_eq!(request.messages[2].tool_calls[0].arguments["x"], 1);
    assert_eq!(request.tool_choice, ToolChoice::Function("g".to_owned()));
    assert!(!request.parallel_tool_calls);
    assert!(matches!(
        request.response_format,
        ResponseFormat::JsonSchema { .. }
    ));
    assert!(request.streaming.stream && request.streaming.include_usage);
    assert_eq!((request.choices, request.max_tokens), (2, Some(9)));
    let variables = json!({"reasoning_effort": "low", "enable_thinking": false});
    assert_eq!(Value::Object(request.variables.clone()), variables);
    let fields = json!({"temperature": 0.5, "stop": ["x"], "unknown": {"a": 1}});
    assert_eq!(Value::Object(request.fields.clone()), fields);
}

/// Asserts that each request is rejected with its message.
fn refused(requests: &[(Value, &str)]) {
    for (request, told) in requests {
        let fault = read(request).expect_err(&request.to_string());
        assert_eq!(fault.to_string(), *told, "{request}");
    }
}

#[test]
fn messages_that_are_wrong_are_named() {
    refused(&[
        (
            json!([]),
            "the request: expected an object, found an empty list",
        ),
        (
            json!({}),
            "`messages`: expected a list of messages, found nothing",
        ),
        (
            json!({"messages": []}),
            "`messages`: expected at least one of messages, found an empty list",
        ),
        (
            json!({"messages": "Hi"}),
            "`messages`: expected a list of messages, found \"Hi\"",
        ),
        (
            json!({"messages": [7]}),
            "`messages[0]`: expected an object, found 7",
        ),
        (
            chat(&json!({"model": 7})),
            "`model`: expected a string, found 7",
        ),
        (
            message(&json!({"content": "x"})),
            "`messages[1].role`: expected `system`, `developer`, `user`, `assistant` or `tool`, found nothing",
        ),
        (
            message(&json!({"role": "robot", "content": "x"})),
            "`messages[1].role`: expected `system`, `developer`, `user`, `assistant` or `tool`, found \"robot\"",
        ),
        (
            message(&json!({"role": "user"})),
            "`messages[1].content`: expected a string or a list of parts, found nothing",
        ),
        (
            message(&json!({"role": "user", "content": 7})),
            "`messages[1].content`: expected a string or a list of parts, found 7",
        ),
        (
            message(&json!({"role": "user", "content": []})),
            "`messages[1].content`: expected at least one of parts, found an empty list",
        ),
        (
            message(&json!({"role": "user", "content": [{"type": "text"}]})),
            "`messages[1].content[0].text`: expected a string, found nothing",
        ),
        (
            message(
                &json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio"}]}),
            ),
            "`messages[1].content[1].type`: expected `text` or `image_url`: audio and files are not supported, found \"input_audio\"",
        ),
        (
            message(
                &json!({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}),
            ),
            "`messages[1].content[0].image_url.url`: expected a picture as data URI, such as `data:image/png;base64,iVBORw0…`, found \"x\"; the server fetches nothing",
        ),
        (
            message(&json!({"role": "assistant", "content": null})),
            "`messages[1].content`: expected a string, a list of parts, or `tool_calls` beside it, found nothing",
        ),
        (
            message(&json!({"role": "user", "content": "x", "tool_calls": [{}]})),
            "`messages[1].tool_calls`: expected nothing: only the assistant calls tools, found a list of 1 item",
        ),
        (
            message(&json!({"role": "assistant", "tool_calls": [{"type": "function"}]})),
            "`messages[1].tool_calls[0].function`: expected an object, found nothing",
        ),
        (
            message(
                &json!({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}),
            ),
            "`messages[1].tool_calls[0].function.arguments`: expected a string that holds a JSON object, found \"[1]\"",
        ),
        (
            message(&json!({"role": "tool", "content": "x", "tool_call_id": 7})),
            "`messages[1].tool_call_id`: expected a string, found 7",
        ),
    ]);
}

#[test]
fn tools_that_are_wrong_are_named() {
    refused(&[
        (
            chat(&json!({"tools": {}})),
            "`tools`: expected a list of tools, found an object",
        ),
        (
            chat(&json!({"tools": [{"type": "web_search"}]})),
            "`tools[0].type`: expected `function`, found \"web_search\"",
        ),
        (
            chat(&json!({"tools": [tool("a b")]})),
            "`tools[0].function.name`: expected 1 to 64 letters, digits, `_`, `-` and `.`, found \"a b\"",
        ),
        (
            chat(&json!({"tools": [tool("a"), tool("a")]})),
            "`tools[1].function.name`: expected a name that no other tool has, found \"a\"",
        ),
        (
            chat(
                &json!({"tools": [{"type": "function", "function": {"name": "a", "parameters": []}}]}),
            ),
            "`tools[0].function.parameters`: expected an object, found an empty list",
        ),
        (
            chat(&json!({"tool_choice": "always"})),
            "`tool_choice`: expected `none`, `auto`, `required` or a function, found \"always\"",
        ),
        (
            chat(&json!({"tool_choice": "required"})),
            "`tools`: expected at least one tool, as `tool_choice` asks, found none",
        ),
        (
            chat(
                &json!({"tools": [tool("a")], "tool_choice": {"type": "function", "function": {"name": "b"}}}),
            ),
            "`tool_choice.function.name`: expected the name of one of `tools`, found \"b\"",
        ),
    ]);
}

#[test]
fn other_fields_that_are_wrong_are_named() {
    refused(&[
        (
            chat(&json!({"functions": []})),
            "`functions`: expected `tools` instead, found the outdated field",
        ),
        (
            chat(&json!({"n": 0})),
            "`n`: expected a whole number from 1 to 128, found 0",
        ),
        (
            chat(&json!({"n": 1_000_000_000_000_u64})),
            "`n`: expected a whole number from 1 to 128, found 1000000000000",
        ),
        (
            chat(&json!({"n": 1.5})),
            "`n`: expected a whole number from 1 to 128, found 1.5",
        ),
        (
            chat(&json!({"max_tokens": 0})),
            "`max_tokens`: expected a whole number from 1 to 4294967295, found 0",
        ),
        (
            chat(&json!({"max_tokens": 1e300})),
            "`max_tokens`: expected a whole number from 1 to 4294967295, found 1e+300",
        ),
        (
            chat(&json!({"max_tokens": 5, "max_completion_tokens": 6})),
            "`max_completion_tokens`: expected 5, as `max_tokens` says, found 6",
        ),
        (
            chat(&json!({"stream": "yes"})),
            "`stream`: expected true or false, found \"yes\"",
        ),
        (
            chat(&json!({"stream_options": {"include_usage": true}})),
            "`stream_options`: expected nothing unless `stream` is true, found an object",
        ),
        (
            chat(&json!({"response_format": {"type": "xml"}})),
            "`response_format.type`: expected `text`, `json_object` or `json_schema`, found \"xml\"",
        ),
        (
            chat(
                &json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}),
            ),
            "`response_format.json_schema.schema`: expected an object, found nothing",
        ),
        (
            chat(&json!({"chat_template_kwargs": []})),
            "`chat_template_kwargs`: expected an object, found an empty list",
        ),
        (
            chat(&json!({"chat_template_kwargs": {"messages": []}})),
            "`chat_template_kwargs.messages`: expected nothing: `messages` is a field of the request itself, found an empty list",
        ),
    ]);
}

#[test]
fn bounds_are_held_before_anything_is_built() {
    let bounds = RequestLimits {
        bytes: 200,
        values: 20,
        messages: 2,
        parts: 2,
        pictures: 1,
        tools: 1,
        choices: 3,
        prompts: 2,
        max_tokens: 100,
    };
    let told = |request: &Value| {
        let fault = ChatRequest::read(request, &bounds).expect_err("the limit is exceeded");
        fault.to_string()
    };
    let hi = json!({"role": "user", "content": "Hi"});
    assert_eq!(
        told(&json!({"messages": [hi, hi, 7]})),
        "`messages`: expected at most 2 messages, found a list of 3 items"
    );
    assert_eq!(
        told(&chat(&json!({"tools": [tool("a"), 7]}))),
        "`tools`: expected at most 1 tools, found a list of 2 items"
    );
    assert!(
        told(&message(&json!({"role": "user", "content": [1, 2, 3]}))).contains("at most 2 parts")
    );
    assert!(told(&chat(&json!({"n": 4}))).contains("from 1 to 3, found 4"));
    assert!(told(&chat(&json!({"max_tokens": 101}))).contains("from 1 to 100, found 101"));
    let told = |text: &str| {
        read_json(text.as_bytes(), &bounds)
            .expect_err("the limit is exceeded")
            .to_string()
    };
    assert_eq!(
        told(&"x".repeat(201)),
        "the request: expected at most 200 bytes, found 201 bytes"
    );
    assert_eq!(
        told("[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]"),
        "the request: expected JSON of at most 20 values, found more values"
    );
    assert!(told("{").starts_with("the request: expected JSON, found invalid JSON: EOF"));
    assert!(told("{} x").starts_with("the request: expected JSON, found invalid JSON: trailing"));
    let fault = read_json(b"\"\xff\"", &bounds).expect_err("the text is not UTF-8");
    assert!(fault.to_string().contains("unicode"), "{fault}");
    let deep = "[".repeat(100_000);
    let fault =
        read_json(deep.as_bytes(), &RequestLimits::default()).expect_err("the nesting is too deep");
    assert!(fault.to_string().contains("recursion"), "{fault}");
}

#[test]
fn json_is_read_as_it_is() {
    let text =
        r#"{"b": [1, -2, 1.50, "é", null, true, 18446744073709551615], "a": {"b": 1, "a": 2}}"#;
    let value = read_json(text.as_bytes(), &RequestLimits::default()).expect("the text is JSON");
    let expected: Value = serde_json::from_str(text).expect("the text is JSON");
    assert_eq!(value.to_string(), expected.to_string());
}

const TEXTS: TemplateTakes = TemplateTakes {
    texts: true,
    parts: false,
    argument_objects: true,
    tools: true,
};

#[test]
fn templates_get_the_forms_they_take() {
    let request = json!({"tools": [tool("f")], "messages": [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{\"y\": 1, \"x\": 2}"}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "2"},
    ]});
    let request = read(&chat(&request)).expect("the input is valid");
    let conversation = request.conversation(TEXTS, None);
    assert_eq!(
        Value::from(conversation.messages),
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "a\nb"},
            {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": {"y": 1, "x": 2}}},
            ]},
            {"role": "tool", "content": "2", "tool_call_id": "call_1"},
        ])
    );
    assert_eq!(conversation.tools, Some(vec![tool("f")]));
    assert!(conversation.add_generation_prompt);
    let takes = TemplateTakes {
        texts: false,
        parts: true,
        argument_objects: false,
        tools: true,
    };
    let messages = request.conversation(takes, None).messages;
    assert_eq!(
        messages[0]["content"],
        json!([{"type": "text", "text": "Be brief."}])
    );
    assert_eq!(messages[1]["content"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        messages[2]["tool_calls"][0]["function"]["arguments"],
        "{\"y\": 1, \"x\": 2}"
    );
}

#[test]
fn no_tools_are_shown_where_none_may_be_called() {
    let request = read(&chat(&json!({"tools": [tool("f")], "tool_choice": "none"})));
    let conversation = request
        .expect("the model is valid")
        .conversation(TEXTS, None);
    assert_eq!(conversation.tools, None);
    let request = read(&chat(&json!({"tools": []}))).expect("the input is valid");
    assert_eq!(request.conversation(TEXTS, None).tools, None);
}

#[test]
fn a_prompt_has_four_forms() {
    let prompts = |prompt: Value| {
        let request = json!({"prompt": prompt});
        CompletionRequest::read(&request, &RequestLimits::default()).map(|request| request.prompts)
    };
    let text = |text: &str| Prompt::Text(text.to_owned());
    assert_eq!(prompts(json!("a")), Ok(vec![text("a")]));
    assert_eq!(prompts(json!("")), Ok(vec![text("")]));
    assert_eq!(prompts(json!(["a", "b"])), Ok(vec![text("a"), text("b")]));
    assert_eq!(prompts(json!([1, 2])), Ok(vec![Prompt::Tokens(vec![1, 2])]));
    let lists = vec![Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])];
    assert_eq!(prompts(json!([[1], [2, 3]])), Ok(lists));
    for (prompt, path) in [
        (json!(null), "prompt"),
        (json!([]), "prompt"),
        (json!({}), "prompt"),
        (json!(["a", 1]), "prompt[1]"),
        (json!([1, "a"]), "prompt[1]"),
        (json!([1, -1]), "prompt[1]"),
        (json!([[1], []]), "prompt[1]"),
        (json!([[1], [1.5]]), "prompt[1][0]"),
        (json!([[1], [4_294_967_296_u64]]), "prompt[1][0]"),
    ] {
        let fault = prompts(prompt.clone()).expect_err("the input is invalid");
        assert_eq!(fault.path, path, "{prompt}");
    }
}

#[test]
fn completions_have_fields_of_their_own() {
    let read = |request: &Value| CompletionRequest::read(request, &RequestLimits::default());
    let request = json!({"prompt": "a", "echo": true, "max_tokens": 0, "suffix": "b", "best_of": 3, "n": 2, "logprobs": 1});
    let request = read(&request).expect("the input is valid");
    assert!(request.echo);
    assert_eq!(request.max_tokens, Some(0));
    assert_eq!((request.choices, request.best_of), (2, 3));
    assert_eq!(request.suffix.as_deref(), Some("b"));
    assert_eq!(request.fields["logprobs"], 1);
    for (fields, told) in [
        (
            json!({"prompt": "a", "max_tokens": 0}),
            "`max_tokens`: expected a whole number from 1 to 4294967295, found 0",
        ),
        (
            json!({"prompt": "a", "n": 2, "best_of": 1}),
            "`best_of`: expected a whole number from 2 to 128, found 1",
        ),
        (
            json!({"prompt": "a", "best_of": 2, "stream": true}),
            "`best_of`: expected `n` where `stream` is true, found 2",
        ),
        (
            json!({"prompt": "a", "suffix": 1}),
            "`suffix`: expected a string, found 1",
        ),
        (
            json!({"prompt": "a", "echo": 1}),
            "`echo`: expected true or false, found 1",
        ),
    ] {
        let fault = read(&fields).expect_err("the input is invalid");
        assert_eq!(fault.to_string(), told);
    }
}

fn arbitrary() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "system",
        "user",
        "assistant",
        "tool",
        "text",
        "function",
        "none",
        "auto",
        "required",
        "json_schema",
        "",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        words.prop_map(Value::from),
        ".{0,80}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        let key = prop::sample::select(vec![
            "messages",
            "role",
            "content",
            "type",
            "text",
            "tools",
            "function",
            "name",
            "arguments",
            "parameters",
            "tool_calls",
            "tool_choice",
            "response_format",
            "json_schema",
            "schema",
            "n",
            "max_tokens",
            "stream",
            "stream_options",
            "prompt",
            "best_of",
            "echo",
            "chat_template_kwargs",
            "documents",
            "reasoning",
        ]);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key.prop_map(str::to_owned), inner), 0..8)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn whatever_comes_is_read_or_refused(request in arbitrary()) {
        if let Ok(request) = read(&request) {
            prop_assert!(!request.messages.is_empty());
            let _ = request.conversation(TEXTS, None);
        }
        let _ = CompletionRequest::read(&request, &RequestLimits::default());
    }

    #[test]
    fn arbitrary_messages_are_read_or_refused(messages in prop::collection::vec(arbitrary(), 1..4)) {
        if let Ok(request) = read(&json!({"messages": messages})) {
            let _ = request.conversation(TEXTS, None);
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let expected: Result<Value, _> = serde_json::from_slice(&bytes);
        prop_assert_eq!(read_json(&bytes, &RequestLimits::default()).ok(), expected.ok());
    }
}
