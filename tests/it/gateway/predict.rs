//! Tests of synchronous predict calls: of packages and of upstreams, under every spelling of the
//! prefix.

use serde_json::json;

use super::{PREFIXES, examples, first_output, with_models};
use crate::support::gateway::Setup;
use crate::support::http::{self, Upstream};

#[test]
fn a_models_answer_comes_under_every_spelling() {
    let (gateway, _tree) = with_models(Setup::new());
    let data = json!({"inputs": [{"name": "x", "dtype": "float32", "shape": [3], "data": [0.5, -1.5, 2.0]}]});
    let mut requests = vec![("/p/local/negate".to_owned(), data.to_string())];
    for prefix in PREFIXES {
        let base = format!("{prefix}/account/local/model/negate");
        requests.push((format!("{base}/predict"), data.to_string()));
        let with_config = json!({"data": data, "config": {"backend": "xnnpack"}});
        requests.push((
            format!("{base}/predict-with-config"),
            with_config.to_string(),
        ));
        let as_text = json!({"data": data.to_string(), "config": "{\"method\":\"forward\"}"});
        requests.push((
            format!("{base}/predict-with-config-v2"),
            as_text.to_string(),
        ));
        // One client encodes its data twice.
        let twice = json!(data.to_string());
        requests.push((format!("{base}/predict"), twice.to_string()));
    }
    for (path, body) in requests {
        let reply = gateway.post(&path, &body).expect(200);
        assert_eq!(reply.header("content-type"), Some("application/json"));
        assert_eq!(first_output(&reply.json()), [-0.5, 1.5, -2.0], "{path}");
    }
}

#[test]
fn an_upstream_gets_the_request_as_it_is_and_its_errors_pass() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .proxy("echo", &upstream.url("/echo"))
        .proxy("teapot", &upstream.url("/status/418"))
        .proxy("broken", &upstream.url("/status/500"))
        .proxy("moved", &upstream.url("/status/302"))
        .proxy("rude", &upstream.url("/drop"))
        .proxy("gone", "http://127.0.0.1:9/")
        .proxy("late", &upstream.url("/hold"))
        .settings("[services.late]\npredict_timeout_s = 0.1")
        .start();
    let base = "/api/mlpgateway/account/local/model";
    for body in ["{}", "not json", "\u{0}", ""] {
        assert_eq!(
            gateway
                .post(&format!("{base}/echo/predict"), body)
                .expect(200)
                .text(),
            body
        );
    }
    let both = json!({"data": {"a": 1}, "config": {"b": 2}, "dataType": "t"});
    let reply = gateway.post(
        &format!("{base}/echo/predict-with-config"),
        both.to_string(),
    );
    assert_eq!(reply.expect(200).json(), both);
    let alone = json!({"data": {"a": 1}});
    let reply = gateway.post(
        &format!("{base}/echo/predict-with-config"),
        alone.to_string(),
    );
    assert_eq!(reply.expect(200).json(), json!({"a": 1}));
    for (service, status) in [("teapot", 418), ("broken", 500)] {
        let reply = gateway.post(&format!("{base}/{service}/predict"), "{}");
        assert_eq!(reply.expect(status).json(), json!({"upstream": "says so"}));
    }
    gateway
        .post(&format!("{base}/moved/predict"), "{}")
        .expect(502);
    for service in ["rude", "gone"] {
        let reply = gateway.post(&format!("{base}/{service}/predict"), "{}");
        let reply = reply.expect_error(502, "mlp-action.common.service-unavailable");
        assert!(
            !reply.text().contains("127.0.0.1"),
            "details are for the log"
        );
        let id = reply.header("z-requestid").expect("every answer has one");
        let told = |line: &str| line.contains(id) && line.contains("is unreachable");
        gateway.until(|| gateway.log().lines().any(told));
    }
    let late = gateway.post(&format!("{base}/late/predict"), "{}");
    let late = late.expect_error(504, "PREDICT_TIMEOUT");
    assert_eq!(late.header("x-should-retry"), Some("false"));
}

