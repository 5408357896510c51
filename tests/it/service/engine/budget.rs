//! Tests of the memory budget that all endpoints share: eviction, waiting and rejection.

use std::sync::Arc;

use pkgtool_serve::service::engine::{Endpoint, Engines};
use pkgtool_serve::service::{CallError, Isolation, ServiceSettings};

use super::models::{self, ENDLESS, endless};
use super::{ANN, LIMIT, endpoint, engines, eventually, settings};

/// Estimated memory of a session before it is measured, in bytes.
const ESTIMATE: u64 = 32 << 20;

async fn works(endpoint: &Endpoint) {
    let answer = endpoint.run(ANN, vec![endless(2)], Some(LIMIT)).await;
    assert_eq!(answer.expect("it runs")[0].shape(), [2, 2]);
}

/// Returns three endpoints that each need nearly the whole budget, so only one can have a session.
fn greedy(model: &models::Model) -> (Arc<Engines>, [Arc<Endpoint>; 3]) {
    let engines = engines(10 * ESTIMATE);
    let endpoints = [(); 3].map(|()| {
        let mut what = model.endpoint();
        what.weight_bytes = (9 * ESTIMATE - (4 << 20)) / 13 * 10;
        engines.endpoint(what, &settings())
    });
    (engines, endpoints)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_takes_is_measured() {
    let (engines, model) = (engines(8 << 30), models::powers());
    let endpoint = engines.endpoint(model.endpoint(), &settings());
    assert_eq!(engines.memory(), 0);
    works(&endpoint).await;
    eventually("it is measured", || engines.memory() != ESTIMATE).await;
    assert!(engines.memory() > 1 << 20, "{}", engines.memory());
    endpoint.drain().await;
    assert_eq!(engines.memory(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_recently_used_session_goes() {
    // The memory of a thread cannot be measured, so the estimate remains.
    let settings = ServiceSettings {
        isolation: Isolation::Thread,
        ..settings()
    };
    let (engines, model) = (engines(ESTIMATE * 5 / 2), models::powers());
    let endpoints = [(); 3].map(|()| engines.endpoint(model.endpoint(), &settings));
    let sessions = || [0, 1, 2].map(|place: usize| endpoints[place].activity().sessions);
    let [a, b, c] = &endpoints;
    for endpoint in [a, b, a, a] {
        works(endpoint).await;
    }
    assert_eq!(sessions(), [1, 1, 0]);
    for endpoint in [c, a, c] {
        works(endpoint).await;
        assert_eq!(sessions(), [1, 0, 1]);
    }
    for endpoint in [b, c, b] {
        works(endpoint).await;
        assert_eq!(sessions(), [0, 1, 1]);
    }
    assert_eq!(engines.memory(), 2 * ESTIMATE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_session_is_waited_for() {
    let model = models::powers();
    let (engines, [a, b, _]) = greedy(&model);
    works(&a).await;
    let running = tokio::spawn({
        let a = Arc::clone(&a);
        async move { a.run(ANN, vec![endless(ENDLESS)], None).await }
    });
    eventually("it runs", || a.activity().running == 1).await;
    let waiting = tokio::spawn({
        let b = Arc::clone(&b);
        async move { works(&b).await }
    });
    eventually("it waits", || b.activity().waiting == 1).await;
    assert_eq!((a.activity().sessions, b.activity().sessions), (1, 0));
    running.abort();
    waiting.await.expect("there is room now");
    assert_eq!(b.activity().sessions, 1);
    assert!(engines.memory() <= 10 * ESTIMATE);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_room_can_give_up() {
    let model = models::powers();
    let (_, [a, b, c]) = greedy(&model);
    works(&a).await;
    let running = tokio::spawn({
        let a = Arc::clone(&a);
        async move { a.run(ANN, vec![endless(ENDLESS)], None).await }
    });
    eventually("it runs", || a.activity().running == 1).await;
    let after = std::time::Duration::from_millis(100);
    for endpoint in [&b, &c] {
        let answer = endpoint.run(ANN, vec![endless(2)], Some(after)).await;
        assert!(matches!(answer, Err(CallError::Timeout { .. })));
    }
    // Endpoints whose threads wait for memory end like all others.
    b.drain().await;
    drop(c);
    running.abort();
    works(&a).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_beyond_the_budget_is_refused() {
    let (engines, model) = (engines(1000), models::powers());
    let endpoint = engines.endpoint(model.endpoint(), &settings());
    let error = endpoint.warm().await.expect_err("it is too large");
    let text = error.to_string();
    assert!(matches!(error, CallError::NoInstances(_)), "{text}");
    assert!(
        text.contains(&ESTIMATE.to_string()) && text.contains("1000"),
        "{text}"
    );
    assert!(endpoint.processes().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_cannot_load_gives_its_room_back() {
    let model = models::unknown_operator();
    let engines = engines(8 << 30);
    let broken = engines.endpoint(model.endpoint(), &settings());
    broken.warm().await.expect_err("nothing runs it");
    assert_eq!(engines.memory(), 0);
    let model = models::powers();
    let whole = endpoint(&model, &settings());
    works(&whole).await;
}
