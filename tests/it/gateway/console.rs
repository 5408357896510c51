//! Tests of the console's routes: logins, sessions, the page's files, and what only the operator
//! may read and change. `browser.rs` tests the page itself.

use std::io::{BufRead as _, BufReader, Write as _};
use std::time::Duration;

use serde_json::{Value, json};

use super::{three, with_models};
use crate::support::gateway::{Gateway, Setup, task_path};
use crate::support::http::{self, Reply};
use crate::support::run::pkgtool;

/// The header of the console's pages.
const CONSOLE: (&str, &str) = ("x-pkgtool-console", "1");

/// Returns the code of the link that the server printed.
fn code(gateway: &Gateway) -> String {
    let found = gateway.announced.split("#login=").nth(1);
    let found = found.and_then(|it| it.lines().next());
    found
        .unwrap_or_else(|| panic!("no link: {}", gateway.announced))
        .to_owned()
}

/// Logs in, and returns the cookie.
#[track_caller]
fn log_in(gateway: &Gateway, body: &Value) -> String {
    let reply = post(gateway, "/login", &[CONSOLE], &body.to_string()).expect(200);
    let cookie = reply.header("set-cookie").expect("a cookie");
    assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
    cookie.split(';').next().expect("a pair").to_owned()
}

fn operator(gateway: &Gateway) -> String {
    log_in(gateway, &json!({"code": code(gateway)}))
}

fn post(gateway: &Gateway, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    http::request(gateway.address, "POST", path, headers, body.as_bytes())
}

fn get(gateway: &Gateway, path: &str, cookie: &str) -> Reply {
    gateway.bare("GET", path, &[("cookie", cookie)])
}

#[test]
fn a_link_logs_in_once() {
    let (gateway, _tree) = with_models(Setup::new());
    let body = json!({"code": code(&gateway)}).to_string();
    post(&gateway, "/login", &[], &body).expect_error(403, "REQUEST_IS_NOT_OF_THE_CONSOLE");
    let wrong = json!({"code": "pc_guess"}).to_string();
    let unknown = "mlp.gateway.login_code_not_found";
    post(&gateway, "/login", &[CONSOLE], &wrong).expect_error(401, unknown);
    let cookie = operator(&gateway);
    post(&gateway, "/login", &[CONSOLE], &body).expect_error(401, unknown);
    let session = get(&gateway, "/console/session", &cookie)
        .expect(200)
        .json();
    assert_eq!(session["account"], "local");
    assert_eq!(session["isOperator"], true);
    // Another link, printed by a command beside the running server.
    let link = gateway.command(&["keys", "link", "--url", "https://models.example.com/x/"]);
    let link = link.expect_code(0).stdout.trim().to_owned();
    let code = link
        .strip_prefix("https://models.example.com/x/#login=")
        .expect("a link");
    let second = log_in(&gateway, &json!({"code": code}));
    // Neither session disturbs the other, and a log-out ends one of them.
    let headers = [CONSOLE, ("cookie", &*second)];
    let ended = post(&gateway, "/logout", &headers, "").expect(200);
    assert!(
        ended
            .header("set-cookie")
            .expect("a cookie")
            .contains("Max-Age=0")
    );
    get(&gateway, "/console/session", &second).expect_error(401, "mlp.gateway.session_has_ended");
    get(&gateway, "/console/session", &cookie).expect(200);
    let log = gateway.whole_log();
    assert!(
        !log.contains("pc_") && !log.contains("ps_"),
        "secrets are in the log"
    );
    // A restart ends no session, and prints a new link.
    let gateway = gateway.kill_and_restart();
    get(&gateway, "/console/session", &cookie).expect(200);
    operator(&gateway);
}

