//! Tests of engine selection and its report: every backend with every engine, engines for other
//! models, and engines that reject what another one runs.

#[cfg(feature = "ort")]
use crate::support::engines;
#[cfg(feature = "ort")]
use crate::support::graph::{Attribute, FLOAT, Graph, INT32, Size, UINT8};
use crate::support::run::{Ran, pkgtool};
#[cfg(feature = "ort")]
use crate::support::tree::Tree;

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packages-examples");
const ONNX: &str = "hush-sentence/mlx/hush_sentence_mlx_fp32.onnx";
const PROGRAM: &str = "murmur-vad/xnnpack/murmur_vad_xnnpack_fp32.pte";

fn run(model: &str, arguments: &[&str]) -> Ran {
    let all = ["run", model, "--input", "zeros", "--once"];
    pkgtool(all.iter().chain(arguments)).within(EXAMPLES).run()
}

/// The report matches the run: it names unused providers only if they were requested, it gives a
/// reason for a fallback, and it gives no reason for an engine that the user named.
#[test]
fn every_backend_on_every_engine_is_told_as_it_was() {
    for model in [ONNX, PROGRAM] {
        for backend in ["xnnpack", "coreml", "vulkan", "qnn", "mlx"] {
            for engine in ["auto", "ort", "executorch", "tract"] {
                let ran = run(model, &["--backend", backend, "--engine", engine, "--json"]);
                let place = format!("{model} on {backend} by {engine}: {}", ran.stderr);
                assert!(!ran.stderr.contains("cpu took no node"), "{place}");
                let is_program = model == PROGRAM;
                if engine == if is_program { "ort" } else { "executorch" } {
                    assert_eq!(ran.code, 2, "{place}");
                    assert!(
                        ran.stderr.contains("choose an engine that runs it"),
                        "{place}"
                    );
                    continue;
                }
                if ran.code != 0 {
                    assert_ne!(engine, "auto", "{place}");
                    assert!(ran.stderr.contains("is not available"), "{place}");
                    continue;
                }
                let answer = ran.json();
                let warned = ran.stderr.starts_with("warning: ran on ");
                let falls_back = answer["fallback"] == true;
                assert_eq!(warned, falls_back && engine == "auto", "{place}");
                if engine == "tract" {
                    assert!(falls_back, "{place}");
                }
                if warned {
                    let told = format!("ran on {}", answer["engine"].as_str().expect("a name"));
                    assert!(ran.stderr.contains(&told), "{place}");
                    let target = format!(" instead of {backend}; ");
                    assert!(ran.stderr.contains(&target), "{place}");
                    let (_, why) = ran.stderr.split_once("; ").expect("a reason");
                    assert!(why.trim().len() > 10, "{place}");
                }
            }
        }
    }
}

#[cfg(not(target_vendor = "apple"))]
#[test]
fn a_backend_that_nothing_here_runs_is_called_that() {
    let ran = run(ONNX, &["--backend", "mlx"]).expect_code(0);
    assert!(
        ran.stderr.contains(" instead of mlx; ")
            && ran
                .stderr
                .contains("; nothing on this machine runs mlx itself"),
        "{}",
        ran.stderr
    );
    let ran = run(ONNX, &["--backend", "qnn", "--strict", "--engine", "tract"]).expect_code(2);
    assert!(
        ran.stderr
            .contains("the tract engine does not run qnn itself"),
        "{}",
        ran.stderr
    );
}

#[test]
fn an_engine_for_other_models_says_so() {
    let ran = run(PROGRAM, &["--engine", "ort"]).expect_code(2);
    let expected = format!(
        "error: {PROGRAM}: ONNX Runtime (`--engine ort`) runs ONNX models, and this is an ExecuTorch \
         program: choose an engine that runs it ("
    );
    assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
    assert!(ran.stderr.contains("`--engine tract`"), "{}", ran.stderr);
    let ran = run(ONNX, &["--engine", "executorch"]).expect_code(2);
    let expected = format!(
        "error: {ONNX}: ExecuTorch (`--engine executorch`) runs its own programs, and this is an ONNX \
         model: choose an engine that runs it ("
    );
    assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
}

