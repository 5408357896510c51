//! Tests of datasets through the gateway.

use serde_json::json;

use super::{BASE, scenes, start, upload, uploaded};
use crate::support::gateway::Setup;
use crate::support::http;

#[test]
fn datasets_are_listed_read_and_deleted() {
    let gateway = start();
    assert_eq!(
        gateway.get(&format!("{BASE}/dataset")).expect(200).json(),
        json!([])
    );
    let first = upload(&gateway, "szenen-ä.csv", scenes())
        .expect(200)
        .json();
    assert_eq!(
        (&first["dataType"], &first["accessMode"]),
        (&json!("text"), &json!("private"))
    );
    assert_eq!(
        (&first["rows"], &first["format"]),
        (&json!(90), &json!("csv"))
    );
    assert_eq!(
        first["labels"],
        json!({"animals": 30, "people": 30, "places": 30})
    );
    assert_eq!(first["id"]["accountId"], json!(1));
    // A plain request body, compressed or not, is a dataset, too.
    let raw = "{\"text\": \"a\", \"label\": 1}\n{\"text\": \"b\", \"label\": 2}\n";
    let path = format!("{BASE}/dataset/raw?name=raw&description=two%20rows");
    let second = gateway.post(&path, raw).expect(200).json();
    assert_eq!(
        (&second["description"], &second["format"]),
        (&json!("two rows"), &json!("jsonl"))
    );
    let all = gateway.get(&format!("{BASE}/dataset")).expect(200).json();
    assert_eq!(all, json!([first, second]));
    let of_first = format!("{BASE}/dataset/{}", first["id"]["datasetId"]);
    assert_eq!(gateway.get(&of_first).expect(200).json(), first);
    let content = gateway.get(&format!("{of_first}/content")).expect(200);
    assert_eq!(content.text(), scenes());
    assert_eq!(
        content.header("content-type"),
        Some("text/csv; charset=utf-8")
    );
    let named = content.header("content-disposition").expect("a name");
    assert!(
        named.contains("filename=\"szenen-_.csv\"") && named.contains("%C3%A4"),
        "{named}"
    );
    gateway.send("DELETE", &of_first, "").expect(200);
    gateway
        .send("DELETE", &of_first, "")
        .expect_error(404, "ENTITY_NOT_FOUND_BY_ID");
    let gateway = gateway.kill_and_restart();
    gateway.get(&of_first).expect(404);
    let left = gateway.get(&format!("{BASE}/dataset")).expect(200).json();
    assert_eq!(left, json!([second]));
    let kept = gateway.get(&format!(
        "{BASE}/dataset/{}/content",
        second["id"]["datasetId"]
    ));
    assert_eq!(kept.expect(200).text(), raw);
}

#[test]
fn what_is_wrong_is_told_with_its_line() {
    let settings =
        "[training]\nrow_bytes = 2000\ndataset_bytes = 100000\ndataset_rows = 100\ndatasets = 1";
    let gateway = Setup::new().settings(settings).start();
    let long = format!("text,label\na,x\n\"{}\",y\n", "z".repeat(50_000));
    let many = "{\"text\": \"a\", \"label\": \"x\"}\n".repeat(101);
    let large = "{\"text\": \"a b c d\", \"label\": \"x\"}\n".repeat(99) + &"\n".repeat(200_000);
    for (content, line, words) in [
        (&b""[..], None, "the dataset is empty"),
        (
            b"{\"text\": \"a\", \"label\": \"x\"}\n",
            None,
            "only one row",
        ),
        (
            b"text,label\na,x\nb,x\n",
            None,
            "all 2 rows have the label `x`",
        ),
        (b"text,label\na,x\nb,c,y\n", Some(3), "3 fields"),
        (
            b"{\"text\": \"a\", \"label\": 1}\n{\"text\": \"a\", \"label\": \"x\"}\n",
            Some(2),
            "a number",
        ),
        (
            b"{\"text\": \"a\", \"label\": \"x\"}\n{\"image_base64\": \"AA==\", \"label\": \"y\"}",
            Some(2),
            "line 1 has `text`",
        ),
        (b"text,label\na,x\n\xe9,y\n", Some(3), "UTF-8"),
        (b"\xff\xfet\0e\0", Some(1), "UTF-16"),
        (long.as_bytes(), Some(3), "exceeds the limit of 2000 bytes"),
        (many.as_bytes(), None, "exceeds the limit of 100 rows"),
        (large.as_bytes(), None, "exceeds the limit of 100000 bytes"),
    ] {
        let refused = upload(&gateway, "bad", content);
        let shown = String::from_utf8_lossy(&content[..content.len().min(60)]).into_owned();
        if refused.status == 413 {
            assert!(content.len() > 100_000, "{shown}");
            continue;
        }
        let refused = refused.expect(400).json();
        let fault = &refused["error"]["args"]["faults"][0];
        assert_eq!(fault["line"], json!(line), "{shown}: {refused}");
        assert!(
            refused["error"]["message"]
                .as_str()
                .expect("a text")
                .contains(words),
            "{refused}"
        );
    }
    let nothing = format!("{BASE}/dataset/raw");
    let headers = [
        ("MLP-API-KEY", gateway.key.as_str()),
        ("Content-Type", "multipart/form-data; boundary=b"),
    ];
    for (body, words) in [
        (
            &b"--b\r\nContent-Disposition: form-data; name=\"data\"\r\n\r\nx\r\n--b--\r\n"[..],
            "no part `file`",
        ),
        (b"nothing", "form"),
    ] {
        let refused = http::request(gateway.address, "POST", &nothing, &headers, body).expect(400);
        assert!(refused.text().contains(words), "{}", refused.text());
    }
    uploaded(&gateway, "good", "text,label\na,x\nb,y\n");
    upload(&gateway, "good", "text,label\na,x\nb,y\n").expect_error(409, "TOO_MANY_DATASETS");
    // Rejected uploads leave no files.
    let blobs = walkdir::WalkDir::new(gateway.data().join("blobs/dataset")).into_iter();
    let files = blobs.flatten().filter(|entry| entry.file_type().is_file());
    assert_eq!(files.count(), 1);
}

