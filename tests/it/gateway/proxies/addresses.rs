//! Tests of upstreams with several addresses: how the gateway selects an address, falls back to
//! another one, and reports that all fail.

use std::time::{Duration, Instant};

use super::{UNAVAILABLE, ask, info, proxy, until_up};
use crate::support::backend::{Backend, Does};
use crate::support::gateway::Setup;

#[test]
fn requests_go_to_all_addresses_that_answer() {
    let [mut first, second] = [Backend::start(), Backend::start()];
    let addresses = [first.url("/a"), second.url("/b")];
    let settings = proxy("two", &addresses, "health_every_s = 0.1");
    let gateway = Setup::new().settings(&settings).start();
    for _ in 0..3 {
        for _ in 0..10 {
            assert_eq!(ask(&gateway, "two"), 200);
        }
        assert_eq!((first.posts(), second.posts()), (5, 5));
        // One address stops: callers do not notice, and soon the gateway stops using it.
        first.stop();
        for _ in 0..20 {
            assert_eq!(ask(&gateway, "two"), 200);
        }
        assert!(info(&gateway, "two")["isActive"].as_bool().expect("a flag"));
        until_up(&gateway, "two", &addresses[0], false);
        // It returns, and the gateway uses it again without a trial request.
        first.restart();
        until_up(&gateway, "two", &addresses[0], true);
        first.take_seen();
        second.take_seen();
    }
}

#[test]
fn a_busy_address_gets_fewer_requests() {
    let [busy, idle] = [Backend::start(), Backend::start()];
    let settings = proxy("two", &[busy.url("/"), idle.url("/")], "");
    let gateway = Setup::new().settings(&settings).start();
    busy.does(Does::Holds);
    let mut task = gateway.create("two", "{}");
    gateway.until(|| busy.posts() + idle.posts() == 1);
    if busy.posts() == 0 {
        gateway.wait_for(&task, "COMPLETED");
        task = gateway.create("two", "{}");
        gateway.until(|| busy.posts() == 1);
    }
    idle.take_seen();
    for _ in 0..10 {
        assert_eq!(ask(&gateway, "two"), 200);
    }
    assert_eq!((busy.posts(), idle.posts()), (1, 10));
    let calls = format!(
        "pkgtool_upstream_calls{{service=\"local/two\",address=\"{}\"}} 1",
        busy.url("/")
    );
    assert!(gateway.metrics().contains(&calls), "{}", gateway.metrics());
    busy.release();
    gateway.wait_for(&task, "COMPLETED");
}

#[test]
fn only_what_was_not_taken_is_sent_again() {
    let [first, second] = [Backend::start(), Backend::start()];
    let settings = proxy("two", &[first.url("/"), second.url("/")], "");
    let gateway = Setup::new().settings(&settings).start();
    // Both addresses are used again after all earlier failures.
    let both = |does: Does| {
        first.answers(200);
        second.answers(200);
        first.take_seen();
        second.take_seen();
        gateway.until(|| ask(&gateway, "two") == 200 && first.posts() > 0 && second.posts() > 0);
        first.does(does.clone());
        second.does(does);
        first.take_seen();
        second.take_seen();
    };
    let answer = |status: u16| Does::Answers(status, format!("{{\"says\":{status}}}"));
    for _ in 0..3 {
        // One address rejects the request: the gateway asks the other.
        for status in [503, 429] {
            both(answer(200));
            first.does(answer(status));
            for _ in 0..4 {
                assert_eq!(ask(&gateway, "two"), 200);
            }
            assert_eq!((first.posts(), second.posts()), (2, 4));
        }
        // Both reject it: the last answer passes to the client.
        for status in [503, 429] {
            both(answer(status));
            let reply = gateway.post("/p/local/two", "{}").expect(status);
            assert_eq!(reply.text(), format!("{{\"says\":{status}}}"));
            assert_eq!((first.posts(), second.posts()), (1, 1));
        }
        // The upstream may have accepted the request, so the gateway does not send it again.
        for (does, status) in [
            (answer(500), 500),
            (answer(502), 502),
            (answer(504), 504),
            (answer(400), 400),
            (Does::Drops, 502),
        ] {
            both(does);
            assert_eq!(ask(&gateway, "two"), status);
            assert_eq!(first.posts() + second.posts(), 1);
        }
    }
}

