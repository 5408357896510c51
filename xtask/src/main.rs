//! Tasks of this repository. `cargo xtask` lists them, `cargo xtask TASK ARGUMENTS` runs one.
//!
//! A task is a row of [`TASKS`]: a list of commands that run at the root of the repository.

#![expect(
    clippy::print_stderr,
    reason = "this program is for people at a terminal"
)]

use std::env;
use std::fs::File;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// A task and its commands.
struct Task {
    name: &'static str,
    /// Names of its arguments for the list.
    arguments: &'static str,
    summary: &'static str,
    steps: &'static [Step],
}

/// A command. The arguments of the task follow those of its last step.
struct Step {
    command: &'static [&'static str],
    variables: &'static [(&'static str, &'static str)],
    /// The file that gets its output.
    output: Option<&'static str>,
}

const fn run(command: &'static [&'static str]) -> Step {
    Step {
        command,
        variables: &[],
        output: None,
    }
}

const fn run_with(
    variables: &'static [(&'static str, &'static str)],
    command: &'static [&'static str],
) -> Step {
    Step {
        command,
        variables,
        output: None,
    }
}

const fn write(output: &'static str, command: &'static [&'static str]) -> Step {
    Step {
        command,
        variables: &[],
        output: Some(output),
    }
}

const TASKS: &[Task] = &[
    Task {
        name: "ci",
        arguments: "",
        summary: "all checks that a change must pass",
        steps: &[run(&[".ci/run"])],
    },
    Task {
        name: "test",
        arguments: "[ARGUMENTS]",
        summary: "sets up the test environment and runs all tests",
        steps: &[run(&["tests/run"])],
    },
    Task {
        name: "gate",
        arguments: "",
        summary: "writes the code of the gate protocol, from its definition",
        steps: &[run_with(
            &[("GATE_UPDATE", "1")],
            &[
                "cargo",
                "test",
                "--locked",
                "--package",
                "pkgtool-gate",
                "--test",
                "generated",
            ],
        )],
    },
    Task {
        name: "book",
        arguments: "",
        summary: "writes the sessions and pictures of the book and the pages of rules, then builds the book",
        steps: &[
            run_with(
                &[("BOOK_UPDATE", "1")],
                &[
                    "tests/run",
                    "--test",
                    "it",
                    "--",
                    "book::",
                    "a_browser_walks_every_page",
                ],
            ),
            run(&[".ci/docs"]),
        ],
    },
    Task {
        name: "snapshots",
        arguments: "[TEST]",
        summary: "writes the snapshots of text outputs",
        steps: &[run_with(
            &[("INSTA_UPDATE", "always")],
            &["cargo", "test", "--workspace"],
        )],
    },
    Task {
        name: "conformance",
        arguments: "",
        summary: "writes the records of the ONNX conformance cases",
        steps: &[run_with(
            &[("CONFORMANCE_UPDATE", "1")],
            &[
                "tests/run",
                "--package",
                "pkgtool",
                "--test",
                "it",
                "conformance",
            ],
        )],
    },
    Task {
        name: "operators",
        arguments: "",
        summary: "writes the operator tables of ONNX and ExecuTorch",
        steps: &[
            write(
                "crates/model/src/onnx/load/operators.txt",
                &["python3", "tests/operators/schemas.py"],
            ),
            write(
                "crates/model/src/executorch/load/operators.txt",
                &["python3", "tests/operators/kernels.py"],
            ),
        ],
    },
    Task {
        name: "examples",
        arguments: "[NAME]",
        summary: "writes the models of packages-examples",
        steps: &[run(&["python3", "packages-examples/regenerate.py"])],
    },
    Task {
        name: "programs",
        arguments: "[NAME]",
        summary: "writes the programs of tests/fixtures/programs and their answers",
        steps: &[run(&["python3", "tests/programs/export.py"])],
    },
    Task {
        name: "bench",
        arguments: "NAME [ARGUMENTS]",
        summary: "runs a benchmark of tests/bench on a release build",
        steps: &[run(&["cargo", "build", "--release"]), run(&["python3"])],
    },
    Task {
        name: "release",
        arguments: "",
        summary: "checks the version, builds the wheels into dist and tries them",
        steps: &[
            run(&["packaging/check-version"]),
            run(&["packaging/build-wheels", "--out", "dist"]),
            run(&[
                "sh",
                "-c",
                "for wheel in dist/*.whl; do packaging/try-wheel \"$wheel\" || exit; done",
            ]),
        ],
    },
];

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let Some(name) = arguments.next() else {
        list();
        return ExitCode::SUCCESS;
    };
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        eprintln!("unknown task `{name}`; the tasks are:\n");
        list();
        return ExitCode::from(2);
    };
    let mut arguments: Vec<String> = arguments.collect();
    if task.name == "bench" {
        let Some(first) = arguments.first_mut() else {
            eprintln!("expected the name of a benchmark: {}", benchmarks());
            return ExitCode::from(2);
        };
        *first = format!("tests/bench/{first}.py");
        if !root().join(&*first).is_file() {
            eprintln!(
                "{first} does not exist; the benchmarks are: {}",
                benchmarks()
            );
            return ExitCode::from(2);
        }
    }
    for (number, step) in task.steps.iter().enumerate() {
        let is_last = number + 1 == task.steps.len();
        let further = if is_last { arguments.as_slice() } else { &[] };
        if let Err(problem) = execute(step, further) {
            eprintln!("{}: {problem}", step.command.join(" "));
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn list() {
    for task in TASKS {
        let usage = format!("{} {}", task.name, task.arguments);
        eprintln!("cargo xtask {usage:24} {}", task.summary);
    }
}

/// Returns the names of the benchmarks.
fn benchmarks() -> String {
    let entries = root().join("tests/bench").read_dir().into_iter().flatten();
    let names = entries.flatten().map(|entry| entry.path());
    let scripts = names.filter(|path| path.extension().is_some_and(|it| it == "py"));
    let mut names: Vec<String> = scripts
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names.join(", ")
}

fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Runs a step to its end. Its output replaces a file only if the step succeeds.
fn execute(step: &Step, further: &[String]) -> Result<(), String> {
    let (program, arguments) = step.command.split_first().ok_or("the step is empty")?;
    let path = root().join(program);
    let program = if path.is_file() {
        path.as_os_str()
    } else {
        program.as_ref()
    };
    let mut command = Command::new(program);
    command.args(arguments).args(further).current_dir(root());
    command.envs(step.variables.iter().copied());
    let new = step
        .output
        .map(|output| root().join(output).with_extension("new"));
    if let Some(new) = &new {
        let file = File::create(new).map_err(|error| format!("{}: {error}", new.display()))?;
        command.stdout(Stdio::from(file));
    }
    let status = command.status().map_err(|error| error.to_string())?;
    if !status.success() {
        if let Some(new) = &new {
            let _ = std::fs::remove_file(new);
        }
        return Err(status.to_string());
    }
    match (new, step.output) {
        (Some(new), Some(output)) => {
            std::fs::rename(&new, root().join(output)).map_err(|error| format!("{output}: {error}"))
        }
        _ => Ok(()),
    }
}
