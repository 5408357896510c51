//! Detection of the message forms that a template accepts (plain texts, parts, argument objects,
//! tools).
//!
//! The renderer detects them by trial renderings.

use pkgtool_text::template::{RenderLimits, Renderer, TemplateError, TemplateTakes};

use super::{renderer, style, template};

#[test]
fn of_the_styles() {
    let renderer = renderer();
    // Columns: plain texts, parts, argument objects, tools.
    for (name, expected) in [
        ("llama-3.1", [true, false, true, true]),
        ("chatml", [true, false, true, false]),
        ("qwen-2.5", [true, false, true, true]),
        ("qwen-3", [true, false, true, true]),
        ("qwen-3-coder", [true, false, true, true]),
        ("phi-3", [true, false, true, false]),
        ("gemma-2", [true, false, true, false]),
        ("gemma-3", [true, true, true, false]),
        ("mistral", [true, false, true, true]),
        ("smollm-3", [true, false, true, true]),
        ("hermes-tools", [true, false, true, true]),
        ("deepseek-r1", [true, false, false, false]),
        ("harmony", [true, false, true, true]),
    ] {
        let takes = renderer
            .accepted_forms(&style(name))
            .expect("the trial renderings run");
        let found = [
            takes.texts,
            takes.parts,
            takes.argument_objects,
            takes.tools,
        ];
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn a_template_that_takes_parts_alone() {
    let text =
        "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}";
    let takes = renderer()
        .accepted_forms(&template(text))
        .expect("the trial renderings run");
    assert!(takes.parts && !takes.texts);
}

#[test]
fn a_template_that_fails_on_everything_takes_texts() {
    let takes = renderer().accepted_forms(&template("{{ raise_exception('no') }}"));
    let expected = TemplateTakes {
        texts: true,
        parts: false,
        argument_objects: true,
        tools: false,
    };
    assert_eq!(takes, Ok(expected));
}

#[test]
fn a_fault_of_the_machinery_is_no_answer() {
    let nowhere = Renderer::of("/nowhere".into(), RenderLimits::default());
    let one = template("{{ messages[0].content }}");
    assert!(matches!(
        nowhere.accepted_forms(&one),
        Err(TemplateError::Start { .. })
    ));
    let takes = renderer()
        .accepted_forms(&one)
        .expect("the trial renderings run");
    assert!(takes.texts);
}
