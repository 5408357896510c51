//! The memory of all endpoints together: who goes, who waits, who is refused.

use std::sync::Arc;

use pkgtool::service::CallError;
use pkgtool::service::engine::{Endpoint, Engines};

use super::models::{self, ENDLESS, endless};
use super::{ANN, LIMIT, endpoint, engines, eventually, settings};

/// What a session takes before it was measured.
const ESTIMATE: u64 = 32 << 20;

async fn works(endpoint: &Endpoint) {
    let answer = endpoint.run(ANN, vec![endless(2)], Some(LIMIT)).await;
    assert_eq!(answer.expect("it runs")[0].shape(), [2, 2]);
}

/// What a session really takes.
async fn measured() -> u64 {
    let (engines, model) = (engines(8 << 30), models::powers());
    let endpoint = engines.endpoint(model.endpoint(), &settings());
    works(&endpoint).await;
    eventually("it is measured", || engines.memory() != ESTIMATE).await;
    engines.memory()
}

fn three(engines: &Arc<Engines>, model: &models::Model) -> [Arc<Endpoint>; 3] {
    [(); 3].map(|()| engines.endpoint(model.endpoint(), &settings()))
}

fn sessions(endpoints: &[Arc<Endpoint>; 3]) -> [usize; 3] {
    [0, 1, 2].map(|place| endpoints[place].activity().sessions)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_least_recently_used_session_goes() {
    let each = measured().await;
    assert!(each > ESTIMATE / 4, "{each} bytes are too few to be true");
    let (engines, model) = (engines(each * 5 / 2), models::powers());
    let endpoints = three(&engines, &model);
    let [a, b, c] = &endpoints;
    for endpoint in [a, b, a] {
        works(endpoint).await;
    }
    assert_eq!(sessions(&endpoints), [1, 1, 0]);
    works(c).await;
    eventually("there is room for two", || {
        sessions(&endpoints) == [1, 0, 1]
    })
    .await;
    works(b).await;
    eventually("there is room for two", || {
        sessions(&endpoints) == [0, 1, 1]
    })
    .await;
    eventually("the budget is kept", || engines.memory() <= each * 5 / 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_session_is_waited_for() {
    let each = measured().await;
    let (engines, model) = (engines(each + each / 4), models::powers());
    let [a, b, _] = three(&engines, &model);
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
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_room_can_give_up() {
    let each = measured().await;
    let (engines, model) = (engines(each + each / 4), models::powers());
    let [a, b, c] = three(&engines, &model);
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
    // Endpoints whose threads wait for room end like any other.
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
