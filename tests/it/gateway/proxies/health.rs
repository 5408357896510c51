//! Tests of health checks of an upstream's addresses.

use super::{UNAVAILABLE, ask, info, proxy, until_up};
use crate::support::backend::Backend;
use crate::support::gateway::Setup;

#[test]
fn what_is_unhealthy_is_not_asked() {
    let [first, second] = [Backend::start(), Backend::start()];
    let addresses = [first.url("/predict"), second.url("/predict")];
    let settings = proxy(
        "two",
        &addresses,
        "health = \"/up?full=1\"\nhealth_every_s = 0.1\nheaders = { X-Org = \"acme\" }",
    );
    let gateway = Setup::new().settings(&settings).start();
    let is_up = |backend: &Backend, is_up: bool| {
        until_up(&gateway, "two", &backend.url("/predict"), is_up);
    };
    gateway.until(|| {
        first.take_seen().iter().any(|seen| {
            seen.method == "GET" && seen.path == "/up?full=1" && seen.header("x-org") == ["acme"]
        })
    });
    for _ in 0..3 {
        first.is_healthy(503);
        is_up(&first, false);
        first.take_seen();
        second.take_seen();
        for _ in 0..6 {
            assert_eq!(ask(&gateway, "two"), 200);
        }
        assert_eq!((first.posts(), second.posts()), (0, 6));
        // Both addresses fail: the service is inactive, though it would answer requests.
        second.is_healthy(404);
        is_up(&second, false);
        let reply = gateway
            .post("/p/local/two", "{}")
            .expect_error(503, UNAVAILABLE);
        assert_eq!(reply.header("retry-after"), Some("1"));
        assert_eq!(info(&gateway, "two")["isActive"], false);
        first.is_healthy(200);
        second.is_healthy(204);
        is_up(&first, true);
        is_up(&second, true);
        assert_eq!(info(&gateway, "two")["isActive"], true);
        assert_eq!(ask(&gateway, "two"), 200);
    }
    let line = gateway.line(|line| line["message"] == "an upstream address is unhealthy");
    assert!(
        line["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("answered")),
        "{line}"
    );
    assert_eq!(line["service"], "local/two");
}
