//! `pkgtool backends`: shows the engines and backends of this machine.
//!
//! An installed library may not work, so each backend is tested: it runs a model of two operators.

mod assigned;
mod columns;
mod executorch;
mod operators;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value as Json, json};

use super::super::device_args::DeviceArgs;
use super::super::exit::{Exit, Failure};
use super::super::output;
use super::super::report::{self, CommandReport};
use super::built_in::BuiltInModel;
use super::target_args::sandbox_parser;
use assigned::ModelOperators;
use operators::OperatorList;
use pkgtool_base::package::Backend;
use pkgtool_engine::library::{Installation, Installations, Plugin};
use pkgtool_engine::runtime::device::RemoteDevice;
use pkgtool_engine::runtime::machine::Machine;
use pkgtool_engine::runtime::process::sandbox::{Sandbox, SandboxMode};
use pkgtool_engine::runtime::target::{self, Candidate, StartError, StartRequest, Started};
use pkgtool_engine::runtime::worker::Launcher;
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::{self as engine, EngineError};

/// `y = max(0, x + x)` on `float32[1, 8]`, opset 13.
const PROBE_MODEL: &[u8] = include_bytes!("probe.onnx");

/// Arguments of `pkgtool backends`.
#[derive(Debug, clap::Args)]
pub(in super::super) struct BackendsArgs {
    /// Path of the ONNX Runtime library [default: search for it]
    #[arg(long, value_name = "FILE")]
    ort_lib: Option<PathBuf>,

    /// List the operators and delegates of models that run on any machine, without testing
    /// backends; or, with an ONNX model, which engine and provider runs each of its operators
    #[arg(long, value_name = "MODEL", num_args = 0..=1)]
    #[expect(
        clippy::option_option,
        reason = "an option whose value may be left out"
    )]
    operators: Option<Option<PathBuf>>,

    /// Sandbox of the processes that run the tests: `auto`, `require` or `off`
    #[arg(long, value_name = "MODE", value_parser = sandbox_parser(), default_value = "auto", env = "PKGTOOL_SANDBOX")]
    pub(super) sandbox: SandboxMode,

    #[command(flatten)]
    device: DeviceArgs,

    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The result of testing a backend.
struct BackendTest {
    /// The backend; `None` for a model without a backend.
    backend: Option<Backend>,
    /// The engine and provider that ran the model.
    runs_on: Option<Candidate>,
    /// Earlier attempts and their errors.
    failed: Vec<(Candidate, EngineError)>,
    /// Sandbox of the process that ran the model.
    sandbox: Option<Sandbox>,
}

/// The engines' installations on this machine.
struct EngineInstallations {
    ort: Installations,
    executorch: executorch::ExecutorchInstallations,
}

/// Runs the command.
pub(in super::super) fn run(args: &BackendsArgs) -> Result<Exit, Failure> {
    args.device.require_one()?;
    if let Some(device) = args.device.how.connect(args.device.first())? {
        return there(args, &device);
    }
    if let Some(None) = args.operators {
        if args.ort_lib.is_some() {
            return Err(Failure::Other(
                "--operators without a model loads no library: omit --ort-lib, or name an ONNX model after --operators".to_owned(),
            ));
        }
        report::print(&OperatorList::list(), args.json)?;
        return Ok(Exit::Clean);
    }
    let launcher = Launcher::new()
        .map_err(|error| Failure::Other(format!("cannot find the pkgtool binary: {error}")))?;
    if let Some(Some(model)) = &args.operators {
        let operators = ModelOperators::of(model, args.ort_lib.as_deref(), &launcher)?;
        report::print(&operators, args.json)?;
        return Ok(Exit::Clean);
    }
    let found = EngineInstallations {
        ort: find_installations("ort", args.ort_lib.as_deref()),
        executorch: executorch::ExecutorchInstallations::look(&launcher),
    };
    let probe = BuiltInModel::write(PROBE_MODEL)?;
    let backends = Backend::ALL.map(Some).into_iter().chain([None]);
    let outcomes: Vec<BackendTest> = backends
        .map(|backend| test_backend(backend, &probe, args, &launcher))
        .collect::<Result<_, _>>()?;
    let tested = TestedBackends { found, outcomes };
    report::print(&tested, args.json)?;
    Ok(Exit::Clean)
}

