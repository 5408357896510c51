//! Tests of `pkgtool serve` and its helper commands, from a user's view.

use std::fs;

use serde_json::json;

use crate::gateway::{three, with_models};
use crate::support::gateway::Setup;
use crate::support::http::Upstream;
use crate::support::run::pkgtool;

#[test]
fn the_first_start_shows_a_key_once() {
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("echo", &upstream.url("/echo")).start();
    assert_eq!(gateway.announced.matches("pk_").count(), 1);
    assert!(
        gateway.announced.contains("local/echo"),
        "{}",
        gateway.announced
    );
    let accounts = gateway
        .command(&["accounts", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(accounts[0]["name"], "local");
    assert_eq!(accounts[0]["rps"], json!(null), "without a limit");
    let keys = gateway
        .command(&["keys", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(keys[0]["permissions"], "predict,read,write");
    let gateway = gateway.kill_and_restart();
    assert!(!gateway.announced.contains("pk_"), "{}", gateway.announced);
    gateway
        .get("/api/mlpgateway/account/local/model/echo")
        .expect(200);
}

#[test]
fn settings_come_from_file_and_environment_and_are_printed() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("gateway.toml");
    fs::write(&file, "[limits]\nwaiting = 7\nbody_bytes = 5000\n").expect("a file");
    let file = file.to_str().expect("a plain path");
    let print = |name: &str, value: &str| {
        let run = pkgtool(["serve", "--print-config", "--config", file]);
        run.variable(name, value).run()
    };
    let printed = print("PKGTOOL_LIMITS_BODY_BYTES", "6000")
        .expect_code(0)
        .stdout;
    for line in [
        "waiting = 7",
        "body_bytes = 6000",
        "predict_timeout_s = 60.0",
    ] {
        assert!(printed.contains(line), "{line} in {printed}");
    }
    let again = directory.path().join("again.toml");
    fs::write(&again, &printed).expect("a file");
    let again = pkgtool(["serve", "--print-config", "--config"])
        .into_command()
        .arg(&again)
        .output();
    assert_eq!(
        String::from_utf8_lossy(&again.expect("it runs").stdout),
        printed
    );
    let printed = print("PKGTOOL_LIMITS_WAITING", "17").expect_code(0).stdout;
    assert!(printed.contains("waiting = 17"), "{printed}");
    let refused = print("PKGTOOL_LIMIT_WAITING", "17").expect_code(2);
    assert!(
        refused
            .stderr
            .contains("did you mean PKGTOOL_LIMITS_WAITING?"),
        "{}",
        refused.stderr
    );
    fs::write(directory.path().join("bad.toml"), "[limits]\nwaitin = 7\n").expect("a file");
    let bad = directory.path().join("bad.toml");
    let bad = pkgtool(["serve", "--config", bad.to_str().expect("a plain path")]).run();
    let bad = bad.expect_code(2);
    assert!(
        bad.stderr.contains("waitin") && bad.stderr.contains("line 2"),
        "{}",
        bad.stderr
    );
}

#[test]
fn accounts_may_be_made_before_the_first_start() {
    let upstream = Upstream::start();
    let directory = tempfile::tempdir().expect("a directory");
    let made = [
        "accounts",
        "create",
        "--name",
        "acme",
        "--rps",
        "20",
        "--data-dir",
    ];
    let data = directory.path().join("data");
    let data = data.to_str().expect("a plain path");
    pkgtool(made.into_iter().chain([data])).run().expect_code(0);
    let gateway = Setup::new()
        .proxy("echo", &upstream.url("/echo"))
        .settings(&format!(
            "[[proxies]]\nname = \"echo\"\naccount = \"acme\"\nupstream = \"{}\"",
            upstream.url("/echo")
        ))
        .start_in(directory);
    assert_eq!(gateway.announced.matches("pk_").count(), 1);
    gateway.post("/p/local/echo", "{}").expect(200);
    let key = gateway.new_key("acme", "ci", "predict");
    gateway
        .send_with(&key, "POST", "/p/acme/echo", "{}")
        .expect(200);
    // Only the first start creates and prints a key.
    let gateway = gateway.kill_and_restart();
    assert!(!gateway.announced.contains("pk_"), "{}", gateway.announced);
    gateway.post("/p/local/echo", "{}").expect(200);
    let listed = gateway.command(&["keys", "list", "--json"]).expect_code(0);
    assert_eq!(listed.json().as_array().map(Vec::len), Some(2));
}

#[test]
fn a_server_listens_where_a_name_says() {
    let upstream = Upstream::start();
    let setup = Setup::new().proxy("echo", &upstream.url("/echo"));
    let gateway = setup.listen("localhost:0").start();
    assert!(gateway.address.ip().is_loopback(), "{}", gateway.address);
    gateway.post("/p/local/echo", "{}").expect(200);
    let elsewhere = tempfile::tempdir().expect("a directory");
    let own = elsewhere.path().to_str().expect("a plain path");
    for (listen, says) in [
        ("localhost", "HOST:PORT"),
        ("no such place:80", "HOST:PORT"),
        ("nosuch.invalid:0", "cannot listen on nosuch.invalid:0"),
    ] {
        let ran = pkgtool(["serve", "--data-dir", own, "--listen", listen]).run();
        let ran = ran.expect_code(2);
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
}

#[test]
fn settings_of_services_that_are_not_there_are_refused() {
    let upstream = Upstream::start();
    let directory = tempfile::tempdir().expect("a directory");
    let own = directory.path().to_str().expect("a plain path");
    let file = directory.path().join("gateway.toml");
    let proxy = format!(
        "[[proxies]]\nname = \"echo\"\nupstream = \"{}\"",
        upstream.url("/")
    );
    for (settings, says) in [
        (
            "[services.ecko]\nqueue = 1",
            "did you mean `[services.echo]`?",
        ),
        (
            "[services.\"acme/echo\"]\nqueue = 1",
            "the account `acme` has no service `echo`; did you mean `[services.echo]`?",
        ),
        ("[services.other]\nqueue = 1", "services here: echo"),
    ] {
        fs::write(&file, format!("{settings}\n{proxy}\n")).expect("a file");
        let ran = pkgtool(["serve", "--listen", "127.0.0.1:0", "--data-dir", own]).run();
        let ran = ran.expect_code(2);
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
}

#[test]
fn a_limit_without_sense_is_told_at_the_start() {
    for (name, value, says) in [
        (
            "PKGTOOL_LIMITS_HEADER_COUNT",
            "0",
            "`limits.header_count` is 0",
        ),
        (
            "PKGTOOL_LIMITS_HEADER_COUNT",
            "1000000000000",
            "at most 32768",
        ),
        (
            "PKGTOOL_LIMITS_CONNECTIONS",
            "9223372036854775807",
            "at most",
        ),
        (
            "PKGTOOL_LIMITS_ANSWER_BYTES",
            "0",
            "`limits.answer_bytes` is 0",
        ),
    ] {
        let ran = pkgtool(["serve", "--print-config"])
            .variable(name, value)
            .run();
        let ran = ran.expect_code(2);
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
}

#[test]
fn what_cannot_be_served_is_told_at_the_start() {
    let gateway = Setup::new().variable("PKGTOOL_LOG_LEVEL", "warn").start();
    let data = gateway.data();
    let data = data.to_str().expect("a plain path");
    let address = gateway.address.to_string();
    let elsewhere = tempfile::tempdir().expect("a directory");
    let own = elsewhere.path().to_str().expect("a plain path");
    for (arguments, code, says) in [
        (
            vec!["--listen", "127.0.0.1:0", "--data-dir", data],
            2,
            "another pkgtool serves",
        ),
        (
            vec!["--listen", &address, "--data-dir", own],
            2,
            "cannot listen on",
        ),
        (
            vec!["nosuch", "--listen", "127.0.0.1:0", "--data-dir", own],
            3,
            "nosuch",
        ),
    ] {
        let ran = pkgtool([&["serve"], &arguments[..]].concat())
            .run()
            .expect_code(code);
        assert!(ran.stderr.contains(says), "{}", ran.stderr);
    }
}

#[test]
fn a_service_is_asked_on_the_command_line() {
    let (gateway, tree) = with_models(Setup::new());
    let answer = gateway
        .ask(&["predict", "negate", "--input", "[1,-2,3]"])
        .expect_code(0)
        .json();
    assert_eq!(answer["outputs"][0]["data"], json!([-1.0, 2.0, -3.0]));
    let data = three([1.0, 2.0, 3.0]);
    let config = r#"{"precision":"fp32"}"#;
    let arguments = [
        "predict",
        "local/negate",
        "--data",
        &data,
        "--config",
        config,
    ];
    let answer = gateway.ask(&arguments).expect_code(0).json();
    assert_eq!(answer["outputs"][0]["data"], json!([-1.0, -2.0, -3.0]));
    // The tensor is in a file that is passed by name.
    let mut npy = Vec::new();
    let bytes: Vec<u8> = [4.0_f32, 5.0, 6.0]
        .iter()
        .flat_map(|it| it.to_le_bytes())
        .collect();
    let tensor =
        pkgtool_engine::tensor::Tensor::new(pkgtool_engine::tensor::DType::Float32, vec![3], bytes);
    pkgtool_engine::tensor::npy::write(&mut npy, &tensor.expect("it fits")).expect("it is written");
    fs::write(tree.path("x.npy"), npy).expect("a file");
    let input = format!("x=@{}", tree.path("x.npy").display());
    let answer = gateway
        .ask(&["predict", "negate", "--input", &input])
        .expect_code(0)
        .json();
    assert_eq!(answer["outputs"][0]["data"], json!([-4.0, -5.0, -6.0]));
    let wrong = gateway
        .ask(&["predict", "negate", "--input", "[1,2]"])
        .expect_code(2);
    assert!(wrong.stderr.contains("400 BAD_REQUEST"), "{}", wrong.stderr);
    let nothing = gateway.ask(&["predict", "negate"]).expect_code(2);
    assert!(nothing.stderr.contains("--input"), "{}", nothing.stderr);
}

#[test]
fn a_task_is_made_and_followed_on_the_command_line() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nrunning = 1")
        .proxy("slow", &upstream.url("/hold"))
        .start();
    let create = || {
        let made = gateway
            .ask(&["task", "create", "slow", "--data", "{}"])
            .expect_code(0);
        made.stdout.trim().to_owned()
    };
    let (first, second) = (create(), create());
    gateway.wait_for(&first, "PROCESSING");
    let status = gateway
        .ask(&["task", "status", &second])
        .expect_code(0)
        .json();
    assert_eq!(status["status"], "QUEUED");
    assert_eq!(status["queuePosition"], 1);
    let early = gateway.ask(&["task", "result", &first]).expect_code(1);
    assert!(early.stderr.contains("not finished"), "{}", early.stderr);
    let late = gateway
        .ask(&["task", "wait", &first, "--timeout", "1"])
        .expect_code(2);
    assert!(late.stderr.contains("is still running"), "{}", late.stderr);
    gateway.ask(&["task", "cancel", &second]).expect_code(0);
    let canceled = gateway
        .ask(&["task", "wait", &second])
        .expect_code(1)
        .json();
    assert_eq!(canceled["status"], "CANCELED");
    let gone = gateway.ask(&["task", "result", &second]).expect_code(2);
    assert!(
        gone.stderr.contains("ASYNC_TASK_CANCELED"),
        "{}",
        gone.stderr
    );
    upstream.release();
    let answer = gateway
        .ask(&["task", "wait", &first, "--result"])
        .expect_code(0);
    assert_eq!(answer.json(), json!({"held": true}));
    let listed = gateway
        .ask(&["task", "list", "--status", "completed"])
        .expect_code(0)
        .json();
    assert_eq!(listed.as_array().map(Vec::len), Some(1));
    assert_eq!(listed[0]["taskId"], first.as_str());
}

#[test]
fn a_client_without_key_or_server_is_told_what_to_do() {
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("echo", &upstream.url("/echo")).start();
    let url = format!("http://{}", gateway.address);
    let keyless = pkgtool(["task", "list", "--url", &url])
        .run()
        .expect_code(2);
    assert!(
        keyless.stderr.contains("PKGTOOL_API_KEY"),
        "{}",
        keyless.stderr
    );
    let nobody = pkgtool(["task", "list", "--url", "http://127.0.0.1:9"])
        .run()
        .expect_code(2);
    assert!(
        nobody.stderr.contains("is `pkgtool serve` running?"),
        "{}",
        nobody.stderr
    );
    let wrong = pkgtool(["task", "list", "--url", "ftp://x"])
        .run()
        .expect_code(2);
    assert!(wrong.stderr.contains("http://"), "{}", wrong.stderr);
}
