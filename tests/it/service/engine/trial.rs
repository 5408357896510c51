//! Tests of failing models: whether the model or the request is at fault, and the answers until a
//! run succeeds.

use std::time::Instant;

use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_serve::service::{CallError, Isolation, ServiceSettings};

use super::models::{self, Model};
use super::{ANN, BOB, LIMIT, endpoint, floats, settings, values};
use crate::support::onnx;

#[track_caller]
fn assert_inactive(error: &CallError) {
    let words = "the model failed on every input that was tried";
    assert!(
        matches!(error, CallError::NoInstances(reason) if reason.starts_with(words)),
        "{error}"
    );
    assert!(!error.to_string().contains("/tmp/"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_fails_whatever_it_is_given_is_inactive() {
    let model = Model::of(&onnx::failing());
    for isolation in [Isolation::Process, Isolation::Thread] {
        let settings = ServiceSettings {
            isolation,
            ..settings()
        };
        let endpoint = endpoint(&model, &settings);
        assert!(endpoint.failure().is_none(), "nobody has asked yet");
        let ask = async || {
            endpoint
                .run(ANN, vec![floats(&[1, 2], [1.0, 2.0])], Some(LIMIT))
                .await
        };
        assert_inactive(&ask().await.expect_err("it fails"));
        assert_inactive(&endpoint.failure().expect("it is known"));
        // During the pause, no further attempt is made.
        let before = Instant::now();
        let mut answered = 0;
        while endpoint.is_pausing() {
            assert_inactive(&ask().await.expect_err("it still fails"));
            answered += 1;
            assert!(before.elapsed() < LIMIT);
        }
        assert!(
            answered > 3,
            "{answered}: a pause is longer than a look at it"
        );
        assert!(endpoint.failure().is_some(), "a pause proves nothing");
        assert_eq!(endpoint.activity().sessions, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn warming_up_tries_a_model() {
    let model = Model::of(&onnx::failing());
    let broken = endpoint(&model, &settings());
    assert_inactive(&broken.warm().await.expect_err("it fails"));
    let model = Model::of(&onnx::of_blocks());
    let blocks = endpoint(&model, &settings());
    blocks.warm().await.expect("it runs with sides of 32");
    assert!(blocks.failure().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_fails_for_some_inputs_stays_active() {
    let model = models::outer_product();
    let endpoint = endpoint(&model, &settings());
    let huge = || {
        vec![
            Tensor::zeros(DType::Float32, vec![1 << 21, 1]).expect("it is small"),
            Tensor::zeros(DType::Float32, vec![1, 1 << 21]).expect("it is small"),
        ]
    };
    let error = endpoint.run(ANN, huge(), Some(LIMIT)).await;
    let error = error.expect_err("17 TB are nowhere");
    assert!(!matches!(error, CallError::NoInstances(_)), "{error}");
    assert!(endpoint.failure().is_none());
    let small = vec![floats(&[1, 1], [2.0]), floats(&[1, 1], [3.0])];
    let right = endpoint.run(BOB, small, Some(LIMIT)).await;
    assert_eq!(values(&right.expect("others are not hurt")), [6.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sides_that_a_model_takes_are_found_once() {
    let model = Model::of(&onnx::of_blocks());
    let endpoint = endpoint(&model, &settings());
    let ask = async |height: u64, width: u64| {
        let picture = Tensor::zeros(DType::Float32, vec![1, 3, height, width]);
        endpoint
            .run(ANN, vec![picture.expect("it is small")], Some(LIMIT))
            .await
    };
    let error = ask(75, 100).await.expect_err("not multiples of 32");
    assert!(matches!(error, CallError::Failed(_)), "{error}");
    assert!(endpoint.failure().is_none(), "other sides run");
    let rule = endpoint.side_rule().await.expect("there is one").clone();
    assert_eq!((rule.step, rule.sides.axes), (32, [2, 3]));
    let runs = endpoint.activity().runs;
    assert_eq!(endpoint.side_rule().await, Some(&rule));
    assert_eq!(endpoint.activity().runs, runs, "it is known");
    ask(64, 96).await.expect("multiples of 32");
}
