//! Tests of batched runs: requests share a run only if that changes no answer.

use std::sync::Arc;

use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_serve::account::AccountId;
use pkgtool_serve::service::engine::Endpoint;
use pkgtool_serve::service::{CallError, ServiceSettings};

use super::models::{self, Model};
use super::{ANN, BOB, LIMIT, endpoint, floats, settings, values};

/// Returns settings whose batches fill up before their delay ends, even on a slow machine.
fn in_batches(size: usize) -> ServiceSettings {
    ServiceSettings {
        batch_max_size: size,
        batch_max_wait_ms: 100_000,
        ..settings()
    }
}

/// Sends all requests at once, alternating between several accounts.
async fn ask_all(endpoint: &Arc<Endpoint>, inputs: &[Tensor]) -> Vec<Result<Tensor, CallError>> {
    let requests: Vec<_> = inputs
        .iter()
        .zip(0..)
        .map(|(input, number)| {
            let (endpoint, input) = (Arc::clone(endpoint), input.clone());
            let caller = AccountId(number % 3);
            tokio::spawn(async move { endpoint.run(caller, vec![input], Some(LIMIT)).await })
        })
        .collect();
    let mut answers = Vec::new();
    for request in requests {
        let answer = request.await.expect("no panic");
        answers.push(answer.map(|mut outputs| outputs.remove(0)));
    }
    answers
}

/// Returns inputs that all differ in rows and values.
fn inputs(count: u32) -> Vec<Tensor> {
    (1..=count)
        .map(|number| {
            let rows = u64::from(number % 4 + 1);
            let all = (0..2 * rows).map(|place| {
                let place = u32::try_from(place).expect("it is small");
                f64::from(number * 10 + place) / 8.0
            });
            floats(&[rows, 2], all)
        })
        .collect()
}

/// Returns an endpoint that has already selected its engine by one single run.
async fn chosen(model: &Model, settings: &ServiceSettings) -> Arc<Endpoint> {
    let endpoint = endpoint(model, settings);
    endpoint.warm().await.expect("it runs");
    assert_eq!(endpoint.activity().runs, 1);
    endpoint
}

async fn alone(model: &Model, inputs: &[Tensor]) -> Vec<Vec<f64>> {
    let endpoint = endpoint(model, &settings());
    let answers = ask_all(&endpoint, inputs).await.into_iter();
    let all = answers.map(|answer| answer.expect("it runs").to_f64().collect());
    let all: Vec<Vec<f64>> = all.collect();
    assert_eq!(endpoint.activity().runs, inputs.len() as u64);
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_share_runs_and_get_their_own_rows() {
    let model = models::negation();
    let inputs = inputs(16);
    let endpoint = chosen(&model, &in_batches(8)).await;
    let expected = alone(&model, &inputs).await;
    let answers = ask_all(&endpoint, &inputs).await;
    for ((answer, expected), input) in answers.into_iter().zip(expected).zip(&inputs) {
        let answer = answer.expect("it runs");
        assert_eq!(answer.shape(), input.shape());
        assert_eq!(answer.to_f64().collect::<Vec<f64>>(), expected);
    }
    assert_eq!(endpoint.activity().runs, 1 + 2, "16 requests in two runs");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_dimension_that_is_no_batch_is_found_out() {
    for model in [models::running_sum(), models::softmax()] {
        let inputs = inputs(8);
        let endpoint = chosen(&model, &in_batches(8)).await;
        let expected = alone(&model, &inputs).await;
        let answers = ask_all(&endpoint, &inputs).await;
        for (answer, expected) in answers.into_iter().zip(expected) {
            let found: Vec<f64> = answer.expect("it runs").to_f64().collect();
            assert_eq!(found, expected);
        }
        assert_eq!(endpoint.activity().runs, 1 + 8, "each by itself");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_breaks_a_batch_breaks_it_for_itself_only() {
    let model = models::table();
    let endpoint = chosen(&model, &in_batches(4)).await;
    let index = |index: f64| Tensor::from_f64(DType::Int64, vec![1], [index]);
    let inputs = [1.0, 2.0, 1000.0, 3.0].map(|it| index(it).expect("it is small"));
    let answers = ask_all(&endpoint, &inputs).await;
    for (place, answer) in answers.into_iter().enumerate() {
        match (place, answer) {
            (2, answer) => assert!(
                matches!(answer, Err(CallError::Refused(_))),
                "{answer:?} for an index out of range"
            ),
            (_, answer) => {
                let first = inputs[place].to_f64().next().expect("an index") * 10.0;
                assert_eq!(
                    values(&[answer.expect("it is in range")]),
                    [first, first + 1.0]
                );
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_shapes_wait_for_another_run() {
    // Both dimensions are open here, so requests may differ in the second.
    let model = models::open_negation();
    let endpoint = chosen(&model, &in_batches(2)).await;
    let shapes: [&[u64]; 4] = [&[1, 2], &[1, 3], &[2, 2], &[2, 3]];
    let inputs = shapes.map(|shape| {
        let size: u64 = shape.iter().product();
        floats(
            shape,
            (0..size).map(|it| f64::from(u32::try_from(it).expect("small"))),
        )
    });
    for (answer, input) in ask_all(&endpoint, &inputs).await.into_iter().zip(&inputs) {
        let expected: Vec<f64> = input.to_f64().map(|value| -value).collect();
        assert_eq!(values(&[answer.expect("it runs")]), expected);
    }
    let runs = endpoint.activity().runs;
    assert_eq!(runs, 1 + 2, "each width in one run");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_does_not_wait_for_ever() {
    let settings = ServiceSettings {
        batch_max_wait_ms: 20,
        ..in_batches(8)
    };
    let model = models::negation();
    let endpoint = chosen(&model, &settings).await;
    for caller in [ANN, BOB] {
        let answer = endpoint.run(caller, inputs(1), Some(LIMIT)).await;
        assert_eq!(answer.expect("it runs")[0].shape(), [2, 2]);
    }
    assert_eq!(endpoint.activity().runs, 3);
}
