//! Tests of conversations: consecutive steps of one session with kept state, and the ways in which
//! they end.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use pkgtool_engine::RunStart;
use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_serve::account::AccountId;
use pkgtool_serve::service::engine::{Endpoint, EndpointConversation, EndpointModel};
use pkgtool_serve::service::{CallError, Isolation, ServiceSettings};
use tokio::task::JoinHandle;

use super::models::{self, ENDLESS, endless, of_file};
use super::{ANN, BOB, LIMIT, endpoint, engines, eventually, floats, is_there, settings};
use crate::support::run::pkgtool;

const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/programs");

/// Returns a program that counts its runs and sums its inputs.
fn counter() -> EndpointModel {
    of_file(PathBuf::from(PROGRAMS).join("counter.pte"))
}

fn counting(settings: &ServiceSettings) -> Arc<Endpoint> {
    engines(8 << 30).endpoint(counter(), settings)
}

fn ones() -> Vec<Tensor> {
    vec![floats(&[3], [1.0; 3])]
}

/// Returns the program's number of runs.
fn count(outputs: &[Tensor]) -> f64 {
    outputs[1].to_f64().next().expect("one number")
}

async fn step(conversation: &mut EndpointConversation) -> f64 {
    let outputs = conversation.run(ones(), Some(LIMIT)).await;
    count(&outputs.expect("it runs"))
}

/// Sends a single request outside of a conversation.
fn alone(endpoint: &Arc<Endpoint>, caller: AccountId) -> JoinHandle<f64> {
    let endpoint = Arc::clone(endpoint);
    tokio::spawn(async move {
        let outputs = endpoint.run(caller, ones(), Some(LIMIT)).await;
        count(&outputs.expect("it runs"))
    })
}

#[track_caller]
fn assert_over(outcome: Result<Vec<Tensor>, CallError>, words: &str) {
    let error = outcome.expect_err("it is over");
    assert!(
        matches!(&error, CallError::Over(reason) if reason.contains(words)),
        "{error}"
    );
}

