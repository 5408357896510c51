//! Tests of the secrets that the gateway sends only to an upstream: they appear nowhere else.

use std::fs;

use super::{ask, proxy, refused, reload};
use crate::support::backend::{Backend, Does};
use crate::support::gateway::Setup;
use crate::support::http::Reply;
use crate::support::run::pkgtool;

/// Common part of every secret here.
const HUSH: &str = "hush-hush";

#[test]
fn credentials_of_an_address_are_sent_and_shown_nowhere() {
    let mut backend = Backend::start();
    let address = format!("http://me:{HUSH}@{}/predict?code={HUSH}", backend.place());
    let settings = format!(
        "[log]\nlevel = \"trace\"\n{}",
        proxy(
            "secret",
            std::slice::from_ref(&address),
            "health_every_s = 0.2"
        )
    );
    let gateway = Setup::new().settings(&settings).start();
    let shown = format!("http://***@{}/predict?***", backend.place());
    assert!(gateway.announced.contains(&shown), "{}", gateway.announced);
    let gateway = {
        for _ in 0..3 {
            assert_eq!(ask(&gateway, "secret"), 200);
        }
        gateway.kill_and_restart()
    };
    assert_eq!(ask(&gateway, "secret"), 200);
    for seen in backend.take_seen() {
        assert_eq!(seen.path, format!("/predict?code={HUSH}"));
        // `me:hush-hush`, encoded for basic authentication.
        assert_eq!(seen.header("authorization"), ["Basic bWU6aHVzaC1odXNo"]);
        assert_eq!(seen.header("mlp-api-key"), [""; 0]);
    }
    let mut replies: Vec<Reply> = Vec::new();
    // This upstream echoes the secret that it receives.
    backend.does(Does::Answers(401, format!("{{\"bad\":\"{HUSH}\"}}")));
    replies.push(gateway.post("/p/local/secret", "{}").expect(401));
    assert_eq!(replies[0].text(), "{\"bad\":\"***\"}");
    backend.stop();
    for _ in 0..5 {
        replies.push(gateway.post("/p/local/secret", "{}"));
    }
    for path in [
        "/api/mlpgateway/account/local/model",
        "/api/mlpgateway/account/local/model/secret",
        "/api/mlpcore/providers",
        "/api/mlpcore/providers/secret/models",
        "/metrics",
        "/readyz",
        "/openapi.json",
        "/openapi.json?service=local/secret",
        "/api/adapters/compat/models",
    ] {
        replies.push(gateway.get(path));
    }
    assert!(gateway.metrics().contains(&shown), "{}", gateway.metrics());
    for reply in replies {
        assert!(!reply.text().contains(HUSH), "{}", reply.text());
        assert!(!reply.headers.iter().any(|(_, value)| value.contains(HUSH)));
    }
    let log = gateway.whole_log();
    assert!(log.contains("failed and is paused"), "{log}");
    assert!(
        !log.contains(HUSH) && !log.contains("bWU6aHVzaC1odXNo"),
        "{log}"
    );
}

#[test]
fn settings_are_printed_and_refused_without_credentials() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("settings.toml");
    let print = |settings: &str| {
        fs::write(&file, settings).expect("a file");
        let file = file.to_str().expect("a plain path");
        pkgtool(["serve", "--print-config", "--config", file]).run()
    };
    let url = format!("http://me:{HUSH}@h/?k={HUSH}");
    let printed = print(&proxy("x", std::slice::from_ref(&url), ""))
        .expect_code(0)
        .stdout;
    assert!(printed.contains("\"http://***@h/?***\""), "{printed}");
    assert!(!printed.contains(HUSH), "{printed}");
    // Printed settings with masked secrets are rejected as input.
    let again = print(&printed).expect_code(2).stderr;
    assert!(again.contains("replaces hidden credentials"), "{again}");
    for wrong in [
        format!("[[proxies]]\nname = \"x\"\nupstream = \"{url}\" oops\n"),
        format!("[[proxies]]\nname = \"x\"\nupstream = \"http://h\"\nkey = \"{HUSH}\"\n"),
        format!("proxies = [{{ name = \"x\", upstream = \"{url}\", api_key = \"{HUSH}\" }}]\n"),
        proxy("x", &[format!("ftp://me:{HUSH}@h/")], ""),
    ] {
        let said = print(&wrong).expect_code(2).stderr;
        assert!(
            said.contains("settings.toml") && !said.contains(HUSH),
            "{said}"
        );
    }
    let variable = format!("[{{ name = \"x\", upstream = \"{url}\", nothing = 1 }}]");
    for text in [&variable, &url] {
        let command = pkgtool(["serve", "--print-config"]);
        let said = command
            .variable("PKGTOOL_PROXIES", text)
            .run()
            .expect_code(2)
            .stderr;
        assert!(
            said.contains("PKGTOOL_PROXIES") && !said.contains(HUSH),
            "{said}"
        );
    }
}

