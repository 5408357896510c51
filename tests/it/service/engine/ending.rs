//! Tests of cancelled requests, of sessions that crash or hang, and of endpoints that shut down.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pkgtool_serve::service::engine::{Endpoint, Engines};
use pkgtool_serve::service::{CallError, Isolation, ServiceSettings};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::models::{self, ENDLESS, endless};
use super::{ANN, BOB, LIMIT, endpoint, eventually, floats, is_there, settings, values};
use crate::service::engine::engines;

/// Edge of a matrix that finishes long before a session could be ended.
const SHORT: u64 = 96;

type Answer = Result<Vec<pkgtool_engine::tensor::Tensor>, CallError>;

fn ask(endpoint: &Arc<Endpoint>, size: u64) -> JoinHandle<Answer> {
    let endpoint = Arc::clone(endpoint);
    tokio::spawn(async move { endpoint.run(ANN, vec![endless(size)], None).await })
}

async fn works(endpoint: &Endpoint) {
    let answer = endpoint.run(BOB, vec![endless(2)], Some(LIMIT)).await;
    assert_eq!(answer.expect("it runs")[0].shape(), [2, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_takes_too_long_is_stopped() {
    let model = models::powers();
    let endpoint = endpoint(&model, &settings());
    works(&endpoint).await;
    let process = endpoint.processes()[0];
    let after = Duration::from_millis(200);
    let answer = endpoint.run(ANN, vec![endless(ENDLESS)], Some(after)).await;
    let error = answer.expect_err("it is slow");
    assert!(
        matches!(error, CallError::Timeout { after: found } if found == after),
        "{error}"
    );
    eventually("its process is gone", || !is_there(process)).await;
    works(&endpoint).await;
    assert_ne!(endpoint.processes(), [process]);
    assert_eq!(endpoint.activity().crashes, 0, "we did that ourselves");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_very_first_run_is_stopped_too() {
    let model = models::powers();
    let endpoint = endpoint(&model, &settings());
    let running = ask(&endpoint, ENDLESS);
    eventually("it runs", || endpoint.activity().running == 1).await;
    let process = endpoint.processes()[0];
    running.abort();
    eventually("its process is gone", || !is_there(process)).await;
    works(&endpoint).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_run_that_nobody_waits_for_costs_no_session() {
    let model = models::powers();
    let endpoint = endpoint(&model, &settings());
    works(&endpoint).await;
    let process = endpoint.processes()[0];
    let (mut left, mut rounds) = (0, 0);
    // On a busy machine a run may end before it is observed.
    while rounds < 20 || (left == 0 && rounds < 500) {
        rounds += 1;
        let running = ask(&endpoint, SHORT);
        while endpoint.activity().running == 0 && !running.is_finished() {
            tokio::task::yield_now().await;
        }
        left += u32::from(!running.is_finished());
        running.abort();
        // The next caller does not wait for a new process.
        works(&endpoint).await;
    }
    assert!(left > 0, "no run was left while it ran");
    assert_eq!(endpoint.processes(), [process]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_too_long_leaves_the_queue() {
    let model = models::powers();
    let endpoint = endpoint(&model, &settings());
    let running = ask(&endpoint, ENDLESS);
    eventually("it runs", || endpoint.activity().running == 1).await;
    let process = endpoint.processes();
    let after = Some(Duration::from_millis(50));
    let error = endpoint.run(BOB, vec![endless(2)], after).await;
    assert!(matches!(error, Err(CallError::Timeout { .. })));
    let dropped = ask(&endpoint, 2);
    eventually("it waits", || endpoint.activity().waiting == 1).await;
    dropped.abort();
    eventually("nobody waits", || endpoint.activity().waiting == 0).await;
    assert_eq!(endpoint.processes(), process, "the run goes on");
    assert_eq!(endpoint.activity().running, 1);
    running.abort();
    eventually("its process is gone", || !is_there(process[0])).await;
    assert_eq!(
        endpoint.activity().runs,
        0,
        "a cancelled request costs nothing"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_process_takes_one_request_with_it() {
    let model = models::powers();
    let endpoint = endpoint(&model, &settings());
    works(&endpoint).await;
    let running = ask(&endpoint, ENDLESS);
    eventually("it runs", || endpoint.activity().running == 1).await;
    let waiting = ask(&endpoint, 2);
    eventually("another waits", || endpoint.activity().waiting == 1).await;
    let process = endpoint.processes()[0].to_string();
    let killed = Command::new("kill").args(["-9", &process]).status();
    assert!(killed.expect("kill is there").success());
    let error = running.await.expect("no panic").expect_err("it died");
    assert!(
        matches!(&error, CallError::Crashed(reason) if reason.contains("signal: 9")),
        "{error}"
    );
    let answer = waiting.await.expect("no panic");
    assert_eq!(answer.expect("another process answers")[0].shape(), [2, 2]);
    assert_eq!(endpoint.activity().crashes, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_dies_at_once_is_tried_again_after_a_pause() {
    let directory = TempDir::new().expect("a directory");
    let (program, marks) = (
        directory.path().join("worker.sh"),
        directory.path().join("marks"),
    );
    let script = format!("#!/bin/sh\necho started >> {}\nexit 3\n", marks.display());
    fs::write(&program, script).expect("a script is written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it may run");
    let model = models::powers();
    let engines = Engines::new(program, 8 << 30, None);
    let endpoint = engines.endpoint(model.endpoint(), &settings());
    let start = Instant::now();
    for _ in 0..4 {
        let error = endpoint.run(ANN, vec![endless(2)], Some(LIMIT)).await;
        let error = error.expect_err("it dies");
        assert!(
            matches!(&error, CallError::Crashed(reason) if reason.contains("exit status: 3")),
            "{error}"
        );
    }
    // The retries pause for 100, 200 and 400 ms.
    assert!(start.elapsed() >= Duration::from_millis(700));
    let after = Some(Duration::from_millis(100));
    let error = endpoint.run(ANN, vec![endless(2)], after).await;
    assert!(
        matches!(error, Err(CallError::Timeout { .. })),
        "a pause of 800 ms"
    );
    let attempts = fs::read_to_string(&marks).expect("it ran");
    assert_eq!(attempts.lines().count(), 4);
    assert_eq!(engines.memory(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn greed_is_the_failure_of_its_request_only() {
    let limited = ServiceSettings {
        memory_limit: 3 << 30,
        ..settings()
    };
    let model = models::outer_product();
    let endpoint = endpoint(&model, &limited);
    let ask = async |size: u64| {
        let values = || std::iter::repeat(1.0);
        let inputs = vec![floats(&[size, 1], values()), floats(&[1, size], values())];
        endpoint.run(ANN, inputs, Some(LIMIT)).await
    };
    ask(2).await.expect("it is small");
    // The run needs 10 GB, which may be free but exceeds this service's limit.
    let error = ask(50_000).await.expect_err("it is large");
    assert!(
        matches!(error, CallError::Crashed(_) | CallError::Failed(_)),
        "{error}"
    );
    let answer = ask(2).await.expect("it is small");
    assert_eq!(values(&answer), [1.0; 4]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_endpoint_answers_what_it_has() {
    let model = models::powers();
    let endpoint = endpoint(&model, &settings());
    works(&endpoint).await;
    let process = endpoint.processes()[0];
    let running = ask(&endpoint, ENDLESS);
    eventually("it runs", || endpoint.activity().running == 1).await;
    let waiting: Vec<_> = (0..4).map(|_| ask(&endpoint, 2)).collect();
    eventually("four wait", || endpoint.activity().waiting == 4).await;
    let drained = tokio::spawn({
        let endpoint = Arc::clone(&endpoint);
        async move { endpoint.drain().await }
    });
    // The last request before the endpoint closes may still be accepted; it is then answered.
    loop {
        match endpoint
            .run(BOB, vec![endless(2)], Some(Duration::ZERO))
            .await
        {
            Err(CallError::Stopped) => break,
            Err(CallError::Timeout { .. }) => tokio::task::yield_now().await,
            other => panic!("{other:?} while it is drained"),
        }
    }
    assert!(!drained.is_finished(), "five requests are not answered");
    running.abort();
    for request in waiting {
        let answer = request.await.expect("no panic");
        answer.expect("the request was accepted");
    }
    drained.await.expect("no panic");
    assert!(endpoint.processes().is_empty() && !is_there(process));
    let activity = endpoint.activity();
    assert_eq!((activity.sessions, activity.waiting), (0, 0));
    let error = endpoint.warm().await.expect_err("it has ended");
    assert!(matches!(error, CallError::Stopped), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_behind() {
    let engines = engines(8 << 30);
    let settings = ServiceSettings {
        instances: 2,
        ..settings()
    };
    let model = models::powers();
    let endpoint = engines.endpoint(model.endpoint(), &settings);
    works(&endpoint).await;
    let running = [ask(&endpoint, ENDLESS), ask(&endpoint, ENDLESS)];
    eventually("both run", || endpoint.activity().running == 2).await;
    let processes = endpoint.processes();
    assert_eq!(processes.len(), 2);
    assert!(engines.memory() > 0);
    for request in running {
        request.abort();
        // An aborted task releases the endpoint.
        assert!(request.await.expect_err("it was aborted").is_cancelled());
    }
    assert_eq!(Arc::strong_count(&endpoint), 1);
    drop(endpoint);
    for process in processes {
        assert!(!is_there(process), "{process} is left behind");
    }
    assert_eq!(engines.memory(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_ends_while_it_loads() {
    let model = models::powers();
    let endpoint = endpoint(&model, &settings());
    let loading = ask(&endpoint, 2);
    eventually("a process starts", || !endpoint.processes().is_empty()).await;
    let processes = endpoint.processes();
    loading.abort();
    let _ = loading.await;
    assert_eq!(Arc::strong_count(&endpoint), 1);
    drop(endpoint);
    assert!(processes.into_iter().all(|process| !is_there(process)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_answers_like_a_process() {
    let model = models::powers();
    let input = floats(&[2, 2], [0.5, 0.25, 0.75, 0.5]);
    let mut answers = Vec::new();
    for isolation in [Isolation::Process, Isolation::Thread] {
        let settings = ServiceSettings {
            isolation,
            ..settings()
        };
        let endpoint = endpoint(&model, &settings);
        let answer = endpoint.run(ANN, vec![input.clone()], Some(LIMIT)).await;
        answers.push(values(&answer.expect("it runs")));
        endpoint.drain().await;
        assert_eq!(endpoint.activity().sessions, 0);
    }
    assert_eq!(answers[0], answers[1]);
}