#[test]
fn a_session_is_for_the_consoles_pages_only() {
    let (gateway, _tree) = with_models(Setup::new());
    let cookie = operator(&gateway);
    let task = gateway.create("negate", three([1.0, 2.0, 3.0]));
    let with = |more: &[(&'static str, &'static str)]| {
        let mut headers = vec![("cookie", &*cookie)];
        headers.extend(more);
        headers
    };
    let path = task_path(&task);
    gateway.bare("GET", &path, &with(&[])).expect(200);
    gateway
        .bare("GET", &path, &with(&[("sec-fetch-site", "same-origin")]))
        .expect(200);
    let refused = "REQUEST_IS_NOT_OF_THE_CONSOLE";
    for site in ["same-site", "cross-site"] {
        let headers = with(&[("sec-fetch-site", site)]);
        gateway
            .bare("GET", &path, &headers)
            .expect_error(403, refused);
    }
    let cancel = format!("{path}/cancel");
    post(&gateway, &cancel, &with(&[]), "").expect_error(403, refused);
    post(&gateway, &cancel, &with(&[CONSOLE]), "").expect(200);
    let predict = "/api/mlpgateway/account/local/model/negate/predict";
    let body = three([1.0, 2.0, 3.0]);
    post(&gateway, predict, &with(&[]), &body).expect_error(403, refused);
    post(&gateway, predict, &with(&[CONSOLE]), &body).expect(200);
    // A key beside the cookie counts, as it does without one.
    gateway
        .bare("GET", &path, &with(&[("mlp-api-key", "wrong")]))
        .expect_error(401, "mlp.gateway.api_key_not_found");
    // A cookie of another port does not count.
    let other = cookie.replace("pkgtool_session", "pkgtool_session_81");
    get(&gateway, &path, &other).expect_error(401, "mlp.gateway.access_key_required");
    // The secret of a session does not work as a key.
    let (_, secret) = cookie.split_once('=').expect("a pair");
    gateway
        .send_with(secret, "GET", &path, "")
        .expect_error(401, "mlp.gateway.api_key_not_found");
}

#[test]
fn a_key_begins_a_session_that_ends_with_it() {
    let (gateway, _tree) = with_models(Setup::new());
    gateway.account("acme", 10);
    let key = gateway.new_key("acme", "page", "read");
    let cookie = log_in(&gateway, &json!({"key": format!(" {key} ")}));
    let session = get(&gateway, "/console/session", &cookie)
        .expect(200)
        .json();
    assert_eq!(session["account"], "acme");
    assert_eq!(session["isOperator"], false);
    assert_eq!(session["permissions"], json!(["read"]));
    get(&gateway, "/console/tasks", &cookie).expect(200);
    for path in ["packages", "findings?path=x", "machine", "accounts", "keys"] {
        let path = format!("/console/{path}");
        get(&gateway, &path, &cookie).expect_error(403, "OPERATOR_REQUIRED");
    }
    let headers = [CONSOLE, ("cookie", &*cookie)];
    for path in ["accounts", "keys", "keys/revoke"] {
        let path = format!("/console/{path}");
        post(&gateway, &path, &headers, "{}").expect_error(403, "OPERATOR_REQUIRED");
    }
    gateway.command(&["keys", "revoke", "page"]).expect_code(0);
    gateway.until(|| get(&gateway, "/console/session", &cookie).status == 401);
    let body = json!({"key": "pk_wrong"}).to_string();
    post(&gateway, "/login", &[CONSOLE], &body).expect_error(401, "mlp.gateway.api_key_not_found");
    for body in [
        "",
        "[]",
        "{}",
        r#"{"code":"a","key":"b"}"#,
        r#"{"code":1}"#,
        "{\"key\":\"\u{0}\"}",
    ] {
        let status = post(&gateway, "/login", &[CONSOLE], body).status;
        assert!([400, 401].contains(&status), "{body}: {status}");
    }
    let long = format!("{{\"code\":\"{}\"}}", "x".repeat(100_000));
    post(&gateway, "/login", &[CONSOLE], &long).expect_error(400, "BAD_REQUEST");
}

