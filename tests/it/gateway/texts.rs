//! Tests of text embeddings through the gateway: batched, single, as tasks, and by several users at
//! once.

use serde_json::{Value, json};

use super::examples;
use crate::support::gateway::{Gateway, Setup};

const PREDICT: &str = "/api/mlpgateway/account/local/model/hush_sentence/predict";

/// Starts the embedding example with a backend that every machine has.
fn start() -> Gateway {
    Setup::new()
        .packages(examples().join("hush-sentence"))
        .start()
}

fn vectors(answer: &Value) -> Vec<Vec<f64>> {
    let embedded = answer["embedded_texts"].as_array().expect("a list");
    let vector = |it: &Value| serde_json::from_value(it["vector"].clone()).expect("numbers");
    embedded.iter().map(vector).collect()
}

fn embed(gateway: &Gateway, texts: &[&str]) -> Vec<Vec<f64>> {
    let reply = gateway.post(PREDICT, json!({"texts": texts}).to_string());
    let reply = reply.expect(200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    vectors(&reply.json())
}

fn close(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5)
}

#[test]
fn vectors_keep_the_order_of_the_texts() {
    let gateway = start();
    let texts = [
        "a dog and a cat on a tree by the river",
        "one",
        "the red house",
        "two dogs",
        "the green house is old and the blue house is new",
        "",
        "night",
    ];
    let alone: Vec<_> = texts
        .iter()
        .map(|text| embed(&gateway, &[text]).remove(0))
        .collect();
    let together = embed(&gateway, &texts);
    assert_eq!(together.len(), texts.len());
    for ((text, alone), together) in texts.iter().zip(&alone).zip(&together) {
        assert_eq!(alone.len(), 32);
        assert!(close(alone, together), "{text:?}");
    }
    assert!(!close(&together[1], &together[2]), "they differ");
    assert_eq!(embed(&gateway, &[]), Vec::<Vec<f64>>::new());
    // This variant takes several texts per call.
    let with = |texts: &[&str]| {
        let body = json!({"data": {"texts": texts}, "config": {"backend": "mlx"}});
        let path = format!("{PREDICT}-with-config");
        vectors(&gateway.post(&path, body.to_string()).expect(200).json())
    };
    let together = with(&texts);
    for (text, together) in texts.iter().zip(&together) {
        assert!(close(&with(&[text])[0], together), "{text:?}");
    }
}

#[test]
fn users_at_once_have_their_own_vectors() {
    let gateway = Setup::new()
        .packages(examples().join("hush-sentence"))
        .settings("[services.hush_sentence]\npublic = true")
        .start();
    gateway.account("other", 100);
    let key = gateway.new_key("other", "k", "predict");
    let texts = ["the red house", "a small dog", "two trees by the river"];
    let expected = embed(&gateway, &texts);
    // Repeated requests get the first answer, while other users send requests in between.
    std::thread::scope(|scope| {
        for user in 0..4 {
            let (gateway, expected, key) = (&gateway, &expected, &key);
            scope.spawn(move || {
                for turn in 0..3 {
                    let place = (user + turn) % texts.len();
                    let body = json!({"texts": [texts[place], texts[(place + 1) % 3]]});
                    let reply = if user % 2 == 0 {
                        gateway.post(PREDICT, body.to_string())
                    } else {
                        gateway.send_with(key, "POST", PREDICT, body.to_string())
                    };
                    let vectors = vectors(&reply.expect(200).json());
                    assert!(close(&vectors[0], &expected[place]));
                    assert!(close(&vectors[1], &expected[(place + 1) % 3]));
                }
            });
        }
    });
    let third = embed(&gateway, &texts);
    for (third, expected) in third.iter().zip(&expected) {
        assert!(close(third, expected));
    }
}

#[test]
fn a_task_answers_as_a_call_does() {
    let gateway = start();
    let texts = json!({"texts": ["the red house", "a dog"]});
    let called = vectors(&gateway.post(PREDICT, texts.to_string()).expect(200).json());
    let task = gateway.create("hush_sentence", texts.to_string());
    gateway.wait_for(&task, "COMPLETED");
    let answered = vectors(&gateway.result(&task).expect(200).json());
    assert_eq!(called.len(), 2);
    for (called, answered) in called.iter().zip(&answered) {
        assert!(close(called, answered));
    }
    let with = json!({"data": texts, "config": {"normalize": true, "precision": "fp32"}});
    let path = "/api/mlpgateway/account/local/model/hush_sentence/predict-with-config";
    let answer = gateway.post(path, with.to_string()).expect(200).json();
    assert_eq!(vectors(&answer).len(), 2);
}

