//! Scenarios of files, batches and events, on every kind of database.

use std::process::Command;

use pkgtool_serve::account::AccountId;
use pkgtool_serve::batch::{
    BatchCreation, BatchEndpoint, BatchState, FileDeletion, FilePurpose, LineOutcome, ListPage,
    NewBatch, NewFile, StoredFileId,
};
use pkgtool_serve::database::{DatabaseError, DatabaseUrl, Timestamp};
use pkgtool_serve::task::Stores;
use pkgtool_serve::webhook::{WebhookOptions, WebhookSecret};

use crate::support::environment::EnvironmentPiece;
use crate::support::postgres::fresh_database;
use crate::task::{accounts, block_on};

const NOW: Timestamp = Timestamp(1_000);
const LATER: Timestamp = Timestamp(2_000);
const ONE: AccountId = AccountId(1);
const TWO: AccountId = AccountId(2);

/// Runs a scenario on databases of both kinds, with two accounts.
fn of_every_database<F: Future<Output = ()>>(test: &str, story: impl Fn(Stores) -> F) {
    let directory = tempfile::tempdir().expect("a directory");
    let urls = [DatabaseUrl::in_directory(directory.path())].into_iter();
    block_on(async {
        for url in urls.chain(fresh_database(test)) {
            let stores = Stores::open(&url).await.expect("it opens");
            for name in ["one", "two"] {
                let made = accounts(&stores).await.create(name, 10, NOW).await;
                made.expect("it is new");
            }
            story(stores).await;
        }
    });
}

fn file(account: AccountId, blob: &str, purpose: FilePurpose) -> NewFile {
    NewFile {
        account,
        name: "é.jsonl".to_owned(),
        purpose,
        blob: blob.to_owned(),
        size: 7,
        sha256: [9; 32],
        expires_at: LATER,
    }
}

fn batch(input: StoredFileId) -> NewBatch {
    NewBatch {
        account: ONE,
        endpoint: BatchEndpoint::ALL[0],
        input,
        metadata: "{}".to_owned(),
        expires_at: LATER,
    }
}

fn outcome(line: u64, status: u16) -> LineOutcome {
    LineOutcome {
        line,
        custom_id: format!("id {line}"),
        status,
        answer: vec![0xff; 100],
    }
}

#[test]
fn batches_answer_each_line_once() {
    of_every_database("batches_answer_each_line_once", async |stores| {
        let store = stores.batches().await.expect("it opens");
        let input = store.create_file(file(ONE, "in", FilePurpose::Batch), NOW);
        let input = input.await.expect("it works");
        let found = store.file(ONE, input.id).await.expect("it works");
        assert_eq!(found.as_ref(), Some(&input));
        assert_eq!(store.file(TWO, input.id).await.expect("it works"), None);
        let other = store.create_batch(
            NewBatch {
                account: TWO,
                ..batch(input.id)
            },
            1,
            NOW,
        );
        assert_eq!(other.await.expect("it works"), BatchCreation::NoInput);
        let created = store.create_batch(batch(input.id), 1, NOW).await;
        let BatchCreation::Done(created) = created.expect("it works") else {
            panic!("expected a batch");
        };
        let more = store.create_batch(batch(input.id), 1, NOW).await;
        assert_eq!(more.expect("it works"), BatchCreation::TooMany);
        let id = created.id;
        store.begin(id, 3, NOW).await.expect("it works");
        for _ in 0..3 {
            let outcomes = [outcome(1, 200), outcome(3, 500)];
            store.store_lines(id, &outcomes).await.expect("it works");
        }
        assert_eq!(store.answered_lines(id).await.expect("it works"), [1, 3]);
        assert_eq!(
            store.lines(id, 0, 1).await.expect("it works"),
            [outcome(1, 200)]
        );
        assert_eq!(
            store.lines(id, 1, 9_999).await.expect("it works"),
            [outcome(3, 500)]
        );
        let totals = store.totals(ONE).await.expect("it works");
        assert_eq!((totals.files, totals.bytes), (1, 207));
        let needed = store.delete_file(ONE, input.id).await.expect("it works");
        assert_eq!(needed, FileDeletion::Needed(id));
        store.finalize(id, NOW).await.expect("it works");
        let late = store
            .cancel(id, NOW)
            .await
            .expect("it works")
            .expect("it is there");
        assert_eq!(
            (late.state, late.completed, late.failed),
            (BatchState::Finalizing, 1, 1)
        );
        let files = [Some(file(ONE, "out", FilePurpose::BatchOutput)), None];
        store
            .end(id, BatchState::Completed, files, LATER)
            .await
            .expect("it works");
        let ended = store
            .batch(id)
            .await
            .expect("it works")
            .expect("it is there");
        assert_eq!(
            (ended.state, ended.ended_at),
            (BatchState::Completed, Some(LATER))
        );
        assert!(store.open_batches().await.expect("it works").is_empty());
        let page = ListPage {
            after: None,
            most: 9,
            ascending: true,
        };
        let outputs = store.files(ONE, Some(FilePurpose::BatchOutput), page).await;
        assert_eq!(
            outputs.expect("it works")[0].id,
            ended.output.expect("a file")
        );
        assert_eq!(store.batches(ONE, page).await.expect("it works"), [ended]);
        assert_eq!(store.delete_lines(1).await.expect("it works"), 1);
        assert_eq!(store.delete_lines(9).await.expect("it works"), 1);
        let expired = store.purge(LATER, LATER, 9).await.expect("it works");
        assert_eq!(expired.len(), 2);
        assert!(store.all_files().await.expect("it works").is_empty());
        assert_eq!(store.batch(id).await.expect("it works"), None);
    });
}