#[test]
fn a_stored_config_chooses_and_a_default_one_holds() {
    let gateway = Setup::new().packages(examples()).start();
    gateway
        .command(&["accounts", "set", "local", "--rps", "1000"])
        .expect_code(0);
    let base = "/api/mlpgateway/account/local/model/spotter_s";
    let stored = gateway
        .post(
            &format!("{base}/predict-config"),
            r#"{"name":"half","config":{"precision":"fp16"}}"#,
        )
        .expect(200)
        .json();
    let id = stored["id"]["configId"].as_i64().expect("a number");
    assert_eq!(stored["config"], r#"{"precision":"fp16"}"#);
    assert_eq!(stored["isDefault"], false);
    let zeros = json!({"inputs": [{"shape": [1, 3, 64, 64], "data": vec![0.0; 3 * 64 * 64]}]});
    let dtype = |reply: http::Reply| {
        let body = reply.expect(200).json();
        body["outputs"][0]["dtype"]
            .as_str()
            .expect("a name")
            .to_owned()
    };
    let predict = |query: &str| gateway.post(&format!("{base}/predict{query}"), zeros.to_string());
    assert_eq!(dtype(predict("")), "float32");
    assert_eq!(dtype(predict(&format!("?configId={id}"))), "float16");
    predict("?configId=999").expect_error(400, "BAD_REQUEST");
    // The config is sent as text and set as the new default.
    let default = json!({"name": "d", "isDefault": true, "config": "{\"precision\":\"fp16\"}"});
    let default = gateway.post(&format!("{base}/predict-config"), default.to_string());
    let default = default.expect(200).json()["id"]["configId"].clone();
    assert_eq!(dtype(predict("")), "float16");
    let listed = gateway
        .get(&format!("{base}/predict-config"))
        .expect(200)
        .json();
    assert_eq!(listed.as_array().map(Vec::len), Some(2));
    let path = format!("{base}/predict-config/{default}");
    assert_eq!(gateway.get(&path).expect(200).json()["isDefault"], true);
    gateway.send("DELETE", &path, "").expect(200);
    gateway
        .get(&path)
        .expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    gateway
        .send("DELETE", &path, "")
        .expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    assert_eq!(dtype(predict("")), "float32");
    for wrong in [
        r#"{"name":"x","config":{"precision":"fp7"}}"#,
        r#"{"name":"x","config":{"precison":"fp16"}}"#,
        r#"{"name":"x","config":7}"#,
        r#"{"name":"","config":{}}"#,
        r#"{"config":{}}"#,
        "{",
    ] {
        gateway
            .post(&format!("{base}/predict-config"), wrong)
            .expect_error(400, "BAD_REQUEST");
    }
}

#[test]
fn every_example_is_served_and_those_that_run_here_answer() {
    let gateway = Setup::new().packages(examples()).start();
    gateway
        .command(&["accounts", "set", "local", "--rps", "1000"])
        .expect_code(0);
    let services = gateway
        .get("/api/mlpgateway/account/local/model")
        .expect(200)
        .json();
    let services = services.as_array().expect("a list").clone();
    assert_eq!(services.len(), 16);
    let mut answered = 0;
    for service in &services {
        let name = service["modelName"].as_str().expect("a name");
        let base = format!("/api/mlpgateway/account/local/model/{name}");
        let by_number = format!(
            "/api/mlpgateway/account/1/model/{}",
            service["id"]["modelId"]
        );
        assert_eq!(gateway.get(&by_number).expect(200).json(), *service);
        // With one input too few, a model that runs here reports its inputs; the others report why
        // they do not run.
        let told = gateway
            .post(&format!("{base}/predict"), r#"{"inputs":[]}"#)
            .expect(400);
        if told.code() == "NO_ACTIVE_INSTANCES" {
            assert!(told.text().contains("ExecuTorch"), "{}", told.text());
        } else {
            assert_eq!(told.code(), "BAD_REQUEST");
            answered += 1;
        }
    }
    assert!(answered >= 6, "{answered} have ONNX models");
    for (service, config, shape) in [
        ("glimpse", json!({"backend": "qnn"}), vec![1, 3, 32, 32]),
        ("spotter_s", json!({}), vec![1, 3, 64, 64]),
    ] {
        let count: usize = shape.iter().product();
        let data = json!({"inputs": [{"shape": shape, "data": vec![0.25; count]}]});
        let body = json!({"data": data, "config": config}).to_string();
        let path = format!("/api/mlpgateway/account/local/model/{service}/predict-with-config");
        let answer = gateway.post(&path, &body).expect(200).json();
        let outputs = answer["outputs"].as_array().expect("outputs");
        assert!(!outputs.is_empty(), "{answer}");
        let path =
            format!("/api/mlpgateway/account/local/model/{service}/async/predict-with-config");
        let task = gateway.post(&path, &body).expect(200).json();
        let task = task.as_str().expect("an id");
        gateway.wait_for(task, "COMPLETED");
        assert_eq!(gateway.result(task).expect(200).json(), answer);
    }
}

#[test]
fn an_index_outside_a_table_is_the_callers_mistake_in_every_format() {
    let gateway = Setup::new().packages(examples()).start();
    let base = "/api/mlpgateway/account/local/model/hush_sentence";
    for config in [
        json!({"backend": "xnnpack", "precision": "fp32"}),
        json!({"backend": "xnnpack", "precision": "8da4w"}),
        json!({"backend": "mlx"}),
    ] {
        let body = |index: i64| {
            let data = json!({"inputs": [{"data": [[5, 8, index]]}]});
            json!({"data": data, "config": config}).to_string()
        };
        let ask = |index| gateway.post(&format!("{base}/predict-with-config"), body(index));
        // Requests after an invalid one are answered.
        for index in [100_000, -100_000, i64::MIN, i64::MAX] {
            ask(63).expect(200);
            let refused = ask(index).expect_error(400, "BAD_REQUEST");
            assert!(
                refused.text().contains(&index.to_string()),
                "{}",
                refused.text()
            );
        }
        let path = format!("{base}/async/predict-with-config");
        let task = gateway.post(&path, body(64)).expect(200).json();
        let task = task.as_str().expect("an id");
        gateway.wait_for(task, "CANCELED");
        gateway.result(task).expect_error(400, "BAD_REQUEST");
    }
}

#[test]
fn the_operator_of_an_index_outside_its_table_is_named() {
    let gateway = Setup::new().packages(examples()).start();
    let path = "/api/mlpgateway/account/local/model/hush_sentence/predict";
    let ask = |ids: &[i64]| {
        let input = json!({"shape": [1, ids.len()], "data": ids});
        gateway.post(path, json!({"inputs": [input]}).to_string())
    };
    ask(&[5, 8, 13]).expect(200);
    for index in [-1, 100_000] {
        let reply = ask(&[5, 8, index]).expect_error(400, "BAD_REQUEST");
        let text = reply.text();
        assert!(text.contains("`aten::embedding.out`"), "{text}");
        assert!(text.contains(&index.to_string()), "{text}");
    }
    ask(&[5, 8, 13]).expect(200);
}