#[test]
fn the_operator_chooses_an_account() {
    let setup = Setup::new().settings("[services.negate]\npublic = true");
    let (gateway, _tree) = with_models(setup);
    gateway.account("acme", 10);
    let key = gateway.new_key("acme", "page", "predict,read");
    let cookie = operator(&gateway);
    let own = gateway.create("negate", three([1.0, 2.0, 3.0]));
    gateway.wait_for(&own, "COMPLETED");
    let choose = |cookie: &str, account: &str| {
        let body = json!({"account": account}).to_string();
        let headers = [CONSOLE, ("cookie", cookie)];
        post(&gateway, "/account", &headers, &body)
    };
    let chosen = choose(&cookie, "acme").expect(200);
    let acme = chosen.header("set-cookie").expect("a cookie");
    assert!(acme.contains("HttpOnly; SameSite=Strict"), "{acme}");
    let acme = acme.split(';').next().expect("a pair").to_owned();
    let session = get(&gateway, "/console/session", &acme).expect(200).json();
    assert_eq!(session["account"], "acme");
    assert_eq!(session["isOperator"], true);
    // The account's tasks, and no other ones.
    let path = "/api/mlpgateway/account/local/model/negate/async/predict";
    let body = three([4.0, 5.0, 6.0]);
    let made = gateway.send_with(&key, "POST", path, &body).expect(200);
    let made = made.json().as_str().expect("an id").to_owned();
    let listed = |cookie: &str| {
        let tasks = get(&gateway, "/console/tasks", cookie).expect(200).json();
        let tasks = tasks.as_array().expect("a list").clone();
        tasks.into_iter().map(|task| task["id"].clone())
    };
    assert_eq!(listed(&acme).collect::<Vec<_>>(), [json!(made)]);
    assert_eq!(listed(&cookie).collect::<Vec<_>>(), [json!(own)]);
    let status = format!("/api/mlpgateway/account/acme/async/task/{made}");
    get(&gateway, &status, &acme).expect(200);
    get(&gateway, &status, &cookie).expect_error(403, "ACCESS_TO_ANOTHER_ACCOUNT_DENIED");
    // A blocked account does not lock the operator out.
    gateway.command(&["accounts", "set", "acme", "--blocked", "true"]);
    gateway.until(|| gateway.send_with(&key, "GET", &status, "").status == 402);
    get(&gateway, "/console/tasks", &acme).expect(200);
    get(&gateway, "/console/machine", &acme).expect(200);
    // Back again, and what nobody can choose.
    choose(&acme, "local").expect(200);
    choose(&acme, "nobody").expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    for wrong in ["0", "-1", "99999", "99999999999999999999", "x", ""] {
        let (pair, _) = acme.split_once('.').expect("an account");
        let odd = format!("{pair}.{wrong}");
        let session = get(&gateway, "/console/session", &odd).expect(200).json();
        assert_eq!(session["account"], "local", "{wrong}");
    }
    // A key's session has the key's account, whatever its cookie says.
    let mine = log_in(&gateway, &json!({"key": gateway.key}));
    let number = acme.split_once('.').expect("an account").1;
    let odd = format!("{mine}.{number}");
    let session = get(&gateway, "/console/session", &odd).expect(200).json();
    assert_eq!(session["account"], "local");
    choose(&mine, "acme").expect_error(403, "OPERATOR_REQUIRED");
    post(
        &gateway,
        "/account",
        &[("cookie", &*acme)],
        r#"{"account":"local"}"#,
    )
    .expect_error(403, "REQUEST_IS_NOT_OF_THE_CONSOLE");
    post(&gateway, "/logout", &[CONSOLE, ("cookie", &*acme)], "").expect(200);
    get(&gateway, "/console/session", &cookie).expect_error(401, "mlp.gateway.session_has_ended");
}

#[test]
fn a_session_expires() {
    let setup = Setup::new().settings("console.session_days = 0.00002");
    let (gateway, _tree) = with_models(setup);
    let cookie = operator(&gateway);
    gateway.until(|| get(&gateway, "/console/session", &cookie).status == 401);
}

#[test]
fn the_oldest_sessions_of_a_key_end() {
    let (gateway, _tree) = with_models(Setup::new());
    let key = json!({"key": gateway.key});
    let first = log_in(&gateway, &key);
    let operator = operator(&gateway);
    for _ in 0..50 {
        log_in(&gateway, &key);
    }
    get(&gateway, "/console/session", &first).expect_error(401, "mlp.gateway.session_has_ended");
    get(&gateway, "/console/session", &operator).expect(200);
}

#[test]
fn the_console_can_be_off() {
    let (gateway, _tree) = with_models(Setup::new().settings("console.enabled = false"));
    assert!(
        !gateway.announced.contains("#login="),
        "{}",
        gateway.announced
    );
    for path in ["/", "/console/session", "/console/events"] {
        gateway
            .bare("GET", path, &[])
            .expect_error(404, "PATH_NOT_FOUND");
    }
    let link = gateway.command(&["keys", "link"]).expect_code(0).stdout;
    let code = link.trim().rsplit('=').next().expect("a code").to_owned();
    let body = json!({"code": code}).to_string();
    post(&gateway, "/login", &[CONSOLE], &body).expect_error(404, "PATH_NOT_FOUND");
    gateway.bare("GET", "/docs", &[]).expect(200);
    gateway
        .bare("GET", "/console/files/vendor/rapidoc.js", &[])
        .expect(200);
}

#[test]
fn the_settings_of_the_console_are_checked() {
    for (settings, expected) in [
        ("console.url = \"ftp://a\"", "`console.url` is ftp://a"),
        ("console.url = \"http://a/#x\"", "without `?` and `#`"),
        ("console.session_days = 0", "`console.session_days` is 0"),
        ("console.colour = \"red\"", "unknown field `colour`"),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("gateway.toml");
        std::fs::write(&file, settings).expect("a file");
        let file = file.to_str().expect("a plain path");
        let ran = pkgtool(["serve", "--print-config", "--config", file]).run();
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    }
    let setup = Setup::new().settings("console.url = \"https://models.example.com/console/\"");
    let (gateway, _tree) = with_models(setup);
    assert!(
        gateway
            .announced
            .contains(" https://models.example.com/console/#login=pc_")
    );
}

