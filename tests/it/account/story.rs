//! Scenarios that every account store must pass.

use std::sync::Arc;

use pkgtool_serve::account::{
    AccountId, AccountStore, ApiKey, Counted, NewConfig, NewKey, Permissions, StoredKey, Usage,
    UsageKey,
};
use pkgtool_serve::database::{Day, Timestamp};

use pkgtool_serve::task::Stores;

use super::{NOW, block_on, open};
use crate::support::postgres::fresh_database;

const LATER: Timestamp = Timestamp(2_000);

/// Runs a scenario on every store.
fn of_every_store<F: Future<Output = ()>>(story: impl Fn(Arc<dyn AccountStore>) -> F) {
    let directory = tempfile::tempdir().expect("a directory");
    block_on(async {
        story(open(directory.path()).await).await;
        if let Some(url) = fresh_database("stories of accounts") {
            let stores = Stores::open(&url).await.expect("it opens");
            story(stores.accounts().await.expect("it opens")).await;
        }
    });
}

fn new_key(account: AccountId, name: &str, hash: u8) -> NewKey {
    NewKey {
        account,
        name: name.to_owned(),
        hash: [hash; 32],
        permissions: Permissions {
            read: true,
            ..Permissions::default()
        },
        expires_at: Some(LATER),
    }
}

#[test]
fn accounts_have_names_of_their_own() {
    of_every_store(async |store| {
        assert_eq!(store.accounts().await.expect("it works"), []);
        let made = store
            .create_account("acme", 5, NOW)
            .await
            .expect("it works");
        let acme = made.expect("it is new");
        assert_eq!(
            (acme.name.as_str(), acme.rps, acme.blocked, acme.created_at),
            ("acme", 5, false, NOW)
        );
        let again = store.create_account("acme", 9, LATER).await;
        assert_eq!(again.expect("it works"), None);
        let other = store.create_account("other", 7, LATER).await;
        let other = other.expect("it works").expect("it is new");
        assert_ne!(other.id, acme.id);
        assert_eq!(store.accounts().await.expect("it works"), [acme, other]);
    });
}

#[test]
fn a_change_leaves_the_rest_as_it_is() {
    of_every_store(async |store| {
        let made = store
            .create_account("acme", 5, NOW)
            .await
            .expect("it works");
        let id = made.expect("it is new").id;
        for (rps, blocked, expected) in [
            (Some(9), None, (9, false)),
            (None, Some(true), (9, true)),
            (None, None, (9, true)),
            (Some(2), Some(false), (2, false)),
        ] {
            let changed = store.change_account(id, rps, blocked).await;
            let changed = changed.expect("it works").expect("it is there");
            assert_eq!((changed.rps, changed.blocked), expected);
            assert_eq!(store.accounts().await.expect("it works"), [changed]);
        }
        let nobody = store
            .change_account(AccountId(id.0 + 1), Some(1), None)
            .await;
        assert_eq!(nobody.expect("it works"), None);
    });
}

#[test]
fn keys_are_kept_with_their_hashes() {
    of_every_store(async |store| {
        let mut ids = Vec::new();
        for name in ["acme", "other"] {
            let made = store.create_account(name, 5, NOW).await.expect("it works");
            ids.push(made.expect("it is new").id);
        }
        let made = store.create_key(new_key(ids[0], "ci", 1), NOW).await;
        let ci = made.expect("it works").expect("it is new");
        let expected = ApiKey {
            id: ci.id,
            name: "ci".to_owned(),
            account: ids[0],
            permissions: new_key(ids[0], "ci", 1).permissions,
            created_at: NOW,
            expires_at: Some(LATER),
            revoked_at: None,
        };
        assert_eq!(ci, expected);
        let again = store.create_key(new_key(ids[0], "ci", 2), NOW).await;
        assert_eq!(again.expect("it works"), None);
        let others = store.create_key(new_key(ids[1], "ci", 3), NOW).await;
        let others = others
            .expect("it works")
            .expect("names are the account's own");
        for at in [NOW, LATER] {
            store.revoke_key(ci.id, at).await.expect("it works");
        }
        let stored = |key: &ApiKey, account_name: &str, hash| StoredKey {
            key: key.clone(),
            account_name: account_name.to_owned(),
            hash: [hash; 32],
        };
        let revoked = ApiKey {
            revoked_at: Some(NOW),
            ..ci
        };
        assert_eq!(
            store.keys().await.expect("it works"),
            [stored(&revoked, "acme", 1), stored(&others, "other", 3)]
        );
    });
}

#[test]
fn every_change_of_accounts_and_keys_is_seen_in_the_version() {
    of_every_store(async |store| {
        let mut seen = Vec::new();
        let mut look = async || {
            let version = store.version().await.expect("it works");
            let is_new = !seen.contains(&version);
            seen.push(version);
            is_new
        };
        assert!(look().await);
        assert!(!look().await, "nothing changed");
        let made = store
            .create_account("acme", 5, NOW)
            .await
            .expect("it works");
        let id = made.expect("it is new").id;
        assert!(look().await, "an account was made");
        store
            .change_account(id, Some(1), None)
            .await
            .expect("it works");
        assert!(look().await, "an account was changed");
        let key = store.create_key(new_key(id, "ci", 1), NOW).await;
        assert!(look().await, "a key was made");
        let key = key.expect("it works").expect("it is new").id;
        store.revoke_key(key, NOW).await.expect("it works");
        assert!(look().await, "a key was revoked");
        store.service_number(id, "sum").await.expect("it works");
        store.keys().await.expect("it works");
        assert!(!look().await, "neither accounts nor keys changed");
    });
}

