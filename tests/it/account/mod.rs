//! Tests of accounts, their API keys and their other data.

mod story;
mod strangers;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pkgtool_serve::account::{
    AccountError, AccountId, AccountStore, Accounts, Directory, NewConfig, Permission, Permissions,
    PredictConfigs,
};
use pkgtool_serve::database::{DatabaseUrl, Timestamp};
use pkgtool_serve::task::Stores;

use crate::task::block_on;

const NOW: Timestamp = Timestamp(1_000);

/// Returns a new data directory with its store and accounts.
async fn empty() -> (tempfile::TempDir, Arc<dyn AccountStore>, Accounts) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).await;
    let accounts = Accounts::new(Arc::clone(&store));
    (directory, store, accounts)
}

/// Opens the store of a data directory.
async fn open(directory: &std::path::Path) -> Arc<dyn AccountStore> {
    let url = DatabaseUrl::in_directory(directory);
    let stores = Stores::open(&url).await.expect("it opens");
    stores.accounts().await.expect("it opens")
}

#[test]
fn names_are_checked_and_unique() {
    block_on(async {
        let (_directory, _store, accounts) = empty().await;
        for name in ["", "17", "a b", "a/b", "ä", &"x".repeat(65)] {
            let refused = accounts.create(name, 1, NOW).await;
            assert!(matches!(refused, Err(AccountError::Name { .. })), "{name}");
        }
        let made = accounts
            .create("acme-1.x_y", 5, NOW)
            .await
            .expect("it is new");
        assert_eq!((made.id, made.rps, made.blocked), (AccountId(1), 5, false));
        let again = accounts.create("acme-1.x_y", 5, NOW).await;
        assert!(matches!(again, Err(AccountError::Exists { .. })));
        let changed = accounts
            .set("1", Some(9), Some(true))
            .await
            .expect("it is there");
        assert_eq!((changed.rps, changed.blocked), (9, true));
        assert_eq!(accounts.list().await.expect("it works"), [changed]);
        let unknown = accounts.set("nobody", Some(1), None).await;
        assert!(matches!(unknown, Err(AccountError::Unknown { .. })));
    });
}

#[test]
fn permissions_are_read_and_written() {
    let read: Permissions = "predict, write".parse().expect("they are right");
    assert!(read.allow(Permission::Predict) && read.allow(Permission::Read));
    assert!(read.allow(Permission::Write));
    assert_eq!(read.to_string(), "predict,write");
    let only: Permissions = "read".parse().expect("it is right");
    assert!(!only.allow(Permission::Predict) && !only.allow(Permission::Write));
    for wrong in ["", "all", "predict,,read"] {
        assert!(wrong.parse::<Permissions>().is_err(), "{wrong}");
    }
}

#[test]
fn a_secret_is_stored_nowhere() {
    block_on(async {
        let (directory, store, accounts) = empty().await;
        accounts.create("acme", 5, NOW).await.expect("it is new");
        let made = accounts.create_key("acme", "ci", Permissions::ALL, None, NOW);
        let (_, secret) = made.await.expect("it is new");
        assert!(secret.reveal().len() >= 43, "256 bits");
        assert!(!format!("{secret:?}").contains(secret.reveal()));
        let (_, other) = accounts
            .create_key("acme", "other", Permissions::ALL, None, NOW)
            .await
            .expect("it is new");
        assert_ne!(secret, other);
        drop((accounts, store));
        for file in fs::read_dir(directory.path())
            .expect("it can be read")
            .flatten()
        {
            let bytes = fs::read(file.path()).expect("it can be read");
            let has = bytes
                .windows(40)
                .any(|part| part == &secret.reveal().as_bytes()[..40]);
            assert!(!has, "{}", file.path().display());
        }
    });
}

#[test]
fn keys_have_names_and_an_end() {
    block_on(async {
        let (_directory, store, accounts) = empty().await;
        for name in ["acme", "other"] {
            accounts.create(name, 5, NOW).await.expect("it is new");
        }
        let create = async |account: &str, name: &str, permissions, expires| {
            accounts
                .create_key(account, name, permissions, expires, NOW)
                .await
        };
        let (_, lasting) = create("acme", "ci", Permissions::ALL, None)
            .await
            .expect("it is new");
        let soon = Some(Timestamp(2_000));
        let (_, short) = create("acme", "short", Permissions::ALL, soon)
            .await
            .expect("it is new");
        create("other", "ci", Permissions::ALL, None)
            .await
            .expect("names are the account's own");
        for (made, hint) in [
            (
                create("acme", "ci", Permissions::ALL, None).await,
                "already",
            ),
            (
                create("acme", "x", Permissions::default(), None).await,
                "permission",
            ),
            (
                create("nobody", "x", Permissions::ALL, None).await,
                "unknown account",
            ),
        ] {
            let error = made.expect_err(hint).to_string();
            assert!(error.contains(hint), "{error}");
        }
        let directory = Directory::watch(Arc::clone(&store))
            .await
            .expect("it works");
        let snapshot = directory.snapshot();
        let known = |secret: &str, now| snapshot.authenticate(secret, Timestamp(now)).is_some();
        assert!(known(lasting.reveal(), i64::MAX));
        assert!(known(short.reveal(), 1_999) && !known(short.reveal(), 2_000));
        assert!(!known("pk_other", 0) && !known("", 0));
        let ambiguous = accounts.revoke(None, "ci", NOW).await;
        assert!(matches!(ambiguous, Err(AccountError::Ambiguous { .. })));
        let revoked = accounts
            .revoke(Some("acme"), "ci", NOW)
            .await
            .expect("it is there");
        assert_eq!(revoked.revoked_at, Some(NOW));
        assert_eq!(
            accounts.keys(Some("acme")).await.expect("it works").len(),
            2
        );
    });
}

