//! Tests of `pkgtool attach` at a gate of the protocol.

#[path = "../../../crates/gate/tests/gate/mod.rs"]
mod gate;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pkgtool_gate::protocol::service_to_gate_proto::Body;
use pkgtool_gate::protocol::{
    BatchPayloadProto, BatchRequestProto, ExtendedRequestProto, PartialPredictRequestProto,
    PayloadProto, PredictRequestProto, ServiceInfoProto, batch_payload_response_proto, code,
    gate_to_service_proto as from_gate, payload_proto,
};
use serde_json::{Value, json};

use super::examples;
use crate::support::environment::EnvironmentPiece;
use crate::support::gateway::Setup;
use crate::support::run::pkgtool;
use gate::{Gate, Instance};

const TOKEN: &str = "acme.hush_sentence.secret";
const PREDICT: &str = "/api/mlpgateway/account/local/model/hush_sentence/predict";

/// An attached process, which ends with the test, and the folder of what it trains.
struct Attached(Child, tempfile::TempDir);

impl Attached {
    fn to(gate: &Gate, package: &str) -> Self {
        Self::at(&gate.address.to_string(), package)
    }

    fn at(address: &str, package: &str) -> Self {
        let mut command = pkgtool(["attach", "--plain", "--gate", address]).into_command();
        let trained = tempfile::tempdir().expect("a folder");
        command
            .arg(examples().join(package))
            .arg("--trained")
            .arg(trained.path())
            .env("MLP_SERVICE_TOKEN", TOKEN)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Self(command.spawn().expect("the binary runs"), trained)
    }

