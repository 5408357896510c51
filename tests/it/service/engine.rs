//! Tests of model endpoints: answers, batching, limits, crashes, memory, and cleanup.

mod budget;
mod conversation;
mod crowd;
mod ending;
mod examples;
mod models;
mod sharing;
mod trial;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_serve::account::AccountId;
use pkgtool_serve::service::engine::{Endpoint, Engines};
use pkgtool_serve::service::{CallError, Isolation, ServiceSettings};

use crate::support::environment::EnvironmentPiece;
use models::Model;

const ANN: AccountId = AccountId(1);
const BOB: AccountId = AccountId(2);

/// Maximum duration of any step here.
const LIMIT: Duration = Duration::from_mins(2);

fn engines(budget: u64) -> Arc<Engines> {
    // Without ONNX Runtime, tract answers.
    let program = PathBuf::from(env!("CARGO_BIN_EXE_pkgtool"));
    Engines::new(program, budget, EnvironmentPiece::Ort.path())
}

/// Returns settings with one session, no batching and one thread per run.
fn settings() -> ServiceSettings {
    ServiceSettings {
        batch_max_size: 1,
        threads: 1,
        ..ServiceSettings::default()
    }
}

fn endpoint(model: &Model, settings: &ServiceSettings) -> Arc<Endpoint> {
    engines(8 << 30).endpoint(model.endpoint(), settings)
}

fn floats(shape: &[u64], values: impl IntoIterator<Item = f64>) -> Tensor {
    Tensor::from_f64(DType::Float32, shape.to_vec(), values).expect("it is small")
}

fn values(outputs: &[Tensor]) -> Vec<f64> {
    outputs[0].to_f64().collect()
}

/// Waits until a condition holds, and fails after [`LIMIT`].
async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < LIMIT, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn is_there(process: u32) -> bool {
    PathBuf::from(format!("/proc/{process}")).exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_get_their_own_answers() {
    let model = models::negation();
    for isolation in [Isolation::Process, Isolation::Thread] {
        let endpoint = endpoint(
            &model,
            &ServiceSettings {
                instances: 2,
                isolation,
                ..settings()
            },
        );
        assert_eq!(endpoint.activity().sessions, 0, "nobody has asked yet");
        let requests = (0..64_u32).map(|number| {
            let endpoint = Arc::clone(&endpoint);
            tokio::spawn(async move {
                let caller = AccountId(i64::from(number % 5));
                let number = f64::from(number);
                let input = floats(&[1, 2], [number, 0.5]);
                let outputs = endpoint.run(caller, vec![input], Some(LIMIT)).await;
                assert_eq!(values(&outputs.expect("it runs")), [-number, -0.5]);
            })
        });
        for request in requests.collect::<Vec<_>>() {
            request.await.expect("its own answer");
        }
        let activity = endpoint.activity();
        assert_eq!((activity.waiting, activity.running), (0, 0));
        assert_eq!((activity.runs, activity.crashes), (64, 0));
        assert!((1..=2).contains(&activity.sessions), "{activity:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn warm_loads_and_runs_once() {
    let model = models::negation();
    let endpoint = endpoint(&model, &settings());
    endpoint.warm().await.expect("it runs");
    let activity = endpoint.activity();
    assert_eq!((activity.sessions, activity.runs), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_format_without_an_engine_has_no_instance() {
    let model = models::negation();
    let mut what = model.endpoint();
    what.format = "safetensors";
    let endpoint = engines(1 << 30).endpoint(what, &settings());
    let error = endpoint.warm().await.expect_err("nothing runs it");
    assert!(
        matches!(&error, CallError::NoInstances(reason) if reason.contains("safetensors")),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_cannot_be_loaded_has_no_instance() {
    let model = models::unknown_operator();
    let endpoint = endpoint(&model, &settings());
    let error = endpoint.warm().await.expect_err("nothing runs it");
    assert!(matches!(error, CallError::NoInstances(_)), "{error}");
    let again = endpoint.warm().await.expect_err("nor now");
    assert_eq!(again.to_string(), error.to_string());
    assert_eq!(endpoint.activity().sessions, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_the_answer_of_its_request_only() {
    let model = models::table();
    let endpoint = endpoint(&model, &settings());
    let ask = async |index: f64| {
        let index = Tensor::from_f64(DType::Int64, vec![1], [index]).expect("it is small");
        endpoint.run(ANN, vec![index], Some(LIMIT)).await
    };
    let right = ask(3.0).await.expect("it is in the table");
    assert_eq!(values(&right), [30.0, 31.0]);
    let error = ask(1000.0).await.expect_err("it is not");
    assert!(matches!(error, CallError::Refused(_)), "{error}");
    let right = ask(4.0).await.expect("the session is still there");
    assert_eq!(values(&right), [40.0, 41.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_takes_no_more() {
    let model = models::powers();
    let endpoint = endpoint(
        &model,
        &ServiceSettings {
            queue: 2,
            ..settings()
        },
    );
    let ask = |size: u64| {
        let endpoint = Arc::clone(&endpoint);
        tokio::spawn(async move { endpoint.run(ANN, vec![models::endless(size)], None).await })
    };
    let running = ask(models::ENDLESS);
    eventually("it runs", || endpoint.activity().running == 1).await;
    let waiting = [ask(2), ask(2)];
    eventually("two wait", || endpoint.activity().waiting == 2).await;
    let error = ask(2).await.expect("no panic").expect_err("it is full");
    assert!(
        matches!(error, CallError::QueueFull { limit: 2 }),
        "{error}"
    );
    running.abort();
    for request in waiting {
        let outputs = request.await.expect("no panic").expect("their turn came");
        assert_eq!(outputs[0].shape(), [2, 2]);
    }
}

/// Measures a round trip; run with `cargo test --release -- --ignored --nocapture round_trip`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn round_trip() {
    for isolation in [Isolation::Process, Isolation::Thread] {
        let model = models::negation();
        let endpoint = endpoint(
            &model,
            &ServiceSettings {
                isolation,
                ..settings()
            },
        );
        let input = floats(&[1, 2], [1.0, 2.0]);
        let mut times = Vec::new();
        for _ in 0..5000 {
            let start = Instant::now();
            let outputs = endpoint.run(ANN, vec![input.clone()], Some(LIMIT)).await;
            outputs.expect("it runs");
            times.push(start.elapsed());
        }
        times.sort();
        crate::support::environment::say(&format!(
            "{isolation:?}: median {:?}, 99 % {:?}",
            times[times.len() / 2],
            times[times.len() * 99 / 100]
        ));
    }
}