#[test]
fn an_address_that_fails_is_left_alone_but_not_the_last_one() {
    let [bad, good] = [Backend::start(), Backend::start()];
    let settings = proxy(
        "two",
        &[bad.url("/"), good.url("/")],
        "health_every_s = 3600",
    );
    let gateway = Setup::new().settings(&settings).start();
    bad.answers(502);
    let mut failed = 0;
    for _ in 0..30 {
        failed += usize::from(ask(&gateway, "two") != 200);
    }
    assert!((3..=5).contains(&failed), "{failed} of 30");
    // The remaining address fails too: every caller gets its answer, and the gateway rejects none
    // itself.
    good.answers(502);
    for _ in 0..10 {
        let reply = gateway.post("/p/local/two", "{}").expect(502);
        assert_eq!(reply.text(), "{\"status\":502}");
    }
    good.answers(200);
    gateway.until(|| ask(&gateway, "two") == 200);
}

#[test]
fn without_any_address_callers_are_told_at_once_when_to_come_again() {
    let mut backends = [Backend::start(), Backend::start()];
    let addresses = backends.each_ref().map(|backend| backend.url("/"));
    let settings = [
        "[admin]\nlisten = \"127.0.0.1:0\"\n".to_owned(),
        proxy("two", &addresses, "health_every_s = 0.3"),
        proxy(
            "well",
            &[addresses[0].replace("127.0.0.1", "localhost")],
            "",
        ),
    ]
    .concat();
    let mut gateway = Setup::new().settings(&settings).start();
    for round in 0..3 {
        assert_eq!(ask(&gateway, "two"), 200);
        backends.iter_mut().for_each(Backend::stop);
        let mut refused = None;
        gateway.until(|| {
            let began = Instant::now();
            let reply = gateway.post("/p/local/two", "{}");
            assert!(began.elapsed() < Duration::from_secs(5), "it hung");
            assert!([502, 503].contains(&reply.status), "{}", reply.text());
            refused = Some(reply).filter(|reply| reply.status == 503);
            refused.is_some()
        });
        let refused = refused.expect("it was waited for");
        let after = refused.header("retry-after").map(str::parse::<u64>);
        assert!(matches!(after, Some(Ok(1..=30))), "{after:?}");
        let refused = refused.expect_error(503, UNAVAILABLE);
        assert!(!refused.text().contains("127.0.0.1"), "{}", refused.text());
        let info = info(&gateway, "two");
        assert_eq!(info["isActive"], false);
        let reason = info["inactiveReason"].as_str().expect("a reason");
        assert!(
            reason.starts_with("its 2 addresses do not answer"),
            "{reason}"
        );
        let model = gateway
            .get("/api/mlpcore/providers/two/models/two")
            .expect(200)
            .json();
        assert_eq!(model["isActive"], false);
        assert_eq!(model["inactiveReason"], reason);
        let listed = gateway.ask(&["services"]).expect_code(0).stdout;
        assert!(listed.contains("its 2 addresses do not answer"), "{listed}");
        assert!(gateway.get("/readyz").expect(200).json()["inactive"].as_u64() >= Some(1));
        // Chat clients get the same error, not a report of a missing model.
        let chat = r#"{"model":"local/two","messages":[{"role":"user","content":"x"}]}"#;
        let headers = [("authorization", gateway.key.as_str())];
        let path = "/api/adapters/compat-direct/chat/completions";
        let asked =
            crate::support::http::request(gateway.address, "POST", path, &headers, chat.as_bytes());
        assert!(
            asked.status == 503 || asked.status == 502,
            "{}",
            asked.text()
        );
        for address in &addresses {
            until_up(&gateway, "two", address, false);
        }
        // A task fails the same way instead of waiting for ever.
        let task = gateway.create("two", "{}");
        gateway.wait_for(&task, "CANCELED");
        if round == 1 {
            // A restart clears the failures, and the server detects them anew.
            gateway = gateway.kill_and_restart();
        }
        backends.iter_mut().for_each(Backend::restart);
        // The server detects this by itself, without a request.
        gateway.until(|| self::info(&gateway, "two")["isActive"] == true);
    }
    let log = gateway.whole_log();
    assert!(log.contains("answers again"), "{log}");
}

#[test]
fn addresses_are_named_to_operators_and_owners_only() {
    let backend = Backend::start();
    let settings = format!(
        "{}[services.one]\npublic = true\n",
        proxy("one", &[backend.url("/")], "")
    );
    let gateway = Setup::new().settings(&settings).start();
    assert_eq!(ask(&gateway, "one"), 200);
    gateway.account("other", 1000);
    let key = gateway.new_key("other", "k", "predict,read");
    let theirs = gateway
        .send_with(&key, "GET", "/metrics", "")
        .expect(200)
        .text();
    let nobodys = gateway.bare("GET", "/metrics", &[]).expect(200).text();
    for page in [theirs, nobodys] {
        assert!(!page.contains(&backend.place()), "{page}");
    }
    until_up(&gateway, "one", &backend.url("/"), true);
}
