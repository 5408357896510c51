//! Tests of workers that attach to the gateway by the gate protocol.

mod training;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pkgtool_gate::instance::{
    self, AnswerParts, Asks, GateRequest, Handler, InstanceSettings, InstanceToken, LastAnswer,
    Security,
};
use pkgtool_gate::protocol::service_to_gate_proto::Body;
use pkgtool_gate::protocol::{
    PartialPredictResponseProto, PayloadProto, PredictResponseProto, ServiceDescriptorProto,
    SimpleStatusProto, error, payload_proto,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Notify, watch};

use super::{examples, pass_again};
use crate::support::environment::EnvironmentPiece;
use crate::support::gateway::{Gateway, ON_WORKERS, Setup};
use crate::support::run::pkgtool;
use crate::support::tree::Tree;

const GATE: &str = "[workers]\nlisten = \"127.0.0.1:0\"\nheartbeat_s = 0.2";

fn path(service: &str) -> String {
    format!("/api/mlpgateway/account/local/model/{service}/predict")
}

fn start() -> Gateway {
    Setup::new().settings(GATE).start()
}

/// A worker in the test's process. Dropping it cuts its connection.
struct TestWorker {
    seen: Arc<Mutex<Vec<String>>>,
    release: Arc<Notify>,
    _stop: watch::Sender<bool>,
    runtime: Option<tokio::runtime::Runtime>,
}

/// Answers by the text of a request: `wait` when it is released, `fail` with an error, `bytes` with bytes, `much` with a
/// megabyte, `none` without data, and everything else with itself and the worker's name.
struct Scripted {
    name: String,
    seen: Arc<Mutex<Vec<String>>>,
    release: Arc<Notify>,
}

impl TestWorker {
    fn attach(gateway: &Gateway, token: &str, name: &str, in_flight: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let (stop, stopped) = watch::channel(false);
        let settings = InstanceSettings {
            gates: vec![gateway.gate().parse().expect("an address")],
            token: InstanceToken::new(token.to_owned()),
            descriptor: ServiceDescriptorProto::default(),
            hostname: Some(name.to_owned()),
            image: Some("test 1".to_owned()),
            worker: None,
            security: Security::Plain,
            in_flight,
            grace: Duration::from_secs(10),
        };
        let worker = Self {
            seen: Arc::default(),
            release: Arc::default(),
            _stop: stop,
            runtime: Some(runtime),
        };
        let handler = Scripted {
            name: name.to_owned(),
            seen: Arc::clone(&worker.seen),
            release: Arc::clone(&worker.release),
        };
        let serving = instance::serve(settings, Arc::new(handler), stopped);
        worker.runtime.as_ref().expect("it runs").spawn(serving);
        worker
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().expect("no panic").clone()
    }

