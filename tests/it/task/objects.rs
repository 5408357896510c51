//! Tests of blobs in object storage, against moto.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use pkgtool_serve::account::AccountId;
use pkgtool_serve::database::Timestamp;
use pkgtool_serve::objects::{ObjectStorage, ObjectsError};
use pkgtool_serve::service::{BodyMemory, BodyReservation};
use pkgtool_serve::task::{
    BlobError, Blobs, FileKind, Lease, NewTask, StoredContent, SweepCursor, TaskIds,
};

use super::{WIDE, block_on, directory, id, new, open};
use crate::support::objects::{BUCKET, ObjectKey, ObjectServer, PLACE};

/// Size of the parts that S3 accepts.
const PART: usize = 5 << 20;

fn blobs(server: &ObjectServer) -> Blobs {
    Blobs::in_bucket(server.storage().expect("the settings are right"))
}

fn memory(bytes: usize) -> BodyReservation {
    let held = BodyMemory::new(bytes).take(AccountId(1), bytes);
    held.expect("there is room")
}

/// Returns bytes that differ from place to place.
fn bytes(length: usize) -> Bytes {
    (0..=250).cycle().take(length).collect()
}

/// Waits until the bucket has no incomplete uploads.
async fn until_aborted(server: &ObjectServer) {
    while server.ask(&format!("uploads {BUCKET}")) != 0 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[test]
fn bodies_of_any_size_come_back() {
    let Some(server) = ObjectServer::start("bodies_of_any_size_come_back") else {
        return;
    };
    let blobs = blobs(&server);
    block_on(async {
        for (number, length) in [(1, 200), (2, PART), (3, PART + 1), (4, 2 * PART + 7)] {
            let body = bytes(length);
            let put = blobs.put_body(id(number), body.clone()).await;
            let put = put.expect("it is stored");
            // An upload piece by piece stores the same.
            let mut upload = blobs.upload_body(id(10 + number), Arc::new(memory(PART)));
            for piece in body.chunks(100_001) {
                let piece = Bytes::copy_from_slice(piece);
                upload.push(piece).await.expect("it is stored");
            }
            let uploaded = upload.finish().await.expect("it is stored");
            assert_eq!(put, uploaded);
            for stored in [number, 10 + number] {
                let loaded = blobs.load_body(id(stored), &put, memory(length)).await;
                assert!(loaded.expect("it is there").0 == body, "{stored}");
                blobs.delete_body(id(stored)).await;
            }
            let gone = blobs.load_body(id(number), &put, memory(length)).await;
            assert!(matches!(gone, Err(BlobError::Lost)), "{gone:?}");
        }
        assert!(server.objects().is_empty());
    });
}

#[test]
fn a_dropped_upload_is_aborted() {
    let Some(server) = ObjectServer::start("a_dropped_upload_is_aborted") else {
        return;
    };
    let blobs = blobs(&server);
    block_on(async {
        let mut upload = blobs.upload_body(id(1), Arc::new(memory(PART)));
        upload.push(bytes(PART + 1)).await.expect("it is stored");
        assert_eq!(server.ask(&format!("uploads {BUCKET}")), 1);
        drop(upload);
        until_aborted(&server).await;
        // A file without content is an object, too.
        let name = blobs.file_name(FileKind::Batch, id(2));
        let upload = blobs.upload_file(&name, Arc::new(memory(PART)));
        let StoredContent::Blob { size, sha256 } = upload.finish().await.expect("it is stored")
        else {
            panic!("it is a blob");
        };
        let mut read = blobs.open_file(&name, size, sha256).await.expect("it is");
        let copy = move || std::io::copy(&mut read, &mut std::io::sink());
        let read = tokio::task::spawn_blocking(copy).await.expect("it ends");
        assert_eq!(read.ok(), Some(0));
        assert_eq!(server.objects(), [name]);
    });
}

#[test]
fn sweeps_remove_old_objects_without_a_task() {
    let Some(server) = ObjectServer::start("sweeps_remove_old_objects_without_a_task") else {
        return;
    };
    let blobs = blobs(&server);
    let (_directory, stores) = directory();
    let store = open(&stores, WIDE);
    let today = TaskIds::default().next(Timestamp::now());
    let day = Timestamp::now().day().to_iso();
    let names = || server.objects();
    block_on(async {
        let long = bytes(1000);
        let body = blobs.put_body(id(1), long.clone()).await;
        let task = NewTask {
            body: body.expect("it is stored"),
            ..new(1)
        };
        let accepted = store.enqueue(task, Timestamp(1)).await;
        accepted.expect("it is accepted");
        for orphan in [id(2), today] {
            let put = blobs.put_body(orphan, long.clone()).await;
            put.expect("it is stored");
        }
        let lease = Lease {
            task: id(3),
            attempt: 1,
        };
        let put = blobs.put_answer(lease, long.clone()).await;
        put.expect("it is stored");
        assert!(
            names()
                .iter()
                .any(|name| name.starts_with(&format!("body/{day}/")))
        );
        let mut cursor = SweepCursor::default();
        assert_eq!(blobs.sweep_orphans(&*store.store, &mut cursor).await, 0);
        assert_eq!(names().len(), 4, "all of them are young");
        server.ask(&format!("age {BUCKET} 2"));
        assert_eq!(blobs.sweep_orphans(&*store.store, &mut cursor).await, 3);
        let left = names();
        assert_eq!(left, [format!("body/1970-01-01/01/{}", id(1))]);
        assert_eq!(blobs.sweep_all_orphans(&*store.store).await, 0);
    });
}

#[test]
fn files_of_other_gateways_in_progress_are_kept() {
    let Some(server) = ObjectServer::start("files_of_other_gateways_in_progress_are_kept") else {
        return;
    };
    let blobs = blobs(&server);
    block_on(async {
        let [known, unknown] = [1, 2].map(|number| blobs.file_name(FileKind::Dataset, id(number)));
        for name in [&known, &unknown] {
            let mut upload = blobs.upload_file(name, Arc::new(memory(PART)));
            upload.push(bytes(10)).await.expect("it is stored");
            upload.finish().await.expect("it is stored");
        }
        let recorded = HashSet::from([known.clone()]);
        for (hours, left) in [(2, 2), (47, 1)] {
            server.ask(&format!("age {BUCKET} {hours}"));
            blobs.sweep_files(FileKind::Dataset, &recorded).await;
            assert_eq!(server.objects().len(), left, "after {hours} more hours");
        }
        assert_eq!(server.objects(), [known]);
    });
}

/// Checks a place with these variables; returns the error.
fn refusal(url: &str, variables: Vec<(String, String)>) -> String {
    let url = url.parse().expect("it is one");
    let storage = ObjectStorage::new(&url, variables.into_iter()).expect("the settings are right");
    let error: ObjectsError = block_on(storage.check(false)).expect_err("it does not work");
    error.to_string()
}

#[test]
fn faults_of_a_bucket_are_named() {
    let Some(server) = ObjectServer::start("faults_of_a_bucket_are_named") else {
        return;
    };
    let storage = server.storage().expect("the settings are right");
    block_on(storage.check(false)).expect("it works");
    assert!(server.objects().is_empty());
    let missing = refusal("s3://missing/a", server.variables());
    assert!(missing.contains("the bucket does not exist"), "{missing}");
    let wrong = ObjectKey::new("AKIAWRONG", "topsecret");
    let wrong = refusal(PLACE, server.variables_with(&wrong));
    assert!(wrong.contains("credentials are rejected"), "{wrong}");
    assert!(!wrong.contains("topsecret"), "{wrong}");
    for (actions, lacks) in [
        ("s3:GetObject,s3:ListBucket", "s3:PutObject"),
        ("s3:PutObject,s3:ListBucket", "s3:GetObject"),
    ] {
        let key = server.key(actions);
        let denied = refusal(PLACE, server.variables_with(&key));
        assert!(denied.contains(lacks), "{denied}");
    }
    server.ask("anonymous");
    block_on(storage.check(false)).expect("the bucket is private");
    server.ask(&format!("public {BUCKET}"));
    let public = refusal(PLACE, server.variables());
    assert!(public.contains("block public access"), "{public}");
    block_on(storage.check(true)).expect("it is allowed");
    let mut variables = server.variables();
    "http://127.0.0.1:1".clone_into(&mut variables[0].1);
    let unreachable = refusal(PLACE, variables);
    assert!(
        unreachable.contains("check AWS_ENDPOINT_URL"),
        "{unreachable}"
    );
}

#[test]
fn a_prefix_belongs_to_one_database() {
    let Some(server) = ObjectServer::start("a_prefix_belongs_to_one_database") else {
        return;
    };
    let storage = server.storage().expect("the settings are right");
    block_on(async {
        for _ in 0..2 {
            storage.claim(Timestamp(1000)).await.expect("it is free");
        }
        let error = storage
            .claim(Timestamp(2000))
            .await
            .expect_err("it is taken");
        let expected = "created at 1970-01-01T00:00:02.000Z, found 1970-01-01T00:00:01.000Z";
        assert!(error.to_string().contains(expected), "{error}");
    });
}

#[test]
fn an_endpoint_that_is_silent_is_given_up() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("it is bound");
    let url = PLACE.parse().expect("it is one");
    let variables = [
        ("AWS_ENDPOINT_URL", format!("http://{address}")),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ACCESS_KEY_ID", "key".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "secret".to_owned()),
    ];
    let variables = variables.map(|(name, value)| (name.to_owned(), value));
    let storage = ObjectStorage::new(&url, variables.into_iter()).expect("they are right");
    let error = block_on(storage.health()).expect_err("nobody answers");
    assert!(error.to_string().contains("no answer within"), "{error}");
}
