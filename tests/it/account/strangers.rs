//! Tests of unknown API keys: the server looks them up in the store, at a limited rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use pkgtool_serve::account::{
    Account, AccountId, AccountStore, ApiKey, Counted, CpuUsed, Directory, Login, NewConfig,
    NewKey, NewLogin, NewWorkerToken, Permissions, PredictConfig, StoredKey, StoredWorkerToken,
    Usage, UsageKey, WorkerToken,
};
use pkgtool_serve::database::{DatabaseError, Day, Timestamp};

use super::{NOW, block_on, empty};

/// A store that counts the reads of its version, the first step of every lookup. Other tasks run
/// during such a read.
struct Counting {
    store: Arc<dyn AccountStore>,
    looks: AtomicUsize,
}

#[async_trait::async_trait]
impl AccountStore for Counting {
    async fn create_account(
        &self,
        name: &str,
        rps: u32,
        now: Timestamp,
    ) -> Result<Option<Account>, DatabaseError> {
        self.store.create_account(name, rps, now).await
    }

    async fn change_account(
        &self,
        account: AccountId,
        rps: Option<u32>,
        blocked: Option<bool>,
    ) -> Result<Option<Account>, DatabaseError> {
        self.store.change_account(account, rps, blocked).await
    }

    async fn accounts(&self) -> Result<Vec<Account>, DatabaseError> {
        self.store.accounts().await
    }

    async fn create_key(
        &self,
        key: NewKey,
        now: Timestamp,
    ) -> Result<Option<ApiKey>, DatabaseError> {
        self.store.create_key(key, now).await
    }

    async fn keys(&self) -> Result<Vec<StoredKey>, DatabaseError> {
        self.store.keys().await
    }

    async fn revoke_key(&self, key: i64, now: Timestamp) -> Result<(), DatabaseError> {
        self.store.revoke_key(key, now).await
    }

    async fn create_worker_token(
        &self,
        token: NewWorkerToken,
        now: Timestamp,
    ) -> Result<Option<WorkerToken>, DatabaseError> {
        self.store.create_worker_token(token, now).await
    }

    async fn worker_tokens(&self) -> Result<Vec<StoredWorkerToken>, DatabaseError> {
        self.store.worker_tokens().await
    }

    async fn revoke_worker_token(&self, token: i64, now: Timestamp) -> Result<(), DatabaseError> {
        self.store.revoke_worker_token(token, now).await
    }

    async fn create_login(
        &self,
        login: NewLogin,
        most: usize,
        now: Timestamp,
    ) -> Result<(), DatabaseError> {
        self.store.create_login(login, most, now).await
    }

    async fn login(
        &self,
        hash: [u8; 32],
        is_code: bool,
        now: Timestamp,
    ) -> Result<Option<Login>, DatabaseError> {
        self.store.login(hash, is_code, now).await
    }

    async fn delete_login(&self, hash: [u8; 32]) -> Result<bool, DatabaseError> {
        self.store.delete_login(hash).await
    }

    async fn version(&self) -> Result<i64, DatabaseError> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.store.version().await
    }

    async fn service_number(&self, owner: AccountId, name: &str) -> Result<i64, DatabaseError> {
        self.store.service_number(owner, name).await
    }

    async fn configs(&self, service: i64) -> Result<Vec<PredictConfig>, DatabaseError> {
        self.store.configs(service).await
    }

    async fn create_config(
        &self,
        config: NewConfig,
        now: Timestamp,
    ) -> Result<PredictConfig, DatabaseError> {
        self.store.create_config(config, now).await
    }

    async fn delete_config(&self, service: i64, id: i64) -> Result<bool, DatabaseError> {
        self.store.delete_config(service, id).await
    }

    async fn add_usage(&self, used: &[(UsageKey, Counted)]) -> Result<(), DatabaseError> {
        self.store.add_usage(used).await
    }

    async fn usage(
        &self,
        account: AccountId,
        from: Day,
        to: Day,
    ) -> Result<Vec<Usage>, DatabaseError> {
        self.store.usage(account, from, to).await
    }

    async fn add_cpu(&self, used: &[CpuUsed]) -> Result<(), DatabaseError> {
        self.store.add_cpu(used).await
    }

    async fn cpu(
        &self,
        account: Option<AccountId>,
        from: Day,
        to: Day,
    ) -> Result<Vec<CpuUsed>, DatabaseError> {
        self.store.cpu(account, from, to).await
    }

    async fn forget_usage(&self, before: Day, most: usize) -> Result<usize, DatabaseError> {
        self.store.forget_usage(before, most).await
    }
}

#[test]
fn a_new_key_is_known_when_it_is_asked_for() {
    block_on(async {
        let (_directory, store, accounts) = empty().await;
        let directory = Directory::watch(Arc::clone(&store))
            .await
            .expect("it works");
        for round in 0..3 {
            // No slow operation is awaited, so the follower task does not run in between.
            let account = format!("a{round}");
            accounts.create(&account, 5, NOW).await.expect("it is new");
            let made = accounts.create_key(&account, "ci", Permissions::ALL, None, NOW);
            let (_, secret) = made.await.expect("it is new");
            let is_known = || {
                let snapshot = directory.snapshot();
                snapshot.authenticate(secret.reveal(), NOW).is_some()
            };
            assert!(!is_known(), "nobody asked for it yet");
            directory.refresh_for("pk_other").await;
            directory.refresh_for(secret.reveal()).await;
            assert!(is_known());
            assert!(directory.snapshot().account(&account).is_some());
        }
    });
}

#[test]
fn requests_at_once_all_know_a_new_key() {
    block_on(async {
        let (_directory, store, accounts) = empty().await;
        let watched = Arc::new(Counting {
            store,
            looks: AtomicUsize::new(0),
        });
        let directory = Directory::watch(watched).await.expect("it works");
        accounts.create("a", 5, NOW).await.expect("it is new");
        for round in 0..3 {
            let name = format!("k{round}");
            let made = accounts.create_key("a", &name, Permissions::ALL, None, NOW);
            let (_, secret) = made.await.expect("it is new");
            let request = || {
                let (directory, secret) = (Arc::clone(&directory), secret.reveal().to_owned());
                tokio::spawn(async move {
                    directory.refresh_for(&secret).await;
                    directory.snapshot().authenticate(&secret, NOW).is_some()
                })
            };
            for request in [request(), request(), request()] {
                assert!(request.await.expect("it ends"), "round {round}");
            }
        }
    });
}

#[test]
fn who_guesses_does_not_keep_the_store_busy() {
    block_on(async {
        let (_directory, store, _accounts) = empty().await;
        let counting = Arc::new(Counting {
            store,
            looks: AtomicUsize::new(0),
        });
        let watched: Arc<dyn AccountStore> = Arc::clone(&counting) as Arc<dyn AccountStore>;
        let directory = Directory::watch(watched).await.expect("it works");
        let looks = || counting.looks.load(Ordering::SeqCst);
        let before = looks();
        for _ in 0..1000 {
            directory.refresh_for("pk_the_same").await;
        }
        assert_eq!(looks() - before, 1);
        let begun = Instant::now();
        for guess in 0..10_000 {
            directory.refresh_for(&format!("pk_{guess}")).await;
        }
        // One hundred at once, then fifty per second, and the follower's own five per second.
        let most = 101 + 55 * (begun.elapsed().as_millis() / 1000 + 2);
        let looks = looks() - before;
        assert!(looks >= 100, "{looks}");
        assert!(looks as u128 <= most, "{looks} of at most {most}");
    });
}