    /// Waits until so many requests came.
    #[track_caller]
    fn until_seen(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.seen().len() < count {
            assert!(Instant::now() < deadline, "{:?}", self.seen());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for TestWorker {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Handler for Scripted {
    async fn answer(&self, request: GateRequest, parts: AnswerParts) -> LastAnswer {
        let (data, is_streamed) = match request.asks {
            Asks::Predict(asked) => (asked.data, false),
            Asks::PartialPredict(asked) => (asked.data, true),
            other => panic!("no test asks for {other:?}"),
        };
        let text = match data.and_then(|data| data.body) {
            Some(payload_proto::Body::Json(text)) => text,
            other => format!("{other:?}"),
        };
        self.seen.lock().expect("no panic").push(text.clone());
        let asked: Value = serde_json::from_str(&text).unwrap_or_default();
        let json = |value: Value| {
            Some(PayloadProto {
                data_type: None,
                body: Some(payload_proto::Body::Json(value.to_string())),
            })
        };
        let mut answer = json(json!({"asked": asked, "by": self.name}));
        match asked.as_str() {
            Some("wait") => self.release.notified().await,
            Some("none") => answer = None,
            Some("much") => answer = json(json!("x".repeat(1 << 20))),
            Some("bytes") => {
                answer = Some(PayloadProto {
                    data_type: Some("audio/wav".to_owned()),
                    body: Some(payload_proto::Body::Protobuf(vec![0xff, 0x00])),
                });
            }
            _ => {}
        }
        let mut body = Body::Predict(PredictResponseProto { data: answer });
        if asked == "fail" {
            let mut failed = error(
                "NO_SUCH_DOG",
                SimpleStatusProto::NotFound,
                "no dog".to_owned(),
            );
            failed.args.insert("status".to_owned(), "409".to_owned());
            failed.args.insert("place".to_owned(), "$.dog".to_owned());
            body = Body::Error(failed);
        } else if asked["messages"].is_array() && !is_streamed {
            let message = json!({"role": "assistant", "content": "one two"});
            let chat = json!({"choices": [{"index": 0, "message": message}]});
            body = Body::Predict(PredictResponseProto { data: json(chat) });
        } else if is_streamed {
            let event =
                |text: &str| json(json!({"choices": [{"index": 0, "delta": {"content": text}}]}));
            let part = |text: &str, finish: bool| {
                Body::PartialPredict(PartialPredictResponseProto {
                    data: event(text),
                    start: Some(!finish),
                    finish: Some(finish),
                })
            };
            parts.send(part("one", false)).await;
            if asked["messages"][0]["content"] == "break" {
                let failed = error(
                    "BROKEN",
                    SimpleStatusProto::InternalServerError,
                    "it broke".to_owned(),
                );
                body = Body::Error(failed);
            } else {
                body = part(" two", true);
            }
        }
        LastAnswer {
            body,
            headers: HashMap::new(),
        }
    }
}

/// A process of `pkgtool attach` or `pkgtool worker`. It ends when this is dropped.
struct Running {
    process: Child,
    /// The folder of what it trains.
    trained: Option<TempDir>,
}

impl Running {
    fn attach(gateway: &Gateway, token: &str, package: &str) -> Self {
        let trained = tempfile::tempdir().expect("a folder");
        let mut running = Self::attach_in(gateway, token, package, trained.path());
        running.trained = Some(trained);
        running
    }

    /// Attaches a package. What it trains is in a folder.
    fn attach_in(gateway: &Gateway, token: &str, package: &str, trained: &Path) -> Self {
        let mut command = pkgtool([
            "attach",
            "--plain",
            "--name",
            "desk",
            "--gate",
            &gateway.gate(),
        ])
        .into_command();
        command
            .arg(examples().join(package))
            .arg("--trained")
            .arg(trained)
            .env("MLP_SERVICE_TOKEN", token);
        Self::spawn(command)
    }

    fn spawn(mut command: Command) -> Self {
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        Self {
            process: command.spawn().expect("the binary runs"),
            trained: None,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the workers that the command lists.
fn workers(gateway: &Gateway) -> Vec<Value> {
    let listed = gateway.ask(&["workers", "list", "--json"]).expect_code(0);
    serde_json::from_str(&listed.stdout).expect("a list")
}

/// Waits until so many instances of services are attached.
fn until_attached(gateway: &Gateway, count: usize) {
    gateway.until(|| instances(gateway).len() == count);
}

/// Returns the workers without the machines that take packages.
fn instances(gateway: &Gateway) -> Vec<Value> {
    let mut workers = workers(gateway);
    workers.retain(|worker| worker["service"] != "*");
    workers
}

#[test]
fn a_package_on_another_machine_answers_like_one_of_the_gateway() {
    let texts = json!({"texts": ["a dog and a cat", ""]}).to_string();
    let local = Setup::new()
        .packages(examples().join("hush-sentence"))
        .start();
    let wanted = local
        .post(&path("hush_sentence"), &texts)
        .expect(200)
        .json();
    drop(local);
    let gateway = start();
    gateway
        .post(&path("hush_sentence"), &texts)
        .expect_error(400, "SERVICE_NOT_FOUND");
    let token = gateway.worker_token("hush_sentence", "first");
    assert!(token.starts_with("local.hush_sentence.wt_"), "{token}");
    let attached = Running::attach(&gateway, &token, "hush-sentence");
    until_attached(&gateway, 1);
    for _ in 0..3 {
        let reply = gateway.post(&path("hush_sentence"), &texts).expect(200);
        assert_eq!(reply.json(), wanted);
        assert_eq!(reply.header("x-worker"), Some("desk/1"));
        gateway
            .post(&path("hush_sentence"), "{\"texts\": 1}")
            .expect_error(400, "BAD_REQUEST");
        let task = gateway.create("hush_sentence", &texts);
        gateway.wait_for(&task, "COMPLETED");
        let result = gateway.result(&task).expect(200);
        assert_eq!(result.json(), wanted);
        assert_eq!(result.header("x-worker"), Some("desk/1"));
    }
    let page = gateway.metrics();
    let labels = "{service=\"local/hush_sentence\",machine=\"desk\"}";
    for line in [
        "pkgtool_attached_workers{} 1",
        "pkgtool_attached_requests{} 0",
        "pkgtool_attached_capacity{} 64",
    ] {
        assert!(page.contains(&line.replace("{}", labels)), "{line}: {page}");
    }
    let line = gateway.line(|line| line["worker"] == "desk/1" && line["status"] == 200);
    assert_eq!(line["service"], "local/hush_sentence");
    let listed = gateway.ask(&["services"]).expect_code(0);
    assert!(
        listed.stdout.contains("hush_sentence  active"),
        "{}",
        listed.stdout
    );
    drop(attached);
    until_attached(&gateway, 0);
    let listed = gateway.ask(&["services"]).expect_code(0);
    assert!(
        listed.stdout.contains("no worker is attached"),
        "{}",
        listed.stdout
    );
}

#[test]
fn answers_and_errors_pass_unchanged() {
    let gateway = Setup::new()
        .settings(GATE)
        .settings("[limits]\nanswer_bytes = 100000")
        .start();
    let token = gateway.worker_token("dog", "first");
    let _worker = TestWorker::attach(&gateway, &token, "a", 4);
    until_attached(&gateway, 1);
    for _ in 0..3 {
        let reply = gateway
            .post(&path("dog"), "{\"b\":  [1.50, \"\\u00e9\"]}")
            .expect(200);
        assert_eq!(reply.json()["asked"], json!({"b": [1.5, "é"]}));
        let failed = gateway
            .post(&path("dog"), "\"fail\"")
            .expect_error(409, "NO_SUCH_DOG");
        assert_eq!(failed.json()["error"]["args"]["place"], "$.dog");
        assert_eq!(failed.json()["error"]["message"], "no dog");
        assert_eq!(failed.header("x-worker"), reply.header("x-worker"));
        let bytes = gateway.post(&path("dog"), "\"bytes\"").expect(200);
        assert_eq!(bytes.header("content-type"), Some("audio/wav"));
        assert_eq!(bytes.body, [0xff, 0x00]);
        for wrong in ["\"much\"", "\"none\""] {
            let reply = gateway.post(&path("dog"), wrong);
            reply.expect_error(502, "mlp-action.common.service-unavailable");
        }
    }
    let task = gateway.create("dog", "\"fail\"");
    gateway.wait_for(&task, "CANCELED");
    let failed = gateway.result(&task).expect_error(409, "NO_SUCH_DOG");
    assert!(
        failed
            .header("x-worker")
            .is_some_and(|worker| worker.starts_with("a/"))
    );
}

#[test]
fn a_server_is_not_ready_while_a_required_service_has_no_worker() {
    let gateway = start();
    let token = gateway.worker_token("dog", "first");
    gateway.get("/readyz").expect(200);
    gateway.change_settings(&format!("{GATE}\n[services.dog]\nrequired = true"));
    gateway.signal("-HUP");
    gateway.until(|| gateway.get("/readyz").status == 503);
    for _ in 0..3 {
        let answer = gateway.get("/readyz").expect_error(503, "NOT_READY").json();
        assert_eq!(
            answer["error"]["args"]["reason"],
            "REQUIRED_SERVICE_IS_INACTIVE"
        );
        let worker = TestWorker::attach(&gateway, &token, "a", 1);
        gateway.until(|| gateway.get("/readyz").status == 200);
        drop(worker);
        gateway.until(|| gateway.get("/readyz").status == 503);
    }
}

/// A service of other code, with other libraries, and without additions to the protocol.
/// Starts the service in Python with its libraries.
fn python_service(gateway: &Gateway, token: &str, libraries: impl AsRef<OsStr>) -> Child {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut service = Command::new("python3");
    service
        .arg(root.join("tests/clients/service.py"))
        .arg(root.join("crates/gate/proto/mlp-gate.proto"))
        .args([token, &gateway.gate()])
        .env("PYTHONPATH", libraries)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    service.spawn().expect("Python runs")
}

#[test]
fn a_service_in_python_answers_through_the_gateway() {
    let Some(grpc) =
        EnvironmentPiece::Grpc.or_skip("a_service_in_python_answers_through_the_gateway")
    else {
        return;
    };
    let gateway = start();
    let token = gateway.worker_token("echo", "first");
    let attach = |token: &str| python_service(&gateway, token, &grpc);
    let stranger = attach("local.echo.guessed")
        .wait_with_output()
        .expect("it ends");
    let said = String::from_utf8_lossy(&stranger.stderr).into_owned();
    assert!(
        said.contains("mlp.gate.instance_by_token_not_found"),
        "{said}"
    );
    let mut service = attach(&token);
    until_attached(&gateway, 1);
    let with_config = path("echo").replace("/predict", "/predict-with-config");
    for _ in 0..3 {
        let reply = gateway
            .post(&path("echo"), "{\"a\":  1.50}")
            .expect(200)
            .json();
        assert_eq!(reply, json!({"data": {"a": 1.5}, "config": "{}"}));
        let body = "{\"data\": {\"b\": 1}, \"config\": {\"k\":  2}}";
        let reply = gateway.post(&with_config, body).expect(200).json();
        assert_eq!(reply, json!({"data": {"b": 1}, "config": "{\"k\":  2}"}));
        let failed = gateway
            .post(&path("echo"), "\"fail\"")
            .expect_error(404, "NO_DOG");
        assert_eq!(failed.json()["error"]["args"]["dog"], "none");
        for odd in ["\"twice\"", "\"wrong\"", "{\"stream\":true}"] {
            let reply = gateway.post(&path("echo"), odd).expect(200).json();
            assert_eq!(reply["data"].to_string(), odd);
        }
        let reply = gateway.post(&path("echo"), "\"nothing\"");
        reply.expect_error(502, "mlp-action.common.service-unavailable");
        let task = gateway.create("echo", "[2]");
        gateway.wait_for(&task, "COMPLETED");
        assert_eq!(gateway.result(&task).expect(200).json()["data"], json!([2]));
    }
    let reply = gateway.post(&path("echo"), "\"leave\"");
    reply.expect_error(503, "mlp-action.common.service-unavailable");
    service.wait().expect("it ended");
    let mut service = attach(&token);
    until_attached(&gateway, 1);
    let (code, log, _) = gateway.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(service.wait().expect("it ends").success());
}

#[test]
fn chats_of_workers_are_streamed() {
    let gateway = start();
    let token = gateway.worker_token("talker", "first");
    let _worker = TestWorker::attach(&gateway, &token, "a", 4);
    until_attached(&gateway, 1);
    let chat = |content: &str, stream: bool| {
        let body = json!({
            "model": "local/talker",
            "messages": [{"role": "user", "content": content}],
            "stream": stream,
        });
        let path = "/api/adapters/openai/v1/chat/completions";
        gateway.post(path, body.to_string())
    };
    for _ in 0..3 {
        let whole = chat("hello", false).expect(200);
        assert_eq!(whole.json()["choices"][0]["message"]["content"], "one two");
        let events = chat("hello", true).expect(200);
        assert_eq!(events.header("x-worker"), whole.header("x-worker"));
        let text = events.text();
        assert!(
            text.contains("\"one\"") && text.contains("\" two\""),
            "{text}"
        );
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        let broken = chat("break", true).expect(200).text();
        assert!(
            broken.contains("\"one\"") && broken.contains("it broke"),
            "{broken}"
        );
    }
}

#[test]
fn tasks_of_a_worker_that_leaves_go_to_another() {
    let gateway = start();
    let token = gateway.worker_token("dog", "first");
    let first = TestWorker::attach(&gateway, &token, "first", 2);
    until_attached(&gateway, 1);
    let task = gateway.create("dog", "\"wait\"");
    first.until_seen(1);
    let sync = std::thread::scope(|scope| {
        let asking = scope.spawn(|| gateway.post(&path("dog"), "\"wait\""));
        first.until_seen(2);
        drop(first);
        asking.join().expect("no panic")
    });
    sync.expect_error(503, "mlp-action.common.service-unavailable");
    // The task waits until there is a worker, and is not lost by a restart.
    let gateway = gateway.kill_and_restart();
    let second = TestWorker::attach(&gateway, &token, "second", 2);
    second.until_seen(1);
    second.release.notify_one();
    gateway.wait_for(&task, "COMPLETED");
    assert_eq!(gateway.result(&task).expect(200).json()["by"], "second");
    // It runs once more elsewhere, and then fails.
    let lost = gateway.create("dog", "\"wait\"");
    second.until_seen(2);
    drop(second);
    let third = TestWorker::attach(&gateway, &token, "third", 2);
    third.until_seen(1);
    drop(third);
    gateway.wait_for(&lost, "CANCELED");
    gateway
        .result(&lost)
        .expect_error(503, "mlp-action.common.service-unavailable");
}

#[test]
fn tasks_of_services_without_workers_hold_up_no_others() {
    let gateway = Setup::new()
        .settings(GATE)
        .settings("[limits]\nrunning = 1")
        .start();
    let tokens = ["dog", "cat"].map(|service| gateway.worker_token(service, "first"));
    let dogs = TestWorker::attach(&gateway, &tokens[0], "dogs", 2);
    let cats = TestWorker::attach(&gateway, &tokens[1], "cats", 2);
    until_attached(&gateway, 2);
    drop(dogs);
    until_attached(&gateway, 1);
    let waiting: Vec<String> = (0..3)
        .map(|at| gateway.create("dog", at.to_string()))
        .collect();
    for at in 0..3 {
        let task = gateway.create("cat", at.to_string());
        gateway.wait_for(&task, "COMPLETED");
    }
    assert_eq!(cats.seen(), ["0", "1", "2"]);
    for task in &waiting {
        assert_eq!(gateway.status(task)["status"], "QUEUED");
    }
    let dogs = TestWorker::attach(&gateway, &tokens[0], "dogs", 2);
    for task in &waiting {
        gateway.wait_for(task, "COMPLETED");
    }
    assert_eq!(dogs.seen(), ["0", "1", "2"]);
}

#[test]
fn requests_go_to_the_least_busy_worker_and_accounts_take_turns() {
    let gateway = start();
    gateway.account("other", 100);
    let key = gateway.new_key("other", "key", "predict");
    gateway.change_settings(&format!("{GATE}\n[services.dog]\npublic = true"));
    let token = gateway.worker_token("dog", "first");
    gateway.signal("-HUP");
    let large = TestWorker::attach(&gateway, &token, "large", 3);
    let small = TestWorker::attach(&gateway, &token, "small", 1);
    until_attached(&gateway, 2);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| gateway.post(&path("dog"), "\"wait\"").expect(200));
        }
        large.until_seen(3);
        small.until_seen(1);
        // All are busy: those of one account wait, and another account gets the next turn but one.
        for at in 0..3 {
            scope.spawn(|| gateway.post(&path("dog"), "\"wait\"").expect(200));
            gateway.until(|| waiting(&gateway) == at + 1);
        }
        let other = || {
            gateway
                .send_with(&key, "POST", &path("dog"), "\"other\"")
                .expect(200)
        };
        let other = scope.spawn(other);
        gateway.until(|| waiting(&gateway) == 4);
        small.release.notify_one();
        small.until_seen(2);
        small.release.notify_one();
        let reply = other.join().expect("no panic");
        assert_eq!(reply.json()["asked"], "other");
        for _ in 0..7 {
            large.release.notify_one();
            small.release.notify_one();
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    assert_eq!(large.seen().len() + small.seen().len(), 8);
}

/// Returns the number of waiting requests of the service `dog`.
fn waiting(gateway: &Gateway) -> usize {
    let page = gateway.metrics();
    let mut lines = page.lines();
    let line = lines.find(|line| line.starts_with("pkgtool_queue_waiting{service=\"local/dog\"}"));
    let value = line.and_then(|line| line.rsplit(' ').next());
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_default()
}

#[test]
fn operators_drain_workers_and_revoke_their_tokens() {
    let gateway = start();
    let token = gateway.worker_token("dog", "first");
    let first = TestWorker::attach(&gateway, &token, "first", 2);
    until_attached(&gateway, 1);
    let id = workers(&gateway)[0]["id"].to_string();
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| gateway.post(&path("dog"), "\"wait\"").expect(200));
        first.until_seen(1);
        let drained = gateway.ask(&["workers", "drain", &id]).expect_code(0);
        assert!(
            drained.stderr.contains("gets no more requests"),
            "{}",
            drained.stderr
        );
        let second = TestWorker::attach(&gateway, &token, "second", 2);
        until_attached(&gateway, 2);
        for _ in 0..4 {
            let reply = gateway.post(&path("dog"), "1").expect(200);
            assert_eq!(reply.json()["by"], "second");
        }
        first.release.notify_one();
        assert_eq!(asking.join().expect("no panic").json()["by"], "first");
        let listed = gateway.ask(&["workers", "list"]).expect_code(0).stdout;
        assert!(
            listed.contains("draining") && listed.contains("serving"),
            "{listed}"
        );
        // A drained machine that comes back stays drained.
        drop(first);
        until_attached(&gateway, 1);
        let again = TestWorker::attach(&gateway, &token, "first", 2);
        until_attached(&gateway, 2);
        let listed = workers(&gateway);
        let of_first = listed.iter().find(|it| {
            it["name"]
                .as_str()
                .is_some_and(|it| it.starts_with("first"))
        });
        let of_first = of_first.expect("it is attached");
        assert_eq!(of_first["state"], "draining");
        gateway
            .ask(&["workers", "resume", &of_first["id"].to_string()])
            .expect_code(0);
        drop(second);
        until_attached(&gateway, 1);
        assert_eq!(
            gateway.post(&path("dog"), "1").expect(200).json()["by"],
            "first"
        );
        // A revoked token ends connections, and the service is gone.
        let tokens = gateway
            .command(&["workers", "token", "list", "--json"])
            .expect_code(0);
        let tokens: Value = serde_json::from_str(&tokens.stdout).expect("a list");
        assert_eq!(
            (&tokens[0]["service"], &tokens[0]["name"]),
            (&json!("dog"), &json!("first"))
        );
        gateway
            .command(&["workers", "revoke", &tokens[0]["id"].to_string()])
            .expect_code(0);
        until_attached(&gateway, 0);
        gateway
            .post(&path("dog"), "1")
            .expect_error(400, "SERVICE_NOT_FOUND");
        assert_eq!(again.seen(), ["1"]);
    });
    gateway.line(|line| {
        line["reason"]
            .as_str()
            .is_some_and(|it| it.contains("revoked"))
    });
}

#[test]
fn wrong_workers_and_tokens_are_named() {
    let gateway = start();
    let token = gateway.worker_token("dog", "first");
    // A machine without packages is refused with a token of a service, and a service with that of a machine.
    let cache = tempfile::tempdir().expect("a folder");
    let any = gateway
        .command(&["workers", "token", "create", "--any"])
        .expect_code(0);
    let machine = Running::worker(&gateway, &token, cache.path(), "machine");
    gateway.line(|line| line["message"] == "refused an instance");
    drop(machine);
    let refused = gateway.lines().len();
    let worker = TestWorker::attach(&gateway, any.stdout.trim(), "a", 1);
    gateway.until(|| {
        let lines = gateway.lines();
        let mut later = lines.iter().skip(refused);
        later.any(|line| line["message"] == "refused an instance")
    });
    assert!(workers(&gateway).is_empty());
    drop(worker);
    for (arguments, reason) in [
        (vec!["workers", "drain", "999"], "unknown worker `999`"),
        (vec!["workers", "resume", "999"], "unknown worker `999`"),
    ] {
        let ran = gateway.ask(&arguments).expect_code(2);
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    }
    for (arguments, reason) in [
        (vec!["workers", "revoke", "999"], "unknown token `999`"),
        (
            vec!["workers", "token", "create", "a b"],
            "invalid name `a b`",
        ),
        (
            vec!["workers", "token", "create", "dog", "--account", "nobody"],
            "unknown account `nobody`",
        ),
        (
            vec!["workers", "token", "create", "dog", "--name", "first"],
            "already exists",
        ),
        (
            vec![
                "workers",
                "token",
                "create",
                "dog",
                "--expires",
                "2020-01-01",
            ],
            "in the past",
        ),
    ] {
        let ran = gateway.command(&arguments).expect_code(2);
        assert!(ran.stderr.contains(reason), "{}", ran.stderr);
    }
}

impl Running {
    fn worker(gateway: &Gateway, token: &str, cache: &Path, name: &str) -> Self {
        let gate = gateway.gate();
        let mut command = pkgtool([
            "worker",
            "--plain",
            "--name",
            name,
            "--gate",
            &gate,
            "--cache-size",
            "1",
        ])
        .into_command();
        command
            .arg("--cache")
            .arg(cache)
            .env("MLP_SERVICE_TOKEN", token);
        Self::spawn(command)
    }
}

/// Returns the versions that a cache holds.
fn versions(cache: &Path) -> usize {
    let entries = std::fs::read_dir(cache).expect("a folder").flatten();
    let records = entries.filter(|it| it.path().extension().is_some_and(|it| it == "json"));
    records.count()
}

#[test]
fn machines_without_packages_get_those_of_the_gateway() {
    let run_on = format!("{GATE}\n[services.hush_sentence]\nrun_on = \"workers\"");
    let tree = Tree::new();
    let source = examples().join("hush-sentence");
    copy(&source, &tree.path("packages/hush-sentence"));
    let packages = tree.path("packages");
    let texts = json!({"texts": ["a dog and a cat", ""]}).to_string();
    let local = Setup::new().packages(&packages).start();
    let wanted = local
        .post(&path("hush_sentence"), &texts)
        .expect(200)
        .json();
    drop(local);
    let gateway = Setup::new().settings(&run_on).packages(&packages).start();
    let token = gateway
        .command(&["workers", "token", "create", "--any"])
        .expect_code(0);
    let token = token.stdout.trim().to_owned();
    assert!(token.starts_with("local.*.wt_"), "{token}");
    let cache = tree.path("cache");
    let first = Running::worker(&gateway, &token, &cache, "first");
    until_attached(&gateway, 1);
    let answers = |times: usize| {
        for _ in 0..times {
            let reply = gateway.post(&path("hush_sentence"), &texts).expect(200);
            assert_eq!(reply.json(), wanted);
            let worker = reply.header("x-worker").expect("a worker answers");
            assert!(worker.starts_with("first/"), "{worker}");
        }
    };
    answers(3);
    gateway
        .post(&path("hush_sentence"), "{\"texts\": 1}")
        .expect_error(400, "BAD_REQUEST");
    assert_eq!(versions(&cache), 1);
    // What the gateway knows of the package stays.
    let document = gateway
        .get("/openapi.json?service=hush_sentence")
        .expect(200)
        .text();
    assert!(document.contains("texts"), "{document}");
    // A new version of the package: the worker serves the old one until it has the new one.
    let config = packages.join("hush-sentence/xnnpack/config.json");
    let text = std::fs::read_to_string(&config).expect("a config");
    std::fs::write(&config, format!("{text}\n")).expect("a config");
    gateway.until(|| {
        answers(1);
        versions(&cache) == 2 && instances(&gateway).len() == 1
    });
    answers(3);
    // A machine is listed, and drained with its services. The worker of the old version may still leave.
    gateway.until(|| workers(&gateway).len() == 2);
    let listed = workers(&gateway);
    assert_eq!(
        (listed.len(), &listed[0]["service"]),
        (2, &json!("*")),
        "{listed:?}"
    );
    let machine = listed[0]["id"].to_string();
    for (operation, state) in [("drain", "draining"), ("resume", "serving")] {
        gateway
            .ask(&["workers", operation, &machine])
            .expect_code(0);
        let listed = workers(&gateway);
        assert!(listed.iter().all(|it| it["state"] == state), "{listed:?}");
    }
    answers(1);
    // The process is killed, and finds the package in its cache.
    drop(first);
    until_attached(&gateway, 0);
    let first = Running::worker(&gateway, &token, &cache, "first");
    until_attached(&gateway, 1);
    answers(2);
    // The gateway is killed: its tokens of instances are new.
    let gateway = gateway.kill_and_restart();
    drop(first);
    let second = Running::worker(&gateway, &token, &tree.path("other"), "second");
    until_attached(&gateway, 1);
    let task = gateway.create("hush_sentence", &texts);
    gateway.wait_for(&task, "COMPLETED");
    assert_eq!(gateway.result(&task).expect(200).json(), wanted);
    // A package of the settings runs here again.
    gateway.change_settings(GATE);
    gateway.signal("-HUP");
    gateway.until(|| {
        let reply = gateway.post(&path("hush_sentence"), &texts).expect(200);
        reply.header("x-worker").is_none()
    });
    until_attached(&gateway, 0);
    drop(second);
}

/// Copies a folder.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).expect("a file");
        }
    }
}

