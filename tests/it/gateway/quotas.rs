//! Tests of quotas: the stored bytes and the model run time of accounts.

use serde_json::json;

use super::{three, with_models};
use crate::support::gateway::Setup;
use crate::support::http::Upstream;

const DATASETS: &str = "/api/mlpgate/account/local/dataset";
const USAGE: &str = "/api/mlpgateway/account/local/usage";

fn dataset(bytes: usize) -> String {
    let mut text = "text,label\n".to_owned();
    while text.len() < bytes {
        text.push_str("some words of a kind,one\nother words of another,two\n");
    }
    text
}

#[test]
fn datasets_and_tasks_share_a_limit_of_bytes() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings("[limits]\nstored_bytes = 100000")
        .proxy("hold", &upstream.url("/hold"))
        .start();
    let raw = format!("{DATASETS}/raw");
    let first = gateway.post(&raw, dataset(60_000)).expect(200).json();
    let usage = gateway.get(USAGE).expect(200).json();
    let stored = &usage["stored"];
    assert_eq!(stored["datasets"], first["size"]);
    assert_eq!(
        (&stored["total"], &stored["limit"]),
        (&first["size"], &json!(100_000))
    );
    let refused = gateway.post(&raw, dataset(60_000));
    let refused = refused.expect_error(429, "STORED_BYTES_LIMIT_EXCEEDED");
    assert_eq!(refused.json()["error"]["args"]["limit"], 100_000);
    assert!(refused.text().contains("limits.stored_bytes"));
    // A body far over the quota is rejected before it is read.
    let refused = gateway.post(&raw, dataset(400_000));
    refused.expect_error(429, "STORED_BYTES_LIMIT_EXCEEDED");
    let create = "/api/mlpgateway/account/local/model/hold/async/predict";
    let body = format!("{{{}}}", " ".repeat(50_000));
    let refused = gateway.post(create, &body);
    refused.expect_error(429, "STORED_BYTES_LIMIT_EXCEEDED");
    let number = &first["id"]["datasetId"];
    gateway
        .send("DELETE", &format!("{DATASETS}/{number}"), "")
        .expect(200);
    gateway.post(create, &body).expect(200);
    let usage = gateway.get(USAGE).expect(200).json();
    assert_eq!(usage["stored"]["datasets"], 0);
    assert!(usage["stored"]["tasks"].as_u64() >= Some(50_000));
    upstream.release();
}

#[test]
fn cpu_time_is_counted_and_limited() {
    let (gateway, _tree) = with_models(Setup::new().settings("[limits]\ncpu_seconds_per_day = 3"));
    gateway.post("/p/local/negate", three([1.0; 3])).expect(200);
    let usage = gateway.get(USAGE).expect(200).json();
    let seconds = usage["cpuSeconds"].as_f64().expect("a number");
    assert!(seconds > 0.0 && seconds < 3.0, "{usage}");
    assert_eq!(usage["cpu"].as_array().map(Vec::len), Some(1));
    let page = gateway.metrics();
    let line = "pkgtool_account_cpu_seconds_total{account=\"local\"} ";
    let counted = page.lines().find_map(|it| it.strip_prefix(line));
    assert!(counted.is_some_and(|it| it != "0"), "{page}");
    assert!(page.contains("pkgtool_account_stored_bytes{account=\"local\",kind=\"packages\"} 0"));
    // Usage from before a restart counts.
    let gateway = gateway.stop_and_change(|data| {
        let database = rusqlite::Connection::open(data.join("pkgtool.db")).expect("it opens");
        let sql = "UPDATE cpu_usage SET micros = 3500000";
        assert_eq!(database.execute(sql, []).expect("it is changed"), 1);
    });
    for path in [
        "/p/local/negate",
        "/api/mlpgateway/account/local/model/negate/async/predict",
    ] {
        let mut refused = gateway.post(path, three([1.0; 3]));
        gateway.until(|| {
            // The server reads the usage a moment after its start.
            refused = gateway.post(path, three([1.0; 3]));
            refused.status != 200
        });
        let refused = refused.expect_error(429, "CPU_SECONDS_LIMIT_EXCEEDED");
        assert!(refused.header("retry-after").is_some());
        assert!(refused.text().contains("limits.cpu_seconds_per_day"));
    }
}