#[test]
fn what_is_wrong_with_texts_is_told_before_they_run() {
    let gateway = start();
    let long = "dog ".repeat(40);
    let config = |config: Value| json!({"data": {"texts": ["a dog"]}, "config": config});
    let base = "/api/mlpgateway/account/local/model";
    let with = format!("{base}/hush_sentence/predict-with-config");
    for (path, body, place, told) in [
        (
            PREDICT,
            json!({"texts": "a"}),
            "$.texts",
            "expected an array",
        ),
        (
            PREDICT,
            json!({"texts": ["a", 1]}),
            "$.texts[1]",
            "expected a string",
        ),
        (
            PREDICT,
            json!({"texts": ["a", long]}),
            "$.texts[1]",
            "42 tokens, but the model accepts 23",
        ),
        (
            PREDICT,
            json!({"texts": ["a"], "text": 1}),
            "$.text",
            "unknown key",
        ),
        (
            PREDICT,
            json!({"texts": vec!["a"; 3000]}),
            "$.texts",
            "more than 2048 elements",
        ),
        (
            PREDICT,
            json!({"texts": ["x".repeat(300_000)]}),
            "$.texts[0]",
            "300000 bytes",
        ),
        (
            &with,
            config(json!({"max_length": 99})),
            "$.config.max_length",
            "99 exceeds the 23",
        ),
        (
            &with,
            config(json!({"max_length": "9"})),
            "$.config.max_length",
            "a whole number",
        ),
        (
            &with,
            config(json!({"pooling": "median"})),
            "$.config.pooling",
            "`mean`",
        ),
        (
            &with,
            config(json!({"truncat": true})),
            "$.config.truncat",
            "`truncate`",
        ),
    ] {
        let reply = gateway.post(path, body.to_string());
        let error = reply.expect(400).json();
        let message = error["error"]["message"]
            .as_str()
            .expect("a text")
            .to_owned();
        assert!(message.contains(told), "{told}: {message}");
        let args = error["error"]["args"].to_string();
        assert!(args.contains(place), "{place}: {args}");
        assert!(
            !message.contains("/packages"),
            "no path of the machine: {message}"
        );
    }
    let cut = json!({"data": {"texts": [long]}, "config": {"truncate": true}});
    let cut = gateway.post(&with, cut.to_string()).expect(200).json();
    assert_eq!(vectors(&cut).len(), 1);
}

#[test]
fn only_services_that_embed_take_texts() {
    let gateway = Setup::new().packages(examples()).start();
    let predict = |service: &str, body: Value| {
        let path = format!("/api/mlpgateway/account/local/model/{service}/predict");
        gateway.post(&path, body.to_string())
    };
    let refused = predict("watercolor", json!({"texts": ["a"]}))
        .expect(400)
        .json();
    let message = refused["error"]["message"].to_string();
    assert!(
        message.contains("this service does not take texts"),
        "{message}"
    );
    // Of several components, the text encoder is selected.
    let answer = predict("twin_view", json!({"texts": ["a dog", "a red house"]})).expect(200);
    let vectors = vectors(&answer.json());
    assert_eq!(vectors.iter().map(Vec::len).collect::<Vec<_>>(), [16, 16]);
    let registry = "/api/mlpcore/providers/xnnpack/models";
    let variables = |model: &str| {
        let model = gateway
            .get(&format!("{registry}/{model}"))
            .expect(200)
            .json();
        model["parameters"]["variables"].clone()
    };
    let of = |variables: &Value, name: &str| {
        let all = variables.as_array().expect("a list").iter();
        all.clone().find(|it| it["name"] == name).cloned()
    };
    let hush = variables("hush_sentence");
    let length = of(&hush, "max_length").expect("it may be set");
    assert_eq!(
        (&length["default"], &length["max"]),
        (&json!(23), &json!(23))
    );
    let pooling = of(&hush, "pooling").expect("it may be set");
    assert!(
        pooling["values"]
            .as_array()
            .expect("names")
            .contains(&json!("mean"))
    );
    assert_eq!(
        of(&hush, "truncate").expect("it may be set")["default"],
        false
    );
    assert!(of(&variables("glimpse"), "truncate").is_none());
}

#[test]
fn a_broken_tokenizer_is_the_services_fault_and_told_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let from = examples().join("hush-sentence");
    let package = directory.path().join("hush-sentence");
    for file in [
        "tokenizer_config.json",
        "mlx/config.json",
        "mlx/hush_sentence_mlx_fp32.onnx",
    ] {
        let to = package.join(file);
        std::fs::create_dir_all(to.parent().expect("it has one")).expect("it is made");
        std::fs::copy(from.join(file), to).expect("it is copied");
    }
    std::fs::write(
        package.join("tokenizer.json"),
        "{\"model\": {\"type\": \"X\"}}",
    )
    .expect("it is written");
    let gateway = Setup::new().packages(directory.path()).start();
    for _ in 0..2 {
        let reply = gateway.post(PREDICT, r#"{"texts": ["a"]}"#);
        let reply = reply.expect_error(400, "NO_ACTIVE_INSTANCES");
        let text = reply.text();
        assert!(
            text.contains("tokenizer") && !text.contains("tokenizer.json"),
            "{text}"
        );
    }
    let told = gateway.whole_log();
    let lines = told.matches("not a valid tokenizer").count();
    assert_eq!(lines, 1, "{told}");
    // Models with token inputs still work.
    let tensors = json!({"inputs": [{"data": [[2, 5, 3]]}]});
    gateway.post(PREDICT, tensors.to_string()).expect(200);
}
