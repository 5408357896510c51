//! Fuzzing of templates and conversations: each rendering ends with a text or an error.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use pkgtool_text::template::{Conversation, RenderLimits, Renderer, TemplateError};
use proptest::prelude::*;
use serde_json::{Map, Value};

use super::{PROGRAM, template};

fn shared() -> &'static Renderer {
    static RENDERER: OnceLock<Renderer> = OnceLock::new();
    RENDERER.get_or_init(|| {
        let limits = RenderLimits {
            time: Duration::from_secs(10),
            steps: 100_000,
            ..RenderLimits::default()
        };
        Renderer::of(PathBuf::from(PROGRAM), limits)
    })
}

/// Template fragments in random order; some of the templates are valid.
fn text() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "{% for m in messages %}",
        "{% endfor %}",
        "{% if m.content %}",
        "{% else %}",
        "{% endif %}",
        "{{ m.role }}",
        "{{ m.content }}",
        "{{ messages|tojson(indent=2) }}",
        "{%- generation -%}",
        "{% endgeneration %}",
        "{% raw %}",
        "{% endraw %}",
        "{# ",
        " #}",
        "{{ '",
        "' }}",
        "{%",
        "%}",
        "{{ m.content.split('a')[-1] }}",
        "{{ messages[::-1] }}",
        "{{ m|items }}",
        "{{ tools }}",
        "{% set x = m.content|string|trim %}",
        "{{ x[1:].strip('\u{e9}').title() }}",
        "{% break %}",
        "{{ strftime_now('%', }}",
        "{{ raise_exception(m) }}",
        "{% macro f(a) %}",
        "{% endmacro %}",
        "{{ f(m) }}",
        "{{ loop.index0 }}",
        "\u{feff}",
        "\r\n",
        "\\",
        "\u{1f642}",
    ]);
    let piece = prop_oneof![4 => pieces.prop_map(str::to_owned), 1 => ".{0,12}"];
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        let key = prop_oneof![
            Just("content".to_owned()),
            Just("role".to_owned()),
            ".{0,6}"
        ];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn it_ends_in_a_text_or_an_error(
        text in text(),
        messages in prop::collection::vec(value(), 0..4),
        tools in prop::option::of(prop::collection::vec(value(), 0..3)),
    ) {
        let conversation = Conversation { tools, ..Conversation::of(messages) };
        match shared().render(&template(&text), &conversation) {
            Ok(_) | Err(TemplateError::Raised { .. } | TemplateError::Syntax { .. }
                | TemplateError::Failed { .. } | TemplateError::Limit { .. }) => {}
            Err(other) => prop_assert!(false, "{other}: {text}"),
        }
    }
}