/// Workers reach a gateway with a certificate, and only if they know its authority.
#[test]
fn workers_attach_by_tls() {
    let file = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates/gate/tests/tls");
        folder.join(name).display().to_string()
    };
    let tls = format!(
        "[tls]\ncertificate = {:?}\nkey = {:?}",
        file("certificate.pem"),
        file("key.pem")
    );
    let gateway = Setup::new().settings(GATE).settings(&tls).start();
    let token = gateway.worker_token("sentences", "first");
    let gate = gateway.gate().replace("127.0.0.1", "localhost");
    let trained = tempfile::tempdir().expect("a folder");
    let attach = |authority: &str| {
        let mut command = pkgtool(["attach", "--gate", &gate, "--ca"]).into_command();
        command
            .arg(file(authority))
            .arg(examples().join("hush-sentence"))
            .arg("--trained")
            .arg(trained.path().join(authority))
            .env("MLP_SERVICE_TOKEN", &token);
        Running::spawn(command)
    };
    let stranger = attach("other_authority.pem");
    let attached = attach("authority.pem");
    gateway.line(|line| line["message"] == "attached");
    drop(attached);
    gateway.line(|line| line["message"] == "left");
    drop(stranger);
    let attached = gateway
        .lines()
        .into_iter()
        .filter(|line| line["message"] == "attached");
    assert_eq!(attached.count(), 1);
}