#[test]
fn others_see_none_of_it() {
    let gateway = start();
    let dataset = uploaded(&gateway, "scenes.csv", scenes());
    gateway.account("other", 100);
    let key = gateway.new_key("other", "k", "write");
    for path in [
        "dataset",
        "job",
        &format!("dataset/{dataset}"),
        &format!("dataset/{dataset}/content"),
    ] {
        gateway
            .send_with(&key, "GET", &format!("{BASE}/{path}"), "")
            .expect_error(403, "ACCESS_TO_ANOTHER_ACCOUNT_DENIED");
    }
    let own = "/api/mlpgate/account/other";
    gateway
        .send_with(&key, "GET", &format!("{own}/dataset/{dataset}"), "")
        .expect(404);
    let derive = format!("{BASE}/model/hush_sentence/derived?name=theirs");
    gateway.send_with(&key, "POST", &derive, "").expect(403);
    let reader = gateway.new_key("local", "reader", "read");
    gateway
        .send_with(&reader, "GET", &format!("{BASE}/dataset/{dataset}"), "")
        .expect(200);
    let path = format!("{BASE}/dataset/raw");
    gateway
        .send_with(&reader, "POST", &path, scenes())
        .expect_error(403, "TOKEN_PERMISSION_REQUIRED");
}

#[test]
fn a_public_service_is_derived_for_its_caller() {
    let gateway = Setup::new()
        .packages(super::examples().join("hush-sentence"))
        .settings("[services.hush_sentence]\npublic = true")
        .start();
    gateway.account("other", 100);
    let key = gateway.new_key("other", "k", "write");
    let predicts = gateway.new_key("other", "p", "predict");
    let send = |method: &str, path: &str, body: String| {
        gateway.send_with(&key, method, &format!("/api/mlpgate/account/{path}"), body)
    };
    let derived = send(
        "POST",
        "local/model/hush_sentence/derived",
        "{\"name\": \"theirs\", \"hidden\": true}".to_owned(),
    );
    let derived = derived.expect(200).json();
    assert_eq!(derived["derivedFrom"]["accountName"], "local");
    assert_eq!(
        derived["publicSettings"],
        json!({"isPublic": false, "isListed": false})
    );
    let dataset = send("POST", "other/dataset/raw", scenes())
        .expect(200)
        .json();
    let body = json!({"datasetId": dataset["id"]["datasetId"], "configId": 0}).to_string();
    let job = send("POST", "other/model/theirs/fit", body)
        .expect(200)
        .json();
    gateway.until(|| {
        let now = send("GET", &format!("other/job/{}", job["jobId"]), String::new())
            .expect(200)
            .json();
        assert_ne!(now["status"], "FAILED", "{now}");
        now["status"] == "SUCCESS"
    });
    let path = "/api/mlpgate/account/other/model/theirs/predict";
    let body = json!({"texts": ["a fast dog"]}).to_string();
    let answer = gateway
        .send_with(&predicts, "POST", path, &body)
        .expect(200)
        .json();
    assert_eq!(
        answer["classified_texts"][0]["labels"][0]["label"],
        "animals"
    );
    gateway.post(path, body).expect(403);
}
