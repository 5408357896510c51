//! Accounts, keys, and what else accounts own.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pkgtool::account::{
    AccountError, AccountId, Accounts, Directory, Permission, Permissions, PredictConfigs,
    ServiceNumbers,
};
use pkgtool::database::{Database, Timestamp};

const NOW: Timestamp = Timestamp(1_000);

fn empty() -> (tempfile::TempDir, Database, Accounts) {
    let directory = tempfile::tempdir().expect("a directory");
    let database = Database::open(directory.path()).expect("it is new");
    let accounts = Accounts::open(&database).expect("accounts");
    (directory, database, accounts)
}

#[test]
fn names_are_checked_and_unique() {
    let (_directory, _database, accounts) = empty();
    for name in ["", "17", "a b", "a/b", "ä", &"x".repeat(65)] {
        let refused = accounts.create(name, 1, NOW);
        assert!(matches!(refused, Err(AccountError::Name { .. })), "{name}");
    }
    let made = accounts.create("acme-1.x_y", 5, NOW).expect("it is new");
    assert_eq!((made.id, made.rps, made.blocked), (AccountId(1), 5, false));
    let again = accounts.create("acme-1.x_y", 5, NOW);
    assert!(matches!(again, Err(AccountError::Exists { .. })));
    let changed = accounts.set("1", Some(9), Some(true)).expect("it is there");
    assert_eq!((changed.rps, changed.blocked), (9, true));
    assert_eq!(accounts.list().expect("it works"), [changed]);
    let unknown = accounts.set("nobody", Some(1), None);
    assert!(matches!(unknown, Err(AccountError::Unknown { .. })));
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
    let (directory, _database, accounts) = empty();
    accounts.create("acme", 5, NOW).expect("it is new");
    let made = accounts.create_key("acme", "ci", Permissions::ALL, None, NOW);
    let (_, secret) = made.expect("it is new");
    assert!(secret.reveal().len() >= 43, "256 bits");
    assert!(!format!("{secret:?}").contains(secret.reveal()));
    let (_, other) = accounts
        .create_key("acme", "other", Permissions::ALL, None, NOW)
        .expect("it is new");
    assert_ne!(secret, other);
    drop(accounts);
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
}

#[test]
fn keys_have_names_and_an_end() {
    let (_directory, database, accounts) = empty();
    for name in ["acme", "other"] {
        accounts.create(name, 5, NOW).expect("it is new");
    }
    let create = |account: &str, name: &str, permissions, expires| {
        accounts.create_key(account, name, permissions, expires, NOW)
    };
    let (_, lasting) = create("acme", "ci", Permissions::ALL, None).expect("it is new");
    let soon = Some(Timestamp(2_000));
    let (_, short) = create("acme", "short", Permissions::ALL, soon).expect("it is new");
    create("other", "ci", Permissions::ALL, None).expect("names are the account's own");
    for (made, hint) in [
        (create("acme", "ci", Permissions::ALL, None), "already"),
        (
            create("acme", "x", Permissions::default(), None),
            "permission",
        ),
        (create("nobody", "x", Permissions::ALL, None), "no account"),
    ] {
        let error = made.expect_err(hint).to_string();
        assert!(error.contains(hint), "{error}");
    }
    let directory = Directory::watch(&database).expect("it works");
    let snapshot = directory.snapshot();
    let known = |secret: &str, now| snapshot.authenticate(secret, Timestamp(now)).is_some();
    assert!(known(lasting.reveal(), i64::MAX));
    assert!(known(short.reveal(), 1_999) && !known(short.reveal(), 2_000));
    assert!(!known("pk_other", 0) && !known("", 0));
    let ambiguous = accounts.revoke(None, "ci", NOW);
    assert!(matches!(ambiguous, Err(AccountError::Ambiguous { .. })));
    let revoked = accounts
        .revoke(Some("acme"), "ci", NOW)
        .expect("it is there");
    assert_eq!(revoked.revoked_at, Some(NOW));
    assert_eq!(accounts.keys(Some("acme")).expect("it works").len(), 2);
}

#[test]
fn changes_of_others_are_seen_within_a_second() {
    let (_directory, database, accounts) = empty();
    accounts.create("acme", 5, NOW).expect("it is new");
    let directory = Directory::watch(&database).expect("it works");
    let seen = |what: &dyn Fn(&pkgtool::account::Snapshot) -> bool| {
        let begun = Instant::now();
        while !what(&directory.snapshot()) {
            assert!(
                begun.elapsed() < Duration::from_secs(10),
                "it is never seen"
            );
            std::thread::yield_now();
        }
    };
    let made = accounts.create_key("acme", "ci", Permissions::ALL, None, NOW);
    let (_, secret) = made.expect("it is new");
    seen(&|snapshot| snapshot.authenticate(secret.reveal(), NOW).is_some());
    accounts
        .set("acme", Some(77), Some(true))
        .expect("it is there");
    seen(&|snapshot| {
        snapshot
            .account("acme")
            .is_some_and(|it| it.blocked && it.rps == 77)
    });
    accounts.revoke(None, "ci", NOW).expect("it is there");
    seen(&|snapshot| snapshot.authenticate(secret.reveal(), NOW).is_none());
    let snapshot = directory.snapshot();
    assert_eq!(
        snapshot.account("1").map(|it| it.name.as_str()),
        Some("acme")
    );
    for unknown in ["2", "-1", "+1", "", "99999999999999999999"] {
        assert!(snapshot.account(unknown).is_none(), "{unknown}");
    }
}

#[test]
fn services_keep_their_numbers_and_configs() {
    let (_directory, database, accounts) = empty();
    let owner = accounts.create("acme", 5, NOW).expect("it is new").id;
    let numbers = ServiceNumbers::open(&database).expect("it opens");
    let sum = numbers.number(owner, "sum").expect("it works");
    let other = numbers.number(owner, "other").expect("it works");
    assert_ne!(sum, other);
    assert_eq!(numbers.number(owner, "sum").expect("it works"), sum);
    let again = ServiceNumbers::open(&database).expect("it opens");
    assert_eq!(again.number(owner, "sum").expect("it works"), sum);
    let configs = PredictConfigs::open(&database).expect("it opens");
    assert_eq!(configs.default_of(sum).expect("it works"), None);
    let create = |name, default| {
        configs
            .create(sum, name, "{}", default, NOW)
            .expect("it works")
    };
    let (first, second) = (create("a", true), create("b", true));
    assert_eq!(
        configs.default_of(sum).expect("it works"),
        Some(second.clone())
    );
    let listed: Arc<Vec<_>> = configs.list(sum).expect("it works");
    assert_eq!(
        listed.iter().map(|it| it.is_default).collect::<Vec<_>>(),
        [false, true]
    );
    assert!(configs.list(other).expect("it works").is_empty());
    assert_eq!(configs.get(other, first.id).expect("it works"), None);
    assert!(!configs.delete(other, first.id).expect("it works"));
    assert!(configs.delete(sum, second.id).expect("it works"));
    assert_eq!(configs.default_of(sum).expect("it works"), None);
    let reopened = PredictConfigs::open(&database).expect("it opens");
    assert_eq!(reopened.list(sum).expect("it works").len(), 1);
}
