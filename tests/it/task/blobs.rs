//! Tests of stored bodies and answers: in the record or in a file, and verified when they are read.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use pkgtool_serve::account::AccountId;
use pkgtool_serve::database::Timestamp;
use pkgtool_serve::service::BodyMemory;
use pkgtool_serve::task::{BlobError, Blobs, Lease, StoredContent, SweepCursor};

use super::{WIDE, block_on, directory, id, new, open};

fn files(directory: &std::path::Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).expect("it can be read").flatten() {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

/// Reads an existing body the way that tasks do.
async fn body(blobs: &Blobs, kept: &StoredContent) -> Bytes {
    let memory = BodyMemory::new(1 << 20);
    let size = usize::try_from(kept.size()).expect("it is small");
    let holding = memory.take(AccountId(1), size).expect("there is room");
    let loaded = blobs.load_body(id(1), kept, holding).await;
    loaded.expect("it is there").0
}

#[test]
fn short_texts_are_kept_in_the_record() {
    let directory = tempfile::tempdir().expect("a directory");
    let blobs = Blobs::open(directory.path()).expect("it opens");
    block_on(async {
        for text in [
            String::new(),
            "x".repeat(150),
            "ü".repeat(150),
            "🦀".repeat(150),
        ] {
            let kept = blobs
                .put_body(id(1), Bytes::from(text.clone()))
                .await
                .expect("it is kept");
            assert_eq!(kept, StoredContent::Inline(text.clone().into_bytes()));
            assert_eq!(body(&blobs, &kept).await, text);
        }
        assert!(files(directory.path()).is_empty());
        for bytes in [
            "x".repeat(151).into_bytes(),
            "ü".repeat(151).into_bytes(),
            vec![0xff; 151],
        ] {
            let kept = blobs
                .put_body(id(1), Bytes::from(bytes.clone()))
                .await
                .expect("it is kept");
            assert!(matches!(kept, StoredContent::Blob { size, .. } if size == bytes.len() as u64));
            assert_eq!(body(&blobs, &kept).await, bytes);
        }
    });
    assert_eq!(files(directory.path()).len(), 1);
}

#[test]
fn what_was_changed_is_noticed() {
    let directory = tempfile::tempdir().expect("a directory");
    let blobs = Blobs::open(directory.path()).expect("it opens");
    let lease = Lease {
        task: id(1),
        attempt: 2,
    };
    let bytes = Bytes::from("x".repeat(1000));
    let kept = block_on(blobs.put_answer(lease, bytes.clone())).expect("it is kept");
    let [file] = &files(directory.path())[..] else {
        panic!("one file");
    };
    for wrong in [
        "y".repeat(1000),
        "x".repeat(999),
        "x".repeat(1001),
        String::new(),
    ] {
        fs::write(file, wrong).expect("it can be changed");
        let read = block_on(blobs.answer(lease, &kept));
        assert!(matches!(read, Err(BlobError::Corrupt)), "{read:?}");
    }
    fs::write(file, &bytes).expect("it can be changed");
    assert_eq!(
        block_on(blobs.answer(lease, &kept)).expect("it is right"),
        bytes
    );
    let other = Lease {
        attempt: 1,
        ..lease
    };
    assert!(matches!(
        block_on(blobs.answer(other, &kept)),
        Err(BlobError::Lost)
    ));
    block_on(blobs.delete_answer(lease));
    assert!(matches!(
        block_on(blobs.answer(lease, &kept)),
        Err(BlobError::Lost)
    ));
    block_on(blobs.delete_answer(lease));
}

#[test]
fn blobs_without_a_task_are_removed_when_they_are_old() {
    let (directory, stores) = directory();
    let store = open(&stores, WIDE);
    let place = directory.path().join("blobs");
    let blobs = Blobs::open(&place).expect("it opens");
    let long = Bytes::from("x".repeat(1000));
    let mut cursor = SweepCursor::default();
    block_on(async {
        for number in [1, 2] {
            let body = blobs
                .put_body(id(number), long.clone())
                .await
                .expect("it is kept");
            let task = pkgtool_serve::task::NewTask {
                body,
                ..new(number)
            };
            store
                .enqueue(task, Timestamp(1))
                .await
                .expect("it is accepted");
        }
        // The first body goes with the answer of its second claim; the third was never accepted.
        blobs
            .put_body(id(3), long.clone())
            .await
            .expect("it is kept");
        let first = store.claim(1).await.expect("it works")[0].lease;
        blobs
            .put_answer(first, long.clone())
            .await
            .expect("it is kept");
        store
            .release(first, false, Timestamp(2))
            .await
            .expect("it works");
        let second = store.claim(1).await.expect("it works")[0].lease;
        let answer = blobs
            .put_answer(second, long.clone())
            .await
            .expect("it is kept");
        store
            .complete(second, answer, Timestamp(3), Timestamp(99))
            .await
            .expect("it works");
        blobs.sweep_orphans(&*store.store, &mut cursor).await;
        assert_eq!(files(&place).len(), 5, "all of them are young");
        for file in files(&place) {
            let old = SystemTime::now() - Duration::from_hours(2);
            let file = fs::File::options()
                .write(true)
                .open(file)
                .expect("it is ours");
            file.set_modified(old).expect("it can be set");
        }
        blobs.sweep_orphans(&*store.store, &mut cursor).await;
    });
    let mut left: Vec<String> = files(&place)
        .iter()
        .map(|file| {
            file.file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    left.sort();
    assert_eq!(left, [format!("{}.2", id(1)), id(2).to_string()]);
}

#[test]
fn an_answer_of_a_canceled_task_is_removed() {
    let (directory, stores) = directory();
    let store = open(&stores, WIDE);
    let place = directory.path().join("blobs");
    let blobs = Blobs::open(&place).expect("it opens");
    block_on(async {
        store
            .enqueue(new(1), Timestamp(1))
            .await
            .expect("it is accepted");
        let lease = store.claim(1).await.expect("it works")[0].lease;
        // The answer is stored, but the task is cancelled before it completes.
        let long = Bytes::from("x".repeat(1000));
        blobs.put_answer(lease, long).await.expect("it is kept");
        store.cancel(id(1), Timestamp(2)).await.expect("it works");
        for file in files(&place) {
            let old = SystemTime::now() - Duration::from_hours(2);
            let file = fs::File::options().write(true).open(file);
            file.expect("it is ours")
                .set_modified(old)
                .expect("it can be set");
        }
        let mut cursor = SweepCursor::default();
        assert_eq!(blobs.sweep_orphans(&*store.store, &mut cursor).await, 1);
    });
    assert!(files(&place).is_empty());
}