#[test]
fn a_key_comes_from_a_variable_or_a_file_with_headers() {
    let backend = Backend::start();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("key");
    fs::write(&file, "first-key\n").expect("a file");
    let settings = [
        proxy(
            "bearer",
            &[backend.url("/bearer")],
            "key_env = \"AN_UPSTREAMS_KEY\"\nheaders = { \"X-Org\" = \"acme inc\" }",
        ),
        proxy(
            "plain",
            &[backend.url("/plain")],
            &format!("key_file = {file:?}\nkey_header = \"X-API-Key\""),
        ),
    ]
    .concat();
    let gateway = Setup::new()
        .settings(&settings)
        .variable("AN_UPSTREAMS_KEY", "from-variable")
        .start();
    gateway.account("other", 1000);
    let other = gateway.new_key("other", "k", "predict");
    let sent = |service: &str, header: &str| -> Vec<String> {
        backend.take_seen();
        assert_eq!(ask(&gateway, service), 200);
        let seen = backend.take_seen();
        let [seen] = &seen[..] else {
            panic!("{seen:?}")
        };
        assert_eq!(seen.body, b"{}");
        assert_eq!(seen.header("content-type"), ["application/json"]);
        seen.header(header).into_iter().map(str::to_owned).collect()
    };
    for _ in 0..3 {
        assert_eq!(sent("bearer", "authorization"), ["Bearer from-variable"]);
        assert_eq!(sent("bearer", "x-org"), ["acme inc"]);
        assert_eq!(sent("plain", "x-api-key"), ["first-key"]);
        assert_eq!(sent("plain", "authorization"), [""; 0]);
        let theirs = gateway.send_with(&other, "POST", "/p/local/plain", "{}");
        assert_eq!(theirs.status, 403);
    }
    // A changed key is taken over; an empty or missing file changes nothing.
    fs::write(&file, "second-key").expect("a file");
    assert_eq!(sent("plain", "x-api-key"), ["first-key"]);
    assert_eq!(reload(&gateway, &settings)["changed"], "proxies");
    assert_eq!(sent("plain", "x-api-key"), ["second-key"]);
    assert_eq!(reload(&gateway, &settings)["changed"], "");
    fs::write(&file, " \n").expect("a file");
    let line = reload(&gateway, &settings).to_string();
    assert!(
        line.contains("proxies[1].key_file") && line.contains("it is empty"),
        "{line}"
    );
    fs::remove_file(&file).expect("it is there");
    let line = reload(&gateway, &settings).to_string();
    assert!(
        line.contains("proxies[1].key_file") && line.contains("cannot read the file"),
        "{line}"
    );
    assert_eq!(sent("plain", "x-api-key"), ["second-key"]);
    let log = gateway.whole_log();
    for secret in ["first-key", "second-key", "from-variable"] {
        assert!(!log.contains(secret), "{log}");
    }
}

#[test]
fn a_key_that_is_not_there_is_an_error_at_the_start() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("key");
    let upstream = ["http://127.0.0.1:9/".to_owned()];
    let with_file = |content: &[u8]| {
        fs::write(&file, content).expect("a file");
        refused(&proxy("x", &upstream, &format!("key_file = {file:?}")))
    };
    let said = refused(&proxy(
        "x",
        &upstream,
        "key_env = \"NO_SUCH_VARIABLE_HERE\"",
    ));
    for part in [
        "proxies[0].key_env",
        "NO_SUCH_VARIABLE_HERE",
        "the environment variable is missing",
        "set it before",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    for (content, says) in [
        (&b""[..], "it is empty"),
        (b"two\nhush-hush", "line break"),
        (b"\xff\xfe", "cannot read the file"),
        (&vec![b'x'; 20_000], "at most 16384 bytes"),
    ] {
        let said = with_file(content);
        assert!(
            said.contains("proxies[0].key_file") && said.contains(says),
            "{said}"
        );
        assert!(!said.contains("hush"), "{said}");
    }
    fs::remove_file(&file).expect("it is there");
    for (path, says) in [
        (&file, "cannot read the file"),
        (&directory.path().to_owned(), "expected a file"),
    ] {
        let said = refused(&proxy("x", &upstream, &format!("key_file = {path:?}")));
        assert!(said.contains(says), "{said}");
    }
    let header = "headers = { \"X-Auth-Token\" = \"hush-hush\" }";
    let said = refused(&proxy("x", &upstream, header));
    assert!(said.contains("proxies[0].headers.X-Auth-Token"), "{said}");
    assert!(
        said.contains("key_header = \"X-Auth-Token\"") && !said.contains("hush"),
        "{said}"
    );
}