#[cfg(not(feature = "executorch"))]
#[test]
fn an_engine_that_is_not_in_this_build_says_so() {
    let ran = run(PROGRAM, &["--engine", "executorch"]).expect_code(2);
    assert!(
        ran.stderr
            .contains("this build has no `executorch` feature"),
        "{}",
        ran.stderr
    );
}

/// A kernel of ONNX Runtime may reject an operator with the code of a failed run; tract then runs
/// the model.
#[cfg(feature = "ort")]
#[test]
fn what_onnx_runtime_has_no_code_for_runs_elsewhere() {
    if crate::support::engines::ort().is_none() {
        return;
    }
    let of = Size::Of;
    let by_channel = Graph::default()
        .input("x", UINT8, &[of(1), of(1), of(4), of(4)])
        .input("w", UINT8, &[of(2), of(1), of(2), of(2)])
        .input("x_zero", UINT8, &[])
        .input("w_zero", UINT8, &[of(2)])
        .node("ConvInteger", &["x", "w", "x_zero", "w_zero"], "y", &[])
        .output("y", INT32);
    let four_sides = Graph::default()
        .input("x", FLOAT, &[of(1), of(1), of(4), of(4), of(4), of(4)])
        .node(
            "MaxPool",
            &["x"],
            "y",
            &[Attribute::Ints("kernel_shape", &[2, 2, 2, 2])],
        )
        .output("y", FLOAT);
    let by_row = Graph::default()
        .input("x", FLOAT, &[of(1), of(3), of(2)])
        .input("w", FLOAT, &[of(1), of(8), of(2)])
        .input("r", FLOAT, &[of(1), of(8), of(2)])
        .node(
            "LSTM",
            &["x", "w", "r"],
            "y",
            &[
                Attribute::Int("hidden_size", 2),
                Attribute::Int("layout", 1),
            ],
        )
        .output("y", FLOAT);
    for (graph, operator) in [
        (by_channel, "ConvInteger"),
        (four_sides, "MaxPool"),
        (by_row, "LSTM"),
    ] {
        let tree = Tree::new().file("m.onnx", graph.bytes());
        let on = |engine: &str| {
            let all = [
                "run", "m.onnx", "--input", "zeros", "--json", "--engine", engine,
            ];
            pkgtool(all).within(tree.root()).run()
        };
        let refused = on("ort").expect_code(2);
        assert!(
            refused.stderr.contains("the ort engine cannot run"),
            "{operator}: {}",
            refused.stderr
        );
        let ran = on("auto");
        if ran.code == 0 {
            assert_eq!(ran.json()["engine"], "tract", "{operator}");
        } else {
            // Both engines were tried, and each reports its own reason.
            assert!(
                ran.stderr.contains("ort (cpu): ") && ran.stderr.contains("tract (cpu): "),
                "{}",
                ran.stderr
            );
            assert_eq!(operator, "LSTM", "{}", ran.stderr);
        }
    }
}

/// If ONNX Runtime rejects the inputs, no other engine is tried.
#[cfg(feature = "ort")]
#[test]
fn what_is_wrong_with_the_inputs_is_not_tried_elsewhere() {
    if crate::support::engines::ort().is_none() {
        return;
    }
    let graph = Graph::default()
        .input("x", FLOAT, &[Size::Of(2)])
        .integers("places", &[5])
        .input("unused", FLOAT, &[Size::Of(1)])
        .node("Gather", &["x", "places"], "y", &[])
        .output("y", FLOAT);
    let tree = Tree::new().file("m.onnx", graph.bytes());
    let ran = pkgtool(["run", "m.onnx", "--input", "zeros"])
        .within(tree.root())
        .run();
    let ran = ran.expect_code(2);
    assert!(
        ran.stderr
            .contains("the ort engine rejected these inputs at `Gather`"),
        "{}",
        ran.stderr
    );
    assert!(!ran.stderr.contains("tract"), "{}", ran.stderr);
}