#[test]
fn services_have_numbers_and_one_default() {
    of_every_store(async |store| {
        let made = store
            .create_account("acme", 5, NOW)
            .await
            .expect("it works");
        let owner = made.expect("it is new").id;
        let number = async |name| store.service_number(owner, name).await.expect("it works");
        let (sum, other) = (number("sum").await, number("other").await);
        assert_ne!(sum, other);
        assert_eq!(number("sum").await, sum);
        let create = async |service, name: &str, is_default| {
            let config = NewConfig {
                service,
                name: name.to_owned(),
                config: "{}".to_owned(),
                is_default,
            };
            store.create_config(config, NOW).await.expect("it works")
        };
        let elsewhere = create(other, "x", true).await;
        let first = create(sum, "a", true).await;
        assert_eq!((first.service, first.name.as_str()), (sum, "a"));
        assert_eq!((first.config.as_str(), first.created_at), ("{}", NOW));
        let second = create(sum, "b", true).await;
        let third = create(sum, "c", false).await;
        let defaults = async |service| {
            let configs = store.configs(service).await.expect("it works");
            let of =
                |config: &pkgtool_serve::account::PredictConfig| (config.id, config.is_default);
            configs.iter().map(of).collect::<Vec<_>>()
        };
        let expected = [(first.id, false), (second.id, true), (third.id, false)];
        assert_eq!(defaults(sum).await, expected);
        assert_eq!(defaults(other).await, [(elsewhere.id, true)]);
        let delete = async |service, id| store.delete_config(service, id).await.expect("it works");
        assert!(!delete(other, first.id).await, "it is another service's");
        assert!(delete(sum, second.id).await);
        assert!(!delete(sum, second.id).await, "it is gone");
        assert_eq!(defaults(sum).await, [(first.id, false), (third.id, false)]);
    });
}

#[test]
fn usage_adds_up_and_is_forgotten_from_its_old_end() {
    of_every_store(async |store| {
        let account = async |name| {
            let made = store.create_account(name, 5, NOW).await.expect("it works");
            made.expect("it is new").id
        };
        let (acme, other) = (account("acme").await, account("other").await);
        let number = async |name| store.service_number(acme, name).await.expect("it works");
        let (sum, chat) = (number("sum").await, number("chat").await);
        let one = Counted {
            requests: 1,
            prompt: 2,
            completion: 3,
            cached: 4,
        };
        let key = |account, service, day| UsageKey {
            account,
            service,
            day: Day(day),
        };
        let add = async |used: &[UsageKey]| {
            let used: Vec<_> = used.iter().map(|key| (*key, one)).collect();
            store.add_usage(&used).await.expect("it works");
        };
        add(&[]).await;
        add(&[
            key(acme, sum, 7),
            key(acme, chat, 7),
            key(acme, sum, 8),
            key(other, chat, 7),
        ])
        .await;
        // Usage of a service without a number is stored but not reported.
        add(&[key(acme, sum, 7), key(acme, chat + 1000, 7)]).await;
        let usage = |day, service: i64, name: &str, counted| Usage {
            day: Day(day),
            service,
            service_name: name.to_owned(),
            owner: acme,
            owner_name: "acme".to_owned(),
            counted,
        };
        let twice = Counted {
            requests: 2,
            prompt: 4,
            completion: 6,
            cached: 8,
        };
        let told = async |account, from, to| {
            let told = store.usage(account, Day(from), Day(to)).await;
            told.expect("it works")
        };
        let expected = [
            usage(7, chat, "chat", one),
            usage(7, sum, "sum", twice),
            usage(8, sum, "sum", one),
        ];
        assert_eq!(told(acme, i64::MIN, i64::MAX).await, expected);
        assert_eq!(told(acme, 7, 7).await, expected[..2]);
        assert_eq!(told(acme, 9, 7).await, []);
        assert_eq!(told(other, 7, 8).await, [usage(7, chat, "chat", one)]);
        // Counters saturate at their maximum.
        let endless = Counted {
            requests: u64::MAX,
            ..one
        };
        for _ in 0..2 {
            let used = [(key(other, chat, 8), endless)];
            store.add_usage(&used).await.expect("it works");
        }
        assert_eq!(told(other, 8, 8).await[0].counted.requests, (1 << 53) - 1);
        let forget = async |before, most| {
            let forgotten = store.forget_usage(Day(before), most).await;
            forgotten.expect("it works")
        };
        assert_eq!(forget(7, 10).await, 0);
        assert_eq!(forget(8, 3).await, 3);
        assert_eq!(forget(8, 3).await, 1);
        assert_eq!(forget(8, 3).await, 0);
        assert_eq!(told(acme, 0, 100).await, expected[2..]);
    });
}