/// Runs the command on a device, and prints what it prints.
fn there(args: &BackendsArgs, device: &RemoteDevice) -> Result<Exit, Failure> {
    if args.operators.is_some() || args.ort_lib.is_some() {
        return Err(Failure::Other(
            "--operators and --ort-lib are for this machine: omit them, or omit --on; --device-lib names a library for the device".to_owned(),
        ));
    }
    let library = device.library()?;
    let library = library.as_deref().and_then(Path::to_str);
    let mut arguments = vec![
        "backends",
        "--on",
        "local",
        "--sandbox",
        args.sandbox.name(),
    ];
    if let Some(library) = library {
        arguments.extend(["--ort-lib", library]);
    }
    if args.json {
        arguments.push("--json");
    }
    output::print(&device.run(&arguments)?)?;
    Ok(Exit::Clean)
}

/// Returns the installations of an engine on this machine.
fn find_installations(name: &str, library: Option<&Path>) -> Installations {
    let engine = engine::engine(name);
    engine.map_or_else(Installations::default, |engine| engine.installed(library))
}

fn test_backend(
    backend: Option<Backend>,
    probe: &BuiltInModel,
    args: &BackendsArgs,
    launcher: &Launcher,
) -> Result<BackendTest, Failure> {
    let values = (-3..5_i8).map(f64::from);
    let (request, input) = probe.request(values)?;
    let wish = StartRequest {
        backend,
        threads: Some(1),
        library: args.ort_lib.clone(),
        ..request
    };
    Ok(match target::start(&wish, &[input], launcher) {
        Ok(started) => BackendTest {
            backend,
            runs_on: Some(started.candidate),
            sandbox: started.sandbox.clone(),
            failed: rejected_candidates(started),
        },
        Err(StartError::Failed(failed)) => BackendTest {
            backend,
            runs_on: None,
            failed,
            sandbox: None,
        },
        Err(other) => return Err(Failure::Other(other.to_string())),
    })
}

/// Returns why better candidates were not used.
fn rejected_candidates(started: Started) -> Vec<(Candidate, EngineError)> {
    let wrong = {
        let outputs = &started.first_answer.outputs;
        let values: Vec<f64> = outputs.iter().flat_map(Tensor::to_f64).collect();
        let expected = [0.0, 0.0, 0.0, 0.0, 2.0, 4.0, 6.0, 8.0];
        let far = |(found, expected): (&f64, &f64)| (found - expected).abs() > 1e-2;
        values.len() != expected.len() || values.iter().zip(&expected).any(far)
    };
    let mut failed = started.failed_candidates;
    if wrong {
        let candidate = started.candidate;
        failed.push((
            candidate,
            EngineError::Run {
                engine: candidate.engine.to_owned(),
                operator: None,
                reason: "it computes wrong outputs for a small model".to_owned(),
            },
        ));
    }
    failed
}

/// The engines and backends of this machine, with the result of each test.
struct TestedBackends {
    found: EngineInstallations,
    outcomes: Vec<BackendTest>,
}

impl CommandReport for TestedBackends {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let mut lines = String::new();
        write(&mut lines, &self.found, &self.outcomes)?;
        text.push_str(&columns::wrap_lines(&lines));
        Ok(())
    }

    fn document(&self) -> impl Serialize {
        document(&self.found, &self.outcomes)
    }
}

fn write(
    text: &mut String,
    found: &EngineInstallations,
    outcomes: &[BackendTest],
) -> std::fmt::Result {
    writeln!(text, "{}", Machine::this())?;
    writeln!(text, "\nengines")?;
    writeln!(
        text,
        "  tract  in this binary: ONNX models, ExecuTorch programs except those for QNN, Core ML's ML Programs"
    )?;
    let (ort, executorch) = (&found.ort, &found.executorch);
    if ort.libraries.is_empty() {
        writeln!(
            text,
            "  ort    ONNX Runtime not found: install it with `pip install onnxruntime`, or set the path of its library with --ort-lib or ORT_DYLIB_PATH"
        )?;
    }
    for library in &ort.libraries {
        writeln!(text, "  ort    {}", describe(library))?;
    }
    for plugin in &ort.plugins {
        writeln!(text, "         {}", describe_plugin(plugin))?;
    }
    executorch.write(text)?;
    let sandbox = sandbox(outcomes);
    let sandbox = sandbox.map_or_else(|| "none".to_owned(), ToString::to_string);
    writeln!(
        text,
        "\nsandbox of the processes that run models: {sandbox}"
    )?;
    writeln!(text, "\nbackends of ONNX models")?;
    let mut told: HashMap<String, &str> = HashMap::new();
    for outcome in outcomes {
        let name = outcome.backend.map_or("(none)", Backend::name);
        let on = match outcome.runs_on {
            Some(candidate) if candidate.fallback => format!("{candidate}, a fallback"),
            Some(candidate) => candidate.to_string(),
            None => "no engine".to_owned(),
        };
        writeln!(text, "  {name:8} {on}")?;
        if outcome.failed.is_empty() && outcome.backend == Some(Backend::Mlx) {
            writeln!(
                text,
                "           no engine runs ONNX models on MLX itself; on Apple's machines Core ML and WebGPU use the same hardware"
            )?;
        }
        for (candidate, error) in &outcome.failed {
            let reason = without_library_folders(&error.to_string(), ort);
            match told.get(&reason) {
                Some(first) => writeln!(
                    text,
                    "           not {candidate}: same reason as for {first}"
                )?,
                None => writeln!(text, "           not {candidate}: {reason}")?,
            }
            told.entry(reason).or_insert(name);
        }
    }
    writeln!(text, "\nbackends of ExecuTorch programs")?;
    executorch.write_programs(text)
}