/// Runs `backends --operators` for a model of the repository.
#[cfg(feature = "ort")]
fn operators_of(model: &str, arguments: &[&str]) -> Ran {
    let path = format!("{}/{model}", env!("CARGO_MANIFEST_DIR"));
    let all = ["backends", "--operators", &path];
    pkgtool(all.iter().chain(arguments)).run()
}

#[cfg(feature = "ort")]
#[test]
fn the_provider_of_each_operator_is_listed() {
    if engines::ort().is_none() {
        return;
    }
    let model = "fuzz/seeds/onnx/mlp.onnx";
    let shown = operators_of(model, &[]).expect_code(0).stdout;
    assert!(
        shown.contains("\n  ort (cpu)      Gemm ×2, Relu\n"),
        "{shown}"
    );
    assert!(
        shown.contains("\n  tract (cpu)    Gemm ×2, Relu\n"),
        "{shown}"
    );
    assert!(shown.contains("\n  ort (coreml)   no: "), "{shown}");
    let document = operators_of(model, &["--json"]).stdout;
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let operators = serde_json::json!({ "Gemm": 2, "Relu": 1 });
    assert_eq!(document["operators"], operators);
    let first = &document["engines"][0];
    assert_eq!(
        (&first["engine"], &first["complete"]),
        (&"ort".into(), &true.into())
    );
    let assigned = serde_json::json!([{
        "provider": "CPUExecutionProvider",
        "operators": operators,
    }]);
    assert_eq!(first["assigned"], assigned);
}

/// QNN takes operators of known sizes only.
#[cfg(feature = "ort")]
#[test]
fn operators_that_fall_back_are_listed() {
    if engines::qnn().is_none() {
        return;
    }
    let shown = operators_of("fuzz/seeds/onnx/mlp.onnx", &[]).stdout;
    assert!(
        shown.contains("\n  ort (qnn)      Gemm ×2, Relu\n"),
        "{shown}"
    );
    let shown = operators_of("fuzz/seeds/onnx/dynamic.onnx", &[]).stdout;
    let told = "falls back to CPUExecutionProvider, as qnn does not take them: Relu ×2";
    assert!(shown.replace("\n    ", " ").contains(told), "{shown}");
}

#[cfg(feature = "ort")]
#[test]
fn operators_of_other_files_are_refused() {
    for (file, reason) in [
        ("README.md", "unsupported file format"),
        (
            "tests/fixtures/models/dyn_batch_xnnpack_fp32.pte",
            "expected an ONNX model",
        ),
        ("fuzz/seeds/onnx/dtypes.onnx", "invalid element type 0"),
        ("absent.onnx", "absent.onnx"),
    ] {
        let ran = operators_of(file, &[]).expect_code(2);
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    }
    let ran = pkgtool(["backends", "--operators", "--ort-lib", "x"])
        .run()
        .expect_code(2);
    assert!(ran.stderr.contains("omit --ort-lib"), "{}", ran.stderr);
}

/// `backends --operators` lists the portable operators without trying any engine.
#[test]
fn operators_of_programs_can_be_listed() {
    let listed = pkgtool(["backends", "--operators"]).run();
    assert_eq!((listed.code, listed.stderr.as_str()), (0, ""));
    let json = pkgtool(["backends", "--operators", "--json"]).run().stdout;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let mut lines = listed.stdout.lines();
    for (field, of, some) in [
        (
            "lowered",
            "ExecuTorch programs",
            ["aten::add.out", "aten::convolution.out", "XnnpackBackend"],
        ),
        (
            "onnx",
            "ONNX models",
            ["Attention", "com.microsoft::MatMulNBits", "LpPool"],
        ),
    ] {
        let names = json[field]["tract"].as_array().expect("a list");
        let heading = format!("tract runs {} operators of {of}", names.len());
        assert_eq!(lines.next(), Some(heading.as_str()));
        for name in names {
            let name = name.as_str().expect("a name");
            assert_eq!(lines.next().map(str::trim), Some(name));
            assert!(
                !name.contains([' ']) && !name.starts_with("pkgtool"),
                "{name}"
            );
        }
        for name in some {
            assert!(names.iter().any(|known| known == name), "{name}");
        }
    }
    assert_eq!(lines.next(), None);
}