#[test]
fn events_are_stored_with_the_ends_that_they_report() {
    of_every_database(
        "events_are_stored_with_the_ends_that_they_report",
        async |stores| {
            let webhooks = stores.webhooks().await.expect("it opens");
            let batches = stores.batches().await.expect("it opens");
            let hook = |name: &str, events: &[&str]| WebhookOptions {
                name: name.to_owned(),
                account: ONE,
                url: "http://localhost".to_owned(),
                events: events.iter().map(|it| (*it).to_owned()).collect(),
                secret: WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
                    .expect("a secret"),
            };
            let hooks = [hook("all", &[]), hook("jobs", &["job.*"])];
            let input = batches.create_file(file(ONE, "in", FilePurpose::Batch), NOW);
            let input = input.await.expect("it works").id;
            let end = async || {
                let created = batches.create_batch(batch(input), 9, NOW).await;
                let BatchCreation::Done(created) = created.expect("it works") else {
                    panic!("expected a batch");
                };
                let ended = batches.end(created.id, BatchState::Completed, [None, None], LATER);
                ended.await.expect("it works");
            };
            // Nobody wants the first one.
            end().await;
            webhooks.set_webhooks(&hooks).await.expect("it works");
            assert!(!webhooks.assign(&hooks, NOW).await.expect("it works"));
            for _ in 0..3 {
                end().await;
            }
            assert!(webhooks.assign(&hooks, NOW).await.expect("it works"));
            assert!(!webhooks.assign(&hooks, NOW).await.expect("it works"));
            assert!(
                webhooks
                    .due("jobs", NOW, 9)
                    .await
                    .expect("it works")
                    .is_empty()
            );
            let due = webhooks.due("all", NOW, 9).await.expect("it works");
            assert_eq!(due.len(), 3);
            assert!(
                due[0].body.contains("\"batch.completed\""),
                "{}",
                due[0].body
            );
            webhooks
                .settle("all", due[0].event, None)
                .await
                .expect("it works");
            webhooks
                .settle("all", due[1].event, Some(LATER))
                .await
                .expect("it works");
            // The third one is being sent.
            let now = webhooks.due("all", NOW, 9).await.expect("it works");
            assert_eq!(now, []);
            let later = Timestamp(NOW.0 + 60_000);
            let later = webhooks.due("all", later, 9).await.expect("it works");
            assert_eq!((later.len(), later[0].attempts), (2, 1));
            assert_eq!(later[1], due[2]);
            // A webhook that is gone takes its deliveries with it.
            webhooks.set_webhooks(&hooks[1..]).await.expect("it works");
            assert!(
                webhooks
                    .due("all", LATER, 9)
                    .await
                    .expect("it works")
                    .is_empty()
            );
        },
    );
}

