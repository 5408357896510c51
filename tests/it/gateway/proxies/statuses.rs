//! Tests of an upstream's success statuses.

use super::proxy;
use crate::support::backend::{Backend, Does};
use crate::support::gateway::Setup;
use crate::support::http::request;

#[test]
fn a_success_passes_with_its_status() {
    let backend = Backend::start();
    let settings = proxy("one", &[backend.url("/")], "");
    let gateway = Setup::new().settings(&settings).start();
    let base = "/api/mlpgateway/account/local/model/one";
    let headers = [("authorization", gateway.key.as_str())];
    let direct = "/api/adapters/compat-direct/chat/completions";
    let chat = br#"{"model":"local/one"}"#;
    for _ in 0..3 {
        for (status, passed) in [(200, 200), (201, 201), (202, 202), (203, 203), (206, 200)] {
            backend.answers(status);
            let said = format!("{{\"status\":{status}}}");
            for path in [
                "/p/local/one".to_owned(),
                format!("{base}/predict-with-config"),
            ] {
                let reply = gateway.post(&path, r#"{"data":{}}"#).expect(passed);
                assert_eq!(reply.text(), said);
                assert_eq!(reply.header("content-type"), Some("application/json"));
            }
            let reply = request(gateway.address, "POST", direct, &headers, chat).expect(passed);
            assert_eq!(reply.text(), said);
            // The result of a task exists, so its status is 200.
            let task = gateway.create("one", "{}");
            gateway.wait_for(&task, "COMPLETED");
            assert_eq!(gateway.result(&task).expect(200).text(), said);
        }
        backend.answers(204);
        let replies = [
            gateway.post("/p/local/one", "{}"),
            gateway.post(&format!("{base}/predict"), "{}"),
            request(gateway.address, "POST", direct, &headers, chat),
        ];
        for reply in replies {
            let reply = reply.expect(204);
            assert_eq!(reply.text(), "");
            for header in ["content-type", "content-length", "transfer-encoding"] {
                assert_eq!(reply.header(header), None, "{header}");
            }
        }
    }
    // 204 of a task means that it is not finished yet.
    backend.does(Does::Holds);
    let task = gateway.create("one", "{}");
    gateway.result(&task).expect(204);
    backend.release();
    gateway.wait_for(&task, "COMPLETED");
    backend.answers(204);
    let task = gateway.create("one", "{}");
    gateway.wait_for(&task, "COMPLETED");
    let gateway = gateway.kill_and_restart();
    let result = gateway.result(&task).expect(200);
    assert_eq!(
        (result.text(), result.header("content-type")),
        (String::new(), None)
    );
    assert_eq!(result.header("content-length"), Some("0"));
}

#[test]
fn a_connection_is_used_again_after_an_answer_without_a_body() {
    use std::io::{BufReader, Write as _};
    let backend = Backend::start();
    let gateway = Setup::new()
        .settings(&proxy("one", &[backend.url("/")], ""))
        .start();
    let mut stream = crate::support::http::connect(gateway.address);
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    for status in [204, 200, 204, 204, 201] {
        backend.answers(status);
        let head = format!(
            "POST /p/local/one HTTP/1.1\r\nhost: test\r\nMLP-API-KEY: {}\r\ncontent-length: 2\r\n\r\n{{}}",
            gateway.key
        );
        stream.write_all(head.as_bytes()).expect("it is open");
        let reply = crate::support::http::read_reply(&mut reader).expect("an answer");
        assert_eq!(reply.status, status);
    }
}