#[test]
fn a_token_that_expires_ends_its_connections() {
    let gateway = start();
    let create = ["workers", "token", "create", "dog", "--expires", "8s"];
    let token = gateway
        .command(&create)
        .expect_code(0)
        .stdout
        .trim()
        .to_owned();
    let worker = TestWorker::attach(&gateway, &token, "a", 1);
    until_attached(&gateway, 1);
    gateway.post(&path("dog"), "1").expect(200);
    until_attached(&gateway, 0);
    gateway
        .post(&path("dog"), "1")
        .expect_error(400, "SERVICE_NOT_FOUND");
    // It tries again, and is refused.
    gateway.line(|line| {
        line["message"] == "refused an instance"
            && line["code"] == "mlp.gate.instance_token_revoked"
    });
    drop(worker);
}

/// A worker that comes and goes a hundred times leaves nothing behind.
#[test]
fn many_disconnections_leave_nothing() {
    let gateway = start();
    let token = gateway.worker_token("dog", "first");
    let steady = TestWorker::attach(&gateway, &token, "steady", 4);
    until_attached(&gateway, 1);
    let gate = gateway.gate();
    let before = gateway.memory("VmRSS");
    for round in 0..100 {
        // Half of them say nothing of the protocol.
        drop(std::net::TcpStream::connect(&gate).expect("the gate listens"));
        if round % 4 == 0 {
            drop(TestWorker::attach(&gateway, &token, "hasty", 4));
        }
        gateway.post(&path("dog"), round.to_string()).expect(200);
    }
    gateway.until(|| workers(&gateway).len() == 1);
    let grown = gateway.memory("VmRSS").saturating_sub(before);
    assert!(grown < 32 << 20, "{grown}");
    assert!(steady.seen().len() >= 75, "{}", steady.seen().len());
}

/// Models on a worker pass the tests of models in the server.
#[test]
fn tests_of_services_pass_on_a_worker() {
    if std::env::var_os(ON_WORKERS).is_some() {
        return;
    }
    pass_again(ON_WORKERS, &ON_WORKERS_TOO, &NOT_ON_WORKERS, 40);
}

/// Tests that run a second time, with the models on a worker.
const ON_WORKERS_TOO: [&str; 7] = [
    "gateway::predict::",
    "gateway::tasks::",
    "gateway::chats::",
    "gateway::streams::",
    "gateway::texts::",
    "gateway::pictures::",
    "gateway::training::",
];

/// Tests of the engine in the server, or of accounts whose packages no worker has.
const NOT_ON_WORKERS: [&str; 4] = [
    // It measures the training, which runs in the gateway.
    "a_training_without_settings_is_as_good_as_a_choice_by_cross_validation",
    // The time limit is that of a token in the server, and that of a part of the answer on a worker.
    "a_stream_may_take_longer_than_an_answer",
    // A service whose tokenizer is broken does not attach.
    "a_broken_tokenizer_is_the_services_fault_and_told_once",
    // It looks for the engine's processes below the server.
    "a_worker_that_dies_between_turns_is_not_noticed",
];