/// Many processes open a new database at once, and change the same rows.
#[test]
fn processes_do_not_disturb_each_other() {
    let Some(url) = fresh_database("processes_do_not_disturb_each_other") else {
        return;
    };
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                block_on(async {
                    let stores = Stores::open(&url).await.expect("it opens");
                    let store = stores.accounts().await.expect("it opens");
                    let _ = store.create_account("one", 1, NOW).await.expect("it works");
                    for name in ["a", "b", "c", "d"] {
                        store.service_number(ONE, name).await.expect("it works");
                    }
                });
            });
        }
    });
    block_on(async {
        let stores = Stores::open(&url).await.expect("it opens");
        let store = stores.accounts().await.expect("it opens");
        assert_eq!(store.accounts().await.expect("it works").len(), 1);
        let input = stores.batches().await.expect("it opens");
        let input = input.create_file(file(ONE, "in", FilePurpose::Batch), NOW);
        let input = input.await.expect("it works").id;
        // The limit of open batches holds.
        let done = std::thread::scope(|scope| {
            let create = || {
                block_on(async {
                    let stores = Stores::open(&url).await.expect("it opens");
                    let store = stores.batches().await.expect("it opens");
                    let created = store.create_batch(batch(input), 2, NOW).await;
                    matches!(created.expect("it works"), BatchCreation::Done(_))
                })
            };
            let all: Vec<_> = (0..6).map(|_| scope.spawn(create)).collect();
            all.into_iter()
                .filter_map(|it| it.join().ok())
                .filter(|it| *it)
                .count()
        });
        assert_eq!(done, 2);
    });
}

#[test]
fn what_is_wrong_with_a_database_is_named() {
    let Some(url) = fresh_database("what_is_wrong_with_a_database_is_named") else {
        return;
    };
    let DatabaseUrl::Postgres(text) = &url else {
        panic!("expected PostgreSQL");
    };
    let open = |text: &str| {
        let url: DatabaseUrl = text.parse().expect("it is a URL");
        block_on(Stores::open(&url)).map(drop)
    };
    let away =
        open("postgres://u:secret@127.0.0.1:1/none?sslmode=disable").expect_err("nobody listens");
    assert!(matches!(away, DatabaseError::Away { .. }), "{away}");
    assert!(!away.to_string().contains("secret"), "{away}");
    let missing = open(&text.replace("/test_", "/missing_")).expect_err("it is missing");
    assert!(missing.to_string().contains("does not exist"), "{missing}");
    let invalid = open("postgres://localhost/a?port=many").expect_err("it is invalid");
    assert!(invalid.to_string().contains("port"), "{invalid}");
    // The server speaks no TLS, and the URL demands it.
    let unsafe_one = open(&text.replace("disable", "require")).expect_err("it has no TLS");
    assert!(
        unsafe_one.to_string().to_lowercase().contains("tls"),
        "{unsafe_one}"
    );
    // It may be read, and not changed.
    open(text).expect("it opens");
    sql(
        text,
        "ALTER DATABASE CURRENT SET default_transaction_read_only = on",
    );
    let read_only = open(text).expect_err("nothing can be stored");
    assert!(
        matches!(read_only, DatabaseError::ReadOnly { .. }),
        "{read_only}"
    );
}

/// Runs SQL in a database, given its URL; `CURRENT` is its name.
fn sql(url: &str, text: &str) {
    let name = url.split('?').next().and_then(|it| it.rsplit('/').next());
    let text = text.replace("CURRENT", name.expect("it has a name"));
    let psql = EnvironmentPiece::Postgres
        .or_skip("psql")
        .expect("it is installed");
    let ran = Command::new(psql.join("psql"))
        .args(["-v", "ON_ERROR_STOP=1", "-q", "-c", &text, url])
        .output()
        .expect("psql runs");
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// During an upgrade, servers of two releases use the database.
#[test]
fn a_release_runs_beside_the_next_one() {
    let Some(url) = fresh_database("a_release_runs_beside_the_next_one") else {
        return;
    };
    let DatabaseUrl::Postgres(text) = &url else {
        panic!("expected PostgreSQL");
    };
    let open = || block_on(Stores::open(&url)).map(drop);
    open().expect("it is migrated");
    // The next release adds something that this one does not know.
    sql(
        text,
        "ALTER TABLE task_active ADD COLUMN later TEXT; UPDATE pkgtool_schema SET version = version + 1",
    );
    open().expect("it need not know");
    let stores = block_on(Stores::open(&url)).expect("it opens");
    let tasks = block_on(stores.tasks()).expect("a store");
    assert_eq!(block_on(tasks.load()).expect("it works"), (0, 0));
    // The one after that needs what this release does not do.
    sql(
        text,
        "UPDATE pkgtool_schema SET version = version + 1, oldest = version + 1",
    );
    let refused = open().expect_err("it is of a later release");
    assert!(matches!(refused, DatabaseError::TooNew { .. }), "{refused}");
}