/// Returns the sandbox of a process that runs a model on the CPU.
fn sandbox(outcomes: &[BackendTest]) -> Option<&Sandbox> {
    let mut all = outcomes
        .iter()
        .filter_map(|outcome| outcome.sandbox.as_ref());
    all.find(|sandbox| sandbox.exception.is_none())
}

/// Returns an error without the folders of libraries, which are listed above it.
fn without_library_folders(error: &str, found: &Installations) -> String {
    let libraries = found.libraries.iter().map(|library| &library.path);
    let plugins = found.plugins.iter().map(|plugin| &plugin.path);
    let mut text = error.to_owned();
    for path in libraries.chain(plugins) {
        if let Some(name) = path.file_name() {
            let path = path.display().to_string();
            text = text.replace(&path, &name.to_string_lossy());
        }
    }
    text
}

fn describe(library: &Installation) -> String {
    let version = library.version.as_deref().unwrap_or("(unknown version)");
    let path = library.path.display();
    let origin = library.origin.describe();
    let providers: Vec<&str> = library.providers.iter().map(|one| one.name()).collect();
    match &library.problem {
        Some(problem) => {
            format!("ONNX Runtime {version} cannot be used: {problem}\n         {path} ({origin})")
        }
        None => format!(
            "ONNX Runtime {version}: providers {}\n         {path} ({origin})",
            providers.join(", ")
        ),
    }
}

fn describe_plugin(plugin: &Plugin) -> String {
    let path = plugin.path.display();
    let backend = plugin.backend.as_ref();
    let backend = backend.map_or_else(String::new, |path| {
        format!("\n         with {}", path.display())
    });
    format!("plugin {}: {path}{backend}", plugin.provider)
}

fn document(found: &EngineInstallations, outcomes: &[BackendTest]) -> Json {
    let mut libraries: Vec<Json> = found
        .ort
        .libraries
        .iter()
        .map(|library| {
            let providers = library.providers.iter().map(|one| one.name());
            json!({
                "engine": "ort",
                "path": library.path.display().to_string(),
                "origin": library.origin.describe(),
                "version": library.version,
                "providers": providers.collect::<Vec<_>>(),
                "problem": library.problem,
            })
        })
        .collect();
    libraries.extend(found.executorch.to_json());
    let plugins: Vec<Json> = found
        .ort
        .plugins
        .iter()
        .map(|plugin| {
            json!({
                "provider": plugin.provider.name(),
                "path": plugin.path.display().to_string(),
                "backend_library": plugin.backend.as_ref().map(|path| path.display().to_string()),
            })
        })
        .collect();
    let backends: Vec<Json> = outcomes
        .iter()
        .map(|outcome| {
            let failed = outcome.failed.iter().map(|(candidate, error)| {
                json!({
                    "engine": candidate.engine,
                    "provider": candidate.provider.name(),
                    "reason": error.to_string(),
                })
            });
            json!({
                "backend": outcome.backend.map(Backend::name),
                "engine": outcome.runs_on.map(|candidate| candidate.engine),
                "provider": outcome.runs_on.map(|candidate| candidate.provider.name()),
                "fallback": outcome.runs_on.map(|candidate| candidate.fallback),
                "sandbox": outcome.sandbox,
                "failed": failed.collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({
        "version": 1,
        "machine": Machine::this(),
        "libraries": libraries,
        "plugins": plugins,
        "sandbox": sandbox(outcomes),
        "backends": backends,
    })
}
