//! Tests of the metrics page: its two formats, checked by Prometheus' own tool, and its values.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::json;

use super::{three, with_models};
use crate::support::environment::EnvironmentPiece;
use crate::support::gateway::{Gateway, Setup};
use crate::support::http::{self, Upstream};

/// The `Accept` header that asks for the `OpenMetrics` format.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0";

/// Starts a server and sends it requests of all kinds; returns it with the values that keep it
/// running.
fn busy() -> (Gateway, crate::support::tree::Tree, Upstream) {
    let upstream = Upstream::start();
    let setup = Setup::new()
        .settings("[admin]\nlisten = \"127.0.0.1:0\"\n[services.negate]\npublic = true")
        .proxy("echo", &upstream.url("/echo"));
    let (gateway, tree) = with_models(setup);
    gateway.account("quoted", 100);
    let other = gateway.new_key("quoted", "k", "predict,read");
    for _ in 0..3 {
        gateway
            .post("/p/local/negate", three([1.0, 2.0, 3.0]))
            .expect(200);
        gateway
            .send_with(&other, "POST", "/p/local/negate", three([1.0; 3]))
            .expect(200);
        gateway.post("/p/local/negate", "{").expect(400);
        gateway.post("/p/local/echo", "{}").expect(200);
        let task = gateway.create("negate", three([0.0; 3]));
        gateway.wait_for(&task, "COMPLETED");
    }
    gateway.bare("GET", "/nowhere", &[]).expect(404);
    (gateway, tree, upstream)
}

/// Returns the value of the series with this name and labels.
#[track_caller]
fn value(page: &str, series: &str) -> f64 {
    let mut lines = page.lines();
    let found = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let found = found.unwrap_or_else(|| panic!("no {series} in\n{page}"));
    found.parse().expect("a number")
}

#[test]
fn prometheus_own_tool_finds_nothing_to_say() {
    let test = "prometheus_own_tool_finds_nothing_to_say";
    let Some(promtool) = EnvironmentPiece::Promtool.or_skip(test) else {
        return;
    };
    let (gateway, ..) = busy();
    let mut child = Command::new(promtool)
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool runs");
    let mut input = child.stdin.take().expect("it is piped");
    let page = gateway.metrics();
    input.write_all(page.as_bytes()).expect("it reads all");
    drop(input);
    let said = child.wait_with_output().expect("it ends");
    let words = [said.stdout, said.stderr].concat();
    let words = String::from_utf8_lossy(&words);
    assert!(
        said.status.success() && words.trim().is_empty(),
        "{words}\n{page}"
    );
}

/// A sample line of a page, parsed by the grammar of the formats.
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

#[track_caller]
fn sample(line: &str) -> Sample {
    let is_name = |text: &str| {
        let mut bytes = text.bytes();
        let first = bytes
            .next()
            .is_some_and(|it| it.is_ascii_alphabetic() || it == b'_');
        first && bytes.all(|it| it.is_ascii_alphanumeric() || it == b'_')
    };
    let end = line.find(['{', ' ']).expect("a name has an end");
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            let (label, after) = rest.split_once("=\"").expect("a label has a value");
            assert!(is_name(label), "{line}");
            let mut value = String::new();
            let mut characters = after.char_indices();
            let end = loop {
                match characters.next().expect("a value ends") {
                    (at, '"') => break at,
                    (_, '\\') => match characters.next().expect("something is escaped").1 {
                        'n' => value.push('\n'),
                        other @ ('\\' | '"') => value.push(other),
                        other => panic!("`\\{other}` in {line}"),
                    },
                    (_, other) => value.push(other),
                }
            };
            labels.push((label.to_owned(), value));
            rest = &after[end + 1..];
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').expect("labels end");
    }
    let value = rest.strip_prefix(' ').expect("one space before a value");
    Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().expect("a number"),
    }
}