#[test]
fn the_page_and_its_files_are_there() {
    let (gateway, _tree) = with_models(Setup::new());
    let page = gateway.bare("GET", "/", &[]).expect(200);
    let policy = page.header("content-security-policy").expect("a policy");
    assert!(
        policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"),
        "{policy}"
    );
    assert!(
        policy.contains("require-trusted-types-for 'script'"),
        "{policy}"
    );
    let text = page.text();
    let mut files: Vec<String> = Vec::new();
    for piece in text.split("\"console/files/").skip(1) {
        files.push(piece.split('"').next().unwrap_or_default().to_owned());
    }
    assert!(files.len() > 5, "{files:?}");
    assert!(
        !text.contains("http://") && !text.contains("https://"),
        "the page asks others"
    );
    for file in files {
        let path = format!("/console/files/{file}");
        let whole = gateway.bare("GET", &path, &[]).expect(200);
        let tag = whole.header("etag").expect("a tag").to_owned();
        let known = gateway
            .bare("GET", &path, &[("if-none-match", &tag)])
            .expect(304);
        assert!(known.body.is_empty());
    }
    for path in [
        "",
        "index.htm",
        "../page.rs",
        "%2e%2e/vendor.py",
        "vendor.py",
        "vendor/manifest.json",
    ] {
        let path = format!("/console/files/{path}");
        gateway
            .bare("GET", &path, &[])
            .expect_error(404, "PATH_NOT_FOUND");
    }
    post(&gateway, "/", &[], "").expect_error(405, "METHOD_NOT_ALLOWED");
    gateway.bare("HEAD", "/", &[]).expect(200);
}

#[test]
fn the_operator_manages_accounts_and_keys() {
    let (gateway, _tree) = with_models(Setup::new());
    let cookie = operator(&gateway);
    let change = |path: &str, body: Value| {
        let path = format!("/console/{path}");
        post(
            &gateway,
            &path,
            &[CONSOLE, ("cookie", &cookie)],
            &body.to_string(),
        )
    };
    change("accounts", json!({"name": "acme", "rps": 5})).expect(200);
    change("accounts", json!({"name": "acme"})).expect_error(409, "ENTITY_EXISTS");
    change("accounts", json!({"name": "a b"})).expect_error(400, "BAD_REQUEST");
    change("accounts", json!({"name": "nobody", "blocked": true}))
        .expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    let key = json!({"account": "acme", "name": "page", "permissions": "read", "days": 30});
    let made = change("keys", key.clone()).expect(200).json();
    let secret = made["secret"].as_str().expect("a secret");
    change("keys", key).expect_error(409, "ENTITY_EXISTS");
    for wrong in ["", "admin"] {
        let key = json!({"account": "acme", "name": "other", "permissions": wrong});
        change("keys", key).expect_error(400, "BAD_REQUEST");
    }
    let tasks = "/api/mlpgateway/account/acme/async/task";
    gateway.send_with(secret, "GET", tasks, "").expect(200);
    change("accounts", json!({"name": "acme", "blocked": true})).expect(200);
    gateway.until(|| gateway.send_with(secret, "GET", tasks, "").status == 402);
    change("accounts", json!({"name": "acme", "blocked": false})).expect(200);
    gateway.until(|| gateway.send_with(secret, "GET", tasks, "").status == 200);
    let keys = get(&gateway, "/console/keys", &cookie).expect(200);
    assert!(!keys.text().contains(secret), "a secret is shown again");
    let keys = keys.json();
    let of_acme = keys
        .as_array()
        .expect("a list")
        .iter()
        .find(|key| key["account"] == "acme");
    let id = of_acme.expect("the key")["id"].clone();
    change("keys/revoke", json!({"id": id})).expect(200);
    gateway.until(|| gateway.send_with(secret, "GET", tasks, "").status == 401);
    change("keys/revoke", json!({"id": 4711})).expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    let accounts = get(&gateway, "/console/accounts", &cookie)
        .expect(200)
        .json();
    assert_eq!(accounts[1]["name"], "acme");
    assert_eq!(accounts[1]["rps"], 5);
    assert_eq!(accounts[0]["rps"], Value::Null);
}

