//! Stress test of endpoints: little memory, batched runs, cancelled requests and killed processes
//! at once. Every remaining request gets the right answer, and none waits for ever.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use pkgtool_serve::account::AccountId;
use pkgtool_serve::service::{CallError, ServiceSettings};

use super::{LIMIT, engines, eventually, floats, models, settings, values};

#[tokio::test(flavor = "multi_thread")]
async fn whoever_stays_is_answered() {
    let model = models::negation();
    // The budget has room for two of six possible sessions.
    let engines = engines(80 << 20);
    let settings = ServiceSettings {
        instances: 2,
        batch_max_size: 4,
        queue: 1000,
        ..settings()
    };
    let endpoints = [(); 3].map(|()| engines.endpoint(model.endpoint(), &settings));
    let requests = (0..300_u32).map(|number| {
        let endpoint = Arc::clone(&endpoints[number as usize % 3]);
        let request = tokio::spawn(async move {
            let caller = AccountId(i64::from(number % 7));
            let input = floats(&[1, 2], [f64::from(number), 1.0]);
            let timeout = match number % 11 {
                5 => Duration::from_millis(u64::from(number % 50)),
                _ => LIMIT,
            };
            let answer = endpoint.run(caller, vec![input], Some(timeout)).await;
            match answer {
                Ok(outputs) => assert_eq!(values(&outputs), [-f64::from(number), -1.0]),
                Err(CallError::Timeout { after }) => assert!(after < LIMIT, "it never came"),
                Err(CallError::Crashed(_)) => return true,
                Err(error) => panic!("{number}: {error}"),
            }
            false
        });
        (number, request)
    });
    let (mut kills, mut lost) = (0, 0);
    for (number, request) in requests.collect::<Vec<_>>() {
        if number % 13 == 3 {
            request.abort();
        }
        if number % 60 == 0 {
            for process in endpoints.iter().flat_map(|endpoint| endpoint.processes()) {
                // The process may have ended by itself meanwhile.
                let killed = Command::new("kill")
                    .args(["-9", &process.to_string()])
                    .output();
                killed.expect("kill is there");
                kills += 1;
            }
        }
        match request.await {
            Ok(crashed) => lost += u32::from(crashed),
            Err(error) => assert!(error.is_cancelled(), "{error}"),
        }
    }
    assert!(kills > 0 && lost <= kills, "{lost} requests, {kills} kills");
    for endpoint in &endpoints {
        let idle = || {
            let activity = endpoint.activity();
            (activity.waiting, activity.running) == (0, 0)
        };
        eventually("nothing waits", idle).await;
        endpoint.drain().await;
        assert!(endpoint.processes().is_empty());
    }
    assert_eq!(engines.memory(), 0);
}
