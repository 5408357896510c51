//! Tests of chat templates: the search in packages, prompts as rendered by `transformers`, and
//! resource limits.

mod arbitrary;
mod find;
mod golden;
mod hostile;
mod renderer;
mod takes;

use std::path::PathBuf;
use std::time::Duration;

use pkgtool_text::template::{Conversation, RenderLimits, Renderer, Template};
use serde_json::{Map, Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pkgtool");

/// A renderer with a small memory limit, and a time limit for busy machines.
fn renderer() -> Renderer {
    let limits = RenderLimits {
        time: Duration::from_secs(20),
        ..RenderLimits::default()
    };
    Renderer::of(PathBuf::from(PROGRAM), limits)
}

fn template(text: &str) -> Template {
    let tokens = json!({"bos_token": "<s>", "eos_token": "</s>"});
    let tokens = tokens.as_object().expect("the value is an object").clone();
    Template::new("tokenizer_config.json", "default", text, tokens)
}

fn hello() -> Conversation {
    Conversation::of(vec![json!({"role": "user", "content": "Hello"})])
}

/// A template of `tests/text/templates/styles`.
fn style(name: &str) -> Template {
    template(&of_fixtures(&format!("styles/{name}.jinja")))
}

fn of_fixtures(file: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/text/templates");
    let file = folder.join(file);
    std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

fn json_of_fixtures(file: &str) -> Value {
    serde_json::from_str(&of_fixtures(file)).expect("the text is JSON")
}

fn no_variables() -> Map<String, Value> {
    Map::new()
}