#[test]
fn packages_show_their_findings_and_nothing_else() {
    let (gateway, tree) = with_models(Setup::new());
    let cookie = operator(&gateway);
    let config = tree.root().join("relu").join("config.json");
    let config = if config.is_file() {
        config
    } else {
        tree.root().join("relu/xnnpack/config.json")
    };
    std::fs::write(&config, "{\n  \"model\": 1\n}").expect("a file");
    let mut broken = String::new();
    gateway.until(|| {
        let places = get(&gateway, "/console/packages", &cookie)
            .expect(200)
            .json();
        let places = places.as_array().expect("a list").clone();
        let found = places.iter().find(|place| place["reason"].is_string());
        broken = found.map_or_else(String::new, |it| {
            it["path"].as_str().unwrap_or_default().to_owned()
        });
        !broken.is_empty()
    });
    let findings = |path: &str| {
        let path = path.replace('/', "%2F");
        get(&gateway, &format!("/console/findings?path={path}"), &cookie)
    };
    let found = findings(&broken).expect(200).json();
    let first = found
        .as_array()
        .expect("a list")
        .first()
        .expect("a finding")
        .clone();
    assert!(
        first["code"]
            .as_str()
            .is_some_and(|code| code.starts_with("PKG")),
        "{first}"
    );
    let lines = found.as_array().expect("a list").iter();
    let lines: Vec<&str> = lines.filter_map(|it| it["text"].as_str()).collect();
    assert!(
        lines.iter().any(|line| line.contains("\"model\": 1")),
        "{lines:?}"
    );
    for path in ["/etc", "/", "..", ""] {
        findings(path).expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    }
}

#[test]
fn services_tasks_and_sessions_are_described() {
    let (gateway, _tree) = with_models(Setup::new());
    let cookie = operator(&gateway);
    let services = get(&gateway, "/console/services", &cookie)
        .expect(200)
        .json();
    assert_eq!(services[0]["shown"], "negate");
    assert_eq!(services[0]["state"], "ready");
    assert_eq!(services[0]["forms"], json!(["tensors"]));
    let task = gateway.create("negate", three([1.0, 2.0, 3.0]));
    gateway.wait_for(&task, "COMPLETED");
    let failed = gateway.create("relu", three([1.0, 2.0, 3.0]));
    gateway.wait_for(&failed, "COMPLETED");
    let tasks = get(&gateway, "/console/tasks?limit=1", &cookie)
        .expect(200)
        .json();
    assert_eq!(tasks[0]["id"], failed);
    assert_eq!(tasks[0]["service"], "relu");
    assert_eq!(tasks[0]["attempts"], 1);
    let next = format!("/console/tasks?limit=1&before={failed}");
    let tasks = get(&gateway, &next, &cookie).expect(200).json();
    assert_eq!(tasks[0]["id"], task);
    get(&gateway, "/console/tasks?limit=0", &cookie).expect_error(400, "BAD_REQUEST");
    let details = get(&gateway, "/console/services/local/negate", &cookie)
        .expect(200)
        .json();
    assert_eq!(details["summary"]["state"], "loaded");
    assert_eq!(details["methods"][0]["inputs"][0]["shape"], json!([3]));
    get(&gateway, "/console/services/local/nothing", &cookie)
        .expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    let machine = get(&gateway, "/console/machine", &cookie)
        .expect(200)
        .json();
    let sessions = machine["sessions"].as_array().expect("a list");
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    assert!(
        sessions.iter().all(|it| it["bytes"].as_u64() > Some(0)),
        "{sessions:?}"
    );
    gateway.until(|| {
        let machine = get(&gateway, "/console/machine", &cookie)
            .expect(200)
            .json();
        machine["samples"]
            .as_array()
            .is_some_and(|samples| !samples.is_empty())
    });
}

#[test]
fn events_tell_what_changes_and_end_with_the_server() {
    let (gateway, _tree) = with_models(Setup::new());
    let cookie = operator(&gateway);
    let mut stream = http::connect(gateway.address);
    write!(
        stream,
        "GET /console/events HTTP/1.1\r\nhost: test\r\ncookie: {cookie}\r\n\r\n"
    )
    .expect("the server reads");
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let mut wait_for = |text: &str| {
        let found = lines.find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("no line with {text}"))
    };
    wait_for("event: hello");
    gateway.create("negate", three([1.0, 2.0, 3.0]));
    let changed = wait_for("\"tasks\"");
    assert!(changed.starts_with("data: ["), "{changed}");
    wait_for("event: sample");
    assert!(wait_for("\"cpu\"").contains("\"models\":"));
    gateway
        .bare("GET", "/console/events", &[])
        .expect_error(401, "mlp.gateway.access_key_required");
    let began = std::time::Instant::now();
    let (status, _, _) = gateway.stop();
    assert_eq!(status, Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "the stream kept the server from its end"
    );
}