/// Checks a page against its format and returns its series without their values.
#[track_caller]
fn check(page: &str, is_open: bool) -> BTreeSet<String> {
    assert!(page.ends_with('\n'));
    assert_eq!(page.ends_with("# EOF\n"), is_open);
    let mut seen = BTreeSet::new();
    let mut families = BTreeSet::new();
    let (mut family, mut kind, mut last) = (String::new(), String::new(), None);
    for line in page.lines().filter(|line| *line != "# EOF") {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').expect("a help has words");
            assert!(
                !help.is_empty() && families.insert(name.to_owned()),
                "{line}"
            );
            name.clone_into(&mut family);
            continue;
        }
        if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, of) = typed.split_once(' ').expect("a type");
            assert_eq!(name, family, "the type stands with the help");
            let known: &[&str] = if is_open {
                &["counter", "gauge", "histogram", "info"]
            } else {
                &["counter", "gauge", "histogram"]
            };
            assert!(known.contains(&of), "{line}");
            of.clone_into(&mut kind);
            last = None;
            continue;
        }
        assert!(!line.starts_with('#'), "{line}");
        let found = sample(line);
        let suffix = found
            .name
            .strip_prefix(&family)
            .expect("it is of its family");
        let suffixes: &[&str] = match (kind.as_str(), is_open) {
            ("counter", true) => &["_total"],
            ("info", _) => &["_info"],
            ("histogram", _) => &["_bucket", "_sum", "_count"],
            _ => &[""],
        };
        assert!(suffixes.contains(&suffix), "{line}");
        if kind == "counter" {
            assert!(found.name.ends_with("_total"), "{line}");
        }
        if kind == "histogram" {
            let bound = found.labels.iter().find(|(name, _)| name == "le");
            assert_eq!(bound.is_some(), suffix == "_bucket", "{line}");
            last = match (bound, last) {
                (Some((_, bound)), Some((before, count))) => {
                    let bound: f64 = bound.parse().expect("a bound");
                    // A new series begins with its smallest bound.
                    assert!(bound > before && found.value >= count || before.is_infinite());
                    Some((bound, found.value))
                }
                (Some((_, bound)), None) => Some((bound.parse().expect("a bound"), found.value)),
                (None, last) => {
                    let (bound, count) = last.expect("buckets come first");
                    assert!(bound.is_infinite(), "{line}");
                    assert!(
                        suffix != "_count" || (count - found.value).abs() < 0.5,
                        "{line}"
                    );
                    last
                }
            };
        }
        let series = format!("{}{:?}", found.name, found.labels);
        assert!(seen.insert(series), "twice: {line}");
    }
    seen
}

#[test]
fn both_formats_are_kept_to_and_say_the_same() {
    let (gateway, ..) = busy();
    let ask = |accept: &str| {
        let headers = [("Accept", accept)];
        let reply = http::request(gateway.operators(), "GET", "/metrics", &headers, b"");
        let reply = reply.expect(200);
        let media = reply
            .header("content-type")
            .expect("a media type")
            .to_owned();
        (media, reply.text())
    };
    // The very first request adds a series of its own.
    gateway.metrics();
    for _ in 0..3 {
        let (media, text) = ask("text/plain");
        assert_eq!(media, "text/plain; version=0.0.4; charset=utf-8");
        let (other, open) = ask(OPENMETRICS);
        assert_eq!(
            other,
            "application/openmetrics-text; version=1.0.0; charset=utf-8"
        );
        assert_eq!(check(&text, false), check(&open, true));
    }
}

#[test]
fn requests_are_told_by_service_account_and_outcome() {
    let (gateway, ..) = busy();
    let page = gateway.metrics();
    let count = |service: &str, account: &str, operation: &str, outcome: &str| {
        value(
            &page,
            &format!(
                "pkgtool_service_requests_total{{service=\"local/{service}\",account=\"{account}\",\
             operation=\"{operation}\",outcome=\"{outcome}\"}}"
            ),
        )
    };
    for (service, account, operation, outcome) in [
        ("negate", "local", "predict", "done"),
        ("negate", "local", "predict", "refused"),
        ("negate", "local", "create", "done"),
        ("negate", "local", "task", "done"),
        ("negate", "quoted", "predict", "done"),
        ("echo", "local", "predict", "done"),
    ] {
        let found = count(service, account, operation, outcome);
        assert!(
            (found - 3.0).abs() < 0.5,
            "{service} {account} {operation}: {found}"
        );
    }
    assert!(
        !page.contains("service=\"local/relu\",account"),
        "nobody asked it"
    );
}

#[test]
fn what_a_service_did_is_measured() {
    let (gateway, ..) = busy();
    let page = gateway.metrics();
    let negate = "{service=\"local/negate\"}";
    // Nine requests ran: three of each account, and three tasks.
    for (name, count) in [
        ("pkgtool_predict_seconds_count", 9.0),
        ("pkgtool_task_wait_seconds_count", 3.0),
        ("pkgtool_task_run_seconds_count", 3.0),
        ("pkgtool_queue_wait_seconds_count", 9.0),
        ("pkgtool_model_seconds_count", 9.0),
        ("pkgtool_batch_size_sum", 9.0),
        ("pkgtool_worker_starts_total", 1.0),
        ("pkgtool_worker_restarts_total", 0.0),
        ("pkgtool_worker_deaths_total", 0.0),
    ] {
        let found = value(&page, &format!("{name}{negate}"));
        assert!((found - count).abs() < 0.5, "{name}: {found}");
    }
    let session = "{service=\"local/negate\",session=\"1\"}";
    for name in [
        "pkgtool_session_memory_bytes",
        "pkgtool_session_resident_bytes",
    ] {
        let bytes = value(&page, &format!("{name}{session}"));
        assert!(bytes > 1e6, "{name}: {bytes}");
    }
    assert!(value(&page, "pkgtool_sessions") > 0.5);
    assert!(!page.contains("pkgtool_model_seconds_count{service=\"local/echo\"}"));
    // The bounds exceed the timeout of a predict, which is a minute.
    for bound in ["60.0", "120.0", "300.0", "+Inf"] {
        let bucket =
            format!("pkgtool_predict_seconds_bucket{{service=\"local/negate\",le=\"{bound}\"}}");
        assert!((value(&page, &bucket) - 9.0).abs() < 0.5);
    }
}