#[test]
fn changes_of_others_are_seen_within_a_second() {
    block_on(async {
        let (_directory, store, accounts) = empty().await;
        accounts.create("acme", 5, NOW).await.expect("it is new");
        let directory = Directory::watch(Arc::clone(&store))
            .await
            .expect("it works");
        let seen = async |what: &dyn Fn(&pkgtool_serve::account::Snapshot) -> bool| {
            let begun = Instant::now();
            while !what(&directory.snapshot()) {
                assert!(
                    begun.elapsed() < Duration::from_secs(10),
                    "it is never seen"
                );
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let made = accounts.create_key("acme", "ci", Permissions::ALL, None, NOW);
        let (_, secret) = made.await.expect("it is new");
        seen(&|snapshot| snapshot.authenticate(secret.reveal(), NOW).is_some()).await;
        accounts
            .set("acme", Some(77), Some(true))
            .await
            .expect("it is there");
        seen(&|snapshot| {
            snapshot
                .account("acme")
                .is_some_and(|it| it.blocked && it.rps == 77)
        })
        .await;
        accounts.revoke(None, "ci", NOW).await.expect("it is there");
        seen(&|snapshot| snapshot.authenticate(secret.reveal(), NOW).is_none()).await;
        let snapshot = directory.snapshot();
        assert_eq!(
            snapshot.account("1").map(|it| it.name.as_str()),
            Some("acme")
        );
        for unknown in ["2", "-1", "+1", "", "99999999999999999999"] {
            assert!(snapshot.account(unknown).is_none(), "{unknown}");
        }
    });
}

#[test]
fn services_keep_their_numbers_and_configs() {
    block_on(async {
        let (directory, store, accounts) = empty().await;
        let owner = accounts.create("acme", 5, NOW).await.expect("it is new").id;
        let sum = store.service_number(owner, "sum").await.expect("it works");
        let other = store
            .service_number(owner, "other")
            .await
            .expect("it works");
        assert_ne!(sum, other);
        assert_eq!(
            store.service_number(owner, "sum").await.expect("it works"),
            sum
        );
        let again = open(directory.path()).await;
        assert_eq!(
            again.service_number(owner, "sum").await.expect("it works"),
            sum
        );
        let configs = PredictConfigs::new(store);
        assert_eq!(configs.default_of(sum).await.expect("it works"), None);
        let create = async |name: &str, is_default| {
            let config = NewConfig {
                service: sum,
                name: name.to_owned(),
                config: "{}".to_owned(),
                is_default,
            };
            configs.create(config, NOW).await.expect("it works")
        };
        let (first, second) = (create("a", true).await, create("b", true).await);
        assert_eq!(
            configs.default_of(sum).await.expect("it works"),
            Some(second.clone())
        );
        let listed: Arc<Vec<_>> = configs.list(sum).await.expect("it works");
        assert_eq!(
            listed.iter().map(|it| it.is_default).collect::<Vec<_>>(),
            [false, true]
        );
        assert!(configs.list(other).await.expect("it works").is_empty());
        assert_eq!(configs.get(other, first.id).await.expect("it works"), None);
        assert!(!configs.delete(other, first.id).await.expect("it works"));
        assert!(configs.delete(sum, second.id).await.expect("it works"));
        assert_eq!(configs.default_of(sum).await.expect("it works"), None);
        let reopened = PredictConfigs::new(again);
        assert_eq!(reopened.list(sum).await.expect("it works").len(), 1);
    });
}

#[test]
fn many_changes_of_configs_at_once_leave_what_is_stored() {
    block_on(async {
        let (_directory, store, accounts) = empty().await;
        let owner = accounts.create("acme", 5, NOW).await.expect("it is new").id;
        let sum = store.service_number(owner, "sum").await.expect("it works");
        let configs = Arc::new(PredictConfigs::new(Arc::clone(&store)));
        // Each of the three rounds starts with the caches of the previous one.
        for round in 0..3 {
            let mut all = tokio::task::JoinSet::new();
            for number in 0..20 {
                let configs = Arc::clone(&configs);
                all.spawn(async move {
                    let config = NewConfig {
                        service: sum,
                        name: format!("{round}.{number}"),
                        config: "{}".to_owned(),
                        is_default: number % 2 == 0,
                    };
                    let made = configs.create(config, NOW).await.expect("it works");
                    let listed = configs.list(sum).await.expect("it works");
                    assert!(listed.iter().any(|config| config.id == made.id));
                    if number % 3 == 0 {
                        assert!(configs.delete(sum, made.id).await.expect("it works"));
                        assert_eq!(configs.get(sum, made.id).await.expect("it works"), None);
                    }
                });
            }
            all.join_all().await;
            let stored = store.configs(sum).await.expect("it works");
            assert_eq!(stored.len(), 13 * (round + 1));
            assert!(stored.iter().filter(|config| config.is_default).count() <= 1);
            assert_eq!(*configs.list(sum).await.expect("it works"), stored);
        }
    });
}
