//! The worker processes that render templates: reuse, sharing, replacement, and error messages.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use pkgtool_text::template::{Conversation, RenderLimits, Renderer, TemplateError};
use serde_json::json;
use tempfile::TempDir;

use super::{PROGRAM, hello, renderer, style, template};

/// A renderer whose worker processes run this script.
fn stand_in(directory: &Path, script: &str) -> Renderer {
    let program = directory.join("worker.sh");
    fs::write(&program, format!("#!/bin/sh\n{script}\n")).expect("a script is written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("the mode is set");
    let limits = RenderLimits {
        time: Duration::from_secs(2),
        ..RenderLimits::default()
    };
    Renderer::of(program, limits)
}

#[test]
fn one_process_serves_one_caller_after_another() {
    let directory = TempDir::new().expect("a directory");
    let mark = directory.path().join("pids");
    let script = format!("echo $$ >> {}; exec {PROGRAM} \"$@\"", mark.display());
    let renderer = stand_in(directory.path(), &script);
    let template = template("{{ messages[0].content }}");
    for _ in 0..20 {
        assert_eq!(renderer.render(&template, &hello()).as_deref(), Ok("Hello"));
    }
    let pids = fs::read_to_string(&mark).expect("the worker started");
    assert_eq!(pids.lines().count(), 1);
    drop(renderer);
    let alive = Path::new("/proc").join(pids.trim());
    assert!(!alive.exists(), "{}", alive.display());
}

#[test]
fn a_process_that_was_killed_while_idle_is_replaced() {
    let directory = TempDir::new().expect("a directory");
    let mark = directory.path().join("pid");
    let script = format!("echo $$ > {}; exec {PROGRAM} \"$@\"", mark.display());
    let renderer = stand_in(directory.path(), &script);
    let template = template("{{ messages[0].content }}");
    for _ in 0..3 {
        assert_eq!(renderer.render(&template, &hello()).as_deref(), Ok("Hello"));
        let pid = fs::read_to_string(&mark).expect("the worker started");
        let killed = Command::new("kill").args(["-9", pid.trim()]).status();
        assert!(killed.expect("kill can be run").success());
        // The process closes its end of the channel slightly later, when the last of its threads
        // has ended.
        let ended = || {
            let process = Path::new("/proc").join(pid.trim());
            let stat = fs::read_to_string(process.join("stat"));
            let threads = fs::read_dir(process.join("task")).map_or(0, Iterator::count);
            stat.map_or(true, |stat| stat.contains(") Z ") && threads <= 1)
        };
        while !ended() {
            thread::yield_now();
        }
    }
    assert_eq!(renderer.render(&template, &hello()).as_deref(), Ok("Hello"));
}

#[test]
fn many_threads_share_it() {
    let renderer = renderer();
    let templates = [
        style("qwen-3"),
        style("llama-3.1"),
        template("{{ messages }}"),
    ];
    let expected: Vec<_> = templates
        .iter()
        .map(|it| renderer.render(it, &hello()))
        .collect();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    for (template, expected) in templates.iter().zip(&expected) {
                        assert_eq!(&renderer.render(template, &hello()), expected);
                    }
                }
            });
        }
    });
}

#[test]
fn more_templates_than_a_process_keeps() {
    let renderer = renderer();
    let templates: Vec<_> = (0..40)
        .map(|n| template(&format!("{n} {{{{ messages|length }}}}")))
        .collect();
    for _ in 0..2 {
        for (n, template) in templates.iter().enumerate() {
            let prompt = renderer.render(template, &hello());
            assert_eq!(prompt, Ok(format!("{n} 1")));
        }
    }
}

#[test]
fn a_process_that_does_not_work_is_an_error() {
    let directory = TempDir::new().expect("a directory");
    let template = template("text");
    let asked = |script: &str| {
        let renderer = stand_in(directory.path(), script);
        let first = renderer.render(&template, &hello());
        let second = renderer.render(&template, &hello());
        (
            first.expect_err("the rendering fails"),
            second.expect_err("nor again"),
        )
    };
    let (first, second) = asked("exit 3");
    assert!(first.to_string().contains("exit status: 3"), "{first}");
    assert!(second.to_string().contains("exit status: 3"), "{second}");
    let (first, _) = asked("printf 'nonsense that is no frame' >&0; sleep 5");
    assert!(matches!(first, TemplateError::Died { .. }), "{first}");
    let start = Instant::now();
    let (first, _) = asked("exec sleep 600");
    assert!(
        first.to_string().contains("the time limit of 2 s"),
        "{first}"
    );
    assert!(start.elapsed() < Duration::from_mins(1));
    let nowhere = Renderer::of(PathBuf::from("/nowhere"), RenderLimits::default());
    let error = nowhere
        .render(&template, &hello())
        .expect_err("the worker program is missing");
    assert!(matches!(error, TemplateError::Start { .. }), "{error}");
}

#[test]
fn nobody_waits_for_long_where_all_are_busy() {
    let directory = TempDir::new().expect("a directory");
    let renderer = stand_in(directory.path(), "exec sleep 600");
    let template = template("text");
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                renderer
                    .render(&template, &hello())
                    .expect_err("the rendering fails")
            });
        }
    });
    // Includes renderings that timed out in the queue and those that timed out in a process.
    assert!(
        start.elapsed() < Duration::from_mins(1),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn errors_name_the_file_and_the_line() {
    let renderer = renderer();
    let error = |text: &str| {
        renderer
            .render(&template(text), &hello())
            .expect_err("the call fails")
    };
    assert_eq!(
        error("\n\n{{ raise_exception('Roles must alternate') }}").to_string(),
        "the chat template (tokenizer_config.json, line 3) rejects this conversation: Roles must alternate"
    );
    let macroed = "{% macro m() %}\n{{ raise_exception('deep') }}{% endmacro %}\n{{ m() }}";
    let told = error(macroed);
    assert!(
        matches!(&told, TemplateError::Raised { message, .. } if message == "deep"),
        "{told}"
    );
    assert!(told.is_about_the_conversation());
    let told = error("\n{% if %}").to_string();
    assert!(
        told.starts_with("the chat template (tokenizer_config.json, line 2) cannot be read: "),
        "{told}"
    );
    let told = error("\n{{ messages.a.b }}").to_string();
    let expected = "the chat template (tokenizer_config.json, line 2) failed on this conversation: undefined value";
    assert!(told.starts_with(expected), "{told}");
}

#[test]
fn a_conversation_too_large_is_refused_before_it_is_sent() {
    let huge = "x".repeat(9 << 20);
    let conversation = Conversation::of(vec![json!({"role": "user", "content": huge})]);
    let error = renderer().render(&template("text"), &conversation);
    let error = error.expect_err("the input is too large");
    assert!(
        matches!(error, TemplateError::TooLarge { bytes, .. } if bytes > 9 << 20),
        "{error}"
    );
}

#[test]
fn variables_go_before_tokens_and_tools_before_them() {
    let mut conversation = hello();
    let variables =
        json!({"bos_token": "<mine>", "tools": [1], "messages": [], "x": {"b": 1, "a": 2.0}});
    conversation.variables = variables
        .as_object()
        .expect("the value is an object")
        .clone();
    let text = "{{ bos_token }} {{ tools }} {{ messages|length }} {{ x|tojson }} {{ eos_token }} {{ documents }}";
    let prompt = renderer().render(&template(text), &conversation);
    assert_eq!(
        prompt.as_deref(),
        Ok("<mine> None 1 {\"b\": 1, \"a\": 2.0} </s> None")
    );
}