#[test]
fn the_server_itself_is_measured() {
    let (gateway, ..) = busy();
    let page = gateway.metrics();
    for name in [
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_start_time_seconds",
        "process_open_fds",
        "process_max_fds",
        "process_threads",
        "pkgtool_store_bytes{part=\"database\"}",
        "pkgtool_disk_free_bytes",
        "pkgtool_disk_size_bytes",
        "pkgtool_session_budget_bytes",
        "pkgtool_connections_total",
    ] {
        assert!(value(&page, name) > 0.0, "{name}");
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let age = now.expect("a clock").as_secs_f64() - value(&page, "process_start_time_seconds");
    assert!((-2.0..600.0).contains(&age), "{age} s old");
    let version = env!("CARGO_PKG_VERSION");
    assert!(page.contains(&format!("pkgtool_build_info{{version=\"{version}\"")));
}

#[test]
fn open_connections_are_counted_while_they_are() {
    let gateway = Setup::new().start();
    let open = || value(&gateway.metrics(), "pkgtool_connections_open");
    // The connection of this request is open; those of earlier requests may be closing.
    gateway.until(|| (open() - 1.0).abs() < 0.5);
    for _ in 0..3 {
        let held: Vec<_> = (0..5).map(|_| http::connect(gateway.address)).collect();
        gateway.until(|| (open() - 6.0).abs() < 0.5);
        drop(held);
        gateway.until(|| (open() - 1.0).abs() < 0.5);
    }
}

#[test]
fn beyond_the_bound_services_and_accounts_are_together() {
    let upstream = Upstream::start();
    let gateway = Setup::new()
        .settings(
            "[admin]\nlisten = \"127.0.0.1:0\"\n[metrics]\nservices = 2\naccounts = 1\n\
             [defaults]\npublic = true",
        )
        .proxy("a", &upstream.url("/echo"))
        .proxy("b", &upstream.url("/echo"))
        .proxy("c", &upstream.url("/echo"))
        .proxy("d", &upstream.url("/echo"))
        .start();
    gateway.post("/p/local/a", "{}").expect(200);
    for name in ["x", "y"] {
        gateway.account(name, 100);
        let key = gateway.new_key(name, "k", "predict");
        for service in ["a", "b", "c", "d"] {
            let path = format!("/p/local/{service}");
            gateway.send_with(&key, "POST", &path, "{}").expect(200);
        }
    }
    let page = gateway.metrics();
    let mut labels = BTreeSet::new();
    for line in page.lines() {
        if line.starts_with("pkgtool_service_requests_total") {
            let found = sample(line);
            labels.insert((found.labels[0].1.clone(), found.labels[1].1.clone()));
        }
    }
    let own: Vec<_> = labels
        .iter()
        .filter(|(service, _)| service != "other")
        .collect();
    assert_eq!(
        own.len(),
        3,
        "two services, one with two accounts: {labels:?}"
    );
    assert!(labels.contains(&("other".to_owned(), "other".to_owned())));
    assert!(
        labels
            .iter()
            .all(|(_, account)| account == "local" || account == "other")
    );
}

#[test]
fn a_key_sees_its_own_account_and_the_services_that_it_may_use() {
    let upstream = Upstream::start();
    // This includes the loopback address, since a proxy in front of the server connects from there.
    let gateway = Setup::new()
        .settings("[services.open]\npublic = true")
        .proxy("open", &upstream.url("/echo"))
        .proxy("hidden", &upstream.url("/echo"))
        .start();
    gateway.account("other", 100);
    let other = gateway.new_key("other", "k", "predict,read");
    for service in ["open", "hidden"] {
        gateway
            .post(&format!("/p/local/{service}"), "{}")
            .expect(200);
    }
    gateway
        .send_with(&other, "POST", "/p/local/open", "{}")
        .expect(200);
    let page = |key: &str| {
        let page = gateway
            .send_with(key, "GET", "/metrics", "")
            .expect(200)
            .text();
        let named = page
            .lines()
            .filter(|line| line.starts_with("pkgtool_service_requests_total"));
        named.map(str::to_owned).collect::<Vec<_>>()
    };
    let strangers = gateway.bare("GET", "/metrics", &[]).expect(200).text();
    assert!(!strangers.contains("service=") && !strangers.contains("account="));
    assert_eq!(page("pk_wrong"), Vec::<String>::new());
    let theirs = page(&other);
    assert_eq!(theirs.len(), 1, "{theirs:?}");
    assert!(theirs[0].contains("service=\"local/open\",account=\"other\""));
    let own = page(&gateway.key);
    assert_eq!(own.len(), 2, "{own:?}");
    assert!(own.iter().all(|line| line.contains("account=\"local\"")));
}

#[test]
fn strangers_learn_no_names() {
    let upstream = Upstream::start();
    let start = |settings: &str| {
        let setup = Setup::new().for_anybody().settings(settings);
        setup.proxy("hidden", &upstream.url("/echo")).start()
    };
    let gateway = start("");
    gateway.post("/p/local/hidden", "{}").expect(200);
    let page = gateway.bare("GET", "/metrics", &[]).expect(200).text();
    assert!(page.contains("pkgtool_services 1\n"), "{page}");
    assert!(
        !page.contains("hidden") && !page.contains("account=\""),
        "{page}"
    );
    check(&page, false);
    let gateway = start("[admin]\nlisten = \"127.0.0.1:0\"");
    gateway.post("/p/local/hidden", "{}").expect(200);
    let page = http::request(gateway.operators(), "GET", "/metrics", &[], b"");
    assert!(page.expect(200).text().contains("service=\"local/hidden\""));
}

#[test]
fn a_task_that_was_canceled_while_it_ran_is_counted() {
    let upstream = Upstream::start();
    let gateway = Setup::new().proxy("hold", &upstream.url("/hold")).start();
    for round in 1..=3 {
        let task = gateway.create("hold", "{}");
        gateway.until(|| upstream.seen() == round);
        let path = format!("{}/cancel", crate::support::gateway::task_path(&task));
        gateway.post(&path, "").expect(200);
        let series = format!("operation=\"task\",outcome=\"abandoned\"}} {round}\n");
        gateway.until(|| gateway.metrics().contains(&series));
    }
    upstream.release();
}

/// Returns the child processes of a process, as Linux lists them.
#[cfg(target_os = "linux")]
fn children(of: u32) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").expect("it lists").flatten() {
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let parent = stat.rsplit(')').next().unwrap_or_default();
        let parent = parent.split_whitespace().nth(1);
        if parent == Some(of.to_string().as_str()) {
            found.push(number);
        }
    }
    found
}