    /// Asks it to stop, and returns its exit code.
    #[cfg(unix)]
    fn stop(mut self) -> Option<i32> {
        let id = self.0.id().to_string();
        let told = Command::new("kill").args(["-TERM", &id]).status();
        assert!(told.expect("kill runs").success());
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn accepted(gate: &mut Gate, service: &str) -> Instance {
    let instance = gate.instance().await;
    assert_eq!(instance.start.connection_token, TOKEN);
    let descriptor = instance.start.service_descriptor.as_ref();
    let descriptor = descriptor.expect("it describes itself");
    assert_eq!(descriptor.name, service);
    assert!(descriptor.methods.contains_key("predict"));
    let info = from_gate::Body::ServiceInfo(ServiceInfoProto::default());
    instance.send(0, info).await;
    instance
}

fn payload(text: &str) -> PayloadProto {
    PayloadProto {
        data_type: None,
        body: Some(payload_proto::Body::Json(text.to_owned())),
    }
}

fn predict(data: Option<PayloadProto>, config: Option<PayloadProto>) -> from_gate::Body {
    from_gate::Body::Predict(PredictRequestProto { data, config })
}

fn json_of(payload: Option<PayloadProto>) -> Value {
    match payload.and_then(|payload| payload.body) {
        Some(payload_proto::Body::Json(text)) => serde_json::from_str(&text).expect("JSON"),
        other => panic!("expected JSON, got {other:?}"),
    }
}

async fn answer(instance: &mut Instance) -> Value {
    match instance.answer().await.body {
        Some(Body::Predict(answer)) => json_of(answer.data),
        other => panic!("expected an answer, got {other:?}"),
    }
}

/// The answers are those of the gateway, in the third round, too, with bad requests between.
#[tokio::test]
async fn a_package_answers_its_gate_like_its_gateway() {
    let bodies = [
        json!({"texts": ["a dog"]}).to_string(),
        json!({"texts": ["a dog and a cat", "", "night"]}).to_string(),
    ];
    let gateway = Setup::new()
        .packages(examples().join("hush-sentence"))
        .start();
    let wanted = bodies
        .iter()
        .map(|body| gateway.post(PREDICT, body).expect(200).json());
    let wanted: Vec<Value> = wanted.collect();
    drop(gateway);
    let mut gate = Gate::start().await;
    let attached = Attached::to(&gate, "hush-sentence");
    let mut instance = accepted(&mut gate, "hush_sentence").await;
    for round in 0..3 {
        for (body, wanted) in bodies.iter().zip(&wanted) {
            instance
                .send(round, predict(Some(payload(body)), None))
                .await;
            assert_eq!(&answer(&mut instance).await, wanted);
            for (data, config, status) in [
                (Some(payload("{\"texts\": 1}")), None, "400"),
                (Some(payload("{")), None, "400"),
                (
                    Some(payload("[]")),
                    Some(payload("{\"backend\": \"abacus\"}")),
                    "400",
                ),
                (Some(payload("")), None, "400"),
                (None, None, "400"),
            ] {
                instance.send(9, predict(data, config)).await;
                let error = match instance.answer().await.body {
                    Some(Body::Error(error)) => error,
                    other => panic!("expected an error, got {other:?}"),
                };
                assert_eq!(error.args["status"], status, "{error:?}");
                assert_eq!(error.status, 400, "{error:?}");
            }
        }
    }
    let entries = ["{\"texts\": [\"a dog\"]}", "{", "{\"texts\": []}"];
    let data = entries.iter().zip(7..).map(|(body, id)| BatchPayloadProto {
        request_id: id,
        data: Some(payload(body)),
    });
    let batch = BatchRequestProto {
        data: data.collect(),
        config: None,
    };
    instance.send(1, from_gate::Body::Batch(batch)).await;
    let Some(Body::Batch(batch)) = instance.answer().await.body else {
        panic!("expected a batch");
    };
    let mut answers = batch.data.into_iter();
    let mut next = || {
        let one = answers.next().expect("each entry is answered");
        (one.request_id, one.body.expect("it has a body"))
    };
    let (id, first) = next();
    let batch_payload_response_proto::Body::Predict(first) = first else {
        panic!("expected an answer, got {first:?}");
    };
    assert_eq!((id, json_of(first.data)), (7, wanted[0].clone()));
    assert!(matches!(
        next(),
        (8, batch_payload_response_proto::Body::Error(_))
    ));
    assert!(matches!(
        next(),
        (9, batch_payload_response_proto::Body::Predict(_))
    ));
    let ext = ExtendedRequestProto {
        method_name: "other".to_owned(),
        ..ExtendedRequestProto::default()
    };
    instance.send(2, from_gate::Body::Ext(ext)).await;
    assert_eq!(instance.error().await, (2, code::UNSUPPORTED.to_owned()));
    #[cfg(unix)]
    {
        let stopped = tokio::task::spawn_blocking(|| attached.stop());
        assert!(matches!(
            instance.answer().await.body,
            Some(Body::StopServing(_))
        ));
        drop(instance);
        let stopped = tokio::time::timeout(Duration::from_secs(30), stopped).await;
        assert_eq!(stopped.expect("it ends in time").expect("it ends"), Some(0));
    }
}

/// A gate of other code, with other libraries, checks an instance.
#[test]
fn a_gate_in_python_understands_every_message() {
    let Some(grpc) = EnvironmentPiece::Grpc.or_skip("a_gate_in_python_understands_every_message")
    else {
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut gate = Command::new("python3");
    gate.arg(root.join("tests/clients/gate.py"))
        .arg(root.join("crates/gate/proto/mlp-gate.proto"))
        .arg(TOKEN)
        .env("PYTHONPATH", grpc)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut gate = gate.spawn().expect("Python runs");
    let mut port = String::new();
    let stdout = gate.stdout.take().expect("the stream is piped");
    let mut lines = BufReader::new(stdout);
    lines.read_line(&mut port).expect("it prints its port");
    let attached = Attached::at(&format!("127.0.0.1:{}", port.trim()), "hush-sentence");
    let ended = gate.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}");
    let trained = attached.1.path();
    for folder in ["1/topics/7", "1/topics/8"] {
        let config = trained.join(folder).join("xnnpack/config.json");
        let config = std::fs::read_to_string(config).expect("a package");
        assert!(config.contains("topics_1"), "{config}");
    }
    // Nothing else is written, and nothing is attached for a gate of the platform.
    let names = |folder: &Path| {
        let entries = std::fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(trained), [".making", "1"]);
    assert_eq!(names(&trained.join(".making")), ["lock"]);
    assert_eq!(names(&trained.join("1/topics")), ["7", "8"]);
}

/// The events of a chat come as parts; together they are the answer of the same chat in one part.
#[tokio::test]
async fn a_chat_comes_in_parts() {
    let mut gate = Gate::start().await;
    let _attached = Attached::to(&gate, "jackdaw");
    let mut instance = accepted(&mut gate, "jackdaw").await;
    let mut asked = json!({
        "messages": [{"role": "user", "content": "How are you?"}],
        "max_tokens": 12,
        "temperature": 0,
        "stream": true,
    });
    for round in 1..=2 {
        let streamed = PartialPredictRequestProto {
            data: Some(chat(&asked)),
            ..PartialPredictRequestProto::default()
        };
        instance
            .send(round, from_gate::Body::PartialPredict(streamed))
            .await;
        let mut text = String::new();
        let mut count = 0;
        loop {
            let answer = instance.answer().await;
            let Some(Body::PartialPredict(part)) = answer.body else {
                panic!("expected a part, got {:?}", answer.body);
            };
            assert_eq!((answer.request_id, part.start), (round, Some(count == 0)));
            count += 1;
            let event = json_of(part.data);
            let delta = &event["choices"][0]["delta"]["content"];
            text += delta.as_str().unwrap_or_default();
            if part.finish == Some(true) {
                break;
            }
        }
        asked["stream"] = json!(false);
        instance.send(9, predict(Some(chat(&asked)), None)).await;
        let whole = answer(&mut instance).await;
        assert_eq!(whole["choices"][0]["message"]["content"], text, "{whole}");
        assert!(count > 3 && !text.is_empty(), "{count}: {text}");
        asked["stream"] = json!(true);
    }
    let wrong = PartialPredictRequestProto {
        data: Some(chat(&json!({"messages": 1}))),
        ..PartialPredictRequestProto::default()
    };
    instance
        .send(3, from_gate::Body::PartialPredict(wrong))
        .await;
    assert_eq!(instance.error().await.0, 3);
}

fn chat(asked: &Value) -> PayloadProto {
    let data_type = "https://example.org/mlp-data-common.yml#/DirectChatCompletion";
    PayloadProto {
        data_type: Some(data_type.to_owned()),
        ..payload(&asked.to_string())
    }
}

/// A gate that dies comes back at another time; the instance finds it.
#[tokio::test]
async fn a_package_comes_back_after_its_gate_was_lost() {
    let mut gate = Gate::start().await;
    let _attached = Attached::to(&gate, "hush-sentence");
    for round in 0..3 {
        let mut instance = accepted(&mut gate, "hush_sentence").await;
        let body = payload("{\"texts\": []}");
        instance.send(round, predict(Some(body), None)).await;
        answer(&mut instance).await;
        drop(instance);
    }
}

#[test]
fn what_is_missing_or_wrong_is_said_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("it can be written");
        path.display().to_string()
    };
    let package = examples().join("hush-sentence").display().to_string();
    let gate = ["--gate", "127.0.0.1:9"];
    let with_tokens = |text: &str| file("tokens", text);
    for (arguments, reason) in [
        (vec!["attach"], "PACKAGES"),
        (vec!["attach", &package], "no gate is named"),
        (
            vec!["attach", &package, gate[0], gate[1]],
            "no token is given",
        ),
        (
            vec!["attach", &package, "--gate", "a:b"],
            "is not the address of a gate",
        ),
        (
            vec!["attach", "absent", gate[0], gate[1]],
            "no such directory",
        ),
        (
            vec![
                "attach",
                &package,
                gate[0],
                gate[1],
                "--token-file",
                "absent",
            ],
            "absent: cannot be read",
        ),
        (
            vec!["attach", &package, gate[0], gate[1], "--in-flight", "0"],
            "0",
        ),
    ] {
        let mut command = pkgtool(&arguments);
        if arguments.contains(&"absent") {
            command = command.variable("MLP_SERVICE_TOKEN", TOKEN);
        }
        let ran = command.run();
        assert!((2..=3).contains(&ran.code), "{arguments:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(reason), "{arguments:?}: {}", ran.stderr);
    }
    for (text, reason) in [
        ("# none\n\n", "has no token"),
        ("a.b.c\nx.y\n", "tokens:2: expected a token"),
        ("a.other.c\na.hush_sentence.d", "for the service `other`"),
    ] {
        let tokens = with_tokens(text);
        let ran = pkgtool([
            "attach",
            &package,
            gate[0],
            gate[1],
            "--token-file",
            &tokens,
        ])
        .run();
        assert!((2..=3).contains(&ran.code), "{text:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(reason), "{text:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("a.b.c"), "{}", ran.stderr);
    }
    let secure = pkgtool(["attach", &package, gate[0], gate[1]])
        .variable("MLP_SERVICE_TOKEN", TOKEN)
        .variable("MLP_GRPC_SECURE", "perhaps")
        .run();
    assert!(
        secure.stderr.contains("MLP_GRPC_SECURE is `perhaps`"),
        "{}",
        secure.stderr
    );
}
