//! The search for the chat template of a package, and the error when it is missing.

use std::fs;
use std::path::Path;

use pkgtool_text::template::{FindError, TemplatePlaces, Templates};
use serde_json::{Value, json};
use tempfile::TempDir;

struct Package(TempDir);

impl Package {
    fn new() -> Self {
        let package = Self(TempDir::new().expect("a directory"));
        fs::create_dir(package.0.path().join("xnnpack")).expect("a directory");
        package
    }

    fn with(self, file: &str, text: &str) -> Self {
        let file = self.0.path().join(file);
        fs::create_dir_all(file.parent().expect("the path has a parent")).expect("a directory");
        fs::write(file, text).expect("the file is written");
        self
    }

    fn with_config(self, config: &Value) -> Self {
        self.with("tokenizer_config.json", &config.to_string())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn find(&self) -> Result<Templates, FindError> {
        Templates::find(TemplatePlaces {
            tokenizer_config: None,
            tokenizer: Some(&self.path().join("tokenizer.json")),
            config: Some(&self.path().join("xnnpack/config.json")),
        })
    }

    fn default_text(&self) -> String {
        let found = self.find().unwrap_or_else(|error| panic!("{error}"));
        found
            .choose(false)
            .expect("a template matches")
            .text()
            .to_owned()
    }
}

#[test]
fn a_text_in_the_tokenizers_config() {
    let package = Package::new().with_config(&json!({
        "chat_template": "text\r\nof\rlines",
        "bos_token": {"content": "<s>", "lstrip": false},
        "eos_token": "</s>",
        "pad_token": null,
        "add_bos_token": true,
        "extra_special_tokens": {"image_token": "<image>"},
        "additional_special_tokens": ["<a>", {"content": "<b>"}],
    }));
    assert_eq!(package.default_text(), "text\nof\nlines");
    let found = package.find().expect("the template is found");
    let template = found.choose(true).expect("a template matches");
    assert_eq!(
        template.file().file_name(),
        Some("tokenizer_config.json".as_ref())
    );
    let tokens = json!({
        "bos_token": "<s>",
        "eos_token": "</s>",
        "image_token": "<image>",
        "additional_special_tokens": ["<a>", "<b>"],
    });
    assert_eq!(Value::Object(template.tokens().clone()), tokens);
}

#[test]
fn a_list_of_named_texts() {
    let package = Package::new().with_config(&json!({"chat_template": [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "tools"},
        {"name": "rag", "template": "documents"},
    ]}));
    let found = package.find().expect("the templates are found");
    let text = |tools| {
        found
            .choose(tools)
            .expect("a template matches")
            .text()
            .to_owned()
    };
    assert_eq!(text(false), "plain");
    assert_eq!(text(true), "tools");
    assert_eq!(found.all().count(), 3);
}

#[test]
fn files_beside_go_first() {
    let config = json!({"chat_template": "of the config"});
    let package = Package::new().with_config(&config);
    assert_eq!(package.default_text(), "of the config");
    let package = package.with("chat_template.json", r#"{"chat_template": "legacy"}"#);
    assert_eq!(package.default_text(), "of the config");
    let package = package.with("chat_template.jinja", "of the file");
    assert_eq!(package.default_text(), "of the file");
    let package = package.with("additional_chat_templates/tool_use.jinja", "with tools");
    let found = package.find().expect("the templates are found");
    assert_eq!(
        found.choose(true).expect("a template matches").text(),
        "with tools"
    );
    assert_eq!(
        found.choose(false).expect("a template matches").text(),
        "of the file"
    );
}

#[test]
fn a_file_beside_the_packages_config() {
    let package = Package::new().with("xnnpack/chat_template.jinja", "beside the config");
    assert_eq!(package.default_text(), "beside the config");
    let package = Package::new().with("chat_template.json", r#"{"chat_template": "legacy"}"#);
    assert_eq!(package.default_text(), "legacy");
}

#[test]
fn older_packages_have_a_map_of_tokens() {
    let package = Package::new()
        .with("chat_template.jinja", "text")
        .with(
            "special_tokens_map.json",
            r#"{"bos_token": {"content": "<s>"}, "eos_token": "</s>"}"#,
        )
        .with_config(&json!({"eos_token": "<end>"}));
    let found = package.find().expect("the template is found");
    let tokens = found
        .choose(false)
        .expect("a template matches")
        .tokens()
        .clone();
    assert_eq!(
        Value::Object(tokens),
        json!({"eos_token": "<end>", "bos_token": "<s>"})
    );
}

#[test]
fn what_is_not_there_is_told_with_what_to_do() {
    let error = Package::new().find().expect_err("the template is missing");
    assert!(
        error
            .to_string()
            .contains("put the model's chat_template.jinja beside"),
        "{error}"
    );
    let package = Package::new().with_config(&json!({"chat_template": [
        {"name": "rag", "template": "a"}, {"name": "tool_use", "template": "b"},
    ]}));
    let found = package.find().expect("the templates are found");
    let error = found.choose(false).expect_err("no default exists");
    assert_eq!(
        error.to_string(),
        "tokenizer_config.json has the chat templates `rag`, `tool_use`, but none named `default`; rename one of them to `default`"
    );
    assert_eq!(found.choose(true).expect("a template matches").text(), "b");
}

#[test]
fn broken_files_are_named_with_the_field() {
    for (config, told) in [
        (
            json!({"chat_template": 7}),
            "`chat_template`: expected a text or a list of named templates, found a number",
        ),
        (
            json!({"chat_template": [{"name": "default"}]}),
            "`chat_template[0].template`: expected a text, found nothing",
        ),
        (
            json!({"chat_template": [7]}),
            "`chat_template[0].name`: expected a text, found nothing",
        ),
        (json!([]), "`(root)`: expected an object, found a list"),
        (
            json!({"chat_template": "x".repeat(2 << 20)}),
            "expected a template of at most 1048576 bytes, found 2097152 bytes",
        ),
    ] {
        let error = Package::new()
            .with_config(&config)
            .find()
            .expect_err("the file is broken");
        assert!(error.to_string().contains(told), "{error}");
        assert!(
            error.to_string().starts_with("tokenizer_config.json"),
            "{error}"
        );
    }
    let package = Package::new().with("tokenizer_config.json", "{");
    let error = package.find().expect_err("the file is broken");
    assert!(error.to_string().contains("invalid JSON"), "{error}");
    let package = Package::new();
    fs::write(package.path().join("chat_template.jinja"), b"\xff").expect("the file is written");
    let error = package.find().expect_err("the file is broken");
    assert!(error.to_string().contains("invalid UTF-8"), "{error}");
    let package = Package::new().with("chat_template.jinja", &"x".repeat((1 << 20) + 1));
    assert!(matches!(package.find(), Err(FindError::Malformed { .. })));
}