#[cfg(target_os = "linux")]
#[test]
fn a_worker_that_died_and_was_replaced_is_counted() {
    let (gateway, _tree) = with_models(Setup::new());
    let body = json!({"inputs": [{"data": [1, 2, 3]}]}).to_string();
    gateway.post("/p/local/negate", &body).expect(200);
    for round in 1..=3_u32 {
        let workers = children(gateway.process());
        assert_eq!(workers.len(), 1, "one service was asked");
        let killed = Command::new("kill")
            .args(["-KILL", &workers[0].to_string()])
            .status();
        assert!(killed.expect("kill runs").success());
        // The request that finds the worker dead gets an error; the next one gets a new worker.
        gateway.until(|| gateway.post("/p/local/negate", &body).status == 200);
        let page = gateway.metrics();
        let negate = "{service=\"local/negate\"}";
        for (name, count) in [
            ("pkgtool_worker_starts_total", round + 1),
            ("pkgtool_worker_restarts_total", round),
            ("pkgtool_worker_deaths_total", round),
        ] {
            let found = value(&page, &format!("{name}{negate}"));
            assert!((found - f64::from(count)).abs() < 0.5, "{name}: {found}");
        }
        assert!(page.contains("operation=\"predict\",outcome=\"failed\"}"));
    }
}

#[test]
fn the_readme_has_every_metric_and_no_other() {
    let (gateway, ..) = busy();
    gateway.signal("-HUP");
    gateway.line(|line| line["message"] == "reloaded settings and keys");
    let page = gateway.metrics();
    let families = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let families: BTreeSet<&str> = families.filter_map(|line| line.split(' ').next()).collect();
    let readme = include_str!("../../../docs/serve/metrics.md");
    let rows = readme.lines().filter(|line| line.starts_with("| `p"));
    let cells = rows.filter_map(|row| row.split('|').nth(1));
    let told = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let told: BTreeSet<&str> = told
        .filter(|name| name.starts_with("pkgtool_") || name.starts_with("process_"))
        .collect();
    assert_eq!(told, families);
}