fn kill(process: u32) {
    let killed = Command::new("kill")
        .args(["-9", &process.to_string()])
        .status();
    assert!(killed.expect("kill is there").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_give_what_run_steps_gives() {
    let arguments = ["run", "counter.pte", "--steps", "3", "--input", "ones"];
    let ran = pkgtool(arguments.into_iter().chain(["--json"]));
    let document = ran.within(PROGRAMS).run().expect_code(0).json();
    let expected = document["steps"].as_array().expect("steps");
    assert_eq!(expected.len(), 3);
    for isolation in [Isolation::Process, Isolation::Thread] {
        let endpoint = counting(&ServiceSettings {
            isolation,
            ..settings()
        });
        // The third round uses a session that others have used before.
        for round in 0..3 {
            let mut conversation = endpoint.lease(ANN, LIMIT);
            for expected in expected {
                let outputs = conversation.run(ones(), Some(LIMIT)).await;
                for (place, found) in outputs.expect("it runs").iter().enumerate() {
                    let data = expected["outputs"][place]["data"].as_array();
                    let data = data.expect("a small output").iter();
                    let pairs = data.zip(found.to_f64());
                    for (expected, found) in pairs {
                        let expected = expected.as_f64().expect("a number");
                        let difference = (expected - found).abs();
                        assert!(difference < 1e-6, "{isolation:?} {round}: {found}");
                    }
                }
            }
            drop(conversation);
            let between = alone(&endpoint, BOB).await.expect("no panic");
            assert!((between - 1.0).abs() < 1e-9, "{isolation:?}: {between}");
        }
        assert_eq!(endpoint.activity().sessions, 1);
        assert_eq!(endpoint.activity().running, 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_wait_for_the_only_session() {
    let endpoint = counting(&settings());
    let mut conversation = endpoint.lease(ANN, LIMIT);
    assert_eq!(endpoint.activity().sessions, 0, "nothing is taken yet");
    assert!((step(&mut conversation).await - 1.0).abs() < 1e-9);
    assert_eq!(endpoint.activity().running, 1, "it counts as running");
    let other = alone(&endpoint, BOB);
    let mut second = endpoint.lease(BOB, LIMIT);
    let second =
        tokio::spawn(async move { vec![step(&mut second).await, step(&mut second).await] });
    eventually("both wait", || endpoint.activity().waiting == 2).await;
    assert!((step(&mut conversation).await - 2.0).abs() < 1e-9);
    assert!((step(&mut conversation).await - 3.0).abs() < 1e-9);
    assert_eq!(endpoint.activity().waiting, 2);
    assert!(!other.is_finished() && !second.is_finished());
    drop(conversation);
    assert!((other.await.expect("no panic") - 1.0).abs() < 1e-9);
    assert_eq!(second.await.expect("no panic"), [1.0, 2.0]);
    eventually("nothing runs", || endpoint.activity().running == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn others_use_the_other_session() {
    let endpoint = counting(&ServiceSettings {
        instances: 2,
        ..settings()
    });
    let mut conversation = endpoint.lease(ANN, LIMIT);
    for expected in [1.0, 2.0, 3.0] {
        assert!((step(&mut conversation).await - expected).abs() < 1e-9);
        let other = alone(&endpoint, BOB).await.expect("no panic");
        assert!((other - 1.0).abs() < 1e-9);
    }
    let mut second = endpoint.lease(BOB, LIMIT);
    for expected in [1.0, 2.0] {
        assert!((step(&mut second).await - expected).abs() < 1e-9);
        assert!((step(&mut conversation).await - expected - 3.0).abs() < 1e-9);
    }
    assert_eq!(endpoint.activity().sessions, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abandoned_conversation_gives_its_session_back() {
    let endpoint = counting(&settings());
    let mut conversation = endpoint.lease(ANN, Duration::from_millis(300));
    assert!((step(&mut conversation).await - 1.0).abs() < 1e-9);
    let process = endpoint.processes();
    // The conversation still exists, but its session has been reset.
    let other = alone(&endpoint, BOB).await.expect("no panic");
    assert!((other - 1.0).abs() < 1e-9);
    assert_eq!(endpoint.processes(), process, "nothing had to end");
    assert_over(conversation.run(ones(), Some(LIMIT)).await, "within 0.3 s");
    assert_over(conversation.run(ones(), Some(LIMIT)).await, "within 0.3 s");
    let mut next = endpoint.lease(ANN, LIMIT);
    assert!((step(&mut next).await - 1.0).abs() < 1e-9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_ends_with_its_process() {
    let endpoint = counting(&settings());
    let mut conversation = endpoint.lease(ANN, LIMIT);
    assert!((step(&mut conversation).await - 1.0).abs() < 1e-9);
    kill(endpoint.processes()[0]);
    let error = conversation.run(ones(), Some(LIMIT)).await;
    assert!(matches!(error, Err(CallError::Crashed(_))), "{error:?}");
    assert_over(conversation.run(ones(), Some(LIMIT)).await, "failed");
    let mut next = endpoint.lease(ANN, LIMIT);
    assert!((step(&mut next).await - 1.0).abs() < 1e-9);
    assert_eq!(endpoint.activity().crashes, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_dies_in_a_step_ends_it() {
    let model = models::powers();
    let endpoint = endpoint(&model, &settings());
    let mut conversation = endpoint.lease(ANN, LIMIT);
    let first = conversation.run(vec![endless(2)], Some(LIMIT)).await;
    first.expect("it is small");
    let running = tokio::spawn(async move {
        let outcome = conversation.run(vec![endless(ENDLESS)], None).await;
        (outcome, conversation)
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    kill(endpoint.processes()[0]);
    let (outcome, mut conversation) = running.await.expect("no panic");
    assert!(
        matches!(&outcome, Err(CallError::Crashed(reason)) if reason.contains("signal: 9")),
        "{outcome:?}"
    );
    assert_over(conversation.run(vec![endless(2)], None).await, "failed");
    let next = endpoint.run(BOB, vec![endless(2)], Some(LIMIT)).await;
    next.expect("another process answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_takes_too_long_or_is_dropped_ends_it() {
    let model = models::powers();
    let endpoint = endpoint(&model, &settings());
    for dropped in [false, true, false] {
        let mut conversation = endpoint.lease(ANN, LIMIT);
        let first = conversation.run(vec![endless(2)], Some(LIMIT)).await;
        first.expect("it is small");
        let process = endpoint.processes()[0];
        let short = Duration::from_millis(500);
        let long = conversation.run(vec![endless(ENDLESS)], (!dropped).then_some(short));
        let outcome = tokio::time::timeout(if dropped { short } else { LIMIT }, long).await;
        match outcome {
            Err(_) => assert!(dropped),
            Ok(outcome) => assert!(
                matches!(outcome, Err(CallError::Timeout { after }) if after == short),
                "{outcome:?}"
            ),
        }
        eventually("its process is gone", || !is_there(process)).await;
        assert_over(conversation.run(vec![endless(2)], None).await, "cancelled");
    }
    assert_eq!(endpoint.activity().crashes, 0, "we did that ourselves");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_ends_it() {
    let model = models::table();
    let endpoint = endpoint(&model, &settings());
    let index = |index: f64| {
        let index = Tensor::from_f64(DType::Int64, vec![1], [index]);
        vec![index.expect("it is small")]
    };
    let mut conversation = endpoint.lease(ANN, LIMIT);
    let right = conversation.run(index(3.0), Some(LIMIT)).await;
    right.expect("it is in the table");
    let process = endpoint.processes();
    let error = conversation.run(index(1000.0), Some(LIMIT)).await;
    assert!(matches!(error, Err(CallError::Refused(_))), "{error:?}");
    assert_over(conversation.run(index(3.0), Some(LIMIT)).await, "failed");
    let other = endpoint.run(BOB, index(4.0), Some(LIMIT)).await;
    other.expect("the session is free");
    assert_eq!(endpoint.processes(), process);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_endpoint_lets_a_conversation_end() {
    let endpoint = counting(&settings());
    let mut conversation = endpoint.lease(ANN, LIMIT);
    assert!((step(&mut conversation).await - 1.0).abs() < 1e-9);
    let waiting = alone(&endpoint, BOB);
    eventually("it waits", || endpoint.activity().waiting == 1).await;
    let process = endpoint.processes()[0];
    let drained = tokio::spawn({
        let endpoint = Arc::clone(&endpoint);
        async move { endpoint.drain().await }
    });
    // The last request before the endpoint closes may still be accepted.
    let short = Some(Duration::ZERO);
    while !matches!(
        endpoint.lease(BOB, LIMIT).run(ones(), short).await,
        Err(CallError::Stopped)
    ) {
        tokio::task::yield_now().await;
    }
    assert!((step(&mut conversation).await - 2.0).abs() < 1e-9);
    assert!((step(&mut conversation).await - 3.0).abs() < 1e-9);
    assert!(!drained.is_finished() && !waiting.is_finished());
    drop(conversation);
    assert!((waiting.await.expect("no panic") - 1.0).abs() < 1e-9);
    drained.await.expect("no panic");
    assert!(!is_there(process));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_ends_with_its_endpoint() {
    let engines = engines(8 << 30);
    let endpoint = engines.endpoint(counter(), &settings());
    let mut conversation = endpoint.lease(ANN, LIMIT);
    assert!((step(&mut conversation).await - 1.0).abs() < 1e-9);
    let process = endpoint.processes()[0];
    drop(endpoint);
    assert!(!is_there(process), "it is left behind");
    let error = conversation.run(ones(), Some(LIMIT)).await;
    assert!(matches!(error, Err(CallError::Stopped)), "{error:?}");
    assert_eq!(engines.memory(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kept_session_does_not_go_for_another_model() {
    // The budget has room for one session.
    let engines = engines(40 << 20);
    let endpoint = engines.endpoint(counter(), &settings());
    let other = engines.endpoint(counter(), &settings());
    let mut conversation = endpoint.lease(ANN, LIMIT);
    assert!((step(&mut conversation).await - 1.0).abs() < 1e-9);
    let waiting = alone(&other, BOB);
    // The pause exceeds the time after which busy sessions are asked to yield.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!((step(&mut conversation).await - 2.0).abs() < 1e-9);
    assert!(!waiting.is_finished());
    drop(conversation);
    assert!((waiting.await.expect("no panic") - 1.0).abs() < 1e-9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resting_conversation_goes_on_unless_others_need_its_session() {
    let endpoint = counting(&settings());
    let mut conversation = endpoint.lease(ANN, Duration::from_millis(200));
    assert!((step(&mut conversation).await - 1.0).abs() < 1e-9);
    conversation.rest(LIMIT);
    assert_eq!(endpoint.activity().running, 0, "it counts as idle");
    // The pause exceeds the idle timeout between two steps.
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!((step(&mut conversation).await - 2.0).abs() < 1e-9);
    assert_eq!(endpoint.activity().running, 1);
    conversation.rest(LIMIT);
    let other = alone(&endpoint, BOB).await.expect("no panic");
    assert!((other - 1.0).abs() < 1e-9, "it begins anew");
    assert_over(conversation.run(ones(), Some(LIMIT)).await, "was needed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resting_conversation_keeps_its_session_while_another_is_free() {
    let endpoint = counting(&ServiceSettings {
        instances: 2,
        ..settings()
    });
    let mut conversation = endpoint.lease(ANN, LIMIT);
    assert!((step(&mut conversation).await - 1.0).abs() < 1e-9);
    conversation.rest(LIMIT);
    for _ in 0..3 {
        let other = alone(&endpoint, BOB).await.expect("no panic");
        assert!((other - 1.0).abs() < 1e-9);
    }
    assert!((step(&mut conversation).await - 2.0).abs() < 1e-9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resting_conversation_gives_its_memory_to_another_model() {
    // The budget has room for one session.
    let engines = engines(40 << 20);
    let endpoint = engines.endpoint(counter(), &settings());
    let other = engines.endpoint(counter(), &settings());
    let mut conversation = endpoint.lease(ANN, LIMIT);
    assert!((step(&mut conversation).await - 1.0).abs() < 1e-9);
    conversation.rest(LIMIT);
    let waiting = alone(&other, BOB).await.expect("no panic");
    assert!((waiting - 1.0).abs() < 1e-9);
    assert_over(conversation.run(ones(), Some(LIMIT)).await, "was needed");
    let mut anew = endpoint.lease(ANN, LIMIT);
    assert!((step(&mut anew).await - 1.0).abs() < 1e-9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resting_conversation_does_not_hold_a_drained_endpoint_up() {
    let endpoint = counting(&settings());
    let mut conversation = endpoint.lease(ANN, LIMIT);
    assert!((step(&mut conversation).await - 1.0).abs() < 1e-9);
    conversation.rest(LIMIT);
    tokio::time::timeout(LIMIT, endpoint.drain())
        .await
        .expect("it ends");
    let error = conversation.run(ones(), Some(LIMIT)).await;
    assert!(matches!(error, Err(CallError::Stopped)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_carry_what_the_model_gives_and_can_go_back() {
    let model = models::decoder();
    for isolation in [Isolation::Process, Isolation::Thread] {
        let settings = ServiceSettings {
            isolation,
            ..settings()
        };
        let endpoint = engines(8 << 30).endpoint(model.clone(), &settings);
        endpoint
            .warm()
            .await
            .expect("it runs without carried tensors");
        let mut conversation = endpoint.lease(ANN, LIMIT);
        let mut logits = Vec::new();
        for (begins, token, held) in [
            (RunStart::Anew, 5.0, 1),
            (RunStart::AsLeft, 7.0, 2),
            (RunStart::AsLeft, 9.0, 3),
            (RunStart::Cut(1), 7.0, 2),
            (RunStart::Anew, 5.0, 1),
        ] {
            let integer = |shape: &[u64], values: Vec<f64>| {
                Tensor::from_f64(DType::Int64, shape.to_vec(), values).expect("it is small")
            };
            let inputs = vec![
                integer(&[1, 1], vec![token]),
                integer(&[1, held], vec![1.0; 3]),
                integer(
                    &[1, 1],
                    vec![f64::from(u8::try_from(held).expect("few")) - 1.0],
                ),
            ];
            let outputs = conversation.step(begins, inputs, Some(LIMIT)).await;
            logits.push(outputs.expect("it runs"));
        }
        assert_eq!(logits[0].len(), 1, "carried tensors are not returned");
        assert_eq!(logits[3], logits[1], "{isolation:?}");
        assert_eq!(logits[4], logits[0], "{isolation:?}");
        assert_ne!(logits[1], logits[0]);
    }
}
